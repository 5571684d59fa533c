//! Decisions that need no daemon: the command line and the exit code.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    arguments: TaskArguments,
}

fn parse(words: &[&str]) -> Result<TaskArguments, clap::Error> {
    Command::try_parse_from([&["task"], words].concat()).map(|command| command.arguments)
}

#[test]
fn changes_that_a_diff_does_not_have_are_told() {
    let answer = |more: Value| {
        let mut answer = json!({ "status": "completed", "diff_url": "http://x/logs/s/a.diff?sig=1",
            "diff_stat": { "files_changed": 1, "left_out": 0 } });
        more.as_object().unwrap().iter().for_each(|(name, value)| answer[name] = value.clone());
        not_applied(&answer)
    };
    assert_eq!(answer(json!({})), None);
    let missing = json!({ "diff_url": null, "diff_note": "there is no diff: the disk is full" });
    assert!(
        answer(missing)
            .unwrap()
            .ends_with("not all changes were applied: there is no diff: the disk is full")
    );
    let part = json!({ "diff_stat": { "left_out": 2 }, "diff_note": "2 files not shown at all" });
    assert!(answer(part).unwrap().contains("2 files not shown"));
    assert_eq!(answer(json!({ "status": "failed", "diff_url": null })), None, "nothing is applied then");
}

#[test]
fn nothing_of_a_repository_is_downloaded() {
    for name in [".git/config", "a/.git/hooks/x", ".GIT/config", ".git"] {
        assert!(files::left_out(name).is_some(), "{name}");
    }
    for name in [".gitignore", "git/x", "a.git/x", "x/.github/y"] {
        assert!(files::left_out(name).is_none(), "{name}");
    }
}

#[test]
fn the_task_is_no_folder_and_a_folder_is_no_task() {
    let folder = |words: &[&str]| parse(words).unwrap().apply_to().map_err(|error| error.to_string());
    assert_eq!(folder(&["fix it"]), Ok(None));
    assert_eq!(folder(&["--apply", "fix it", "-d", "src"]), Ok(Some("src".into())));
    assert_eq!(folder(&["--apply=out", "fix it", "-d", "src"]), Ok(Some("out".into())));
    assert!(folder(&["--apply", "fix it"]).unwrap_err().contains("--apply=src"));
    for words in
        [vec![], vec!["a", "b"], vec!["x", "--level", "0"], vec!["x", "--level", "5"], vec!["x", "-t", "0"]]
    {
        assert!(parse(&words).is_err(), "{words:?}");
    }
}

#[test]
fn only_what_was_given_is_asked_for() {
    assert_eq!(
        parse(&["fix it"]).unwrap().call("s").unwrap(),
        json!({ "task_description": "fix it", "session_id": "s" })
    );
    let words =
        ["x", "--agent", "claude-code", "--level", "1", "--model", "m", "-t", "2m", "--max-turns", "3"];
    let all = parse(&[&words[..], &["--max-budget-usd", "0.5"]].concat()).unwrap().call("s").unwrap();
    let expected = json!({ "task_description": "x", "session_id": "s", "agent": "claude-code",
        "yolo_level": 1, "model": "m", "timeout": 120, "max_turns": 3, "max_budget_usd": 0.5 });
    assert_eq!(all, expected);
}

#[test]
fn the_exit_code_says_how_the_task_ended() {
    for (status, expected) in
        [("completed", Some(0)), ("failed", Some(1)), ("cancelled", Some(1)), ("timeout", Some(124))]
    {
        assert_eq!(code(&json!({ "status": status })), expected);
    }
    assert_eq!(code(&json!({ "error": "session_busy" })), None);
}
