//! The lists in the documents are the code's: every setting with its variables, every metric, tool, error
//! code and alert.

use std::collections::BTreeSet;

use super::{codes, read};
use crate::config::{EXAMPLE, ToolSet, variables};
use crate::metrics::Metrics;
use crate::tools::{Code, TOOLS};

const API: &str = "src/daemon/docs/api.md";
pub(super) const OPERATION: &str = "deploy/README.md";

/// The text below a heading of a document, up to the next heading of the same level.
pub(super) fn section(document: &str, heading: &str) -> String {
    let text = read(document);
    let (_, below) = text
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading:?} in {document}"));
    below.split("\n## ").next().unwrap().to_owned()
}

/// The cells of the table rows that begin with a word in code style.
pub(super) fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The first cell of each row, without its backticks.
fn names(text: &str) -> BTreeSet<String> {
    rows(text).iter().map(|row| row[0].replace('`', "")).collect()
}

fn sorted(words: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    words.into_iter().collect()
}

/// Both sides must be the same; the difference is shown.
#[track_caller]
fn expect_same<T: Ord + std::fmt::Debug>(listed: &BTreeSet<T>, expected: &BTreeSet<T>) {
    assert!(!expected.is_empty(), "nothing to compare with");
    let missing: Vec<_> = expected.difference(listed).collect();
    let wrong: Vec<_> = listed.difference(expected).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "missing: {missing:#?}, wrong: {wrong:#?}");
}

/// The names of variables in a comment of the example, below its word `Environment:`.
fn variables_in(comment: &str) -> Vec<String> {
    let (_, names) = comment.split_once("Environment:").unwrap_or_default();
    let words = names.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    words.filter(|word| word.contains('_')).map(str::to_owned).collect()
}

#[test]
fn every_setting_names_its_variables_and_no_others() {
    let (mut table, mut comment, mut listed) = (String::new(), String::new(), BTreeSet::new());
    for line in EXAMPLE.lines() {
        let name = if let Some(text) = line.strip_prefix('#') {
            comment += text;
            comment.push('\n');
            continue;
        } else if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
            Some(table.clone())
        } else {
            line.split_once(" = ").map(|(key, _)| format!("{table}.{key}"))
        };
        let found = variables_in(&comment);
        comment.clear();
        // A comment that stands for itself names no variables.
        assert!(name.is_some() || found.is_empty(), "{found:?} are above nothing");
        listed.extend(found.into_iter().map(|variable| (name.clone().unwrap(), variable)));
    }
    let known = variables().map(|variable| {
        // The table of runners is explained as a whole.
        let key = if variable.key.starts_with("runners.") { "runners" } else { variable.key };
        (key.to_owned(), variable.name.to_owned())
    });
    expect_same(&listed, &known.collect());
}

/// Code words such as `http.addr` in these documents are settings that exist.
#[test]
fn every_setting_that_a_document_names_exists() {
    let example: toml::Table = EXAMPLE.parse().unwrap();
    let mut known = BTreeSet::from(["auth.tokens".to_owned()]);
    for (section, keys) in &example {
        known.extend(keys.as_table().unwrap().keys().map(|key| format!("{section}.{key}")));
    }
    let mut named = 0;
    for document in super::documents::all() {
        for word in codes(&read(&document)) {
            let Some((section, key)) = word.split_once('.') else { continue };
            let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            // The DNS name of a service of Swarm, and of its tasks.
            let is_setting = word != "tasks.paddock";
            if is_setting && is_key && example.contains_key(section) && !["rs", "md", "toml"].contains(&key) {
                assert!(known.contains(&word), "{document} names {word}, which is no setting");
                named += 1;
            }
        }
    }
    assert!(named > 30, "{named}");
}

#[test]
fn every_metric_is_there_with_its_labels() {
    let metrics = Metrics::default();
    let expected = metrics
        .families()
        .iter()
        .map(|family| (family.name.clone(), sorted(family.labels.iter().cloned()), family.help.clone()))
        .collect();
    let listed = rows(&section(OPERATION, "Metrics"))
        .iter()
        .filter(|row| row.len() == 3 && row[0].starts_with("`paddock_"))
        .map(|row| (row[0].replace('`', ""), sorted(codes(&row[1])), row[2].clone()))
        .collect();
    expect_same(&listed, &expected);
}

#[test]
fn every_tool_has_its_own_row_among_those_of_its_set() {
    for (heading, set) in [
        ("The tools for code", ToolSet::Code),
        ("The tools for shell commands", ToolSet::Exec),
        ("The tools for coding agents", ToolSet::Task),
    ] {
        let section = section(API, heading);
        let table = section
            .split("\n\n")
            .find(|block| block.trim_start().starts_with("| tool |"))
            .expect("a table of tools");
        let listed = rows(table).iter().map(|row| (row[0].replace('`', ""), row[1].clone())).collect();
        let of_set = TOOLS.iter().filter(|tool| tool.set == set);
        let expected = of_set.map(|tool| (tool.name.to_owned(), tool.summary.to_owned())).collect();
        expect_same(&listed, &expected);
    }
}

#[test]
fn every_error_code_has_a_row() {
    let expected = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    expect_same(&names(&section(API, "Errors")), &expected);
}

#[test]
fn every_alert_is_listed_with_its_severity() {
    let rules = read("deploy/prometheus/rules.yml");
    let expected = rules.split("- alert: ").skip(1).map(|rule| {
        let (_, severity) = rule.split_once("severity: ").expect("a severity");
        let severity = severity.split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
        (severity.to_owned(), rule.lines().next().unwrap().trim().to_owned())
    });
    let section = section(OPERATION, "Alerts");
    let lines = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `Paddock"));
    let listed = lines.flat_map(|(severity, alerts)| {
        codes(&format!("`Paddock{alerts}")).into_iter().map(move |alert| (severity.to_owned(), alert))
    });
    expect_same(&listed.collect(), &expected.collect());
}
