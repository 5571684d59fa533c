//! What a client hears of an execution, in the words of its tools: one JSON object each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use paddock_proto::OutputStream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lines::OutputLine;
use crate::ports::OpenPort;

/// Milliseconds from the first line of an event to its last, where lines are joined.
const JOINED: u64 = 500;

/// One event. `seq` counts from 1 without a gap; the time is in milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionEvent {
    /// Its number within its execution.
    pub seq: u64,
    /// When it reached the daemon.
    pub at_ms: u64,
    /// What happened.
    pub body: EventBody,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    /// A line of output, or a piece of one.
    Output {
        /// Standard output or standard error.
        stream: OutputStream,
        /// The bytes, without the newline.
        bytes: Vec<u8>,
        /// Whether the newline was there.
        eol: bool,
    },
    /// Anything else.
    Lifecycle(Lifecycle),
}

/// A step in an execution's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Lifecycle {
    /// Its container has taken it.
    Ready,
    /// It ended: its exit code, or minus the number of the signal that ended it.
    Exit {
        /// The code.
        code: i32,
        /// From its start to the death of its last process.
        duration_ms: u64,
    },
    /// Its wall time ended it.
    Timeout {
        /// That time.
        timeout_seconds: f64,
    },
    /// It could not go on for a reason that is not its own.
    Error {
        /// A sentence.
        message: String,
    },
    /// Somebody ended it.
    Cancelled,
    /// Some of its output was lost.
    Gap {
        /// How many bytes.
        bytes: u64,
    },
    /// It was kept from a destination, for the first time.
    Network {
        /// The name or the address that it asked for.
        host: String,
        /// The TCP port.
        port: u16,
        /// False: only blocked destinations are events.
        allowed: bool,
        /// Why, in words.
        reason: String,
    },
    /// A program of it began to listen on a port.
    Port(OpenPort),
    /// A limit ended it; an exit follows.
    ResourceLimit {
        /// Which limit, in words.
        reason: String,
    },
}

impl Lifecycle {
    /// Whether nothing comes after it.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Exit { .. } | Self::Timeout { .. } | Self::Error { .. } | Self::Cancelled => true,
            Self::Ready
            | Self::Network { .. }
            | Self::Port(_)
            | Self::ResourceLimit { .. }
            | Self::Gap { .. } => false,
        }
    }
}

impl EventBody {
    pub(super) fn line(stream: OutputStream, line: OutputLine) -> Self {
        Self::Output { stream, bytes: line.bytes, eol: line.eol }
    }
}

impl ExecutionEvent {
    /// As clients receive it: `type`, `seq`, `ts` in seconds, and what belongs to the type. Output has
    /// `data`, of several lines if they are joined; `eol` is false if no newline follows it, and `encoding`
    /// is `base64` if it is not UTF-8.
    pub fn json(&self) -> Value {
        let mut event = match &self.body {
            EventBody::Output { stream, bytes, eol } => {
                let kind = stream.as_str();
                let mut event = match std::str::from_utf8(bytes) {
                    Ok(text) => json!({ "type": kind, "data": text }),
                    Err(_) => json!({ "type": kind, "data": STANDARD.encode(bytes), "encoding": "base64" }),
                };
                if !eol {
                    event["eol"] = json!(false);
                }
                event
            }
            EventBody::Lifecycle(step) => serde_json::to_value(step).unwrap_or_default(),
        };
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch have 41 bits")]
        let seconds = self.at_ms as f64 / 1000.0;
        event["seq"] = json!(self.seq);
        event["ts"] = json!(seconds);
        event
    }

    /// Whether `next`, the event behind it, is more text of the same stream, written within [`JOINED`]
    /// milliseconds.
    pub(crate) fn goes_on_with(&self, next: &Self) -> bool {
        match (&self.body, &next.body) {
            (
                EventBody::Output { stream, bytes, .. },
                EventBody::Output { stream: same, bytes: more, .. },
            ) => {
                // What was joined is text: only its last line has to be looked at.
                let line = memchr::memrchr(b'\n', bytes).map_or(bytes.as_slice(), |at| &bytes[at + 1..]);
                stream == same
                    && next.at_ms.saturating_sub(self.at_ms) < JOINED
                    && std::str::from_utf8(line).is_ok()
                    && std::str::from_utf8(more).is_ok()
            }
            (EventBody::Output { .. } | EventBody::Lifecycle(_), _) => false,
        }
    }

