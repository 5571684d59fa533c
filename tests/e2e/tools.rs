//! `run_python`, `read_artifact`, `list_artifacts`, `close_session`: what they return, refuse and leave.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::join;

use crate::cluster::metric;
use crate::support::{Daemon, PATIENCE, Ran, Session, within};

fn read<'d>(session: &Session<'d>, path: &str) -> crate::support::Call<'d> {
    session.tool("read_artifact").with("path", path)
}

fn content(ran: &Ran) -> Vec<u8> {
    BASE64_STANDARD.decode(ran.text("content_base64")).expect("base64")
}

#[tokio::test]
async fn python_runs_by_its_own_tool_and_time_limit() {
    let d = Daemon::with().set("timeouts.run_python", "6s").start().await;
    let ran = d
        .tool("run_python", json!({ "code": "open('/mnt/data/a.txt', 'w').write('x')\nprint(2 + 2)" }))
        .await;
    let ran = ran.expect_stdout("4\n");
    assert_eq!((ran.artifacts(), ran.exit_code()), (vec!["/mnt/data/a.txt".to_owned()], 0));
    let id = ran.text("session_id").to_owned();
    assert!(id.starts_with("sess_") && id.len() == 17, "{id}");
    // Both names of the session id mean the same, and both tools share the session.
    let ran =
        d.tool("run_python", json!({ "conversationId": id, "code": "print(open('a.txt').read())" })).await;
    ran.expect_stdout("x\n");
    d.session(&id).python("print(open('a.txt').read())").await.expect_stdout("x\n");
    let ran =
        d.tool("run_python", json!({ "session_id": id, "code": "raise KeyError('sales_amount')" })).await;
    let ran = ran.expect_exit(1);
    assert!(ran.stderr().contains("KeyError: 'sales_amount'"), "{}", ran.document);
    let slow = d.tool("run_python", json!({ "session_id": id, "code": "import time\ntime.sleep(30)" })).await;
    let slow = slow.expect_exit(-1).expect_limit(Some("wall_time"));
    assert_eq!(slow.stderr(), "Execution timed out after 6 seconds");
    for (code, error) in [(" \n", "invalid_argument"), ("a\0b", "invalid_argument")] {
        d.tool("run_python", json!({ "code": code })).await.expect_error(error);
    }
    d.tool("run_python", json!({ "code": "#".repeat(100_001) })).await.expect_error("too_large");
    for arguments in
        [json!({}), json!({ "code": "1", "session_id": "" }), json!({ "code": "1", "language": "python" })]
    {
        let answer = d.rpc("tools/call", json!({ "name": "run_python", "arguments": arguments })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_working_session_is_busy_for_run_python_and_readable() {
    let d = Daemon::start().await;
    let s = d.session("busy");
    s.upload("before", b"there").await.expect_success();
    let mark = d.log.mark();
    let (ran, ()) = join!(async { s.python("import time\ntime.sleep(3)\nprint('done')").await }, async {
        d.log.line_since(mark, "armed").await;
        let begun = Instant::now();
        let busy = s.tool("run_python").with("code", "print(1)").await.expect_error("session_busy");
        assert!(busy.text("message").contains("already in progress"), "{}", busy.document);
        assert_eq!(content(&read(&s, "before").await.expect_success()), b"there");
        assert_eq!(s.tool("list_artifacts").await.document["total"], 1);
        assert!(begun.elapsed().as_secs_f64() < 2.0, "they waited: {:?}", begun.elapsed());
    });
    ran.expect_stdout("done\n");
    s.tool("run_python").with("code", "print(1)").await.expect_stdout("1\n");
    d.stop().await;
}

#[tokio::test]
async fn an_artifact_is_returned_completely_or_refused_with_its_link() {
    let d = Daemon::with().set("limits.artifact_read", 100_000).start().await;
    let s = d.session("read");
    let pixel =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let pixel = BASE64_STANDARD.decode(pixel).expect("base64");
    s.upload("dir/p.png", &pixel).await.expect_success();
    s.upload("t.csv", "a,b\n1,\u{fc}\n".as_bytes()).await.expect_success();
    s.upload("raw", b"\xff\0\xfe").await.expect_success();
    s.upload("limit", &[7; 100_000]).await.expect_success();
    s.upload("over.bin", &[7; 100_001]).await.expect_success();
    s.upload("empty.png", b"").await.expect_success();

    for path in ["/mnt/data/dir/p.png", "/data/dir/p.png", "/workspace/dir/p.png", "dir/p.png"] {
        let ran = read(&s, path).await.expect_success();
        assert_eq!((ran.text("path"), ran.text("filename")), ("/mnt/data/dir/p.png", "p.png"));
        assert_eq!((ran.text("mime_type"), &ran.document["size_bytes"]), ("image/png", &json!(pixel.len())));
        assert_eq!(content(&ran), pixel);
        let image = &ran.content[1];
        assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")));
        assert_eq!(image["data"], ran.document["content_base64"]);
        assert_eq!(d.fetch(ran.text("download_url")).await.expect(200).body, pixel);
    }
    let ran = read(&s, "t.csv").await.expect_success();
    assert_eq!((ran.text("mime_type"), ran.text("text")), ("text/csv", "a,b\n1,\u{fc}\n"));
    let ran = read(&s, "raw").await.expect_success();
    assert_eq!((content(&ran), &ran.document["text"]), (b"\xff\0\xfe".to_vec(), &Value::Null));
    assert_eq!(content(&read(&s, "limit").await.expect_success()).len(), 100_000);
    let ran = read(&s, "empty.png").await.expect_success();
    assert_eq!((ran.content.len(), content(&ran).len()), (1, 0));

    let over = read(&s, "over.bin").await.expect_error("artifact_too_large");
    assert_eq!(over.document["size_bytes"], 100_001);
    assert!(over.text("message").contains("download_url"), "{}", over.document);
    assert_eq!(d.fetch(over.text("download_url")).await.expect(200).body.len(), 100_001);
    let none = read(&s, "/mnt/data/chart.png").await.expect_error("not_found");
    assert_eq!(none.text("message"), "No artifact at /mnt/data/chart.png");
    read(&s, "dir").await.expect_error("not_found");
    for path in ["../x", "/etc/passwd", "", "a/../../b", "dir/", "/mnt/data/../x", "a\0b"] {
        read(&s, path).await.expect_error("invalid_argument");
    }
    // Nothing follows a link in /data.
    s.python("import os\nos.symlink('/etc', 'out')\nos.symlink('t.csv', 'l')\nos.mkfifo('fifo')")
        .await
        .expect_success();
    for path in ["out/passwd", "out", "l", "fifo"] {
        read(&s, path).await.expect_error("not_found");
    }
    read(&d.session("nobody"), "t.csv").await.expect_error("session_not_found");
    let answer = d.rpc("tools/call", json!({ "name": "read_artifact", "arguments": { "path": "a" } })).await;
    assert!(answer["error"]["code"] == -32602 && answer.to_string().contains("session_id"), "{answer}");
    d.stop().await;
}

#[tokio::test]
async fn the_artifacts_of_another_token_do_not_exist_for_the_caller() {
    let sha = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"; // of "test"
    let tokens: toml::Value =
        toml::from_str::<toml::Table>(&format!("t = [{{ name = \"other\", sha256 = \"{sha}\" }}]"))
            .expect("TOML")["t"]
            .clone();
    let d = Daemon::with().set("auth.tokens", tokens).start().await;
    let s = d.session("shared");
    s.upload("a", b"mine").await.expect_success();
    let cursor = {
        s.upload("b", b"mine").await.expect_success();
        let page = s.tool("list_artifacts").with("limit", 1).await.expect_success();
        page.text("next_cursor").to_owned()
    };
    read(&s, "a").bearer("test").await.expect_error("session_not_found");
    s.tool("list_artifacts").bearer("test").await.expect_error("session_not_found");
    s.tool("close_session").with("delete_files", true).bearer("test").await.expect_error("session_not_found");
    s.upload("a", b"theirs").bearer("test").await.expect_success();
    s.tool("list_artifacts")
        .with("cursor", cursor.as_str())
        .bearer("test")
        .await
        .expect_error("invalid_argument");
    assert_eq!(content(&read(&s, "a").await), b"mine");
    assert_eq!(content(&read(&s, "a").bearer("test").await), b"theirs");
    d.stop().await;
}

/// RES-36.
#[tokio::test]
async fn a_listing_of_very_many_files_comes_in_pages() {
    let d = Daemon::start().await;
    let s = d.session("many");
    let code = "for i in range(16000): open('/data/' + 'n' * 185 + f'{i:05}', 'w').close()";
    let ran = s.python(code).timeout(120.0).await.expect_success();
    assert_eq!(ran.document["files_truncated"], true);
    let (mut seen, mut cursor, mut pages) = (Vec::new(), None::<String>, 0);
    loop {
        let mut call = s.tool("list_artifacts").with("limit", 1000);
        if let Some(cursor) = &cursor {
            call = call.with("cursor", cursor.as_str());
        }
        let begun = Instant::now();
        let answer = call.answer().await;
        let (took, bytes) = (begun.elapsed(), answer.to_string().len());
        assert!(took.as_secs_f64() < 2.0 && bytes <= 1 << 20, "{took:?}, {bytes} bytes");
        let page = Ran::of(answer).expect_success();
        let names = page.document["artifacts"].as_array().expect("artifacts").clone();
        seen.extend(names.iter().map(|one| one["filename"].as_str().expect("a name").to_owned()));
        assert_eq!(page.document["total"], 16_000);
        pages += 1;
        assert!(pages <= 200, "no end");
        cursor = page.document["next_cursor"].as_str().map(str::to_owned);
        assert_eq!(page.document["truncated"], cursor.is_some());
        if cursor.is_none() {
            break;
        }
    }
    let expected: Vec<String> = (0..16_000).map(|i| format!("{}{i:05}", "n".repeat(185))).collect();
    assert_eq!(seen, expected);
    // Names that JSON must escape, and escape again: still within the limit.
    let ugly = d.session("ugly");
    let code = "import os\nfor i in range(2000): open('/data/' + '\\x01' * 185 + str(i), 'w').close()\n\
                for i in range(2000): open('/data/' + '\\\\\"' * 92 + str(i), 'w').close()";
    ugly.python(code).timeout(60.0).await.expect_success();
    let page = ugly.tool("list_artifacts").with("limit", 1000).answer().await;
    assert!(page.to_string().len() <= 1 << 20, "{}", page.to_string().len());
    let first = Ran::of(page).expect_success();
    let next = ugly.tool("list_artifacts").with("cursor", first.text("next_cursor")).answer().await;
    assert!(next.to_string().len() <= 1 << 20, "{}", next.to_string().len());
    d.stop().await;
}

#[tokio::test]
async fn a_listing_contains_every_file() {
    let d = Daemon::start().await;
    let s = d.session("list");
    s.upload("sales.csv", b"a,b\n").await.expect_success();
    let code = "import os\nos.mkdir('d')\nopen('d/x.png', 'w').write('12')\nopen(b'\\xff', 'w')\n\
                os.symlink('a', 'l')";
    s.python(code).await.expect_success();
    let listed = s.tool("list_artifacts").await.expect_success();
    let artifacts = listed.document["artifacts"].as_array().expect("artifacts").clone();
    let names: Vec<_> = artifacts.iter().map(|one| one["path"].as_str().expect("a path")).collect();
    assert_eq!(names, ["/mnt/data/d/x.png", "/mnt/data/sales.csv", "/mnt/data/\u{fffd}"]);
    assert_eq!(artifacts[2]["name_base64"], BASE64_STANDARD.encode(b"\xff"));
    let first = &artifacts[0];
    assert_eq!(
        (&first["filename"], &first["size_bytes"], &first["mime_type"]),
        (&json!("x.png"), &json!(2), &json!("image/png"))
    );
    assert_eq!(first["url"], first["download_url"]);
    assert_eq!(d.fetch(first["url"].as_str().expect("a link")).await.expect(200).text(), "12");
    assert_eq!((&listed.document["truncated"], &listed.document["total"]), (&json!(false), &json!(3)));

    for limit in [0, 1001] {
        s.tool("list_artifacts").with("limit", limit).await.expect_error("invalid_argument");
    }
    let page = s.tool("list_artifacts").with("limit", 2).await.expect_success();
    let cursor = page.text("next_cursor");
    // The position is valid even if the file at it is gone.
    s.python("import os; os.remove('sales.csv')").await.expect_success();
    let rest = s.tool("list_artifacts").with("cursor", cursor).await.expect_success();
    assert_eq!(rest.document["artifacts"].as_array().map(Vec::len), Some(1));
    d.session("other").upload("a", b"").await.expect_success();
    let other = d.session("other");
    for wrong in [cursor, "", "AAAA", &cursor[..cursor.len() - 2]] {
        other.tool("list_artifacts").with("cursor", wrong).await.expect_error("invalid_argument");
    }
    d.session("none").tool("list_artifacts").await.expect_error("session_not_found");
    d.stop().await;
}

#[tokio::test]
async fn a_closed_session_loses_its_container_and_keeps_its_files() {
    let d = Daemon::start().await;
    let s = d.session("c");
    s.tool("close_session").await.expect_error("session_not_found");
    let ran = s.python("open('a', 'w').write('kept')").await.expect_success();
    let (link, view) = (ran.link("a"), d.view().await);
    let container = view.the_container("python").await;
    let mut events = view.follow().await;
    let closed = s.tool("close_session").await.expect_success();
    assert_eq!(closed.text("status"), "closed");
    events.death_of(&container, PATIENCE).await;
    let again = s.tool("close_session").await.expect_error("session_not_found");
    assert_eq!(again.text("message"), "No active session with id c");
    // Reading does not open it again.
    assert_eq!(content(&read(&s, "a").await.expect_success()), b"kept");
    assert_eq!(s.tool("list_artifacts").await.expect_success().document["total"], 1);
    assert_eq!(d.fetch(&link).await.expect(200).text(), "kept");
    s.tool("close_session").await.expect_error("session_not_found");
    // Also after a restart.
    let store = d.store.clone();
    d.stop().await;
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("c");
    s.tool("close_session").await.expect_error("session_not_found");
    s.python("print(open('a').read())").await.expect_stdout("kept\n");
    s.tool("close_session").await.expect_success();
    // A closed session can be deleted, once.
    s.tool("close_session").with("delete_files", true).await.expect_success();
    s.tool("close_session").with("delete_files", true).await.expect_error("session_not_found");
    read(&s, "a").await.expect_error("session_not_found");
    let answer = d.rpc("tools/call", json!({ "name": "close_session", "arguments": {} })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    d.stop().await;
}

/// TEN-12.
#[tokio::test]
async fn a_deleted_id_begins_with_an_empty_session() {
    let d = Daemon::start().await;
    let s = d.session("reused");
    let ran = s
        .python("open('secret', 'w').write('old')\nopen('/tmp/secret', 'w')\nprint('x' * 200000)")
        .await
        .expect_success();
    let (file, log) = (ran.link("secret"), ran.text("log_url").to_owned());
    s.tool("close_session").with("delete_files", true).await.expect_success();
    for link in [&file, &log] {
        d.fetch(link).await.expect(404);
    }
    let ran = s
        .python("import os; print(os.listdir('/data'), os.path.exists('/tmp/secret'))")
        .await
        .expect_stdout("[] False\n");
    assert_eq!(ran.files(), [""; 0]);
    assert_eq!(s.tool("list_artifacts").await.expect_success().document["total"], 0);
    d.fetch(&file).await.expect(404);
    let store = d.store.clone();
    d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    d.session("reused").python("import os; print(os.listdir('/data'))").await.expect_stdout("[]\n");
    d.stop().await;
}

#[tokio::test]
async fn closing_ends_running_and_waiting_calls_and_saves_the_files() {
    let d = Daemon::start().await;
    let s = d.session("c");
    s.upload("first", b"1").await.expect_success();
    let mark = d.log.mark();
    let begun = Instant::now();
    let long = "import time; open('begun', 'w').write('kept'); open('/tmp/begun', 'w'); time.sleep(60)";
    let (ran, waited, closed) = join!(
        async { s.python(long).timeout(120.0).await },
        async {
            d.log.line_since(mark, "armed").await;
            s.python("open('waited', 'w')").await
        },
        async {
            d.log.line_since(mark, "armed").await;
            let view = d.view().await;
            view.begun(&view.running("python").await).await;
            let waits = async {
                while metric(&d, "paddock_session_calls_waiting").await < 1.0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            within(PATIENCE, "a call that waits", waits).await;
            s.tool("close_session").await
        }
    );
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    closed.expect_success();
    assert!(ran.is_error && ran.text("message").contains("cancelled"), "{}", ran.document);
    let waited = waited.expect_error("session_not_found");
    assert!(waited.text("message").contains("no code ran"), "{}", waited.document);
    s.python("import os; print(sorted(os.listdir()))").await.expect_stdout("['begun', 'first']\n");
    s.tool("close_session").await.expect_success();
    d.stop().await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_deleted_session_finds_an_empty_one() {
    let d = Daemon::start().await;
    for round in 0..5 {
        let s = d.session("c");
        s.upload("old", format!("{round}").as_bytes()).await.expect_success();
        s.python("print(open('old').read())").await.expect_stdout(&format!("{round}\n"));
        let close = async { s.tool("close_session").with("delete_files", true).await };
        let looks = (0..4).map(|_| async { s.sh("ls /data").timeout(20.0).await });
        let uploads = (0..4).map(|n| {
            let s = s.clone();
            async move { s.upload(&format!("new{n}"), b"new").await }
        });
        let (closed, looked, uploaded) =
            join!(close, futures_util::future::join_all(looks), futures_util::future::join_all(uploads));
        closed.expect_success();
        // Before the deletion, after it, or ended by it: but never on the deleted files.
        for uploaded in uploaded {
            uploaded.expect_success();
        }
        for looked in looked {
            let ended = looked.is_error
                && (looked.document["error"] == "session_not_found"
                    || looked.text("message").contains("cancelled"));
            assert!(ended || looked.document["success"] == true, "round {round}: {}", looked.document);
        }
        let left = s.sh("ls /data").await.expect_success();
        assert!(!left.stdout().contains("old"), "round {round}: {}", left.document);
        s.tool("close_session").with("delete_files", true).await.expect_success();
    }
    d.stop().await;
}

#[tokio::test]
async fn files_of_an_unused_session_are_deleted_after_the_retention() {
    let d = Daemon::with()
        .set("sessions.retention", "4s")
        .set("sessions.sweep", "1s")
        .set("sessions.ttl", "2s")
        .start()
        .await;
    let mark = d.log.mark();
    let (old, kept) = (d.session("old"), d.session("kept"));
    let ran = old.python("open('a', 'w').write('1')").await.expect_success();
    kept.upload("a", b"1").await.expect_success();
    let gone = async {
        let line = d.log.line_since(mark, "files deleted").await;
        assert!(line.contains("old"), "{line}");
    };
    // A session is never deleted while it works, however long that takes, nor soon after its last use.
    let used = async {
        kept.python("import time\ntime.sleep(7)\nprint(open('a').read())").await.expect_stdout("1\n");
        assert_eq!(content(&read(&kept, "a").await.expect_success()), b"1");
    };
    join!(gone, used);
    d.fetch(&ran.link("a")).await.expect(404);
    read(&old, "a").await.expect_error("session_not_found");
    d.stop().await;
}
