//! Where lines go: standard error, and a file. A thread of its own writes, so that nobody waits for a slow reader or a disk.
//!
//! It must never make the daemon wait, nor end it: what cannot be written is lost, and counted.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::metrics::Metrics;

/// Lines that wait to be written.
const WAITING: usize = 8192;

/// How long the end of the process waits for the last of them, if nobody reads.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Takes lines, from any thread.
#[derive(Clone)]
pub(super) struct Sink {
    lines: SyncSender<String>,
    metrics: Metrics,
}

/// Dropped at the end of the process: waits, not for long, until what was said is written.
pub struct Flush {
    /// Ends the thread, once it is dropped everywhere. The logger has another.
    ask: SyncSender<String>,
    written: Receiver<()>,
}

/// What ends the thread: no line is empty.
const END: String = String::new();

impl Sink {
    /// Begins to write to standard error, and to this file.
    ///
    /// # Errors
    /// There can be no more threads.
    pub(super) fn open(file: Option<File>, metrics: Metrics) -> io::Result<(Self, Flush)> {
        Self::to(Box::new(io::stderr()), file.map(|file| Box::new(file) as Box<_>), metrics)
    }

    fn to(
        console: Box<dyn Write + Send>,
        file: Option<Box<dyn Write + Send>>,
        metrics: Metrics,
    ) -> io::Result<(Self, Flush)> {
        let (lines, to_write) = sync_channel(WAITING);
        let (done, written) = sync_channel(1);
        let counted = metrics.clone();
        let outlets: Vec<_> = std::iter::once(console).chain(file).collect();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            write(&to_write, outlets, &counted);
            let _ = done.send(()); // nobody waits in a process that just ends
        })?;
        Ok((Self { lines: lines.clone(), metrics }, Flush { ask: lines, written }))
    }

    /// One line, its newline included.
    pub(super) fn line(&self, line: String) {
        match self.lines.try_send(line) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.metrics.log_lines_lost(1),
        }
    }
}

/// Writes what comes, as much as is there at a time, to each outlet.
fn write(lines: &Receiver<String>, mut outlets: Vec<Box<dyn Write + Send>>, metrics: &Metrics) {
    while let Ok(mut text) = lines.recv() {
        let (mut count, mut ends) = (1, text.is_empty());
        while !ends
            && text.len() < 64 * 1024
            && let Ok(more) = lines.try_recv()
        {
            ends = more.is_empty();
            count += 1;
            text.push_str(&more);
        }
        for outlet in &mut outlets {
            if outlet.write_all(text.as_bytes()).and_then(|()| outlet.flush()).is_err() {
                metrics.log_lines_lost(count);
            }
        }
        if ends {
            return;
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        if self.ask.try_send(END).is_ok() {
            match self.written.recv_timeout(LAST_LINES) {
                Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::metrics::Standing;

    fn lost(metrics: &Metrics) -> u64 {
        let text = metrics.text(&Standing::default());
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

    /// As a full disk, or a pipe that nobody has the other end of.
    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// As a pipe that nobody reads.
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
    fn all_that_was_said_is_written_before_the_end() {
        let (tell, told) = channel();
        let (sink, flush) = Sink::to(Box::new(Tell(tell)), None, Metrics::default()).unwrap();
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
        let (sink, flush) = Sink::to(Box::new(Tell(tell)), Some(Box::new(Broken)), metrics.clone()).unwrap();
        sink.line("a\n".to_owned());
        sink.line("b\n".to_owned());
        drop(flush);
        assert_eq!(told.try_iter().collect::<String>(), "a\nb\n");
        assert!((2..=3).contains(&lost(&metrics)), "{}", lost(&metrics)); // the word that ends may go with them
    }

    #[test]
    fn who_does_not_read_holds_nobody_up() {
        let (go_on, wait) = channel();
        let metrics = Metrics::default();
        let (sink, flush) = Sink::to(Box::new(Stuck(wait)), None, metrics.clone()).unwrap();
        for _ in 0..WAITING + 10_000 {
            sink.line("x\n".to_owned());
        }
        assert!(lost(&metrics) > 0);
        drop(flush); // nor the end
        drop(go_on);
    }
}
