//! The isolation, as code inside sees it.

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paddock::pool::AgentTerms;
use paddock_proto::frame::Frame;
use paddock_proto::message::{self, ResumePoints, VERSION};
use paddock_proto::{Hello, Kind};
use serde_json::Value;

use crate::support::Daemon;

/// Runs Python that prints one JSON document.
async fn look(d: &Daemon, session: &str, code: &str) -> Value {
    let ran = d.session(session).python(code).await.expect_success();
    serde_json::from_str(ran.stdout()).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout()))
}

/// A function that returns the outcome of a call: "ok", or the error's name.
const TRY: &str = "import os, errno, json, socket, ctypes\ndef t(f, *a):\n    try:\n        f(*a)\n        \
                   return 'ok'\n    except OSError as e:\n        return errno.errorcode.get(e.errno, \
                   str(e.errno))\nlibc = ctypes.CDLL(None, use_errno=True)\ndef sys(n, *a):\n    \
                   ctypes.set_errno(0)\n    r = libc.syscall(n, *a)\n    return 'ok' if r >= 0 else \
                   errno.errorcode[ctypes.get_errno()]\n";

#[tokio::test]
async fn there_is_no_network() {
    let d = Daemon::start().await;
    let code = format!(
        "{TRY}import time\nb = time.time()\ndef c(fam, addr):\n    s = socket.socket(fam)\n    \
         s.settimeout(5)\n    s.connect(addr)\nr = [t(c, socket.AF_INET, ('1.1.1.1', 53)), t(c, \
         socket.AF_INET, ('172.17.0.1', 22)), t(c, socket.AF_INET6, ('2606:4700::1111', 53))]\ndef u():\n    \
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n    s.sendto(b'x', ('8.8.8.8', 53))\n\
         r.append(t(u))\nprint(json.dumps([r, os.listdir('/sys/class/net'), time.time() - b < 1, \
         [w for l in open('/etc/resolv.conf') if l[0] != '#' for w in l.split()]]))"
    );
    let seen = look(&d, "net", &code).await;
    for way in seen[0].as_array().expect("ways") {
        assert!(matches!(way.as_str(), Some("ENETUNREACH" | "EADDRNOTAVAIL" | "EACCES" | "EPERM")), "{seen}");
    }
    assert_eq!((&seen[1], &seen[2]), (&serde_json::json!(["lo"]), &serde_json::json!(true)), "{seen}");
    let resolver = seen[3].as_array().expect("words");
    assert_eq!(resolver[..2], ["nameserver", "127.0.0.1"], "the host's resolver is not copied in: {seen}");
    assert!(!resolver.iter().skip(2).any(|word| word == "nameserver" || word == "search"), "{seen}");
    d.stop().await;
}

#[tokio::test]
async fn a_program_reaches_its_own_server_by_the_name_localhost_in_a_network_that_the_runtime_made() {
    let d = Daemon::start().await;
    let code = format!(
        "{TRY}s = socket.create_server(('localhost', 0))\nport = s.getsockname()[1]\n\
         socket.create_connection(('localhost', port)).sendall(b'hi')\n\
         files = ['/etc/hosts', '/etc/resolv.conf']\n\
         print(json.dumps([s.accept()[0].recv(9).decode(), [t(open, f, 'a') for f in files], \
         [open(f).read() for f in files]]))"
    );
    let seen = look(&d, "local", &code).await;
    assert_eq!(seen[0], "hi", "{seen}");
    let writes = seen[1].as_array().expect("outcomes");
    assert!(writes.iter().all(|outcome| *outcome == "EROFS" || *outcome == "EACCES"), "{seen}");
    let hosts = seen[2][0].as_str().expect("a text");
    assert!(hosts.starts_with("127.0.0.1\tlocalhost\n"), "{seen}");
    assert_eq!(seen[2][1], "nameserver 127.0.0.1\noptions ndots:0 timeout:5 attempts:2\n");
    let container = d.view().await.the_container("python").await;
    let format = "{{.Config.NetworkDisabled}} {{.HostConfig.NetworkMode}}";
    let inspected = Command::new("docker").args(["inspect", "--format", format, container.as_str()]).output();
    let made = String::from_utf8(inspected.expect("docker").stdout).expect("a text");
    assert_eq!(made.trim(), "true none", "a start without the engine's network takes half of the time");
    d.stop().await;
}

