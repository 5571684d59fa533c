//! The HTTP server on one connection of a program to a service.
//!
//! ```text
//!  AskStream ═ pump ═ a pipe ═ hyper's server ─ answer ─► the other side
//! ```
//!
//! hyper parses what the program sends: a request whose length is not clear is answered with 400, and never
//! comes here.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::super::relay::{Account, Cut};
use super::answer::Exchange;
use super::pump::{ROOM, pump};
use crate::link::AskStream;

/// Headers of one request.
const HEADERS: usize = 100;

/// The longest head of a request, in bytes.
const HEAD: usize = 64 * 1024;

/// Serves a program's requests until the connection ends.
///
/// # Errors
/// Why it was cut short. The caller then drops the stream, which resets it.
pub(super) async fn serve(
    exchange: &Exchange<'_>,
    stream: &AskStream,
    account: &Account<'_>,
    idle: Duration,
) -> Result<(), Cut> {
    let (program, server) = tokio::io::duplex(ROOM);
    let answers = async {
        let answer = service_fn(|request| async { Ok::<_, Infallible>(exchange.answer(request).await) });
        let mut http = http1::Builder::new();
        http.half_close(true).max_headers(HEADERS).max_buf_size(HEAD);
        match http.serve_connection(TokioIo::new(server), answer).await {
            Ok(()) => Ok(()),
            // hyper has answered it.
            Err(error) if error.is_parse() || error.is_parse_too_large() => Ok(()),
            // The answer breaks off: the program must not take it for a whole one.
            Err(error) => Err(Cut::Upstream(io::Error::other(error))),
        }
    };
    let both = async { tokio::try_join!(answers, pump(stream, program, account)) };
    tokio::select! {
        ended = both => ended.map(drop),
        why = stream.abandoned() => Err(why.into()),
        () = account.idle(idle) => Err(Cut::Idle),
    }
}
