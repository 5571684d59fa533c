//! The workspace of a coding agent outlives its container: what git ignores and the home directory are there
//! for the next task of the session, and for nobody else.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Daemon, PATIENCE, Ran, View, within};
use crate::task_workspace::{daemon, image, said};
use crate::task_world::finished;

/// Leaves a file that git ignores, one in the home directory, and two that are saved.
const LEAVES: &str = "echo node_modules/ > .gitignore; mkdir node_modules; echo dep > node_modules/dep; \
                      echo tool > ~/tool; echo mine > mine.txt; echo gone > gone.txt";

/// Tells of them.
const LOOKS: &str = "cat node_modules/dep ~/tool mine.txt 2>&1 | tr '\\n' ' '";

async fn task(d: &Daemon, session: &str, script: &str) -> Ran {
    let arguments = json!({ "task_description": script, "session_id": session, "timeout": 300 });
    finished(d, session, d.tool("execute_task", arguments).await).await
}

async fn looks(d: &Daemon, session: &str) -> String {
    said(&task(d, session, LOOKS).await)
}

/// Has another session take the only permit to have containers, and waits until no agent's container is left.
async fn evict(d: &Daemon, view: &View) {
    d.session("other").sh("true").await.expect_success();
    gone(view).await;
}

async fn gone(view: &View) {
    let look = async {
        while !view.containers_for("claude-code").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within(PATIENCE, "the removal of the container", look).await;
}

/// The names of the workspaces' volumes.
async fn volumes(view: &View) -> BTreeSet<String> {
    let mut names = view.volume_names().await;
    names.retain(|name| name.ends_with("-home"));
    names.into_iter().map(|name| name.trim_end_matches("-home").to_owned()).collect()
}

async fn until_volumes(view: &View, expected: &BTreeSet<String>) {
    let look = async {
        while volumes(view).await != *expected {
            tokio::task::yield_now().await;
        }
    };
    within(PATIENCE, &format!("the workspaces {expected:?}"), look).await;
}

async fn saved(d: &Daemon, session: &str, path: &str) -> Option<String> {
    let answer = d.request("GET", &format!("/sessions/{session}/files/{path}")).send().await;
    (answer.status == 200).then(|| answer.text())
}

fn uid_of(view_text: &str) -> String {
    let at = view_text.find("\"paddock.uid\":\"").expect("a label") + 15;
    view_text[at..].chars().take_while(char::is_ascii_digit).collect()
}

/// How many workspaces are kept, and what the counters say.
async fn metrics(d: &Daemon) -> Vec<(String, String)> {
    let text = d.request("GET", "/metrics").send().await.expect(200).text();
    let lines = text.lines().filter(|line| line.starts_with("paddock_workspaces_"));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[tokio::test]
async fn a_workspace_is_there_after_an_eviction_and_the_stores_changes_win_and_no_other_session_has_it() {
    let image = image();
    let d = daemon(&image).set("sessions.max", 1).start().await;
    let view = d.view().await;
    said(&task(&d, "s", LEAVES).await);
    let uid = uid_of(&view.inspect(&view.the_container("claude-code").await).await);
    evict(&d, &view).await;
    let kept = volumes(&view).await;
    assert_eq!(kept.len(), 1);
    let has = |all: &[(String, String)], name: &str, value: &str| {
        assert!(all.contains(&(name.to_owned(), value.to_owned())), "{name}: {all:?}");
    };
    has(&metrics(&d).await, "paddock_workspaces_kept", "1");

    // Meanwhile its user deletes a file, changes one and brings another.
    assert_eq!(d.request("DELETE", "/sessions/s/files/gone.txt").send().await.status, 204);
    for (path, text) in [("mine.txt", "changed"), ("new.txt", "new")] {
        let put = d.request("PUT", &format!("/sessions/s/files/{path}")).body(text.as_bytes());
        assert!(put.send().await.status < 300);
    }
    // Another session gets a workspace of its own, as another user.
    assert_eq!(said(&task(&d, "t", "ls -A ~ /workspace | grep -v : | sort | tr '\\n' ' '").await), "");
    let other = uid_of(&view.inspect(&view.the_container("claude-code").await).await);
    assert_ne!(other, uid);
    evict(&d, &view).await;

    let ran = task(&d, "s", &format!("{LOOKS}; cat new.txt; ls gone.txt")).await;
    let words = said(&ran);
    assert!(words.starts_with("dep tool changednew") && words.contains("cannot access"), "{words}");
    assert_eq!(ran.document["files_created"], json!([]), "{}", ran.document);
    assert_eq!(saved(&d, "s", "gone.txt").await, None, "a deleted file stays deleted");
    let again = view.the_container("claude-code").await;
    assert_eq!(uid_of(&view.inspect(&again).await), uid, "its files have this owner");
    assert_eq!(d.log.count("a session has its workspace again"), 1);
    has(&metrics(&d).await, "paddock_workspaces_total{event=\"continued\"}", "1");

    // What a task changes of it is noticed as ever.
    let ran = task(&d, "s", "echo more >> mine.txt; rm new.txt; echo dep2 > node_modules/dep").await;
    said(&ran);
    assert_eq!(ran.document["files_created"], json!(["mine.txt"]), "{}", ran.document);
    assert_eq!(saved(&d, "s", "new.txt").await, None);

    let deleted = d.tool("cleanup_sandbox", json!({ "session_id": "s" })).await;
    assert_eq!(deleted.document["status"], "deleted");
    assert!(!looks(&d, "s").await.contains("dep tool"), "nothing is left of it");
    // So it is of a session that has no container at the moment.
    evict(&d, &view).await;
    assert_eq!(volumes(&view).await.len(), 2);
    for session in ["s", "t"] {
        d.tool("cleanup_sandbox", json!({ "session_id": session })).await;
    }
    until_volumes(&view, &BTreeSet::new()).await;
    d.stop().await;
}

#[tokio::test]
async fn a_workspace_outlives_the_daemon_its_kill_a_new_image_and_a_broken_container() {
    let (first, second) = (image(), image());
    let d = daemon(&first).set("sessions.max", 1).start().await;
    let view = d.view().await;
    said(&task(&d, "s", LEAVES).await);
    evict(&d, &view).await;
    let kept = volumes(&view).await;
    let store = d.crash().await;
    let d = daemon(&first).store(&store).start().await;
    assert_eq!(volumes(&view).await, kept);
    assert_eq!(looks(&d, "s").await, "dep tool mine");

    // The daemon ends; the next one has another image.
    d.stop().await;
    assert_eq!(volumes(&view).await, kept);
    let d = daemon(&second).store(&store).start().await;
    assert_eq!(looks(&d, "s").await, "dep tool mine");

    // The container dies under a task: what it had made is there, saved or not.
    let container = view.the_container("claude-code").await;
    let losing = async {
        view.begun(&container).await;
        view.kill(&container).await;
    };
    let lost = "echo late > late.txt; echo dep2 > node_modules/dep; touch /tmp/begun; sleep 250";
    let (ran, ()) = tokio::join!(task(&d, "s", lost), losing);
    assert_eq!(ran.text("status"), "failed", "{}", ran.document);
    assert_eq!(said(&task(&d, "s", &format!("{LOOKS}; cat late.txt")).await), "dep2 tool mine late");

    // A closed session gives its container up, and has its workspace when it is continued.
    assert_eq!(d.tool("close_session", json!({ "conversationId": "s" })).await.document["status"], "closed");
    gone(&view).await;
    assert_eq!(looks(&d, "s").await, "dep2 tool mine");

    // Daemon and container die in the middle of a task, as they do with their machine.
    let container = view.the_container("claude-code").await;
    let lost = "echo last > last.txt; rm mine.txt; echo dep3 > node_modules/dep; touch /tmp/begun; sleep 250";
    let arguments = json!({ "task_description": lost, "session_id": "s", "timeout": 300 });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "execute_task", "arguments": arguments } });
    let request = d.request("POST", "/mcp").set("accept", "application/json").json(&call);
    let asking = tokio::spawn(request.try_send());
    view.begun(&container).await;
    let store = d.crash().await;
    assert!(asking.await.expect("no panic").is_none(), "nobody answered");
    view.kill(&container).await;
    let d = daemon(&second).store(&store).start().await;
    assert_eq!(volumes(&view).await, kept);
    let ran = task(&d, "s", "cat node_modules/dep ~/tool last.txt | tr '\\n' ' '; ls mine.txt").await;
    let words = said(&ran);
    assert!(words.starts_with("dep3 tool last") && words.contains("cannot access"), "{words}");
    assert_eq!(saved(&d, "s", "last.txt").await.as_deref(), Some("last\n"));
    assert_eq!(saved(&d, "s", "mine.txt").await, None, "the task had removed it");
    d.stop().await;
}

