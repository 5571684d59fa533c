//! A process that waits for one run, and becomes it.
//!
//! It must never begin a run of which it has not read the end.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::net::{Shutdown, shutdown};

use super::{Line, PATIENCE};
use crate::process::{Input, Process};
use crate::pump::Reports;
use crate::reap::Death;
use crate::{spawn, tree};

/// A process that waits for one run.
pub(super) struct Single {
    pub(super) job: i32,
    pub(super) part: i32,
    pub(super) death: Rc<Death>,
    pub(super) reports: Reports,
    pub(super) line: Line,
    /// Its standard input: a file in memory.
    pub(super) stdin: OwnedFd,
    pub(super) outputs: [OwnedFd; 2],
}

impl Single {
    /// Gives it its run. What comes back was not run.
    pub(super) async fn give(self, env: &[u8], input: Input) -> Result<Process, Input> {
        // The code before may have stopped them.
        spawn::wake(self.job);
        spawn::wake(self.part);
        let brought = tokio::time::timeout(PATIENCE, self.bring(env, &input)).await;
        if !matches!(brought, Ok(Ok(()))) {
            tree::kill(&tree::descendants(self.job));
            return Err(input);
        }
        Ok(Process {
            job: self.job,
            reports: self.reports.begun(self.part),
            dead: Some(self.death),
            warm: true,
            forker: None,
            outputs: Some(self.outputs),
        })
    }

    /// All of it, and that this was all.
    async fn bring(&self, env: &[u8], input: &Input) -> io::Result<()> {
        if let Some(stdin) = &input.stdin {
            fill(stdin, &self.stdin)?;
        }
        for part in [env, &input.code] {
            let mut left = part;
            while !left.is_empty() {
                self.line.writable().await?;
                match self.line.try_write(left) {
                    Ok(n) => left = &left[n..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(shutdown(&**self.line, Shutdown::Write)?)
    }
}

/// Copies a file in memory into another without moving where the other is read from.
fn fill(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let mut content = Vec::new();
    std::fs::File::from(from.try_clone()?).read_to_end(&mut content)?;
    rustix::fs::seek(from, rustix::fs::SeekFrom::Start(0))?;
    let mut at = 0;
    while at < content.len() {
        at += rustix::io::pwrite(to, &content[at..], at as u64)?;
    }
    Ok(())
}
