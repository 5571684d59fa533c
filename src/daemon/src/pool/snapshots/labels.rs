//! What an image's labels say of snapshots of its warm part. Pure.
//!
//! It must never take a part of them: an image has all three labels, or none.

use std::collections::BTreeMap;

use super::super::runner::command;

const SAVE: &str = "sandbox.warm.save";
const RESTORE: &str = "sandbox.warm.restore";
const PROOF: &str = "sandbox.warm.proof";

/// How snapshots of an image's warm part are taken, restored and proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLabels {
    /// The command that writes a snapshot.
    pub save: Vec<String>,
    /// The command that restores the warm part from one.
    pub restore: Vec<String>,
    /// The path of a program in the image that must come out alike in a restored part.
    pub proof: String,
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
    Some(command_of(SAVE).and_then(|save| Ok(SnapshotLabels { save, restore: command_of(RESTORE)?, proof })))
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
    fn a_label_of_another_kind_is_said_with_its_value() {
        for (name, wrong) in [(SAVE, "/s"), (RESTORE, "[]"), (PROOF, "proof.py")] {
            let mut all = BTreeMap::from([(SAVE, r#"["/s"]"#), (RESTORE, r#"["/r"]"#), (PROOF, "/p")]);
            all.insert(name, wrong);
            let problem = parsed(&all.into_iter().collect::<Vec<_>>()).unwrap().unwrap_err();
            assert!(problem.contains(name) && problem.contains(wrong), "{problem}");
        }
    }
}
