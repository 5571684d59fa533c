//! A carrier without the engine: a socket pair whose other end a daemon on the same kernel takes out of this process.
//!
//! ```text
//!  hello over the bridge ─► offer: the end's number, and a token that can be read from it
//!  hello over the pair   ─► the bridge is let go, its exec ends
//! ```
//!
//! Only who may trace PID 1 can take it, so nobody in the container can; and whoever says hello on it must know the
//! secret like everybody else. It must never keep the daemon's end after that hello, or after the time for one.

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use paddock_proto::limits::HELLO_MS;
use paddock_proto::message::Offer;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::task::spawn_local;

use crate::carrier::Carrier;
use crate::container::Container;
use crate::init::{greet, take_over};

/// Makes an offer, and listens for whoever takes it.
pub(crate) fn offer(container: &Rc<Container>) -> io::Result<Offer> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut token = [0; 16];
    getrandom(&mut token, GetRandomFlags::empty())?;
    rustix::io::write(&ours, &token)?;
    let offer = Offer { fd: theirs.as_raw_fd(), token };
    let carrier = Carrier::direct(ours)?;
    let container = container.clone();
    spawn_local(async move {
        let hello = tokio::time::timeout(Duration::from_millis(HELLO_MS), greet(&container, carrier)).await;
        drop(theirs);
        if let Some((carrier, rest)) = hello.ok().flatten() {
            take_over(&container, carrier, rest);
        }
    });
    Ok(offer)
}
