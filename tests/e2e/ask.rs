//! Approval: what a call does not allow is put to the user of its client, by MCP elicitation.
//!
//! The clients are the official SDK's, of both kinds: with sessions, and of 2026-07-28. What is allowed is
//! reached by a proxy of the test's own, which answers in place of public addresses.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorData, Implementation, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, RequestContext, RoleClient, RunningService, serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{Daemon, PATIENCE, Setup, Store, TOKEN, within};
use crate::upstream_proxy::{Asked, PUBLIC, behind, proxy};

/// A person at a client, who answers as was decided before, and then with `cancel`.
#[derive(Clone, Default)]
struct Person {
    answers: Arc<Mutex<VecDeque<ElicitationAction>>>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Whether the client says that it can ask.
    is_silent: bool,
    /// While set, questions are read and not answered.
    thinks: Option<Arc<Semaphore>>,
}

impl Person {
    fn who_says(answers: &[ElicitationAction]) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.iter().cloned().collect())), ..Self::default() }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = (!self.is_silent).then(ElicitationCapability::default);
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Err(ErrorData::invalid_params("a form", None));
        };
        self.asked.lock().expect("no panic").push(message);
        if let Some(thinks) = &self.thinks {
            drop(thinks.acquire().await);
        }
        let answer = self.answers.lock().expect("no panic").pop_front();
        Ok(ElicitResult::new(answer.unwrap_or(ElicitationAction::Cancel)))
    }
}

type Client = RunningService<RoleClient, Person>;

/// Both kinds of clients: with a session, and without any.
fn kinds() -> [ClientLifecycleMode; 2] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions }]
}

async fn connect(d: &Daemon, person: &Person, kind: ClientLifecycleMode) -> Client {
    let config = StreamableHttpClientTransportConfig::with_uri(format!("{}/mcp", d.url)).auth_header(TOKEN);
    let transport = StreamableHttpClientTransport::from_config(config);
    let connecting = serve_client_with_lifecycle(person.clone(), transport, kind);
    within(PATIENCE, "the handshake", connecting).await.expect("a handshake")
}

/// Runs a Python program that gets these URLs, in a session of this name.
async fn get(client: &Client, session: &str, urls: &str, network: Value) -> Value {
    let code = "
import sys, urllib.request
for url in sys.stdin.read().split():
    try: print(urllib.request.urlopen(url, timeout=50).read().decode())
    except OSError as e: print(type(e).__name__, e)
";
    let arguments = json!({ "code": code, "stdin": urls, "conversationId": session, "network": network });
    run(client, arguments).await
}

/// Runs a Python program.
async fn run(client: &Client, mut arguments: Value) -> Value {
    arguments["language"] = json!("python");
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let request = CallToolRequestParams::new("run_code").with_arguments(arguments);
    let done = within(PATIENCE, "run_code", client.call_tool(request)).await.expect("a result");
    done.structured_content.expect("a document")
}

fn listed() -> Value {
    json!({ "allowed_domains": ["listed.example"] })
}

/// A daemon that asks, behind a proxy that answers for all public addresses.
async fn asking(more: impl FnOnce(Setup) -> Setup) -> (Daemon, crate::egress::upstream::Upstream, Asked) {
    let (upstream, asked) = proxy("200 Connection established").await;
    let d = more(behind(&upstream).set("egress.ask", true)).start().await;
    (d, upstream, asked)
}

fn entry(ran: &Value, host: &str) -> Value {
    let all = ran["network"].as_array().unwrap_or_else(|| panic!("`network` in {ran}"));
    all.iter().find(|entry| entry["host"] == host).unwrap_or_else(|| panic!("{host} in {ran}")).clone()
}

