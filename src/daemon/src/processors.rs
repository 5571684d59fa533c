//! Keeps the threads of this daemon off the processors to which programs are confined at the moment
//! ([`mod@crate::tenants::confine`]).
//!
//! A disk and a network wake a thread wherever they interrupt. Where light programs sleep and wake thousands
//! of times a second, the thread then waits for its processor for tens of milliseconds (`bench/README.md`).
//! If that thread syncs the journal, every commit waits with it.
//!
//! It must never leave the daemon fewer processors than the daemon computes on. It must never give it one
//! that it was not started with.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

/// The shortest time over which a use is measured. The kernel counts what another thread computes when that
/// thread is interrupted, so a use within a millisecond would be any number.
const SHORTEST: Duration = Duration::from_millis(200);
/// A use counts for this long after it has ended, and for at most twice as long.
const COUNTS: Duration = Duration::from_secs(10);

/// What this process could use before any of its threads was kept off a processor.
struct Start {
    /// The numbers of the processors.
    own: BTreeSet<usize>,
    /// How many it may use, also by the quota of its control group.
    count: usize,
}

fn start() -> &'static Start {
    static START: OnceLock<Start> = OnceLock::new();
    START.get_or_init(|| {
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Start {
            own: (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect(),
            count: std::thread::available_parallelism().map_or(1, usize::from),
        }
    })
}

/// How many processors the daemon may use, by what it was started with and by the quota of its control group.
/// To be called at the start of the daemon.
pub(crate) fn count() -> usize {
    start().count
}

/// The daemon's threads: how much they compute, and where they run.
#[derive(Debug, Default)]
pub(crate) struct OwnThreads {
    used: OwnUse,
    /// On how many processors they compute.
    compute_on: f64,
    /// Where they were last told to run, if that is not everywhere. None of the processors: not all of the
    /// threads were told.
    told: Option<BTreeSet<usize>>,
}

impl OwnThreads {
    /// On how many processors they compute by now.
    pub(crate) fn compute_on(&mut self, now: Instant) -> f64 {
        self.compute_on = self.used.by(now, computed());
        self.compute_on
    }

    /// From now on no thread of the daemon runs on `these` processors. That holds for later threads too.
    /// They use all of them if the rest would be fewer than they compute on. If the kernel refuses that, the
    /// next call tries it again.
    pub(crate) fn keep_off(&mut self, these: &BTreeSet<usize>) {
        let own = &start().own;
        let left = without(own, these, self.compute_on);
        let wanted = Some(left).filter(|left| left != own);
        if self.told == wanted {
            return;
        }
        let done = run_on(wanted.as_ref().unwrap_or(own));
        debug!(?these, self.compute_on, ?wanted, ?done, "the daemon's threads keep off processors");
        // A filter of system calls forbids it, and will the next time.
        let is_forbidden = matches!(&done, Err(error) if error.kind() == io::ErrorKind::PermissionDenied);
        self.told = if done.is_ok() || is_forbidden { wanted } else { Some(BTreeSet::new()) };
    }

    /// Whether there are processors on which they do not run, although the daemon has them.
    pub(crate) fn are_kept_off(&self) -> bool {
        self.told.is_some()
    }
}

fn without(own: &BTreeSet<usize>, these: &BTreeSet<usize>, computes_on: f64) -> BTreeSet<usize> {
    let left: BTreeSet<usize> = own.difference(these).copied().collect();
    #[expect(clippy::cast_precision_loss, reason = "few processors")]
    let is_enough = !left.is_empty() && left.len() as f64 >= computes_on;
    if is_enough { left } else { own.clone() }
}

/// Lets every thread of this process run on these processors only ([sched_setaffinity(2)]), or as many as it
/// can.
///
/// [sched_setaffinity(2)]: https://man7.org/linux/man-pages/man2/sched_setaffinity.2.html
fn run_on(these: &BTreeSet<usize>) -> io::Result<()> {
    let mut set = CpuSet::new();
    these.iter().for_each(|number| set.set(*number));
    let mut result = Ok(());
    // A thread that starts meanwhile has the processors of the thread that started it: perhaps the old ones.
    let mut seen = BTreeSet::new();
    loop {
        let mut found = threads()?;
        found.retain(|thread| seen.insert(*thread));
        if found.is_empty() {
            return result;
        }
        for thread in found {
            match sched_setaffinity(Pid::from_raw(thread), &set) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => result = Err(error.into()),
            }
        }
    }
}

