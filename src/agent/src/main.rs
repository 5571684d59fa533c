//! The agent: PID 1 of every paddock container, and the bridge that the daemon talks through.
//!
//! ```text
//!  daemon ══ socket pair, where the daemon may (see direct) ══════════► agent init (PID 1)
//!     ╚═════ otherwise hijacked exec ══► agent bridge ── its streams ══╝  │ fork, per run
//!                                                                   job: subreaper, waits, kills, reports
//!                                                                     │ fork + exec
//!                                                                   the image's entrypoint, code on stdin,
//!                                                                   or its warm part, which stood before
//! ```
//!
//! One static program, mode 0111, so that no process of the same user may look into it or trace it. PID 1
//! starts nothing before a daemon has set its secret, and obeys only a daemon that knows it.
//!
//! * The way to the daemon: `init`, `hello`, `direct`, `bridge`, `carrier`, `foreign`, `link`.
//! * A run as the daemon sees it, on a stream that outlives the daemon: `run_stream`, `outlet`, `runs`.
//! * A program from its start to the death of its last process: `start`, `program`, `job`, `report`,
//!   `supervise`, `bounds`, `pump`, `stdin_pipe`, `sweep`.
//! * The image's warm part, which takes runs: `warm`.
//! * What every program is put under, and the calls of programs that are stopped for PID 1: `intercept`;
//!   which files a run may write and read: `policy`; which programs it may execute: `execute`; the way out:
//!   `network`; the way in: `ports`.
//! * What changed in `/data`, either way: `collect`, `apply`, `baseline`, `walk`, `fingerprint`, `files`.
//! * Removing layers of packages that nobody needs, in a container of its own: `tidy`.
//! * The container, its processes, and system calls without a safe form: `probe`, `counters`, `meter`,
//!   `tree`, `reap`, `sys`, `pause`.
//!
//! It must never trust a file name that it finds, follow a symbolic link, leave a process of a run alive
//! after that run's end was reported, or hold more than a bounded amount of anything.

mod apply;
mod baseline;
mod bounds;
mod bridge;
mod carrier;
mod collect;
mod complain;
mod container;
mod counters;
mod direct;
mod disk;
mod execute;
mod files;
mod fingerprint;
mod foreign;
mod hello;
mod init;
mod intercept;
mod job;
mod link;
mod meter;
mod network;
mod outlet;
mod pause;
mod policy;
mod ports;
mod probe;
mod process;
mod program;
mod pump;
mod reap;
mod report;
mod run_stream;
mod runs;
mod start;
mod stdin_pipe;
mod supervise;
mod sweep;
mod sys;
mod tidy;
mod tree;
mod walk;
mod warm;

use std::process::ExitCode;

use complain::complain;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("init") => init::main(),
        Some("bridge") => bridge::main(),
        Some("tidy") => tidy::main(std::env::args().skip(2)),
        _ => {
            complain("usage: agent init | agent bridge | agent tidy; only the paddock daemon starts it");
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