#[tokio::test]
async fn the_system_is_read_only_and_without_privileges() {
    let d = Daemon::start().await;
    let code = format!(
        "{TRY}w = lambda p: t(lambda: open(p, 'w').close())\nstatus = dict(l.split(':\\t') for l in \
         open('/proc/self/status').read().splitlines() if ':\\t' in l)\nprint(json.dumps({{\n'root': [w(p) \
         for p in ('/x', '/etc/x', '/usr/bin/x', '/root/x', '/home/x', '/.paddock/x', '/.paddock/agent', \
         '/var/x', '/opt/x')],\n'caps': [status[k] for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', \
         'CapAmb')],\n'nnp': status['NoNewPrivs'], 'seccomp': status['Seccomp'],\n'proc': [w(p) for p in \
         ('/proc/sys/kernel/hostname', '/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern')],\n'sys': \
         w('/sys/kernel/uevent_helper'), 'cgroup': t(os.mkdir, '/sys/fs/cgroup/x'),\n'mount': sys(165, \
         b'none', b'/tmp', b'tmpfs', 0, 0), 'unshare_user': sys(272, 0x10000000), 'unshare_net': sys(272, \
         0x40000000),\n'chroot': t(os.chroot, '/tmp'), 'setuid': t(os.setuid, 0), 'mknod': t(os.mknod, \
         '/data/null', 0o20666, os.makedev(1, 3)),\n'sudo': os.path.exists('/usr/bin/sudo'), 'socket': \
         os.path.exists('/var/run/docker.sock'), 'hostname': t(socket.sethostname, 'x'),\n'uid': \
         [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()], 'dev': sorted(os.listdir('/dev')),\n}}))"
    );
    let seen = look(&d, "root", &code).await;
    for error in seen["root"].as_array().expect("rows") {
        assert!(matches!(error.as_str(), Some("EROFS" | "EACCES")), "{seen}");
    }
    assert_eq!(seen["root"][0], "EROFS", "{seen}");
    for set in seen["caps"].as_array().expect("sets") {
        assert_eq!(set, "0000000000000000", "{seen}");
    }
    assert_eq!((&seen["nnp"], &seen["seccomp"]), (&"1".into(), &"2".into()));
    for key in
        ["mount", "unshare_user", "unshare_net", "chroot", "setuid", "mknod", "hostname", "sys", "cgroup"]
    {
        assert_ne!(seen[key], "ok", "{key}: {seen}");
    }
    for error in seen["proc"].as_array().expect("rows") {
        assert_ne!(error, "ok", "{seen}");
    }
    assert_eq!((&seen["sudo"], &seen["socket"]), (&false.into(), &false.into()));
    let uid = seen["uid"][0].as_u64().expect("a UID");
    assert!((20000..21000).contains(&uid) && seen["uid"][1] == uid && seen["uid"][2] == uid, "{seen}");
    for device in seen["dev"].as_array().expect("devices") {
        let known = [
            "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
            "stdout", "tty", "urandom", "zero",
        ];
        assert!(known.contains(&device.as_str().expect("a name")), "{device}");
    }
    d.stop().await;
}

