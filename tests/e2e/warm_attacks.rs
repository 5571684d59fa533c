//! What code does to every process of a warm part: to the one that forks, to the child that waits, and to
//! those that keep memory. After each attack the call is answered, and the warm part runs the session's
//! programs again.
//!
//! The code finds the processes by itself and takes each in turn, so nothing here depends on how many there
//! are.

use std::time::Duration;

use serde_json::Value;

use crate::support::{Daemon, PATIENCE, Session, field, within};

/// After a cold run; doubled after each further one.
const FIRST_REST: Duration = Duration::from_millis(250);

/// A language: how its code reaches the other processes, and what it does to the one at a place in their
/// order.
struct Language {
    name: &'static str,
    /// Sets `others`: all processes but PID 1 and this one, when the next child waits.
    others: &'static str,
    /// Prints how many there are.
    count: &'static str,
    /// Each acts on one of them, the process `p`.
    acts: &'static [(&'static str, &'static str)],
    /// Lets the program live for a moment.
    end: &'static str,
}

const PYTHON: Language = Language {
    name: "python",
    others: "import ctypes, os, resource, signal, time\n\
        me, libc = os.getpid(), ctypes.CDLL(None, use_errno=True)\n\
        look = lambda: sorted(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, me))\n\
        others, since = look(), time.monotonic()\n\
        while time.monotonic() - since < 0.2:\n    \
        time.sleep(0.01)\n    \
        if look() != others: others, since = look(), time.monotonic()\n\
        def tried(act):\n    \
        try: act()\n    \
        except OSError: pass\n    \
        return True\n",
    count: "print(len(others))\n",
    acts: &[
        ("kill", "os.kill(p, signal.SIGKILL)"),
        ("stop", "os.kill(p, signal.SIGSTOP)"),
        ("stop and continue", "os.kill(p, signal.SIGSTOP); time.sleep(0.05); os.kill(p, signal.SIGCONT)"),
        ("signal", "[os.kill(p, n) for n in [18] * 9 + [17] * 200 + [14, 10, 12, 1, 2, 34, 64, 15]]"),
        (
            "slow down",
            "all(tried(act) for act in (lambda: os.setpriority(0, p, 19), \
             lambda: os.sched_setscheduler(p, os.SCHED_IDLE, os.sched_param(0)), \
             lambda: os.sched_setaffinity(p, [min(os.sched_getaffinity(0))])))",
        ),
        (
            "limit",
            "all(tried(act) for act in (lambda: resource.prlimit(p, resource.RLIMIT_NOFILE, (0, 0)), \
             lambda: resource.prlimit(p, resource.RLIMIT_AS, (4096, 4096)), \
             lambda: open(f'/proc/{p}/oom_score_adj', 'w').write('1000')))",
        ),
        ("trace", "assert libc.ptrace(0x4206, p, 0, 0) == 0; print('reached')"),
        ("open its memory", "open(f'/proc/{p}/mem', 'r+b'); print('reached')"),
        ("list its descriptors", "os.listdir(f'/proc/{p}/fd'); print('reached')"),
    ],
    end: "time.sleep(0.1)\n",
};

const TYPESCRIPT: Language = Language {
    name: "typescript",
    others: "import { readdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'\n\
        import os from 'node:os'\n\
        const pause = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)\n\
        const look = () => readdirSync('/proc').map(Number).filter((p) => p > 1 && p !== process.pid)\n\
        let others = look().sort((a, b) => a - b), since = Date.now()\n\
        while (Date.now() - since < 200) { pause(10); const now = look().sort((a, b) => a - b);\n    \
        if (now.join() !== others.join()) { others = now; since = Date.now() } }\n",
    count: "console.log(others.length)\n",
    acts: &[
        ("kill", "process.kill(p, 'SIGKILL')"),
        ("stop", "process.kill(p, 'SIGSTOP')"),
        ("stop and continue", "process.kill(p, 'SIGSTOP'); pause(50); process.kill(p, 'SIGCONT')"),
        ("signal", "for (const n of [...Array(200).fill(17), 18, 14, 10, 12, 1, 2, 15]) process.kill(p, n)"),
        ("slow down", "os.setPriority(p, 19)"),
        ("offer it to the killer", "writeFileSync(`/proc/${p}/oom_score_adj`, '1000')"),
        ("open its memory", "openSync(`/proc/${p}/mem`, 'r+'); console.log('reached')"),
        ("list its descriptors", "readdirSync(`/proc/${p}/fd`); console.log('reached')"),
    ],
    end: "pause(100)\n",
};

impl Language {
    /// A program that acts on the process at this place, and ends well whatever comes of it.
    fn code(&self, act: &str, place: usize) -> String {
        let Language { others, end, .. } = self;
        if self.name == "python" {
            format!(
                "{others}def act(p):\n  {act}\nprint('on', flush=True)\ntry: act(others[{place}])\n\
                 except (OSError, AssertionError, IndexError): pass\n{end}"
            )
        } else {
            format!(
                "{others}const act = (p: number) => {{ {act} }}\nconsole.log('on')\n\
                 try {{ act(others[{place}]) }} catch {{}}\n{end}"
            )
        }
    }

