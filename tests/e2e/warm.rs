//! Warm parts: both kinds of the protocol in as few lines as a stranger would write, and what code and bad
//! images can do to them.

use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use paddock_proto::message::RunSpec;

use crate::container::{Container, ended, spec};
use crate::support::{Call, Daemon, Image, Ran, Session, Setup, field};

/// Prints how it was started, in Python: warm or cold.
const HOW: &str = "import os; print('warm' if globals().get('WARM') else 'cold')";

/// A daemon with an image of the test.
async fn daemon(language: &str, image: &Image) -> Daemon {
    Daemon::with().set(&format!("runners.{language}"), image.name()).start().await
}

/// A daemon whose session `s` has a container in which the example's warm part is ready.
async fn standing(target: &str) -> (Daemon, Image) {
    let (image, language) = (Image::example(target), if target == "perl" { "perl" } else { "python" });
    let d = daemon(language, &image).await;
    d.session("s").run(language, "print(1)").await.expect_success();
    d.log.line(&format!("INFO warm language={language}")).await;
    (d, image)
}

/// A daemon whose session `s` has a container in which the warm part of paddock's Python image is ready.
async fn standing_python(setup: Setup) -> Daemon {
    let d = setup.start().await;
    d.session("s").python("print(1)").await.expect_success();
    d.log.line("INFO warm language=python").await;
    d
}

/// A call that the warm part of session `s` ran. On a slow machine its next process may be late for a run,
/// which is cold then: the call is made again, after a rest.
pub(crate) async fn by_the_part<'d>(d: &'d Daemon, call: impl Fn(&Session<'d>) -> Call<'d>) -> Ran {
    let mut rest = Duration::from_millis(250);
    for _ in 0..6 {
        let mark = d.log.mark();
        let ran = call(&d.session("s")).await;
        if d.log.line_since(mark, "ended session_id=s").await.contains("warm=true") {
            return ran;
        }
        tokio::time::sleep(rest).await;
        rest *= 2;
    }
    panic!("no run was warm: {}", d.log.text());
}

/// A part whose next process is never ready for the run behind it would have had one of two runs cold.
fn few_were_cold(d: &Daemon) {
    let cold = d.log.count("warm=false");
    assert!(cold < 6, "{cold} runs were cold: {}", d.log.text());
}

#[tokio::test]
async fn a_waiting_process_serves_one_run_and_the_next_is_ready_behind_it() {
    let (d, _image) = standing("perl").await;
    let s = d.session("s");
    let mut pids = Vec::new();
    for n in 0..10 {
        let code = format!(
            "print STDERR 'e'; open F, '>>', 'f'; print F {n} if $main::WARM; close F; \
             print $main::WARM, \" $$\""
        );
        let ran = by_the_part(&d, |s| s.run("perl", &code)).await.expect_success();
        assert_eq!(ran.stderr(), "e");
        let (warm, pid) = ran.stdout().split_once(' ').expect("two words");
        assert_eq!(warm, "1");
        pids.push(pid.to_owned());
    }
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 10, "each run is a process of its own");
    few_were_cold(&d);
    s.run("perl", "open F, 'f'; print <F>").await.expect_stdout("0123456789");
    // Exit codes, input, and the caller's variables.
    s.run("perl", "exit 7").await.expect_exit(7);
    s.run("perl", "kill 9, $$").await.expect_exit(137);
    s.run("perl", "die qq(no\\n)").await.expect_exit(255);
    let code = "print $main::WARM, $ENV{A}, $ENV{HOME}";
    let ran = by_the_part(&d, |s| s.run("perl", code).env("A", "b=\u{e9} c")).await;
    ran.expect_stdout("1b=\u{e9} c/tmp");
    let long = "x".repeat(90_000);
    s.run("perl", &format!("print length q({long})")).await.expect_stdout("90000");
    d.stop().await;
}

