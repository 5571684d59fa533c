//! From one version to the next: a store of every earlier format is taken over, an older daemon refuses a
//! newer store, and what runs in containers of another version is answered and loses no file.
//!
//! `upgrade/store-N.tar` was written by the last real daemon of its format, which `upgrade/make.py` killed:
//! its last change is in the journal alone. A new format gets a file of its own; none is ever replaced.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Daemon, PATIENCE, Store, within};

/// The formats of which there is a store.
const FORMATS: [u32; 1] = [1];

/// The tokens of the fixture.
const TOKENS: [(&str, &str); 2] =
    [("default", "the-token-of-the-fixture"), ("other", "the-other-token-of-the-fixture")];

fn fixture(name: &str) -> String {
    format!("{}/../../tests/e2e/upgrade/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A copy of the store of a format, and what is in it. Its owner is one of its own, as if the copy were
/// restored: the daemons of two copies would remove each other's containers.
pub(crate) fn store_of(format: u32) -> (Store, Value) {
    let store = Store::new();
    let done = Command::new("tar")
        .args(["-xpf", &fixture(&format!("store-{format}.tar")), "--no-same-owner", "-C"])
        .arg(store.path())
        .status();
    assert!(done.is_ok_and(|status| status.success()), "tar");
    let owner = paddock::id::random_hex::<16>();
    std::fs::write(store.path().join("owner"), owner).expect("a file");
    ended_just_now(store.path());
    let expected = std::fs::read_to_string(fixture(&format!("store-{format}.json"))).expect("a file");
    (store, serde_json::from_str(&expected).expect("JSON"))
}

/// Executions are kept for a while after their end, and the fixture gets older: each ends now instead.
fn ended_just_now(store: &Path) {
    let folders = std::fs::read_dir(store).expect("a folder").map(|entry| entry.expect("an entry").path());
    let all = folders.filter_map(|folder| std::fs::read_dir(folder.join("executions")).ok());
    let records = all.flatten().map(|entry| entry.expect("an entry").path());
    for record in records.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let text = std::fs::read_to_string(&record).expect("a record");
        let mut about: Value = serde_json::from_str(&text).expect("JSON");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
        about["end"]["completed_ms"] = u64::try_from(now.as_millis()).expect("a time").into();
        std::fs::write(record, about.to_string()).expect("a file");
    }
}

/// A daemon with the tokens of the fixture.
pub(crate) fn daemon_of(store: &Store) -> crate::support::Setup {
    let [(_, token), (name, other)] = TOKENS;
    let digest = Sha256::digest(other).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let table = toml::Table::from_iter([("name".into(), name.into()), ("sha256".into(), digest.into())]);
    Daemon::with()
        .store(store)
        .without_token()
        .env("MCP_API_TOKEN", token)
        .set("auth.tokens", vec![toml::Value::Table(table)])
}

/// Every link of the fixture leads to what it led to, and the sessions go on.
pub(crate) async fn expect_everything(d: &Daemon, expected: &Value) {
    for (link, sha256) in expected["links"].as_object().expect("links") {
        let found = d.fetch(&format!("{}{link}", d.url)).await.expect(200);
        let found = Sha256::digest(&found.body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(Some(found.as_str()), sha256.as_str(), "{link}");
    }
    let call = |token: &str, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        d.request("POST", "/mcp").bearer(token).json(&call).send()
    };
    let [(_, default), (_, other)] = TOKENS;
    let looks = "cat link; ./run; cat 'a b/ü.txt' | wc -l; cat last.txt up.txt; [ -e empty ] || echo gone";
    let ran = call(default, "run_code", json!({ "language": "sh", "code": looks, "session_id": "s" })).await;
    let ran = ran.json()["result"]["structuredContent"].clone();
    assert_eq!(ran["stdout"], "today\nrun\n900\nlast\nuploaded\ngone\n", "{ran}");
    let ran = call(other, "run_code", json!({ "language": "sh", "code": "ls", "session_id": "s" })).await;
    assert_eq!(ran.json()["result"]["structuredContent"]["stdout"], "own.txt\n");
    let asked = json!({ "execution_id": expected["execution"] });
    let said =
        call(default, "get_execution_output", asked).await.json()["result"]["structuredContent"].clone();
    let said = said.to_string();
    assert!(said.contains("executed") && said.contains("failed"), "{said}");
}

#[tokio::test]
async fn a_store_of_every_format_is_taken_over() {
    for format in FORMATS {
        let (store, expected) = store_of(format);
        let d = daemon_of(&store).start().await;
        expect_everything(&d, &expected).await;
        d.stop().await;
        // What the new daemon wrote, it reads again.
        let d = daemon_of(&store).start().await;
        expect_everything(&d, &expected).await;
        d.stop().await;
    }
}

#[tokio::test]
async fn a_store_of_a_newer_daemon_is_refused_with_both_numbers() {
    let (store, _) = store_of(1);
    std::fs::write(store.path().join("format"), "2\n").expect("a file");
    let refusal = daemon_of(&store).refusal().await;
    assert_eq!(refusal.code, Some(1));
    let words = ["has format 2", "knows formats up to 1", "restore a backup"];
    assert!(words.iter().all(|word| refusal.said.contains(word)), "{}", refusal.said);
    assert!(store.path().join("journal/0000000000000000").exists(), "nothing of it was changed");
}

/// A daemon whose containers have another agent than those of [`new_version`]: another list of authorities
/// makes another volume of the agent, as another build does.
fn old_version(store: &Store, folder: &Path) -> crate::support::Setup {
    let bundle = folder.join("ca.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=old", "-days", "2", "-keyout", "/dev/null", "-out"])
        .arg(&bundle)
        .output()
        .expect("openssl");
    assert!(made.status.success());
    new_version(store).set("egress.ca_bundle", bundle.display().to_string())
}

