//! The rules by which many daemons share sessions, each rule once: who owns a session, for how long, who may
//! take it over, where a new one goes, and where a call is sent.
//!
//! Every function here is pure: times, rows and loads of nodes come in as arguments, a decision goes out.
//! Nothing in this crate may read a clock, wait, log or do I/O. The daemon uses these functions, and so does
//! the simulation of many daemons in `tests/simulate.rs` (`make simulate`), which looks for faults in them.
//!
//! | module | the rule |
//! |---|---|
//! | [`ownership`] | leases by a node's own clock, takeovers by the database's, fences in every write |
//! | [`placement`] | which nodes are candidates for a session, and which of them takes it |
//! | [`route`] | what a node does with a call: claim the session, pass the call on, or refuse |

pub mod ownership;
pub mod placement;
pub mod route;
