//! What a program can do to PID 1 with a descriptor that both share.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
use rustix::pipe::pipe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Far longer than anything here takes, also on a busy machine.
const LONG: Duration = Duration::from_secs(30);

fn foreign(fd: impl Into<OwnedFd>) -> Foreign {
    Foreign::new(Brief::new(fd.into())).expect("a stream")
}

/// Runs a test whose reads may wait for ever, in a thread that is then left behind.
fn within(act: impl Future<Output = ()> + Send + 'static) {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(act);
        let _ = done.send(());
    });
    is_done.recv_timeout(LONG).expect("it waits, or has failed");
}

/// The kernel's `SO_RCVLOWAT`, which rustix does not have.
fn set_low_water(socket: &impl AsFd, bytes: libc::c_int) {
    use std::os::fd::AsRawFd;
    let fd = socket.as_fd().as_raw_fd();
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("small");
    // SAFETY: the value outlives the call.
    let done = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw const bytes).cast(), length)
    };
    assert_eq!(done, 0);
}

#[test]
fn a_socket_whose_sharer_makes_it_wait_is_read_and_written_without_waiting() {
    within(async {
        let (ours, mut theirs) = StdStream::pair().expect("a pair");
        let shared = ours.try_clone().expect("a copy");
        let mut to = foreign(ours.try_clone().expect("a copy"));
        let mut stream = foreign(ours);
        shared.set_nonblocking(false).expect("it may");
        set_low_water(&shared, 1 << 20);
        std::io::Write::write_all(&mut theirs, b"x").expect("room");
        let mut byte = [0];
        stream.read_exact(&mut byte).await.expect("what is there, though it is less than the low-water mark");
        assert_eq!(&byte, b"x");
        // Taken away between the look and the read.
        std::io::Write::write_all(&mut theirs, b"y").expect("room");
        tokio::task::yield_now().await;
        std::io::Read::read_exact(&mut &shared, &mut byte).expect("it is there");
        let read = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut byte));
        assert!(read.await.is_err(), "there was nothing to read");
        // More than anybody reads.
        let write = tokio::time::timeout(Duration::from_millis(50), to.write_all(&[0; 8 << 20]));
        assert!(write.await.is_err(), "nobody read it");
    });
}

#[test]
fn a_pipe_whose_sharer_makes_it_wait_is_read_and_written_without_waiting() {
    within(async {
        let (reading, writing) = pipe().expect("a pipe");
        let wait = |fd: &OwnedFd| fcntl_setfl(fd, OFlags::empty()).expect("it may");
        let (their_reading, their_writing) =
            (reading.try_clone().expect("a copy"), writing.try_clone().expect("a copy"));
        let (mut from, mut to) = (foreign(reading), foreign(writing));
        wait(&their_reading);
        let mut byte = [0];
        rustix::io::write(&their_writing, b"x").expect("room");
        tokio::task::yield_now().await;
        rustix::io::read(&their_reading, &mut byte).expect("it is there");
        let read = tokio::time::timeout(Duration::from_millis(50), from.read_exact(&mut byte));
        assert!(read.await.is_err(), "there was nothing to read");
        wait(&their_writing);
        let write = tokio::time::timeout(Duration::from_millis(50), to.write_all(&[0; 8 << 20]));
        assert!(write.await.is_err(), "nobody read it");
    });
}

#[test]
fn only_streams_are_taken() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _within = runtime.enter();
    let zero = std::fs::File::open("/dev/zero").expect("it is there");
    assert!(Foreign::new(Brief::new(zero.into())).is_err());
}

/// A connection with more under way than its other end takes, whose last close waits for `seconds`.
fn lingering(seconds: u64) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (far, _) = listener.accept().expect("its other end");
    near.set_nonblocking(true).expect("it may");
    while std::io::Write::write(&mut &near, &[0; 1 << 16]).is_ok() {}
    set_socket_linger(&near, Some(Duration::from_secs(seconds))).expect("it may");
    (near, far)
}

#[test]
fn a_socket_that_lingers_is_closed_at_once_wherever_it_is() {
    // The timer is of the process, and its signal any thread's: a child has one thread, as PID 1 has.
    let done = crate::sys::in_a_child(|| {
        let begun = Instant::now();
        let (near, _far) = lingering(LONG.as_secs());
        drop(Brief::new(near));
        // In a message that nobody reads.
        let (ours, theirs) = StdStream::pair().expect("a pair");
        let (near, _far) = lingering(LONG.as_secs());
        let rights = [near.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&rights));
        sendmsg(&theirs, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).expect("room");
        drop(near);
        drop(Brief::new(ours));
        begun.elapsed() < LONG / 2
    });
    assert!(done, "it waited");
}