#[tokio::test]
async fn workspaces_go_after_their_retention_beyond_their_bound_and_with_nobody_to_keep_them() {
    let image = image();
    let d = daemon(&image).set("sessions.max", 1).set("tasks.workspaces", 1).start().await;
    let view = d.view().await;
    said(&task(&d, "s", LEAVES).await);
    evict(&d, &view).await;
    let first = volumes(&view).await;
    said(&task(&d, "t", LEAVES).await);
    evict(&d, &view).await;
    // The one that was kept first went.
    d.log.line("a workspace was removed").await;
    let second = volumes(&view).await;
    assert!(second.len() == 1 && second.is_disjoint(&first), "{first:?} {second:?}");
    assert_eq!(looks(&d, "t").await, "dep tool mine");
    assert!(looks(&d, "s").await.ends_with("No such file or directory mine"), "what was saved stays");

    // A shorter retention holds for what is kept already, from the moment at which its container went.
    let store = d.store.clone();
    d.stop().await;
    let d = daemon(&image).set("tasks.retention", "1s").store(&store).start().await;
    d.log.line("why=expired").await;
    until_volumes(&view, &BTreeSet::new()).await;
    assert!(looks(&d, "t").await.ends_with("No such file or directory mine"));
    d.stop().await;

    // Without a retention it goes with its container.
    let d = daemon(&image).set("tasks.retention", "0s").store(&store).start().await;
    said(&task(&d, "t", "echo dep > node_modules/dep || mkdir node_modules").await);
    d.stop().await;
    assert_eq!(volumes(&view).await, BTreeSet::new());
}

