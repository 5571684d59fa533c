//! Models: programs reach them as services, and the daemon counts what their answers cost and keeps budgets.

use std::process::Command;

use serde_json::{Value, json};

use crate::model::Model;
use crate::support::{Daemon, Ran, Setup};

/// The key. Nothing of this test but the daemon and the model knows it; programs are given no part.
const KEY: &str = "sk-ant-e2e-5d1c77f0a9b34e62";

/// A table of the configuration.
fn table(document: Value) -> toml::Value {
    serde_json::from_value(document).expect("a table")
}

/// A daemon without any network but the models `claude` and `local`: one with a key, one without.
fn daemon(model: &Model, per_day: f64) -> Setup {
    let price = json!({ "input": 1000.0, "output": 10000.0, "cache_read": 100.0, "cache_write": 2000.0 });
    Daemon::with()
        .set("egress.mode", "none")
        .set(
            "models.claude",
            table(json!({ "provider": "anthropic", "url": model.url(), "key": "env:MODEL_KEY",
                "tenant_usd_per_day": per_day, "prices": { "priced-*": price } })),
        )
        .set(
            "models.local",
            table(json!({ "provider": "openai", "url": model.url(), "prices": { "priced-*": price } })),
        )
        .env("MODEL_KEY", KEY)
}

/// Lines of Python that ask a model.
const ASK: &str = "import json, requests
def ask(service, path, model='priced-1', **more):
    body = {'model': model, 'max_tokens': 50, 'messages': [{'role': 'user', 'content': 'hi'}], **more}
    r = requests.post(f'http://{service}.paddock/v1/{path}', json=body, headers={'x-api-key': 'mine'})
    return r
def said(r):
    try: return json.dumps(r.json().get('error'))
    except ValueError: return r.text
";

fn services(names: &[&str]) -> Value {
    json!({ "services": names })
}

#[track_caller]
fn expect_used(ran: &Ran, requests: u64, tokens: [u64; 4], cost: f64) {
    let used = &ran.document["models"];
    let count = |name: &str| used[name].as_u64();
    let told = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"].map(&count);
    assert_eq!((count("requests"), told), (Some(requests), tokens.map(Some)), "{used}");
    let told = used["cost_usd"].as_f64().expect("a number");
    assert!((told - cost).abs() < 1e-9, "{cost} is wanted: {used}");
}

#[tokio::test]
async fn every_form_of_answer_is_passed_on_and_counted_with_its_price() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.0).start().await;
    let used = json!({ "input": 10, "output": 5, "cache_read": 100, "cache_write": 0 });
    let turn = json!({ "text": "Good morning", "usage": used });
    model.says(json!([turn, turn, turn, turn, turn, turn])).await;
    let code = format!(
        "{ASK}
for service, path in (('claude', 'messages'), ('local', 'chat/completions'), ('local', 'responses')):
    print(json.loads(ask(service, path).text)['model'])
    text = ask(service, path, stream=True, stream_options={{'include_usage': True}}).text
    print('Good m' in text, text.count('data:'))
print(requests.post('http://claude.paddock/v1/messages/count_tokens', json={{}}).json())
print(requests.get('http://claude.paddock/v1/models').status_code)
r = requests.post('http://claude.paddock/v1/messages/batches', json={{}})
print(r.status_code, r.json()['error']['type'])"
    );
    let ran = d.session("s").python(&code).with("network", services(&["claude", "local"])).await;
    let expected = "priced-1\nTrue 8\npriced-1\nTrue 6\npriced-1\nTrue 8\n{'input_tokens': 10}\n200\n404 \
                    not_found_error\n";
    assert_eq!(ran.stdout(), expected, "{}", ran.document);
    // A request costs 10 * 1000 + 5 * 10000 + 100 * 100 millionths of a dollar.
    expect_used(&ran, 6, [60, 30, 600, 0], 6.0 * 0.07);
    let seen = model.seen().await;
    let sent = |name: &str| -> Vec<Value> { seen.iter().map(|one| one["headers"][name].clone()).collect() };
    // The key goes to its own model only, and in the place of the program's.
    let (own, theirs) = (json!(KEY), json!("mine"));
    let expected = [&own, &own, &theirs, &theirs, &theirs, &theirs, &own, &own].map(Clone::clone);
    assert_eq!(sent("x-api-key"), expected);
    assert!(sent("accept-encoding").iter().all(|value| value == "identity"), "{seen:?}");
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    for line in [
        "paddock_model_requests_total{model=\"claude\",outcome=\"answered\"} 2",
        "paddock_model_requests_total{model=\"claude\",outcome=\"refused\"} 1",
        "paddock_model_requests_total{model=\"local\",outcome=\"answered\"} 4",
        "paddock_model_tokens_total{kind=\"cache_read\",model=\"local\"} 400",
        "paddock_model_cost_dollars_total{model=\"claude\"} 0.14",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    d.stop().await;
}

