//! Raw files: `PUT`, `GET`, `HEAD`, `DELETE` of one, and of all as a tar.

use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::join;
use tokio::net::TcpStream;

use crate::support::{Answer, Daemon, PATIENCE, Request, TOKEN, within};

pub(crate) const TAR: &str = "application/x-tar";

pub(crate) fn at(session: &str, name: &[u8]) -> String {
    let name: Vec<String> =
        name.split(|b| *b == b'/').map(|part| percent_encode(part, NON_ALPHANUMERIC).to_string()).collect();
    format!("/sessions/{}/files/{}", percent_encode(session.as_bytes(), NON_ALPHANUMERIC), name.join("/"))
}

pub(crate) async fn put(d: &Daemon, session: &str, name: &str, content: impl Into<bytes::Bytes>) -> Answer {
    d.request("PUT", &at(session, name.as_bytes())).body(content).send().await
}

pub(crate) async fn get(d: &Daemon, session: &str, name: &str) -> Answer {
    d.request("GET", &at(session, name.as_bytes())).send().await
}

#[track_caller]
pub(crate) fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, &answer.json()["error"]), (status, &json!(code)), "{}", answer.text());
    assert!(answer.json()["message"].as_str().is_some_and(|message| message.len() > 10), "{}", answer.text());
}