#[tokio::test]
async fn unneeded_system_calls_are_refused() {
    let d = Daemon::start().await;
    let code = format!(
        "{TRY}s = lambda fam, kind, proto=0: t(lambda: socket.socket(fam, kind, proto).close())\n\
         print(json.dumps({{\n'io_uring_setup': sys(425, 8, 0), 'io_uring_enter': sys(426, 0, 0, 0, 0, 0, \
         0), 'ptrace': sys(101, 0, 0, 0, 0), 'bpf': sys(321, 0, 0, 0),\n'userfaultfd': sys(323, 0), \
         'memfd_secret': sys(447, 0), 'process_vm_readv': sys(310, 1, 0, 0, 0, 0, 0), 'kcmp': sys(312, 1, 1, \
         0, 0, 0), 'pidfd_getfd': sys(438, -1, 0, 0),\n'keyctl': sys(250, 0, -3, 0), 'add_key': sys(248, 0, \
         0, 0, 0, 0), 'perf_event_open': \
         sys(298, 0, 0, -1, -1, 0), 'open_by_handle_at': sys(304, 0, 0, 0),\n'init_module': sys(175, 0, 0, \
         0), 'reboot': sys(169, 0, 0, 0, 0), 'swapon': sys(167, 0, 0), 'acct': sys(163, 0), 'setns': \
         sys(308, 0, 0),\n'AF_ALG': s(38, 5), 'AF_VSOCK': s(40, 1), 'AF_PACKET': s(17, 3), 'NETFILTER': \
         s(16, 3, 12), 'RAW': s(2, 3, 1), 'AF_KEY': s(15, 3, 2),\n'pipe': t(os.pipe), 'AF_UNIX': s(1, 1), \
         'AF_INET': s(2, 1),\n}}))"
    );
    let seen = look(&d, "calls", &code).await;
    for (name, outcome) in seen.as_object().expect("rows") {
        if matches!(name.as_str(), "pipe" | "AF_UNIX" | "AF_INET") {
            assert_eq!(outcome, "ok", "{name}: {seen}");
            continue;
        }
        let refused = ["EPERM", "ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EACCES"];
        assert!(refused.contains(&outcome.as_str().expect("a name")), "{name}: {outcome}");
    }
    d.stop().await;
}

#[tokio::test]
async fn proc_reveals_nothing_about_the_host() {
    let d = Daemon::start().await;
    let code = "import json, os\nr = {}\nfor p in ('/proc/cmdline', '/proc/kallsyms', '/proc/partitions', \
                '/proc/version', '/proc/keys', '/proc/key-users', \
                '/proc/kcore',\n'/proc/modules', '/proc/interrupts', \
                '/proc/timer_list', '/proc/diskstats', '/proc/iomem', '/proc/sched_debug', \
                '/proc/buddyinfo', '/proc/locks'):\n    try: r[p] = len(open(p, 'rb').read())\n    except \
                OSError: r[p] = 0\nfor p in ('/proc/acpi', '/proc/scsi', '/sys/firmware', \
                '/sys/devices/virtual/powercap', '/proc/asound'):\n    try: r[p] = len(os.listdir(p))\n    \
                except OSError: r[p] = 0\nprint(json.dumps(r))";
    let seen = look(&d, "proc", code).await;
    for (path, length) in seen.as_object().expect("rows") {
        assert_eq!(length, 0, "{path}");
    }
    d.stop().await;
}

#[tokio::test]
async fn the_agent_cannot_be_read_or_controlled() {
    let direct = Daemon::start().await;
    cannot_be_read_or_commanded(direct, 0).await;
    let through_the_engine = Daemon::with().without_tracing().start().await;
    cannot_be_read_or_commanded(through_the_engine, 1).await;
}

