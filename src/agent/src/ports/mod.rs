//! The way in: connections of the daemon to servers that programs run on loopback, and news of such servers.
//!
//! ```text
//!  daemon ══ Request::Dial ══ dial ─► 127.0.0.1:PORT, or [::1]:PORT ─► a program that listens
//!  program ── listen ──► stopped by its filter, and let go on (listen) ─► table ─► Event::Listens
//! ```
//!
//! PID 1 itself is under no filter, so its own `connect` is the kernel's. It must never connect to a port of
//! its own ([`crate::network::is_own`]): its resolver, its proxy and its relays serve programs of a run.

mod dial;
mod listen;
mod table;

pub(crate) use dial::Dials;
pub(crate) use listen::RunPorts;