/// A large file has a second name until the journal is freed: its tag stays the same after that.
#[tokio::test]
async fn the_tag_of_a_large_file_stays_while_its_content_does() {
    let d = Daemon::start().await;
    let made = put(&d, "s", "big", vec![b'x'; 300_000]).await.expect(201);
    let staged = d.store.path().join("tmp");
    within(PATIENCE, "the end of its second name", async {
        while std::fs::read_dir(&staged).expect("a folder").count() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let head = d.request("HEAD", &at("s", b"big")).send().await.expect(200);
    assert_eq!(head.header("etag"), made.header("etag"));
    let over = put(&d, "s", "big", vec![b'y'; 300_000]).await.expect(200);
    assert_ne!(over.header("etag"), made.header("etag"));
    d.stop().await;
}

#[tokio::test]
async fn one_file_is_put_read_and_deleted() {
    let d = Daemon::start().await;
    let made = put(&d, "s", "dir/a.csv", "a,b\n").await.expect(201);
    let said = made.json();
    assert_eq!(
        (&said["path"], &said["size_bytes"], &said["session_id"], &said["file"]["name"]),
        (&json!("/mnt/data/dir/a.csv"), &json!(4), &json!("s"), &json!("dir/a.csv"))
    );
    assert_eq!(d.fetch(said["file"]["url"].as_str().expect("a link")).await.expect(200).text(), "a,b\n");
    let got = get(&d, "s", "dir/a.csv").await.expect(200);
    assert_eq!(
        (got.text().as_str(), got.header("content-type").as_str()),
        ("a,b\n", "text/csv; charset=utf-8")
    );
    assert_eq!(got.header("etag"), made.header("etag"));
    let head = d.request("HEAD", &at("s", b"dir/a.csv")).send().await.expect(200);
    assert_eq!((head.body.len(), head.header("content-length").as_str()), (0, "4"));
    let part = d.request("GET", &at("s", b"dir/a.csv")).header("range", "bytes=2-").send().await.expect(206);
    assert_eq!((part.text().as_str(), part.header("content-range").as_str()), ("b\n", "bytes 2-3/4"));
    d.request("GET", &at("s", b"dir/a.csv"))
        .header("if-none-match", &made.header("etag"))
        .send()
        .await
        .expect(304);

    // The same size, but another content: the tag differs.
    let over = put(&d, "s", "dir/a.csv", "c,d\n").await.expect(200);
    assert_ne!(over.header("etag"), made.header("etag"));
    let new_only = |content: &'static str| {
        d.request("PUT", &at("s", b"dir/a.csv")).header("if-none-match", "*").body(content).send()
    };
    refused(&new_only("e,f\n").await, 412, "file_exists");
    assert_eq!(get(&d, "s", "dir/a.csv").await.text(), "c,d\n");
    // Programs see it, and their files are read in the same way.
    let s = d.session("s");
    s.sh("cat dir/a.csv; printf made > dir/b; mkdir empty; ln -s dir/b l").await.expect_stdout("c,d\n");
    assert_eq!(get(&d, "s", "dir/b").await.expect(200).text(), "made");

    d.view().await;
    refused(&put(&d, "s", "dir", "x").await, 409, "file_exists");
    refused(&put(&d, "s", "dir/b/c", "x").await, 409, "file_exists");
    let delete = async |name: &str| d.request("DELETE", &at("s", name.as_bytes())).send().await;
    refused(&delete("dir").await, 409, "file_exists");
    refused(&delete("none").await, 404, "not_found");
    for name in ["dir/a.csv", "dir/b", "empty", "l"] {
        assert_eq!(delete(name).await.expect(204).body.len(), 0, "{name}");
        refused(&delete(name).await, 404, "not_found");
    }
    refused(&get(&d, "s", "dir/a.csv").await, 404, "not_found");
    s.sh("find . -type f -o -type l").await.expect_stdout("");
    let nobody = d.request("DELETE", &at("nobody", b"a")).send().await;
    refused(&nobody, 404, "session_not_found");
    refused(&d.request("GET", "/sessions/nobody/files").send().await, 404, "session_not_found");
    d.stop().await;
}

/// PATH-02 to PATH-30, and what tools refuse of them.
#[tokio::test]
async fn every_name_is_kept_exactly_or_refused() {
    let d = Daemon::start().await;
    let long = "a".repeat(256);
    for path in [
        "a/../../b",
        "..",
        "%2e%2e",
        "%2e%2e/x",
        "a/%2e%2e/b",
        ".",
        "./a",
        "a//b",
        "/a",
        "a/",
        "",
        "a%2F..%2Fb",
        "a%00b",
        "%2Fetc%2Fpasswd",
        &long,
    ] {
        for method in ["PUT", "GET", "HEAD", "DELETE"] {
            let answer = d.request(method, &format!("/sessions/s/files/{path}")).send().await;
            assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
        }
    }
    let names: [&[u8]; 20] = [
        b"a\nb",
        b"-rf",
        b"BZh91AY.bin",
        b"ustar",
        "e\u{301}.txt".as_bytes(),
        "\u{e9}.txt".as_bytes(),
        b"..%2f..%2fetc%2fpasswd",
        b"..\\..\\x",
        b"\xff\xfe",
        b"' OR 1=1 --",
        b"$(id)",
        b"`id`",
        b";id",
        b"{{7*7}}",
        b"%s%n",
        b"a\r\nSet-Cookie: x=1",
        b"space ",
        b"dot.",
        "\u{202e}gnp.exe".as_bytes(),
        &[b'n'; 255],
    ];
    for name in names {
        let made = d.request("PUT", &at("s", name)).body(name.to_vec()).send().await;
        assert_eq!(made.status, 201, "{name:?}: {}", made.text());
    }
    for name in names {
        let got = d.request("GET", &at("s", name)).send().await.expect(200);
        assert_eq!(got.body, name, "{name:?}");
        assert!(!got.headers.contains_key("set-cookie"));
        got.header("content-disposition");
    }
    let listed = d.request("GET", "/sessions/s/files").send().await.expect(200).json();
    assert_eq!(listed["total"], names.len(), "{listed}");
    for one in listed["artifacts"].as_array().expect("artifacts") {
        d.fetch(one["url"].as_str().expect("a link")).await.expect(200);
    }
    // A program finds the files by the same bytes.
    let ran = d.session("s").python(
        "import os\nprint(all(open(n, 'rb').read() == n for n in os.listdir(b'.')), len(os.listdir()))",
    );
    ran.await.expect_stdout(&format!("True {}\n", names.len()));
    assert!(d.log.text().lines().all(|line| line.starts_with('[')), "a name broke a line of the log");
    // Ids are decoded once, and each is different.
    for id in ["a/b", "a%2Fb", "..", "%2e%2e", "a b", "\u{e9}", "e\u{301}", "A", "a"] {
        put(&d, id, "who", id.to_owned()).await.expect(201);
    }
    for id in ["a/b", "a%2Fb", "..", "%2e%2e", "a b", "\u{e9}", "e\u{301}", "A", "a"] {
        assert_eq!(get(&d, id, "who").await.expect(200).text(), id);
    }
    d.stop().await;
}

/// PATH-32, PATH-34, PATH-36, PATH-38, PATH-40.
#[tokio::test]
async fn a_programs_files_are_readable_and_its_special_files_are_not() {
    let d = Daemon::start().await;
    let s = d.session("s");
    let code = "import os, socket\nos.symlink('/proc/self/environ', 'l')\nos.symlink('/proc/1/root', 'r')\n\
                os.symlink('/etc', 'out')\nos.mkdir('a.txt')\nsocket.socket(socket.AF_UNIX).bind('sock')\n\
                os.mkfifo('fifo')\nopen('shut', 'w').write('shut')\nos.chmod('shut', 0)\nopen('sticky', \
                'w').write('x')\nos.chmod('sticky', 0o7755)";
    s.python(code).await.expect_success();
    for name in ["l", "r", "r/etc/passwd", "out", "out/passwd", "a.txt", "sock", "fifo"] {
        refused(&get(&d, "s", name).await, 404, "not_found");
    }
    assert_eq!(get(&d, "s", "shut").await.expect(200).text(), "shut");
    put(&d, "s", "shut", "open").await.expect(200);
    put(&d, "s", "out/x", "mine").await.expect(201);
    assert!(!std::path::Path::new("/etc/x").exists());
    let look = "import os\nprint(os.path.islink('out'), open('out/x').read(), open('shut').read(), \
                oct(os.stat('sticky').st_mode))";
    // In the next container it has the mode bits that are kept.
    s.tool("close_session").await.expect_success();
    s.python(look).await.expect_stdout("False mine open 0o100755\n");
    d.stop().await;
}

/// ISO-24.
#[tokio::test]
async fn nothing_goes_through_a_directory_that_becomes_a_link() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("mkdir d; echo inside > d/passwd").await.expect_success();
    let swap = "import os, time\nend = time.time() + 6\nos.symlink('/etc', 'e')\nwhile time.time() < end:\n\
                \x20   os.rename('d', 't'); os.rename('e', 'd'); os.rename('t', 'e')";
    let swapping = async {
        for _ in 0..3 {
            s.python(swap).timeout(20.0).await;
        }
    };
    let reading = async {
        for n in 0..600 {
            let got = get(&d, "s", "d/passwd").await;
            assert!(matches!(got.status, 200 | 404), "{}", got.text());
            assert!(got.status == 404 || got.text() == "inside\n", "{n}: {}", got.text());
        }
    };
    join!(swapping, reading);
    put(&d, "s", "d/x", "y").await;
    assert!(!std::path::Path::new("/etc/x").exists());
    d.stop().await;
}

