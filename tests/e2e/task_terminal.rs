//! `paddock task` as people use it: files in, a diff out, and changes taken over.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::model::Model;
use crate::support::{PATIENCE, Store, engine_host, within};
use crate::task_world::{bash, daemon};

/// `paddock task` on a store.
fn command(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddock"));
    command.arg("task").args(words).env_clear().env("SANDBOX_ROOT", store);
    command.env("DOCKER_HOST", engine_host().to_string()).env("MCP_HTTP_ADDR", "127.0.0.1:0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(store: &Path, words: &[&str]) -> (i32, String, String) {
    seen(within(PATIENCE, "a task", command(store, words).output()).await.expect("the program"))
}

fn seen(ran: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (ran.status.code().expect("an exit code"), text(ran.stdout), text(ran.stderr))
}

/// Starts a task, and waits until its agent does this.
async fn started(store: &Path, words: &[&str], doing: &str) -> Child {
    let mut child = command(store, words).spawn().expect("the program");
    let mut lines = BufReader::new(child.stderr.as_mut().expect("a pipe")).lines();
    let look = async {
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.contains(doing) {
                return;
            }
        }
        panic!("it ended");
    };
    within(PATIENCE, doing, look).await;
    child
}

/// A project, with a repository.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().expect("a folder"));
        for (name, text) in [
            ("src/app.py", "print('old')\n"),
            ("gone/gone.txt", "x\n"),
            ("keep.txt", "kept\n"),
            (".gitignore", "*.log\n"),
            ("x.log", "ignored\n"),
            (".git/config", "[core]\n"),
        ] {
            project.write(name, text);
        }
        project
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.at(name).parent().expect("a folder")).expect("a folder");
        std::fs::write(self.at(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.at(name)).ok()
    }

    fn path(&self) -> &str {
        self.0.path().to_str().expect("UTF-8")
    }
}

/// What the agent does in the project.
const WORK: &str = "sed -i s/old/new/ src/app.py; rm -r gone; printf '#!/bin/sh\\n' > run.sh; \
                    chmod +x run.sh; mkdir new; printf 'e\\033[31m\\n' > new/esc.txt; \
                    printf 'a\\0b' > new/b.bin; echo y > y.log; ls -A > listing.txt";

#[tokio::test]
async fn changes_are_shown_and_taken_over() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let project = Project::new();
    let turns = |work: &str| json!([bash(work), bash("docker ps"), { "text": "Do\u{1b}[31mne." }]);
    model.says_to_agent(turns(WORK)).await;
    let out = tempfile::tempdir().expect("a folder");
    let words = ["fix it", "-d", project.path(), "--apply", "-o", out.path().to_str().expect("UTF-8")];
    let (code, stdout, stderr) = run(d.store.path(), &words).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("Do\\u{1b}[31mne.\ndiff --git "), "{stdout:?}");
    assert!(
        stdout.contains("-print('old')\n+print('new')\n") && stdout.contains("\n+e\u{1b}[31m\n"),
        "{stdout:?}"
    );
    for line in [
        "paddock: runs sed -i",
        "denied: Bash: runs docker ps",
        "changed src/app.py",
        "added run.sh",
        "removed gone/gone.txt",
        "3 turns, $0.03",
        "6 files changed, +",
        " goes on",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    assert!(!stderr.contains('\u{1b}') && !stderr.contains("conflict"), "{stderr:?}");
    assert_eq!(project.read("src/app.py").as_deref(), Some("print('new')\n"));
    assert_eq!(
        project.read("listing.txt").as_deref(),
        Some(".agent\n.gitignore\nkeep.txt\nlisting.txt\nnew\nrun.sh\nsrc\ny.log\n")
    );
    assert_eq!(
        (project.read("new/b.bin").as_deref(), project.read("keep.txt").as_deref()),
        (Some("a\0b"), Some("kept\n"))
    );
    assert!(!project.at("gone").exists() && !project.at("y.log").exists() && project.at("x.log").exists());
    let mode = std::fs::metadata(project.at("run.sh")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "{mode:o}");
    assert_eq!(
        std::fs::read_to_string(out.path().join("src/app.py")).ok().as_deref(),
        Some("print('new')\n")
    );

    // The session is named, and a further task goes on in it. Only the diff, if that is all that is wanted.
    let session = stderr.split("task -s ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a session");
    model.says_to_agent(json!([bash("echo more >> keep.txt"), { "text": "done" }])).await;
    let (code, stdout, stderr) = run(d.store.path(), &["-s", session, "-q", "more"]).await;
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        stdout.starts_with("diff --git a/keep.txt b/keep.txt\n") && stdout.ends_with(" kept\n+more\n"),
        "{stdout}"
    );

    // On a terminal the diff has colours, and no escape of its own.
    let again = Project::new();
    model.says_to_agent(json!([bash(WORK), { "text": "done" }])).await;
    let line = format!("{} task -q x -d {}", env!("CARGO_BIN_EXE_paddock"), again.path());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    script.env("SANDBOX_ROOT", d.store.path()).env("TERM", "xterm").env_remove("NO_COLOR");
    let ran = within(PATIENCE, "a task", script.output()).await.expect("script, of util-linux");
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(shown.contains("\u{1b}[32m+e\\u{1b}[31m\u{1b}[0m"), "{shown:?}");
    assert!(!shown.contains("e\u{1b}[31m"), "{shown:?}");
    assert_eq!(again.read("src/app.py").as_deref(), Some("print('old')\n"), "nothing was to be taken over");
    d.stop().await;
}

