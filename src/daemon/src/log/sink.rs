//! The outputs of log lines: standard error, and a file. Each has a thread that writes to it, so that neither
//! the daemon nor the other output waits for a slow reader or a disk.
//!
//! It must never make the daemon wait, nor end it: lines that cannot be written are lost, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::degradation::Degradation;
use crate::metrics::Metrics;

/// The most lines that wait to be written to one output.
const WAITING: usize = 8192;

/// A write that has reached this many bytes takes no further line.
const AT_ONCE: usize = 64 * 1024;

/// How long the end of the process waits for the last lines to be written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Takes lines, from any thread.
#[derive(Clone)]
pub(super) struct Sink {
    outlets: Vec<(SyncSender<Arc<str>>, Arc<OutletHealth>)>,
}

/// Whether lines of one output are lost. An output that works must not hide that the other one fails.
struct OutletHealth {
    fails: AtomicBool,
    /// How many outputs fail.
    failing: Arc<AtomicUsize>,
    metrics: Metrics,
}

impl OutletHealth {
    fn note(&self, fails: bool) {
        if self.fails.swap(fails, Ordering::Relaxed) == fails {
            return;
        }
        let failing = if fails {
            self.failing.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            self.failing.fetch_sub(1, Ordering::Relaxed) - 1
        };
        self.metrics.degradations().note(Degradation::LogFailing, failing > 0);
    }
}

/// Dropped at the end of the process, it waits up to a second until all lines are written.
pub struct Flush(Vec<(SyncSender<Arc<str>>, Receiver<()>)>);

impl Sink {
    /// Begins to write to standard error, and to this file.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(super) fn open(file: Option<File>, metrics: Metrics) -> io::Result<(Self, Flush)> {
        let console: Box<dyn Write + Send> = Box::new(io::stderr());
        Self::to(std::iter::once(console).chain(file.map(|file| Box::new(file) as Box<_>)), metrics)
    }

    fn to(
        outlets: impl IntoIterator<Item = Box<dyn Write + Send>>,
        metrics: Metrics,
    ) -> io::Result<(Self, Flush)> {
        let (mut sink, mut flush) = (Self { outlets: Vec::new() }, Flush(Vec::new()));
        let failing = Arc::new(AtomicUsize::new(0));
        for outlet in outlets {
            let (lines, to_write) = sync_channel(WAITING);
            let (done, written) = sync_channel(1);
            let health = OutletHealth {
                fails: AtomicBool::new(false),
                failing: failing.clone(),
                metrics: metrics.clone(),
            };
            let health = Arc::new(health);
            let own = health.clone();
            std::thread::Builder::new().name("log".to_owned()).spawn(move || {
                write(&to_write, outlet, &own);
                let _ = done.send(()); // fails if nobody waits any more
            })?;
            sink.outlets.push((lines.clone(), health));
            flush.0.push((lines, written));
        }
        Ok((sink, flush))
    }

    /// Takes one line, with its newline.
    pub(super) fn line(&self, line: String) {
        let line: Arc<str> = line.into();
        for (outlet, health) in &self.outlets {
            match outlet.try_send(line.clone()) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                    health.metrics.log_lines_lost(1);
                    health.note(true);
                }
            }
        }
    }
}

/// Writes lines, as many at a time as are waiting. An empty line, which no event makes, is the end.
fn write(lines: &Receiver<Arc<str>>, mut outlet: Box<dyn Write + Send>, health: &OutletHealth) {
    let (mut text, mut ends) = (String::new(), false);
    while !ends && let Ok(line) = lines.recv() {
        text.clear();
        let (mut next, mut count) = (Some(line), 0);
        while let Some(line) = next.take() {
            if line.is_empty() {
                ends = true;
                break;
            }
            count += 1;
            text.push_str(&line);
            if text.len() < AT_ONCE {
                next = lines.try_recv().ok();
            }
        }
        let failed = outlet.write_all(text.as_bytes()).and_then(|()| outlet.flush()).is_err();
        if failed {
            health.metrics.log_lines_lost(count);
        }
        if count > 0 {
            health.note(failed); // the end alone writes nothing, so it says nothing of the output
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let until = Instant::now() + LAST_LINES;
        for (ask, written) in &self.0 {
            if ask.try_send(Arc::from("")).is_ok() {
                match written.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::metrics::DaemonState;

    fn lost(metrics: &Metrics) -> u64 {
        let text = metrics.text(&DaemonState::default());
        let line = text.lines().find_map(|line| line.strip_prefix("paddock_log_lines_lost_total "));
        line.and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    struct Tell(Sender<String>);

    impl Write for Tell {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Like a full disk, or a pipe whose other end is closed.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Like a pipe that nobody reads.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_lines_are_written_before_the_end() {
        let (tell, told) = channel();
        let outlets: [Box<dyn Write + Send>; 1] = [Box::new(Tell(tell))];
        let (sink, flush) = Sink::to(outlets, Metrics::default()).unwrap();
        for n in 0..1000 {
            sink.line(format!("{n}\n"));
        }
        drop(flush);
        let all: String = told.try_iter().collect();
        assert_eq!(all, (0..1000).map(|n| format!("{n}\n")).collect::<String>());
    }

    #[test]
    fn a_full_disk_loses_lines_and_counts_them_and_the_console_has_them() {
        let (tell, told) = channel();
        let metrics = Metrics::default();
        let outlets: [Box<dyn Write + Send>; 2] = [Box::new(Tell(tell)), Box::new(Broken)];
        let (sink, flush) = Sink::to(outlets, metrics.clone()).unwrap();
        sink.line("a\n".to_owned());
        sink.line("b\n".to_owned());
        drop(flush);
        assert_eq!(told.try_iter().collect::<String>(), "a\nb\n");
        assert_eq!(lost(&metrics), 2);
        assert!(metrics.degradations().fails(Degradation::LogFailing));
    }

    #[test]
    fn an_output_that_fails_is_told_until_it_works_whatever_the_other_does() {
        let (metrics, failing) = (Metrics::default(), Arc::new(AtomicUsize::new(0)));
        let health = || OutletHealth {
            fails: AtomicBool::new(false),
            failing: failing.clone(),
            metrics: metrics.clone(),
        };
        let (one, other) = (health(), health());
        let mut told = Vec::new();
        let steps =
            [(&one, true), (&other, false), (&one, true), (&other, true), (&one, false), (&other, false)];
        for (health, fails) in steps {
            health.note(fails);
            told.push(metrics.degradations().fails(Degradation::LogFailing));
        }
        assert_eq!(told, [true, true, true, true, true, false]);
    }

    #[test]
    fn an_output_that_nobody_reads_holds_up_neither_the_daemon_nor_the_other_output() {
        let (go_on, wait) = channel();
        let (tell, told) = channel();
        let metrics = Metrics::default();
        let outlets: [Box<dyn Write + Send>; 2] = [Box::new(Stuck(wait)), Box::new(Tell(tell))];
        let (sink, flush) = Sink::to(outlets, metrics.clone()).unwrap();
        let mut bytes = 0;
        for n in 0..WAITING + 10_000 {
            sink.line("x\n".to_owned());
            // The other output keeps up.
            while n % 1000 == 0 && bytes < 2 * n {
                bytes += told.recv().unwrap().len();
            }
        }
        assert!(lost(&metrics) > 0);
        drop(flush); // nor the end
        bytes += told.try_iter().map(|text| text.len()).sum::<usize>();
        assert_eq!(bytes, 2 * (WAITING + 10_000));
        drop(go_on);
    }
}
