//! The task that keeps a link's carrier up: it dials, says hello, carries bytes, and begins again when the
//! carrier breaks. It must never dial without pause for long: code in the container can break carriers as
//! often as it likes.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::BytesMut;
use paddock_proto::frame::Frame;
use paddock_proto::limits::{BATCH, MAX_ASKS, MAX_STREAMS, READ};
use paddock_proto::message::{self, Hello, HelloReply, Offer, ResumePoints, VERSION};
use paddock_proto::{Kind, ProtocolError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::take;
use super::{Carrier, DIAL_WITHIN, Dial, DialError, Greeting, HelloTerms, LinkError, LinkState, REDIAL_FOR};

/// The pause between two attempts to dial: the engine may be restarting.
pub(super) const REDIAL_PAUSE: Duration = Duration::from_millis(250);

/// So long the way by a standing pair may take, with the engine's answer where it is, before the container is
/// reached by an exec: milliseconds, unless the machine is under heavy load.
const STANDING_WITHIN: Duration = Duration::from_secs(3);

/// A carrier that breaks sooner than this is short-lived. Code can kill bridges as often as it likes, and
/// each new one costs an exec.
const SHORT_LIVED: Duration = Duration::from_secs(1);

/// So many short-lived carriers in a row are replaced at once, further ones after [`REDIAL_PAUSE`] each.
pub(super) const REPLACED_AT_ONCE: u32 = 64;

/// The longest id of a run, in bytes, that the daemon accepts from an agent; our own ids are shorter.
const MAX_RUN_ID: usize = 128;

pub(super) struct Keeper {
    shared: Arc<LinkState>,
    dialer: Box<dyn Dial>,
    terms: HelloTerms,
    /// Identifies this mux to the agent. Never 0, which means no link.
    link: u64,
    /// Whether a standing pair of this container has been a carrier.
    stood: AtomicBool,
    /// False once the standing pair was missing or did not answer: it is not tried again.
    has_pair: AtomicBool,
}

/// Why a carrier ended.
enum CarrierEnd {
    /// It broke, and may be replaced.
    Broken,
    /// The agent broke the protocol, and must not be dialed again.
    Violated(ProtocolError),
}

/// A greeting that breaks the protocol is final: the same agent would send it again.
fn and_whether_final(error: LinkError) -> (LinkError, bool) {
    let is_final = matches!(error, LinkError::Protocol(_));
    (error, is_final)
}

impl Keeper {
    pub(super) fn new(shared: Arc<LinkState>, dialer: Box<dyn Dial>, terms: HelloTerms) -> Self {
        let link = loop {
            match crate::id::random_u64() {
                0 => {}
                link => break link,
            }
        };
        shared.direct.store(dialer.wants_direct(), Relaxed);
        Self { shared, dialer, terms, link, stood: AtomicBool::new(false), has_pair: AtomicBool::new(true) }
    }

    /// Makes the first carrier, then keeps carriers coming in a task of its own until `stop`.
    pub(super) async fn start(self, stop: CancellationToken) -> Result<Greeting, LinkError> {
        let (carrier, rest, greeting) = self.connect().await.map_err(|(error, _)| error)?;
        if !greeting.runs.is_empty() {
            self.shared.lock().waiting.expect();
        }
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => self.shared.lose(LinkError::Closed),
                why = self.keep(carrier, rest) => self.shared.lose(why),
            }
        });
        Ok(greeting)
    }

    async fn keep(&self, mut carrier: Carrier, mut rest: BytesMut) -> LinkError {
        let mut short_lived = 0_u32;
        loop {
            let begun = Instant::now();
            let end = self.carry(carrier, rest).await;
            self.shared.carried.send_replace(false);
            if let CarrierEnd::Violated(error) = end {
                return LinkError::Protocol(error);
            }
            let broke = Instant::now();
            short_lived = if broke - begun < SHORT_LIVED { short_lived.saturating_add(1) } else { 0 };
            if short_lived > REPLACED_AT_ONCE {
                tokio::time::sleep(REDIAL_PAUSE).await;
            }
            (carrier, rest) = loop {
                if let Some(fault) = self.shared.fault() {
                    return fault;
                }
                match self.connect().await {
                    Ok((carrier, rest, _)) => break (carrier, rest),
                    Err((error, true)) => return error,
                    Err((error, false)) if broke.elapsed() > REDIAL_FOR => return error,
                    Err(_) => tokio::time::sleep(REDIAL_PAUSE).await,
                }
            };
            self.shared.carried.send_replace(true);
        }
    }

    /// Makes a new carrier. Beside it comes what was read behind the agent's greeting, and the greeting. An
    /// error comes with whether it is final.
    async fn connect(&self) -> Result<(Carrier, BytesMut, Greeting), (LinkError, bool)> {
        let attempt = async {
            if self.shared.direct.load(Relaxed) && self.has_pair.load(Relaxed) {
                match tokio::time::timeout(STANDING_WITHIN, self.stand()).await {
                    Ok(Ok(connected)) => return Ok(connected),
                    Ok(Err((error, true))) => return Err((error, true)),
                    Ok(Err((why, false))) => debug!(%why, "a container is reached by an exec"),
                    Err(_) => debug!("a container is reached by an exec: it took too long by its pair"),
                }
                self.has_pair.store(false, Relaxed);
            }
            let carrier = self.dialer.dial().await.map_err(|error| {
                let gone = matches!(error, DialError::Gone(_));
                (LinkError::Unreachable(error.to_string()), gone)
            })?;
            let asks = self.shared.direct.load(Relaxed);
            let (carrier, rest, greeting, offer) =
                self.greet(carrier, asks).await.map_err(and_whether_final)?;
            self.shared.direct.store(false, Relaxed);
            let Some(offer) = offer else { return Ok((carrier, rest, greeting)) };
            let direct = match self.dialer.direct(offer).await {
                Ok(direct) => direct,
                Err(error) => {
                    take::log_once(&error);
                    let _ = self.shared.indirect.set(error.to_string());
                    return Ok((carrier, rest, greeting));
                }
            };
            let (direct, rest, ..) = self.greet(direct, false).await.map_err(and_whether_final)?;
            self.shared.direct.store(true, Relaxed);
            Ok((direct, rest, greeting))
        };
        match tokio::time::timeout(DIAL_WITHIN, attempt).await {
            Ok(result) => result,
            Err(_) => Err((LinkError::Silent(DIAL_WITHIN), false)),
        }
    }

    /// Makes a carrier of the pair that stands ready in the container. An error comes with whether it is
    /// final.
    async fn stand(&self) -> Result<(Carrier, BytesMut, Greeting), (LinkError, bool)> {
        let carrier = self.dialer.standing().await.map_err(|error| {
            // That there is no such process means nothing as long as it can be one of another machine.
            let gone = matches!(error, DialError::Gone(_)) && self.stood.load(Relaxed);
            (LinkError::Unreachable(error.to_string()), gone)
        })?;
        let (carrier, rest, greeting, _) = self.greet(carrier, false).await.map_err(and_whether_final)?;
        self.stood.store(true, Relaxed);
        Ok((carrier, rest, greeting))
    }

    /// Says hello, which asks for a direct carrier or not.
    async fn greet(
        &self,
        (mut from, mut to): Carrier,
        direct: bool,
    ) -> Result<(Carrier, BytesMut, Greeting, Option<Offer>), LinkError> {
        let gone = |e: std::io::Error| LinkError::Unreachable(e.to_string());
        let hello = Hello {
            version: VERSION,
            secret: self.terms.secret,
            link: self.link,
            orphan_after_ms: u64::try_from(self.terms.orphan_after.as_millis()).unwrap_or(u64::MAX),
            listen_ports: self.terms.listen_ports.clone(),
            resume: self.shared.lock().mux.resume_points(),
            direct,
        };
        let mut out = BytesMut::new();
        Frame { stream: 0, kind: Kind::Message, payload: message::encode(&hello) }.encode(&mut out);
        to.write_all(&out).await.map_err(gone)?;
        to.flush().await.map_err(gone)?;
        let mut input = BytesMut::new();
        let frame = loop {
            // A runtime that cannot exec writes an error message in place of the greeting, which is no frame.
            if let Some(frame) = Frame::decode(&mut input).map_err(|_| LinkError::Refused)? {
                break frame;
            }
            if from.read_buf(&mut input).await.map_err(gone)? == 0 {
                return Err(LinkError::Refused);
            }
        };
        if frame.stream != 0 || frame.kind != Kind::Message {
            return Err(LinkError::Refused);
        }
        let reply: HelloReply = message::decode(&frame.payload).map_err(|_| LinkError::Refused)?;
        // An agent has at most MAX_STREAMS streams of ours, and hence at most as many runs.
        let ResumePoints { streams, .. } = &reply.resume;
        let is_bounded = reply.runs.len() <= MAX_STREAMS
            && reply.runs.iter().all(|id| id.len() <= MAX_RUN_ID)
            && streams.len() <= MAX_STREAMS + MAX_ASKS;
        if reply.version != VERSION || !is_bounded {
            return Err(LinkError::Refused);
        }
        self.shared.lock().mux.resume(&reply.resume)?;
        self.shared.ring_all();
        let greeting = Greeting { ran: reply.ran, claim: reply.claim, runs: reply.runs };
        Ok(((from, to), input, greeting, reply.direct))
    }

    async fn carry(&self, (mut from, mut to): Carrier, mut input: BytesMut) -> CarrierEnd {
        let read = async {
            loop {
                if let Err(error) = self.receive(&mut input) {
                    return CarrierEnd::Violated(error);
                }
                input.reserve(READ);
                match from.read_buf(&mut input).await {
                    Err(error) if error.kind() == ErrorKind::InvalidData => {
                        return CarrierEnd::Violated(ProtocolError::Malformed("carrier"));
                    }
                    Ok(0) | Err(_) => return CarrierEnd::Broken,
                    Ok(_) => {}
                }
            }
        };
        let write = async {
            let mut out = BytesMut::new();
            loop {
                while self.transmit(&mut out) {
                    if to.write_all_buf(&mut out).await.is_err() || to.flush().await.is_err() {
                        return CarrierEnd::Broken;
                    }
                }
                self.shared.transmit.notified().await;
            }
        };
        tokio::select! { end = read => end, end = write => end }
    }

    fn transmit(&self, out: &mut BytesMut) -> bool {
        let mux = &mut self.shared.lock().mux;
        mux.is_pressing() && mux.transmit(out, BATCH)
    }

    fn receive(&self, input: &mut BytesMut) -> Result<(), ProtocolError> {
        let mut state = self.shared.lock();
        let super::MuxState { mux, bells, waiting } = &mut *state;
        mux.on_bytes(input, |id| {
            if let Some(bell) = bells.get(&id) {
                bell.notify_waiters();
            }
        })?;
        waiting.take_from(mux)?;
        if !waiting.is_empty() {
            self.shared.asked.notify_waiters();
        }
        let is_pressing = state.mux.is_pressing();
        drop(state);
        // The writer is a half of the same task: woken for nothing, it makes the runtime wake a thread too.
        if is_pressing {
            self.shared.transmit.notify_one();
        }
        Ok(())
    }
}
