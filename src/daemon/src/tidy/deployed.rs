//! What `deploy` ships is what the program needs and what tests use: the calls of the engine that the
//! socket proxy passes on, and the files themselves.

use std::collections::BTreeSet;

use super::{files, read};
use crate::engine::EngineOp;

/// The calls as `METHOD /path`.
fn calls() -> BTreeSet<String> {
    EngineOp::ALL.iter().map(|op| format!("{} {}", op.method(), op.path())).collect()
}

#[test]
fn the_documents_list_each_call_of_the_engine_and_no_other() {
    let text = read("deploy/README.md");
    let (_, section) = text.split_once("\n## The socket proxy\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let listed: Vec<String> = section
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), calls());
    assert_eq!(listed.len(), EngineOp::ALL.len(), "each is there once");
}

#[test]
fn the_socket_proxy_allows_each_call_of_the_engine_and_no_other() {
    let text = read("deploy/compose/haproxy.cfg");
    let rules: Vec<&str> =
        text.lines().map(str::trim).filter(|line| line.starts_with("http-request ")).collect();
    assert_eq!(rules.first(), Some(&"http-request deny if { path_sub .. }"));
    assert_eq!(rules.last(), Some(&"http-request deny"), "what no rule allows is refused");
    let allowed: BTreeSet<String> = rules[1..rules.len() - 1].iter().map(|rule| (*rule).to_owned()).collect();
    let expected = EngineOp::ALL.iter().map(|op| {
        // A name is one segment, but that of an image, which may have several.
        let name = if *op == EngineOp::ImageInspect { "[A-Za-z0-9_.:@/-]+" } else { "[A-Za-z0-9_.-]+" };
        let path = match op.path().split_once('{') {
            None => op.path().to_owned(),
            Some((before, rest)) => format!("{before}{name}{}", rest.split_once('}').expect("its end").1),
        };
        format!("http-request allow if {{ method {} }} {{ path_reg ^(/v1[.][0-9]+)?{path}$ }}", op.method())
    });
    assert_eq!(allowed, expected.collect());
}

/// Documents and pictures have rules of their own.
fn is_document(path: &str) -> bool {
    path.ends_with(".md") || path.starts_with("deploy/pictures/")
}

#[test]
fn every_file_of_deploy_is_used_by_a_test() {
    let deployed: Vec<String> =
        files(&["deploy"], "").into_iter().filter(|path| !is_document(path)).collect();
    let tests = ["rs", "mjs", "sh", "py"].map(|ending| files(&["tests"], &format!(".{ending}"))).concat();
    let mut texts: String = tests.iter().map(|path| read(path)).collect();
    let last = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    // Of files with the same name the folder must be named too, or read as a whole.
    let is_used = |texts: &str, path: &String| {
        let mut parts = path.rsplit('/');
        let (name, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if deployed.iter().filter(|other| last(other) == name).count() == 1 {
            return texts.contains(name);
        }
        texts.contains(&format!("{folder}/{name}")) || texts.contains(&format!("'{folder}/'"))
    };
    let mut unused: Vec<&String> = deployed.iter().filter(|path| !path.ends_with("/.env")).collect();
    assert!(unused.len() > 40, "{unused:?}");
    // A file that a used file names is used as well.
    loop {
        let (used, rest): (Vec<&String>, Vec<&String>) =
            unused.iter().copied().partition(|path| is_used(&texts, path));
        if used.is_empty() {
            break;
        }
        texts.extend(used.iter().map(|path| read(path)));
        unused = rest;
    }
    assert!(unused.is_empty(), "no test uses {unused:?}");
}
