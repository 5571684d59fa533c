//! The way in, for those who may not: what leads nowhere, other sessions and owners, too many connections,
//! and a hostile page in a real browser.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::clients::{NEWEST, Script};
use crate::ports::{daemon, listening, raw_protocol, serve};
use crate::support::{Answer, PATIENCE, Request, TOKEN, within};

#[tokio::test]
async fn what_leads_nowhere_is_refused_with_its_reason() {
    let d = daemon().set("ports.answer_timeout", "4s").set("ports.idle_timeout", "4s").start().await;
    let s = d.session("s");
    let served = listening(&d, &s, &serve("")).await;
    let error =
        |answer: Answer| (answer.status, answer.json()["error"].as_str().unwrap_or_default().to_owned());
    let is = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(error(served.get("/silent").await), is(504, "no_answer"));
    assert!(served.request("GET", "/drip").try_send().await.is_none(), "nothing moves: it is cut");
    // By token: no such session, no such port, no port at all.
    let by_token = async |path: &str| {
        let answer = d.request("GET", path).send().await;
        assert_eq!(answer.header("content-security-policy"), "sandbox", "{path}");
        error(answer)
    };
    assert_eq!(by_token("/ports/unknown/8000/").await, is(404, "not_found"));
    assert_eq!(by_token("/ports/s/8001/").await, is(502, "nothing_listens"));
    for port in ["0", "65536", "abc", "-1", "08000", "+8000", "", "8000x"] {
        assert_eq!(by_token(&format!("/ports/s/{port}/")).await, is(404, "not_found"), "{port}");
    }
    for method in ["TRACE", "CONNECT"] {
        let answer = served.request(method, "/").try_send().await;
        assert!(answer.is_none_or(|answer| answer.status == 405 || answer.status == 404), "{method}");
    }
    // PID 1's own: the resolver, and the proxy, whose port a run with a network is told.
    assert_eq!(by_token("/ports/s/53/").await, is(403, "reserved_port"));
    let config = json!({ "network": { "allowed_domains": ["pypi.org"] } });
    let ran = s.tool("execute_code").with("command", "echo $http_proxy").with("sandbox_config", config).await;
    let proxy = ran.said.split("127.0.0.1:").nth(1).expect("a proxy");
    let proxy: String = proxy.chars().take_while(char::is_ascii_digit).collect();
    assert_eq!(by_token(&format!("/ports/s/{proxy}/")).await, is(403, "reserved_port"));

    // On the listener: a signature is for one port of one session, and nothing else is there.
    let link = |path: &str| Request::new(served.addr(), "GET", path).bearer(TOKEN);
    let signature = served.prefix().split('/').nth(1).expect("a signature").to_owned();
    let zeros = "0".repeat(64);
    for path in [
        format!("/{signature}/s/8001/"),
        format!("/{signature}/t/8000/"),
        format!("/{zeros}/s/8000/"),
        format!("/{}/s/8000/", signature.to_uppercase()),
    ] {
        assert_eq!(error(link(&path).send().await), is(403, "forbidden"), "{path}");
    }
    for path in [
        "/",
        "/mcp",
        "/mcp/events",
        "/status",
        "/metrics",
        "/health",
        "/ready",
        "/page/page.js",
        "/files/s/x",
        "/logs/s/x",
        "/sessions/s/files",
        "/ports/s/8000/",
        "/favicon.ico",
        "//",
        "/../mcp",
    ] {
        assert_eq!(error(link(path).send().await), is(404, "not_found"), "{path}");
        let posted = Request::new(served.addr(), "POST", path).bearer(TOKEN).json(&json!({})).send().await;
        assert_eq!(error(posted), is(404, "not_found"), "POST {path}");
    }
    for port in ["0", "65536", "abc"] {
        assert_eq!(error(link(&format!("/{signature}/s/{port}/")).send().await), is(404, "not_found"));
    }
    // A foreign host changes nothing: without a signature there is nothing, with one everything.
    served.request("GET", "/").header("host", "evil.example").send().await.expect(200);
    // A closed session has no servers.
    let closed = d.tool("close_session", json!({ "session_id": "s" })).await;
    assert!(!closed.is_error, "{}", closed.document);
    let gone = async {
        // Until its container is gone, nothing listens there.
        loop {
            match error(served.get("/").await) {
                (404, code) => return code,
                (502, _) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(within(PATIENCE, "the end of the session", gone).await, "not_found");
    d.stop().await;
}

#[tokio::test]
async fn sessions_and_owners_do_not_reach_each_other() {
    let other: String = Sha256::digest("other").iter().map(|byte| format!("{byte:02x}")).collect();
    let tokens = toml::Value::Array(vec![
        toml::Table::from_iter([("name".to_owned(), "other".into()), ("sha256".to_owned(), other.into())])
            .into(),
    ]);
    let d = daemon().set("auth.tokens", tokens).start().await;
    let s = d.session("s");
    let served = listening(&d, &s, &serve("")).await;
    served.get("/").await.expect(200);
    // The same name in the hands of another owner is another session.
    let path = "/ports/s/8000/";
    Request::new(d.addr, "GET", path).bearer(TOKEN).send().await.expect(200);
    Request::new(d.addr, "GET", path).bearer("other").send().await.expect(404);
    let theirs = s.run("sh", "true").bearer("other").await;
    assert!(!theirs.is_error, "{}", theirs.document);
    Request::new(d.addr, "GET", path).bearer("other").send().await.expect(502);
    d.stop().await;
}

#[tokio::test]
async fn there_are_no_more_connections_than_may_be() {
    let d = daemon().set("ports.connections", 2).start().await;
    let served = listening(&d, &d.session("s"), &serve("")).await;
    let raw = async || raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    let (one, _two) = (raw().await, raw().await);
    let refused = served.get("/").await.expect(503);
    assert_eq!(
        (refused.json()["error"].clone(), refused.header("retry-after")),
        (json!("busy"), "1".to_owned())
    );
    drop(one);
    let free = async {
        while served.get("/").await.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, "a free place", free).await;
    d.stop().await;
}

#[tokio::test]
async fn one_tenant_does_not_have_all_connections() {
    let other: String = Sha256::digest("other").iter().map(|byte| format!("{byte:02x}")).collect();
    let tokens = toml::Value::Array(vec![
        toml::Table::from_iter([("name".to_owned(), "other".into()), ("sha256".to_owned(), other.into())])
            .into(),
    ]);
    let d = daemon().set("auth.tokens", tokens).set("ports.connections", 4).start().await;
    let served = listening(&d, &d.session("s"), &serve("")).await;
    let by_link = async || raw_protocol(served.addr(), &format!("{}/raw", served.prefix()), None).await;
    let _links = (by_link().await, by_link().await);
    let by_token = raw_protocol(d.addr, "/ports/s/8000/raw", Some(TOKEN)).await;
    // Three of four, by both ways in together.
    let refused = served.get("/").await.expect(503);
    assert!(refused.text().contains("while others have tokens too"), "{}", refused.text());
    d.request("GET", "/ports/s/8000/").send().await.expect(503);
    // The other tenant comes as far as its session, which has no server.
    let theirs = || Request::new(d.addr, "GET", "/ports/s/8000/").bearer("other");
    theirs().send().await.expect(404);
    drop(by_token);
    let free = async {
        while served.get("/").await.status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, "a free place", free).await;
    d.stop().await;
}

/// A page that tries to find something of the daemon's, and tells what it found. `DAEMON` is replaced.
const HOSTILE: &str = include_str!("ports/hostile.html");

#[tokio::test]
async fn a_hostile_page_finds_nothing_of_the_daemon() {
    for token in [true, false] {
        let setup = if token { daemon() } else { daemon().without_token() };
        let d = setup.start().await;
        let s = d.session("s");
        let page = HOSTILE.replace("DAEMON", &format!("http://{}", d.addr));
        for (name, content) in [("index.html", page.as_str()), ("worker.js", "onfetch = () => {}")] {
            let path = format!("/sessions/s/files/www/{name}");
            d.request("PUT", &path).body(content.to_owned()).send().await;
        }
        let served = listening(&d, &s, &serve("")).await;
        let own = format!("http://{}", d.addr);
        let by_token = format!("{own}/ports/s/8000/index.html");
        let words = [
            "ports.mjs",
            &format!("{}/index.html", served.link),
            &own,
            &by_token,
            if token { "token" } else { "open" },
        ];
        let mut script = Script::start(NEWEST, &words, &d, 0);
        let d = within(PATIENCE * 2, "the browser", script.follow(d, &[])).await;
        d.stop().await;
    }
}