fn new_version(store: &Store) -> crate::support::Setup {
    Daemon::with().store(store).set("shutdown.drain", "20s")
}

#[tokio::test]
async fn runs_in_containers_of_the_old_version_are_answered_and_lose_no_file() {
    let (store, folder) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let old = old_version(&store, folder.path()).start().await;
    let s = old.session("s");
    s.sh("echo before > before").await.expect_success();
    let old_container = old.view().await.the_container("sh").await;

    // Stopped as an upgrade stops it: the run in flight ends, and its caller has the answer.
    let view = old.view().await;
    let code = "touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.02; done; echo during > during";
    let arguments = json!({ "language": "sh", "session_id": "s", "code": code });
    let params = json!({ "name": "run_code", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let request = old.request("POST", "/mcp").json(&call);
    let calling = tokio::spawn(request.send());
    view.begun(&old_container).await;
    let mark = old.log.mark();
    old.terminate();
    old.log.line_since(mark, "shutting down").await;
    view.exec(&old_container, &["touch", "/tmp/go"]).await;
    let answer = within(PATIENCE, "the answer of the run", calling).await.expect("no panic").expect(200);
    let answer = answer.json().to_string();
    assert!(answer.contains(r#""name":"during""#), "{answer}");
    let mut happenings = view.follow().await;
    old.stop().await;

    let new = new_version(&store).start().await;
    new.session("s").sh("cat before during").await.expect_stdout("before\nduring\n");
    // No call waits for the removal of the old container.
    happenings.removal_of(&old_container, PATIENCE).await;
    assert_ne!(new.view().await.the_container("sh").await, old_container);
    new.stop().await;
}

/// A session whose daemon of the old version was killed while a command ran in it: the id of the command, and
/// the name of its container. What the command made is saved nowhere, and `/tmp/go` in the container ends it.
async fn killed_in_a_command(store: &Store, folder: &Path) -> (String, paddock::engine::ContainerId) {
    let old = old_version(store, folder).start().await;
    let s = old.session("s");
    s.sh("echo before > before; echo gone > gone").await.expect_success();
    let command = "rm gone; mkdir -p deep/er; echo made > deep/er/made; head -c 3000000 /dev/zero > large; \
                   ln -s deep l; ln large again; echo said; touch /tmp/begun; \
                   until [ -e /tmp/go ]; do sleep 0.02; done; echo last > last";
    let begun = old.tool("execute_code_async", json!({ "session_id": "s", "command": command })).await;
    let execution = begun.text("execution_id").to_owned();
    let view = old.view().await;
    let container = view.the_container("python").await;
    view.begun(&container).await;
    old.crash().await;
    (execution, container)
}

#[tokio::test]
async fn a_command_of_the_old_version_goes_on_after_a_kill_and_the_next_gets_a_new_container() {
    let (store, folder) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let (execution, container) = killed_in_a_command(&store, folder.path()).await;
    let new = new_version(&store).start().await;
    let view = new.view().await;
    let asked = json!({ "execution_id": execution });
    let state = new.tool("get_execution_status", asked.clone()).await.document;
    assert_eq!(state["status"], "running", "{state}");
    let mut happenings = view.follow().await;
    assert_eq!(view.exec(&container, &["touch", "/tmp/go"]).await, "");
    let mut said = String::new();
    let mut since = 0;
    let completed = async {
        loop {
            let waits = json!({ "execution_id": execution, "wait": true, "since": since });
            let heard = new.tool("get_execution_output", waits).await.document;
            said.push_str(&heard.to_string());
            let events = heard["output"].as_array().expect("events");
            since = events.iter().filter_map(|event| event["seq"].as_u64()).max().unwrap_or(since);
            if heard["status"] != "running" {
                break;
            }
        }
    };
    within(PATIENCE, "the end of the command", completed).await;
    assert!(said.contains("said"), "{said}");
    let looks = "cat before deep/er/made l/er/made last; stat -c %s large again; [ -e gone ] || echo removed";
    let ran = new.session("s").run("python", &format!("import os; os.system({looks:?})")).await;
    ran.expect_stdout("before\nmade\nmade\nlast\n3000000\n3000000\nremoved\n");
    assert_eq!(new.tool("get_execution_status", asked).await.document["status"], "completed");
    happenings.removal_of(&container, PATIENCE).await;
    assert_ne!(view.the_container("python").await, container, "no program begins in an old container");
    new.stop().await;
}

#[tokio::test]
async fn what_a_command_made_is_saved_when_the_agent_of_the_old_version_does_not_answer() {
    let (store, folder) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let (execution, container) = killed_in_a_command(&store, folder.path()).await;
    // The agent answers nobody who speaks another version, just as it answers nobody with another secret.
    std::fs::write(store.path().join("agent.secret"), "07".repeat(32)).expect("a file");
    let new = new_version(&store).start().await;
    let view = new.view().await;
    assert!(view.containers().await.iter().all(|other| other.id != container), "it is removed");
    let looks = "cat before deep/er/made l/er/made; stat -c %s large again; [ -e last ] || echo cut";
    let ran = new.session("s").sh(looks).await;
    ran.expect_stdout("before\nmade\nmade\n3000000\n3000000\ncut\n");
    let state = new.tool("get_execution_status", json!({ "execution_id": execution })).await.document;
    assert_eq!(state["status"], "lost", "{state}");
    let said = new.tool("get_execution_output", json!({ "execution_id": execution })).await.document;
    assert!(said.to_string().contains("said"), "{said}");
    new.stop().await;
}

#[tokio::test]
async fn a_container_that_rested_when_the_old_version_was_killed_brings_no_removed_file_back() {
    let (store, folder) = (Store::new(), tempfile::tempdir().expect("a folder"));
    let old = old_version(&store, folder.path()).start().await;
    let s = old.session("s");
    s.run("python", "open('a', 'w').write('a'); open('b', 'w').write('b')").await.expect_success();
    s.sh("rm a; echo new > b").await.expect_success(); // in another container; Python's does not know of it
    old.crash().await;
    std::fs::write(store.path().join("agent.secret"), "07".repeat(32)).expect("a file");
    let new = new_version(&store).start().await;
    new.session("s").sh("ls; cat b").await.expect_stdout("b\nnew\n");
    new.stop().await;
}
