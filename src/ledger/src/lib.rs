//! **paddock-ledger**: who owns which session, and what it holds, for daemons on many machines.
//!
//! PostgreSQL has the order of all writes: one row for each node, each session, and each file of a session.
//! S3 has the contents, each under a name made of its hash, and never changed. [`rules`] says who may own and
//! acknowledge what; everything else here carries it out.
//!
//! It must never acknowledge what one of the two servers does not have, and never change a session whose row
//! names another owner or fence.

pub mod rules;
