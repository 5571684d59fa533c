//! What must hold after every row of every table: the same daemon answers, other sessions run, nothing is
//! left behind, and the log has no secret and no panic.

use std::time::{Duration, Instant};

use crate::support::{Daemon, Request, TOKEN, within};

/// The key that signs links in these tests.
pub(super) const SECRET: &str = "the-key-that-signs-links-in-these-tests";

/// The time in which `/health` must answer.
const SOON: Duration = Duration::from_secs(1);
/// The time in which what a row used must be free again.
const FREED: Duration = Duration::from_secs(15);
/// Descriptors that a daemon may have more than before: connections to the engine that it keeps.
const KEPT: usize = 4;
/// Descriptors of one container.
const PER_CONTAINER: usize = 8;
/// How much larger the daemon may be after a table, in KiB.
const GROWTH: u64 = 64 * 1024;

/// A daemon under attack, and what it had before.
pub(super) struct Watch<'d> {
    d: &'d Daemon,
    descriptors: usize,
    resident: u64,
    lines: usize,
}

impl<'d> Watch<'d> {
    /// Begins after the witness has run, so that its container is there.
    pub(super) async fn over(d: &'d Daemon) -> Watch<'d> {
        witness(d).await;
        Watch { d, descriptors: descriptors(d), resident: resident(d), lines: d.log.mark() }
    }

    /// After one row.
    pub(super) async fn row(&self) -> Result<(), String> {
        let health = Request::new(self.d.addr, "GET", "/health").send();
        let answer = within(SOON, "an answer of /health", health).await;
        if answer.status != 200 {
            return Err(format!("/health answers {}", answer.status));
        }
        witness(self.d).await;
        let text = self.d.log.text();
        for line in text.lines().skip(self.lines) {
            let wrong = ["panicked", TOKEN, SECRET].into_iter().find(|one| line.contains(one));
            if let Some(one) = wrong {
                return Err(format!("the log has {one:?}: {line}"));
            }
        }
        let begun = Instant::now();
        while descriptors(self.d) > self.descriptors + KEPT {
            // Those of rows that ran something stay until somebody needs their places.
            let containers = self.d.view().await.containers().await.len();
            let open = descriptors(self.d);
            if open <= self.descriptors + KEPT + PER_CONTAINER * containers {
                break;
            }
            if begun.elapsed() > FREED {
                return Err(format!(
                    "{open} descriptors with {containers} containers, {} before",
                    self.descriptors
                ));
            }
            // No event tells that a descriptor was closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// After one row that came out like this: its name, and what was wrong with it or behind it.
    pub(super) async fn judge(
        &self,
        (id, attempt): (&str, &str),
        attacked: Result<(), String>,
    ) -> Option<String> {
        let judged = match attacked {
            Ok(()) => self.row().await,
            wrong => wrong,
        };
        judged.err().map(|why| format!("{id}: {attempt}\n  {why}"))
    }

    /// After the last row: memory, files that only uploads in progress have, and containers.
    pub(super) async fn end(&self) {
        let grown = resident(self.d).saturating_sub(self.resident);
        assert!(grown < GROWTH, "{grown} KiB more than before");
        let begun = Instant::now();
        let staged = || std::fs::read_dir(self.d.store.path().join("tmp")).expect("tmp").count();
        while staged() > 0 {
            assert!(begun.elapsed() < FREED, "{} staged files are left", staged());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Another session runs, in its own container.
async fn witness(d: &Daemon) {
    d.session("witness").sh("echo ok").await.expect_stdout("ok\n");
}

fn descriptors(d: &Daemon) -> usize {
    let path = format!("/proc/{}/fd", d.pid().as_raw_nonzero());
    std::fs::read_dir(path).expect("the same process").count()
}

fn resident(d: &Daemon) -> u64 {
    let path = format!("/proc/{}/status", d.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("the same process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Tells all faults of a table together.
#[track_caller]
pub(super) fn expect_none(faults: &[String], of: usize) {
    assert!(faults.is_empty(), "{} of {of} rows:\n{}", faults.len(), faults.join("\n\n"));
}

/// The bytes of a text in which `\xNN` stands for one byte, and `\\` for a backslash.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        if let Some(more) = rest.strip_prefix('\\') {
            out.push(b'\\');
            rest = more;
        } else if let Some(more) = rest.strip_prefix('x') {
            let digits = more.get(..2).expect("two digits behind \\x");
            out.push(u8::from_str_radix(digits, 16).expect("hexadecimal digits behind \\x"));
            rest = &more[2..];
        } else {
            out.push(b'\\');
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
