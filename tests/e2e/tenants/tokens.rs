//! Tokens that come and go while the daemon runs, and what ends with them.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::ports::{raw_protocol, serve};

fn revoke(store: &Store, name: &str) {
    let revoked = token(store, &["revoke", name]);
    assert!(revoked.status.success(), "{revoked:?}");
}

/// The first status other than `while_it_is` of a request that is sent again and again, and after how long.
async fn changes(request: impl Fn() -> Request, while_it_is: u16) -> (u16, Duration) {
    let begun = Instant::now();
    let changed = async {
        loop {
            let status = request().send().await.status;
            if status != while_it_is {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    (within(PATIENCE, "another status", changed).await, begun.elapsed())
}

#[tokio::test]
async fn a_token_is_added_and_revoked_while_the_daemon_runs_and_all_that_it_has_open_ends() {
    let d = daemon().start().await;
    let status = |token: &str| Request::new(d.addr, "GET", "/status").bearer(token);
    let ann = add(&d.store, &["ann", "--limit", "runs=2"]);
    let (code, took) = changes(|| status(&ann), 401).await;
    eprintln!("a new token was taken after {took:?}");
    assert!(code == 200 && took < Duration::from_secs(2), "{code} after {took:?}");
    let bob = add(&d.store, &["bob"]);
    changes(|| status(&bob), 401).await;

    // Everything that a token can have open.
    let ran = python(&d, &ann, "s", "open('f', 'w').write('x' * 1000); print(1)").send().await.expect(200);
    let link = document(&ran)["files"][0]["url"].as_str().expect("a link").to_owned();
    d.fetch(&link).await.expect(200);
    let started = call(&d, &ann, "execute_code_async", json!({ "command": "sleep 300", "session_id": "s2" }));
    let started = document(&started.send().await.expect(200));
    assert!(started["execution_id"].is_string(), "{started}");
    let mut events = Request::new(d.addr, "GET", "/mcp/events").bearer(&ann).open().await;
    events.read_until("a beginning", |text| text.contains("paddock")).await;
    let running = tokio::spawn(python(&d, &ann, "s", "import time; time.sleep(300)").try_send());
    let beside = tokio::spawn(python(&d, &bob, "s", "import time; time.sleep(3); print('bob')").send());
    let before = |text: &str| text.contains(r#"paddock_tenant_in_use{kind="runs",tenant="ann"} 1"#);
    let scraped = || metrics(&d);
    within(PATIENCE, "ann's run", async {
        while !before(&scraped().await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    revoke(&d.store, "ann");
    let begun = Instant::now();
    let ended = within(PATIENCE, "an end of the stream", events.end());
    let (_, answered) = tokio::join!(ended, running);
    let took = begun.elapsed();
    eprintln!("a revoked token's stream and call ended after {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(answered.expect("a task").is_none_or(|answer| answer.status == 401));
    status(&ann).send().await.expect(401);
    assert_eq!(d.fetch(&link).await.status, 403, "its links are no good any more");
    // Its execution and its containers go; the other tenant's do not.
    within(PATIENCE, "an end of what ann had", async {
        while d.view().await.containers().await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(document(&beside.await.expect("a task").expect(200))["output"], "bob\n");
    // The files stay: a new token of the name has them.
    let again = add(&d.store, &["ann"]);
    changes(|| status(&again), 401).await;
    let read = python(&d, &again, "s", "print(len(open('f').read()))").send().await.expect(200);
    assert_eq!(document(&read)["output"], "1000\n");
    d.fetch(&link).await.expect(200);
    d.stop().await;
}

/// Sends the head of a request, and what is to follow it.
async fn begin(d: &Daemon, token: &str, head: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(d.addr).await.expect("a connection");
    let head = format!("{head} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n", d.addr);
    stream.write_all(head.as_bytes()).await.expect("it is read");
    stream.write_all(body).await.expect("it is read");
    stream
}

/// Reads until the connection is at its end, and counts the bytes.
async fn rest(mut stream: TcpStream) -> usize {
    let (mut all, mut buffer) = (0, vec![0; 1 << 16]);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        all += read;
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_connection_of_a_revoked_token_ends_at_once() {
    const LARGE: usize = 60_000_000;
    let d = daemon().start().await;
    let (ann, bob) = (add(&d.store, &["ann"]), add(&d.store, &["bob"]));
    for token in [&ann, &bob] {
        changes(|| Request::new(d.addr, "GET", "/status").bearer(token), 401).await;
        let made = format!("open('large', 'wb').truncate({LARGE})");
        let ran = python(&d, token, "web", &made).send().await.expect(200);
        assert_eq!(document(&ran)["success"], json!(true), "{}", ran.text());
        let served = json!({ "command": serve(""), "session_id": "web" });
        let started = document(&call(&d, token, "execute_code_async", served).send().await.expect(200));
        assert!(started["execution_id"].is_string(), "{started}");
        let home = || Request::new(d.addr, "GET", "/ports/web/8000/").bearer(token);
        within(PATIENCE, "a server", async {
            while home().send().await.status != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    let open = async |token: &str| {
        let arguments = json!({
            "language": "python", "code": "import time; time.sleep(300)", "conversationId": "c",
        });
        let params = json!({ "name": "run_code", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let call = call.to_string();
        let streamed = format!(
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Content-Length: {}\r\n\r\n{call}",
            call.len()
        );
        let upload = format!("Content-Length: {LARGE}\r\n\r\nbegun");
        let mut events = begin(&d, token, "GET /mcp/events", b"Accept: text/event-stream\r\n\r\n").await;
        let mut first = [0; 12];
        events.read_exact(&mut first).await.expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
        vec![
            ("a WebSocket", raw_protocol(d.addr, "/ports/web/8000/raw", Some(token)).await),
            ("an event stream", events),
            ("a streamed call", begin(&d, token, "POST /mcp", streamed.as_bytes()).await),
            ("an upload", begin(&d, token, "PUT /sessions/web/files/new", upload.as_bytes()).await),
            ("a download", begin(&d, token, "GET /sessions/web/files/large", b"\r\n").await),
        ]
    };
    let (of_ann, of_bob) = (open(&ann).await, open(&bob).await);
    // All of them have begun.
    let runs = r#"paddock_tenant_in_use{kind="runs",tenant="ann"} 1"#;
    let requests = r#"paddock_tenant_in_use{kind="requests",tenant="ann"} 4"#;
    within(PATIENCE, "what ann has open", async {
        loop {
            let text = metrics(&d).await;
            if text.contains(runs) && text.contains(requests) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut ends = JoinSet::new();
    let mark = d.log.mark();
    revoke(&d.store, "ann");
    let revoked = Instant::now();
    // Nobody reads the download before the daemon knows of the revocation: it would be at its end by then.
    let (of_ann, download): (Vec<_>, Vec<_>) =
        of_ann.into_iter().partition(|(what, _)| *what != "a download");
    let mut end = |(what, stream)| {
        ends.spawn(async move { (what, rest(stream).await, revoked.elapsed()) });
    };
    of_ann.into_iter().for_each(&mut end);
    d.log.line_since(mark, "every token of this name is revoked").await;
    download.into_iter().for_each(&mut end);
    while let Some(ended) = within(PATIENCE, "an end", ends.join_next()).await {
        let (what, bytes, took) = ended.expect("a task");
        eprintln!("{what} ended {took:?} after `paddock token revoke`, {bytes} bytes");
        assert!(took < Duration::from_secs(2), "{what}: {took:?}");
        assert!(bytes < LARGE, "{what} was served to its end");
    }
    Request::new(d.addr, "GET", "/sessions/web/files/new").bearer(&bob).send().await.expect(404);
    // Nothing of the other tenant's has ended.
    for (what, mut stream) in of_bob.into_iter().filter(|(what, _)| *what != "a download") {
        let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut [0; 1])).await;
        assert!(!matches!(read, Ok(Ok(0) | Err(_))), "{what} of another token ended");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_token_ends_at_its_time_and_a_broken_file_takes_nobodys_token() {
    let d = daemon().start().await;
    let status = |token: &str| Request::new(d.addr, "GET", "/status").bearer(token);
    let short = add(&d.store, &["short", "--expires", "10s"]);
    let long = add(&d.store, &["long"]);
    changes(|| status(&short), 401).await;
    // The daemon may have read the file before the second token was in it.
    changes(|| status(&long), 401).await;
    let (code, _) = changes(|| status(&short), 200).await;
    assert_eq!(code, 401);
    let file = d.store.path().join("tokens.toml");
    let good = std::fs::read(&file).expect("the file");
    let mark = d.log.mark();
    std::fs::write(&file, "[[tokens]]\nname = 7").expect("a broken file");
    d.log.line_since(mark, "stay good").await;
    let ready = || async { d.request("GET", "/ready").send().await.expect(200).json() };
    assert!(ready().await["degraded"][0].as_str().is_some_and(|why| why.contains("file of tokens")));
    status(&long).send().await.expect(200);
    let metrics = metrics(&d).await;
    assert!(metrics.contains("paddock_tokens_file_good 0"), "{metrics}");
    assert!(metrics.contains("paddock_degraded{what=\"tokens_outdated\"} 1"), "{metrics}");
    std::fs::write(&file, good).expect("the good file");
    within(PATIENCE, "a good file", async {
        while ready().await.get("degraded").is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    d.stop().await;
}

#[tokio::test]
async fn the_first_token_closes_an_open_daemon_and_the_last_one_does_not_open_it() {
    let d = Daemon::with().without_token().start().await;
    let status = || Request::new(d.addr, "GET", "/status");
    status().send().await.expect(200);
    let ann = add(&d.store, &["ann"]);
    assert_eq!(changes(status, 200).await.0, 401);
    status().bearer(&ann).send().await.expect(200);
    revoke(&d.store, "ann");
    assert_eq!(changes(|| status().bearer(&ann), 200).await.0, 401);
    status().send().await.expect(401);
    let listed = token(&d.store, &["list"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 1, "{listed:?}");
    d.stop().await;
}

#[tokio::test]
async fn no_tenant_reads_the_figures_of_others() {
    let d = daemon().start().await;
    let scrape = |token: &str| Request::new(d.addr, "GET", "/metrics").bearer(token);
    scrape(TOKEN).send().await.expect(200); // there is nobody else
    let ann = add(&d.store, &["ann"]);
    let ops = add(&d.store, &["ops", "--operator"]);
    assert_eq!(changes(|| scrape(&ops), 401).await.0, 200);
    let mut statuses = Vec::new();
    for token in [&ann, TOKEN] {
        let refused = scrape(token).send().await;
        statuses.push(refused.status);
        let said = refused.text();
        assert!(said.contains("metrics.token") && said.contains("operator"), "{said}");
        assert!(!said.contains("paddock_"), "{said}");
    }
    assert_eq!(statuses, [403, 403]);
    assert!(metrics(&d).await.contains(r#"tenant="ann""#));
    // Those who are alone see only themselves.
    for name in ["ops", "ann"] {
        revoke(&d.store, name);
    }
    assert_eq!(changes(|| scrape(TOKEN), 403).await.0, 200);
    d.stop().await;
}

#[tokio::test]
async fn a_file_of_tokens_that_is_gone_opens_nothing() {
    let d = Daemon::with().without_token().start().await;
    let status = |d: &Daemon| Request::new(d.addr, "GET", "/status");
    add(&d.store, &["ann"]);
    assert_eq!(changes(|| status(&d), 200).await.0, 401);
    let store = d.store.clone();
    d.stop().await;
    let file = store.path().join("tokens.toml");
    std::fs::remove_file(&file).expect("the file");
    let refused = Daemon::with().without_token().store(&store).refusal().await;
    assert!(refused.code == Some(2) && refused.said.contains("http.allow_open"), "{refused:?}");
    let open = Daemon::with().without_token().store(&store).set("http.allow_open", true).start().await;
    status(&open).send().await.expect(200);
    open.stop().await;
    // A file that is named guards from the start.
    let named = Daemon::with().without_token().store(&store);
    let d = named.set("auth.tokens_file", file.display().to_string()).start().await;
    status(&d).send().await.expect(401);
    let ann = add(&store, &["ann"]);
    assert_eq!(changes(|| status(&d).bearer(&ann), 401).await.0, 200);
    d.stop().await;
}