#[tokio::test]
async fn nothing_is_changed_where_something_does_not_fit() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let at = d.store.path();
    // A file has changed here meanwhile.
    let project = Project::new();
    let work = format!("{WORK}; until [ -e /tmp/go ]; do sleep 1; done");
    model.says_to_agent(json!([bash(&work), { "text": "done" }])).await;
    let child = started(at, &["x", "-d", project.path(), "--apply"], "runs sed").await;
    project.write("src/app.py", "print('mine')\n");
    let view = d.view().await;
    view.exec(&view.the_container("claude-code").await, &["touch", "/tmp/go"]).await;
    let ended = within(PATIENCE, "its end", child.wait_with_output()).await.expect("an end");
    let (code, _, stderr) = seen(ended);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("conflict: src/app.py has changed here"), "{stderr}");
    assert!(stderr.contains("nothing was changed in"), "{stderr}");
    assert_eq!(project.read("src/app.py").as_deref(), Some("print('mine')\n"));
    assert!(project.at("gone/gone.txt").exists() && !project.at("run.sh").exists());

    // A link leads out of the folder.
    let (project, outside) = (Project::new(), tempfile::tempdir().expect("a folder"));
    symlink(outside.path(), project.at("link")).expect("a link");
    model
        .says_to_agent(json!([bash("mkdir link; echo x > link/x.txt; echo y > y.txt"), { "text": "done" }]))
        .await;
    let (code, _, stderr) = run(at, &["x", "-d", project.path(), "--apply"]).await;
    assert!(
        code == 1 && stderr.contains("conflict: link/x.txt is, or is below, a symbolic link"),
        "{stderr}"
    );
    assert!(!project.at("y.txt").exists());
    assert_eq!(std::fs::read_dir(outside.path()).expect("a folder").count(), 0);

    // Links of the agent, and what belongs to git, are never made here; the rest is.
    let project = Project::new();
    let work = "ln -s /etc/passwd evil; mkdir .GIT; echo x > .GIT/config; echo y > y.txt";
    model.says_to_agent(json!([bash(work), { "text": "done" }])).await;
    let (code, _, stderr) = run(at, &["x", "-d", project.path(), "--apply", "--level", "4"]).await;
    assert!(code == 1 && stderr.contains("not applied: evil: it is or was a symbolic link"), "{stderr}");
    assert!(stderr.contains("not applied: .GIT/config: nothing is written to such a path"), "{stderr}");
    assert!(!project.at("evil").is_symlink() && !project.at(".GIT").exists());
    assert_eq!(project.read("y.txt").as_deref(), Some("y\n"));
    d.stop().await;
}