async fn cannot_be_read_or_commanded(d: Daemon, bridges: u32) {
    let code = format!(
        "{TRY}import glob, struct\nr = {{}}\nrd = lambda p: t(lambda: open(p, 'rb').read(1))\nfor p in \
         ('/proc/1/environ', '/proc/1/mem', '/proc/1/maps', '/proc/1/auxv', '/.paddock/agent'): r[p] = \
         rd(p)\nr['fd'] = t(os.listdir, '/proc/1/fd')\nr['root'] = t(os.listdir, '/proc/1/root')\nr['exe'] = \
         t(os.readlink, '/proc/1/exe')\nbridges = [p for p in os.listdir('/proc') if p.isdigit() and p != \
         '1' and open(f'/proc/{{p}}/stat').read().split(')')[-1].split()[1] == '0']\nr['bridges'] = \
         len(bridges)\nfor b in bridges:\n    r['b fd'] = t(os.listdir, f'/proc/{{b}}/fd')\n    r['b mem'] = \
         rd(f'/proc/{{b}}/mem')\n    r['b environ'] = rd(f'/proc/{{b}}/environ')\njobs = [p for p in \
         os.listdir('/proc') if p.isdigit() and open(f'/proc/{{p}}/stat').read().split(')')[-1].split()[1] \
         == '1']\nfor j in jobs:\n    r['j fd'] = t(os.listdir, f'/proc/{{j}}/fd')\n    r['j mem'] = \
         rd(f'/proc/{{j}}/mem')\nprint(json.dumps(r))"
    );
    let seen = look(&d, "agent", &code).await;
    assert_eq!(seen["bridges"], bridges, "{seen}");
    for (what, outcome) in seen.as_object().expect("rows") {
        if what != "bridges" {
            assert!(matches!(outcome.as_str(), Some("EACCES" | "EPERM")), "{what}: {seen}");
        }
    }
    assert!(seen["b fd"].is_string() == (bridges > 0) && seen["j fd"].is_string(), "{seen}");

    // The socket of PID 1 answers nobody without the secret, even with a correct message.
    let hello = |secret: [u8; 32]| {
        let hello = Hello {
            version: VERSION,
            secret,
            link: 7,
            orphan_after_ms: 1,
            listen_ports: vec![],
            resume: ResumePoints::default(),
            direct: true,
        };
        let mut bytes = bytes::BytesMut::new();
        Frame { stream: 0, kind: Kind::Message, payload: message::encode(&hello) }.encode(&mut bytes);
        BASE64_STANDARD.encode(bytes)
    };
    // Does what the bridge does: it passes two streams with a byte, and sends the hello through them.
    let ask = "import socket, os, base64, array, select\ndef give(fds):\n    s = \
               socket.socket(socket.AF_UNIX)\n    s.connect('\\0paddock-agent')\n    try: s.sendmsg([b'p'], \
               [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [])\n    except \
               BrokenPipeError: pass\n    return s\ndef ask(b):\n    down, up = os.pipe(), os.pipe()\n    s \
               = give([down[0], up[1]])\n    os.close(down[0]); os.close(up[1])\n    try: os.write(down[1], \
               b)\n    except BrokenPipeError: pass\n    return os.read(up[0], 1) if select.select([up[0]], \
               [], [], 8)[0] else 'silence'\ndef refused(*fds):\n    s = give(fds)\n    s.settimeout(3)\n    \
               try: return s.recv(1) == b''\n    except ConnectionResetError: return True\n";
    let code = format!(
        "{ask}import concurrent.futures as c\ntries = [os.urandom(1000), b'GET / HTTP/1.1\\r\\n\\r\\n', b'', \
         base64.b64decode('{}'), base64.b64decode('{}'), b'\\xff' * 9, b'\\0' * 13]\n\
         print(list(c.ThreadPoolExecutor(7).map(ask, tries)))\nfile, zero, here = os.open('f', os.O_RDWR | \
         os.O_CREAT), os.open('/dev/zero', os.O_RDWR), os.open('.', os.O_RDONLY)\nprint([refused(*fds) for \
         fds in ([], [file], [file, file], [zero, zero], [here, here], [0] * 3, [os.pipe()[0]] * 200)])",
        hello([0; 32]),
        hello([7; 32])
    );
    let ran = d.session("agent").python(&code).await;
    let all = "[True, True, True, True, True, True, True]";
    let silent = "[b'', b'', b'', b'', b'', b'', b'']";
    assert_eq!(ran.expect_success().stdout(), format!("{silent}\n{all}\n"));
    d.session("agent").python("print('fine')").await.expect_stdout("fine\n");

    // The same message with this container's secret is accepted: only the secret was missing. The secret that
    // all others are derived from, and that of another container, are refused.
    let text = std::fs::read_to_string(d.store.path().join("agent.secret")).expect("the secret");
    let mut key = [0; 32];
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    }
    let view = d.view().await;
    let id = view.the_container("python").await;
    let all = view.containers().await;
    let name = &all.iter().find(|container| container.id == id).expect("it").labels["paddock.name"];
    let of = |name: &str| {
        let terms = AgentTerms { key, orphan_after: Duration::from_secs(60), listen_ports: vec![] };
        terms.of(&name.parse().expect("a name")).secret
    };
    for (secret, answer) in [(key, "False\n"), (of(&format!("{name}0")), "False\n"), (of(name), "True\n")] {
        let code = format!("{ask}print(ask(base64.b64decode('{}')) != b'')", hello(secret));
        assert_eq!(view.exec(&id, &["python3", "-c", &code]).await, answer);
    }
    d.stop().await;
}

