//! The diff and the transcript of a task: what they contain, and that nothing in a container decides it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, Ran};
use crate::task_world::{bash, daemon, ended, expect_status, running, task};

/// The diff of an answer.
async fn diff(d: &Daemon, ran: &Ran) -> String {
    d.fetch(ran.text("diff_url")).await.expect(200).text()
}

fn file(path: &str, text: &str) -> Value {
    json!({ "path": path, "text": text })
}

/// Has the real git apply a diff in a folder, but for these paths.
fn apply(folder: &Path, diff: &str, but: &[&str]) {
    let patch = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(patch.path(), diff).expect("a file");
    let mut git = Command::new("git");
    git.arg("apply").args(but.iter().map(|path| format!("--exclude={path}"))).arg(patch.path());
    git.current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().expect("a parent"));
    let applied = git.output().expect("git");
    assert!(applied.status.success(), "{}\n{diff}", String::from_utf8_lossy(&applied.stderr));
}

#[tokio::test]
async fn a_task_comes_with_what_it_changed_and_all_that_its_agent_wrote() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\nold\n";
    let before = [("a.py", lines), ("b c.py", "old\n"), ("src/c.py", "old"), ("gone.txt", "x\n")];
    let given: Vec<_> = before.iter().map(|(path, text)| file(path, text)).collect();
    let given = [&given[..], &[file(".gitignore", "build/\n"), file("pic.bin", "text\n")]].concat();
    let read = |name: &str| json!({ "name": "Read", "input": { "file_path": format!("/workspace/{name}") } });
    let edit = |name: &str| {
        json!({ "name": "Edit", "input": { "file_path": format!("/workspace/{name}"), "old_string": "old",
            "new_string": "new" } })
    };
    let names = ["a.py", "b c.py", "src/c.py"];
    let work = "rm gone.txt; printf '\\0\\1' > pic.bin; mkdir build new; echo x > build/x; ln -s a.py link; \
                printf 'no newline' > new/n; printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh; \
                find /data/.agent -name '*.jsonl' -delete";
    model
        .says_to_agent(json!([
            { "text": "SECRET WORDS", "tools": names.map(read) },
            { "tools": names.map(edit) },
            bash(work),
            { "text": "done" },
        ]))
        .await;
    let ran = task(&d, "s", json!({ "files": given })).await;
    expect_status(&ran, "completed");
    let stat = json!({ "files_changed": 8, "insertions": 6, "deletions": 4, "left_out": 0 });
    assert_eq!((&ran.document["diff_stat"], &ran.document["diff_truncated"]), (&stat, &json!(false)));
    let shown = diff(&d, &ran).await;
    for part in [
        "@@ -7,4 +7,4 @@\n 7\n 8\n 9\n-old\n+new\n",
        "--- a/b c.py\t\n",
        "-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n",
        "deleted file mode 100644\n",
        "new file mode 120000\n",
        "new file mode 100755\n",
        "Binary files a/pic.bin and b/pic.bin differ\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("build/x") && !shown.contains(".agent"), "{shown}");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("src")).expect("a folder");
    before.iter().for_each(|(path, text)| std::fs::write(folder.path().join(path), text).expect("a file"));
    apply(folder.path(), &shown, &["pic.bin"]);
    let got = |path: &str| std::fs::read_to_string(folder.path().join(path)).expect(path);
    assert_eq!((got("a.py"), got("src/c.py")), (lines.replace("old", "new"), "new".to_owned()));
    assert_eq!((got("new/n"), got("run.sh")), ("no newline".to_owned(), "#!/bin/sh\n".to_owned()));
    assert!(!folder.path().join("gone.txt").exists() && folder.path().join("link").is_symlink());

    // The agent's own record of its conversation is gone; the daemon's is not.
    let transcript = d.fetch(ran.text("log_url")).await.expect(200).text();
    let kinds: Vec<String> = transcript
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect(line)["type"].as_str().expect(line).to_owned())
        .collect();
    assert!(transcript.contains("SECRET WORDS") && transcript.contains("rm gone.txt"), "{transcript}");
    assert_eq!(kinds.last().map(String::as_str), Some("result"));
    // A link opens nothing but what it names.
    let (url, log) = (ran.text("diff_url"), ran.text("log_url"));
    d.fetch(&url.replace(".diff?", ".jsonl?")).await.expect(403);
    d.fetch(&log.replace("/s/", "/t/")).await.expect(403);

    // A task that changes nothing has an empty diff, and both go with the session.
    model.says_to_agent(json!([{ "text": "nothing to do" }])).await;
    let idle = task(&d, "s", json!({ "resume": false })).await;
    assert_eq!(
        (idle.document["diff_stat"]["files_changed"].as_u64(), diff(&d, &idle).await),
        (Some(0), String::new())
    );
    d.tool("cleanup_sandbox", json!({ "session_id": "s" })).await;
    d.fetch(url).await.expect(404);
    d.fetch(log).await.expect(404);
    d.stop().await;
}

