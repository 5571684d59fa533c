//! What a warm part says on its line, a line each.
//!
//! It must never wait for a line longer than any that there is.

use std::io::ErrorKind;

use super::Line;
use crate::foreign::briefly;

/// Bytes of the longest line.
const LINE: usize = 128;

/// One line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// `ready`: it waits for one run itself.
    Ready,
    /// `ready PID [HOLDER]`: this child of it waits, and another has the memory of it.
    Stands { pid: i32, holder: Option<i32> },
    /// `took PID`: this child has a run.
    Took(i32),
    /// `ended PID CODE CPU RSS`.
    Ended { pid: i32, code: i32, cpu_us: u64, max_rss_kib: u64 },
}

impl Word {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split_ascii_whitespace();
        let kind = parts.next()?;
        let process = |pid: &str| pid.parse().ok().filter(|pid| *pid > 1);
        let pid = match parts.next() {
            None => return (kind == "ready").then_some(Self::Ready),
            Some(pid) => process(pid)?,
        };
        let word = match kind {
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
        parts.next().is_none().then_some(word)
    }
}

/// The words of one warm part.
pub(super) struct Words {
    line: Line,
    heard: Vec<u8>,
}

impl Words {
    pub(super) fn new(line: Line) -> Self {
        Self { line, heard: Vec::new() }
    }

    /// The next one. Cancel-safe.
    ///
    /// # Errors
    /// A sentence: it said something else, or hung up.
    pub(super) async fn next(&mut self) -> Result<Word, String> {
        loop {
            if let Some(end) = self.heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                return Word::parse(&line).ok_or_else(|| format!("it said {:?}", line.trim_end()));
            }
            if self.heard.len() > LINE {
                return Err(format!("it said {:?}…", String::from_utf8_lossy(&self.heard[..LINE])));
            }
            let gone = || "it let go of its line".to_owned();
            self.line.readable().await.map_err(|_| gone())?;
            let mut bytes = [0; LINE];
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
    fn words_are_what_the_page_says_and_nothing_else() {
        for (line, word) in [
            ("ready\n", Word::Ready),
            ("ready 12\n", Word::Stands { pid: 12, holder: None }),
            ("ready 12 13\n", Word::Stands { pid: 12, holder: Some(13) }),
            ("took 12\n", Word::Took(12)),
            ("ended 12 -9 1500 9000\n", Word::Ended { pid: 12, code: -9, cpu_us: 1500, max_rss_kib: 9000 }),
        ] {
            assert_eq!(Word::parse(line), Some(word), "{line}");
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
            "ready 99999999999",
        ] {
            assert_eq!(Word::parse(line), None, "{line:?}");
        }
    }
}