/// Code keeps the streams that it passes: it controls their flags, their options, and how long their last
/// close waits.
#[tokio::test]
async fn streams_that_code_passes_to_pid_1_do_not_block_it() {
    let d = Daemon::start().await;
    let code = "import array, fcntl, os, socket, struct, threading, time\n\
        def give(fd):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('\\0paddock-agent')\n    \
        try: s.sendmsg([b'p'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd, fd]))])\n    \
        except BrokenPipeError: return None\n    return s\n\
        kept = []\n\
        for n in range(4):\n    \
        near, far = socket.socketpair()\n    \
        kept += [near, far, give(near.fileno())]\n    time.sleep(0.1)\n    \
        fcntl.fcntl(near, fcntl.F_SETFL, 0)\n    \
        near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 20)\n    \
        far.send(b'x')\n\
        given = 0\n\
        for n in range(200):\n    \
        listener = socket.socket(); listener.bind(('127.0.0.1', 0)); listener.listen()\n    \
        near = socket.create_connection(listener.getsockname()); far, _ = listener.accept()\n    \
        near.setblocking(False)\n    \
        try:\n        while True: near.send(bytes(1 << 16))\n    except BlockingIOError: pass\n    \
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 600))\n    \
        s = give(near.fileno())\n    given += s is not None\n    \
        threading.Thread(target=near.close, daemon=True).start()\n    \
        kept += [near, listener, far]\n    if given == 4: break\n\
        open('/tmp/mark', 'w').close()\n\
        print(given > 0, flush=True)\n\
        time.sleep(60)";
    let s = d.session("s");
    // Its own timeout applies,
    let ran = s.python(code).timeout(20.0).await;
    assert_eq!((ran.stdout(), ran.text("limit")), ("True\n", "wall_time"), "{}", ran.document);
    // and the session continues in the same container.
    s.python("import os; print(os.path.exists('/tmp/mark'))").await.expect_stdout("True\n");
    d.stop().await;
}

#[tokio::test]
async fn programs_have_a_user_a_home_and_space() {
    let d = Daemon::start().await;
    let s = d.session("user");
    s.python(
        "import getpass, pwd, os, tempfile\nprint(getpass.getuser() != '', \
              pwd.getpwuid(os.getuid()).pw_uid == os.getuid())\nopen(tempfile.mkstemp()[1], 'w').write('x')\n\
              open(os.path.expanduser('~/y'), 'w').write('x')",
    )
    .await
    .expect_stdout("True True\n");
    s.typescript(
        "import os from 'node:os';\nconsole.log(os.userInfo().uid >= 20000, \
                  os.userInfo().username.length > 0)",
    )
    .await
    .expect_stdout("true true\n");
    s.python(
        "import multiprocessing as m\nif __name__ == '__main__':\n    with m.Pool(2) as p: \
              print(p.map(abs, [-1, -2]))",
    )
    .await
    .expect_stdout("[1, 2]\n");
    d.stop().await;
}

