//! What a job or a warm part reports of the program that it runs: that it started, failed, ended.
//!
//! A job writes its reports to a pipe; a part that forks says them on its line, and they come here through a
//! channel. It must never take half a report for one.

use std::os::fd::OwnedFd;

use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// One report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program has this PID.
    Started(i32),
    /// It could not be executed: errno.
    Failed(i32),
    /// It is dead, and so is everything it started.
    Ended { status: i32, cpu_us: u64, max_rss_kib: u64, leftovers: u32 },
}

/// Bytes of a report on the pipe; far below `PIPE_BUF`, so each is written at once.
pub(crate) const REPORT_BYTES: usize = 32;

impl Report {
    pub(crate) fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (kind, a, b, c, d) = match self {
            Self::Started(pid) => (1u32, pid, 0, 0, 0),
            Self::Failed(errno) => (2, errno, 0, 0, 0),
            Self::Ended { status, cpu_us, max_rss_kib, leftovers } => {
                (3, status, leftovers, cpu_us, max_rss_kib)
            }
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&a.to_le_bytes());
        bytes[8..12].copy_from_slice(&b.to_le_bytes());
        bytes[16..24].copy_from_slice(&c.to_le_bytes());
        bytes[24..32].copy_from_slice(&d.to_le_bytes());
        bytes
    }

    /// `None` for bytes that are no report.
    pub(crate) fn from_bytes(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        match word(0) {
            1 => Some(Self::Started(word(4).cast_signed())),
            2 => Some(Self::Failed(word(4).cast_signed())),
            3 => Some(Self::Ended {
                status: word(4).cast_signed(),
                leftovers: word(8),
                cpu_us: long(16),
                max_rss_kib: long(24),
            }),
            _ => None,
        }
    }
}

/// The reports of one program, in their order.
pub(crate) struct Reports {
    source: Source,
    /// Given out first: it came before the run did.
    first: Option<Report>,
    /// Whether the program could not be started.
    pub(crate) failed: bool,
}

enum Source {
    /// The status pipe of its job; `None` where that could not be registered.
    Job(Option<pipe::Receiver>),
    /// The warm part that forked it.
    Part(mpsc::UnboundedReceiver<Report>),
}

impl Reports {
    /// Those of a job, by the reading end of its status pipe.
    pub(crate) fn of_job(fd: OwnedFd) -> Self {
        Self { source: Source::Job(pipe::Receiver::from_owned_fd(fd).ok()), first: None, failed: false }
    }

    /// Those of a program that a warm part forked.
    pub(crate) fn of_part(reports: mpsc::UnboundedReceiver<Report>) -> Self {
        Self { source: Source::Part(reports), first: None, failed: false }
    }

    /// The process `main` started before it had a run, and has one now: its start is reported again.
    pub(crate) fn with_start(self, main: i32) -> Self {
        Self { first: Some(Report::Started(main)), ..self }
    }

    /// The next report, or `None` when no more can come. Cancel-safe: a report is in the pipe as a whole or
    /// not at all.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let pipe = match &mut self.source {
            Source::Job(pipe) => pipe.as_mut()?,
            Source::Part(reports) => return reports.recv().await,
        };
        loop {
            pipe.readable().await.ok()?;
            let mut bytes = [0; REPORT_BYTES];
            match pipe.try_read(&mut bytes) {
                Ok(REPORT_BYTES) => {
                    let report = Report::from_bytes(&bytes);
                    self.failed |= matches!(report, Some(Report::Failed(_)));
                    return report;
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: Report =
        Report::Ended { status: -9, cpu_us: u64::MAX - 1, max_rss_kib: 1 << 40, leftovers: u32::MAX };

    #[test]
    fn every_report_is_read_as_it_was_written() {
        for report in [Report::Started(17), Report::Failed(-2), ENDED] {
            assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes(&[0; REPORT_BYTES]), None);
        assert_eq!(Report::from_bytes(&[4; REPORT_BYTES]), None);
    }

    #[tokio::test]
    async fn a_start_before_the_run_is_reported_first_and_half_a_report_is_the_end() {
        let (reading, writing) = rustix::pipe::pipe().expect("a pipe");
        let mut reports = Reports::of_job(reading).with_start(12);
        rustix::io::write(&writing, &Report::Failed(2).to_bytes()).expect("room");
        assert_eq!(reports.next().await, Some(Report::Started(12)));
        assert!(!reports.failed);
        assert_eq!(reports.next().await, Some(Report::Failed(2)));
        assert!(reports.failed);
        rustix::io::write(&writing, &ENDED.to_bytes()[..7]).expect("room");
        assert_eq!(reports.next().await, None);
    }
}
