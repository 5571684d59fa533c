//! A run's program from its start to the death of its last process: output, bounds, and the end.
//!
//! ```text
//!  started ─► running ─► ending (killed, or the program is dead) ─► swept ─► drained ─► the end's figures
//! ```
//!
//! The end is known only when no process of the run lives and every byte that it wrote was sent. This must
//! never wait for an end of file: a program may close its streams and live, or leave them open and die.

use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::{Limit, Outcome, RunEnd, RunSpec};
use paddock_proto::{Channel, Inbound, OutputStream};
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::container::Container;
use crate::outlet::Outlet;
use crate::process::Process;
use crate::pump::Pump;
use crate::report::Report;
use crate::stdin_pipe::StdinPipe;
use crate::sweep::sweep;
use crate::{bounds, disk, sys, tree};

/// How long a job may take to kill the rest of its run before PID 1 kills it too: the code may have stopped
/// the job.
const JOB_PATIENCE: Duration = Duration::from_millis(1500);

/// How often a warm part that has a run is resumed, in case the code stopped it.
const RESUME_EVERY: Duration = Duration::from_millis(250);

/// Whether a limit of the container that was hit while several runs were under way can have ended this one.
pub(crate) fn is_its_own(limit: Limit, end: &RunEnd) -> bool {
    if limit == Limit::Pids {
        return end.leftovers > 0;
    }
    match end.outcome {
        Outcome::Signaled(signal) => signal == libc::SIGKILL,
        Outcome::Exited(code) => code == 128 + libc::SIGKILL,
        Outcome::NotStarted(_) => true,
    }
}

/// The end of a run whose program never started.
pub(crate) fn not_started(errno: i32) -> RunEnd {
    RunEnd {
        outcome: Outcome::NotStarted(errno),
        limit: None,
        warm: false,
        wall_us: 0,
        cpu_us: 0,
        metered_us: 0,
        max_rss_kib: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        leftovers: 0,
        survivors: 0,
    }
}

