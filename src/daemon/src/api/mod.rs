//! The daemon's HTTP/1.1 interface: one listener, one router, one guard in front of every route.
//!
//! ```text
//!  connection ─► (tls) ─► hyper ─► guard (Host, Origin, token) ─► route
//!                                                        ├ /mcp            mcp    (rmcp, and the bare call)
//!                                                        ├ /mcp/events     events (token)
//!                                                        ├ /sessions       raw    (files; token)
//!                                                        ├ /files, /logs   files  (signed link, no token)
//!                                                        ├ /ports          ports  (programs' servers; token)
//!                                                        ├ /cluster        cluster (only by the socket)
//!                                                        ├ /status         status (token)
//!                                                        ├ /metrics        metrics
//!                                                        ├ /health, /ready health
//!                                                        └ /               page
//!  listener of `cluster.addr` ─► hop ─► guard and route, as above
//!  guard ─► a session of another node? ─► pass it on, instead of the route
//!  listener of `ports.addr` ─► ports (servers of programs; signed link, and nothing else)
//!  Unix socket in the store's folder ─► local (paddock stdio)
//! ```
//!
//! `fixtures`, a cargo feature that releases leave out, answers the MCP conformance suite on `/mcp` in front
//! of the tools, if the environment asks for it.
//!
//! Only this module knows HTTP, and only `mcp` knows JSON-RPC. The daemon does not speak HTTP/2. This module
//! must never let a request without a valid token reach a tool, nor log a token, a signature or a body.

mod accept;
mod answer;
mod body;
mod cluster;
mod connections;
mod counted_body;
mod envelope;
#[cfg(test)]
mod envelope_fuzz_tests;
mod events;
mod events_elsewhere;
mod files;
#[cfg(feature = "conformance-fixtures")]
mod fixtures;
mod guard;
mod health;
mod initialize;
mod linger;
mod listening;
mod local;
mod locate;
mod long_texts;
mod mcp;
mod metrics;
mod opening;
mod paced;
mod page;
mod ports;
mod range;
mod raw;
mod refusals;
mod route;
mod routed;
mod server;
mod socket;
mod stall;
mod status;
mod structure;
mod tls;
mod transcript;

pub(crate) use envelope::RpcRefusal;
pub use local::CLIENT;
pub(crate) use local::LocalServer;
pub use server::{ApiConfig, Server};
pub(crate) use server::{CONNECTIONS, Ending, LAST_ANSWERS};
pub(crate) use socket::{Socket, SocketKind};
pub(crate) use tls::{NEEDS_TLS, check_files};
pub use tls::{ServerTls, TlsFilesError};

/// Checks a message of JSON-RPC that did not come over HTTP. If the SDK must receive a changed message, the
/// result is that message.
///
/// # Errors
/// The answer to a message that the SDK must not see.
pub(crate) fn check_message(message: &[u8]) -> Result<Option<Vec<u8>>, RpcRefusal> {
    envelope::inspect(message)?;
    initialize::complete(message)
}
