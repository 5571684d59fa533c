//! The agent: PID 1 of every paddock container, and the bridge that the daemon talks through.
//!
//! ```text
//!  daemon ══ hijacked exec ══► agent bridge ── its streams, once ──► agent init (PID 1)
//!     ╚═════ socket pair, where the daemon may (see direct) ════════╝  │ fork, per run
//!                                                                   job: subreaper, waits, kills, reports
//!                                                                     │ fork + exec
//!                                                                   the image's entrypoint, code on stdin,
//!                                                                   or its warm part, which stood before
//! ```
//!
//! One static program, mode 0111, so that no process of the same user may look into it or trace it. PID 1
//! starts nothing before a daemon has set its secret, and takes orders only from whoever knows it.
//!
//! It must never: trust a file name it walks over, follow a symbolic link, leave a process of a run alive
//! after that run's end was reported, or hold more than a bounded amount of anything.

mod apply;
mod base;
mod bounds;
mod bridge;
mod carrier;
mod collect;
mod container;
mod counters;
mod direct;
mod feed;
mod files;
mod foreign;
mod init;
mod link;
mod outlet;
mod pause;
mod policy;
mod probe;
mod process;
mod pump;
mod reap;
mod run;
mod spawn;
mod stamp;
mod tree;
mod walk;
mod warm;

use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("init") => init::main(),
        Some("bridge") => bridge::main(),
        _ => {
            complain(
                "usage: agent init | agent bridge; the paddock daemon starts both, nobody else needs to",
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// One line on standard error: of PID 1 nobody reads it (log driver none), of the bridge the daemon does.
pub(crate) fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "paddock-agent: {text}");
}