#[tokio::test]
async fn a_caller_without_permission_is_told_so() {
    let d = Daemon::start().await;
    let sent = |method: &str| Request::new(d.addr, method, "/sessions/s/files/a");
    for method in ["GET", "PUT", "DELETE", "HEAD"] {
        sent(method).send().await.expect(401);
        sent(method).bearer("wrong").send().await.expect(401);
        sent(method).header("host", "evil.example").send().await.expect(403);
        sent(method).bearer(TOKEN).header("origin", "http://evil.example").send().await.expect(403);
    }
    for (method, path) in
        [("POST", "/sessions/s/files/a"), ("PATCH", "/sessions/s/files"), ("DELETE", "/sessions/s/files")]
    {
        let answer = d.request(method, path).send().await.expect(405);
        assert!(answer.header("allow").contains("GET"), "{answer:?}");
    }
    for path in ["/sessions", "/sessions/", "/sessions/s", "/sessions/s/x"] {
        d.request("GET", path).send().await.expect(404);
    }
    d.stop().await;
}

#[tokio::test]
async fn the_limits_of_an_upload_hold_and_a_refused_one_leaves_nothing() {
    let d = Daemon::with()
        .set("limits.data", "4MiB")
        .set("limits.upload", "1MiB")
        .set("limits.file_size", "2MiB")
        .set("limits.data_inodes", 100)
        .set("http.body_timeout", "2s")
        .start()
        .await;
    refused(&put(&d, "s", "a", vec![0; (2 << 20) + 1]).await, 413, "too_large");
    put(&d, "s", "a", vec![1; 2 << 20]).await.expect(201);
    put(&d, "s", "b", vec![2; 2 << 20]).await.expect(201);
    refused(&put(&d, "s", "c", vec![3; 1]).await, 507, "quota_exceeded");
    // As a replacement it fits.
    put(&d, "s", "a", vec![4; 2 << 20]).await.expect(200);
    for (header, value, status) in [
        ("content-encoding", "gzip", 415),
        ("content-range", "bytes 0-1/2", 400),
        ("if-none-match", "\"x\"", 400),
    ] {
        let answer = d.request("PUT", &at("s", b"x")).header(header, value).body("x").send().await;
        refused(&answer, status, "invalid_argument");
    }
    // Without a length, cut off, and too slow.
    let raw = async |head: &str, body: &[u8], shut: bool| {
        let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
        let head = format!(
            "PUT {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n{head}\r\n\r\n",
            at("s", b"x"),
            d.addr
        );
        socket.write_all(head.as_bytes()).await.expect("a head");
        let _ = socket.write_all(body).await;
        if shut {
            socket.shutdown().await.expect("an end");
        }
        let mut answer = Vec::new();
        let read = socket.read_to_end(&mut answer);
        let _ = within(PATIENCE, "an answer", read).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let small = b"3\r\nabc\r\n0\r\n\r\n";
    let full = raw("transfer-encoding: chunked\r\nconnection: close", small, false).await;
    assert!(full.starts_with("HTTP/1.1 507"), "{full}");
    d.request("DELETE", &at("s", b"b")).send().await.expect(204);
    let chunk = [b"200000\r\n".to_vec(), vec![7; 0x20_0000], b"\r\n1\r\n7\r\n0\r\n\r\n".to_vec()].concat();
    let over = raw("transfer-encoding: chunked\r\nconnection: close", &chunk, false).await;
    assert!(over.is_empty() || over.starts_with("HTTP/1.1 413"), "{over}");
    let bad = raw("transfer-encoding: chunked\r\nconnection: close", b"5\r\nab\r\nzz", true).await;
    assert!(bad.is_empty() || bad.starts_with("HTTP/1.1 400"), "{bad}");
    let cut = raw("content-length: 10", b"12345", true).await;
    assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 400"), "{cut}");
    let begun = Instant::now();
    let slow = raw("content-length: 10", b"12345", false).await;
    assert!(slow.starts_with("HTTP/1.1 408"), "{slow}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    refused(&get(&d, "s", "x").await, 404, "not_found");
    let whole = raw("transfer-encoding: chunked\r\nconnection: close", b"3\r\nabc\r\n0\r\n\r\n", false).await;
    assert!(whole.starts_with("HTTP/1.1 201"), "{whole}");
    assert_eq!(get(&d, "s", "x").await.text(), "abc");
    // The journal names the saved contents until the next checkpoint.
    let staged = d.store.path().join("tmp");
    within(PATIENCE, "the end of the staged files", async {
        while std::fs::read_dir(&staged).expect("a folder").count() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    d.stop().await;
}

#[tokio::test]
async fn a_slow_upload_never_blocks_the_session_and_a_run_delays_a_quick_one() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("true").await.expect_success();
    let mut socket = TcpStream::connect(d.addr).await.expect("a connection");
    let head = format!(
        "PUT {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 4\r\nconnection: \
         close\r\n\r\n",
        at("s", b"slow"),
        d.addr
    );
    socket.write_all(format!("{head}ab").as_bytes()).await.expect("half");
    s.sh("ls").await.expect_stdout("");
    socket.write_all(b"cd").await.expect("the rest");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // A file does not change while a run reads it.
    let mark = d.log.mark();
    let (ran, uploaded) = join!(async { s.sh("cat slow; sleep 2; cat slow").await }, async {
        d.log.line_since(mark, "request").await;
        put(&d, "s", "slow", "efgh").await
    });
    let stdout = ran.expect_success().stdout().to_owned();
    assert!(matches!(stdout.as_str(), "abcdabcd" | "efghefgh"), "{stdout}");
    uploaded.expect(200);
    s.sh("cat slow").await.expect_stdout("efgh");
    d.stop().await;
}

/// PATH-42.
#[tokio::test]
async fn of_two_simultaneous_uploads_one_is_kept_completely() {
    let d = Daemon::start().await;
    for _ in 0..30 {
        let (a, b) = join!(put(&d, "s", "f", vec![b'a'; 300_000]), put(&d, "s", "f", vec![b'b'; 300_000]));
        assert!(matches!((a.status, b.status), (200 | 201, 200 | 201)), "{} {}", a.text(), b.text());
        let body = get(&d, "s", "f").await.body;
        assert!(body == vec![b'a'; 300_000] || body == vec![b'b'; 300_000], "a mixture");
    }
    d.stop().await;
}

/// RES-38: a download of a file that is being written is complete, with one size.
#[tokio::test]
async fn a_download_has_one_content_while_the_file_is_written() {
    let d = Daemon::start().await;
    put(&d, "s", "g", vec![b'0'; 500_000]).await.expect(201);
    let writing = async {
        for n in 1..40u8 {
            put(&d, "s", "g", vec![b'0' + n % 10; 500_000 + usize::from(n)]).await.expect(200);
        }
    };
    let reading = async {
        for _ in 0..60 {
            let got = get(&d, "s", "g").await.expect(200);
            assert_eq!(got.header("content-length"), got.body.len().to_string());
            assert!(got.body.iter().all(|byte| *byte == got.body[0]), "a mixture");
        }
    };
    join!(writing, reading);
    d.stop().await;
}

fn rss(d: &Daemon) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", d.pid().as_raw_nonzero())).expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") * 1024
}

#[tokio::test]
async fn a_large_file_needs_little_memory() {
    let d = Daemon::start().await;
    put(&d, "warm", "a", vec![0; 1 << 20]).await.expect(201);
    let before = rss(&d);
    let content: Vec<u8> =
        (0..200u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    assert_eq!(content.len(), 200 << 20);
    let content = bytes::Bytes::from(content);
    let peak = async |work: &mut (dyn Future<Output = Answer> + Unpin)| {
        let (mut most, mut ticks) = (0, tokio::time::interval(Duration::from_millis(20)));
        loop {
            tokio::select! {
                answer = &mut *work => return (answer, most),
                _ = ticks.tick() => most = most.max(rss(&d)),
            }
        }
    };
    let (answer, up) = peak(&mut Box::pin(put(&d, "s", "large", content.clone()))).await;
    answer.expect(201);
    let (answer, down) = peak(&mut Box::pin(get(&d, "s", "large"))).await;
    assert!(answer.expect(200).body == content, "another content");
    let all = d.request("GET", "/sessions/s/files").set("accept", TAR);
    let (answer, packed) = peak(&mut Box::pin(all.send())).await;
    let archive = answer.expect(200).body;
    assert!(archive.len() > content.len());
    let (answer, unpacked) = peak(&mut Box::pin(
        d.request("PUT", "/sessions/t/files").set("content-type", TAR).body(archive).send(),
    ))
    .await;
    answer.expect(200);
    assert!(get(&d, "t", "large").await.expect(200).body == content, "another content");
    for (what, most) in [("put", up), ("get", down), ("pack", packed), ("unpack", unpacked)] {
        let grown = most.saturating_sub(before) >> 20;
        assert!(grown <= 64, "{what}: {grown} MiB more than before");
    }
    d.stop().await;
}
