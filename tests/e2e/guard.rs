//! Which callers are accepted, which requests are refused, and when a daemon refuses to start.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use sha2::{Digest, Sha256};

use crate::support::{Daemon, Request, within};

#[tokio::test]
async fn only_a_token_gives_access_to_the_tools() {
    let d = Daemon::start().await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let post = || Request::new(d.addr, "POST", "/mcp").json(&list);
    for request in [
        post(),
        post().header("authorization", ""),
        post().header("authorization", "Bearer"),
        post().header("authorization", "Bearer wrong"),
        post().header("authorization", "Basic dDp0"),
        post().header("authorization", "the-token-of-these-tests"),
        post().header("authorization", "Bearer the-token-of-these-tests").header("authorization", "Bearer x"),
        post().header("cookie", "token=the-token-of-these-tests"),
        Request::new(d.addr, "GET", "/mcp"),
        Request::new(d.addr, "DELETE", "/mcp"),
    ] {
        let answer = request.send().await.expect(401);
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        assert!(!answer.text().contains("the-token"), "{}", answer.text());
    }
    post().header("authorization", "bearer the-token-of-these-tests").send().await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn two_owners_never_share_files_though_their_conversations_have_the_same_name() {
    let digest = |token: &str| paddock::id::hex(&Sha256::digest(token));
    let token = |name: &str, text: &str| {
        toml::Value::Table(
            toml::toml! { name = "" sha256 = "" }
                .into_iter()
                .map(|(key, _)| {
                    let value = if key == "name" { name.to_owned() } else { digest(text) };
                    (key, value.into())
                })
                .collect(),
        )
    };
    let tokens = vec![token("alice", "alice-1"), token("alice", "alice-2"), token("bob", "bob-1")];
    let d = Daemon::with().set("auth.tokens", tokens).start().await;
    let s = d.session("same");
    let run = |bearer: &'static str, code: &'static str| s.python(code).bearer(bearer);
    let ran = run("alice-1", "open('a', 'w').write('of alice')").await.expect_success();
    run("bob-1", "import os; print(os.listdir('/data'))").await.expect_stdout("[]\n");
    s.python("import os; print(os.listdir('/data'))").await.expect_stdout("[]\n");
    run("alice-2", "print(open('/data/a').read())").await.expect_stdout("of alice\n");
    assert_eq!(d.fetch(&ran.link("a")).await.expect(200).text(), "of alice");
    // The same name in the other's session is another file.
    let theirs = run("bob-1", "open('a', 'w').write('of bob')").await.expect_success();
    assert_ne!(ran.link("a"), theirs.link("a"));
    assert_eq!(d.fetch(&theirs.link("a")).await.expect(200).text(), "of bob");
    assert_eq!(d.fetch(&ran.link("a")).await.expect(200).text(), "of alice");
    assert_eq!(d.view().await.containers().await.len(), 3);
    d.stop().await;
}

#[tokio::test]
async fn conversations_that_look_alike_are_not_the_same() {
    let d = Daemon::start().await;
    let long = "x".repeat(256);
    let ids = [
        "../A",
        "A",
        "a",
        "A\n",
        "A ",
        " A",
        "A\0",
        "\u{e9}",
        "e\u{301}",
        "a/b",
        "a_b",
        "a-b",
        "-rf",
        "$(id)",
        "\"; x",
        ".",
        "..",
        "\u{1f600}",
        "\u{202e}A",
        "label=x,managed=false",
        "a%2Fb",
        "A%00",
        &long,
        &long[..255],
    ];
    for id in ids {
        d.session(id).upload("f", id.as_bytes()).await.expect_success();
    }
    for id in ids {
        let ran = d.session(id).upload("g", b"").await.expect_success();
        let link = ran.document["file"]["url"].as_str().expect("a link").to_owned();
        d.fetch(&link).await.expect(200);
        let mut dirs = 0;
        for entry in std::fs::read_dir(d.store.path()).expect("the store").flatten() {
            let file = entry.path().join("files/f");
            dirs += usize::from(std::fs::read(file).is_ok_and(|content| content == id.as_bytes()));
        }
        assert_eq!(dirs, 1, "{id:?}");
    }
    d.stop().await;
}

#[tokio::test]
async fn foreign_hosts_are_refused_unless_the_request_has_a_credential() {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let foreign = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "0.0.0.0",
        "",
        "paddock:8080",
    ];
    let open = Daemon::with().without_token().start().await;
    let guarded = Daemon::start().await;
    for (path, method) in
        [("/mcp", "POST"), ("/", "GET"), ("/page/main.js", "GET"), ("/status", "GET"), ("/metrics", "GET")]
    {
        for host in foreign {
            // A token changes nothing where none is configured; a wrong one changes nothing anywhere.
            for (d, token) in [(&open, "Bearer any"), (&open, ""), (&guarded, "Bearer any"), (&guarded, "")] {
                let request = Request::new(d.addr, method, path).json(&list).header("host", host);
                let answer = request.header("authorization", token).send().await.expect(403);
                assert_eq!(answer.json()["error"], "forbidden_host", "{path} {host}");
            }
            guarded.request(method, path).json(&list).header("host", host).send().await.expect(200);
        }
        // The host of a target in absolute form counts.
        let target = format!("http://evil.example{path}");
        let request = Request::new(open.addr, method, &target).json(&list).header("host", "localhost");
        assert_eq!(request.send().await.expect(403).json()["error"], "forbidden_host", "{target}");
    }
    for d in [&open, &guarded] {
        for host in foreign {
            for path in ["/health", "/ready"] {
                Request::new(d.addr, "GET", path).header("host", host).send().await.expect(200);
            }
        }
    }
    let link = guarded.session("s").upload("f", b"content").await.expect_success();
    let link = link.document["file"]["url"].as_str().expect("a link").to_owned();
    let (_, path) = link.split_once(&guarded.addr.to_string()).expect("a link of this daemon");
    let by_link = |path: &str| Request::new(guarded.addr, "GET", path).header("host", "paddock:8080").send();
    let answer = by_link(path).await.expect(200);
    assert_eq!(
        (answer.text().as_str(), answer.header("referrer-policy").as_str()),
        ("content", "no-referrer")
    );
    by_link(&path.replace("sig=", "sig=0")).await.expect(403);
    open.stop().await;
    guarded.stop().await;
}

