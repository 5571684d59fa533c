//! The README's lists are the code's: every setting with its default and its variables, every metric, every tool, every
//! code of an error, every route.
//!
//! It must never list anything itself: both sides are read.

use std::collections::BTreeSet;

use crate::config::{EXAMPLE, variables};
use crate::metrics::Metrics;
use crate::tools::{Code, TOOLS};

const README: &str = include_str!("../../../README.md");

/// What stands below a heading, up to the next of its kind.
fn section(heading: &str) -> &'static str {
    let begin = README.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading:?}"));
    let rest = &README[begin + 1..];
    rest[1..].find("\n## ").map_or(rest, |end| &rest[..=end])
}

/// The cells of the rows that begin with something in code.
fn rows(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix('|'));
    rows.map(|row| format!("`{row}").split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// What stands in code in a text.
fn codes(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sorted(words: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    words.into_iter().collect()
}

#[test]
fn every_setting_is_there_with_its_default_and_its_variables() {
    let example: toml::Table = EXAMPLE.parse().unwrap();
    let mut expected: BTreeSet<(String, String)> = BTreeSet::new();
    for (section, keys) in &example {
        for (key, value) in keys.as_table().unwrap() {
            expected.insert((format!("{section}.{key}"), value.to_string()));
        }
    }
    // These two are tables of the user's own.
    expected.extend(["auth.tokens", "runners"].map(|key| (key.to_owned(), String::new())));
    let rows = rows(section("Every setting"));
    let listed: BTreeSet<_> =
        rows.iter().map(|row| (row[0].replace('`', ""), row[1].replace('`', ""))).collect();
    assert_eq!(listed, expected);
    let named: BTreeSet<_> = rows
        .iter()
        .flat_map(|row| {
            codes(&row[2]).into_iter().map(|name| (row[0].replace('`', ""), name)).collect::<Vec<_>>()
        })
        .collect();
    let known: BTreeSet<_> = variables()
        .map(|variable| {
            let key = if variable.key.starts_with("runners.") { "runners" } else { variable.key };
            (key.to_owned(), variable.name.to_owned())
        })
        .collect();
    assert_eq!(named, known);
}

#[test]
fn every_metric_is_there_with_its_labels() {
    let metrics = Metrics::default();
    let expected: BTreeSet<_> = metrics
        .families()
        .iter()
        .map(|family| (family.name.clone(), sorted(family.labels.iter().cloned()), family.help.clone()))
        .collect();
    let rows = rows(section("Metrics"));
    let is_family = |row: &&Vec<String>| row.len() == 3 && row[0].starts_with("`paddock_");
    let listed: BTreeSet<_> = rows
        .iter()
        .filter(is_family)
        .map(|row| (row[0].replace('`', ""), sorted(codes(&row[1])), row[2].clone()))
        .collect();
    let missing: Vec<_> = expected.difference(&listed).collect();
    let wrong: Vec<_> = listed.difference(&expected).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "missing: {missing:#?}, wrong: {wrong:#?}");
}

#[test]
fn every_tool_has_a_row() {
    let listed: Vec<_> = rows(section("Use")).into_iter().chain(rows(section("Shell commands"))).collect();
    let listed: BTreeSet<_> = listed.iter().map(|row| row[0].replace('`', "")).collect();
    for (tool, _) in TOOLS {
        assert!(listed.contains(tool), "{tool} is in no table");
    }
}

#[test]
fn every_error_code_is_named() {
    let named: BTreeSet<_> = codes(section("Use")).into_iter().collect();
    for code in Code::ALL {
        assert!(named.contains(code.as_str()), "{} is not named", code.as_str());
    }
}