#[tokio::test]
async fn a_forking_process_serves_run_after_run() {
    let (d, _image) = standing("fork").await;
    let s = d.session("s");
    let mut parents = Vec::new();
    for n in 0..10 {
        let code = format!(
            "import os, sys; print(WARM, os.getppid()); open('f', 'a').write('{n}'); sys.stderr.write('e')"
        );
        let ran = by_the_part(&d, |s| s.python(&code)).await.expect_success();
        assert_eq!(ran.stderr(), "e");
        parents.push(ran.stdout().to_owned());
    }
    parents.dedup();
    assert_eq!(parents.len(), 1, "all of one process: {parents:?}");
    few_were_cold(&d);
    s.python("print(open('f').read())").await.expect_stdout("0123456789\n");
    s.python("raise SystemExit(7)").await.expect_exit(7);
    s.python("import os; os.kill(os.getpid(), 15)").await.expect_exit(143);
    let code = "import sys; print(sys.stdin.read(), WARM)";
    by_the_part(&d, |s| s.python(code).stdin("in\n")).await.expect_stdout("in\n True\n");
    let code = "import os; print(os.environ['A'], WARM)";
    let ran = by_the_part(&d, |s| s.python(code).env("A", "b=\u{e9} c")).await;
    ran.expect_stdout("b=\u{e9} c True\n");
    let code = format!("print(len('{}'), WARM)", "x".repeat(90_000));
    by_the_part(&d, |s| s.python(&code)).await.expect_stdout("90000 True\n");
    d.stop().await;
}

#[tokio::test]
async fn the_processes_of_a_run_are_dead_when_it_is_answered_and_the_warm_part_survives() {
    let (d, _image) = standing("fork").await;
    let s = d.session("s");
    let view = d.view().await;
    let container = view.the_container("python").await;
    let processes = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -o '^sleep .*'; done; true";
    // A process that forked twice, in a session of its own, ignoring every signal that it can; and a plain
    // child.
    let code = "import os, signal, subprocess\n\
                if os.fork() == 0:\n\
                \x20   os.setsid()\n\
                \x20   if os.fork() == 0:\n\
                \x20       for n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\n\
                \x20       os.execvp('sleep', ['sleep', '1000'])\n\
                \x20   os._exit(0)\n\
                os.wait()\n\
                subprocess.Popen(['sleep', '2000'])\n\
                print(WARM)";
    by_the_part(&d, |s| s.python(code)).await.expect_stdout("True\n");
    assert_eq!(view.exec(&container, &["sh", "-c", processes]).await, "");
    by_the_part(&d, |s| s.python(HOW)).await.expect_stdout("warm\n");
    // Killed at its timeout, with all its processes.
    let code = "import subprocess, time; subprocess.Popen(['sleep', '3000'], start_new_session=True); \
                time.sleep(60)";
    s.python(code).timeout(0.5).await.expect_limit(Some("wall_time"));
    assert_eq!(view.exec(&container, &["sh", "-c", processes]).await, "");
    by_the_part(&d, |s| s.python(HOW)).await.expect_stdout("warm\n");
    d.stop().await;
}

/// Uses `clone`, so that the new process is a child of the warm part instead of the run: nothing in its
/// ancestry belongs to the run.
#[tokio::test]
async fn a_process_that_a_run_made_a_child_of_the_warm_part_is_dead_when_it_is_answered() {
    let (d, _image) = standing("fork").await;
    let view = d.view().await;
    let container = view.the_container("python").await;
    let code = "import ctypes, os\n\
                number = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]\n\
                CLONE_PARENT, SIGCHLD, part = 0x8000, 17, os.getppid()\n\
                pid = ctypes.CDLL(None).syscall(number, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)\n\
                if pid == 0:\n\
                \x20   os.execvp('sleep', ['sleep', '1000'])\n\
                children = open(f'/proc/{part}/task/{part}/children').read().split()\n\
                print(pid, str(pid) in children)";
    let ran = by_the_part(&d, |s| s.python(code)).await.expect_success();
    let (pid, is_its_child) = ran.stdout().trim().split_once(' ').expect("two words");
    assert_eq!(is_its_child, "True");
    let state = format!("sed 's/.*) //; s/ .*//' /proc/{pid}/stat 2>/dev/null");
    let state = view.exec(&container, &["sh", "-c", &state]).await;
    assert!(["", "Z\n"].contains(&state.as_str()), "{state}");
    by_the_part(&d, |s| s.python(HOW)).await.expect_stdout("warm\n");
    d.stop().await;
}