#[tokio::test]
async fn budgets_refuse_the_next_request_and_models_without_a_price() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.15).start().await;
    let s = d.session("s");
    // Each answer costs 0.01 + 0.05 dollars.
    let code = format!(
        "{ASK}
for _ in range(3):
    r = ask('local', 'chat/completions')
    print(r.status_code, said(r))"
    );
    let network = json!({ "services": ["local"], "max_cost_usd": 0.1 });
    let ran = s.python(&code).with("network", network).await;
    let used_up = "{\"message\": \"the budget of this run for models, 0.1 dollars, is used up: it has spent \
                   0.12 dollars\", \"type\": \"insufficient_quota\", \"param\": null, \
                   \"code\": \"budget_used_up\"}";
    ran.expect_stdout(&format!("200 null\n200 null\n402 {used_up}\n"));
    let network = json!({ "services": ["local"], "max_cost_usd": 0.1 });
    let ran = s
        .python(&format!("{ASK}print(said(ask('local', 'chat/completions', model='other')))"))
        .with("network", network)
        .await;
    assert!(ran.stdout().contains("has no price on this server"), "{}", ran.document);
    assert_eq!(ran.document.get("models"), None, "nothing was sent: {}", ran.document);
    assert_eq!(model.seen().await.len(), 2);

    // A tenant's day: 0.15 dollars, for all its runs, and for the next daemon.
    let ask = format!("{ASK}r = ask('claude', 'messages')\nprint(r.status_code, said(r))");
    for session in ["a", "b", "c"] {
        let ran = d.session(session).python(&ask).with("network", services(&["claude"])).await;
        ran.expect_stdout("200 null\n");
    }
    let used_up = "402 {\"type\": \"billing_error\", \"message\": \"the budget of this caller for the model \
                   \\\"claude\\\", 0.15 dollars a day, is used up: 0.18 dollars were spent today (UTC)\"}\n";
    d.session("d").python(&ask).with("network", services(&["claude"])).await.expect_stdout(used_up);
    let store = d.crash().await;
    let d = daemon(&model, 0.15).store(&store).start().await;
    d.session("e").python(&ask).with("network", services(&["claude"])).await.expect_stdout(used_up);
    d.stop().await;
}

