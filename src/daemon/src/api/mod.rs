//! What the daemon answers over HTTP/1.1: one listener, one router, one guard in front of every route.
//!
//! ```text
//!  connection ─► hyper ─► guard (Host, Origin, token) ─► route
//!                                                        ├ /mcp            mcp    (rmcp, and the bare call)
//!                                                        ├ /mcp/events     events (a token)
//!                                                        ├ /sessions       raw, bulk  (files as they are; token)
//!                                                        ├ /files, /logs   files  (signed, no token)
//!                                                        ├ /health, /ready health
//!                                                        └ /               page
//!  Unix socket in the store's folder ─► local (paddock stdio)
//! ```
//!
//! `fixtures` is what the MCP conformance suite finds behind `/mcp` in front of the tools, if the environment asks for it.
//!
//! Only this module knows HTTP and only `mcp` knows JSON-RPC. HTTP/2 is not spoken. It must never let a
//! request without a valid token reach a tool, nor log a token, a signature or a body.

mod accept;
mod answer;
mod body;
mod count;
mod envelope;
mod events;
mod files;
mod fixtures;
mod guard;
mod health;
mod local;
mod mcp;
mod metrics;
mod page;
mod range;
mod raw;
mod route;
mod server;
mod socket;
mod status;

pub(crate) use envelope::Refusal;
pub use local::CLIENT;
pub(crate) use local::Local;
pub use server::{ApiConfig, Server};
pub(crate) use server::{CONNECTIONS, Ending, LAST_ANSWERS};
pub(crate) use socket::{Door, Socket};

/// Looks at a message of JSON-RPC that came by another way than HTTP.
///
/// # Errors
/// What to answer in place of the SDK.
pub(crate) fn check_message(message: &[u8]) -> Result<(), Refusal> {
    envelope::inspect(message).map(drop)
}