#[tokio::test]
async fn a_person_is_asked_once_and_a_yes_holds_for_the_session() {
    for kind in kinds() {
        let (d, upstream, _) = asking(|setup| setup).await;
        let person = Person::who_says(&[ElicitationAction::Accept]);
        let client = connect(&d, &person, kind.clone()).await;
        let urls = "http://api.example/a http://api.example/b";
        let ran = get(&client, "s", urls, listed()).await;
        assert_eq!(ran["stdout"], "through\nthrough\n", "{kind:?}: {ran}");
        let reached = entry(&ran, "api.example");
        assert_eq!((&reached["allowed"], &reached["reason"]), (&json!(true), &Value::Null), "{ran}");
        let asked = person.asked();
        assert!(asked.len() == 1 && asked[0].contains("api.example:80"), "{kind:?}: {asked:?}");
        // A later run of the session; one of another session is asked for anew, and nobody says yes.
        let ran = get(&client, "s", "http://api.example/c", listed()).await;
        assert_eq!((&ran["stdout"], person.asked().len()), (&json!("through\n"), 1), "{ran}");
        let ran = get(&client, "t", "http://api.example/c", listed()).await;
        let blocked = entry(&ran, "api.example");
        let reason = "not in allowed_domains, and the caller did not approve it";
        assert_eq!((&blocked["allowed"], &blocked["reason"]), (&json!(false), &json!(reason)), "{ran}");
        assert_eq!((person.asked().len(), upstream.connections()), (2, 3), "{kind:?}");
        // A run without a network has nobody to ask.
        let ran = get(&client, "s", "http://api.example/d", Value::Bool(false)).await;
        assert!(ran.get("network").is_none() && person.asked().len() == 2, "{ran}");
        let metrics = d.request("GET", "/metrics").send().await.expect(200).text();
        assert!(metrics.contains("paddock_egress_blocked_total{reason=\"not_approved\"} 1\n"), "{metrics}");
        client.cancel().await.expect("an end");
        d.stop().await;
    }
}

/// It looks the name up, and connects by itself.
#[tokio::test]
async fn a_program_that_knows_no_proxy_waits_for_the_answer_too() {
    let (d, _upstream, _) = asking(|setup| setup).await;
    let person = Person::who_says(&[ElicitationAction::Accept, ElicitationAction::Decline]);
    let client = connect(&d, &person, ClientLifecycleMode::Initialize).await;
    let code = "
import asyncio, socket
request = b'GET / HTTP/1.0\\r\\n\\r\\n'
with socket.create_connection(('api.example', 80), 50) as s:
    s.sendall(request); print(s.recv(1000).endswith(b'through'))
async def main():
    r, w = await asyncio.open_connection('api.example', 80)
    w.write(request); print((await r.read(1000)).endswith(b'through'))
    await asyncio.open_connection('api.example', 81)
try: asyncio.run(main())
except OSError as e: print(type(e).__name__)";
    let ran = run(&client, json!({ "code": code, "network": listed() })).await;
    assert_eq!(ran["stdout"], "True\nTrue\nPermissionError\n", "{ran}");
    let asked = person.asked();
    assert!(asked.len() == 2 && asked[1].contains("api.example:81"), "{asked:?}");
    client.cancel().await.expect("an end");
    d.stop().await;
}

#[tokio::test]
async fn what_no_yes_can_allow_is_never_asked_for_and_questions_are_bounded() {
    for kind in kinds() {
        let (d, upstream, _) = asking(|setup| {
            setup.set("egress.deny", vec!["denied.example".to_owned()]).set("egress.prompts", 2)
        })
        .await;
        let person = Person::who_says(&[ElicitationAction::Decline, ElicitationAction::Cancel]);
        let client = connect(&d, &person, kind.clone()).await;
        let never = "http://denied.example/ http://mine.example/ http://10.0.0.1/ http://127.0.0.1/ \
                     http://169.254.169.254/";
        let asked = "http://one.example/ http://one.example/ http://two.example/ http://three.example/";
        let network = json!({ "allowed_domains": ["listed.example"], "denied_domains": ["mine.example"] });
        let ran = get(&client, "s", &format!("{never} {asked}"), network).await;
        let output = ran["stdout"].as_str().unwrap_or_default();
        assert!(output.lines().all(|line| line.contains("Error")), "{kind:?}: {ran}");
        let seen = person.asked();
        assert_eq!(seen.len(), 2, "{kind:?}: {seen:?}");
        assert!(seen[0].contains("one.example:80") && seen[1].contains("two.example:80"), "{seen:?}");
        for (host, reason) in [
            ("denied.example", "in egress.deny"),
            ("mine.example", "in denied_domains"),
            ("two.example", "not in allowed_domains, and the caller did not approve it"),
            ("three.example", "not in allowed_domains, and this run has asked its caller as often as it may"),
        ] {
            assert_eq!(entry(&ran, host)["reason"], reason, "{ran}");
        }
        assert_eq!(upstream.connections(), 0);
        client.cancel().await.expect("an end");
        d.stop().await;
    }
}

