//! Programs' sockets of each kind, connected by PID 1.

use std::io::{Read, Write};
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::net::bind;

use super::*;

/// Joins a program's socket at a point of its own.
async fn join(socket: &ProgramSocket, is_v4: bool) -> Result<TcpStream, Errno> {
    super::join(socket, is_v4, MeetingPoint::new()?).await
}

fn program_socket(family: AddressFamily) -> (OwnedFd, ProgramSocket) {
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    let copy = socket.try_clone().expect("a copy");
    (socket, ProgramSocket::of(copy))
}

/// The timer of a brief close is of the process: a child has one thread, as PID 1 has.
fn in_pid_one(act: impl AsyncFnOnce() -> bool) {
    let done = crate::sys::in_a_child(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(act())
    });
    assert!(done);
}

/// Bytes go both ways, and the program's socket is as it was.
async fn talks(socket: OwnedFd, joined: TcpStream) -> bool {
    assert!(!fcntl_getfl(&socket).expect("flags").contains(OFlags::NONBLOCK), "its flags are its own");
    let (mut theirs, mut ours) = (std::net::TcpStream::from(socket), joined.into_std().expect("a stream"));
    ours.set_nonblocking(false).expect("it may");
    let mut bytes = [0; 2];
    theirs.write_all(b"up").expect("it is connected");
    ours.read_exact(&mut bytes).expect("it comes");
    assert_eq!(&bytes, b"up");
    ours.write_all(b"dn").expect("it is connected");
    theirs.read_exact(&mut bytes).expect("it comes");
    &bytes == b"dn"
}

#[test]
fn sockets_of_both_families_are_joined_without_a_wait() {
    in_pid_one(async || {
        for (family, is_v4) in [(AddressFamily::INET, true), (AddressFamily::INET6, false)] {
            let (socket, copy) = program_socket(family);
            let joined = join(&copy, is_v4).await.expect("it is joined");
            // As a caller that waited sees it.
            assert_eq!(copy.connect("127.0.0.1:1".parse().expect("an address")), Ok(()));
            assert_eq!(
                copy.connect("127.0.0.1:1".parse().expect("an address")),
                Err(Errno::ISCONN),
                "{family:?}"
            );
            assert!(talks(socket, joined).await, "{family:?}");
        }
        true
    });
}

#[test]
fn a_socket_for_ipv6_only_is_joined_where_there_is_ipv6() {
    in_pid_one(async || {
        let (socket, copy) = program_socket(AddressFamily::INET6);
        sockopt::set_ipv6_v6only(&socket, true).expect("it may");
        match join(&copy, false).await {
            Ok(joined) => talks(socket, joined).await,
            Err(errno) => errno == Errno::ADDRNOTAVAIL,
        }
    });
}

#[test]
fn a_socket_that_the_program_has_bound_keeps_its_address() {
    in_pid_one(async || {
        let (socket, copy) = program_socket(AddressFamily::INET);
        bind(&socket, &"127.0.7.7:0".parse::<SocketAddr>().expect("an address")).expect("it is local");
        let joined = join(&copy, true).await.expect("it is joined");
        assert_eq!(joined.nodelay().ok(), Some(true));
        assert_eq!(joined.peer_addr().expect("an address").ip(), Ipv4Addr::new(127, 0, 7, 7));
        talks(socket, joined).await
    });
}

#[test]
fn a_socket_that_is_connected_already_or_listens_is_refused_at_once() {
    in_pid_one(async || {
        let begun = Instant::now();
        let (socket, copy) = program_socket(AddressFamily::INET);
        let joined = join(&copy, true).await.expect("it is joined");
        for _ in 0..2 {
            assert_eq!(join(&copy, true).await.expect_err("it is connected"), Errno::ISCONN);
        }
        assert!(talks(socket, joined).await);
        let (socket, copy) = program_socket(AddressFamily::INET);
        listen(&socket, 1).expect("it may");
        assert!(join(&copy, true).await.is_err());
        begun.elapsed() < WITHIN
    });
}

#[test]
fn what_is_dropped_is_reset() {
    in_pid_one(async || {
        let (socket, copy) = program_socket(AddressFamily::INET);
        drop(join(&copy, true).await.expect("it is joined"));
        let error = std::net::TcpStream::from(socket).read(&mut [0]).expect_err("no end of file");
        error.kind() == std::io::ErrorKind::ConnectionReset
    });
}