#[tokio::test]
async fn a_load_balancer_may_ask_without_a_host() {
    let d = Daemon::start().await;
    for path in ["/health", "/ready"] {
        let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
        socket.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.expect("written");
        let mut answer = String::new();
        within(Duration::from_secs(20), "an answer", socket.read_to_string(&mut answer)).await.expect("text");
        assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    d.stop().await;
}

#[tokio::test]
async fn foreign_origins_are_refused_everywhere() {
    let d = Daemon::with().set("http.allowed_origins", vec!["https://n8n.example"]).start().await;
    let port = d.addr.port();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let (own, other) = (format!("http://localhost:{port}"), format!("https://localhost:{port}"));
    for (path, method) in [("/mcp", "POST"), ("/health", "GET"), ("/", "GET"), ("/files/a/b?sig=x", "GET")] {
        let request = || d.request(method, path).json(&list).header("host", &format!("localhost:{port}"));
        for origin in
            ["http://evil.example", "null", "https://localhost:1", "http://n8n.example", other.as_str()]
        {
            let answer = request().header("origin", origin).send().await.expect(403);
            assert_eq!(answer.json()["error"], "forbidden_origin", "{path} {origin}");
        }
    }
    for origin in [own.as_str(), "https://n8n.example"] {
        let request = d.request("POST", "/mcp").json(&list).header("host", &format!("localhost:{port}"));
        request.header("origin", origin).send().await.expect(200);
    }
    // A request that a page of another origin can send without a preflight.
    let request = d.request("POST", "/mcp").json(&list).set("content-type", "text/plain");
    request.send().await.expect(415);
    d.stop().await;
}

/// A client that is refused while it sends can send all of it, and then reads why.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let d = Daemon::with().start().await;
    let body = vec![b'x'; 8 << 20];
    let head = format!(
        "PUT /sessions/s/files/f HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
        d.addr,
        body.len()
    );
    let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
    socket.write_all(head.as_bytes()).await.expect("written");
    socket.readable().await.expect("an answer");
    socket.write_all(&body).await.expect("the server reads on");
    let mut answer = String::new();
    let reading = socket.read_to_string(&mut answer);
    within(Duration::from_secs(20), "the end of the connection", reading).await.expect("no reset");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    d.stop().await;
}

