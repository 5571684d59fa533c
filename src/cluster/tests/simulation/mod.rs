//! Many daemons on one thread, in simulated time: nodes that follow the rules of the crate, a network that
//! loses, delays and doubles, a database, S3, clients, and a checker that sees everything.
//!
//! ```text
//!  clients ──calls──► nodes ──calls──► nodes          plan: what one seed does
//!                       │ │                           world: true time, the queue of events
//!            statements │ │ requests                  checker: what must be true
//!                       ▼ ▼                           rules: the crate's functions, and how to spoil them
//!                database S3
//! ```
//!
//! Nothing here may look at a clock, use threads, or iterate over a hash map: a seed is the same every time.

mod chance;
mod checker;
mod client;
mod database;
mod faults;
mod message;
mod network;
mod node;
mod objects;
mod plan;
mod route;
mod rules;
mod servers;
mod summary;
mod world;

pub(crate) use chance::Chance;
pub(crate) use plan::{Plan, SECOND};
pub(crate) use rules::Mutation;
pub(crate) use summary::Summary;
pub(crate) use world::World;