    /// Whether one more run of the session was a warm one.
    async fn is_warm(&self, d: &Daemon, s: &Session<'_>) -> bool {
        let mark = d.log.mark();
        s.run(self.name, if self.name == "python" { "print(1)" } else { "console.log(1)" })
            .await
            .expect_stdout("1\n");
        let line = d.log.line_since(mark, "ended session_id=s ").await;
        field(&line, "warm").as_deref() == Some("true")
    }

    /// Until the warm part runs the session's programs again.
    async fn until_warm(&self, d: &Daemon, s: &Session<'_>) {
        // A part that loads again after an attack is ended when a run has waited for three seconds: on a slow
        // machine the session must rest for it to stand. Nothing tells when it does.
        let warm = async {
            let mut rest = FIRST_REST;
            while !self.is_warm(d, s).await {
                tokio::time::sleep(rest).await;
                rest *= 2;
            }
        };
        within(PATIENCE, "a warm run", warm).await;
    }

    /// The scheduling of a run, as it sees it: no attack may change that of a later one.
    fn scheduling(&self) -> &'static str {
        match self.name {
            "python" => {
                "import os; print(os.nice(0), os.sched_getscheduler(0), len(os.sched_getaffinity(0)))"
            }
            _ => "import os from 'node:os'; console.log(os.getPriority(), os.availableParallelism())",
        }
    }

    async fn attack(&self) {
        let d = Daemon::with().set("timeouts.run_code", "10s").start().await;
        let s = d.session("s");
        s.run(self.name, "1").await.expect_success();
        d.log.line(&format!("INFO warm language={}", self.name)).await;
        self.until_warm(&d, &s).await;
        let usual = s.run(self.name, self.scheduling()).await.expect_success().stdout().to_owned();
        let count = s.run(self.name, &format!("{}{}", self.others, self.count)).await.expect_success();
        let count: usize = count.stdout().trim().parse().expect("a number of processes");
        assert!(count >= 2, "a parent and a child that waits: {count}");
        for (what, act) in self.acts {
            let mut reached = Vec::new();
            for place in 0..count {
                self.until_warm(&d, &s).await;
                let code = self.code(act, place);
                let ran = s.run(self.name, &code).await;
                match ran.stdout() {
                    "on\n" => {}
                    "on\nreached\n" => reached.push(place),
                    other => panic!("{what} {place} of {count}: {other:?}, {}", ran.document),
                }
                assert_ne!(ran.document["error"], Value::from("lost"), "{what} {place}: {}", ran.document);
                self.until_warm(&d, &s).await;
                s.run(self.name, self.scheduling()).await.expect_stdout(&usual);
            }
            // Only the process that keeps the program's own memory.
            assert!(reached.len() <= 1, "{what}: {reached:?} of {count}");
        }
        // Somebody else has noticed nothing.
        d.session("other").run(self.name, self.scheduling()).await.expect_stdout(&usual);
        d.stop().await;
    }
}

#[tokio::test]
async fn code_acts_on_every_process_of_the_warm_part_of_python() {
    PYTHON.attack().await;
}

#[tokio::test]
async fn code_acts_on_every_process_of_the_warm_part_of_typescript() {
    TYPESCRIPT.attack().await;
}

/// A daemon whose session `s` has a container in which the warm part of this language is ready.
async fn standing(language: &Language) -> Daemon {
    let d = Daemon::start().await;
    d.session("s").run(language.name, "1").await.expect_success();
    d.log.line(&format!("INFO warm language={}", language.name)).await;
    d
}

/// The part cannot fork while the program has all processes, and must neither give up nor take a process of
/// the program for its own.
#[tokio::test]
async fn a_program_with_500_forks_in_flight_leaves_the_warm_part_as_it_was() {
    let children = "import os, time\n\
        made = 0\n\
        for _ in range(500):\n    \
        try: pid = os.fork()\n    \
        except OSError: continue\n    \
        if pid == 0: BODY; os._exit(0)\n    \
        made += 1\n\
        print(made > 50, flush=True)\n";
    let d = standing(&PYTHON).await;
    let s = d.session("s");
    for body in
        ["time.sleep(60)", "pass", "os.setsid(); os.fork(); time.sleep(60)", "os.kill(os.getppid(), 0)"]
    {
        PYTHON.until_warm(&d, &s).await;
        let ran = s.python(&children.replace("BODY", body)).timeout(20.0).await;
        assert_eq!(ran.stdout(), "True\n", "{body}: {}", ran.document);
        PYTHON.until_warm(&d, &s).await;
    }
    // Children of the part itself, where only its own belong (CLONE_PARENT).
    let beside = "import ctypes, os\n\
        number, libc = {'x86_64': 56, 'aarch64': 220}[os.uname().machine], ctypes.CDLL(None)\n\
        made = 0\n\
        for _ in range(500):\n    \
        pid = libc.syscall(number, 0x8000 | 17, 0, 0, 0, 0)\n    \
        if pid == 0: os.execvp('sleep', ['sleep', '1000'])\n    \
        made += pid > 0\n\
        print(made > 20)";
    s.python(beside).timeout(20.0).await.expect_stdout("True\n");
    PYTHON.until_warm(&d, &s).await;
    d.stop().await;

    let d = standing(&TYPESCRIPT).await;
    let s = d.session("s");
    let children = "import { spawn } from 'node:child_process'\n\
        let made = 0, failed = 0\n\
        for (let n = 0; n < 500; n++) { const child = spawn('sleep', ['60'])\n    \
        child.on('error', () => failed++)\n    \
        if (child.pid) made++ }\n\
        console.log(made > 50); setTimeout(() => process.exit(0), 100)";
    for _ in 0..3 {
        let ran = s.typescript(children).timeout(30.0).await;
        assert_eq!(ran.stdout(), "true\n", "{}", ran.document);
        TYPESCRIPT.until_warm(&d, &s).await;
    }
    d.stop().await;
}

