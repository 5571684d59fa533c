//! The documents are short enough, and every link and test that they name exists.

use std::collections::BTreeSet;

use super::{files, read, root};

/// Lines that README may have: it is for somebody who decides in two minutes whether to try paddock.
const README: usize = 200;

/// Every document for people.
pub(super) fn all() -> Vec<String> {
    let mut documents = files(&["bench", "deploy", "runner-images", "src/daemon"], ".md");
    documents.push("README.md".to_owned());
    documents
}

/// The addresses of a document's links and pictures, code blocks excluded.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let written = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let pictures = prose
        .split("src=\"")
        .chain(prose.split("srcset=\""))
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .filter(|(address, _)| address.ends_with(".png"));
    written.chain(pictures).map(|(address, _)| address.to_owned()).collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < README, "README.md has {lines} lines: move references to where they are looked for");
}

#[test]
fn every_link_leads_somewhere() {
    let (mut followed, mut broken) = (0, Vec::new());
    for document in all() {
        let text = read(&document);
        let folder = root().join(&document).parent().unwrap().to_owned();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            followed += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let target = if path.is_empty() { root().join(&document) } else { folder.join(path) };
            let leads = target.exists()
                && (anchor.is_empty()
                    || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)));
            if !leads {
                broken.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(followed > 30, "{followed}");
}

/// The last column of the threat model's tables of attempts.
#[test]
fn every_test_that_the_threat_model_names_exists() {
    let text = read("src/daemon/docs/threat-model.md");
    let attempts = text.split("\n\n").filter(|block| block.starts_with("| attempt |"));
    let rows: Vec<&str> = attempts.flat_map(|table| table.lines().skip(2)).collect();
    assert!(rows.len() > 15, "{rows:#?}");
    for row in rows {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").expect("a last column");
        for test in super::codes(tests) {
            let at = root().join("tests/e2e").join(&test);
            assert!(at.with_extension("rs").is_file(), "there is no tests/e2e/{test}.rs: {row}");
        }
        assert!(tests.contains('`'), "no test: {row}");
    }
}

/// The code words of one column of a table on the crate's page, without the brackets of links.
fn on_the_page(heading: &str, column: usize) -> BTreeSet<String> {
    let page = read("src/daemon/src/lib.rs");
    let (_, below) = page.split_once(&format!("//! # {heading}\n")).expect("the heading");
    let section = below.split("//! # ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
    rows.flat_map(|row| super::codes(row.split(" | ").nth(column).expect("a column"))).collect()
}

#[test]
fn every_path_on_the_crate_s_page_exists() {
    let exists = |path: &String| {
        let (in_all, in_daemon) = (root().join(path), root().join("src/daemon/src").join(path));
        in_all.exists() || in_daemon.exists() || in_daemon.with_extension("rs").exists()
    };
    let (map, answers) = (on_the_page("The code map", 0), on_the_page("Ten questions", 1));
    assert!(map.len() > 20 && answers.len() >= 10, "{map:?} {answers:?}");
    let gone: Vec<_> = map.iter().chain(&answers).filter(|path| !exists(path)).collect();
    assert!(gone.is_empty(), "src/daemon/src/lib.rs names {gone:?}");
}

#[test]
fn every_module_is_on_the_code_map() {
    let (map, page) = (on_the_page("The code map", 0), read("src/daemon/src/lib.rs"));
    let lines: Vec<&str> = page.lines().collect();
    let in_the_program = lines.windows(2).filter(|pair| pair[0] != "#[cfg(test)]").map(|pair| pair[1]);
    let modules: Vec<&str> = in_the_program
        .filter_map(|line| line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';'))
        .collect();
    assert!(modules.len() > 20, "{modules:?}");
    let missing: Vec<_> = modules.iter().filter(|name| !map.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?} are in no row of the code map in src/daemon/src/lib.rs");
}
