//! What the programs of this container use of the processors, told to the daemon while they run. The kernel
//! counts it for the container as a whole, so that no process gets away from it. Of what goes on between two
//! runs, such as a collection of files, the next one tells.
//!
//! It must never tell the same time twice, nor what was used before the first run: that is not the tenant's.

use std::cell::Cell;
use std::time::Duration;

use paddock_proto::Event;

use crate::container::Container;
use crate::counters::CgroupFiles;
use crate::link::Stream;

/// How often it is told.
const EVERY: Duration = Duration::from_millis(250);

/// Less than this is not worth a message: it is told later.
const WORTH_US: u64 = 10_000;

/// What was told so far.
#[derive(Default)]
pub(crate) struct Meter {
    /// `None` before the first run, and where nothing can be read.
    told_us: Cell<Option<u64>>,
}

impl Meter {
    /// A run begins.
    pub(crate) fn begin(&self, counters: &CgroupFiles) {
        if self.told_us.get().is_none() {
            self.told_us.set(counters.processor_us());
        }
    }

    /// Tells what was used since the last time, if that is worth a message and `tell` takes it.
    fn tell(&self, counters: &CgroupFiles, tell: impl FnOnce(u64) -> bool) {
        if let (Some(told_us), Some(now_us)) = (self.told_us.get(), counters.processor_us()) {
            let used_us = now_us.saturating_sub(told_us);
            if used_us >= WORTH_US && tell(used_us) {
                self.told_us.set(Some(now_us));
            }
        }
    }

    /// A run has ended, of which `cpu_us` is known. Returns what is to be told with its end.
    pub(crate) fn end(&self, counters: &CgroupFiles, cpu_us: u64) -> u64 {
        match (self.told_us.get(), counters.processor_us()) {
            (Some(told_us), Some(now_us)) => {
                self.told_us.set(Some(now_us));
                now_us.saturating_sub(told_us)
            }
            (told_us, _) => {
                self.told_us.set(told_us.map(|told_us| told_us + cpu_us));
                cpu_us
            }
        }
    }
}

/// Answers a [`Request::Meter`](paddock_proto::Request::Meter) on `stream`.
pub(crate) async fn serve(container: &Container, stream: &Stream) {
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                container.meter.tell(&container.counters, |cpu_us| stream.offer(&Event::Used { cpu_us }));
            }
            // The daemon has closed it, or is gone.
            _ = stream.recv() => return,
        }
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
        assert_eq!(meter.end(&counters, 7), 270_000, "between two runs");
        uses("");
        meter.begin(&counters);
        assert_eq!(meter.end(&counters, 7), 7, "it cannot be read");
        uses("usage_usec 900017\n");
        assert_eq!(meter.end(&counters, 7), 10, "and 7 were told");
    }

    #[test]
    fn where_it_cannot_be_read_the_end_tells_what_the_run_itself_used() {
        let (meter, counters) = (Meter::default(), CgroupFiles::only(None));
        meter.begin(&counters);
        meter.tell(&counters, |_| panic!("nothing is known"));
        assert_eq!(meter.end(&counters, 7), 7);
    }
}
