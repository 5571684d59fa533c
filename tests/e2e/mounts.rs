//! Folders of the host that an operator lets programs read: what programs see of them, that nothing can be
//! written or reached through them, and what becomes of a folder that is not what it was.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Daemon, Image, Setup};

/// A folder that all users can read, with one file.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let docs = dir.path().canonicalize().expect("it exists").join("docs");
    fs::create_dir(&docs).expect("a folder");
    fs::write(docs.join("a.txt"), "from the host\n").expect("a file");
    open(dir.path(), 0o755);
    open(&docs, 0o755);
    open(&docs.join("a.txt"), 0o666);
    (dir, docs)
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn with(mounts: &[(&str, &Path, &[&str])]) -> Setup {
    let tables: Vec<toml::Value> = mounts
        .iter()
        .map(|(name, path, runners)| {
            let mut table = toml::Table::new();
            table.insert("name".into(), (*name).into());
            table.insert("path".into(), path.display().to_string().into());
            table.insert("about".into(), "what the test wrote".into());
            if !runners.is_empty() {
                table.insert("runners".into(), runners.to_vec().into());
            }
            table.into()
        })
        .collect();
    Daemon::with().set("mounts", toml::Value::Array(tables))
}

#[tokio::test]
async fn programs_read_a_folder_of_the_host_and_can_do_nothing_else_with_it() {
    let (_dir, docs) = folder();
    fs::write(docs.join("secret"), "not for all\n").expect("a file");
    open(&docs.join("secret"), 0o640);
    symlink("/etc/hostname", docs.join("link")).expect("a link");
    let node = |name: &str, kind, device| {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let path = docs.join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, device).expect("root, to make a device");
        open(&path, 0o666);
    };
    node("mem", rustix::fs::FileType::CharacterDevice, rustix::fs::makedev(1, 1));
    fs::copy("/usr/bin/id", docs.join("id")).expect("a program");
    open(&docs.join("id"), 0o4755);

    let d = with(&[("docs", &docs, &[])]).start().await;
    let code = r#"
import os, subprocess, errno
print(open("/mnt/docs/a.txt").read(), end="")
def errno_of(what):
    try:
        what()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
print("write", errno_of(lambda: open("/mnt/docs/a.txt", "a")))
print("create", errno_of(lambda: open("/mnt/docs/new", "w")))
print("remove", errno_of(lambda: os.remove("/mnt/docs/a.txt")))
print("chmod", errno_of(lambda: os.chmod("/mnt/docs/a.txt", 0o777)))
print("secret", errno_of(lambda: open("/mnt/docs/secret")))
print("device", errno_of(lambda: open("/mnt/docs/mem", "rb")))
print("link", open("/mnt/docs/link").read(), end="")
print("root", subprocess.run(["/mnt/docs/id", "-u"], capture_output=True, text=True).stdout.strip() == "0")
open("/data/copy.txt", "w").write(open("/mnt/docs/a.txt").read())
"#;
    let ran = d.session("reader").run("python", code).await;
    ran.expect_stdout(
        "from the host\nwrite EROFS\ncreate EROFS\nremove EROFS\nchmod EROFS\nsecret EACCES\ndevice EPERM\n\
         link sandbox\nroot False\n",
    );
    let listed = d.tool("list_artifacts", json!({ "session_id": "reader" })).await.document.to_string();
    assert!(listed.contains("copy.txt") && !listed.contains("a.txt"), "{listed}");
    assert_eq!(fs::read_to_string(docs.join("a.txt")).expect("a file"), "from the host\n");

    // What the host writes later is seen at once, by the container that is there.
    fs::write(docs.join("later.txt"), "later\n").expect("a file");
    open(&docs.join("later.txt"), 0o644);
    d.session("reader")
        .run("python", "print(open('/mnt/docs/later.txt').read(), end='')")
        .await
        .expect_stdout("later\n");
    let sh = d.run("sh", "cat /mnt/docs/a.txt").await;
    sh.expect_stdout("from the host\n");

    let runners = d.tool("list_runners", json!({})).await.document;
    let mounts = json!([{ "path": "/mnt/docs", "about": "what the test wrote" }]);
    for language in runners["languages"].as_array().expect("a list") {
        assert_eq!(language["mounts"], mounts, "{language}");
    }
    let tools = d.rpc("tools/list", json!({})).await.to_string();
    assert!(tools.contains("/mnt/docs: what the test wrote"), "{tools}");
    assert!(!tools.contains(docs.to_str().expect("text")), "no model learns a path of the host");
    d.stop().await;
}

