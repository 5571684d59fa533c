//! Which test shows which attack: `tests/hostile/covered.jsonl`, checked against the tests and the tables.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::rows;

/// An attack of the catalogue, and what shows that it fails.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    /// `FILE.jsonl ID` is a row of a table here; `PATH name` is a test, whose path begins at the sources.
    shown_by: Vec<String>,
    /// What is not so, or not yet.
    but: Option<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Why there is no such row or test.
fn missing(shown: &str) -> Option<String> {
    let Some((file, name)) = shown.split_once(' ') else {
        return Some("neither a row nor a test".to_owned());
    };
    if file.ends_with(".jsonl") {
        let ids: BTreeSet<String> =
            rows::<Value>(file).iter().filter_map(|row| row["id"].as_str().map(str::to_owned)).collect();
        return (!ids.contains(name)).then(|| format!("{file} has no such row"));
    }
    let Ok(text) = std::fs::read_to_string(root().join(file)) else {
        return Some(format!("there is no {file}"));
    };
    let declared =
        text.contains(&format!("fn {name}(")) && (text.contains("test]") || text.contains("tokio::test"));
    (!declared).then(|| format!("{file} has no such test"))
}

#[test]
fn every_attack_of_the_catalogue_is_shown_by_a_test_or_a_row() {
    let all: Vec<Row> = rows("covered.jsonl");
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for row in &all {
        if !ids.insert(row.id.as_str()) || row.attempt.is_empty() {
            faults.push(format!("{}: twice, or without words", row.id));
        }
        if row.shown_by.is_empty() && row.but.is_none() {
            faults.push(format!("{}: nothing shows it", row.id));
        }
        faults.extend(
            row.shown_by.iter().filter_map(|shown| Some(format!("{}: {shown}: {}", row.id, missing(shown)?))),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The ids of a table are names: each is there once.
#[test]
fn no_table_has_an_id_twice() {
    for entry in std::fs::read_dir(root().join("tests/hostile")).expect("the tables") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|kind| kind != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a table");
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let id = row["id"].as_str().expect("an id").to_owned();
            assert!(seen.insert(id.clone()), "{}: {id} is there twice", path.display());
        }
    }
}
