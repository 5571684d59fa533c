//! A carrier without the engine in between: one end of a socket pair that the daemon takes out of PID 1.
//!
//! An exec's stream passes through the engine and its shim in each direction: four copies, and as many
//! switches of the scheduler, for every 32 KiB. A socket pair needs one of each. It requires that the daemon
//! and the container share a kernel, and that the daemon may trace (`CAP_SYS_PTRACE`, which root has);
//! otherwise the exec's stream stays.
//!
//! ```text
//!  exec ─► hello, reply with an offer ─► pidfd_getfd(PID 1, number) ─► is it the offered end? ─► hello again
//! ```
//!
//! PID 1 can keep a descriptor of the end that it offered; both then have the same open file. If code ever
//! took control of PID 1, it could clear `O_NONBLOCK`, and read bytes before the daemon does; so every call
//! here says for itself that it must not wait. A message can bring descriptors, and the last close of a
//! socket can wait for as long as that socket's `SO_LINGER`; so no descriptor is closed on a thread that
//! serves others.
//!
//! A socket's other end that reads makes it writable, which would wake the daemon once for every message that
//! it sends. So a socket is watched for what there is to read, and for room only while it is full: by two
//! descriptors, since an epoll instance takes each only once.
//!
//! A descriptor must never be used before it is known to be the offered end: the process id can belong to
//! another machine or, by now, to another process, and the number can be any of that process's descriptors.
#![expect(unsafe_code, reason = "a descriptor that is watched for one direction only has no safe form")]

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Once};
use std::task::{Context, Poll, ready};

use paddock_proto::limits::AGENT_PROGRAM;
use paddock_proto::message::Offer;
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::task::coop::poll_proceed;

use super::Carrier;

/// The most descriptors that one message can bring (`SCM_MAX_FD`). The kernel closes those beyond the buffer.
const MOST_RIGHTS: usize = 253;

/// `CAP_SYS_PTRACE` of capabilities(7).
const SYS_PTRACE: u32 = 19;

/// Whether a direct carrier is possible: the engine is on this machine, and this process may trace others.
pub(super) fn is_possible(local: bool) -> bool {
    if !local {
        log_once(&"the engine is on another machine");
    }
    local && is_allowed()
}

/// Whether this process may trace others.
pub fn is_allowed() -> bool {
    static ALLOWED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let allowed = mask.is_some_and(|mask| mask & (1 << SYS_PTRACE) != 0);
        if !allowed {
            log_once(&"the daemon has no CAP_SYS_PTRACE");
        }
        allowed
    });
    *ALLOWED
}

/// Logs why there is no direct carrier: only once, since the reason is then the same for every container.
pub(super) fn log_once(why: &dyn std::fmt::Display) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::info!(%why, "bytes to and from containers pass through the engine, which is slower");
    });
}

/// Takes the end of the socket pair that PID 1 of a container offers. `pid` is its process id, as the engine
/// reports it.
///
/// # Errors
/// The descriptor cannot be taken, or is not the offered end.
pub(super) async fn take(pid: i64, offer: Offer) -> io::Result<Carrier> {
    let known = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let at = known.ok_or_else(|| refused(format!("{pid} is not the process id of a container")))?;
    let process = pidfd_open(at, PidfdFlags::empty())?;
    // Read after the pidfd is open: if the id has passed to another process by now, the next call fails.
    let command = fs::read(format!("/proc/{pid}/cmdline"))?;
    if command != format!("{AGENT_PROGRAM}\0init\0").into_bytes() {
        // All of it may be long: a runtime's own command line.
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program);
        return Err(refused(format!("process {pid} runs {program:?}, not the agent")));
    }
    let socket = pidfd_getfd(&process, offer.fd, PidfdGetfdFlags::empty())?;
    proven(socket.into(), at, offer.token).await
}