#[tokio::test]
async fn errors_garbage_and_half_a_stream_are_passed_on_unchanged_and_counted() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.0).start().await;
    model
        .says(json!([
            { "status": 401, "error": "no" },
            { "status": 429, "error": "slow down", "headers": { "retry-after": "7" } },
            { "status": 500 },
            { "status": 529 },
            { "raw": "<html>{\"usage\": [[" },
            { "text": "Good morning", "cut": 5, "usage": { "input": 40 } },
            { "text": "Good morning", "usage": null },
        ]))
        .await;
    let code = format!(
        "{ASK}
for _ in range(4):
    r = ask('claude', 'messages')
    said = [r.headers.get(name) for name in ('retry-after', 'x-should-retry')]
    print(r.status_code, *said, r.json()['error']['type'])
print(ask('claude', 'messages').text)
try: print(ask('claude', 'messages', stream=True))
except requests.RequestException as error: print(type(error).__name__)
print('Good' in ask('claude', 'messages', stream=True).text)"
    );
    let ran = d.session("s").python(&code).with("network", services(&["claude"])).await;
    let errors = "401 None false authentication_error\n429 7 None rate_limit_error\n500 None None \
                  api_error\n529 None None overloaded_error\n";
    let expected = format!("{errors}<html>{{\"usage\": [[\nChunkedEncodingError\nTrue\n");
    assert_eq!(ran.stdout(), expected, "{}", ran.document);
    // Two bytes are a token. `Good m` was read before the cut, twelve bytes of the whole stream.
    let used = &ran.document["models"];
    assert_eq!(used["requests"], 7, "{used}");
    let sizes: Vec<u64> = model.seen().await.iter().map(|one| size(&one["headers"])).collect();
    let input = sizes[4].div_ceil(2) + 40 + sizes[6].div_ceil(2);
    assert_eq!(
        (used["input_tokens"].as_u64(), used["output_tokens"].as_u64()),
        (Some(input), Some(12)),
        "{used}"
    );
    let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
    for (outcome, count) in [("answered", 0), ("estimated", 3), ("error", 4)] {
        let line = format!("paddock_model_requests_total{{model=\"claude\",outcome=\"{outcome}\"}} {count}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    d.stop().await;
}

fn size(headers: &Value) -> u64 {
    headers["content-length"].as_str().and_then(|text| text.parse().ok()).expect("a length")
}

#[tokio::test]
async fn what_a_command_has_used_is_told_while_it_runs_and_survives_the_daemon() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.0).start().await;
    let code = format!("{ASK}print(said(ask('local', 'chat/completions')))");
    let command = format!(
        "cat > /tmp/ask.py <<'END'\n{code}\nEND\n\
         python3 /tmp/ask.py; read go; python3 /tmp/ask.py"
    );
    let config = json!({ "network": { "services": ["local"], "max_cost_usd": 0.05 } });
    let s = d.session("s");
    let begun = s
        .tool("execute_code_async")
        .with("command", command)
        .with("interactive", true)
        .with("sandbox_config", config)
        .await;
    let id = begun.text("execution_id").to_owned();
    let read = json!({ "execution_id": id, "wait": true, "since": 1 });
    let ran = d.tool("get_execution_output", read.clone()).await;
    assert!(ran.document["output"].to_string().contains("null"), "{}", ran.document);
    let status = json!({ "execution_id": id });
    expect_used(&d.tool("get_execution_status", status.clone()).await, 1, [10, 5, 0, 0], 0.06);
    let noted = || {
        let mut notes = std::fs::read_dir(d.store.path().join("networks")).expect("a folder").flatten();
        notes.any(|note| std::fs::read_to_string(note.path()).unwrap_or_default().contains("\"requests\":1"))
    };
    crate::support::within(crate::support::PATIENCE, "a note of what it used", async {
        while !noted() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let store = d.crash().await;
    let d = daemon(&model, 0.0).store(&store).start().await;
    d.tool("send_stdin", json!({ "execution_id": id, "input_data": "go\n" })).await;
    let mut ran = d.tool("get_execution_output", read.clone()).await;
    while ran.document["status"] == "running" {
        ran = d.tool("get_execution_output", read.clone()).await;
    }
    assert!(ran.document.to_string().contains("budget_used_up"), "{}", ran.document);
    expect_used(&d.tool("get_execution_status", status).await, 1, [10, 5, 0, 0], 0.06);
    assert_eq!(model.seen().await.len(), 1);
    d.stop().await;
}

#[tokio::test]
async fn the_key_is_nowhere_but_at_the_model() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.0).set("log.level", "trace").start().await;
    // The model tells it back, in a text, in pieces of a stream, and in an error.
    model
        .says(json!([
            { "text": KEY },
            { "text": format!("{KEY} {KEY}"), "tools": [{ "name": "Bash", "input": { "command": KEY } }] },
            { "status": 401, "error": format!("{KEY} is no key") },
        ]))
        .await;
    let code = format!(
        "{ASK}
r = ask('claude', 'messages')
open('/data/got', 'w').write(r.text + repr(r.headers))
print(r.json()['content'][0]['text'])
print('*' * 10 in ask('claude', 'messages', stream=True).text)
print(said(ask('claude', 'messages')))"
    );
    let ran = d.session("s").python(&code).with("network", services(&["claude"])).await.expect_success();
    let stars = "*".repeat(KEY.len());
    let error = format!("{{\"type\": \"authentication_error\", \"message\": \"{stars} is no key\"}}");
    assert_eq!(ran.stdout(), format!("{stars}\nTrue\n{error}\n"));
    assert!(model.seen().await.iter().all(|request| request["headers"]["x-api-key"] == KEY));
    let container = d.view().await.the_container("python").await;
    let copied = Command::new("docker").args(["export", container.as_str()]).output().expect("docker");
    assert!(copied.status.success() && copied.stdout.len() > 1 << 20, "{copied:?}");
    assert!(memchr::memmem::find(&copied.stdout, KEY.as_bytes()).is_none(), "a file of the container has it");
    let inspected = Command::new("docker").args(["inspect", container.as_str()]).output().expect("docker");
    for (what, text) in [
        ("the answer", format!("{ran:?}")),
        ("inspect", String::from_utf8_lossy(&inspected.stdout).into_owned()),
        ("metrics", d.request("GET", "/metrics").send().await.expect(200).text()),
        ("status", d.request("GET", "/status").send().await.expect(200).text()),
    ] {
        assert!(!text.contains(KEY) && text.len() > 100, "{what}: {text}");
    }
    let store = d.store.clone();
    let log = d.stop().await.text();
    assert!(!log.contains("5d1c77f0a9b34e62") && log.len() > 2000, "the log has it");
    let found = Command::new("grep").args(["-rlaF", KEY]).arg(store.path()).output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "the store has it");
}