/// Files of the test below: enough that a command is killed in the middle of them.
const MANY: usize = 400;

#[tokio::test]
async fn a_command_that_is_killed_while_it_applies_leaves_each_file_old_or_new_and_the_next_one_finishes() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let project = Project::new();
    for n in 0..MANY {
        project.write(&format!("f/{n:03}.txt"), &format!("old {n}\n"));
    }
    let work = "sed -i s/old/new/ f/*.txt; rm -f keep.txt; seq 200 > added.txt";
    let begins = || json!([bash(work), { "text": "done" }]);
    model.says_to_agent(begins()).await;
    let words = ["x", "-d", project.path(), "--apply"];
    let mut child = command(d.store.path(), &words);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program");
    let begun = async {
        while project.read("f/000.txt").as_deref() != Some("new 0\n") {
            tokio::task::yield_now().await;
        }
    };
    within(PATIENCE, "its first change", begun).await;
    child.start_kill().expect("it runs");
    child.wait().await.expect("its end");
    let count = |project: &Project| {
        let is_new = |n: usize| {
            let text = project.read(&format!("f/{n:03}.txt")).expect("it is there");
            assert!([format!("old {n}\n"), format!("new {n}\n")].contains(&text), "{n}: {text:?}");
            text.starts_with("new")
        };
        (0..MANY).filter(|n| is_new(*n)).count()
    };
    let done = count(&project);
    assert!((1..MANY).contains(&done), "it was not killed in the middle: {done}");
    let left: Vec<_> = std::fs::read_dir(project.at("f")).expect("a folder").flatten().collect();
    assert!(left.len() <= MANY + 1, "no more than the file that it was about to put in place: {left:?}");

    model.says_to_agent(begins()).await;
    let (code, _, stderr) = run(d.store.path(), &words).await;
    assert_eq!(code, 0, "{stderr}");
    assert_eq!((count(&project), project.read("keep.txt")), (MANY, None));
    assert_eq!(project.read("added.txt").map(|text| text.lines().count()), Some(200));
    assert!(!stderr.contains("f/000.txt") && stderr.contains("f/399.txt"), "it did only the rest: {stderr}");
    d.stop().await;
}

#[tokio::test]
async fn ctrl_c_cancels_the_task_and_shows_what_it_did() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let interrupt = |child: &Child| {
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(pid, Signal::INT).expect("a signal");
    };
    model.says_to_agent(json!([bash("echo begun > begun.txt"), bash("tail -f /dev/null")])).await;
    let child = started(d.store.path(), &["x", "-s", "one"], "tail -f").await;
    interrupt(&child);
    let ended = within(PATIENCE, "its end", child.wait_with_output()).await.expect("an end");
    let (code, stdout, stderr) = seen(ended);
    assert_eq!(code, 130, "{stderr}");
    assert!(stdout.contains("+++ b/begun.txt\n@@ -0,0 +1 @@\n+begun\n"), "{stdout}{stderr}");
    assert!(stderr.contains("cancelled in "), "{stderr}");

    // What cannot be run.
    let (code, stdout, stderr) = run(d.store.path(), &["x", "--agent", "nobody"]).await;
    assert!((code, stdout.as_str()) == (125, "") && stderr.contains("nobody"), "{stderr}");
    let (code, _, stderr) = run(d.store.path(), &["x", "--apply"]).await;
    assert!(code == 125 && stderr.contains("--apply needs a folder"), "{stderr}");
    let (code, _, stderr) = run(d.store.path(), &["x", "-d", "/no/such/folder"]).await;
    assert!(code == 125 && stderr.contains("/no/such/folder"), "{stderr}");
    model.says_to_agent(json!([{ "status": 402, "error": "the credit is used up" }])).await;
    let (code, _, stderr) = run(d.store.path(), &["x"]).await;
    assert!(code == 1 && stderr.contains("the credit is used up"), "{stderr}");
    d.stop().await;

    // Without a daemon it is one itself.
    let store = Store::new();
    let (code, _, stderr) = run(store.path(), &["x", "--agent", "nobody"]).await;
    assert!(code == 125 && stderr.contains("nobody"), "{stderr}");
}
