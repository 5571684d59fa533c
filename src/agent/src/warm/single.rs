//! A process that waits for one run, and becomes it.
//!
//! It must never begin a run of which it has not read the end.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::net::{Shutdown, shutdown};

use super::line::{PATIENCE, PartLine};
use crate::network::{PartRun, RunNetwork};
use crate::program::CodeInput;
use crate::reap::Death;
use crate::report::Reports;
use crate::tree;

/// A process that waits for one run.
pub(super) struct Single {
    pub(super) job: i32,
    pub(super) part: i32,
    pub(super) death: Rc<Death>,
    pub(super) reports: Reports,
    pub(super) line: PartLine,
    /// Its standard input: a file in memory.
    pub(super) stdin: OwnedFd,
    pub(super) outputs: [OwnedFd; 2],
    /// Whose its `connect`s are.
    pub(super) owner: Rc<PartRun>,
}

impl Single {
    /// Gives it its run: the reports of the program, and the reading ends of its outputs. An input that comes
    /// back was not run.
    pub(super) async fn give(
        self,
        env: &[u8],
        run: &Rc<RunNetwork>,
        input: CodeInput,
    ) -> Result<(Reports, [OwnedFd; 2]), CodeInput> {
        self.owner.give(run, None);
        // Earlier code may have stopped them.
        tree::resume(&[self.job, self.part]);
        let brought = tokio::time::timeout(PATIENCE, self.bring(env, &input)).await;
        if !matches!(brought, Ok(Ok(()))) {
            self.owner.take_back();
            tree::kill(&tree::descendants(self.job));
            return Err(input);
        }
        Ok((self.reports.with_start(self.part), self.outputs))
    }

    /// Writes the whole run and closes this end, which tells the part that it has all of it.
    async fn bring(&self, env: &[u8], input: &CodeInput) -> io::Result<()> {
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

/// Copies a file in memory into another one, whose position stays where it is.
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