#[tokio::test]
async fn bodies_are_limited_in_size_and_time() {
    let d = Daemon::with()
        .set("http.max_body", "2MB")
        .set("limits.upload", "1MB")
        .set("http.body_timeout", "1s")
        .set("http.header_timeout", "1s")
        .start()
        .await;
    let big = vec![b' '; 2_000_001];
    let answer = d.request("POST", "/mcp").header("content-type", "application/json").body(big).send().await;
    assert_eq!((answer.status, answer.json()["error"].as_str()), (413, Some("too_large")));

    // An announced length is refused before the body comes; otherwise the body is refused while it comes.
    let head = |more: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer the-token-of-these-tests\r\n\
             Content-Type: application/json\r\n{more}\r\n",
            d.addr
        )
    };
    let exchange = async |text: String| {
        let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
        socket.write_all(text.as_bytes()).await.expect("written");
        let mut answer = Vec::new();
        let reading = socket.read_to_end(&mut answer);
        let _ = within(Duration::from_secs(20), "the end of the connection", reading).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = exchange(head("Content-Length: 99999999999\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let begun = Instant::now();
    let answer = exchange(head("Content-Length: 1000\r\n") + "{").await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let begun = Instant::now();
    let answer = exchange("POST /mcp HTTP/1.1\r\nHost: ".to_owned()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    for nonsense in [
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
        "GET /\0 HTTP/1.1\r\n\r\n",
    ] {
        let answer = exchange(nonsense.to_owned()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{nonsense:?}: {answer}");
    }
    let many: String = (0..100).map(|n| format!("X-{n}: y\r\n")).collect();
    let answer = exchange(head(&many)).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = exchange(head(&format!("X: {}\r\n", "y".repeat(100_000)))).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    d.run("python", "print('well')").await.expect_stdout("well\n");
    d.stop().await;
}

#[tokio::test]
async fn a_daemon_that_everyone_could_use_does_not_start() {
    for args in [["--addr", "0.0.0.0:0"], ["--addr", ":0"], ["--addr", "[::]:0"]] {
        let refused = Daemon::with().without_token().args(args).refusal().await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.said.contains("allow_open") || refused.said.contains("allow-open"), "{refused:?}");
    }
    let public = Daemon::with().without_token().set("http.public_url", "https://box.example").refusal().await;
    assert_eq!(public.code, Some(2), "{public:?}");

    // On loopback, or on request, it does, with a warning.
    let d = Daemon::with().without_token().start().await;
    assert!(d.log.text().contains(" WARN "), "{}", d.log.text());
    d.run("python", "print('open')").await.expect_stdout("open\n");
    d.stop().await;
}

#[tokio::test]
async fn an_invalid_configuration_is_refused_with_the_path_of_the_key() {
    for (key, value, says) in [
        ("pool.idel", toml::Value::from(1), "idel"),
        ("nonsense", 1.into(), "nonsense"),
        ("limits.memory", "much".into(), "limits.memory"),
        ("limits.memory", (-1).into(), "limits.memory"),
        ("pool.uids", "20000-20001".into(), "pool.uids"),
        ("pool.wait", "soon".into(), "pool.wait"),
        ("sessions.max", 0.into(), "sessions.max"),
        ("sessions.when_full", "cry".into(), "when_full"),
        ("log.level", "loud".into(), "log.level"),
        ("http.public_url", "ftp://x".into(), "http.public_url"),
        ("engine.host", "http://x".into(), "engine.host"),
    ] {
        let refused = Daemon::with().set(key, value.clone()).refusal().await;
        assert_eq!(refused.code, Some(2), "{key} = {value}: {refused:?}");
        assert!(refused.said.contains(says), "{key} = {value}: {refused:?}");
    }
    let refused = Daemon::with().env("SANDBOX_MAX_SESSIONS", "many").refusal().await;
    assert!(refused.code == Some(2) && refused.said.contains("SANDBOX_MAX_SESSIONS"), "{refused:?}");
    let refused = Daemon::with().args(["--no-such", "flag"]).refusal().await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
}

#[tokio::test]
async fn an_unavailable_port_store_or_engine_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = taken.local_addr().expect("an address").to_string();
    let refused = Daemon::with().args(["--addr", &addr]).refusal().await;
    assert!(refused.code == Some(1) && refused.said.contains(&addr), "{refused:?}");

    let d = Daemon::start().await;
    let refused = Daemon::with().store(&d.store).refusal().await;
    assert!(refused.code == Some(1) && refused.said.contains("in use"), "{refused:?}");
    d.run("python", "print('unharmed')").await.expect_stdout("unharmed\n");
    d.stop().await;

    for host in ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"] {
        let refused = Daemon::with().env("DOCKER_HOST", host).refusal().await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.said.contains("Docker") && refused.said.contains("engine"), "{refused:?}");
    }
}
