//! `run_code`: what a program sees, what the tool answers, and how a run ends.

use std::time::Instant;

use tokio::join;

use crate::support::Daemon;

#[tokio::test]
async fn python_runs() {
    let d = Daemon::start().await;
    d.run("python", "print(1)").await.expect_stdout("1\n");

    let s = d.session("py");
    let ran = s.python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)").await;
    let ran = ran.expect_exit(7).expect_limit(None);
    assert_eq!((ran.stdout(), ran.stderr(), ran.text("output")), ("out\n", "err\n", "out\n\nerr\n"));
    assert_eq!((ran.text("session_id"), ran.text("conversationId")), ("py", "py"));
    assert_eq!(ran.text("language"), "python");
    assert!(ran.text("run_id").starts_with("run_20") && ran.document["duration_ms"].is_u64());

    let ran = s.python("def f():\n    return 1 / 0\nf()\n").await.expect_exit(1);
    for part in ["Traceback (most recent call last)", "line 2, in f", "ZeroDivisionError: division by zero"] {
        assert!(ran.stderr().contains(part), "no {part:?} in {}", ran.stderr());
    }
    s.python("import os; print(os.environ['GREETING'], os.environ['HOME'])")
        .env("GREETING", "hé = \n!")
        .await
        .expect_stdout("hé = \n! /tmp\n");
    s.python("import sys; print(sys.stdin.read()[::-1], input('?'))").stdin("abc").await.expect_exit(1);
    s.python("print(input(), input())").stdin("a\nb\n").await.expect_stdout("a b\n");
    s.python("import sys; print(repr(sys.stdin.read()))").stdin("").await.expect_stdout("''\n");
    s.python("import sys; print(repr(sys.stdin.read()))").await.expect_stdout("''\n");
    s.python("print(open('in/a.txt').read())").file("in/a.txt", b"given").await.expect_stdout("given\n");
    s.python("import numpy, pandas; print(pandas.DataFrame({'a': [1, 2]}).a.sum())")
        .await
        .expect_stdout("3\n");
    d.stop().await;
}

#[tokio::test]
async fn typescript_runs() {
    let d = Daemon::start().await;
    let s = d.session("ts");
    s.typescript("enum Colour { Red = 3 }\nconst c: Colour = Colour.Red;\nconsole.log(c, Colour[3]);")
        .await
        .expect_stdout("3 Red\n");
    s.typescript(
        "function twice(_: unknown, __: string, d: PropertyDescriptor) { const f = d.value; d.value = \
         function () { return f() * 2 } }\nclass A { @twice n() { return 21 } }\nconsole.log(new A().n());",
    )
    .await
    .expect_stdout("42\n");
    s.typescript("const x: number = await Promise.resolve(5);\nconsole.log(x as number);")
        .await
        .expect_stdout("5\n");
    s.typescript(
        "import { Client } from 'pg';\nimport Papa from 'papaparse';\nconsole.log(typeof Client, \
                  Papa.parse('a,b').data[0]);",
    )
    .await
    .expect_stdout("function [ 'a', 'b' ]\n");
    let ran = s
        .typescript("console.error('err');\nfunction f() {\n  throw new Error('boom');\n}\nf();")
        .await
        .expect_exit(1);
    assert!(ran.stderr().contains("err\n") && ran.stderr().contains("Error: boom"), "{}", ran.stderr());
    assert!(ran.stderr().contains(":3:"), "the line of the source: {}", ran.stderr());
    s.typescript(
        "import { readFileSync } from 'node:fs';\nconsole.log(readFileSync(0, \
                  'utf8').trim().length, process.env.A);",
    )
    .stdin("four\n")
    .env("A", "b")
    .await
    .expect_stdout("4 b\n");
    d.stop().await;
}

