//! What models read of the operator's folders in containers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::pool::{HostMount, Runner};

/// What a tool's description says of the folders that these runners have; empty if there are none. It begins
/// with a space.
pub(super) fn sentence<'a>(runners: impl IntoIterator<Item = &'a Runner>) -> String {
    let mut mounts: BTreeMap<String, (&HostMount, Vec<&str>)> = BTreeMap::new();
    let mut all = 0;
    for runner in runners {
        all += 1;
        for mount in &runner.mounts {
            let (_, who) = mounts.entry(mount.target()).or_insert((mount, Vec::new()));
            who.push(&runner.language);
        }
    }
    if mounts.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = mounts
        .into_iter()
        .map(|(target, (mount, who))| {
            let about = if mount.about.is_empty() { String::new() } else { format!(": {}", mount.about) };
            let only = if who.len() == all { String::new() } else { format!(" (only {})", who.join(", ")) };
            format!("{target}{only}{about}")
        })
        .collect();
    format!(" Folders of the operator, to read only, no files of the conversation: {}.", shown.join("; "))
}

/// The folders of one runner, for programs that read an answer.
pub(super) fn document(runner: &Runner) -> Option<Value> {
    let shown = |mount: &HostMount| match mount.about.as_str() {
        "" => json!({ "path": mount.target() }),
        about => json!({ "path": mount.target(), "about": about }),
    };
    (!runner.mounts.is_empty()).then(|| runner.mounts.iter().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::registry::tests::runners_with_agents;

    fn mount(name: &str, about: &str) -> HostMount {
        HostMount {
            name: name.into(),
            path: "/srv/secret-path".into(),
            about: about.into(),
            runners: Vec::new(),
            is_here: true,
        }
    }

    #[test]
    fn a_model_learns_where_the_folders_are_and_not_where_they_come_from() {
        let [mut python, mut sh] = ["python", "sh"].map(|language| {
            let python = runners_with_agents(&[])["python"].1.clone();
            Runner { language: language.into(), ..(*python).clone() }
        });
        assert_eq!((sentence([&python, &sh]), document(&python)), (String::new(), None));
        python.mounts = vec![mount("docs", "the handbook"), mount("only", "")];
        sh.mounts = vec![mount("docs", "the handbook")];
        let said = sentence([&python, &sh]);
        assert!(said.ends_with("/mnt/docs: the handbook; /mnt/only (only python)."), "{said}");
        assert!(!said.contains("secret-path"));
        let expected = json!([{ "path": "/mnt/docs", "about": "the handbook" }, { "path": "/mnt/only" }]);
        assert_eq!(document(&python), Some(expected));
    }
}