/// The kernel ends the program, a child of it, or fails a call; never the part.
#[tokio::test]
async fn a_program_that_takes_all_memory_leaves_the_warm_part_as_it_was() {
    let d = standing(&PYTHON).await;
    let s = d.session("s");
    let take = "kept = []\nwhile True: kept.append(bytearray(b'x') * (8 << 20))";
    let by_a_child =
        format!("import os\nif os.fork() == 0:\n    {}\nos.wait()", take.replace('\n', "\n    "));
    for (code, limit) in [
        (take.to_owned(), Some("memory")),
        (by_a_child, None), // only the child is killed
        (format!("import threading\ndef f():\n    {}\n[threading.Thread(target=f).start() for _ in range(8)]",
            take.replace('\n', "\n    ")), Some("memory")),
        // It stays below the limit, where the next run needs memory too.
        ("open('/dev/shm/fill', 'wb').write(bytes(15 << 20)); open('/tmp/fill', 'wb').write(bytes(60 << 20))"
            .to_owned(), None),
        (take.to_owned(), Some("memory")),
    ] {
        PYTHON.until_warm(&d, &s).await;
        s.python(&code).timeout(30.0).await.expect_limit(limit);
        PYTHON.until_warm(&d, &s).await;
    }
    d.stop().await;
}

/// What a run opens, passes on or leaves in flight is closed behind it, and none of it is in a later run.
#[tokio::test]
async fn no_descriptor_of_a_run_is_in_a_later_one() {
    let d = standing(&PYTHON).await;
    let s = d.session("s");
    PYTHON.until_warm(&d, &s).await;
    let look = "import os\n\
        def name(fd):\n    \
        try: return os.readlink(f'/proc/self/fd/{fd}')\n    \
        except OSError: return ''\n\
        print('\\n'.join(f'{fd} {name(fd)}' for fd in sorted(map(int, os.listdir('/proc/self/fd')))))";
    let kinds = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
    };
    let own = |text: &str| -> Vec<String> {
        let opened = text.lines().filter_map(|line| line.split_once(' '));
        let above_two = opened.filter(|(fd, name)| !["0", "1", "2"].contains(fd) && name.contains(":["));
        above_two.map(|(_, name)| name.to_owned()).collect()
    };
    let usual = s.python(look).await.expect_success().stdout().to_owned();
    for leak in [
        "import os\nwhile True:\n    try: os.open('/dev/null', 0)\n    except OSError: break\nprint('on')",
        "import os\nfor n in range(3, 900):\n    \
         try: os.dup2(1, n, inheritable=True)\n    except OSError: pass\n\
         os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '60')\nprint('on')",
        "import socket\na, b = socket.socketpair()\nkept = [a.fileno()]\nfor n in range(200):\n    \
         try: socket.send_fds(b, [b'x'], kept * 4)\n    except OSError: break\nprint('on')",
        "import os\nfor n in range(3, 64):\n    try: os.close(n)\n    except OSError: pass\nprint('on')",
        "import ctypes, os\nctypes.CDLL(None).close_range(3, 2**32 - 1, 0)\n\
         os.write(1, b'on\\n'); os._exit(0)",
        "import os\nfor n in os.listdir('/proc/self/fd'):\n    \
         try: os.write(int(n), b'') if int(n) != 1 else 0\n    \
         except OSError: pass\nprint('on')",
    ] {
        let ran = s.python(leak).timeout(20.0).await;
        assert_eq!(ran.stdout(), "on\n", "{leak}: {}", ran.document);
        PYTHON.until_warm(&d, &s).await;
        let now = s.python(look).await.expect_success().stdout().to_owned();
        assert_eq!(kinds(&now), kinds(&usual), "{leak}");
        // A pipe, a socket or an event counter is never the one that an earlier run had.
        let shared: Vec<_> = own(&now).into_iter().filter(|name| own(&usual).contains(name)).collect();
        assert!(shared.iter().all(|name| name.starts_with("anon_inode")), "{shared:?}");
    }
    d.stop().await;
}