#[tokio::test]
async fn every_place_for_files_has_a_limit() {
    let d = Daemon::with()
        .set("limits.data", "4MiB")
        .set("limits.upload", "1MiB")
        .set("limits.data_inodes", 100)
        .set("limits.tmp", "1MiB")
        .set("limits.shm", "1MiB")
        .set("limits.open_files", 64)
        .set("limits.file_size", "3MiB")
        .start()
        .await;
    let s = d.session("walls");
    let code = format!(
        "{TRY}import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ndef fill(p, n):\n    with \
         open(p, 'wb', buffering=0) as f:\n        for _ in range(n): \n            if f.write(b'x' * 65536) \
         < 65536: raise OSError(errno.ENOSPC, '')\ndef many(d, n):\n    for i in range(n): \
         open(f'{{d}}/{{i}}', 'w').close()\ndef fds():\n    all = []\n    for _ in range(70): \
         all.append(os.open('/', 0))\nr = {{'file_size': t(fill, '/data/a', 49)}}\nr['data'] = t(fill, \
         '/data/b', 48)\nos.remove('/data/a')\nos.remove('/data/b')\nos.mkdir('/data/d')\nr['inodes'] = \
         t(many, '/data/d', 120)\nr['tmp'] = t(fill, '/tmp/a', 20)\nr['shm'] = t(fill, '/dev/shm/a', 20)\n\
         r['fds'] = t(fds)\nprint(json.dumps(r))"
    );
    let ran = s.python(&code).await.expect_success();
    let seen: Value = serde_json::from_str(ran.stdout()).expect("JSON");
    for (what, error) in [
        ("file_size", "EFBIG"),
        ("data", "ENOSPC"),
        ("inodes", "ENOSPC"),
        ("tmp", "ENOSPC"),
        ("shm", "ENOSPC"),
        ("fds", "EMFILE"),
    ] {
        assert_eq!(seen[what], error, "{seen}");
    }
    // A full /data is saved as it is.
    let ran = s
        .python("import os, shutil\nshutil.rmtree('d')\nopen('full', 'wb').write(b'x' * (3 << 20))")
        .await
        .expect_success();
    assert_eq!(ran.files(), ["full"]);
    s.upload("more", &vec![b'x'; 1 << 20]).await.expect_success();
    s.upload("over", b"x").await.expect_error("quota_exceeded");
    s.python("import os; print(sum(os.path.getsize(f) for f in os.listdir()))")
        .await
        .expect_stdout("4194304\n");
    d.stop().await;
}

/// When memory runs out, programs and their children are killed before PID 1.
#[tokio::test]
async fn programs_are_killed_first_when_memory_runs_out() {
    let d = Daemon::start().await;
    let s = d.session("s");
    s.sh("sleep 0.2; cat /proc/self/oom_score_adj; (cat /proc/self/oom_score_adj)")
        .await
        .expect_stdout("1000\n1000\n");
    d.stop().await;
}

