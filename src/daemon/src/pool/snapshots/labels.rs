//! What an image's labels say of snapshots of its warm part. Pure.
//!
//! It must never take a part of them: an image has all three labels, or none.

use std::collections::BTreeMap;

use paddock_proto::message::WarmLevel;
use serde::Deserialize;

use super::super::runner::command;

const SAVE: &str = "sandbox.warm.save";
const RESTORE: &str = "sandbox.warm.restore";
const PROOF: &str = "sandbox.warm.proof";
const LEVELS: &str = "sandbox.warm.levels";

/// Levels of one image: each is a process that stands in every container.
const MAX_LEVELS: usize = 4;
/// Bytes of the label of levels, which is a part of one message to the agent.
const MAX_LEVELS_BYTES: usize = 64 * 1024;

/// How snapshots of an image's warm part are taken, restored and proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLabels {
    /// The command that writes a snapshot.
    pub save: Vec<String>,
    /// The command that restores the warm part from one.
    pub restore: Vec<String>,
    /// The path of a program in the image that must come out alike in a restored part.
    pub proof: String,
    /// Lighter parts that `save` saves too, the lightest first.
    pub levels: Vec<WarmLevel>,
}

impl SnapshotLabels {
    /// Labels for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let command = |word: &str| vec![word.to_owned()];
        Self { save: command("/s"), restore: command("/r"), proof: "/p".to_owned(), levels: Vec::new() }
    }

    /// These, each with another part of the snapshot in the place of the main one: first the main part, then
    /// the levels.
    pub(super) fn parts(&self) -> Vec<Self> {
        let restores = self.levels.iter().map(|level| level.restore.clone());
        let restores = std::iter::once(self.restore.clone()).chain(restores);
        restores.map(|restore| Self { restore, levels: Vec::new(), ..self.clone() }).collect()
    }
}

/// One level, as the label has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    restore: Vec<String>,
    modules: String,
    #[serde(default)]
    never: String,
}

/// What the labels say; `None` if they say nothing.
pub(in crate::pool) fn snapshot_labels(
    labels: &BTreeMap<String, String>,
) -> Option<Result<SnapshotLabels, String>> {
    // An image that starts from another one empties a label that it does not want.
    let value = |name: &str| labels.get(name).filter(|value| !value.is_empty());
    let all = [SAVE, RESTORE, PROOF];
    if all.iter().all(|name| value(name).is_none()) {
        return None;
    }
    if let Some(missing) = all.iter().find(|name| value(name).is_none()) {
        return Some(Err(format!(
            "its label {missing} is missing; an image has {}, or none",
            all.join(", ")
        )));
    }
    let command_of = |name: &str| {
        command(value(name).map_or("", String::as_str))
            .map_err(|problem| format!("its label {name} {problem}"))
    };
    let proof = value(PROOF).cloned().unwrap_or_default();
    if !proof.starts_with('/') || proof.contains('\0') {
        return Some(Err(format!(
            "its label {PROOF} is {:?}, expected the absolute path of a program in the image",
            proof.chars().take(80).collect::<String>()
        )));
    }
    let levels = || value(LEVELS).map_or(Ok(Vec::new()), |label| levels(label));
    Some(command_of(SAVE).and_then(|save| {
        let (restore, levels) = (command_of(RESTORE)?, levels()?);
        Ok(SnapshotLabels { save, restore, proof, levels })
    }))
}

