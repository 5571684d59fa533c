//! `upload_file`: both forms, what is refused, and turns.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::join;

use crate::support::Daemon;

#[tokio::test]
async fn both_forms_upload_with_their_own_rules() {
    let d = Daemon::start().await;
    let b64 = |text: &str| BASE64_STANDARD.encode(text);
    let workflow = async |content: &str, extra: serde_json::Value| {
        let mut arguments = json!({ "conversationId": "c", "filename": "in/a.csv", "content": b64(content) });
        arguments.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        d.tool("upload_file", arguments).await
    };
    let ran = workflow("one", json!({})).await.expect_success();
    assert_eq!(ran.text("message"), "File 'in/a.csv' uploaded successfully (3 bytes)");
    assert_eq!((ran.text("path"), &ran.document["file"]["name"]), ("/mnt/data/in/a.csv", &json!("in/a.csv")));
    let link = ran.document["file"]["url"].as_str().expect("a link").to_owned();
    assert_eq!(d.fetch(&link).await.expect(200).text(), "one");
    workflow("two", json!({})).await.expect_success(); // a workflow is repeated many times
    assert_eq!(d.fetch(&link).await.expect(200).text(), "two");
    workflow("three", json!({ "overwrite": false })).await.expect_error("file_exists");

    let agent = async |extra: serde_json::Value| {
        let mut arguments =
            json!({ "session_id": "c", "filename": "in/a.csv", "content_base64": b64("four") });
        arguments.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        d.tool("upload_file", arguments).await
    };
    let refused = agent(json!({})).await.expect_error("file_exists");
    assert!(refused.text("message").contains("overwrite=true"), "{}", refused.document);
    assert_eq!(d.fetch(&link).await.expect(200).text(), "two");
    agent(json!({ "overwrite": true })).await.expect_success();
    assert_eq!(d.fetch(&link).await.expect(200).text(), "four");
    agent(json!({ "filename": "b" })).await.expect_success();
    // An entry of another kind is not replaced, whatever the caller asks for.
    for name in ["in", "in/a.csv/x"] {
        agent(json!({ "filename": name, "overwrite": true })).await.expect_error("file_exists");
    }
    d.view().await.expect_empty().await; // none of this needs a container
    let ran = d.session("c").python("print(open('in/a.csv').read())").await.expect_stdout("four\n");
    assert_eq!(ran.files(), ["b", "in/a.csv"]);

    // A generated session id is valid for later calls.
    let ran = d.tool("upload_file", json!({ "filename": "x", "content": "" })).await.expect_success();
    d.session(ran.text("session_id")).python("import os; print(os.listdir())").await.expect_stdout("['x']\n");
    d.stop().await;
}

#[tokio::test]
async fn an_impossible_upload_is_refused() {
    let d = Daemon::with()
        .set("limits.upload", 1000)
        .set("limits.data", "1MiB")
        .set("limits.data_inodes", 300)
        .start()
        .await;
    let upload = async |name: &str, content: &str| {
        d.tool("upload_file", json!({ "conversationId": "c", "filename": name, "content": content })).await
    };
    let long = "a".repeat(256);
    let deep = vec!["d"; 65].join("/");
    for name in [
        "..",
        "../x",
        "a/../../b",
        "a/..",
        "/etc/passwd",
        "/",
        "/data",
        "/data/",
        "",
        ".",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        &long,
        &deep,
        "/mnt/data/../x",
        "//data/x",
    ] {
        let refused = upload(name, "eA==").await.expect_error("invalid_argument");
        assert!(refused.text("message").contains("`filename`"), "{name:?}: {}", refused.document);
    }
    for content in ["Y", "YWI=YWI=", "YW_I", "YW-I", "=", "ü", "YWI===", "%%%%"] {
        upload("a", content).await.expect_error("invalid_argument");
    }
    let whole = BASE64_STANDARD.encode(vec![b'x'; 1000]);
    let over = BASE64_STANDARD.encode(vec![b'x'; 1001]);
    upload("a", &over).await.expect_error("too_large");
    upload("a", &whole).await.expect_success();
    let lines: Vec<&str> =
        (0..whole.len()).step_by(76).map(|at| &whole[at..(at + 76).min(whole.len())]).collect();
    upload("a", &lines.join("\n")).await.expect_success();
    let s = d.session("c");
    // Whole pages count, as in /data: this makes 255 of 256.
    let fill = "for n in range(254): open(f'/data/{n}', 'w').write('x')";
    s.python(fill).await.expect_success();
    s.upload("b", b"x").await.expect_success();
    s.upload("c", b"x").await.expect_error("quota_exceeded");
    s.upload("c", b"").await.expect_success();
    s.upload("b", b"y").await.expect_success();
    // Of 300 entries all but a few are used now.
    let mut refused = 0;
    for n in 0..60 {
        refused += u32::from(s.upload(&format!("empty{n}"), b"").await.is_error);
    }
    assert!((16..24).contains(&refused), "{refused}");
    for arguments in [
        json!({ "filename": "a" }),
        json!({ "content": "" }),
        json!({ "filename": "a", "content": "", "content_base64": "" }),
        json!({ "filename": "a", "content": "", "conversationId": "a", "session_id": "b" }),
        json!({ "filename": "a", "content": "", "mode": 7 }),
    ] {
        let answer = d.rpc("tools/call", json!({ "name": "upload_file", "arguments": arguments })).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    d.stop().await;
}

#[tokio::test]
async fn an_upload_during_a_run_waits_for_its_turn() {
    let d = Daemon::start().await;
    let s = d.session("c");
    s.upload("a", b"before").await.expect_success();
    let mark = d.log.mark();
    let slow = "import time\nfor _ in range(20):\n    assert open('a').read() == 'before'\n    \
                time.sleep(0.05)\nprint('done')";
    let (ran, uploaded) = join!(async { s.python(slow).await }, async {
        d.log.line_since(mark, "armed").await;
        s.upload("a", b"after").await
    });
    ran.expect_stdout("done\n");
    uploaded.expect_success();
    s.python("print(open('a').read())").await.expect_stdout("after\n");
    d.stop().await;
}

#[tokio::test]
async fn of_two_simultaneous_uploads_one_is_kept_completely() {
    let d = Daemon::start().await;
    let s = d.session("c");
    let (a, b) = (vec![b'a'; 300_000], vec![b'b'; 300_000]);
    for _ in 0..10 {
        let (one, two) = join!(async { s.upload("f", &a).await }, async { s.upload("f", &b).await });
        let link = one.expect_success().document["file"]["url"].as_str().expect("a link").to_owned();
        two.expect_success();
        let body = d.fetch(&link).await.expect(200).body;
        assert!(body == a || body == b, "a mixture");
    }
    d.stop().await;
}