#[tokio::test]
async fn an_unknown_image_runs_by_the_contract_alone() {
    let d = Daemon::start().await;
    let s = d.session("sh");
    let ran = s.sh("pwd; echo err >&2; echo $A > a.txt; exit 3").env("A", "b c").await.expect_exit(3);
    assert_eq!((ran.stdout(), ran.stderr()), ("/data\n", "err\n"));
    assert_eq!(d.fetch(&ran.link("a.txt")).await.expect(200).text(), "b c\n");
    let refused = s.sh("cat").stdin("x").await.expect_error("invalid_argument");
    assert!(refused.text("message").contains("stdin"), "{}", refused.document);
    d.stop().await;
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_and_its_files_are_kept() {
    let d = Daemon::start().await;
    let s = d.session("slow");
    s.python("0").await.expect_success(); // the container
    d.log.line("INFO warm language=python").await; // otherwise a run would wait for it
    for (language, code) in [
        (
            "python",
            "open('part.txt', 'w').write('half')\nprint('begun', flush=True)\nimport time\ntime.sleep(60)",
        ),
        ("python", "open('part.txt', 'w').write('half')\nprint('begun', flush=True)\nwhile True: pass"),
        (
            "python",
            "import os, signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    \
             except: 0\nopen('part.txt', 'w').write('half')\nprint('begun', flush=True)\nif os.fork() == 0: \
             os.setsid()\ntime.sleep(60)",
        ),
    ] {
        s.python("import os; os.path.exists('part.txt') and os.remove('part.txt')").await.expect_success();
        let begun = Instant::now();
        let ran = s.run(language, code).timeout(3.0).await;
        let took = begun.elapsed().as_secs_f64();
        let ran = ran.expect_exit(-1).expect_limit(Some("wall_time"));
        assert!((3.0..30.0).contains(&took), "it took {took} s, and ends by itself after 60 or never");
        assert_eq!(ran.document["timed_out"], true);
        assert_eq!(ran.stdout(), "begun\n");
        assert!(ran.stderr().ends_with("Execution timed out after 3 seconds"), "{}", ran.stderr());
        assert_eq!(d.fetch(&ran.link("part.txt")).await.expect(200).text(), "half");
    }
    s.python("print('again')").await.expect_stdout("again\n");
    for bad in [0.0, -1.0, 1801.0, 1e300] {
        s.python("print(1)").timeout(bad).await.expect_error("invalid_argument");
    }
    d.stop().await;
}

#[tokio::test]
async fn exit_codes_show_how_a_run_ended() {
    let d = Daemon::start().await;
    let s = d.session("ends");
    for (code, exit) in [
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.abort()", 134),
        ("import sys; sys.exit(137)", 137),
        ("import sys; sys.exit(0)", 0),
        ("import sys; sys.exit(256 + 5)", 5),
        ("raise SystemExit('words')", 1),
        ("import os; os._exit(3)", 3),
        ("import os; os.execvp('sh', ['sh', '-c', 'exit 11'])", 11),
    ] {
        s.python(code).await.expect_exit(exit).expect_limit(None);
    }
    s.sh("exec >&- 2>&-; sleep 1; exit 7").await.expect_exit(7).expect_limit(None);
    s.sh("kill -SEGV $$").await.expect_exit(139);
    d.stop().await;
}

#[tokio::test]
async fn long_output_is_cut_and_kept_completely_in_a_log() {
    let d = Daemon::with().set("limits.output", 1000).set("files.max_log", "1MiB").start().await;
    let s = d.session("long");
    let ran = s.python("for n in range(1000): print('line', n)").await.expect_success();
    let whole: String = (0..1000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(ran.document["stdout_truncated"], true);
    assert_eq!(ran.document["stderr_truncated"], false);
    let (head, tail) = ran.stdout().split_once("[... ").expect("a mark");
    let (mark, tail) = tail.split_once(" ...]\n").expect("an end of the mark");
    assert!(
        whole.starts_with(head) && whole.ends_with(tail) && tail.ends_with("line 999\n"),
        "{}",
        ran.stdout()
    );
    let left_out = whole.len() - head.len() - tail.len();
    assert_eq!(mark, format!("{left_out} of {} bytes are left out here", whole.len()));
    assert!((900..=1000).contains(&(head.len() + tail.len())), "{}", ran.stdout());
    let log = d.fetch(ran.text("log_url")).await.expect(200);
    assert_eq!(log.text(), whole);
    assert_eq!(log.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(ran.files(), Vec::<String>::new(), "a log is no file of /data");

    // A character is never cut in two.
    let ran = s.python("print('a' + 'ü' * 600)").await.expect_success();
    assert_eq!(ran.stdout().split('\n').next().expect("a line").len(), 499);
    assert_eq!(ran.document.get("stdout_lossy"), None);

    // Exactly the limit is not above it.
    let ran = s.python("import sys; sys.stdout.write('x' * 1000)").await.expect_stdout(&"x".repeat(1000));
    assert_eq!((&ran.document["stdout_truncated"], ran.document.get("log_url")), (&false.into(), None));

    // The log returns bytes that are not text exactly.
    let ran = s.python("import sys; sys.stdout.buffer.write(bytes(range(256)))").await.expect_success();
    assert_eq!(ran.document["stdout_lossy"], true);
    assert!(ran.stdout().contains('\u{fffd}'));
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(d.fetch(ran.text("log_url")).await.expect(200).body, all);

    let ran = s.python("import os\nos.system('yes')").await.expect_limit(Some("output"));
    assert!(ran.exit_code() != 0 && ran.document["stdout_truncated"] == true);
    assert_eq!(d.fetch(ran.text("log_url")).await.expect(200).body.len(), 1 << 20);
    let ran = s.sh("yes").await.expect_limit(Some("output"));
    assert!(ran.exit_code() != 0, "{}", ran.document);
    s.python("print('again')").await.expect_stdout("again\n");
    d.stop().await;
}

#[tokio::test]
async fn out_of_memory_is_reported_and_harms_nobody() {
    let d = Daemon::with()
        .set("limits.memory", "64MiB")
        .set("limits.data", "64MiB")
        .set("limits.upload", "1MB")
        .start()
        .await;
    let (s, other) = (d.session("eater"), d.session("other"));
    s.python("open('a.txt', 'w').write('kept')").await.expect_success();
    let (eaten, fine) = join!(
        async { s.python("open('b.txt', 'w').write('kept')\nx = bytearray(1 << 30)\nprint(len(x))").await },
        async { other.python("print('fine')").await },
    );
    let ran = eaten.expect_exit(137).expect_limit(Some("memory"));
    assert!(ran.stderr().contains("out of memory"), "{}", ran.stderr());
    assert_eq!(ran.files(), ["a.txt", "b.txt"]);
    fine.expect_stdout("fine\n");
    s.python("print(open('a.txt').read(), open('b.txt').read())").await.expect_stdout("kept kept\n");
    d.stop().await;
}

#[tokio::test]
async fn a_fork_bomb_ends_and_harms_nobody() {
    let d = Daemon::with().set("limits.pids", 64).start().await;
    let (s, other) = (d.session("bomb"), d.session("other"));
    other.python("print('warm')").await.expect_stdout("warm\n");
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let (bombed, fine) = join!(async { s.python(bomb).timeout(2.0).await }, async {
        other.python("import time; time.sleep(1); print('fine')").await
    },);
    bombed.expect_exit(-1).expect_limit(Some("wall_time"));
    fine.expect_stdout("fine\n");
    s.python("print('again')").await.expect_stdout("again\n");
    let ran = s.sh("f() { f | f & }; f; sleep 5").timeout(2.0).await;
    assert!(ran.is_error || ran.document["success"] == true, "{}", ran.document);
    s.sh("echo again").await.expect_stdout("again\n");
    d.stop().await;
}

#[tokio::test]
async fn no_process_of_a_run_survives() {
    let d = Daemon::start().await;
    let s = d.session("ghosts");
    let ghosts = "for n in 1 2 3; do setsid sh -c 'while :; do echo x >> /data/ghost; done' & done; \
         until [ -s /data/ghost ]; do sleep 0.01; done; sleep 0.3";
    let ran = s.sh(ghosts).await.expect_success();
    let size = d.fetch(&ran.link("ghost")).await.expect(200).body.len();
    for _ in 0..2 {
        s.sh("wc -c < /data/ghost").await.expect_stdout(&format!("{size}\n"));
    }
    // Orphans, orphans of orphans, and a daemon that closed everything.
    let code = "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        \
                if os.fork() == 0:\n            time.sleep(60)\n        os._exit(0)\nos.closerange(0, 50)";
    s.python(code).await;
    let count = "import os\nmine = []\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    try: \
                 mine.append((p, open(f'/proc/{p}/stat').read().split(')')[1].split()[0]))\n    except \
                 OSError: pass\nprint(sorted(state for p, state in mine if state == 'Z'), len(mine) < 8)";
    s.python(count).await.expect_stdout("[] True\n");
    d.stop().await;
}

#[tokio::test]
async fn code_that_signals_everything_it_can_only_hurts_itself() {
    only_hurts_itself(Daemon::start().await).await;
    // Without the direct carrier it can reach the bridge.
    only_hurts_itself(Daemon::with().without_tracing().start().await).await;
}

async fn only_hurts_itself(d: Daemon) {
    let s = d.session("signals");
    s.python("0").await.expect_success(); // the container
    d.log.line("INFO warm language=python").await;
    for (what, code) in [
        ("kill -9 -1", "open('f', 'w').write('x')\nimport os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)"),
        ("kill -STOP -1", "import os, signal\nos.kill(-1, signal.SIGSTOP)\nos._exit(0)"),
        (
            "kill -STOP of whatever has no parent here",
            "import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    \
             if p != '1' and open(f'/proc/{p}/stat').read().split(')')[-1].split()[1] == '0':\n        \
             os.kill(int(p), 19)\n        print('stopped')\nos._exit(0)",
        ),
        ("kill -TERM 1", "import os\nfor s in (1, 2, 3, 9, 10, 12, 15, 19):\n    os.kill(1, s)\nos._exit(0)"),
    ] {
        let begun = Instant::now();
        let ran = s.python(code).timeout(60.0).await;
        assert!(ran.exit_code() >= 0, "{what}: {}", ran.document);
        assert!(begun.elapsed().as_secs() < 30, "{what}: {:?}", begun.elapsed());
        s.python("print('again')").await.expect_stdout("again\n");
    }
    assert_eq!(s.python("0").await.files(), ["f"]);
    d.stop().await;
}

#[tokio::test]
async fn runs_of_one_session_take_turns_and_other_sessions_do_not_wait() {
    let d = Daemon::start().await;
    let (s, other) = (d.session("one"), d.session("two"));
    s.python("open('n', 'w').write('0')").await.expect_success();
    let view = d.view().await;
    let container = view.the_container("python").await;
    other.python("0").await.expect_success();
    let step = "import os, time\nn = int(open('n').read())\n\
                while not os.path.exists('/tmp/go'): time.sleep(0.05)\n\
                time.sleep(0.2)\nopen('n', 'w').write(str(n + 1))";
    let begun = Instant::now();
    let (turns, ()) = join!(
        async {
            let (a, b, c) = join!(s.python(step), s.python(step), s.python(step));
            for ran in [a, b, c] {
                ran.expect_success();
            }
            begun.elapsed()
        },
        async {
            // The turns go on after these runs, so they would end by their time if these waited for them.
            other.python("print('fine')").await.expect_stdout("fine\n");
            assert_eq!(view.exec(&container, &["touch", "/tmp/go"]).await, "");
        },
    );
    assert!(turns.as_millis() >= 600, "the turns were one beside the other: {turns:?}");
    s.python("print(open('n').read())").await.expect_stdout("3\n");
    d.stop().await;
}
