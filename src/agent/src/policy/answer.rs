//! PID 1's answers to the calls on files of a run under a policy.
//!
//! It must never wait: an open that would wait gets a task of its own, and the run may have a bounded number
//! of those.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::change::change;
use super::open::{OpenRequest, Opened, PendingOpen, open};
use super::rules::Rules;
use crate::intercept::{Answers, CallingProcess, NotifyListener, StoppedCall};

/// Opens of one run that may wait at the same time.
const MAX_WAITING: usize = 32;

/// Between two looks at an open that waits.
const LOOK: Duration = Duration::from_millis(5);

/// Answers by the rules of one run.
pub(super) struct FileAnswers {
    pub(super) rules: Rules,
    /// No file of the run may become longer.
    pub(super) longest: Option<u64>,
    /// Opens that wait.
    pub(super) waiting: Rc<Cell<usize>>,
}

impl Answers for FileAnswers {
    fn answer(&self, listener: &NotifyListener, call: StoppedCall) {
        let Self { rules, longest, waiting } = self;
        let fd = listener.get_ref().as_fd();
        let caller = CallingProcess::new(&call, fd);
        let Some(asked) = asked(&call) else {
            return call.answer(fd, change(rules, &caller, *longest));
        };
        match open(rules, &caller, &asked) {
            Ok(Opened::Now(opened)) => call.give(fd, &opened, asked.flags.contains(OFlags::CLOEXEC)),
            Ok(Opened::Later(_)) if waiting.get() >= MAX_WAITING => call.answer(fd, Err(Errno::AGAIN)),
            Ok(Opened::Later(later)) => {
                waiting.set(waiting.get() + 1);
                let (listener, waiting) = (listener.clone(), waiting.clone());
                tokio::task::spawn_local(async move {
                    wait(&listener, call, later).await;
                    waiting.set(waiting.get() - 1);
                });
            }
            Err(errno) => call.answer(fd, Err(errno)),
        }
    }
}

/// Waits in the caller's place, as long as the caller waits.
async fn wait(listener: &NotifyListener, call: StoppedCall, mut later: PendingOpen) {
    let fd = listener.get_ref().as_fd();
    while call.is_waiting(fd) {
        match later.look() {
            Some(Ok(opened)) => return call.give(fd, &opened, later.close_on_exec()),
            Some(Err(errno)) => return call.answer(fd, Err(errno)),
            None => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The open that a call asks for, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "as the kernel takes its arguments")]
fn asked(call: &StoppedCall) -> Option<OpenRequest> {
    let a = call.args;
    let (dir, path, flags, mode) = match call.number {
        libc::SYS_openat => (a[0] as i32, a[1], a[2] as u32, a[3]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (libc::AT_FDCWD, a[0], a[1] as u32, a[2]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => {
            (libc::AT_FDCWD, a[0], (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).cast_unsigned(), a[1])
        }
        _ => return None,
    };
    let mode = Mode::from_raw_mode(mode as u32 & 0o7777);
    Some(OpenRequest { dir, path, flags: OFlags::from_bits_retain(flags), mode })
}
