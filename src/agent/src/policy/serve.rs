//! PID 1's side of a run under a policy: one task, which ends when the run's last process is dead.
//!
//! A flood of calls must never hold up the other runs: after [`TURN`] they go first. An open that would wait
//! gets a task of its own, and the run may have a bounded number of those.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::caller::CallingProcess;
use super::change::change;
use super::confine::receive;
use super::notify::{self, News, StoppedCall};
use super::open::{OpenRequest, Opened, PendingOpen, open};
use super::rules::Rules;

/// How long one run's calls are answered before other tasks run.
const TURN: Duration = Duration::from_millis(1);

/// Opens of one run that may wait at the same time.
const MAX_WAITING: usize = 32;

/// Between two looks at an open that waits.
const LOOK: Duration = Duration::from_millis(5);

type NotifyListener = Rc<AsyncFd<OwnedFd>>;

/// Answers the calls of a run whose listener comes over `socket`.
pub(super) async fn serve(socket: OwnedFd, rules: &Rc<Rules>, longest: Option<u64>) -> io::Result<()> {
    let socket = notify::watched(socket)?;
    let listener = loop {
        let mut ready = socket.readable().await?;
        match ready.try_io(|socket| receive(socket.as_fd())) {
            Ok(listener) => break listener?,
            Err(_would_block) => {}
        }
    };
    drop(socket);
    let Some(listener) = listener else { return Ok(()) };
    let listener = Rc::new(notify::watched(listener)?);
    let waiting = Rc::new(Cell::new(0));
    loop {
        let mut ready = listener.readable().await?;
        let begun = Instant::now();
        loop {
            match notify::next(listener.get_ref())? {
                News::Call(call) => answer(rules, &listener, call, longest, &waiting),
                News::Nothing => {
                    ready.clear_ready();
                    break;
                }
                News::Over => return Ok(()),
            }
            if begun.elapsed() > TURN {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
}

fn answer(
    rules: &Rc<Rules>,
    listener: &NotifyListener,
    call: StoppedCall,
    longest: Option<u64>,
    waiting: &Rc<Cell<usize>>,
) {
    let fd = listener.get_ref().as_fd();
    let caller = CallingProcess::new(&call, fd);
    let Some(asked) = asked(&call) else {
        return call.answer(fd, change(rules, &caller, longest));
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
