//! What can fail in a running daemon while the process goes on: one table, from which `/health`, `/ready`,
//! `paddock doctor`, the metric `paddock_degraded` and the alerts are made or checked.
//!
//! A part of the daemon notes here that something fails, and that it works again ([`Degradations::note`]). It
//! must never decide anything from what is noted: this is for people.

use std::sync::atomic::{AtomicBool, Ordering};

/// Something that does not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Degradation {
    /// The container engine does not answer.
    EngineDown,
    /// There is no image to run code in.
    NoRunner,
    /// The audit log cannot be written, and calls are refused therefore.
    CallsRefusedForAudit,
    /// The store cannot be written.
    StoreNotWritable,
    /// Containers of a runner fail to start, again and again.
    StartsFailing,
    /// An image says that it is a runner, and cannot be used.
    ImageRefused,
    /// The warm part of a runner could not be saved or restored, so its containers import their libraries.
    SnapshotMissing,
    /// The store's journal is kept, since the file system could not be synced.
    JournalKept,
    /// The file of tokens cannot be used.
    TokensOutdated,
    /// The TLS certificate cannot be used.
    CertificateOutdated,
    /// The audit log cannot be written, and calls go on.
    CallsNotNoted,
    /// Log lines cannot be written.
    LogFailing,
    /// The collector of OpenTelemetry takes no spans.
    SpansLost,
}

impl Degradation {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 13] = [
        Self::EngineDown,
        Self::NoRunner,
        Self::CallsRefusedForAudit,
        Self::StoreNotWritable,
        Self::StartsFailing,
        Self::ImageRefused,
        Self::SnapshotMissing,
        Self::JournalKept,
        Self::TokensOutdated,
        Self::CertificateOutdated,
        Self::CallsNotNoted,
        Self::LogFailing,
        Self::SpansLost,
    ];

    /// Its name, for programs: the label `what` of `paddock_degraded`, and the name of the doctor's check.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EngineDown => "engine_down",
            Self::NoRunner => "no_runner",
            Self::CallsRefusedForAudit => "calls_refused_for_audit",
            Self::StoreNotWritable => "store_not_writable",
            Self::StartsFailing => "starts_failing",
            Self::ImageRefused => "image_refused",
            Self::SnapshotMissing => "snapshot_missing",
            Self::JournalKept => "journal_kept",
            Self::TokensOutdated => "tokens_outdated",
            Self::CertificateOutdated => "certificate_outdated",
            Self::CallsNotNoted => "calls_not_noted",
            Self::LogFailing => "log_failing",
            Self::SpansLost => "spans_lost",
        }
    }

    /// What `/health` and `/ready` say. Everybody can read it, so it names no file, image or person.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::EngineDown => "the container engine does not answer",
            Self::NoRunner => "no runner image was found",
            Self::CallsRefusedForAudit => "the audit log cannot be written (audit.required)",
            Self::StoreNotWritable => "the store cannot be written",
            Self::StartsFailing => "containers of a runner do not start",
            Self::ImageRefused => "a runner image cannot be used",
            Self::SnapshotMissing => {
                "a warm part could not be saved or restored: its containers import their libraries"
            }
            Self::JournalKept => "the store could not be synced: its journal grows until a restart",
            Self::TokensOutdated => "the file of tokens cannot be used: what it said before is good",
            Self::CertificateOutdated => "the new TLS certificate cannot be used, so the previous one is",
            Self::CallsNotNoted => "the audit log cannot be written: calls are not noted",
            Self::LogFailing => "log lines are lost: they cannot be written",
            Self::SpansLost => "the collector of OpenTelemetry takes no spans",
        }
    }

    /// What an operator does about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::EngineDown => "no code can run; see systemctl status docker, and engine.host",
            Self::NoRunner => "no code can run; build the images (make images), or name them under [runners]",
            Self::CallsRefusedForAudit => "calls are refused; check the disk of audit.file (df, dmesg)",
            Self::StoreNotWritable => {
                "no file can be saved; check the file system of store.root (mount, dmesg)"
            }
            Self::StartsFailing => {
                "calls of this runner wait or are refused; the log says why each start failed, and where"
            }
            Self::ImageRefused => {
                "its language is missing, or the previous image is used; the log says what is wrong with it"
            }
            Self::SnapshotMissing => {
                "new containers take longer, and more memory, to become warm; the log says why"
            }
            Self::JournalKept => {
                "saved files are safe; check the disk of store.root, then restart the daemon"
            }
            Self::TokensOutdated => {
                "later changes of tokens have no effect; `paddock token list` says what is wrong"
            }
            Self::CertificateOutdated => {
                "the previous one serves until it expires; the log says what is wrong with the new one"
            }
            Self::CallsNotNoted => "the audit log lacks lines; check the disk of audit.file (df, dmesg)",
            Self::LogFailing => {
                "check whether the disk of log.file is full, and whether the reader of standard error runs"
            }
            Self::SpansLost => {
                "calls do not wait for it; check telemetry.otlp_endpoint, and the network to it"
            }
        }
    }

    /// The alert of `deploy/prometheus/rules.yml` that fires.
    #[must_use]
    pub fn alert(self) -> &'static str {
        match self {
            Self::EngineDown => "PaddockEngineDown",
            Self::NoRunner => "PaddockNoRunner",
            Self::CallsRefusedForAudit | Self::CallsNotNoted => "PaddockAuditFailing",
            Self::StoreNotWritable => "PaddockStoreNotWritable",
            Self::StartsFailing => "PaddockContainerStartsFailing",
            Self::ImageRefused => "PaddockImageRefused",
            Self::SnapshotMissing => "PaddockSnapshotNotUsed",
            Self::JournalKept => "PaddockJournalKept",
            Self::TokensOutdated => "PaddockTokensFileBroken",
            Self::CertificateOutdated => "PaddockCertificateOutdated",
            Self::LogFailing => "PaddockLogLinesLost",
            Self::SpansLost => "PaddockSpansLost",
        }
    }

    /// Whether no run of a new session would be served, or its files not be saved: `/ready` answers 503.
    #[must_use]
    pub fn prevents_runs(self) -> bool {
        matches!(
            self,
            Self::EngineDown | Self::NoRunner | Self::CallsRefusedForAudit | Self::StoreNotWritable
        )
    }

    /// The one that `/health` tells of in these words.
    #[must_use]
    pub fn of_sentence(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.sentence() == text)
    }
}

