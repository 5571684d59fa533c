//! Direct carriers: what is taken, from whom, and what PID 1 can do with its own end.

use std::fs;
use std::io::Write;

use paddock_proto::message::Offer;
use rustix::net::sendmsg;
use rustix::process::{Pid, getpid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::Carrier;
use super::super::take::{has_ended, is_of, proven, take, take_standing, unreadable};
use super::*;
use crate::engine::ContainerId;

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
            let (mut from, mut to) = proven(ours, getpid(), TOKEN).unwrap();
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

#[tokio::test]
async fn nothing_is_taken_of_a_descriptor_that_does_not_have_the_token() {
    let (mut theirs, ours) = StdStream::pair().unwrap();
    let mut kept = ours.try_clone().unwrap();
    theirs.write_all(b"other bytes, of another kind").unwrap();
    let error = proven(ours, getpid(), TOKEN).err().unwrap();
    assert_eq!(error.to_string(), "its first bytes are not the token");
    let mut left = [0; 28];
    io::Read::read_exact(&mut kept, &mut left).unwrap();
    assert_eq!(&left, b"other bytes, of another kind");
    // Nor is there a wait for bytes that may never come.
    let empty = kept.try_clone().unwrap();
    assert!(proven(empty, getpid(), TOKEN).is_err());
}

#[test]
fn a_process_is_of_the_container_that_its_control_groups_name() {
    let id = "4e5f".repeat(16);
    let container: ContainerId = id.parse().unwrap();
    let other: ContainerId = "4e50".repeat(16).parse().unwrap();
    for groups in [
        format!("12:memory:/docker/{id}\n0::/system.slice\n"),
        format!("0::/system.slice/docker-{id}.scope\n"),
        format!("0::/../{id}\n"),
    ] {
        assert!(is_of(&groups, &container), "{groups}");
        assert!(!is_of(&groups, &other), "{groups}");
    }
    assert!(!is_of("0::/\n", &container));
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
    sendmsg(socket, &byte, &mut control, SendFlags::empty()).unwrap();
}

#[tokio::test]
async fn descriptors_that_pid_1_sends_hold_nobody_up() {
    let begun = std::time::Instant::now();
    let (mut theirs, ours) = StdStream::pair().unwrap();
    theirs.write_all(&TOKEN).unwrap();
    let (mut from, to) = proven(ours, getpid(), TOKEN).unwrap();
    let (near, _far) = lingering();
    let (other, _its_far) = lingering();
    send_with(&theirs, &near);
    send_with(&theirs, &other); // which nobody reads
    drop((near, other));
    let error = from.read_u8().await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidData && error.to_string().contains("descriptors"), "{error}");
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
    let container: ContainerId = "4e5f".repeat(16).parse().unwrap();
    for none in [i64::MIN, -1, 0, 1, 1 << 40] {
        expect_refusal(take(none, offer), "is not the process id").await;
        expect_refusal(take_standing(none, &container), "is not the process id").await;
    }
    let own = i64::from(getpid().as_raw_nonzero().get());
    expect_refusal(take(own, offer), "not the agent").await; // it is this test
    expect_refusal(take_standing(own, &container), "not the agent").await;
}

#[test]
fn a_process_has_ended_when_its_state_says_so() {
    assert!(has_ended("7 (agent) Z 1 7 7 0 -1 4228172"));
    assert!(!has_ended("7 (agent) S 1 7 7 0 -1 4228172"));
    assert!(!has_ended("7 (a) Z b) R 1 7 7"));
    assert!(!has_ended(""));
}

#[tokio::test]
async fn a_process_that_has_ended_is_none_even_before_somebody_has_waited_for_it() {
    let mut ended = std::process::Command::new("true").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = i64::from(ended.id());
    // Its end closes this, a moment before it has ended.
    io::Read::read_to_end(ended.stdout.as_mut().unwrap(), &mut Vec::new()).unwrap();
    while !has_ended(&fs::read_to_string(format!("/proc/{pid}/stat")).unwrap()) {
        std::thread::yield_now();
    }
    let container: ContainerId = "4e5f".repeat(16).parse().unwrap();
    let error = take_standing(pid, &container).await.err().unwrap();
    assert_eq!(Errno::from_io_error(&error), Some(Errno::SRCH), "{error}");
    ended.wait().unwrap();
    // Once somebody has waited for it, it has no files in /proc any more, which means the same.
    let error = unreadable(fs::read(format!("/proc/{pid}/cmdline")).unwrap_err());
    assert_eq!(Errno::from_io_error(&error), Some(Errno::SRCH), "{error}");
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
    let (mut from, mut to) = proven(ours, getpid(), TOKEN).unwrap();
    to.write_all(b"hello").await.unwrap();
    let mut more = [0; 4];
    from.read_exact(&mut more).await.unwrap();
    assert_eq!(&more, b"more");

    let (_theirs, ours) = pair(&TOKEN);
    expect_refusal(async { proven(ours, Pid::from_raw(1).unwrap(), TOKEN) }, "its other end is process")
        .await;
    let (_theirs, ours) = pair(&[8; 16]);
    expect_refusal(async { proven(ours, getpid(), TOKEN) }, "token").await;
    let (theirs, ours) = pair(&TOKEN[..15]);
    drop(theirs);
    expect_refusal(async { proven(ours, getpid(), TOKEN) }, "token").await;
    let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
    expect_refusal(async { proven(file.into(), getpid(), TOKEN) }, "socket").await;
}
