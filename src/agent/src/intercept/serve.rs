//! PID 1's side of a program's filter: one task, which ends when the last process under the filter is dead.
//!
//! A flood of calls must never hold up the other runs: after [`TURN`] they go first.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::install::receive;
use super::notify::{self, News, StoppedCall};

/// How long one program's calls are answered before other tasks run.
const TURN: Duration = Duration::from_millis(1);

/// Over which the calls of a program are answered.
pub(crate) type NotifyListener = Rc<AsyncFd<OwnedFd>>;

/// Answers one kind of calls. It must never wait; what has to wait gets a task of its own.
pub(crate) trait Answers {
    fn answer(&self, listener: &NotifyListener, call: StoppedCall);
}

/// Who answers the calls that a program's filter stops.
#[derive(Default)]
pub(crate) struct Answerers {
    pub(crate) files: Option<Box<dyn Answers>>,
    pub(crate) connect: Option<Box<dyn Answers>>,
    pub(crate) listen: Option<Box<dyn Answers>>,
}

impl Answerers {
    fn answer(&self, listener: &NotifyListener, call: StoppedCall) {
        let one = match call.number {
            libc::SYS_connect => &self.connect,
            libc::SYS_listen => &self.listen,
            _ => &self.files,
        };
        match one {
            Some(one) => one.answer(listener, call),
            None => call.answer(listener.get_ref().as_fd(), Err(Errno::NOSYS)),
        }
    }
}

/// Answers the calls of the processes whose listener comes over `socket`, as long as there are any.
pub(super) async fn serve(socket: OwnedFd, answerers: Answerers) -> io::Result<()> {
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
    loop {
        let mut ready = listener.readable().await?;
        let begun = Instant::now();
        loop {
            match notify::next(listener.get_ref())? {
                News::Call(call) => answerers.answer(&listener, call),
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
