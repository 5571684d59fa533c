//! An engine that is reached by ssh, as Docker's own client does it: a real sshd, the real `ssh` and the real
//! `docker system dial-stdio` in between.
//!
//! It needs root, for an engine of its own, and OpenSSH on both sides.

#[path = "by_ssh/there.rs"]
mod there;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::doctor::Look;
use crate::support::{Daemon, Log, PATIENCE, PrivateEngine, Setup, within};

/// An sshd that lets this user in with one key, and a program `ssh` that knows it.
struct Sshd {
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Sshd {
    async fn start() -> Sshd {
        let folder = TempDir::new().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for key in ["host", "client", "stranger"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path(key))
                .status()
                .expect("ssh-keygen");
            assert!(made.success());
        }
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            free.local_addr().expect("an address").port()
        };
        let here = folder.path().display();
        let write = |name: &str, text: String| std::fs::write(path(name), text).expect("a file");
        write(
            "sshd_config",
            format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host\nAuthorizedKeysFile {here}/client.pub\n\
                 PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
            ),
        );
        let host_key = std::fs::read_to_string(path("host.pub")).expect("a key");
        write("known_hosts", format!("[127.0.0.1]:{port} {host_key}"));
        for (name, key, hosts) in [
            ("good", "client", "known_hosts"),
            ("denied", "stranger", "known_hosts"),
            ("unknown", "client", "none"),
        ] {
            let config = format!(
                "IdentityFile {here}/{key}\nIdentitiesOnly yes\nUserKnownHostsFile {here}/{hosts}\n\
                 GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n"
            );
            write(&format!("{name}.config"), config);
            let bin = path(name);
            std::fs::create_dir(&bin).expect("a folder");
            let program = format!("#!/bin/sh\nexec /usr/bin/ssh -F {here}/{name}.config \"$@\"\n");
            std::fs::write(bin.join("ssh"), program).expect("a program");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(bin.join("ssh"), mode).expect("a mode");
        }
        std::fs::create_dir_all("/run/sshd").expect("sshd's own folder");
        let mut child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(path("sshd_config"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sshd");
        let (log, _) = Log::read(child.stderr.take().expect("it is piped"));
        log.line("Server listening on").await;
        Sshd { folder, port, child }
    }

    /// The address of an engine behind it.
    fn host(&self, engine: &PrivateEngine) -> String {
        let socket = engine.host();
        format!("ssh://root@127.0.0.1:{}{}", self.port, socket.trim_start_matches("unix://"))
    }

    /// Where one of its programs `ssh` is found first.
    fn path(&self, name: &str) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.path().join(name).display())
    }

    /// The processes of ssh that use it.
    fn connections(&self) -> Vec<Pid> {
        let config = self.folder.path().join("good.config").display().to_string();
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        let of = |path: PathBuf| {
            let words = std::fs::read(path.join("cmdline")).ok()?;
            let is_ours = words.split(|byte| *byte == 0).any(|word| word == config.as_bytes());
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            is_ours.then(|| Pid::from_raw(pid)).flatten()
        };
        all.filter_map(|entry| of(entry.path())).collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn daemon(host: &str, path: &str) -> Setup {
    Daemon::with().env("DOCKER_HOST", host).env("PATH", path)
}

#[tokio::test]
async fn the_engine_is_reached_by_ssh() {
    let sshd = Sshd::start().await;
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let host = sshd.host(&engine);
    let d = daemon(&host, &sshd.path("good")).set("exec.runner", "sh").start().await;

    // Files, output and input through hijacked streams, and several sessions at once.
    let s = d.session("s");
    s.upload("in", &vec![b'x'; 3_000_000]).await.expect_success();
    let ran = s.sh("cat in in > out; head -c 50000 in; echo err >&2").await.expect_success();
    assert_eq!((ran.stdout().len(), ran.text("stderr")), (50_000, "err\n"));
    assert_eq!(d.fetch(&ran.link("out")).await.expect(200).body.len(), 6_000_000);
    let many = (0..6).map(|number| {
        let (d, name) = (&d, format!("many-{number}"));
        async move { d.session(&name).sh("echo $((6 * 7))").await.expect_stdout("42\n") }
    });
    futures_util::future::join_all(many).await;

    // Connections that break are made again, and what runs goes on.
    let command = "read line; echo got $line; echo kept > kept";
    let begun = s.tool("execute_code_async").with("command", command).with("interactive", true).await;
    let execution = begun.text("execution_id").to_owned();
    let before = sshd.connections();
    assert!(!before.is_empty());
    for process in before {
        let _ = kill_process(process, Signal::KILL);
    }
    let sent = json!({ "execution_id": execution, "input_data": "on", "eof": true });
    let sent = within(PATIENCE, "a link that connects again", d.tool("send_stdin", sent)).await;
    sent.expect_success();
    let asked = json!({ "execution_id": execution, "wait": true });
    let ended = loop {
        let page = d.tool("get_execution_output", asked.clone()).await.document;
        if page["status"] != "running" {
            break page;
        }
    };
    assert!(ended.to_string().contains("got on"), "{ended}");
    s.sh("cat kept").await.expect_stdout("kept\n");

    d.stop_on(&engine.host()).await;
    // They end at the end of their input, which is the daemon's end.
    within(PATIENCE, "an end of every process of ssh", async {
        while !sshd.connections().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_ssh_says_is_why_the_daemon_does_not_start() {
    let sshd = Sshd::start().await;
    let nowhere = format!("ssh://root@127.0.0.1:{}/nowhere/docker.sock", sshd.port);
    let closed = {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("ssh://127.0.0.1:{}", free.local_addr().expect("an address").port())
    };
    for (host, path, said) in [
        (nowhere.as_str(), "denied", "Permission denied"),
        (&nowhere, "unknown", "Host key verification failed"),
        (&nowhere, "good", "/nowhere/docker.sock"),
        (&closed, "good", "Connection refused"),
    ] {
        let refusal = daemon(host, &sshd.path(path)).refusal().await;
        assert_eq!(refusal.code, Some(1), "{}", refusal.said);
        assert!(refusal.said.contains(said), "{path}: {}", refusal.said);
        assert!(refusal.said.contains("no connection to the engine at ssh://"), "{}", refusal.said);
    }
    let without = daemon(&nowhere, "/nowhere").refusal().await;
    assert!(without.said.contains("the program ssh cannot be started"), "{}", without.said);

    let store = tempfile::tempdir().expect("a folder");
    let look = Look::at(store.path()).engine(&nowhere).env("PATH", &sshd.path("denied")).run().await;
    look.expect_failure("engine/reachable", "Permission denied", "ssh -o BatchMode=yes -p");
}
