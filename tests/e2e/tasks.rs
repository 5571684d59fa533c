//! Tasks of the real Claude Code in its image (`deploy/images agents`), with a model that answers by a
//! script. Nothing is sent to another machine.

use serde_json::json;

use crate::model::Model;
use crate::support::Daemon;
use crate::task_world::{
    RUN, SUM, bash, daemon, denied, ended, events, expect_conversation, expect_status, expect_sum, numbers,
    running, sum_turns, task, tool, write,
};

#[tokio::test]
async fn an_agent_does_a_task_and_goes_on_with_the_next() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let input = json!({ "file_path": "/workspace/sum.sh", "content": SUM });
    model.says_to_agent(sum_turns(json!({ "name": "Write", "input": input }), &[bash(RUN)])).await;
    let ran = task(&d, "s", json!({ "files": numbers() })).await;
    expect_sum(&d, &mut model, &ran, 3).await;
    assert_eq!(ran.document["files_created"], json!(["sum.sh", "sum.txt"]), "{}", ran.document);
    expect_conversation(&mut model, async |arguments| task(&d, "s", arguments).await).await;

    let status = d.tool("get_sandbox_status", json!({ "session_id": "s" })).await;
    assert_eq!(
        (&status.document["status"], &status.document["output"]),
        (&json!("completed"), &json!("again"))
    );
    assert_eq!(d.tool("cleanup_sandbox", json!({ "session_id": "s" })).await.document["status"], "deleted");
    d.tool("download_files", json!({ "session_id": "s", "paths": ["sum.txt"] }))
        .await
        .expect_error("session_not_found");
    d.stop().await;
}

#[tokio::test]
async fn a_level_denies_and_what_is_denied_does_not_happen() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let text = |path: &str, text: &str| json!({ "path": path, "text": text });
    let hooks = json!({ "permissions": { "allow": ["Bash"] }, "hooks": { "SessionStart": [{ "hooks": [
        { "type": "command", "command": "touch /data/hooked" }] }] } });
    let files = json!([
        text("CLAUDE.md", "HOSTILE WORDS"),
        text(".claude/settings.json", &hooks.to_string()),
        text(".mcp.json", r#"{"mcpServers":{"x":{"command":"touch","args":["/data/served"]}}}"#),
        text("a.py", "old\n"),
        text("b.py", "old\n"),
        text("c.py", "old\n"),
    ]);
    let step = |name: &str| {
        json!({ "name": "Edit",
        "input": { "file_path": format!("/workspace/{name}"), "old_string": "old", "new_string": "new" } })
    };
    let read = |name: &str| json!({ "name": "Read", "input": { "file_path": format!("/workspace/{name}") } });
    model
        .says_to_agent(json!([
            { "tools": [read("a.py"), read("b.py"), read("c.py")] },
            { "tools": [step("a.py"), step("b.py"), step("c.py")] },
            bash("touch /data/pwned"),
            tool("WebFetch", json!({ "url": "http://example.com/", "prompt": "x" })),
            write("/tmp/outside", "x"),
            write("/workspace/.agent/claude-code/settings.json", "{}"),
            { "text": "done" },
        ]))
        .await;
    let ran = task(&d, "s", json!({ "files": files, "yolo_level": 1 })).await;
    expect_status(&ran, "completed");
    assert_eq!(
        denied(&ran),
        [
            "Bash: runs touch /data/pwned",
            "WebFetch: fetches http://example.com/",
            "Write: writes /tmp/outside",
            "Write: writes .agent/claude-code/settings.json",
        ]
    );
    assert_eq!(ran.document["files_created"], json!(["a.py", "b.py", "c.py"]), "{}", ran.document);
    // A reader that has read up to the use of a tool is told what of it was denied, and each denial once.
    let id = ran.text("execution_id");
    for one in events(&d, id).await.iter().filter(|event| event["type"] == "denied") {
        let since = one["seq"].as_u64().expect("a number") - 1;
        let arguments = json!({ "execution_id": id, "since": since });
        let page = d.tool("get_execution_output", arguments).await.document;
        let read =
            page["output"].as_array().expect("events").iter().filter(|event| event["seq"] == one["seq"]);
        assert!(read.clone().any(|event| event == one), "{one} is not in {page}");
    }
    let result =
        events(&d, id).await.iter().find(|event| event["type"] == "result").cloned().expect("it ended");
    let arguments = json!({ "execution_id": id, "since": result["seq"].as_u64().expect("a number") - 1 });
    let page = d.tool("get_execution_output", arguments).await.document["output"].to_string();
    assert!(!page.contains("\"denied\""), "{page}");
    let listed = d.tool("list_artifacts", json!({ "session_id": "s" })).await.document.to_string();
    for name in ["pwned", "hooked", "served", "claude-code/settings.json"] {
        assert!(!listed.contains(name), "{name}: {listed}");
    }
    let bodies = json!(model.seen().await).to_string();
    assert!(!bodies.contains("HOSTILE WORDS"), "CLAUDE.md is not loaded");

    // Level 3 runs commands, but none of the list; level 4 runs those too.
    let steps = || (bash("echo one > one.txt; docker ps"), bash("echo two > two.txt"));
    let turns = |last: &str| json!([steps().0, steps().1, { "text": last }]);
    model.says_to_agent(turns("three")).await;
    let ran = task(&d, "s", json!({ "resume": false })).await;
    expect_status(&ran, "completed");
    assert_eq!(denied(&ran), ["Bash: runs echo one > one.txt; docker ps"]);
    assert_eq!(ran.document["files_created"], json!(["two.txt"]));
    model.says_to_agent(turns("four")).await;
    let ran = task(&d, "s", json!({ "yolo_level": 4, "resume": false })).await;
    assert_eq!((denied(&ran), &ran.document["files_created"]), (vec![], &json!(["one.txt", "two.txt"])));
    d.stop().await;
}

