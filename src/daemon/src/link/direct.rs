//! A carrier without the engine in between: one end of a socket pair of PID 1, taken out of it.
//!
//! An exec's stream goes through the engine and its shim, each way: four copies and as many turns of the scheduler
//! for every 32 KiB. A socket pair is one. It needs the same kernel under both and the right to trace
//! (`CAP_SYS_PTRACE`, which root has); where that is missing the exec's stream stays.
//!
//! ```text
//!  exec ─► hello, reply with an offer ─► pidfd_getfd(PID 1, number) ─► is it that one? ─► hello, over it
//! ```
//!
//! PID 1 can keep what it offered: both have the same open file then. Should code ever command PID 1, it could clear
//! `O_NONBLOCK`, and read what is announced to the daemon before the daemon does; so each call says itself that it must
//! not wait. A message can bring descriptors, and the last close of a socket can wait for as long as that socket's
//! `SO_LINGER` says: none is dropped by a thread that others need.
//!
//! It must never use a descriptor before it is known to be the offered end: a process id can be another machine's,
//! or have passed to another process, and a number can be anything.

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Once};
use std::task::{Context, Poll, ready};

use paddock_proto::limits::AGENT_PROGRAM;
use paddock_proto::message::Offer;
use rustix::io::ioctl_fionread;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use super::Carrier;

/// Descriptors that one message can bring (`SCM_MAX_FD`): the kernel itself closes what there is no room for.
const MOST_RIGHTS: usize = 253;

/// `CAP_SYS_PTRACE` of capabilities(7).
const SYS_PTRACE: u32 = 19;

/// Whether it is worth asking: the engine is on this machine, and this process may trace others.
pub(super) fn is_possible(local: bool) -> bool {
    if !local {
        say_once(&"the engine is on another machine");
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
            say_once(&"there is no CAP_SYS_PTRACE");
        }
        allowed
    });
    *ALLOWED
}

/// Says that there is no direct carrier: once, since it is so for every container then.
pub(super) fn say_once(why: &dyn std::fmt::Display) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::info!(%why, "what goes to containers takes the way through the engine, which is slower");
    });
}

/// Takes what PID 1 of a container, whose process id the engine says, offers.
///
/// # Errors
/// It cannot be had, or is not what was offered.
pub(super) async fn take(pid: i64, offer: Offer) -> io::Result<Carrier> {
    let known = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let at = known.ok_or_else(|| not(format!("process id {pid} is none")))?;
    let process = pidfd_open(at, PidfdFlags::empty())?;
    // Read after the process is held: whoever has the id now is this one, or the next call fails.
    let command = fs::read(format!("/proc/{pid}/cmdline"))?;
    if command != format!("{AGENT_PROGRAM}\0init\0").into_bytes() {
        return Err(not(format!("process {pid} is {:?}", String::from_utf8_lossy(&command))));
    }
    let socket = pidfd_getfd(&process, offer.fd, PidfdGetfdFlags::empty())?;
    proven(socket.into(), at, offer.token).await
}

/// It is PID 1's own at the other end, and says the token: not some other descriptor, nor another machine's process.
async fn proven(socket: StdStream, at: Pid, token: [u8; 16]) -> io::Result<Carrier> {
    let peer = socket_peercred(&socket)?.pid;
    if peer != at {
        return Err(not(format!("its other end is process {}", peer.as_raw_nonzero())));
    }
    let mut socket = Shared::new(socket)?;
    let mut said = [0; 16];
    socket.read_exact(&mut said).await?;
    if said != token {
        return Err(not("it does not say the token".to_owned()));
    }
    let other = Shared(socket.0.clone());
    Ok((Box::new(socket), Box::new(other)))
}

/// A socket that PID 1 may have as well.
struct Shared(Arc<Held>);

/// `None` only while it is dropped.
struct Held(Option<UnixStream>);

impl Shared {
    fn new(socket: StdStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?; // what tokio wants; nothing here relies on it
        Ok(Self(Arc::new(Held(Some(UnixStream::from_std(socket)?)))))
    }

    fn socket(&self) -> io::Result<&UnixStream> {
        self.0.0.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Messages that nobody read are dropped with it.
        if let Some(Ok(socket)) = self.0.take().map(UnixStream::into_std) {
            close_elsewhere(vec![socket.into()]);
        }
    }
}

/// Closes descriptors whose close may wait, in a thread of its own. Without a thread to be had it is done here.
fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(descriptors));
}

/// What there is now, into all of `room`, without waiting.
fn receive(socket: &UnixStream, room: &mut [u8]) -> io::Result<usize> {
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
    Err(not("it sends descriptors".to_owned()))
}

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.socket()?;
        loop {
            ready!(socket.poll_read_ready(cx))?;
            // No more room is cleared than there is something for.
            let waiting = ioctl_fionread(socket).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let room = waiting.max(1).min(buf.remaining());
            let mut got = None;
            let tried = socket.try_io(Interest::READABLE, || {
                let n = receive(socket, buf.initialize_unfilled_to(room))?;
                got = Some(n);
                // All that was there: what comes later is told anew.
                if n > 0 && n == waiting { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            if let Some(n) = got {
                buf.advance(n);
                return Poll::Ready(Ok(()));
            }
            passing(tried)?;
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.socket()?;
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match socket.try_io(Interest::WRITABLE, || Ok(send(socket, bytes, flags)?)) {
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(error) => passing(Err(error))?,
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

/// What only means that it is to be tried again is no error.
fn passing(tried: io::Result<()>) -> io::Result<()> {
    match tried {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        other => other,
    }
}

fn not(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::process::getpid;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const TOKEN: [u8; 16] = [7; 16];

    /// Far longer than anything here takes, also on a machine that is busy.
    const LONG: std::time::Duration = std::time::Duration::from_secs(30);

    /// PID 1 has the descriptor that it offered as well, and does with it what it likes.
    #[test]
    fn a_descriptor_that_pid_1_keeps_never_makes_the_daemon_wait() {
        let (done, is_done) = std::sync::mpsc::channel();
        // What waits for ever is left behind in its thread.
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
        is_done.recv_timeout(LONG).expect("it waits, or has failed");
    }

    /// A connection with more under way than its other end takes, whose last close waits.
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

    async fn refused(taken: impl Future<Output = io::Result<Carrier>>, why: &str) {
        let error = taken.await.err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[tokio::test]
    async fn only_a_container_s_first_process_is_taken_from() {
        let (a, _b) = StdStream::pair().unwrap();
        let offer = Offer { fd: std::os::fd::AsRawFd::as_raw_fd(&a), token: TOKEN };
        for none in [i64::MIN, -1, 0, 1, 1 << 40] {
            refused(take(none, offer), "is none").await;
        }
        let own = i64::from(getpid().as_raw_nonzero().get());
        refused(take(own, offer), "process").await; // it is this test
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
        refused(proven(ours, Pid::from_raw(1).unwrap(), TOKEN), "its other end is process").await;
        let (_theirs, ours) = pair(&[8; 16]);
        refused(proven(ours, getpid(), TOKEN), "token").await;
        let (theirs, ours) = pair(&TOKEN[..15]);
        drop(theirs);
        refused(proven(ours, getpid(), TOKEN), "eof").await;
        let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
        refused(proven(file.into(), getpid(), TOKEN), "socket").await;
    }
}