#[cfg(test)]
impl Degradation {
    /// The test that makes it happen and sees it told: its file, and its name.
    pub(crate) fn shown_by(self) -> (&'static str, &'static str) {
        match self {
            Self::EngineDown => {
                ("tests/e2e/engine_gone.rs", "a_suspended_engine_is_reported_and_used_again_later")
            }
            Self::NoRunner => (
                "tests/e2e/engine_gone.rs",
                "a_daemon_starts_on_an_engine_without_images_and_uses_a_runner_once_it_appears",
            ),
            Self::CallsRefusedForAudit => (
                "tests/e2e/audit.rs",
                "a_required_log_that_cannot_be_written_refuses_calls_and_service_goes_on_with_it",
            ),
            Self::StoreNotWritable => {
                ("tests/e2e/full.rs", "a_store_that_became_read_only_is_reported_and_loses_no_output")
            }
            Self::StartsFailing => {
                ("tests/e2e/degraded.rs", "a_runner_whose_containers_do_not_start_is_told_until_one_does")
            }
            Self::ImageRefused => (
                "tests/e2e/engine_gone.rs",
                "an_image_for_another_architecture_is_ignored_and_the_previous_one_stays_in_use",
            ),
            Self::SnapshotMissing => (
                "tests/e2e/snapshots.rs",
                "without_a_snapshot_that_works_containers_import_and_the_log_says_why",
            ),
            Self::JournalKept => ("tests/e2e/degraded.rs", "a_journal_that_is_kept_for_good_is_told"),
            Self::TokensOutdated => (
                "tests/e2e/tenants/tokens.rs",
                "a_token_ends_at_its_time_and_a_broken_file_takes_nobodys_token",
            ),
            Self::CertificateOutdated => {
                ("tests/e2e/https.rs", "a_changed_certificate_is_used_and_a_broken_one_is_not")
            }
            Self::CallsNotNoted => (
                "tests/e2e/degraded.rs",
                "an_audit_log_that_cannot_be_written_is_told_everywhere_while_calls_go_on",
            ),
            Self::LogFailing => (
                "src/daemon/src/log/sink.rs",
                "a_full_disk_loses_lines_and_counts_them_and_the_console_has_them",
            ),
            Self::SpansLost => (
                "src/daemon/src/telemetry/tests.rs",
                "a_collector_that_is_away_or_refuses_delays_nothing_and_its_spans_are_counted",
            ),
        }
    }
}

/// What fails at the moment, as the parts of the daemon have noted it.
#[derive(Debug, Default)]
pub struct Degradations([AtomicBool; Degradation::ALL.len()]);

impl Degradations {
    /// Notes whether something fails now.
    pub fn note(&self, what: Degradation, fails: bool) {
        if let Some(flag) = self.0.get(what as usize) {
            flag.store(fails, Ordering::Relaxed);
        }
    }

    /// Whether something fails now.
    #[must_use]
    pub fn fails(&self, what: Degradation) -> bool {
        self.0.get(what as usize).is_some_and(|flag| flag.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_place_name_and_sentence() {
        let all = Degradations::default();
        for (place, what) in Degradation::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, place, "{what:?} is not in its place");
            assert_eq!(Degradation::of_sentence(what.sentence()), Some(what));
            let same = Degradation::ALL.into_iter().filter(|other| other.name() == what.name());
            assert_eq!(same.count(), 1, "{what:?}");
            all.note(what, true);
            let failing: Vec<_> = Degradation::ALL.into_iter().filter(|one| all.fails(*one)).collect();
            assert_eq!(failing, [what]);
            all.note(what, false);
        }
    }
}
