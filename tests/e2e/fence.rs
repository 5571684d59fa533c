//! Attacks on resources that a host has only once, for all containers together, and on what a run could leave
//! to the next.
//!
//! Each attack is small: it asks for what must be refused, and would do no harm if it were granted.

use serde_json::{Value, json};

use crate::support::{Daemon, Session};

/// Raw system calls in Python: `call(number, ...)` returns "ok" or the error's name; pointers are given as
/// bytes.
const CALLS: &str = "import ctypes, errno, json, os\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def call(n, *args):\n    \
    ctypes.set_errno(0)\n    \
    args = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in args]\n    \
    return 'ok' if libc.syscall(ctypes.c_long(n), *args) >= 0 else errno.errorcode[ctypes.get_errno()]\n\
    ON_X86 = os.uname().machine == 'x86_64'\n\
    def number(x86, arm): return x86 if ON_X86 else arm\n";

/// Runs Python that prints one JSON document.
async fn look(s: &Session<'_>, code: &str) -> Value {
    let ran = s.python(&format!("{CALLS}{code}")).await.expect_success();
    serde_json::from_str(ran.stdout()).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout()))
}

/// Otherwise one program could take all of `fs.aio-max-nr`, and no database of the host could start.
#[tokio::test]
async fn contexts_of_asynchronous_io_are_refused_to_programs() {
    let d = Daemon::start().await;
    let code = "context = ctypes.c_ulong(0)\nmade = call(number(206, 0), 65_000, ctypes.byref(context))\n\
                taken = int(open('/proc/sys/fs/aio-nr').read()) if made == 'ok' else 0\nif made == 'ok': \
                call(number(207, 1), context.value)\nrest = [call(number(*n), 0, 0, 0, 0, 0, 0) for n in \
                ((207, 1), (209, 2), (208, 4), (333, 292), (210, 3))]\nprint(json.dumps([made, taken, \
                rest]))";
    let absent = ["ENOSYS"; 5];
    assert_eq!(look(&d.session("aio"), code).await, json!(["ENOSYS", 0, absent]));
    d.stop().await;
}

#[tokio::test]
async fn pages_of_a_program_cannot_be_put_into_a_pipe() {
    let d = Daemon::start().await;
    // With no page at all, into a pipe that would accept them: it is refused, or answers 0.
    let code = "reading, writing = os.pipe()\nprint(json.dumps(call(number(278, 75), writing, 0, 0, 0)))";
    assert_eq!(look(&d.session("pipe"), code).await, "EPERM");
    d.stop().await;
}

/// The scheduling of a process, as it sees it.
const HOW: &str = "import ctypes, os\n\
    io = ctypes.CDLL(None).syscall(251 + 1 if os.uname().machine == 'x86_64' else 31, 1, 0)\n\
    print(os.sched_getscheduler(0), os.nice(0), io, len(os.sched_getaffinity(0)))";