#[tokio::test]
async fn only_the_named_runners_have_it_and_containers_with_another_set_are_not_used() {
    let (_dir, docs) = folder();
    let look = "import os; print(os.path.exists('/mnt/docs/a.txt'))";
    let d = with(&[("docs", &docs, &["sh"])]).start().await;

    d.session("kept").run("python", look).await.expect_stdout("False\n");
    d.session("other").run("sh", "cat /mnt/docs/a.txt").await.expect_stdout("from the host\n");
    let store = d.crash().await;
    // The same store with another set: the session's container of before lacks the folder.
    let d = with(&[("docs", &docs, &["python"])]).store(&store).start().await;
    d.session("kept").run("python", look).await.expect_stdout("True\n");
    d.session("other").run("sh", "ls /mnt/docs 2>/dev/null | wc -l").await.expect_stdout("0\n");
    d.stop().await;
}

#[tokio::test]
async fn a_folder_that_is_gone_or_a_link_stops_the_start_and_a_link_that_comes_later_is_never_followed() {
    let (dir, docs) = folder();
    let link = docs.with_file_name("link");
    symlink(&docs, &link).expect("a link");
    let refused = with(&[("docs", &link, &[])]).refusal().await;
    assert!(refused.said.contains("is a link to") && refused.code == Some(1), "{refused:?}");
    let refused = with(&[("docs", &docs.with_file_name("gone"), &[])]).refusal().await;
    assert!(refused.said.contains("does not exist"), "{refused:?}");

    let d = with(&[("docs", &docs, &[])]).set("pool.wait", "20s").start().await;
    d.session("early")
        .run("python", "print(open('/mnt/docs/a.txt').read(), end='')")
        .await
        .expect_stdout("from the host\n");
    let moved = dir.path().join("moved");
    fs::rename(&docs, &moved).expect("a rename");
    symlink("/etc", &docs).expect("a link");
    // The container that has the folder keeps it.
    d.session("early")
        .run("python", "print(open('/mnt/docs/a.txt').read(), end='')")
        .await
        .expect_stdout("from the host\n");
    // A new one does not start, so nobody reads /etc of the host.
    let late = d.session("late").run("python", "import os; print(os.listdir('/mnt/docs'))").await;
    late.expect_error("engine_unavailable");
    d.log.line("is a link to /etc").await;
    fs::remove_file(&docs).expect("the link");
    fs::rename(&moved, &docs).expect("back");
    d.session("later").run("sh", "cat /mnt/docs/a.txt").await.expect_stdout("from the host\n");
    d.stop().await;
}

#[tokio::test]
async fn a_coding_agent_has_a_folder_only_if_it_is_named() {
    let (_dir, docs) = folder();
    let agent = "#!/bin/sh\ncat >/dev/null\ncat /mnt/docs/a.txt >/workspace/copy.txt 2>&1\n\
                 echo '{\"type\":\"result\",\"success\":true,\"text\":\"read\"}'\n";
    // Labelled so that no other daemon uses it as a runner.
    let labels = "sandbox.runner=no sandbox.agent=reader";
    let file =
        "FROM paddock-example-sh\nCOPY agent /usr/local/bin/agent\nRUN chmod 755 /usr/local/bin/agent\n";
    let text = format!("{file}ENTRYPOINT [\"/usr/local/bin/agent\"]\nLABEL {labels}\n");
    let image = Image::build(&text, &[("agent", agent)]);
    for (runners, copied) in [(&["reader"][..], "from the host\n"), (&[][..], "No such file or directory\n")]
    {
        let d =
            with(&[("docs", &docs, runners)]).with_tasks().set("runners.reader", image.name()).start().await;
        let call =
            json!({ "agent": "reader", "task_description": "read", "session_id": "s", "yolo_level": 4 });
        let done = d.tool("execute_task", call).await;
        assert_eq!(done.document["status"], "completed", "{}", done.document);
        let copy = d.tool("read_artifact", json!({ "session_id": "s", "path": "/mnt/data/copy.txt" })).await;
        assert!(copy.text("text").ends_with(copied), "{}", copy.document);
        let tools = d.rpc("tools/list", json!({})).await["result"]["tools"].clone();
        for tool in tools.as_array().expect("a list") {
            let is_told = tool["description"].as_str().expect("a text").contains("/mnt/docs");
            let has_it = match tool["name"].as_str().expect("a name") {
                "execute_task" => !runners.is_empty(),
                "run_code" | "run_python" | "execute_code" => runners.is_empty(),
                _ => false,
            };
            assert_eq!(is_told, has_it, "{tool}");
        }
        d.stop().await;
    }
}
