//! The line between PID 1 and a warm part, and what the part says on it: one message a line of text.
//!
//! It must never buffer more than the longest message that the protocol has.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use paddock_proto::limits::MAX_REASON;
use paddock_proto::message::RestoreFailure;
use tokio::net::UnixStream;

use crate::foreign::{Brief, briefly};

/// PID 1's end of the line. The part, and code that has its memory, can send sockets over it.
pub(super) type PartLine = Rc<Brief<UnixStream>>;

/// How long a part may take to read what it waits for, or to end when it is told to.
pub(super) const PATIENCE: Duration = Duration::from_millis(1500);

/// What begins the last message of a part that cannot be restored from this snapshot.
const FAILED: &str = "failed ";

/// The same where no snapshot can be restored.
const UNSUPPORTED: &str = "unsupported ";

/// The same where something is missing in this container, such as memory.
const UNABLE: &str = "unable ";

/// Bytes of the longest message.
const LONGEST: usize = UNSUPPORTED.len() + MAX_REASON;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartMessage {
    /// `ready`: it waits for one run itself.
    Ready,
    /// `ready PID [HOLDER]`: this child of it waits for a run, and the holder is a second process on the
    /// child's memory.
    Stands { pid: i32, holder: Option<i32> },
    /// `took PID`: this child has a run.
    Took(i32),
    /// `ended PID CODE CPU RSS`.
    Ended { pid: i32, code: i32, cpu_us: u64, max_rss_kib: u64 },
    /// `failed REASON`, `unsupported REASON`, `unable REASON`: the part cannot be restored.
    Failed(RestoreFailure, String),
}

impl PartMessage {
    fn parse(line: &str) -> Option<Self> {
        for (word, failure) in [
            (FAILED, RestoreFailure::Said),
            (UNSUPPORTED, RestoreFailure::Unsupported),
            (UNABLE, RestoreFailure::Died),
        ] {
            if let Some(reason) = line.strip_prefix(word) {
                return Some(Self::Failed(failure, printable(reason.trim_end_matches('\n'))));
            }
        }
        let mut parts = line.split_ascii_whitespace();
        let kind = parts.next()?;
        let process = |pid: &str| pid.parse().ok().filter(|pid| *pid > 1);
        let pid = match parts.next() {
            None => return (kind == "ready").then_some(Self::Ready),
            Some(pid) => process(pid)?,
        };
        let message = match kind {
            "ready" => match parts.next() {
                None => Self::Stands { pid, holder: None },
                Some(holder) => Self::Stands { pid, holder: Some(process(holder)?) },
            },
            "took" => Self::Took(pid),
            "ended" => Self::Ended {
                pid,
                code: parts.next()?.parse().ok().filter(|code| (-64..=255).contains(code))?,
                cpu_us: parts.next()?.parse().ok()?,
                max_rss_kib: parts.next()?.parse().ok()?,
            },
            _ => return None,
        };
        parts.next().is_none().then_some(message)
    }
}

/// A reason as others may read it: printable ASCII, of a bounded length.
pub(super) fn printable(reason: &str) -> String {
    let printable = |c: char| if matches!(c, ' '..='~') { c } else { '?' };
    reason.chars().take(MAX_REASON).map(printable).collect()
}

/// The messages of one warm part, in their order.
pub(super) struct PartMessages {
    line: PartLine,
    heard: Vec<u8>,
}

impl PartMessages {
    pub(super) fn new(line: PartLine) -> Self {
        Self { line, heard: Vec::new() }
    }

    /// The next one. Cancel-safe.
    ///
    /// # Errors
    /// What is wrong with the part, as text: it said something that is no message, or closed the line.
    pub(super) async fn next(&mut self) -> Result<PartMessage, String> {
        loop {
            if let Some(end) = self.heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return PartMessage::parse(&line).ok_or_else(|| format!("it said {:?}", line.trim_end()));
            }
            if self.heard.len() > LONGEST {
                return Err(format!("it said {:?}…", String::from_utf8_lossy(&self.heard[..LONGEST])));
            }
            let gone = || "it closed its line".to_owned();
            self.line.readable().await.map_err(|_| gone())?;
            let mut bytes = [0; LONGEST];
            match briefly(|| self.line.try_read(&mut bytes)) {
                Ok(0) => return Err(gone()),
                Ok(n) => self.heard.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(gone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_the_protocol_says_and_nothing_else() {
        let said = |why: &str| PartMessage::Failed(RestoreFailure::Said, why.to_owned());
        for (line, message) in [
            ("ready\n", PartMessage::Ready),
            ("ready 12\n", PartMessage::Stands { pid: 12, holder: None }),
            ("ready 12 13\n", PartMessage::Stands { pid: 12, holder: Some(13) }),
            ("took 12\n", PartMessage::Took(12)),
            (
                "ended 12 -9 1500 9000\n",
                PartMessage::Ended { pid: 12, code: -9, cpu_us: 1500, max_rss_kib: 9000 },
            ),
            ("failed the kernel is another\n", said("the kernel is another")),
            ("failed \x1b[2J\u{e9}\n", said("?[2J?")),
            ("failed \n", said("")),
            ("unable no memory\n", PartMessage::Failed(RestoreFailure::Died, "no memory".to_owned())),
            (
                "unsupported no snapshots here\n",
                PartMessage::Failed(RestoreFailure::Unsupported, "no snapshots here".to_owned()),
            ),
        ] {
            assert_eq!(PartMessage::parse(line), Some(message), "{line}");
        }
        for line in [
            "",
            "\n",
            "Ready",
            "ready 1",
            "ready -4",
            "ready 12 1",
            "ready 12 13 14",
            "took",
            "took x",
            "ended 12 0 1",
            "ended 12 256 0 0",
            "ended 12 -65 0 0",
            "ended 12 0 1 2 3",
            "hello 12",
            "failed\n",
            "unsupported\n",
            "unable\n",
            "ready 99999999999",
        ] {
            assert_eq!(PartMessage::parse(line), None, "{line:?}");
        }
    }
}
