//! All files of a session at once: as an archive, out and in, for other programs and from hostile ones; and
//! as a list.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::raw::{TAR, get, put, refused};
use crate::support::Daemon;

#[tokio::test]
async fn all_files_go_out_and_in_as_a_tar_that_other_tools_understand() {
    let d = Daemon::start().await;
    let s = d.session("s");
    let code = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('c')\nos.mkdir('empty')\n\
                open('zero', 'w')\nopen('run', 'w').write('#!/bin/sh\\necho ran\\n')\nos.chmod('run', \
                0o755)\nos.symlink('a/b/c', 'link')\nos.symlink('/' + 'x' * 150, 'far')\nos.makedirs('d' * \
                90 + '/' + 'e' * 90)\nopen('d' * 90 + '/' + 'e' * 90 + '/f', 'w').write('deep')\n\
                open(b'\\xff', 'w').write('bytes')\nopen('big', 'w').write('x' * 700000)";
    s.python(code).await.expect_success();
    let archive = d.request("GET", "/sessions/s/files").set("accept", TAR).send().await.expect(200);
    assert_eq!(archive.header("content-type"), TAR);
    let dir = tempfile::tempdir().expect("a directory");
    let tar = |args: &[&str], input: &[u8]| {
        let mut child = Command::new("tar")
            .args(args)
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tar");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writing = std::thread::spawn(move || stdin.write_all(&input));
        let mut output = Vec::new();
        child.stdout.take().expect("a pipe").read_to_end(&mut output).expect("its output");
        writing.join().expect("a thread").expect("its input");
        assert!(child.wait().expect("an end").success());
        output
    };
    tar(&["-xf", "-"], &archive.body);
    let root = dir.path();
    let text = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    assert_eq!((text("a/b/c"), text("zero"), text("big").len()), ("c".into(), String::new(), 700_000));
    assert_eq!(text(&format!("{}/{}/f", "d".repeat(90), "e".repeat(90))), "deep");
    assert_eq!(std::fs::read_link(root.join("far")).expect("a link").as_os_str().len(), 151);
    assert!(root.join("empty").is_dir());
    // And back in, in the formats of GNU tar and PAX.
    for (session, format) in [("gnu", "--format=gnu"), ("pax", "--format=pax"), ("ustar", "--format=posix")] {
        let packed = tar(&["-cf", "-", format, "."], b"");
        let answer =
            d.request("PUT", &format!("/sessions/{session}/files")).set("content-type", TAR).body(packed);
        let said = answer.send().await.expect(200).json();
        assert_eq!(
            (&said["files"], &said["links"], &said["skipped"]),
            (&json!(6), &json!(2), &json!(0)),
            "{said}"
        );
        let again = d.session(session);
        again
            .sh("cat a/b/c; ./run; readlink link; ls empty; wc -c < big; cat d*/e*/f")
            .await
            .expect_stdout("cran\na/b/c\n700000\ndeep");
        let listed = |id: &str| d.request("GET", &format!("/sessions/{id}/files?limit=1000")).send();
        let names = |page: Value| {
            page["artifacts"]
                .as_array()
                .expect("artifacts")
                .iter()
                .map(|a| (a["path"].clone(), a["size_bytes"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(listed("s").await.json()), names(listed(session).await.json()));
    }
    let head = d.request("HEAD", "/sessions/s/files").set("accept", TAR).send().await.expect(200);
    assert_eq!(head.body.len(), 0);
    d.stop().await;
}

/// A header with a name, a type and a size.
fn member(name: &str, kind: u8, size: usize, target: &str) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000012\0");
    block[148..156].copy_from_slice(b"        ");
    block[156] = kind;
    block[157..157 + target.len()].copy_from_slice(target.as_bytes());
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn file(name: &str, content: &str) -> Vec<u8> {
    let mut all = member(name, b'0', content.len(), "");
    all.extend_from_slice(content.as_bytes());
    all.resize(all.len().next_multiple_of(512), 0);
    all
}

/// The same entry with another type.
fn retyped((mut entry, kind): (Vec<u8>, u8)) -> Vec<u8> {
    entry[156] = kind;
    entry[148..156].copy_from_slice(b"        ");
    let sum: u32 = entry[..512].iter().map(|b| u32::from(*b)).sum();
    entry[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    entry
}

#[tokio::test]
async fn an_archive_is_unpacked_completely_or_not_at_all() {
    let d = Daemon::with()
        .set("limits.data", "4MiB")
        .set("limits.upload", "1MiB")
        .set("limits.data_inodes", 64)
        .start()
        .await;
    put(&d, "s", "first", "kept").await.expect(201);
    put(&d, "s", "z", "old").await.expect(201);
    let send = async |parts: &[Vec<u8>]| {
        d.request("PUT", "/sessions/s/files").set("content-type", TAR).body(parts.concat()).send().await
    };
    let damaged = {
        let mut block = file("b", "x");
        block[0] ^= 1;
        block
    };
    let many: Vec<_> = (0..100).map(|n| file(&format!("m{n}"), "")).collect();
    let named_twice =
        vec![file("././@PaxHeader", "9 path=p\n"), file("././@LongLink", "g\0"), file("h", "1")];
    let named_twice = named_twice.into_iter().zip([b'x', b'L', b'0']).map(retyped).collect();
    let cases: [(&str, u16, &str, Vec<Vec<u8>>); 12] = [
        ("traversal", 400, "invalid_argument", vec![file("z", "new"), file("../x", "1")]),
        ("absolute", 400, "invalid_argument", vec![file("z", "new"), file("/etc/x", "1")]),
        ("checksum", 400, "invalid_argument", vec![file("z", "new"), damaged]),
        ("cut", 400, "invalid_argument", vec![file("z", "new"), member("b", b'0', 10, "")]),
        ("hard link", 400, "invalid_argument", vec![file("z", "new"), member("h", b'1', 0, "z")]),
        ("through a link", 400, "invalid_argument", vec![member("s", b'2', 0, "/etc"), file("s/x", "1")]),
        ("directory for file", 400, "invalid_argument", vec![file("z", "new"), member("z", b'5', 0, "")]),
        ("below a file", 400, "invalid_argument", vec![file("z", "new"), file("z/b", "1")]),
        ("named twice", 400, "invalid_argument", named_twice),
        ("too many", 507, "quota_exceeded", many),
        ("too much", 413, "too_large", vec![file("z", "new"), member("b", b'0', 5 << 20, "")]),
        ("garbage", 400, "invalid_argument", vec![file("z", "new"), vec![0; 1024], vec![9; 2 << 20]]),
    ];
    for (what, status, code, parts) in cases {
        let answer = send(&parts).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]),
            (status, &json!(code)),
            "{what}: {}",
            answer.text()
        );
        assert_eq!(get(&d, "s", "z").await.text(), "old", "{what}");
    }
    let left = std::fs::read_dir(d.store.path().join("tmp")).expect("tmp").count();
    assert_eq!(left, 0, "what was refused leaves something");
    let listed = d.request("GET", "/sessions/s/files").send().await.expect(200).json();
    assert_eq!(listed["total"], 2, "{listed}");
    // Of two entries with one name the last wins; entries that are not files are counted.
    let answer = send(&[
        member("fifo", b'6', 0, ""),
        member("dev", b'3', 0, ""),
        file("a", "one"),
        file("a", "two"),
        file("z", "new"),
    ])
    .await;
    let said = answer.expect(200).json();
    assert_eq!((&said["files"], &said["skipped"]), (&json!(3), &json!(2)), "{said}");
    assert_eq!(
        (get(&d, "s", "a").await.text(), get(&d, "s", "z").await.text()),
        ("two".into(), "new".into())
    );
    assert_eq!(get(&d, "s", "first").await.text(), "kept");
    for kind in ["application/gzip", "application/json", ""] {
        let answer = d.request("PUT", "/sessions/s/files").set("content-type", kind).body("x").send().await;
        refused(&answer, 415, "invalid_argument");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_listing_comes_in_pages() {
    let d = Daemon::start().await;
    let archive: Vec<u8> = (0..2500).flat_map(|n| file(&format!("f{n:04}"), "x")).collect();
    d.request("PUT", "/sessions/s/files").set("content-type", TAR).body(archive).send().await.expect(200);
    let (mut seen, mut query) = (Vec::new(), "?limit=1000".to_owned());
    loop {
        let page = d.request("GET", &format!("/sessions/s/files{query}")).send().await.expect(200);
        assert!(page.body.len() <= 1 << 20, "{}", page.body.len());
        let page = page.json();
        seen.extend(
            page["artifacts"]
                .as_array()
                .expect("artifacts")
                .iter()
                .map(|a| a["filename"].as_str().expect("a name").to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => query = format!("?limit=1000&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, (0..2500).map(|n| format!("f{n:04}")).collect::<Vec<_>>());
    for query in ["?limit=0", "?limit=1001", "?limit=x", "?cursor=AAAA"] {
        refused(
            &d.request("GET", &format!("/sessions/s/files{query}")).send().await,
            400,
            "invalid_argument",
        );
    }
    d.stop().await;
}

/// Empty files take no bytes, so their number has a limit, over all sessions.
#[tokio::test]
async fn the_number_of_files_of_all_sessions_together_is_limited() {
    let d = Daemon::with().set("limits.data_inodes", 64).set("store.max_files", 64).start().await;
    let send = async |id: &str, count: usize| {
        let body: Vec<u8> = (0..count).flat_map(|n| file(&format!("f{n}"), "")).collect();
        d.request("PUT", &format!("/sessions/{id}/files")).set("content-type", TAR).body(body).send().await
    };
    send("one", 40).await.expect(200);
    let refused = send("two", 40).await.expect(507).json();
    assert_eq!(refused["error"], "quota_exceeded", "{refused}");
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("of 64 allowed") && message.contains("store.max_files"), "{message}");
    // The last one that fits is accepted, and then there is no room for another file in any session.
    send("two", 18).await.expect(200);
    assert_eq!(put(&d, "one", "more", "x").await.expect(507).json()["error"], "quota_exceeded");
    let ran = d.session("one").sh("echo hi; : > more").await;
    let left_out = json!([{ "path": "/mnt/data/more", "reason": "store.max_files is used up" }]);
    assert_eq!((ran.stdout(), &ran.document["not_saved"]), ("hi\n", &left_out), "{}", ran.document);
    let figures = d.request("GET", "/metrics").send().await.expect(200).text();
    assert!(figures.contains("\npaddock_store_files 64\n"), "{figures}");
    assert!(figures.contains("\npaddock_store_limit_files 64\n"), "{figures}");
    // Deleting makes room.
    d.session("one").tool("close_session").with("delete_files", true).await.expect_success();
    send("three", 40).await.expect(200);
    d.stop().await;
}
