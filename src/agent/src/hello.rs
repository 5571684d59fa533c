//! The first words on a carrier: who knows the secret is the daemon, and its carrier replaces the one before.
//!
//! It must never answer anybody who does not know the secret, nor let two carriers serve at once.

use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use paddock_proto::frame::Frame;
use paddock_proto::limits::HELLO_MS;
use paddock_proto::message::{self, HelloReply, Offer, VERSION};
use paddock_proto::{Hello, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_local;

use crate::carrier::Carrier;
use crate::container::Container;
use crate::direct::{self, DirectPair};

/// A connection has this long for its hello.
pub(crate) const HELLO_WITHIN: Duration = Duration::from_millis(HELLO_MS);

/// Reads a hello and answers it: the carrier, and what came behind the hello. `None`, without an answer, for
/// anybody who does not know the secret.
pub(crate) async fn greet(container: &Rc<Container>, mut carrier: Carrier) -> Option<(Carrier, BytesMut)> {
    let mut input = BytesMut::new();
    let frame = loop {
        if let Some(frame) = Frame::decode(&mut input).ok()? {
            break frame;
        }
        if carrier.from.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
    };
    if frame.stream != 0 || frame.kind != Kind::Message {
        return None;
    }
    let hello: Hello = message::decode(&frame.payload).ok()?;
    let secret = container.secret.get().unwrap_or(hello.secret);
    if hello.version != VERSION || !equal(&secret, &hello.secret) {
        return None;
    }
    container.secret.set(Some(secret));
    container.orphan_after.set(Duration::from_millis(hello.orphan_after_ms));
    container.network.listen_on(&hello.listen_ports);
    if container.peer.replace(hello.link) != hello.link {
        container.link.restart();
    }
    let reply = HelloReply {
        version: VERSION,
        ran: container.runs.begun() > 0,
        claim: container.claim.get(),
        runs: container.runs.ids(),
        resume: container.link.resume_points(),
        direct: if hello.direct { offer(container) } else { None },
    };
    // The old carrier must be silent before the streams are rewound for the new one.
    if let Some(old) = container.carrier.borrow_mut().take() {
        old.abort();
    }
    container.link.resume(&hello.resume).ok()?;
    let mut out = BytesMut::new();
    Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
    carrier.to.write_all(&out).await.ok()?;
    Some((carrier, input))
}

/// From now on this carrier serves.
pub(crate) fn take_over(container: &Rc<Container>, carrier: Carrier, rest: BytesMut) {
    let link = container.link.clone();
    container.bridge.set(carrier.process());
    let carrying = spawn_local(async move {
        let _ = link.carry(carrier, rest).await;
    });
    if let Some(old) = container.carrier.borrow_mut().replace(carrying) {
        old.abort();
    }
}

/// Makes a direct carrier and waits, in a task of its own, for the daemon's hello on it. The daemon's end is
/// not kept longer than that.
fn offer(container: &Rc<Container>) -> Option<Offer> {
    let DirectPair { offer, ours, theirs } = direct::pair().ok()?;
    let container = container.clone();
    spawn_local(async move {
        let greeted = tokio::time::timeout(HELLO_WITHIN, greet(&container, ours)).await;
        drop(theirs);
        if let Some((carrier, rest)) = greeted.ok().flatten() {
            take_over(&container, carrier, rest);
        }
    });
    Some(offer)
}

/// In constant time.
fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_equal_in_every_bit_or_not_at_all() {
        let secret = [7; 32];
        assert!(equal(&secret, &[7; 32]));
        for at in 0..32 {
            for bit in 0..8 {
                let mut other = secret;
                other[at] ^= 1 << bit;
                assert!(!equal(&secret, &other), "byte {at}, bit {bit}");
            }
        }
    }
}