    /// Joins `next`, which goes on with this event. The number is from then on that of the last line, the
    /// time that of the first.
    pub(super) fn join(&mut self, next: Self) {
        if let (EventBody::Output { bytes, eol, .. }, EventBody::Output { bytes: more, eol: ends, .. }) =
            (&mut self.body, next.body)
        {
            bytes.extend(eol.then_some(b'\n'));
            bytes.extend(more);
            *eol = ends;
            self.seq = next.seq;
        }
    }

    /// Bytes of output, with the newline.
    pub(crate) fn output_size(&self) -> usize {
        match &self.body {
            EventBody::Output { bytes, eol, .. } => bytes.len() + usize::from(*eol),
            EventBody::Lifecycle(_) => 0,
        }
    }

    /// Bytes that it takes in memory, about.
    pub(super) fn size(&self) -> usize {
        const BESIDES: usize = 64;
        BESIDES
            + match &self.body {
                EventBody::Output { bytes, .. } => bytes.len(),
                EventBody::Lifecycle(
                    Lifecycle::Error { message: text } | Lifecycle::ResourceLimit { reason: text },
                ) => text.len(),
                EventBody::Lifecycle(Lifecycle::Network { host, reason, .. }) => host.len() + reason.len(),
                EventBody::Lifecycle(Lifecycle::Port(open)) => open.url.len(),
                EventBody::Lifecycle(_) => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_what_its_document_says() {
        let event = |body| ExecutionEvent { seq: 7, at_ms: 1_735_550_000_250, body }.json();
        let output =
            |stream, bytes: &[u8], eol| event(EventBody::Output { stream, bytes: bytes.to_vec(), eol });
        let rest = r#""seq":7,"ts":1735550000.25}"#;
        for (event, wanted) in [
            (output(OutputStream::Stdout, b"hello", true), r#"{"type":"stdout","data":"hello","#),
            (
                output(OutputStream::Stderr, b"pass: ", false),
                r#"{"type":"stderr","data":"pass: ","eol":false,"#,
            ),
            (
                output(OutputStream::Stdout, b"\xFF\x00", true),
                r#"{"type":"stdout","data":"/wA=","encoding":"base64","#,
            ),
            (event(EventBody::Lifecycle(Lifecycle::Ready)), r#"{"type":"ready","#),
            (
                event(EventBody::Lifecycle(Lifecycle::Exit { code: -24, duration_ms: 30_500 })),
                r#"{"type":"exit","code":-24,"duration_ms":30500,"#,
            ),
            (
                event(EventBody::Lifecycle(Lifecycle::Timeout { timeout_seconds: 0.5 })),
                r#"{"type":"timeout","timeout_seconds":0.5,"#,
            ),
            (
                event(EventBody::Lifecycle(Lifecycle::Network {
                    host: "example.com".into(),
                    port: 443,
                    allowed: false,
                    reason: "not in allowed_domains".into(),
                })),
                r#"{"type":"network","host":"example.com","port":443,"allowed":false,
                    "reason":"not in allowed_domains","#,
            ),
            (
                event(EventBody::Lifecycle(Lifecycle::Port(OpenPort { port: 80, url: "http://x/".into() }))),
                r#"{"type":"port","port":80,"url":"http://x/","#,
            ),
            (
                event(EventBody::Lifecycle(Lifecycle::Error { message: "no".into() })),
                r#"{"type":"error","message":"no","#,
            ),
            (event(EventBody::Lifecycle(Lifecycle::Cancelled)), r#"{"type":"cancelled","#),
            (
                event(EventBody::Lifecycle(Lifecycle::ResourceLimit {
                    reason: "CPU time limit exceeded".into(),
                })),
                r#"{"type":"resource_limit","reason":"CPU time limit exceeded","#,
            ),
        ] {
            let wanted: Value = serde_json::from_str(&format!("{wanted}{rest}")).expect("JSON");
            assert_eq!(event, wanted);
        }
    }
}
