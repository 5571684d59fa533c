//! The way in: HTTP and WebSocket to servers that programs of a session run inside their container.
//!
//! ```text
//!  /{signature}/{session}/{port}/…   on the listener of `ports.addr`   ─┐
//!  /ports/{session}/{port}/…         at the daemon's address, by token ─┴► links ─► headers, cookies ─┐
//!                                                                                                     ▼
//!  a program that listens ◄══ agent ══ a stream of the link ◄── forward, tunnel ◄── a session's container
//! ```
//!
//! * `links` makes links and reads their paths; `headers`, `cookies` and `location` say what passes in each
//!   direction. All of them are pure.
//! * `forward` finds the container, connects, and carries one request and its answer; `tunnel` carries bytes.
//!
//! Whoever has a link reaches one port of one session, and nothing else. What comes out of a container is
//! hostile: it must never learn a credential of the daemon or a cookie that another server set, nor set
//! anything in a browser beyond its own path that a header can set.

#[cfg(test)]
mod confined;
mod cookies;
mod forward;
mod headers;
mod idle;
mod links;
mod location;
mod owners;
mod tunnel;

#[cfg(test)]
pub(crate) use confined::expect_confined;
pub use forward::{PortBody, PortBounds, PortFault, PortForwarder, PortRequest};
pub use links::{OpenPort, PortLinks, PortPath, PortTarget};