/// Paddock's Python keeps a process on a program's memory, so the program can make that process run anything.
#[tokio::test]
async fn the_process_that_keeps_a_runs_memory_cannot_outlive_it() {
    let d = standing_python(Daemon::with()).await;
    let s = d.session("s");
    let view = d.view().await;
    let container = view.the_container("python").await;
    let code = "import ctypes, os, time\n\
                me, part, libc = os.getpid(), os.getppid(), ctypes.CDLL(None)\n\
                children = open(f'/proc/{part}/task/{part}/children').read().split()\n\
                holder = int(children[children.index(str(me)) + 1])\n\
                state = lambda: open(f'/proc/{holder}/stat').read().rsplit(')', 1)[1].split()[0]\n\
                was = state()\n\
                at = ctypes.cast(libc.syscall, ctypes.c_void_p).value\n\
                for_ever = {'x86_64': b'\\xeb\\xfe', 'aarch64': b'\\0\\0\\0\\x14'}[os.uname().machine]\n\
                assert libc.mprotect(ctypes.c_void_p(at & ~4095), 8192, 7) == 0\n\
                ctypes.memmove(at, for_ever, len(for_ever))\n\
                os.kill(holder, 18)\n\
                while state() != 'R': time.sleep(0.001)\n\
                print(was, holder)";
    let ran = s.python(code).await.expect_success();
    // It was not mistaken for a waiting process, and the answer did not come while it lived.
    assert!(ran.document["duration_ms"].as_u64() >= Some(150), "{}", ran.document);
    let (was, holder) = ran.stdout().trim().split_once(' ').expect("two words");
    assert_eq!(was, "T", "it stood still before");
    assert_eq!(view.exec(&container, &["sh", "-c", &format!("ls -d /proc/{holder} 2>/dev/null")]).await, "");
    // The warm part itself, of which every later run is a copy, can be neither read nor written.
    let code = "import os\n\
                try: open(f'/proc/{os.getppid()}/mem', 'r+b')\n\
                except PermissionError: print('refused')";
    s.python(code).await.expect_stdout("refused\n");
    d.stop().await;
}

/// A file is open, locked and takes its space while any process has it mapped.
#[tokio::test]
async fn the_mapped_files_of_a_run_are_unmapped_when_it_is_answered() {
    let d = standing_python(Daemon::with()).await;
    let s = d.session("s");
    let code = "import fcntl, mmap, os\n\
                f = open('/tmp/l', 'a+b'); f.truncate(4096)\n\
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
                m = mmap.mmap(f.fileno(), 4096); os._exit(0)";
    for _ in 0..30 {
        s.python(code).await.expect_success();
    }
    d.stop().await;
}

/// Nice value, policy and processors of the warm part would apply to all later runs, and no process may reset
/// them. So no process may set them; a change of affinity is answered with success but not made.
#[tokio::test]
async fn an_earlier_run_cannot_change_the_scheduling_of_a_later_one() {
    let d = Daemon::start().await;
    let s = d.session("s");
    let how = "import os; print(os.nice(0), os.sched_getscheduler(0), len(os.sched_getaffinity(0)))";
    let usual = s.python(how).await.expect_success().stdout().to_owned();
    for whose in ["part", "children[-1]"] {
        let armed = format!(
            "import os, time\n\
             part = os.getppid(); time.sleep(0.1)\n\
             children = [int(p) for p in open(f'/proc/{{part}}/task/{{part}}/children').read().split()]\n\
             def refused(call, *args):\n    \
             try: call({whose}, *args)\n    except PermissionError: return True\n    return False\n\
             print(refused(lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 10)),\n      \
             refused(os.sched_setscheduler, os.SCHED_IDLE, os.sched_param(0)),\n      \
             refused(os.sched_setaffinity, [min(os.sched_getaffinity(0))]))"
        );
        loop {
            let mark = d.log.mark();
            s.python(&armed).await.expect_stdout("True True False\n");
            if d.log.line_since(mark, "ended session_id=s").await.contains("warm=true") {
                break;
            }
        }
        for _ in 0..10 {
            s.python(how).await.expect_stdout(&usual);
        }
    }
    d.stop().await;
}