#[tokio::test]
async fn an_agent_searches_where_it_may_execute_nothing_but_itself() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let files =
        json!([{ "path": "src/found.txt", "text": "a needle here\n" }, { "path": "b.txt", "text": "x" }]);
    model
        .says_to_agent(json!([
            tool("Grep", json!({ "pattern": "needle", "path": "/workspace", "output_mode": "content" })),
            tool("Glob", json!({ "pattern": "**/found.*", "path": "/workspace" })),
            { "text": "done" },
        ]))
        .await;
    let ran = task(&d, "s", json!({ "files": files, "yolo_level": 1 })).await;
    expect_status(&ran, "completed");
    assert_eq!(denied(&ran), Vec::<String>::new());
    let seen = model.seen().await;
    let last = seen.last().expect("a request")["body"]["messages"].to_string();
    for found in ["a needle here", "src/found.txt"] {
        assert!(last.contains(found), "{found}: {last}");
    }
    d.stop().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_and_reaches_no_container() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    let text = |path: &str| json!([{ "path": path, "text": "x" }]);
    for (arguments, said) in [
        (json!({ "yolo_level": 0 }), "`yolo_level` is 0"),
        (json!({ "yolo_level": 5 }), "`yolo_level` is 5"),
        (json!({ "timeout": 59 }), "60 to 1800"),
        (json!({ "agent": "nobody" }), "there are: claude-code"),
        (json!({ "files": text("/etc/passwd") }), "files[0].path"),
        (json!({ "files": text("../x") }), "files[0].path"),
        (json!({ "working_directory": "/etc" }), "`working_directory`"),
        (json!({ "working_directory": "../.." }), "`working_directory`"),
        (json!({ "working_directory": "nowhere" }), "no such directory"),
        (json!({ "max_budget_usd": 0 }), "`max_budget_usd`"),
    ] {
        let ran = task(&d, "s", arguments.clone()).await.expect_error("invalid_argument");
        assert!(ran.text("message").contains(said), "{arguments}: {}", ran.document);
    }
    task(&d, "s", json!({ "task_description": "x".repeat(140_000) })).await.expect_error("too_large");
    assert_eq!(model.seen().await.len(), 0);

    // A long task, in a directory that comes with it; a budget, and a model that fails.
    model.says_to_agent(json!([bash("pwd > where.txt"), { "text": "ok" }])).await;
    let description = "x".repeat(100_000);
    let long = json!({ "task_description": description, "files": text("src/a"), "working_directory": "src" });
    let ran = task(&d, "s", long).await;
    expect_status(&ran, "completed");
    assert_eq!(ran.document["files_created"], json!(["src/where.txt"]));
    model.says_to_agent(json!([bash("true"), bash("true"), { "text": "late" }])).await;
    let ran = task(&d, "s", json!({ "max_turns": 1, "resume": false })).await;
    expect_status(&ran, "failed");
    assert!(ran.text("error").contains("turns"), "{}", ran.document);
    model.says_to_agent(json!([{ "status": 402, "error": "the credit is used up" }])).await;
    let ran = task(&d, "s", json!({ "resume": false })).await;
    expect_status(&ran, "failed");
    assert!(ran.text("error").contains("the credit is used up"), "{}", ran.document);
    // Its second turn would be beyond what the operator's prices leave of it.
    model.says_to_agent(json!([bash("true"), bash("touch late.txt"), { "text": "late" }])).await;
    let ran = task(&d, "poor", json!({ "max_budget_usd": 0.005 })).await;
    expect_status(&ran, "failed");
    assert!(ran.text("error").contains("used up"), "{}", ran.document);
    assert_eq!((&ran.document["cost_usd"], &ran.document["files_created"]), (&json!(0.01), &json!([])));
    d.stop().await;

    // Without a model.
    let d = Daemon::with().with_tasks().start().await;
    let ran = task(&d, "s", json!({})).await.expect_error("network_unavailable");
    assert!(ran.text("message").contains("models.anthropic"), "{}", ran.document);
    d.stop().await;
}

#[tokio::test]
async fn a_task_is_alone_in_its_session_is_cancelled_and_survives_the_daemon() {
    let mut model = Model::start().await;
    let d = daemon(&model).start().await;
    model.says_to_agent(json!([bash("echo begun > begun.txt"), bash("tail -f /dev/null")])).await;
    let cancelling = async {
        let id = running(&d, "s", "tail -f").await;
        let second = task(&d, "s", json!({})).await.expect_error("session_busy");
        assert_eq!(second.document["execution_id"], id, "{}", second.document);
        d.tool("cancel_execution", json!({ "execution_id": id, "force": true })).await;
    };
    let (ran, ()) = tokio::join!(task(&d, "s", json!({})), cancelling);
    expect_status(&ran, "cancelled");
    assert_eq!(ran.document["files_created"], json!(["begun.txt"]), "{}", ran.document);

    model.says_to_agent(json!([bash("sleep 5; echo done > after.txt"), { "text": "all done" }])).await;
    let arguments = json!({ "resume": false });
    let id = tokio::select! {
        ran = task(&d, "k", arguments) => panic!("it ended: {}", ran.document),
        id = running(&d, "k", "sleep 5") => id,
    };
    let store = d.crash().await;
    let d = daemon(&model).store(&store).start().await;
    let status = ended(&d, "k", &id).await;
    expect_status(&status, "completed");
    assert_eq!(status.document["files_created"], json!(["after.txt"]), "{}", status.document);
    assert_eq!(status.document["output"], "all done");
    d.stop().await;
}
