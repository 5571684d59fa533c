//! One ask of a program, from its first message to the end of its connection.
//!
//! ```text
//!  Ask::Connect ─ which run? ─ policy ─ bounds ─► Allowed ─ resolve ─ judge each address ─ dial ─► Connected
//!        └───────── Refused ◄──┴─────────┴──────────────────┴───────────┴─────────────────┘           │
//!                                                                     relay ◄─ the TLS hello, judged ◄┘
//! ```
//!
//! Nothing is sent to the other side before the hello of a program that owes one was judged. When the run is
//! over, what its programs have sent still leaves, within [`DRAIN`]; then everything ends: streams and
//! connections reset themselves when they are dropped.

use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use paddock_proto::message::{self, Ask, ConnectFailure, Reply};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tracing::{debug, info};

use super::client_hello::{self, ClientHello, MAX_HELLO};
use super::gateway::{Egress, Runs};
use super::hello_retry::HelloRetry;
use super::host_name::{Host, HostName, HostNameError};
use super::ledger::shown;
use super::policy::BlockReason;
use super::reach::{Open, Refusal, open};
use super::relay::{Account, Cut, Handshake, relay};
use super::run::Run;
use super::service;
use crate::link::{AskStream, LinkError, NetInput};

/// The labels in metrics of what is blocked before any policy is asked.
const BAD_NAME: &str = "bad_name";
const UNKNOWN_RUN: &str = "unknown_run";

/// A name that may not be looked up is blocked on every port; the reason that is told is that of this one.
const HTTPS: u16 = 443;

/// How long a connection may last after the end of its run.
const DRAIN: Duration = Duration::from_secs(1);

/// Serves one ask to its end.
pub(super) async fn serve(egress: &Egress, runs: &Runs, stream: AskStream) {
    let asked = stream.ask().clone();
    // An error means that the stream or the link is gone: then nobody waits for an answer.
    let _ = match asked {
        Ask::Name { run, name } => {
            let reply = look_up(egress, runs, run.as_deref(), &name);
            answer(&stream, reply).await
        }
        Ask::Connect { run, host, port } => match runs.find(&run) {
            Some(run) => {
                let serving = connect(egress, &run, &stream, &host, port);
                tokio::pin!(serving);
                tokio::select! {
                    biased;
                    () = run.over.cancelled() => {
                        tokio::time::timeout(DRAIN, serving).await.unwrap_or(Ok(()))
                    }
                    ended = &mut serving => ended,
                }
            }
            None => {
                unknown(runs, &run);
                egress.metrics.egress_refused(UNKNOWN_RUN);
                answer(&stream, Reply::Refused(ConnectFailure::Blocked)).await
            }
        },
    };
}

/// The last answer on a stream.
async fn answer(stream: &AskStream, reply: Reply) -> Result<(), LinkError> {
    stream.reply(reply).await?;
    stream.close().await
}

/// Logs that a run is not known, once for each container: the id comes from there.
fn unknown(runs: &Runs, run: &str) {
    if runs.is_first_unknown() {
        info!(run_id = shown(run), "a run that may not reach outside asked for a connection");
    }
}

/// Whether a name may be looked up. No name server is asked.
fn look_up(egress: &Egress, runs: &Runs, run: Option<&str>, name: &str) -> Reply {
    let candidates = match run {
        Some(id) => runs.find(id).into_iter().collect(),
        None => runs.all(),
    };
    let parsed = HostName::of_program(name);
    if let Ok(parsed) = &parsed
        && candidates.iter().any(|run| run.may_look_up(parsed))
    {
        return Reply::Allowed;
    }
    // Where nobody knows which run asked, no run is told: a run beside it could fill its answer.
    let asker = candidates.first().filter(|_| run.is_some());
    let label = match (&parsed, asker) {
        _ if candidates.is_empty() => {
            unknown(runs, run.unwrap_or_default());
            UNKNOWN_RUN
        }
        (Ok(_), None) => BlockReason::NotAllowed.label(),
        (Ok(parsed), Some(asker)) => {
            let judged = asker.policy.judge(&Host::Name(parsed.clone()), HTTPS);
            let reason = judged.err().unwrap_or(BlockReason::NotAllowed);
            asker.blocked(parsed.as_str(), 0, &reason);
            reason.label()
        }
        (Err(error), asker) => {
            if let Some(asker) = asker {
                asker.blocked(&shown(name), 0, &error.problem);
            }
            BAD_NAME
        }
    };
    egress.metrics.egress_blocked(label);
    Reply::Refused(ConnectFailure::Blocked)
}

/// Makes a connection and carries it to its end, and tells the run what came of it.
async fn connect(
    egress: &Egress,
    run: &Run,
    stream: &AskStream,
    host: &message::Host,
    port: u16,
) -> Result<(), LinkError> {
    let asked = Instant::now();
    let (parsed, name) = parse(host);
    if let Ok(Host::Name(asked)) = &parsed
        && service::settings::label(asked).is_some()
    {
        return service::connection::connect(egress, run, stream, asked, port).await;
    }
    let made = match parsed {
        Ok(host) => open(egress, run, stream, &host, port).await,
        Err(error) => Err(Refusal::BadName(error)),
    };
    let made = match made {
        Ok(made) => made,
        Err(refusal) => return refused(egress, run, stream, (&name, port), refusal).await,
    };
    let _is_open = egress.metrics.egress_connected(asked.elapsed());
    let traffic = run.ledger.connected(&name, port);
    stream.reply(Reply::Connected).await?;
    let account = Account::new(run, &traffic, &egress.metrics);
    match carry(egress, stream, made, &account).await {
        Ok(()) => {}
        Err(Cut::Blocked(reason)) => {
            egress.metrics.egress_blocked(reason.label());
            run.blocked(&name, port, &reason);
        }
        Err(cut) => debug!(run_id = run.id, host = name, port, %cut, "a connection was cut short"),
    }
    Ok(())
}