/// PID 1 has the same user as all programs, and all later runs are forked from it.
#[tokio::test]
async fn a_run_changes_the_scheduling_of_no_other_process() {
    let d = Daemon::start().await;
    let s = d.session("slow");
    let by_pid_1 = |command: &'static str| s.tool("execute_code").with("command", command);
    let seen = |document: &Value| {
        let events = document["output"].as_array().expect("events").clone();
        let mut lines = events.iter().filter(|event| event["type"] == "stdout");
        lines.next().and_then(|event| event["data"].as_str()).unwrap_or_default().trim().to_owned()
    };
    let run = "python3 -c \"$HOW\"";
    let before = seen(&by_pid_1(run).with("environment", json!({ "HOW": HOW })).await.document);
    assert!(before.starts_with("0 0 0 "), "the usual scheduling: {before:?}");
    let attack = "sched_param = ctypes.c_int(0)\n\
        attr = (ctypes.c_uint32 * 12)(48, 5)\n\
        one = (ctypes.c_ulong * 16)(1 << min(os.sched_getaffinity(0)))\n\
        IDLE, IO_IDLE = 5, 3 << 13\n\
        PRIORITY, IOPRIO, SCHEDULER = number(141, 140), number(251, 30), number(144, 119)\n\
        def at(pid): return [\n    \
        call(SCHEDULER, pid, IDLE, ctypes.byref(sched_param)),\n    \
        call(SCHEDULER, pid | 1 << 32, IDLE, ctypes.byref(sched_param)),\n    \
        call(number(142, 118), pid, ctypes.byref(sched_param)),\n    \
        call(number(314, 274), pid, attr, 0),\n    \
        call(PRIORITY, 0, pid, 19),\n    \
        call(IOPRIO, 1, pid, IO_IDLE)]\n\
        others = [int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n\
        seen = sorted({answer for pid in others for answer in at(pid)})\n\
        groups = [call(PRIORITY, 1, 1, 19), call(PRIORITY, 2, 0, 19)]\n\
        groups += [call(IOPRIO, 2, 1, IO_IDLE), call(IOPRIO, 3, os.getuid(), IO_IDLE)]\n\
        pinned = [call(number(203, 122), pid, 128, one) for pid in others]\n\
        print(json.dumps([1 in others, seen, groups, set(pinned) == {'ok'}]))";
    // A change of affinity is answered with success: OpenMP, which pins its threads by their ids, would not
    // start otherwise.
    let refused = ["EPERM"; 4];
    assert_eq!(look(&s, attack).await, json!([true, ["EPERM"], refused, true]));
    let after = seen(&by_pid_1(run).with("environment", json!({ "HOW": HOW })).await.document);
    assert_eq!(after, before, "a later run, forked from PID 1");
    s.python(HOW).await.expect_stdout(&format!("{before}\n"));
    d.stop().await;
}

#[tokio::test]
async fn a_run_can_change_its_own_scheduling() {
    let d = Daemon::start().await;
    let code = "import threading\nhere = {min(os.sched_getaffinity(0))}\nos.sched_setaffinity(0, here)\n\
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))\npthread = ctypes.CDLL(None)\n\
                mask = (ctypes.c_ulong * 16)(1 << min(here))\npinned = []\ndef work(): \
                pinned.append(pthread.pthread_setaffinity_np(ctypes.c_ulong(threading.get_ident()), 128, \
                mask))\nthread = threading.Thread(target=work); thread.start(); thread.join()\n\
                print(json.dumps([os.nice(7), os.sched_getaffinity(0) == here, os.sched_getscheduler(0), \
                pinned]))";
    assert_eq!(look(&d.session("own"), code).await, json!([7, true, 3, [0]]));
    d.stop().await;
}

/// With a limit of 0 and a pipe in `core_pattern`, the kernel passes a crash to the host's handler, as root;
/// with 1 it does not. A program that lowers the limit is told that it succeeded.
#[tokio::test]
async fn no_crash_is_passed_to_a_program_of_the_host() {
    let d = Daemon::start().await;
    let s = d.session("core");
    let code = "import resource as r\nbefore = r.getrlimit(r.RLIMIT_CORE)\nr.setrlimit(r.RLIMIT_CORE, (0, \
                0))\nzero = (ctypes.c_uint64 * 2)(0, 0)\ncalls = [call(number(160, 164), 4 | 1 << 32, zero), \
                call(number(302, 261), 1 << 32, 4 | 1 << 32, zero, 0)]\nother = call(number(302, 261), 1, 4, \
                zero, 0)\nfiles = r.getrlimit(r.RLIMIT_NOFILE)[1]\nr.setrlimit(r.RLIMIT_NOFILE, (64, \
                files))\nlines = os.popen('ulimit -c 0; cat /proc/self/limits').read().splitlines()\nof = \
                lambda name: next(line for line in lines if \
                line.startswith(name)).removeprefix(name).split()[:2]\nchild = [of('Max core file size'), \
                of('Max open files')[0]]\nprint(json.dumps([before, calls, other, \
                r.getrlimit(r.RLIMIT_CORE), child]))";
    let expected = json!([[1, 1], ["ok", "ok"], "EPERM", [1, 1], [["1", "1"], "64"]]);
    assert_eq!(look(&s, code).await, expected);
    d.stop().await;
}