/// As the daemon does while other tenants need the processors.
#[tokio::test]
async fn a_container_that_gets_other_processors_keeps_its_warm_part_and_its_runs() {
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("the processors");
    for (language, code) in [
        ("python", "import os, time; print(len(os.sched_getaffinity(0)), os.getppid()); time.sleep(0.3)"),
        (
            "typescript",
            "console.log(require('os').availableParallelism(), process.ppid); \
             await new Promise(done => setTimeout(done, 300))",
        ),
    ] {
        let d = Daemon::start().await;
        let s = d.session("s");
        s.run(language, code).await.expect_success();
        d.log.line(&format!("INFO warm language={language}")).await;
        let container = d.view().await.the_container(language).await;
        let runs = async |processors: &str| {
            let mut update = Command::new("docker");
            update.args(["update", "--cpuset-cpus", processors, container.as_str()]);
            let updated = update.output().expect("docker");
            assert!(updated.status.success(), "{}", String::from_utf8_lossy(&updated.stderr));
            let ran = by_the_part(&d, |s| s.run(language, code)).await.expect_success();
            let (first, second) = ran.stdout().trim().split_once(' ').expect("two words");
            (first.to_owned(), second.to_owned())
        };
        let (many, part) = runs(all.trim()).await;
        assert_eq!(runs("0").await, ("1".to_owned(), part.clone()));
        assert_eq!(runs(all.trim()).await, (many, part));
        d.stop().await;
    }
}