/// The ids of all threads of this process.
fn threads() -> io::Result<Vec<i32>> {
    if fs::read_link("/proc/self")?.to_str() != Some(&getpid().to_string()) {
        return Err(io::Error::other("/proc belongs to another namespace of processes"));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    Ok(found)
}

/// How long all threads of the daemon have computed since its start.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// On how many processors the daemon computes. It reads no clock. More is noticed at once, and less after
/// [`COUNTS`]: programs are not to be moved whenever the daemon rests.
#[derive(Debug, Default)]
struct OwnUse {
    /// When it was last measured, and what the daemon had computed by then.
    last: Option<(Instant, Duration)>,
    /// The most in the [`COUNTS`] before these, and in these.
    most: [f64; 2],
    /// When these began.
    since: Option<Instant>,
}

impl OwnUse {
    /// The use by now, when the threads have [`computed`] for so long.
    fn by(&mut self, now: Instant, computed: Duration) -> f64 {
        let (then, before) = *self.last.get_or_insert((now, computed));
        let passed = now.saturating_duration_since(then);
        if passed >= SHORTEST {
            let use_now = computed.saturating_sub(before).as_secs_f64() / passed.as_secs_f64();
            let since = *self.since.get_or_insert(then);
            if now.saturating_duration_since(since) >= COUNTS {
                (self.most, self.since) = ([self.most[1], 0.0], Some(now));
            }
            self.most[1] = self.most[1].max(use_now);
            self.last = Some((now, computed));
        }
        self.most[0].max(self.most[1])
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;

    use super::*;

    fn allowed() -> BTreeSet<usize> {
        let set = sched_getaffinity(None).expect("processors");
        (0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect()
    }

    /// The child: all its threads are kept off processors, and no thread of another test.
    #[test]
    #[ignore = "it is run by the test below"]
    fn child() {
        let (all, counted) = (start().own.clone(), count());
        let (ask, asked) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel();
        let other = std::thread::spawn(move || {
            for () in asked {
                let started = std::thread::spawn(allowed).join().expect("no panic");
                answer.send([allowed(), started]).expect("a test");
            }
        });
        let seen = || {
            ask.send(()).expect("a thread");
            answered.recv().expect("a thread")
        };
        let first = BTreeSet::from([*all.first().expect("a processor")]);
        let others: BTreeSet<usize> = all.difference(&first).copied().collect();
        let mut own = OwnThreads { compute_on: 1.0, ..OwnThreads::default() };
        own.keep_off(&others);
        assert_eq!((allowed(), seen()), (first.clone(), [first.clone(), first.clone()]));
        assert_eq!(count(), counted, "what it was started with");
        own.keep_off(&all);
        assert_eq!(seen(), [all.clone(), all.clone()], "never without one");
        own.keep_off(&others);
        assert_eq!(own.are_kept_off(), all.len() > 1);
        own.keep_off(&BTreeSet::new());
        assert!(!own.are_kept_off());
        // Some of the threads may have been told by a call that failed in the middle.
        run_on(&first).expect("kept off");
        own.told = Some(BTreeSet::new());
        assert!(own.are_kept_off());
        own.keep_off(&BTreeSet::new());
        assert!(!own.are_kept_off());
        assert_eq!((allowed(), seen()), (all.clone(), [all.clone(), all.clone()]));
        assert!(run_on(&BTreeSet::from([CpuSet::MAX_CPU - 1])).is_err(), "no machine has that");
        drop(ask);
        other.join().expect("no panic");
    }

    #[test]
    fn the_threads_that_are_there_and_those_that_they_start_keep_off() {
        let this = Command::new(std::env::current_exe().expect("a program"))
            .args(["processors::tests::child", "--exact", "--ignored", "--nocapture"])
            .output()
            .expect("a child");
        let said = String::from_utf8_lossy(&this.stdout);
        assert!(this.status.success() && said.contains("1 passed"), "{this:?}");
    }

    #[test]
    fn what_is_left_is_never_nothing_never_too_little_and_never_more() {
        let set = |numbers: &[usize]| numbers.iter().copied().collect::<BTreeSet<usize>>();
        for (own, these, computes_on, left) in [
            (&[0, 1][..], &[1][..], 0.9, &[0][..]),
            (&[0, 1], &[1], 1.1, &[0, 1]),
            (&[2, 3], &[3, 4, 5], 0.0, &[2]),
            (&[2, 3], &[2, 3], 0.0, &[2, 3]),
            (&[2, 3], &[], 7.0, &[2, 3]),
        ] {
            assert_eq!(without(&set(own), &set(these), computes_on), set(left));
        }
    }

    #[test]
    fn more_use_is_noticed_at_once_and_less_after_some_seconds() {
        let (begun, seconds) = (Instant::now(), Duration::from_secs_f64);
        let mut own = OwnUse::default();
        let mut by = |at: f64, computed: f64| own.by(begun + seconds(at), seconds(computed));
        assert_eq!(by(0.0, 7.0), 0.0, "nothing is known before the second look");
        assert_eq!(by(0.01, 7.5), 0.0, "too soon to be measured");
        assert_eq!(by(0.5, 8.0), 2.0);
        assert_eq!([by(1.5, 8.0), by(9.5, 8.0), by(10.5, 9.0)], [2.0; 3], "it has just ended");
        assert_eq!(by(20.5, 9.0), 1.0, "the most of the last seconds");
        assert_eq!(by(30.5, 9.0), 0.0);
        assert!(computed() > Duration::ZERO);
    }
}
