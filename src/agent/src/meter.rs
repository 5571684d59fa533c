//! What the programs of this container use of the processors, told to the daemon while they run. The kernel
//! counts it for the container as a whole, so that no process gets away from it. Of runs that go on at one
//! time any tells it.
//!
//! It must never tell the same time twice, nor what was used before the first run: that is not the tenant's.

use std::cell::Cell;
use std::time::Duration;

use crate::counters::CgroupFiles;

/// How often a run tells it.
pub(crate) const EVERY: Duration = Duration::from_millis(250);

/// Less than this is not worth a message: it is told later.
const WORTH_US: u64 = 10_000;

/// What was told so far.
#[derive(Default)]
pub(crate) struct Meter {
    told_us: Cell<u64>,
    runs: Cell<usize>,
}

impl Meter {
    /// A run begins. Where no other is under way, what was used until now is nobody's.
    pub(crate) fn begin(&self, counters: &CgroupFiles) {
        if self.runs.replace(self.runs.get() + 1) == 0 {
            self.told_us.set(counters.processor_us().unwrap_or(u64::MAX));
        }
    }

    /// Tells what was used since the last time, if that is worth a message and `tell` takes it.
    pub(crate) fn tell(&self, counters: &CgroupFiles, tell: impl FnOnce(u64) -> bool) {
        if let Some(now_us) = counters.processor_us() {
            let used_us = now_us.saturating_sub(self.told_us.get());
            if used_us >= WORTH_US && tell(used_us) {
                self.told_us.set(now_us);
            }
        }
    }

    /// A run has ended, of which `cpu_us` is known. Returns what is to be told with its end.
    pub(crate) fn end(&self, counters: &CgroupFiles, cpu_us: u64) -> u64 {
        self.runs.set(self.runs.get().saturating_sub(1));
        let Some(now_us) = counters.processor_us() else { return cpu_us };
        now_us.saturating_sub(self.told_us.replace(now_us))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_used_while_runs_are_under_way_is_told_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let counters = CgroupFiles::only(Some(file.reopen().unwrap()));
        let mut uses = |text: &str| {
            file.as_file_mut().set_len(0).unwrap();
            rustix::fs::seek(file.as_file(), rustix::fs::SeekFrom::Start(0)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let meter = Meter::default();
        let told = |takes| {
            let mut told = None;
            meter.tell(&counters, |us| {
                told = Some(us);
                takes
            });
            told
        };
        uses("usage_usec 500000\n");
        meter.begin(&counters);
        assert_eq!(told(true), None, "what was before");
        uses("usage_usec 509999\n");
        assert_eq!(told(true), None, "too little for a message");
        uses("usage_usec 600000\n");
        assert_eq!((told(false), told(true), told(true)), (Some(100_000), Some(100_000), None));
        uses("usage_usec 630000\n");
        meter.begin(&counters);
        assert_eq!((meter.end(&counters, 7), meter.end(&counters, 7)), (30_000, 0));
        uses("usage_usec 900000\n");
        meter.begin(&counters);
        assert_eq!(meter.end(&counters, 7), 0, "between two runs");
    }

    #[test]
    fn where_it_cannot_be_read_the_end_tells_what_the_run_itself_used() {
        let (meter, counters) = (Meter::default(), CgroupFiles::only(None));
        meter.begin(&counters);
        meter.tell(&counters, |_| panic!("nothing is known"));
        assert_eq!(meter.end(&counters, 7), 7);
    }
}