/// Checks that the socket's other end belongs to PID 1 and that the offer's token comes out of it: otherwise
/// it is some other descriptor, or of another machine's process.
async fn proven(socket: StdStream, at: Pid, token: [u8; 16]) -> io::Result<Carrier> {
    let peer = socket_peercred(&socket)?.pid;
    if peer != at {
        let (peer, at) = (peer.as_raw_nonzero(), at.as_raw_nonzero());
        return Err(refused(format!("its other end is process {peer}, not {at}")));
    }
    let (mut from, to) = halves(socket)?;
    let mut received = [0; 16];
    from.read_exact(&mut received).await?;
    if received != token {
        return Err(refused("it does not send the offer's token".to_owned()));
    }
    Ok((Box::new(from), Box::new(to)))
}

/// A socket of which PID 1 may have a descriptor as well: a descriptor for each direction.
fn halves(socket: StdStream) -> io::Result<(DirectReader, DirectWriter)> {
    socket.set_nonblocking(true)?; // the calls here do not rely on it
    let (from, to) = (socket.try_clone()?, socket);
    let watched = Watched::new(from.into()).watch(Interest::READABLE)?;
    Ok((DirectReader(watched), DirectWriter { socket: Watched::new(to.into()), room: None }))
}

/// What comes in.
struct DirectReader(AsyncFd<Watched>);

/// What goes out.
struct DirectWriter {
    socket: Watched,
    /// While it is full.
    room: Option<AsyncFd<Watched>>,
}

/// A descriptor that stays open for as long as the runtime watches it.
#[derive(Clone)]
struct Watched(Arc<DescriptorOwner>);

/// Closes the descriptor on a thread of its own. `None` only while it is dropped.
struct DescriptorOwner(Option<OwnedFd>, RawFd);

impl Watched {
    fn new(socket: OwnedFd) -> Self {
        let number = socket.as_raw_fd();
        Self(Arc::new(DescriptorOwner(Some(socket), number)))
    }

    /// Has the runtime tell when it is ready for this.
    fn watch(self, interest: Interest) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the value that is watched owns it: it is open, and the same, until it is watched no more.
        Ok(unsafe { AsyncFd::register_with_interest(self, interest) }?)
    }

    fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.0.as_ref().map(AsFd::as_fd).ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.1
    }
}

impl Drop for DescriptorOwner {
    fn drop(&mut self) {
        // Closing it also closes the descriptors in messages that nobody has read.
        close_elsewhere(self.0.take().into_iter().collect());
    }
}

/// Closes descriptors on a thread of its own, since a close may wait. If no thread can be started, it closes
/// them here.
fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(descriptors));
}

/// Reads what the socket has now into `room`, without waiting.
fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_RIGHTS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if descriptors.is_empty() {
        return Ok(received.bytes);
    }
    close_elsewhere(descriptors);
    Err(refused("it sends descriptors".to_owned()))
}