#[tokio::test]
async fn what_nobody_noted_is_removed_and_the_workspaces_of_others_are_not_touched() {
    let image = image();
    let d = daemon(&image).set("sessions.max", 1).start().await;
    let other = daemon(&image).set("sessions.max", 1).start().await;
    let (view, others) = (d.view().await, other.view().await);
    for (d, view) in [(&d, &view), (&other, &others)] {
        said(&task(d, "s", LEAVES).await);
        evict(d, view).await;
    }
    let store = d.crash().await;
    let leases = store.path().join("leases");
    let mut notes: Vec<_> =
        std::fs::read_dir(&leases).expect("notes").map(|note| note.expect("a note")).collect();
    notes.retain(|note| std::fs::read_to_string(note.path()).expect("text").contains("kept_since_ms"));
    assert_eq!(notes.len(), 1);
    std::fs::remove_file(notes[0].path()).expect("it is there");
    let d = daemon(&image).store(&store).start().await;
    until_volumes(&view, &BTreeSet::new()).await;
    assert!(!looks(&d, "s").await.contains("dep tool"), "a note is what makes it the session's");
    assert_eq!(looks(&other, "s").await, "dep tool mine");
    d.stop().await;
    other.stop().await;
}

/// A daemon can be killed after it has started a container over a workspace and before it has told the agent
/// whose it is. Such a container has files of a session although nothing ever ran in it: it must never stand
/// ready for another session.
#[tokio::test]
async fn a_container_over_a_workspace_that_nobody_has_claimed_is_no_idle_one() {
    let image = image();
    let d = daemon(&image).set("sessions.max", 1).start().await;
    let view = d.view().await;
    said(&task(&d, "s", LEAVES).await);
    let inspected = view.inspect(&view.the_container("claude-code").await).await;
    evict(&d, &view).await;
    let store = d.crash().await;

    // As the daemon makes it.
    let (_, body) = inspected.split_once("\r\n\r\n").expect("a body");
    let of: Value = serde_json::from_str(body).expect("JSON");
    let mut spec = of["Config"].clone();
    spec["HostConfig"] = of["HostConfig"].clone();
    spec["Labels"]["paddock.over"] = "workspace".into();
    let name = of["Name"].as_str().expect("a name").trim_start_matches('/');
    for ask in [format!("POST /containers/create?name={name}"), format!("POST /containers/{name}/start")] {
        let body = if ask.ends_with("start") { String::new() } else { spec.to_string() };
        let answer = view.ask(&ask, &body).await;
        assert!(answer.contains(" 201 ") || answer.contains(" 204 "), "{ask}: {answer}");
    }
    let kept = volumes(&view).await;
    let d = daemon(&image).set("coding_agents.idle", 1).store(&store).start().await;
    d.log.line("is not taken over").await;
    assert_eq!(said(&task(&d, "t", "ls -A ~ /workspace | grep -v : | sort | tr '\\n' ' '").await), "");
    assert!(volumes(&view).await.is_superset(&kept));
    assert_eq!(looks(&d, "s").await, "dep tool mine");
    d.stop().await;
}
