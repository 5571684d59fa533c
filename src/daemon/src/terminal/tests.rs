//! Decisions that need no daemon: languages, names, paths, exit codes.

use std::path::Path;

use clap::Parser;
use serde_json::json;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: RunArguments,
}

fn parse(words: &[&str]) -> Result<RunArguments, clap::Error> {
    Command::try_parse_from([&["run"], words].concat()).map(|command| command.arguments)
}

#[test]
fn a_program_is_a_file_or_code_and_its_language_is_implied_or_named() {
    let code = parse(&["-l", "python", "-c", "print(1)"]).unwrap().program().unwrap();
    assert_eq!((code.language.as_str(), code.code.as_str(), code.stdin), ("python", "print(1)", None));
    let folder = tempfile::tempdir().unwrap();
    for (name, language) in
        [("a.py", "python"), ("a.ts", "typescript"), ("a.sh", "sh"), ("a.mjs", "javascript")]
    {
        let file = folder.path().join(name);
        std::fs::write(&file, "x").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(parse(&[file]).unwrap().program().unwrap().language, language);
        assert_eq!(parse(&["-l", "deno", file]).unwrap().program().unwrap().language, "deno");
    }
    let odd = folder.path().join("odd");
    std::fs::write(&odd, b"\xff").unwrap();
    let odd = odd.to_str().unwrap();
    for (words, problem) in [
        (vec!["-c", "x"], "name it with -l"),
        (vec![odd], "name it with -l"),
        (vec!["-l", "python", odd], "not UTF-8"),
        (vec!["-l", "python", "/nowhere/x"], "cannot read /nowhere/x"),
        (vec!["-l", "python", "-i", "-"], "-i takes standard input"),
    ] {
        let error = parse(&words).unwrap().program().expect_err("a problem").to_string();
        assert!(error.contains(problem), "{words:?}: {error}");
    }
    for words in
        [vec!["-c", "x", "a.py"], vec!["-t", "0"], vec!["-t", "soon"], vec!["-e", "A"], vec!["-e", "=1"]]
    {
        assert!(parse(&words).is_err(), "{words:?}");
    }
    assert_eq!(parse(&["-t", "1m 30s"]).unwrap().timeout.unwrap().as_secs(), 90);
    assert_eq!(parse(&["-t", "0.5"]).unwrap().timeout.unwrap().as_millis(), 500);
}

#[test]
fn a_session_that_the_user_did_not_name_is_unique() {
    assert_ne!(new_session_id(), new_session_id());
    assert_eq!(parse(&["x"]).unwrap().session, None);
    assert_eq!(parse(&["-s", "mine", "x"]).unwrap().session.as_deref(), Some("mine"));
}

#[test]
fn files_keep_their_names_or_get_others_and_folders_come_with_all_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(at("data/deep")).unwrap();
    for name in ["a:b.csv", "data/1", "data/deep/2"] {
        std::fs::write(at(name), "x").unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", at("data/link")).unwrap();
    let names = |argument: String| -> Vec<String> {
        InputFile::look(&[argument]).unwrap().0.into_iter().map(|inputs| inputs.name).collect()
    };
    assert_eq!(names(at("a:b.csv")), ["a:b.csv"]);
    assert_eq!(names(at("a:b.csv:in/x.csv")), ["in/x.csv"]);
    assert_eq!(names(at("data")), ["data/1", "data/deep/2"]);
    assert_eq!(names(at("data/.")), ["data/1", "data/deep/2"]);
    assert!(InputFile::look(&[at("data")]).unwrap().1[0].ends_with("data/link is a link"));
    for bad in ["../x", "/x", "a/../../x"] {
        assert!(InputFile::look(&[at("a:b.csv") + ":" + bad]).is_err(), "{bad}");
    }
    assert!(InputFile::look(&[at("none")]).unwrap_err().to_string().contains("none"));
}

#[test]
fn the_files_of_a_program_are_written_below_the_folder_or_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let place = files::path_for(&out, "a/b c.txt").unwrap();
    assert_eq!(place, out.canonicalize().unwrap().join("a/b c.txt"));
    assert!(place.parent().unwrap().is_dir());
    std::os::unix::fs::symlink(folder.path(), out.join("up")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", out.join("file")).unwrap();
    for name in ["../x", "a/../../x", "/etc/x", "", "up/x", "file", "."] {
        assert!(files::path_for(&out, name).is_err(), "{name}");
    }
    assert!(!Path::new(folder.path()).join("x").exists());
}

#[test]
fn the_exit_code_is_that_of_the_program_if_there_is_one() {
    for (document, expected) in [
        (json!({ "exit_code": 0 }), 0),
        (json!({ "exit_code": 3 }), 3),
        (json!({ "exit_code": 137 }), 137),
        (json!({ "exit_code": -1, "timed_out": true }), 124),
        (json!({ "exit_code": -1, "error": "lost" }), 125),
        (json!({ "error": "unknown_language" }), 125),
    ] {
        assert_eq!(code(&document), expected, "{document}");
    }
}
