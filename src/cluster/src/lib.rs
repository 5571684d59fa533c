//! The rules by which many daemons share sessions, each rule once: who owns a session, for how long, who may
//! take it over, and where a new one goes.
//!
//! Every function here is pure: times, rows and loads of nodes come in as arguments, a decision goes out.
//! Nothing in this crate may read a clock, wait, log or do I/O. The daemon uses these functions, and so does
//! the simulation of many daemons in `tests/simulate.rs` (`make simulate`), which looks for faults in them.
//!
//! | module | the rule |
//! |---|---|
//! | [`ownership`] | leases by a node's own clock, takeovers by the database's, fences in every write |
//! | [`placement`] | which nodes are candidates for a session, and which of them takes it |
//! | [`shares`] | how much of a tenant's limit each node may use, so that it holds for all of them |
//! | [`scale`] | a paper: what limits paddock at 10, 100 and 1,000 nodes |

pub mod ownership;
pub mod placement;
pub mod shares;

#[doc = include_str!("../docs/scale.md")]
pub mod scale {}
