//! Snapshots of warm parts: which there are, and why a runner has none.
//!
//! It must never take one, nor read the files of one: it says what the daemon has noted in its store.

use std::time::Duration;

use bytesize::ByteSize;

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::pool::{Runner, SnapshotRecords};

const NAME: &str = "snapshot";

pub(super) fn judge(config: &Config, runners: &[Runner]) -> Vec<Check> {
    let records = SnapshotRecords::read(&config.store.root.join("snapshots"));
    judge_records(config, runners, &records)
}

fn judge_records(config: &Config, runners: &[Runner], records: &SnapshotRecords) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    let with_labels: Vec<_> = runners.iter().filter(|runner| runner.snapshot_labels.is_some()).collect();
    if !config.agent.snapshots || !config.agent.warm_parts {
        let key = if config.agent.snapshots { "agent.warm_parts" } else { "agent.snapshots" };
        checks.ok(NAME, format!("warm parts are not restored from snapshots: {key} is false"));
        return checks.done();
    }
    for Runner { language, image_id, .. } in with_labels {
        let image = image_id.to_string();
        let of_runner =
            records.snapshots.iter().filter(|one| one.language == *language && one.image == image);
        let newest = of_runner.max_by_key(|one| one.taken);
        if let Some(none) = records.unsupported.get(language).filter(|one| one.image == image) {
            checks.ok(
                NAME,
                format!(
                    "containers of {language} import their libraries: this machine can have no snapshot of \
                     their warm part ({})",
                    none.why
                ),
            );
            continue;
        }
        match (newest, records.without.get(language)) {
            (Some(snapshot), None) => checks.ok(
                NAME,
                format!(
                    "containers of {language} restore their warm part from a snapshot of {} ({})",
                    ago(snapshot.age()),
                    ByteSize::b(snapshot.bytes)
                ),
            ),
            (Some(_) | None, Some(why)) => checks.warn(
                NAME,
                format!("no new snapshot of the warm part of {language}: {why}"),
                "its containers import their libraries, or restore an older snapshot: the daemon tries \
                 again, later each time. runner-images/README.md says what an image must do; \
                 agent.snapshots = false ends the attempts",
            ),
            (None, None) => checks.ok(
                NAME,
                format!("no snapshot of the warm part of {language} yet: the daemon takes one when it runs"),
            ),
        }
    }
    checks.done()
}

/// A time ago, in words.
fn ago(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..=119 => format!("{seconds} seconds ago"),
        seconds @ 120..=7199 => format!("{} minutes ago", seconds / 60),
        seconds => format!("{} hours ago", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::{Ok, Warn};
    use super::*;
    use crate::pool::{SnapshotLabels, WarmSnapshot};

    #[test]
    fn it_says_the_age_and_size_of_a_snapshot_or_why_there_is_none() {
        let env = std::collections::BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
        let mut config = Config::load(None, &env, &crate::config::Overrides::default()).unwrap().config;
        let labels = SnapshotLabels::example();
        let python = Runner { snapshot_labels: Some(labels), ..Runner::example("python") };
        let mut records = SnapshotRecords::default();
        let judged = |config: &Config, records: &SnapshotRecords| {
            let check = judge_records(config, std::slice::from_ref(&python), records).pop().unwrap();
            (check.status, check.found)
        };
        let (status, found) = judged(&config, &records);
        assert!(status == Ok && found.contains("no snapshot") && found.contains("yet"), "{found}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        records.snapshots.push(WarmSnapshot {
            volume: "paddock-snapshot-x".parse().unwrap(),
            language: "python".into(),
            image: python.image_id.to_string(),
            key: "k".into(),
            digest: "d".into(),
            bytes: 128 << 20,
            taken: now - 3 * 3600,
        });
        let (status, found) = judged(&config, &records);
        assert!(status == Ok && found.contains("3 hours ago") && found.contains("128"), "{found}");
        records.without.insert("python".into(), "its save command ended with code 3".into());
        let (status, found) = judged(&config, &records);
        assert!(status == Warn && found.contains("code 3"), "{found}");
        let unsupported = crate::pool::UnsupportedSnapshot {
            image: python.image_id.to_string(),
            key: "k".into(),
            why: "no PR_SET_MM_MAP".into(),
        };
        records.unsupported.insert("python".into(), unsupported.clone());
        let (status, found) = judged(&config, &records);
        assert!(status == Ok && found.contains("(no PR_SET_MM_MAP)"), "{found}");
        let of_another = crate::pool::UnsupportedSnapshot { image: "sha256:0".into(), ..unsupported };
        records.unsupported.insert("python".into(), of_another);
        assert_eq!(judged(&config, &records).0, Warn, "that was another image");
        assert!(judge_records(&config, &[Runner::example("perl")], &records).is_empty(), "it takes none");
        config.agent.snapshots = false;
        assert!(judged(&config, &records).1.contains("agent.snapshots is false"));
    }
}
