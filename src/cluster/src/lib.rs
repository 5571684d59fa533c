//! The rules by which many daemons share sessions, each rule once: who owns a session, how long, who may take
//! it over, where a new one goes, and where a call is sent.
//!
//! Every function here is pure: time, rows and peers come in as arguments, a decision goes out. Nothing in
//! this crate may read a clock, wait, log or do I/O. The daemon and the simulation of many daemons
//! (`tests/simulate.rs`) use the same functions.
//!
//! | module | the rule |
//! |---|---|
//! | [`terms`] | how long a lease lasts, and how much longer a takeover waits |
//! | [`lease`] | whether a node may still acknowledge and answer, by its own clock |
//! | [`row`] | what the database must compare before it changes the row of a session |
//! | [`placement`] | which nodes are candidates for a session, and which of them takes it |
//! | [`route`] | what a node does with a call: serve it, claim the session, pass the call on, or refuse |
//! | [`garbage`] | when an object in S3 may be deleted |

pub mod garbage;
pub mod lease;
pub mod placement;
pub mod route;
pub mod row;
pub mod terms;