#[tokio::test]
async fn events_of_a_model_arrive_one_by_one_and_a_caller_has_only_its_own_models() {
    let mut model = Model::start().await;
    let d = daemon(&model, 0.0).start().await;
    model.says(json!([{ "text": "Good morning", "hold": true }])).await;
    let code = format!(
        "{ASK}
r = requests.post('http://claude.paddock/v1/messages', json={{'model': 'm', 'stream': True}}, stream=True)
count = 0
for line in r.iter_lines(chunk_size=1):
    count += 1
    if count < 4: print(line.decode(), flush=True)
print(count > 20)"
    );
    let command = format!("cat > /tmp/a.py <<'END'\n{code}\nEND\npython3 /tmp/a.py");
    let config = json!({ "network": { "services": ["claude"] } });
    let s = d.session("s");
    let begun = s.tool("execute_code_async").with("command", command).with("sandbox_config", config).await;
    let id = begun.text("execution_id").to_owned();
    let read = json!({ "execution_id": id, "wait": true, "since": 2 });
    let ran = d.tool("get_execution_output", read).await;
    assert!(ran.document["output"].to_string().contains("message_start"), "{}", ran.document);
    assert_eq!(ran.document["status"], "running", "the model waits: {}", ran.document);
    model.release().await;
    let read = json!({ "execution_id": id, "wait": true, "since": 0 });
    let mut ran = d.tool("get_execution_output", read.clone()).await;
    while ran.document["status"] == "running" {
        ran = d.tool("get_execution_output", read.clone()).await;
    }
    assert!(ran.document["output"].to_string().contains("True"), "{}", ran.document);
    let refused =
        s.python("1").with("network", services(&["anthropic"])).await.expect_error("invalid_argument");
    assert!(refused.said.contains("it may use claude, local"), "{}", refused.said);
    d.stop().await;
}