/// The kernel frees a run's memory after its answer, but before it if the next run could need that memory.
#[tokio::test]
async fn the_memory_of_a_large_run_is_freed_before_its_answer() {
    let mut setup = Daemon::with().set("limits.memory", "512MiB").set("limits.upload", "1MiB");
    for room in ["limits.data", "limits.file_size", "limits.tmp", "limits.shm"] {
        setup = setup.set(room, "32MiB"); // unused space there is memory as well
    }
    let d = standing_python(setup).await;
    let s = d.session("s");
    let view = d.view().await;
    let container = view.the_container("python").await;
    let pid = view.engine.container_inspect(&container).await.expect("a container").state.pid;
    let used = || {
        let of = |file| std::fs::read_to_string(format!("/proc/{pid}/root/sys/fs/cgroup/{file}"));
        let used = of("memory.current").or_else(|_| of("memory/memory.usage_in_bytes")).expect("its cgroup");
        used.trim().parse::<u64>().expect("a number") >> 20
    };
    for _ in 0..5 {
        let ran = s
            .python("import os; a = bytearray(b'x') * (400 << 20); print(len(a), flush=True); os._exit(0)")
            .await;
        let used = used();
        ran.expect_stdout("419430400\n");
        assert!(used < 400, "{used} MiB are in use");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_warm_part_that_code_kills_or_stops_restarts_and_no_run_waits_for_it() {
    let (d, _image) = standing("fork").await;
    let s = d.session("s");
    for what in [
        "os.kill(os.getppid(), 9); time.sleep(60)",
        "os.kill(-1, 9)",
        "os.kill(os.getppid(), 19)",
        "os.kill(-1, 19)",
        // The child that waits for the next run, or will.
        "time.sleep(0.3); p = os.getppid(); [os.kill(int(x), 9) for x in \
         open(f'/proc/{p}/task/{p}/children').read().split() if int(x) != os.getpid()]",
    ] {
        let ran = s.python(&format!("import os, time; print(WARM, flush=True); {what}")).timeout(5.0).await;
        assert_eq!(ran.stdout(), "True\n", "{what}: {}", ran.document);
        if what.contains("19") {
            ran.expect_success(); // the process that reports its end was only stopped
        }
        by_the_part(&d, |s| s.python(HOW)).await.expect_stdout("warm\n");
    }
    d.stop().await;
}

/// A warm part closes its memory once it is ready. Here code that ended one waits for the next, to write to
/// it before that.
#[tokio::test]
async fn code_that_ends_a_warm_part_does_not_meet_the_next_one_while_it_loads() {
    let container = Container::of("python").await;
    let argv = container.stand().await.join("\0");
    let code = "import os, sys, time\nwanted = os.environ['PART'].encode().replace(b' ', b'\\0')\ndef \
                is_part(pid):\n\x20   try: return open(f'/proc/{pid}/cmdline', \
                'rb').read().startswith(wanted)\n\x20   except OSError: return False\ndef is_open(pid):\n\
                \x20   try: open(f'/proc/{pid}/mem', 'r+b').close()\n\x20   except OSError: return False\n\
                \x20   return True\ndef parts(): return {int(pid) for pid in os.listdir('/proc') if \
                pid.isdigit() and is_part(pid)}\nbefore = parts()\nprint(len(before) > 0, any(map(is_open, \
                before)))\nfor pid in before:\n\x20   try: os.kill(pid, 9)\n\x20   except \
                ProcessLookupError: pass\nend, met = time.monotonic() + 4, 0\nwhile time.monotonic() < end: \
                met += any(map(is_open, parts() - before))\nprint(met)";
    let argv_of_code = ["python3", "-c", code].map(str::to_owned).to_vec();
    let env =
        vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned(), format!("PART={}", argv.replace('\0', " "))];
    let ran = container.run(&RunSpec { argv: argv_of_code, env, ..spec("") });
    assert_eq!(ended(&ran).await.0, "True False\n0\n");
    // After that run the warm part restarts.
    container.stand().await;
    container.stop().await;
}

#[tokio::test]
async fn a_run_outlives_its_daemon_in_a_warm_part_too() {
    let (d, image) = standing("fork").await;
    let s = d.session("s");
    let view = d.view().await;
    let container = view.the_container("python").await;
    let code = "import os, time; print('one', WARM, flush=True); open('/tmp/begun', 'w').close()\n\
                while not os.path.exists('/tmp/go'): time.sleep(0.05)\n\
                print('two'); open('f', 'w').write('kept')";
    let call = s.python(code).timeout(30.0);
    let begun = async {
        view.begun(&container).await;
        d.kill();
    };
    tokio::join!(async { drop(call.try_answer().await) }, begun);
    let store = d.crash().await;
    let d = Daemon::with().set("runners.python", image.name()).store(&store).start().await;
    view.exec(&container, &["touch", "/tmp/go"]).await;
    let s = d.session("s");
    let ran = s.python("print(open('f').read(), globals().get('WARM'))").await.expect_stdout("kept True\n");
    let earlier = &ran.document["earlier_runs"][0];
    assert_eq!(earlier["success"], true, "{earlier}");
    let log = d.fetch(earlier["log_url"].as_str().expect("a log")).await.expect(200);
    assert_eq!(log.text(), "one True\ntwo\n");
    d.stop().await;
}

#[tokio::test]
async fn an_image_with_a_broken_warm_part_still_runs_code() {
    for (part, complaint) in [
        (r#"["/nothing/there"]"#, None),
        (r#"["/bin/true"]"#, None),
        (r#"["/bin/sh", "-c", "echo nonsense >&3; sleep 60"]"#, None),
        (r#"["/bin/sh", "-c", "yes >&3"]"#, None),
        (r#"["/bin/sh", "-c", "echo ready 1 >&3; sleep 60"]"#, None),
        // Says that it is ready, and never reads.
        (r#"["/bin/sh", "-c", "echo ready 77 >&3; sleep 60"]"#, None),
        ("/bin/true", Some("JSON array")),
    ] {
        let label = part.replace('\'', "");
        let dockerfile = format!("FROM paddock-example-sh\nLABEL sandbox.runner= sandbox.warm='{label}'\n");
        let image = Image::build(&dockerfile, &[]);
        let d = daemon("sh", &image).await;
        let s = d.session("s");
        for n in 0..3 {
            s.sh(&format!("echo {n}")).await.expect_stdout(&format!("{n}\n"));
        }
        if let Some(complaint) = complaint {
            assert!(d.log.text().contains(complaint), "{part}: {}", d.log.text());
        }
        d.stop().await;
    }
}

#[tokio::test]
async fn warm_parts_can_be_switched_off() {
    let image = Image::example("fork");
    let d = Daemon::with().set("runners.python", image.name()).set("agent.warm_parts", false).start().await;
    d.session("s").python(HOW).await.expect_stdout("cold\n");
    assert_eq!(d.log.count("INFO warm"), 0);
    let line = d.log.line("armed language=python").await;
    assert!(field(&line, "container").is_some(), "{line}");
    d.stop().await;
}

/// A burst needs more containers than were idle; one of its conversations continues without a pause.
#[tokio::test]
async fn a_conversation_in_a_burst_runs_cold_for_a_while_and_then_warm() {
    let d = Daemon::start().await;
    let code = "import sys; print('pandas' in sys.modules); import pandas";
    let first = (0..6).map(|n| d.session(&format!("s{n}")).python(code).into_future());
    for ran in join_all(first).await {
        ran.expect_success();
    }
    let s = d.session("s0");
    let mut warm = Vec::new();
    for _ in 0..20 {
        warm.push(s.python(code).await.expect_success().stdout() == "True\n");
    }
    assert!(
        warm[9..].iter().all(|warm| *warm),
        "its tenth run is warm, and so are those behind it: {warm:?}"
    );
    d.stop().await;
}