impl AsyncRead for DirectReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let socket = self.0.get_ref().socket()?;
            // Initialise only as much of the buffer as there are bytes to read.
            let waiting = ioctl_fionread(socket).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let room = waiting.max(1).min(buf.remaining());
            match receive(socket, buf.initialize_unfilled_to(room)) {
                Ok(n) => {
                    // Everything was read: tokio waits for the next readiness event.
                    if n > 0 && n == waiting {
                        ready.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for DirectWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        loop {
            let mut ready = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match send(self.socket.socket()?, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => {
                    self.room = None;
                    turn.made_progress();
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    // If there is room again by then, the runtime tells at once.
                    None => self.room = Some(self.socket.clone().watch(Interest::WRITABLE)?),
                },
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::process::getpid;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const TOKEN: [u8; 16] = [7; 16];

    /// Far longer than anything here takes, even on a busy machine.
    const LONG: std::time::Duration = std::time::Duration::from_secs(30);

    /// PID 1 keeps a descriptor of the end that it offered, and uses it as it likes.
    #[test]
    fn a_descriptor_that_pid_1_keeps_never_makes_the_daemon_wait() {
        let (done, is_done) = std::sync::mpsc::channel();
        // If the daemon's side waits for ever, only this thread does.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut theirs, ours) = StdStream::pair().unwrap();
                let mut kept = ours.try_clone().unwrap();
                theirs.write_all(&TOKEN).unwrap();
                let (mut from, mut to) = proven(ours, getpid(), TOKEN).await.unwrap();
                kept.set_nonblocking(false).unwrap();
                theirs.write_all(b"x").unwrap();
                tokio::task::yield_now().await;
                io::Read::read_exact(&mut kept, &mut [0]).unwrap();
                let soon = std::time::Duration::from_millis(50);
                let read = tokio::time::timeout(soon, from.read_u8()).await;
                assert!(read.is_err(), "there was nothing to read: {read:?}");
                let write = tokio::time::timeout(soon, to.write_all(&[0; 8 << 20])).await;
                assert!(write.is_err(), "nobody read it: {write:?}");
            });
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LONG).expect("the daemon's side waits, or has failed");
    }

    /// A connection with more bytes under way than its other end takes: its last close waits.
    fn lingering() -> (OwnedFd, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 1 << 16]).is_ok() {}
        rustix::net::sockopt::set_socket_linger(&near, Some(LONG)).unwrap();
        (near.into(), far)
    }

    fn send_with(socket: &StdStream, descriptor: &OwnedFd) {
        use std::os::fd::AsFd;
        let rights = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        control.push(rustix::net::SendAncillaryMessage::ScmRights(&rights));
        let byte = [io::IoSlice::new(b"x")];
        rustix::net::sendmsg(socket, &byte, &mut control, SendFlags::empty()).unwrap();
    }

    #[tokio::test]
    async fn descriptors_that_pid_1_sends_hold_nobody_up() {
        let begun = std::time::Instant::now();
        let (mut theirs, ours) = StdStream::pair().unwrap();
        theirs.write_all(&TOKEN).unwrap();
        let (mut from, to) = proven(ours, getpid(), TOKEN).await.unwrap();
        let (near, _far) = lingering();
        let (other, _its_far) = lingering();
        send_with(&theirs, &near);
        send_with(&theirs, &other); // which nobody reads
        drop((near, other));
        let error = from.read_u8().await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidData && error.to_string().contains("descriptors"),
            "{error}"
        );
        drop((from, to));
        assert!(begun.elapsed() < LONG / 2, "it waited");
    }

    async fn expect_refusal(taken: impl Future<Output = io::Result<Carrier>>, why: &str) {
        let error = taken.await.err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[tokio::test]
    async fn only_a_container_s_first_process_is_taken_from() {
        let (a, _b) = StdStream::pair().unwrap();
        let offer = Offer { fd: std::os::fd::AsRawFd::as_raw_fd(&a), token: TOKEN };
        for none in [i64::MIN, -1, 0, 1, 1 << 40] {
            expect_refusal(take(none, offer), "is not the process id").await;
        }
        let own = i64::from(getpid().as_raw_nonzero().get());
        expect_refusal(take(own, offer), "not the agent").await; // it is this test
    }

    #[tokio::test]
    async fn only_the_offered_descriptor_is_used() {
        let pair = |says: &[u8]| {
            let (mut theirs, ours) = StdStream::pair().unwrap();
            theirs.write_all(says).unwrap();
            (theirs, ours)
        };
        let (mut theirs, ours) = pair(&TOKEN);
        theirs.write_all(b"more").unwrap();
        let (mut from, mut to) = proven(ours, getpid(), TOKEN).await.unwrap();
        to.write_all(b"hello").await.unwrap();
        let mut more = [0; 4];
        from.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"more");

        let (_theirs, ours) = pair(&TOKEN);
        expect_refusal(proven(ours, Pid::from_raw(1).unwrap(), TOKEN), "its other end is process").await;
        let (_theirs, ours) = pair(&[8; 16]);
        expect_refusal(proven(ours, getpid(), TOKEN), "token").await;
        let (theirs, ours) = pair(&TOKEN[..15]);
        drop(theirs);
        expect_refusal(proven(ours, getpid(), TOKEN), "eof").await;
        let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
        expect_refusal(proven(file.into(), getpid(), TOKEN), "socket").await;
    }
}
