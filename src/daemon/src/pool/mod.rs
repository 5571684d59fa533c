//! The pool: containers that stand warm before anyone asks, handed out once and never taken back.
//!
//! [`core`] decides and a driver does: the core is told what happened and answers what to do next. Nothing in
//! here may know a tool, a session or HTTP.

pub mod core;