#[tokio::test]
async fn in_mode_restricted_nobody_is_asked_beyond_the_operators_list() {
    let allow = vec!["api.example".to_owned(), "other.example".to_owned()];
    let (d, _upstream, _) =
        asking(|setup| setup.set("egress.mode", "restricted").set("egress.allow", allow)).await;
    let person = Person::who_says(&[ElicitationAction::Accept]);
    let client = connect(&d, &person, ClientLifecycleMode::Initialize).await;
    let network = json!({ "allowed_domains": ["other.example"] });
    let ran = get(&client, "s", "http://elsewhere.example/ http://api.example/", network).await;
    assert_eq!(person.asked().len(), 1, "{ran}");
    assert_eq!(entry(&ran, "elsewhere.example")["reason"], "not in allowed_domains");
    assert!(ran["stdout"].as_str().is_some_and(|output| output.ends_with("through\n")), "{ran}");
    client.cancel().await.expect("an end");
    d.stop().await;
}

#[tokio::test]
async fn a_client_that_cannot_ask_gets_the_refusal_at_once() {
    for kind in kinds() {
        let (d, _upstream, _) = asking(|setup| setup).await;
        let person = Person { is_silent: true, ..Person::default() };
        let client = connect(&d, &person, kind).await;
        let ran = get(&client, "s", "http://api.example/", listed()).await;
        assert_eq!(entry(&ran, "api.example")["reason"], "not in allowed_domains", "{ran}");
        assert!(person.asked().is_empty());
        client.cancel().await.expect("an end");
        d.stop().await;
    }
}

#[tokio::test]
async fn no_answer_in_time_is_a_no() {
    for kind in kinds() {
        let (d, upstream, _) = asking(|setup| setup.set("egress.prompt_timeout", "1s")).await;
        let thinks = Arc::new(Semaphore::new(0));
        let person =
            Person { thinks: Some(thinks.clone()), ..Person::who_says(&[ElicitationAction::Accept]) };
        let client = connect(&d, &person, kind.clone()).await;
        let running = get(&client, "s", "http://api.example/", listed());
        let ran = if matches!(kind, ClientLifecycleMode::Initialize) {
            running.await
        } else {
            // This client comes back only when its person has answered: too late.
            let late = async {
                d.log.line("the caller was asked").await;
                thinks.add_permits(1);
            };
            tokio::join!(running, late).0
        };
        let reason = "not in allowed_domains, and the caller did not approve it";
        assert_eq!(entry(&ran, "api.example")["reason"], reason, "{ran}");
        assert_eq!((person.asked().len(), upstream.connections()), (1, 0));
        thinks.add_permits(1);
        client.cancel().await.expect("an end");
        d.stop().await;
    }
}