/// The host has one limit of terminals for all containers, and one program could use them all.
#[tokio::test]
async fn terminals_are_limited_and_work() {
    let d = Daemon::start().await;
    let code = "held, end = [], None\n\
        try:\n    \
        while len(held) < 200: held.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n\
        except OSError as e: end = errno.errorcode[e.errno]\n\
        count = len(held)\n\
        for fd in held: os.close(fd)\n\
        one, two = os.openpty()\n\
        os.write(two, b'said')\n\
        import pty\n\
        said = []\n\
        pty.spawn(['sh', '-c', 'test -t 0 && tty'], lambda fd: said.append(os.read(fd, 99)) or b'')\n\
        print(json.dumps([count, end, os.read(one, 9).decode(), b''.join(said).decode()[:9]]))";
    assert_eq!(look(&d.session("tty"), code).await, json!([64, "ENOSPC", "said", "/dev/pts/"]));
    d.stop().await;
}

/// It would take memory from every later run of the session.
#[tokio::test]
async fn system_v_ipc_of_a_run_is_removed_or_small_afterwards() {
    let d = Daemon::start().await;
    let s = d.session("ipc");
    let leave = "SHMGET, SHMAT, MSGGET, SEMGET = number(29, 194), number(30, 196), number(68, 186), \
                 number(64, 190)\nlibc.shmat.restype, libc.shmat.argtypes = ctypes.c_void_p, [ctypes.c_int, \
                 ctypes.c_void_p, ctypes.c_int]\nsegment = libc.shmget(7, 8 << 20, 0o1600)\n\
                 ctypes.memset(libc.shmat(segment, None, 0), 1, 8 << 20)\nqueues = 0\nwhile queues < 100 and \
                 call(MSGGET, 0, 0o600) == 'ok': queues += 1\nprint(json.dumps([segment >= 0, queues, \
                 call(SEMGET, 0, 32_000, 0o600)]))";
    assert_eq!(look(&s, leave).await, json!([true, 32, "EINVAL"]));
    assert_eq!(look(&s, "print(json.dumps(call(number(29, 194), 7, 0, 0)))").await, "ENOENT");
    d.stop().await;
}

/// The plain image keeps the code of a run in `/tmp`, which an earlier run may have filled.
#[tokio::test]
async fn a_session_with_a_full_tmp_continues() {
    let d = Daemon::with().set("limits.tmp", "1MiB").start().await;
    let s = d.session("full");
    for (what, fill) in [
        ("bytes", "head -c 9000000 /dev/zero > /tmp/fill"),
        ("entries", "rm -f /tmp/fill; n=0; while : > /tmp/fill.$n; do n=$((n + 1)); done"),
    ] {
        s.sh(&format!("({fill}) 2>/dev/null; echo x 2>/dev/null > /tmp/more.{what} && exit 9; exit 0"))
            .await
            .expect_success();
        let ran = s.sh("echo \"fine: $0\"; cat\n\necho 'the last line, without an end'; exit 3").await;
        assert_eq!((ran.exit_code(), ran.stderr()), (3, ""), "{what}: {}", ran.document);
        assert!(
            ran.stdout().starts_with("fine: ") && ran.stdout().ends_with("without an end\n"),
            "{what}: {}",
            ran.stdout()
        );
    }
    d.stop().await;
}

/// Our images store the code of a run in `/dev/shm` then, with their warm part and without it.
#[tokio::test]
async fn our_images_run_code_where_tmp_is_full() {
    let d = Daemon::with().set("limits.tmp", "1MiB").start().await;
    for (language, code) in [("python", "print('fine')"), ("typescript", "console.log('fine')")] {
        let s = d.session(&format!("full-{language}"));
        s.run(language, code).await.expect_stdout("fine\n");
        d.log.line(&format!("INFO warm language={language}")).await;
        let fill = match language {
            "python" => {
                "import os\ntry: open('/tmp/fill', 'wb').write(bytes(9_000_000))\nexcept OSError: pass"
            }
            _ => "try { require('fs').writeFileSync('/tmp/fill', Buffer.alloc(9e6)) } catch {}",
        };
        s.run(language, fill).await.expect_success();
        for _ in 0..4 {
            s.run(language, code).await.expect_stdout("fine\n");
        }
    }
    d.stop().await;
}