#[tokio::test]
async fn sessions_never_see_each_other() {
    let d = Daemon::start().await;
    let leave = "import os\nfor p in ('/data', '/tmp', '/dev/shm'): open(p + '/canary', \
                 'w').write('CANARY')\nos.environ['X'] = 'CANARY'\nprint(os.getuid(), \
                 os.readlink('/proc/self/ns/pid'), os.readlink('/proc/self/ns/net'), \
                 os.readlink('/proc/self/ns/ipc'))";
    let one = d.session("one").python(leave).env("SECRET", "CANARY").await.expect_success();
    let find = "import os\nr = []\nfor top in ('/data', '/tmp', '/dev/shm', '/mnt', '/workspace', '/home', \
                '/var/tmp'):\n    for dir, _, files in os.walk(top): r += [dir + '/' + f for f in files if \
                'canary' in f]\nfor p in filter(str.isdigit, os.listdir('/proc')):\n    for f in ('environ', \
                'cmdline'):\n        try: r += [p] if b'CANARY' in open(f'/proc/{p}/{f}', 'rb').read() else \
                []\n        except OSError: pass\nprint(r)\nprint(os.getuid(), \
                os.readlink('/proc/self/ns/pid'), os.readlink('/proc/self/ns/net'), \
                os.readlink('/proc/self/ns/ipc'))";
    let two = d.session("two").python(find).await.expect_success();
    let (found, other) = two.stdout().split_once('\n').expect("two lines");
    assert_eq!(found, "[]");
    for (mine, theirs) in one.stdout().split_whitespace().zip(other.split_whitespace()) {
        assert_ne!(mine, theirs, "both sessions have the same");
    }
    // Nor does the next run of the same session inherit an environment.
    d.session("one")
        .python("import os; print([k for k in os.environ if k in ('SECRET', 'X')])")
        .await
        .expect_stdout("[]\n");
    d.stop().await;
}

#[tokio::test]
async fn the_daemons_secrets_are_nowhere_in_a_container() {
    let secrets = [
        "TOKEN-7f3a1b",
        "FILESECRET-9c2e4d",
        "CANARY-5b8d6f",
        "STDIN-1a2b3c",
        "UPLOAD-4d5e6f",
        "METRICS-8b9c0d1e2f3a",
    ];
    let d = Daemon::with()
        .env("MCP_API_TOKEN", secrets[0])
        .env("FILE_SECRET", secrets[1])
        .env("SOME_CANARY", secrets[2])
        .env("SANDBOX_LOG_LEVEL", "trace")
        .set("metrics.token", secrets[5])
        .start()
        .await;
    let look = "env; for f in /proc/*/environ /proc/*/cmdline /proc/self/mountinfo /etc/hostname /etc/hosts; \
                do cat $f 2>/dev/null; done; cat /data/* 2>/dev/null; true";
    let s = d.session("s");
    let ran = s.sh(look).bearer(secrets[0]).await.expect_success();
    for secret in &secrets {
        assert!(!ran.stdout().contains(secret), "{secret}: {}", ran.stdout());
    }
    assert!(ran.stdout().contains("PATH="), "{}", ran.stdout());
    let run =
        s.python("import os, sys; print(len(os.environ['V']), len(sys.stdin.read()))").env("V", secrets[2]);
    run.stdin(secrets[3]).bearer(secrets[0]).await.expect_stdout("13 12\n");
    let up = s.upload("u", secrets[4].as_bytes()).bearer(secrets[0]).await.expect_success();
    let link = up.document["file"]["url"].as_str().expect("a link").to_owned();
    d.fetch(&link).await.expect(200);
    s.python("1").bearer("wrong-TOKEN").answer().await;
    for path in ["/metrics", "/status"] {
        let told = d
            .request("GET", path)
            .without("authorization")
            .bearer(secrets[0])
            .send()
            .await
            .expect(200)
            .text();
        for secret in &secrets {
            assert!(!told.contains(secret), "{secret} is in {path}: {told}");
        }
    }
    d.request("GET", "/metrics").without("authorization").bearer(secrets[5]).send().await.expect(200);
    let view = d.view().await;
    for container in view.containers().await {
        let told = view.inspect(&container.id).await;
        assert!(told.contains("paddock.owner"), "{told}");
        for secret in &secrets {
            assert!(!told.contains(secret), "{secret} is in {told}");
        }
    }
    let agent_secret =
        std::fs::read_to_string(d.store.path().join("agent.secret")).expect("the agent's secret");
    let signature = link.split_once("sig=").expect("a signature").1.to_owned();
    let log = d.stop().await.text();
    for secret in secrets.iter().copied().chain([agent_secret.trim(), &signature, "wrong-TOKEN"]) {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(log.contains(" DEBUG "), "it was no log of everything");
}