#[tokio::test]
async fn a_state_of_a_round_counts_once_and_for_its_own_tool_and_token() {
    let (d, _upstream, _) = asking(|setup| setup).await;
    let person = Person::default();
    let client = connect(&d, &person, kinds()[1].clone()).await;
    let code = "import urllib.request; print(urllib.request.urlopen('http://api.example/').read())";
    let arguments = json!({ "language": "python", "code": code, "conversationId": "s", "network": listed() });
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let request = CallToolRequestParams::new("run_code").with_arguments(arguments);
    let first = within(PATIENCE, "the first round", client.call_tool_once(request.clone())).await;
    let rmcp::model::CallToolResponse::InputRequired(asks) = first.expect("a round") else {
        panic!("a question")
    };
    let state = asks.request_state.expect("a state");
    let inputs = asks.input_requests.expect("a question");
    let key = inputs.keys().next().expect("one").clone();
    let yes = || [(key.clone(), json!({ "action": "accept" }))].into();
    let other_tool = CallToolRequestParams::new("run_python").with_request_state(state.clone());
    for wrong in [
        other_tool.with_arguments(json!({ "code": "1" }).as_object().expect("an object").clone()),
        request.clone().with_request_state("0".repeat(32)).with_input_responses(yes()),
        request.clone().with_request_state("").with_input_responses(yes()),
    ] {
        let refused = client.call_tool_once(wrong).await.expect_err("no such state");
        assert!(refused.to_string().contains("requestState"), "{refused}");
    }
    let again = request.with_request_state(state).with_input_responses(yes());
    let done = within(PATIENCE, "the second round", client.call_tool_once(again.clone())).await;
    let rmcp::model::CallToolResponse::Complete(done) = done.expect("a result") else { panic!("a result") };
    assert_eq!(done.structured_content.expect("a document")["stdout"], "b'through'\n");
    client.call_tool_once(again).await.expect_err("it counts once");
    client.cancel().await.expect("an end");
    d.stop().await;
}

#[tokio::test]
async fn a_call_that_its_client_takes_back_ends_while_a_person_thinks() {
    let (d, _upstream, _) = asking(|setup| setup).await;
    let person = Person { thinks: Some(Arc::new(Semaphore::new(0))), ..Person::default() };
    let client = connect(&d, &person, ClientLifecycleMode::Initialize).await;
    tokio::select! {
        ran = get(&client, "s", "http://api.example/", listed()) => panic!("nobody has answered: {ran}"),
        () = async { while person.asked().is_empty() { tokio::task::yield_now().await } } => {}
    }
    client.cancel().await.expect("an end");
    // The session is free again: the program ends with its client.
    let ran = d.session("s").python("print(1)").await.expect_success();
    assert_eq!(ran.text("output"), "1\n");
    d.stop().await;
}

#[tokio::test]
async fn a_bare_call_is_refused_at_once_and_asks_nobody() {
    let (d, _upstream, _) = asking(|setup| setup).await;
    let ran = d
        .session("s")
        .python("import urllib.request as u; u.urlopen('http://api.example/')")
        .with("network", listed())
        .await;
    assert_eq!(entry(&ran.document, "api.example")["reason"], "not in allowed_domains", "{}", ran.document);
    d.stop().await;
}

#[tokio::test]
async fn a_client_on_standard_input_is_asked() {
    let (upstream, _) = proxy("200 Connection established").await;
    let store = Store::new();
    let file = store.path().join("stdio.toml");
    let config = format!(
        "pool.idle = 0\n[egress]\nmode = \"open\"\nask = true\nupstream_proxy = \"http://{}\"\n\
         hosts = {{ \"api.example\" = \"{PUBLIC}\" }}\n",
        upstream.addr
    );
    std::fs::write(&file, config).expect("a configuration file");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_paddock"));
    command.args(["stdio", "--addr", "127.0.0.1:0", "--config"]).arg(&file).env_clear();
    command.env("SANDBOX_ROOT", store.path()).kill_on_drop(true);
    if let Ok(host) = std::env::var("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the daemon's binary");
    let pipes = (child.stdout.take().expect("it is piped"), child.stdin.take().expect("it is piped"));
    let person = Person::who_says(&[ElicitationAction::Accept]);
    let client = within(PATIENCE, "the handshake", person.clone().serve(pipes)).await.expect("a handshake");
    let ran = get(&client, "s", "http://api.example/", listed()).await;
    assert_eq!((&ran["stdout"], person.asked().len()), (&json!("through\n"), 1), "{ran}");
    client.cancel().await.expect("an end");
    within(PATIENCE, "the end", child.wait()).await.expect("an end");
}
