//! `/data`: files that a run leaves are saved, whatever their names, and the next run of any language finds
//! them.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::join;

use crate::support::{Daemon, PATIENCE};

#[tokio::test]
async fn two_languages_share_one_data_directory() {
    let d = Daemon::start().await;
    let s = d.session("both");
    s.python("import os; os.makedirs('d'); open('d/a', 'w').write('python'); open('gone', 'w').write('x')")
        .await
        .expect_success();
    let ran = s
        .typescript(
            "import * as fs from 'node:fs';\nconsole.log(fs.readFileSync('/data/d/a', 'utf8'));\n\
             fs.appendFileSync('/data/d/a', ' and typescript'); fs.rmSync('/data/gone'); \
             fs.writeFileSync('/data/b', 'new');",
        )
        .await
        .expect_stdout("python\n");
    assert_eq!(ran.files(), ["b", "d/a"]);
    assert_eq!(ran.artifacts(), ["/mnt/data/b", "/mnt/data/d/a"]);
    let ran = s.python("import os; print(open('d/a').read(), sorted(os.listdir()))").await;
    let ran = ran.expect_stdout("python and typescript ['b', 'd']\n");
    assert_eq!(ran.artifacts(), Vec::<String>::new(), "nothing changed");
    // The other container gets what a third call uploaded.
    s.upload("d/a", b"uploaded").await.expect_success();
    s.typescript("console.log(require('fs').readFileSync('/data/d/a', 'utf8'))")
        .await
        .expect_stdout("uploaded\n");
    s.python("print(open('d/a').read())").await.expect_stdout("uploaded\n");
    s.python("import shutil; shutil.rmtree('d')").await.expect_success();
    s.typescript("console.log(require('fs').readdirSync('/data').join())").await.expect_stdout("b\n");
    assert_eq!(d.view().await.containers().await.len(), 2);
    d.stop().await;
}

#[tokio::test]
async fn the_data_directory_has_three_names() {
    let d = Daemon::start().await;
    let s = d.session("names");
    let code = "import os\nopen('/mnt/data/a', 'w').write('1')\nopen('/workspace/b', 'w').write('2')\n\
                open('c', 'w').write('3')\nprint([sorted(os.listdir(p)) for p in ('/data', '/mnt/data', \
                '/workspace')], os.getcwd())";
    let all = "['a', 'b', 'c']";
    let ran = s.python(code).await.expect_stdout(&format!("[{all}, {all}, {all}] /data\n"));
    assert_eq!(ran.files(), ["a", "b", "c"]);
    for name in ["/data/x", "/mnt/data/y", "/workspace/z", "w"] {
        s.upload(name, b"").await.expect_success();
    }
    assert_eq!(s.python("0").await.files(), ["a", "b", "c", "w", "x", "y", "z"]);
    d.stop().await;
}