/// Sees a program to its end; the figures of the end, without its wall time.
pub(crate) async fn supervise(
    container: &Container,
    outlet: &Rc<Outlet>,
    spec: &RunSpec,
    process: Process,
    stdin: Option<StdinPipe>,
) -> RunEnd {
    let over = Rc::new(Notify::new());
    let mut run = Supervised { process, main: None, limit: None, kill_at: None, give_up: None };
    let pumps = run.process.outputs.take().map(|[out, err]| {
        [(out, OutputStream::Stdout), (err, OutputStream::Stderr)]
            .map(|(fd, stream)| Pump::start(fd, stream, outlet.clone(), spec.output_cap, over.clone()))
    });
    let mut end = not_started(0);
    let mut listening = true;
    // A part that the code has stopped would not report the run's end.
    let part = run.process.forker.as_ref().map(|forker| forker.part());
    let mut resume = tokio::time::interval(RESUME_EVERY);
    let mut look = tokio::time::interval(bounds::LOOK);
    let disk = async {
        match spec.limits.disk {
            Some(limit) => disk::exceeded(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(disk);
    let wall = tokio::time::sleep(Duration::from_millis(spec.wall_ms));
    tokio::pin!(wall);
    loop {
        let (kill_at, give_up) = (run.kill_at, run.give_up);
        let is_full = stdin.as_ref().is_some_and(|stdin| !stdin.has_room());
        tokio::select! {
            report = run.process.reports.next() => match report {
                Some(Report::Started(main)) => {
                    run.main = Some(main);
                    if run.limit.is_some() {
                        // It was told to end before it began: with the grace that it has.
                        let signal = if run.kill_at.is_some() { Signal::TERM } else { Signal::KILL };
                        tree::signal(&[main], signal);
                    }
                }
                Some(Report::Failed(errno)) => end.outcome = Outcome::NotStarted(errno),
                Some(Report::Ended { status, cpu_us, max_rss_kib, leftovers }) => {
                    if !run.process.reports.failed {
                        end.outcome = outcome(status);
                        run.limit = run.limit.or_else(|| bounds::cause(&spec.limits, status, cpu_us));
                    }
                    (end.cpu_us, end.max_rss_kib, end.leftovers) = (cpu_us, max_rss_kib, leftovers);
                    break;
                }
                // The job was killed: by the code, by PID 1 below, or for memory. A job that could not even
                // fork has reported that.
                None => {
                    if !run.process.reports.failed {
                        end.outcome = Outcome::Signaled(libc::SIGKILL);
                    }
                    break;
                }
            },
            () = &mut wall, if run.limit.is_none() => run.end(Limit::Wall),
            () = over.notified(), if run.limit.is_none() => run.end(Limit::Output),
            () = &mut disk, if run.limit.is_none() => run.end(Limit::Disk),
            inbound = outlet.inbound(), if listening && !is_full => match (inbound, &stdin) {
                (Inbound::Data(Channel::Stdin, bytes), Some(stdin)) => stdin.push(bytes),
                (Inbound::Eof(Channel::Stdin), Some(stdin)) => stdin.end(),
                (Inbound::Reset, _) => { listening = false; run.end(Limit::Cancelled); }
                _ => listening = false,
            },
            () = written(stdin.as_ref()), if is_full => {}
            when = outlet.told_to_end() => run.end_by(when),
            () = sleep_until(kill_at), if kill_at.is_some() => run.end(Limit::Cancelled),
            _ = look.tick(), if run.limit.is_none() && bounds::are_checked(&spec.limits) => {
                if let Some(limit) = bounds::exceeded(&spec.limits, &run.process.living()) {
                    run.end(limit);
                }
            }
            _ = resume.tick(), if part.is_some() => tree::resume(part.as_slice()),
            () = sleep_until(give_up), if give_up.is_some() => {
                tree::kill(&[run.process.job]);
                run.give_up = None;
            }
        }
    }
    (end.limit, end.warm) = (run.limit, run.process.warm);
    if let Some(dead) = &run.process.dead
        && tokio::time::timeout(JOB_PATIENCE, dead.wait()).await.is_err()
    {
        tree::kill(&[run.process.job]); // it reported the end and lingers: stopped by the code
        dead.wait().await;
    }
    let forker = run.process.forker.as_ref();
    if let Some(forker) = forker {
        forker.free_now(|| container.counters.memory_is_short());
    }
    let swept = sweep(&container.reaper, container.bridge.get(), forker.map(Rc::as_ref)).await;
    if let Some(forker) = forker {
        forker.free_soon();
    }
    end.leftovers += swept.killed;
    end.survivors = swept.survivors;
    if let Some([out, err]) = pumps {
        (end.stdout_bytes, end.stderr_bytes) = (out.finish().await, err.finish().await);
    }
    end
}

async fn written(stdin: Option<&StdinPipe>) {
    match stdin {
        Some(stdin) => stdin.written().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

/// By a status as wait(2) has it.
fn outcome(status: i32) -> Outcome {
    if libc::WIFSIGNALED(status) {
        Outcome::Signaled(libc::WTERMSIG(status))
    } else {
        Outcome::Exited(libc::WEXITSTATUS(status))
    }
}

/// A program that is supervised.
struct Supervised {
    process: Process,
    main: Option<i32>,
    limit: Option<Limit>,
    /// It was asked to end, and is killed at this time.
    kill_at: Option<Instant>,
    /// Its job had to kill the rest by this time.
    give_up: Option<Instant>,
}

impl Supervised {
    /// Kills the program; its job kills what else there is, and has [`JOB_PATIENCE`] for that.
    fn end(&mut self, why: Limit) {
        if self.limit.is_some() && self.kill_at.is_none() {
            return;
        }
        self.limit = self.limit.or(Some(why));
        self.kill_at = None;
        self.give_up = Some(Instant::now() + JOB_PATIENCE);
        sys::continue_all();
        if let Some(main) = self.main {
            // Its job may be dead or stopped already, so all of its tree is killed here.
            let mut all = self.process.living();
            all.push(main);
            tree::kill(&all);
        }
    }

    /// Asks it to end, and has it killed at this time, or sooner if it was asked before with a shorter grace.
    fn end_by(&mut self, when: Instant) {
        if when <= Instant::now() {
            return self.end(Limit::Cancelled);
        }
        match self.limit {
            None => {
                self.limit = Some(Limit::Cancelled);
                tree::signal(&self.process.living(), Signal::TERM);
                sys::continue_all(); // a stopped process gets the signal as well
                self.kill_at = Some(when);
            }
            Some(_) => self.kill_at = self.kill_at.map(|before| before.min(when)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcome: Outcome, leftovers: u32) -> RunEnd {
        RunEnd { outcome, leftovers, ..not_started(0) }
    }

    #[test]
    fn a_status_is_an_exit_code_or_a_signal() {
        assert_eq!(outcome(0), Outcome::Exited(0));
        assert_eq!(outcome(3 << 8), Outcome::Exited(3));
        assert_eq!(outcome(libc::SIGSEGV), Outcome::Signaled(libc::SIGSEGV));
        assert_eq!(outcome(libc::SIGSEGV | 0x80), Outcome::Signaled(libc::SIGSEGV), "with a core");
    }

    #[test]
    fn a_limit_of_the_container_is_charged_to_a_run_that_shows_its_mark() {
        for (limit, outcome, leftovers, its_own) in [
            (Limit::Memory, Outcome::Signaled(libc::SIGKILL), 0, true),
            (Limit::Memory, Outcome::Exited(128 + libc::SIGKILL), 0, true),
            (Limit::Memory, Outcome::Exited(1), 0, false),
            (Limit::Memory, Outcome::Signaled(libc::SIGTERM), 2, false),
            (Limit::Memory, Outcome::NotStarted(libc::ENOMEM), 0, true),
            (Limit::Pids, Outcome::Exited(1), 1, true),
            (Limit::Pids, Outcome::Signaled(libc::SIGKILL), 0, false),
        ] {
            assert_eq!(is_its_own(limit, &ended(outcome, leftovers)), its_own, "{limit:?} {outcome:?}");
        }
    }
}
