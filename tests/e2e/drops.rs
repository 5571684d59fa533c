//! Drop folders: `<root>/<conversationId>/files` on the host is what code sees in `/data`, and what it makes
//! is there.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Daemon, Setup};

fn with(root: &Path) -> Setup {
    let mut table = toml::Table::new();
    table.insert("path".into(), root.display().to_string().into());
    Daemon::with().set("drops", toml::Value::Array(vec![table.into()]))
}

/// A root with the folder of one conversation.
fn folder(conversation: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("it exists");
    let files = root.join(conversation).join("files");
    fs::create_dir_all(&files).expect("a folder");
    (dir, files)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
}

#[tokio::test]
async fn code_sees_what_the_host_put_there_and_the_host_what_the_code_made() {
    let (dir, files) = folder("abc123");
    fs::write(files.join("input.csv"), "x\n1\n2\n").expect("a file");
    let d = with(&dir.path().canonicalize().expect("a path")).start().await;
    let session = d.session("abc123");
    let code = "import pandas as pd\nd = pd.read_csv('/data/input.csv')\nprint(d.x.sum())\n\
                (d * 10).to_csv('/data/result.csv', index=False)";
    session.python(code).await.expect_stdout("3\n");
    assert_eq!(read(&files.join("result.csv")), "x\n10\n20\n");

    // A second file while the session has its container, and a change of the first.
    fs::write(files.join(".later"), "later\n").expect("a file");
    fs::rename(files.join(".later"), files.join("later.txt")).expect("a rename");
    fs::write(files.join("input.csv"), "x\n5\n").expect("a file");
    let ran = session.sh("cat later.txt input.csv; rm result.csv; echo made > made.txt").await;
    ran.expect_stdout("later\nx\n5\n");
    assert!(!files.join("result.csv").exists(), "what a run removes is removed");
    assert_eq!(read(&files.join("made.txt")), "made\n");

    // A command.
    let command = json!({ "command": "cat later.txt; echo by a command > made.txt", "session_id": "abc123" });
    let ran = d.tool("execute_code", command).await;
    assert!(ran.command_stdout().contains("later"), "{:?}", ran.document);
    let wanted = async {
        while read(&files.join("made.txt")) != "by a command\n" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, wanted).await.expect("it comes after the command's end");

    // A conversation without a folder gets none, and no other sees these files.
    d.session("other").sh("ls | wc -l").await.expect_stdout("0\n");
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1);
    d.stop().await;
}

#[tokio::test]
async fn what_does_not_fit_refuses_the_run_and_it_runs_once_that_is_gone() {
    let (dir, files) = folder("full");
    let large = fs::File::create(files.join("large")).expect("a file");
    large.set_len(1 << 40).expect("a sparse file");
    let d = with(&dir.path().canonicalize().expect("a path")).start().await;
    let refused = d.session("full").sh("echo ran").await.expect_error("quota_exceeded");
    assert!(refused.text("message").contains("drop folder"), "{:?}", refused.document);
    fs::remove_file(files.join("large")).expect("it is there");
    d.session("full").sh("echo ran").await.expect_stdout("ran\n");
    d.stop().await;
}

#[tokio::test]
async fn a_root_that_is_no_folder_stops_the_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("a path");
    let refused = with(&root.join("gone")).refusal().await;
    assert!(refused.said.contains("does not exist"), "{refused:?}");
    std::os::unix::fs::symlink(&root, root.join("link")).expect("a link");
    let refused = with(&root.join("link")).refusal().await;
    assert!(refused.said.contains("is a link to"), "{refused:?}");
}
