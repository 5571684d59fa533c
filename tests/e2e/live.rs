//! What observers see of runs: output while it is written, where the time went, and the state of the daemon.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Daemon, Ran, Request, TOKEN, events};

const BOTH: &str = "application/json, text/event-stream";

/// A call in MCP's newest revision: no session, and all notifications come in its own answer.
fn call(d: &Daemon, language: &str, code: &str) -> Request {
    let arguments = json!({ "language": language, "code": code, "conversationId": "s" });
    let meta = json!({
        "progressToken": "p",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    d.request("POST", "/mcp")
        .set("accept", BOTH)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "run_code")
        .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "run_code", "arguments": arguments, "_meta": meta } }))
}

/// The pieces of output in the notifications, with their streams.
fn pieces(text: &str) -> Vec<(Value, String)> {
    let told = events(text).into_iter().filter(|event| event["method"] == "notifications/progress");
    told.map(|event| {
        assert_eq!(event["params"]["progressToken"], "p");
        let message = event["params"]["message"].as_str().expect("a message").to_owned();
        (event["params"]["_meta"]["paddock/stream"].clone(), message)
    })
    .collect()
}

/// All output of one stream in the notifications.
fn told(text: &str, wanted: &str) -> String {
    pieces(text).into_iter().filter(|(stream, _)| stream == wanted).map(|(_, text)| text).collect()
}

/// The program continues only when its output was seen.
#[tokio::test]
async fn the_output_of_a_run_is_reported_while_it_runs() {
    let d = Daemon::with().set("pool.idle", 0).start().await;
    for language in ["sh", "python"] {
        let code = match language {
            "sh" => {
                "printf 'caf\\303'; printf '\\251 '; echo oops >&2; until [ -e /tmp/seen ]; do sleep 0.01; \
                 done; echo end"
            }
            _ => {
                "import sys, os, time\nprint('café ', end='')\nprint('oops', file=sys.stderr)\n\
                 while not os.path.exists('/tmp/seen'): time.sleep(0.01)\nprint('end')"
            }
        };
        let mut answer = call(&d, language, code).open().await;
        let seen =
            |text: &str| told(text, "stdout").contains("café") && told(text, "stderr").contains("oops");
        let before = answer.read_until("what it wrote so far", seen).await;
        assert!(!before.contains("end"), "{before}");
        let view = d.view().await;
        let container = view.the_container(language).await;
        view.exec(&container, &["touch", "/tmp/seen"]).await;
        let text = before + &answer.read_until("the answer", |text| text.contains("structuredContent")).await;
        assert_eq!(
            (told(&text, "stdout").as_str(), told(&text, "stderr").as_str()),
            ("café end\n", "oops\n"),
            "{text}"
        );
        let last = events(&text).pop().expect("an answer");
        Ran::of(last).expect_stdout("café end\n");
        d.session("s").tool("close_session").await;
    }
    d.stop().await;
}

/// The daemon keeps no more for a reader than it says, and the answer still has everything.
#[tokio::test]
async fn a_flood_is_reported_in_part_and_answered_completely() {
    let d = Daemon::start().await;
    let text = call(&d, "sh", "yes 0123456789 | head -c 4000000; echo; echo end").send().await.expect(200);
    let told = pieces(&text.text());
    let bytes: usize = told.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes > 0 && bytes <= 4_000_100, "{bytes}");
    let ran = Ran::of(events(&text.text()).pop().expect("an answer"));
    assert!(ran.stdout().len() > 90_000 && ran.document["stdout_truncated"] == true);
    let whole = d.fetch(ran.text("log_url")).await.expect(200).text();
    assert!(whole.len() == 4_000_005 && whole.ends_with("\nend\n"), "{}", whole.len());
    d.stop().await;
}