#[tokio::test]
async fn a_hostile_repository_runs_nothing_and_hides_nothing() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let marked = tempfile::tempdir().expect("a folder");
    let touch = format!("touch {}/pwned", marked.path().display());
    let config = format!(
        "[core]\n\tfsmonitor = {touch}\n[filter \"x\"]\n\tclean = {touch}\n\tsmudge = {touch}\n\
         [diff]\n\texternal = {touch}\n[diff \"x\"]\n\ttextconv = {touch}\n"
    );
    let files = json!([
        file(".git/config", &config),
        file(".git/HEAD", "ref: refs/heads/main\n"),
        file(".git/hooks/post-index-change", &format!("#!/bin/sh\n{touch}\n")),
        file(".gitattributes", "* filter=x diff=x\n"),
        file("a.txt", "old\n"),
    ]);
    let work = "echo new > a.txt; echo more >> .git/config; mkdir -p sub/.git; echo x > sub/.git/config; \
                printf 'x\\033[31m\\n' > \"$(printf 'n\\033]0;t\\007\\nl')\"; echo y > \"a --- b\"; \
                printf '*\\n' > .gitignore; echo z > hidden.txt";
    model.says_to_agent(json!([bash(work), { "text": "done" }])).await;
    let ran = task(&d, "s", json!({ "files": files })).await;
    expect_status(&ran, "completed");
    let shown = diff(&d, &ran).await;
    assert!(!shown.contains("fsmonitor") && !shown.contains(".git/"), "{shown}");
    assert!(
        shown.contains("-old\n+new\n") && shown.contains("+++ b/.gitignore\n@@ -0,0 +1 @@\n+*\n"),
        "{shown}"
    );
    // What it hides is not saved either; the rule that hides it is shown.
    let listed = d.tool("list_artifacts", json!({ "session_id": "s" })).await.document.to_string();
    assert!(listed.contains(".gitignore") && !listed.contains("hidden.txt"), "{listed}");
    assert_eq!(std::fs::read_dir(marked.path()).expect("a folder").count(), 0, "something was run");

    model
        .says_to_agent(
            json!([bash("rm .gitignore; mv hidden.txt \"$(printf 'h\\033\\nx')\""), { "text": "x" }]),
        )
        .await;
    let shown = diff(&d, &task(&d, "s", json!({ "resume": false })).await).await;
    assert!(shown.contains("+++ \"b/h\\033\\nx\"\n@@ -0,0 +1 @@\n+z\n"), "{shown}");
    assert_eq!(std::fs::read_dir(marked.path()).expect("a folder").count(), 0, "something was run");
    d.stop().await;
}

#[tokio::test]
async fn a_task_that_is_ended_has_the_diff_of_what_it_did() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    // Out of time.
    model.says_to_agent(json!([bash("echo late > late.txt; sleep 310")])).await;
    let late = task(&d, "t", json!({ "timeout": 60 }));
    let rest = async {
        running(&d, "t", "sleep 310").await;
        // Cancelled. Claude Code refuses a command that only sleeps.
        model.says_to_agent(json!([bash("echo new > a.txt"), bash("tail -f /dev/null")])).await;
        let cancelling = async {
            let id = running(&d, "c", "tail -f").await;
            d.tool("cancel_execution", json!({ "execution_id": id, "force": true })).await;
        };
        let files = json!([file("a.txt", "old\n")]);
        let (ran, ()) = tokio::join!(task(&d, "c", json!({ "files": files })), cancelling);
        expect_status(&ran, "cancelled");
        assert!(diff(&d, &ran).await.contains("-old\n+new\n"));
    };
    let (late, ()) = tokio::join!(late, rest);
    let id = late.text("execution_id").to_owned();
    let late = ended(&d, "t", &id).await;
    expect_status(&late, "timeout");
    assert!(diff(&d, &late).await.contains("+++ b/late.txt\n@@ -0,0 +1 @@\n+late\n"));

    // Killed with the daemon in the middle, and ended by the next one.
    model
        .says_to_agent(json!([bash("echo 1 > one.txt; sleep 5; echo 2 > a.txt"), { "text": "all done" }]))
        .await;
    let files = json!({ "files": [file("a.txt", "old\n")] });
    let id = tokio::select! {
        ran = task(&d, "k", files) => panic!("it ended: {}", ran.document),
        id = running(&d, "k", "sleep 5") => id,
    };
    let store = d.crash().await;
    let d = daemon(&model).store(&store).start().await;
    let ran = ended(&d, "k", &id).await;
    expect_status(&ran, "completed");
    let shown = diff(&d, &ran).await;
    assert!(shown.contains("-old\n+2\n") && shown.contains("+++ b/one.txt"), "{shown}");
    let transcript = d.fetch(ran.text("log_url")).await.expect(200).text();
    assert!(transcript.contains("echo 1 > one.txt") && transcript.contains("all done"), "{transcript}");
    // What was kept for the diffs is gone.
    let kept = Command::new("find").arg(store.path()).args(["-name", "*.before"]).output().expect("find");
    assert_eq!(String::from_utf8_lossy(&kept.stdout), "");
    d.stop().await;
}
