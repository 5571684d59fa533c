//! What a client hears of an execution, in the words of its tools: one JSON object each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paddock_proto::Channel;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lines::Line;

/// Milliseconds from the first line of an event to its last, where lines are joined.
const JOINED: u64 = 500;

/// One event. `seq` counts from 1 without a gap; the time is in milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Which one of its execution.
    pub seq: u64,
    /// When the daemon heard of it.
    pub at_ms: u64,
    /// What it was.
    pub what: What,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A line of output, or a piece of one.
    Output {
        /// Standard output or standard error.
        channel: Channel,
        /// The bytes, without the newline.
        bytes: Vec<u8>,
        /// Whether the newline was there.
        eol: bool,
    },
    /// Anything else.
    Mark(Mark),
}

/// A step in an execution's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Mark {
    /// Its container has it.
    Ready,
    /// It ended: its exit code, or minus the number of the signal that ended it.
    Exit {
        /// The code.
        code: i32,
        /// From its start to the death of its last process.
        duration_ms: u64,
    },
    /// It took longer than it may.
    Timeout {
        /// The bound.
        timeout_seconds: f64,
    },
    /// It could not go on for a reason that is not its own.
    Error {
        /// A sentence.
        message: String,
    },
    /// Somebody ended it.
    Cancelled,
    /// Some of its output is nowhere any more.
    Gap {
        /// How much.
        bytes: u64,
    },
    /// A bound of its own ended it.
    ResourceLimit {
        /// Which one, in words.
        reason: String,
    },
}

impl Mark {
    /// Whether nothing comes after it.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Exit { .. } | Self::Timeout { .. } | Self::Error { .. } | Self::Cancelled => true,
            Self::Ready | Self::ResourceLimit { .. } | Self::Gap { .. } => false,
        }
    }
}

impl What {
    pub(super) fn line(channel: Channel, line: Line) -> Self {
        Self::Output { channel, bytes: line.bytes, eol: line.eol }
    }
}

impl Event {
    /// As clients get it: `type`, `seq`, `ts` in seconds, and what belongs to the type. Output has `data`, of several
    /// lines where they are joined; where no newline follows it `eol` is false, and where it is not UTF-8 `encoding`
    /// is `base64`.
    pub fn json(&self) -> Value {
        let mut event = match &self.what {
            What::Output { channel, bytes, eol } => {
                let kind = if *channel == Channel::Stderr { "stderr" } else { "stdout" };
                let mut event = match std::str::from_utf8(bytes) {
                    Ok(text) => json!({ "type": kind, "data": text }),
                    Err(_) => json!({ "type": kind, "data": STANDARD.encode(bytes), "encoding": "base64" }),
                };
                if !eol {
                    event["eol"] = json!(false);
                }
                event
            }
            What::Mark(mark) => serde_json::to_value(mark).unwrap_or_default(),
        };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
        let seconds = self.at_ms as f64 / 1000.0;
        event["seq"] = json!(self.seq);
        event["ts"] = json!(seconds);
        event
    }

    /// Whether `next`, the event behind it, is more text of the same stream, written at the same time as far as anybody
    /// cares: [`JOINED`].
    pub(crate) fn goes_on_with(&self, next: &Self) -> bool {
        match (&self.what, &next.what) {
            (What::Output { channel, bytes, .. }, What::Output { channel: same, bytes: more, .. }) => {
                // What was joined is text: only its last line has to be looked at.
                let line = memchr::memrchr(b'\n', bytes).map_or(bytes.as_slice(), |at| &bytes[at + 1..]);
                channel == same
                    && next.at_ms.saturating_sub(self.at_ms) < JOINED
                    && std::str::from_utf8(line).is_ok()
                    && std::str::from_utf8(more).is_ok()
            }
            (What::Output { .. } | What::Mark(_), _) => false,
        }
    }

    /// Takes in what goes on with it. The number is from then on that of its last line, the time that of its first.
    pub(super) fn join(&mut self, next: Self) {
        if let (What::Output { bytes, eol, .. }, What::Output { bytes: more, eol: ends, .. }) =
            (&mut self.what, next.what)
        {
            bytes.extend(eol.then_some(b'\n'));
            bytes.extend(more);
            *eol = ends;
            self.seq = next.seq;
        }
    }

    /// Bytes of output, with the newline.
    pub(crate) fn output_size(&self) -> usize {
        match &self.what {
            What::Output { bytes, eol, .. } => bytes.len() + usize::from(*eol),
            What::Mark(_) => 0,
        }
    }

    /// What it takes in memory, about.
    pub(super) fn size(&self) -> usize {
        const BESIDES: usize = 64;
        BESIDES
            + match &self.what {
                What::Output { bytes, .. } => bytes.len(),
                What::Mark(Mark::Error { message: text } | Mark::ResourceLimit { reason: text }) => {
                    text.len()
                }
                What::Mark(_) => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_what_its_document_says() {
        let event = |what| Event { seq: 7, at_ms: 1_735_550_000_250, what }.json();
        let output = |channel, bytes: &[u8], eol| event(What::Output { channel, bytes: bytes.to_vec(), eol });
        let rest = r#""seq":7,"ts":1735550000.25}"#;
        for (event, wanted) in [
            (output(Channel::Stdout, b"hello", true), r#"{"type":"stdout","data":"hello","#),
            (output(Channel::Stderr, b"pass: ", false), r#"{"type":"stderr","data":"pass: ","eol":false,"#),
            (
                output(Channel::Stdout, b"\xFF\x00", true),
                r#"{"type":"stdout","data":"/wA=","encoding":"base64","#,
            ),
            (event(What::Mark(Mark::Ready)), r#"{"type":"ready","#),
            (
                event(What::Mark(Mark::Exit { code: -24, duration_ms: 30_500 })),
                r#"{"type":"exit","code":-24,"duration_ms":30500,"#,
            ),
            (
                event(What::Mark(Mark::Timeout { timeout_seconds: 0.5 })),
                r#"{"type":"timeout","timeout_seconds":0.5,"#,
            ),
            (event(What::Mark(Mark::Error { message: "no".into() })), r#"{"type":"error","message":"no","#),
            (event(What::Mark(Mark::Cancelled)), r#"{"type":"cancelled","#),
            (
                event(What::Mark(Mark::ResourceLimit { reason: "CPU time limit exceeded".into() })),
                r#"{"type":"resource_limit","reason":"CPU time limit exceeded","#,
            ),
        ] {
            let wanted: Value = serde_json::from_str(&format!("{wanted}{rest}")).expect("JSON");
            assert_eq!(event, wanted);
        }
    }
}