#[tokio::test]
async fn an_answer_contains_the_time_of_each_phase() {
    let d = Daemon::start().await;
    d.session("s").sh("true").await;
    // There was nothing to report before the answer, so it is not a stream.
    let answer = call(&d, "sh", "sleep 0.3; echo x > f").send().await.expect(200).json();
    let result = answer["result"].clone();
    let timing = &result["_meta"]["paddock/timing"];
    let ms = |key: &str| timing[key].as_f64().unwrap_or_else(|| panic!("{key} in {timing}"));
    let parts = ms("queued_ms") + ms("files_in_ms") + ms("program_ms") + ms("files_out_ms");
    assert!(ms("program_ms") >= 300.0 && ms("program_ms") < ms("total_ms"), "{timing}");
    assert!(parts <= ms("total_ms") && ms("files_out_ms") > 0.0, "{timing}");
    // Models read the document, which does not contain it.
    assert!(!result["structuredContent"].to_string().contains("queued"), "{result}");
    d.stop().await;
}

#[tokio::test]
async fn the_status_contains_the_daemons_state_and_the_callers_runs() {
    let d = Daemon::with().set("pool.idle", 1).start().await;
    d.request("GET", "/status").without("authorization").send().await.expect(401);
    let status =
        async |query: &str| d.request("GET", &format!("/status{query}")).send().await.expect(200).json();

    d.session("a b").sh("exit 3").await.expect_exit(3);
    d.session("c").sh("echo hello").await.expect_stdout("hello\n");
    d.session("c").tool("execute_code").with("command", "echo secret").await;
    let now = status("").await;
    assert_eq!((&now["engine"]["up"], &now["sessions"]["live"]), (&json!(true), &json!(2)), "{now}");
    assert_eq!(now["executions"], json!({ "running": 0, "max": 10 }));
    let pool = now["pool"].as_array().expect("a pool");
    let sh = pool.iter().find(|runner| runner["language"] == "sh").expect("a runner for sh");
    assert_eq!((&sh["leased"], &sh["target"], &sh["warm"]), (&json!(2), &json!(1), &json!(false)), "{now}");
    assert!(sh["image"].as_str().is_some_and(|image| image.starts_with("paddock-example-sh")), "{sh}");

    let recent = now["recent"].as_array().expect("a list").clone();
    let shown: Vec<_> = recent
        .iter()
        .map(|one| (&one["kind"], &one["session_id"], &one["status"], &one["exit_code"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("command"), &json!("c"), &json!("completed"), &json!(0)),
            (&json!("run"), &json!("c"), &json!("completed"), &json!(0)),
            (&json!("run"), &json!("a b"), &json!("failed"), &json!(3)),
        ],
        "{now}"
    );
    // Its owner sees the first line of each, and nobody else does.
    let titles: Vec<_> = recent.iter().map(|one| &one["title"]).collect();
    assert_eq!(titles, ["echo secret", "echo hello", "exit 3"], "{now}");
    assert!(recent[1]["duration_ms"].as_f64().is_some(), "{now}");
    let of_one = status("?session=a%20b").await["recent"].clone();
    assert_eq!((of_one.as_array().map(Vec::len), &of_one[0]["id"]), (Some(1), &recent[2]["id"]));
    d.stop().await;
}

/// The runs of one token are not shown to another.
#[tokio::test]
async fn the_status_shows_each_owner_its_own_runs() {
    let other = "another-token-of-somebody-else";
    let sha256: String = Sha256::digest(other).iter().map(|byte| format!("{byte:02x}")).collect();
    let tokens = toml::Table::from_iter(
        [("name", "other"), ("sha256", &sha256)].map(|(k, v)| (k.to_owned(), v.into())),
    );
    let d = Daemon::with().set("auth.tokens", vec![toml::Value::Table(tokens)]).start().await;
    d.session("mine").sh("true").await.expect_success();
    let recent = async |token: &str| {
        let answer =
            d.request("GET", "/status").without("authorization").bearer(token).send().await.expect(200);
        answer.json()["recent"].as_array().expect("a list").len()
    };
    assert_eq!((recent(TOKEN).await, recent(other).await), (1, 0));
    d.stop().await;
}
