//! What a program writes, on its way to its readers.
//!
//! ```text
//!  link ─► follow ─► OutputSink ─┬─ capture: the answer of a call, and its log if it is long    (code)
//!                                ├─ execution::sink: the log of numbered events                 (commands)
//!                                └─ backlog ─► OutputFollower: the client, while it is written  (both)
//! ```
//!
//! A sink takes a piece at once and writes it on a blocking thread (`store::WriteQueue`). The agent keeps
//! each piece until that is done, so a crash of the daemon loses none, and no more than a window of them is
//! ever unwritten. [`fairness`] decides which program's large piece is next.

pub(in crate::session) mod capture;
pub(in crate::session) mod fairness;
pub(in crate::session) mod live;
mod run_log;
pub(in crate::session) mod stream;