#[tokio::test]
async fn file_names_are_kept_as_they_are() {
    let d = Daemon::start().await;
    let s = d.session("odd");
    let names = [
        "-rf",
        "a\nb",
        "BZh91AY.bin",
        "e\u{301}.txt",
        "\u{e9}.txt",
        "ustar",
        " lead",
        "trail ",
        "dot.",
        "$(id)",
        "' OR 1=1 --",
        "{{7*7}}",
        "%s%n",
        "..%2f..%2fetc",
        "..\\..\\x",
        "a\r\nSet-Cookie: x=1",
        "\u{202e}gnp.exe",
        "\u{1f600}",
        "...",
        "#?&=+",
        ".hidden",
    ];
    let long = "n".repeat(255);
    let code = format!(
        "for n in {}:\n    open('/data/' + n, 'w').write('of ' + n)\n",
        serde_json::to_string(&names.iter().copied().chain([long.as_str()]).collect::<Vec<_>>())
            .expect("JSON")
    );
    let ran = s.python(&code).await.expect_success();
    let mut expected: Vec<String> = names.iter().copied().chain([long.as_str()]).map(str::to_owned).collect();
    expected.sort();
    assert_eq!(ran.files(), expected);
    for name in &expected {
        let answer = d.fetch(&ran.link(name)).await.expect(200);
        assert_eq!(answer.text(), format!("of {name}"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{name:?}");
        let disposition = answer.header("content-disposition");
        assert!(disposition.is_ascii() && !disposition.contains(['\r', '\n']), "{disposition:?}");
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    // The files survive the container.
    let view = d.view().await;
    let container = view.the_container("python").await;
    let mut events = view.follow().await;
    view.kill(&container).await;
    events.death_of(&container, PATIENCE).await;
    let read = format!(
        "{}\nimport os\nprint(len(os.listdir('/data')))",
        code.replace("'w').write('of ' + n)", "newline='').read() == 'of ' + n or print('BAD', n)")
    );
    s.python(&read).await.expect_stdout(&format!("{}\n", expected.len()));

    // A name that is not text is reported in another way.
    let ran = s.python("open(b'/data/\\xff\\xfe', 'w').write('bytes')").await.expect_success();
    let exact = BASE64_STANDARD.encode(b"\xff\xfe");
    let files = ran.document["files"].as_array().expect("files").clone();
    let file = files.iter().find(|file| file["name_base64"] == json!(exact)).expect("it is listed");
    assert_eq!(d.fetch(file["url"].as_str().expect("a link")).await.expect(200).text(), "bytes");
    d.stop().await;
}

#[tokio::test]
async fn every_shape_of_tree_is_saved() {
    let d = Daemon::start().await;
    let s = d.session("trees");
    let make = "import os\nos.makedirs('a/b/c/d')\nopen('a/b/c/d/deep', 'w').write('deep')\n\
                os.mkdir('empty')\nopen('zero', 'w')\nopen('closed', 'w').write('closed')\n\
                os.chmod('closed', 0)\nos.mkdir('shut')\nopen('shut/in', 'w').write('in')\nos.chmod('shut', \
                0)\nopen('run.sh', 'w').write('#!/bin/sh\\necho ran\\n')\nos.chmod('run.sh', 0o755)\n\
                os.makedirs('/data/' + '/'.join('d' * 1 for _ in range(60)))";
    let ran = s.python(make).await.expect_success();
    assert_eq!(ran.files(), ["a/b/c/d/deep", "closed", "run.sh", "shut/in", "zero"]);
    for (name, content) in [("closed", "closed"), ("shut/in", "in"), ("zero", ""), ("a/b/c/d/deep", "deep")] {
        assert_eq!(d.fetch(&ran.link(name)).await.expect(200).text(), content);
    }
    for _ in 0..3 {
        let ran =
            s.python("import os\nprint(oct(os.stat('closed').st_mode), oct(os.stat('shut').st_mode))").await;
        let ran = ran.expect_stdout("0o100000 0o40000\n");
        assert_eq!(ran.artifacts(), Vec::<String>::new(), "looking changes nothing");
    }

    let view = d.view().await;
    let container = view.the_container("python").await;
    let mut events = view.follow().await;
    view.kill(&container).await;
    events.death_of(&container, PATIENCE).await;
    let look = "import os\nprint(os.listdir('empty'), os.path.getsize('zero'), os.path.isdir('/data/' + \
                '/'.join('d' * 60)))\nprint(oct(os.stat('closed').st_mode), \
                os.popen('./run.sh').read().strip())";
    s.python(look).await.expect_stdout("[] 0 True\n0o100000 ran\n");

    let change = "import os, shutil\nos.rename('a/b/c/d/deep', 'up')\nshutil.rmtree('a')\nos.remove('zero')\n\
                  os.mkdir('zero')\nopen('zero/now', 'w').write('a directory')\nshutil.rmtree('empty')\n\
                  open('empty', 'w').write('a file')";
    let ran = s.python(change).await.expect_success();
    assert_eq!(ran.files(), ["closed", "empty", "run.sh", "shut/in", "up", "zero/now"]);
    s.typescript(
        "const fs = require('fs'); console.log(fs.readFileSync('/data/zero/now', 'utf8'), \
                  fs.readFileSync('/data/empty', 'utf8'), fs.existsSync('/data/a'))",
    )
    .await
    .expect_stdout("a directory a file false\n");
    d.stop().await;
}

#[tokio::test]
async fn a_program_that_closes_data_itself_closes_it_for_nobody_else() {
    let d = Daemon::start().await;
    let s = d.session("closed");
    for mode in ["000", "600", "555"] {
        let ran = s.sh(&format!("echo kept > f{mode}; chmod {mode} /data; echo done")).await;
        ran.expect_stdout("done\n");
        s.upload(&format!("g{mode}"), b"kept").await.expect_success();
        s.sh(&format!("cat f{mode} g{mode}")).await.expect_stdout("kept\nkept");
    }
    s.python("import os; os.chmod('/data', 0)").await.expect_success();
    s.python("import os; print(len(os.listdir('/data')))").await.expect_stdout("6\n");
    d.stop().await;
}

/// As after a copy of the store by another user. Root reads everything, unless it lacks the capabilities.
#[tokio::test]
async fn a_saved_file_that_the_daemon_cannot_read_is_named_and_nothing_is_lost() {
    let dropped = ["--bounding-set", "--inh-caps"].map(|set| format!("{set}=-dac_override,-dac_read_search"));
    let plain = ["setpriv", &dropped[0], &dropped[1], "--"];
    let d = Daemon::with().under(&plain).start().await;
    let s = d.session("s");
    s.upload("dir/shut", b"kept").await.expect_success();
    s.upload("open", b"too").await.expect_success();
    let sessions = std::fs::read_dir(d.store.path()).expect("the store");
    let mut files = sessions.flatten().map(|one| one.path().join("files/dir/shut"));
    let file = files.find(|file| file.exists()).expect("the saved file");
    let allow = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("a mode");
    allow(0);
    for _ in 0..2 {
        let refused = s.sh("cat open; rm -rf open dir").await.expect_error("file_unreadable");
        let message = refused.text("message");
        assert!(
            message.starts_with("the saved file \"dir/shut\" of this session cannot be read"),
            "{message}"
        );
        assert!(!message.contains(d.store.path().to_str().expect("text")), "{message}");
    }
    allow(0o600);
    s.sh("cat dir/shut open").await.expect_stdout("kepttoo");
    // Or the caller replaces it.
    allow(0);
    s.upload("dir/shut", b"new").await.expect_success();
    s.tool("close_session").await.expect_success();
    s.sh("cat dir/shut open").await.expect_stdout("newtoo");
    d.stop().await;
}

#[tokio::test]
async fn every_change_of_a_file_is_noticed() {
    let d = Daemon::start().await;
    let s = d.session("sly");
    s.python("open('f', 'w').write('aaaa')").await.expect_success();
    // Same size, same times; and again at once.
    let sly = "import os\ns = os.stat('f')\nopen('f', 'r+').write('LETTER')\nos.utime('f', \
               ns=(s.st_atime_ns, s.st_mtime_ns))";
    for letter in ["bbbb", "cccc"] {
        let ran = s.python(&sly.replace("LETTER", letter)).await.expect_success();
        assert_eq!(d.fetch(&ran.link("f")).await.expect(200).text(), letter);
    }
    for n in 0..5 {
        let ran = s.python(&format!("open('f', 'w').write('{n:04}')")).await.expect_success();
        assert_eq!(d.fetch(&ran.link("f")).await.expect(200).text(), format!("{n:04}"));
    }
    d.stop().await;
}

#[tokio::test]
async fn many_files_and_large_ones_are_saved() {
    let d = Daemon::start().await;
    let s = d.session("many");
    let many = "import os\nfor n in range(2000):\n    os.makedirs(f'd{n % 40}', exist_ok=True)\n    \
                open(f'd{n % 40}/{n}', 'w').write(str(n))";
    let ran = s.python(many).timeout(60.0).await.expect_success();
    assert_eq!((ran.files().len(), &ran.document["files_truncated"]), (100, &json!(true)));
    assert_eq!((ran.artifacts().len(), &ran.document["artifacts_truncated"]), (100, &json!(true)));
    let large = "import hashlib\nb = b''.join(hashlib.sha256(str(n).encode()).digest() for n in range(60 * \
                 32768))\nopen('large', 'wb').write(b)\nprint(len(b), hashlib.sha256(b).hexdigest())";
    let told = s.python(large).timeout(120.0).await.expect_success().stdout().to_owned();
    assert!(told.starts_with("62914560 "), "{told}");

    let view = d.view().await;
    let container = view.the_container("python").await;
    let mut events = view.follow().await;
    view.kill(&container).await;
    events.death_of(&container, PATIENCE).await;
    let check = "import hashlib, os\nb = open('large', 'rb').read()\nprint(len(b), \
                 hashlib.sha256(b).hexdigest())\nassert all(open(f'd{n % 40}/{n}').read() == str(n) for n in \
                 range(2000))";
    s.python(check).timeout(60.0).await.expect_stdout(&told);
    d.stop().await;
}

#[tokio::test]
async fn special_files_stay_in_the_container_and_are_reported() {
    let d = Daemon::start().await;
    let s = d.session("special");
    let code = "import os, socket\nos.mkfifo('fifo')\nsocket.socket(socket.AF_UNIX).bind('sock')\n\
                open('real', 'w').write('real')\nos.link('real', 'hard')";
    let ran = s.python(code).await.expect_success();
    assert_eq!(ran.files(), ["hard", "real"]);
    let mut told = ran.not_saved();
    told.sort();
    assert_eq!(told, ["/mnt/data/fifo: it is no regular file", "/mnt/data/sock: it is no regular file"]);
    let on_disk = d.store.file_names();
    assert!(on_disk.iter().any(|name| name == "real"));
    d.stop().await;
}

#[tokio::test]
async fn a_container_lost_between_two_calls_loses_nothing() {
    let d = Daemon::start().await;
    let s = d.session("lost");
    s.python("open('a', 'w').write('kept')").await.expect_success();
    let view = d.view().await;
    let mut events = view.follow().await;
    for _ in 0..3 {
        let container = view.running("python").await;
        view.kill(&container).await;
        events.death_of(&container, PATIENCE).await;
        let begun = Instant::now();
        s.python("print(open('a').read())").await.expect_stdout("kept\n");
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    }
    d.stop().await;
}

#[tokio::test]
async fn a_container_lost_during_a_run_is_reported_and_the_run_never_repeated() {
    let d = Daemon::start().await;
    let s = d.session("lost");
    s.python("open('a', 'w').write('kept')").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("python").await;
    let (ran, ()) =
        join!(async { s.python("open('b', 'w').write('x')\nimport time\ntime.sleep(60)").await }, async {
            view.exec(&container, &["sh", "-c", "until [ -s /data/b ]; do sleep 0.01; done"]).await;
            view.kill(&container).await;
        });
    let ran = ran.expect_error("lost").expect_exit(-1);
    // The engine may still have the memory of dead processes for a moment. So the file of this run is either
    // saved and named in the answer, or neither of the two.
    let files = ran.files();
    assert!(files == ["a"] || files == ["a", "b"], "{files:?}");
    let b = if files.len() == 2 { "x" } else { "None" };
    assert_eq!(ran.text("message").contains("were saved"), b == "x", "{}", ran.text("message"));
    let look = "import os; print(open('a').read(), open('b').read() if os.path.exists('b') else None)";
    s.python(look).await.expect_stdout(&format!("kept {b}\n"));
    d.stop().await;
}

#[tokio::test]
async fn an_image_comes_with_the_answer() {
    let d = Daemon::start().await;
    let code = "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as p\np.plot([1, 2])\n\
                p.savefig('p.png')\nprint('ok')";
    let ran = d.session("plot").python(code).timeout(60.0).await.expect_stdout("ok\n");
    assert_eq!(ran.content.len(), 2, "{:?}", ran.content.len());
    assert_eq!(
        (&ran.content[1]["type"], &ran.content[1]["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    let data = BASE64_STANDARD.decode(ran.content[1]["data"].as_str().expect("data")).expect("base64");
    assert_eq!(d.fetch(&ran.link("p.png")).await.expect(200).body, data);
    assert_eq!(ran.document["artifacts"][0]["mime_type"], "image/png");
    // A file with the name of an image that is not one, and more images than one answer contains.
    let code = "open('no.png', 'w').write('text'); b = open('p.png', 'rb').read(); open('half.png', \
                'wb').write(b[:99])\nfor n in range(6): open(f'{n}.png', 'wb').write(b)";
    let ran = d.session("plot").python(code).await.expect_success();
    let shown = ran.content.iter().filter(|block| block["type"] == "image").count();
    assert_eq!((shown, &ran.document["images_not_shown"]), (4, &json!(2)), "{}", ran.document);
    d.stop().await;
}

/// So much that an archive is quicker than an exec's stream.
const MUCH: usize = 20 << 20;

#[tokio::test]
async fn all_saved_files_go_into_a_new_container_at_once_and_are_the_same_there() {
    let debug = || Daemon::with().env("SANDBOX_LOG_LEVEL", "debug");
    let (d, archived) = (debug().without_tracing().start().await, "brought in by an archive");
    is_the_same_there(d, Some(archived)).await;
    // Where the agent's stream is quicker, no archive is used.
    is_the_same_there(debug().start().await, None).await;
}

async fn is_the_same_there(d: Daemon, said: Option<&str>) {
    let s = d.session("s");
    let long = "n".repeat(120);
    let code = format!(
        "import os\nos.makedirs('d/{long}/e')\nos.mkdir('empty')\nopen('d/{long}/e/f', 'w').write('deep')\n\
         open('big', 'wb').write(os.urandom({MUCH}))\nopen('none', 'w')\nos.symlink('d/{long}', 'l')\n\
         os.symlink('/usr/bin/env', 'out')\nopen(b'raw\\xff', 'w').write('bytes')\nos.chmod('none', 0o600)"
    );
    s.python(&code).await.expect_success();
    // The time of a link itself is not kept.
    let look = "export LC_ALL=C; find . -type f -printf '%p %m %s %T@\\n' | sort; md5sum big; \
                find . -type l -printf '%p %l\\n' | sort; find . -type d -printf '%p %m\\n' | sort";
    let there = s.python(&format!("import subprocess; subprocess.run(['sh', '-c', {look:?}])")).await;
    let mark = d.log.mark();
    let here = s.sh(look).await.expect_success();
    if let Some(line) = said {
        d.log.line_since(mark, line).await;
    }
    assert_eq!(here.stdout(), there.stdout());
    assert!(here.stdout().contains("./out /usr/bin/env"), "{}", here.stdout());
    // Both sides agree: nothing is sent back, and a change is noticed.
    assert_eq!(here.artifacts(), Vec::<String>::new());
    let changed = s.sh("printf x | dd of=big bs=1 seek=7 conv=notrunc 2>/dev/null; rm none; id -u").await;
    assert_eq!(changed.artifacts(), ["/mnt/data/big"]);
    let uid = s.sh("stat -c %u d big").await.expect_success();
    assert_eq!(uid.stdout(), changed.stdout().repeat(2), "they belong to the container's own user");
    s.python("import os; print(os.path.exists('none'))").await.expect_stdout("False\n");
    d.stop().await;
}