/// The host that a program asks for, and how it is shown.
fn parse(host: &message::Host) -> (Result<Host, HostNameError>, String) {
    match host {
        message::Host::Address(address) => (Ok(Host::Address(*address)), address.to_string()),
        message::Host::Name(text) => match (text.parse::<IpAddr>(), HostName::of_program(text)) {
            (Ok(address), _) => (Ok(Host::Address(address)), address.to_string()),
            (Err(_), Ok(name)) => {
                let shown = name.as_str().to_owned();
                (Ok(Host::Name(name)), shown)
            }
            (Err(_), Err(error)) => (Err(error), shown(text)),
        },
    }
}

/// Tells everybody that there is no connection.
pub(super) async fn refused(
    egress: &Egress,
    run: &Run,
    stream: &AskStream,
    (host, port): (&str, u16),
    refusal: Refusal,
) -> Result<(), LinkError> {
    let failure = match refusal {
        Refusal::Blocked(reason) => {
            if matches!(reason, BlockReason::Limit(_)) {
                egress.metrics.egress_limited(reason.label());
            } else {
                egress.metrics.egress_refused(reason.label());
            }
            run.blocked(host, port, &reason);
            ConnectFailure::Blocked
        }
        Refusal::TooMany(reason) => {
            egress.metrics.egress_limited(reason.label());
            run.blocked(host, port, &reason);
            ConnectFailure::TooMany
        }
        Refusal::BadName(error) => {
            egress.metrics.egress_refused(BAD_NAME);
            run.blocked(host, port, &error.problem);
            ConnectFailure::Blocked
        }
        Refusal::Failed(failure) => {
            egress.metrics.egress_failed();
            run.ledger.failed(host, port, sentence(failure));
            failure
        }
        Refusal::Proxy(failure) => {
            egress.metrics.egress_failed();
            run.ledger.failed(host, port, &failure.to_string());
            failure.of_program()
        }
        Refusal::Gone => {
            egress.metrics.egress_failed();
            return Ok(());
        }
    };
    answer(stream, Reply::Refused(failure)).await
}

/// What a run is told of a connection that was allowed.
pub(super) fn sentence(failure: ConnectFailure) -> &'static str {
    match failure {
        ConnectFailure::Blocked => "it is blocked",
        ConnectFailure::NoAddress => "the name has no address",
        ConnectFailure::Refused => "it refused the connection",
        ConnectFailure::Unreachable => "it cannot be reached",
        ConnectFailure::TimedOut => "it did not answer in time",
        ConnectFailure::TooMany => "there are too many connections",
    }
}

/// Carries a connection that was made to its end.
async fn carry(
    egress: &Egress,
    stream: &AskStream,
    mut open: Open,
    account: &Account<'_>,
) -> Result<(), Cut> {
    let idle = egress.bounds.idle;
    let mut handshake = None;
    if let Some(name) = &open.tls_name {
        let hello = tokio::select! {
            hello = hello(stream, name) => hello?,
            why = stream.abandoned() => return Err(why.into()),
            () = account.idle(idle) => return Err(Cut::Idle),
        };
        if hello.0.is_empty() {
            // The program only wanted to know whether it can connect.
            stream.eof().await?;
            stream.close().await?;
            open.upstream.finish();
            return Ok(());
        }
        let judged = handshake.insert(Handshake::new(HelloRetry::new(name.clone())));
        let (first, behind) = hello;
        let behind = judged.goes_out(behind)?;
        account.goes_out(first.len() + behind.len())?;
        open.upstream.socket.write_all(&first).await?;
        open.upstream.socket.write_all(&behind).await?;
    }
    relay(stream, &mut open.upstream, account, handshake.as_ref(), idle).await
}

/// The TLS hello that the program begins with, which has this name, and what came behind it. Empty if the
/// program ends its half without a byte.
async fn hello(stream: &AskStream, name: &HostName) -> Result<(Bytes, Bytes), Cut> {
    let mut held = BytesMut::new();
    loop {
        match stream.read().await? {
            NetInput::Data(bytes) => held.extend_from_slice(&bytes),
            NetInput::Eof if held.is_empty() => return Ok((Bytes::new(), Bytes::new())),
            NetInput::Eof => return Err(BlockReason::NotTls.into()),
            NetInput::End => return Err(Cut::Program(LinkError::Reset)),
        }
        let (found, length) = client_hello::read_front(&held);
        return match found {
            ClientHello::Incomplete if held.len() < MAX_HELLO => continue,
            ClientHello::Name(found) if found.parse().as_ref() == Ok(name) => {
                let first = held.split_to(length).freeze();
                Ok((first, held.freeze()))
            }
            ClientHello::Name(_) => Err(BlockReason::TlsName.into()),
            ClientHello::NoName => Err(BlockReason::NoTlsName.into()),
            ClientHello::Encrypted => Err(BlockReason::EncryptedHello.into()),
            ClientHello::NotTls | ClientHello::Incomplete => Err(BlockReason::NotTls.into()),
        };
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