/// The levels that a label names.
fn levels(label: &str) -> Result<Vec<WarmLevel>, String> {
    let expected = format!(
        "expected a JSON array of at most {MAX_LEVELS} levels, such as \
         [{{\"restore\":[\"/restore\",\"/warm/plain\"],\"modules\":\"json math\",\"never\":\"exec\"}}], \
         in at most {MAX_LEVELS_BYTES} bytes"
    );
    let wrong = |what: &str| format!("its label {LEVELS} {what}; {expected}");
    if label.len() > MAX_LEVELS_BYTES {
        return Err(wrong(&format!("has {} bytes", label.len())));
    }
    let shown = || label.chars().take(80).collect::<String>();
    let levels: Vec<Level> =
        serde_json::from_str(label).map_err(|error| wrong(&format!("is {:?} ({error})", shown())))?;
    let is_command = |words: &[String]| !words.is_empty() && words.iter().all(|word| !word.contains('\0'));
    if levels.len() > MAX_LEVELS || !levels.iter().all(|level| is_command(&level.restore)) {
        return Err(wrong(&format!("is {:?}", shown())));
    }
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
    let level = |level: Level| WarmLevel {
        modules: words(&level.modules),
        never: words(&level.never),
        restore: level.restore,
    };
    Ok(levels.into_iter().map(level).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[(&str, &str)]) -> Option<Result<SnapshotLabels, String>> {
        snapshot_labels(&given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn an_image_has_all_three_labels_or_none() {
        let all = [(SAVE, r#"["/s"]"#), (RESTORE, r#"["/r","x"]"#), (PROOF, "/proof.py")];
        let labels = parsed(&all).unwrap().unwrap();
        assert_eq!(labels.save, ["/s"]);
        assert_eq!((labels.restore.len(), labels.proof.as_str()), (2, "/proof.py"));
        assert_eq!(labels.levels, []);
        assert_eq!(parsed(&[]), None);
        assert_eq!(parsed(&[(SAVE, ""), (PROOF, "")]), None, "emptied by an image that starts from another");
        for missing in 0..3 {
            let mut some = all.to_vec();
            let (name, _) = some.remove(missing);
            let problem = parsed(&some).unwrap().unwrap_err();
            assert!(problem.starts_with(&format!("its label {name} is missing")), "{problem}");
        }
    }

    #[test]
    fn levels_are_read_in_their_order_and_what_is_wrong_is_said() {
        let with = |levels: &str| {
            let all = [(SAVE, r#"["/s"]"#), (RESTORE, r#"["/r"]"#), (PROOF, "/p"), (LEVELS, levels)];
            parsed(&all).unwrap().map(|labels| labels.levels)
        };
        let one = r#"{"restore":["/r","/warm/a"],"modules":" os  os.path","never":"exec"}"#;
        let two = r#"{"restore":["/r","/warm/b"],"modules":""}"#;
        let levels = with(&format!("[{one},{two}]")).unwrap();
        assert_eq!(
            (levels[0].modules.join("|"), levels[0].never.join("|")),
            ("os|os.path".into(), "exec".into())
        );
        assert_eq!((levels[1].restore.join(" "), levels[1].never.len()), ("/r /warm/b".into(), 0));
        let many = format!("[{}]", [two; MAX_LEVELS + 1].join(","));
        let long = format!("[{two}]{}", " ".repeat(MAX_LEVELS_BYTES));
        for wrong in ["{}", "[1]", r#"[{"restore":[],"modules":""}]"#, r#"[{"modules":""}]"#, &many, &long] {
            let problem = with(wrong).unwrap_err();
            assert!(problem.contains(LEVELS) && problem.contains("expected"), "{problem}");
        }
        assert!(with(r#"[{"restore":["/r"],"modules":"","neverr":""}]"#).unwrap_err().contains("neverr"));
    }

    #[test]
    fn a_label_of_another_kind_is_said_with_its_value() {
        for (name, wrong) in [(SAVE, "/s"), (RESTORE, "[]"), (PROOF, "proof.py")] {
            let mut all = BTreeMap::from([(SAVE, r#"["/s"]"#), (RESTORE, r#"["/r"]"#), (PROOF, "/p")]);
            all.insert(name, wrong);
            let problem = parsed(&all.into_iter().collect::<Vec<_>>()).unwrap().unwrap_err();
            assert!(problem.contains(name) && problem.contains(wrong), "{problem}");
        }
    }
}
