//! MCP clients as people use them, each in a process of its own. Each uploads, runs, lists and downloads, and
//! compares the bytes. Then it repeats that, still connected, after the daemon was killed and restarted, and
//! after it was stopped and restarted.
//!
//! The scripts are in `tests/clients`, with the packages that `tests/clients/install` puts there; without
//! them the tests fail. A script finds the daemon's address in its environment, asks for a restart by a line
//! `restart`, and continues when it receives a line. No client may send anything to another machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::model::Model;
use crate::support::{Daemon, PATIENCE, TOKEN, within};
use crate::upstream_proxy::{behind, proxy};

/// The virtual environment with the newest Python packages; it contains Node too.
pub(crate) const NEWEST: &str = "venv";

/// How the daemon ends between two calls.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// By a crash.
    Killed,
    /// By a crash, and its containers are removed too.
    Bereft,
    /// Stopped as by a service manager.
    Stopped,
}

/// The tests of each client, given its script and the script's arguments.
macro_rules! clients {
    ($($name:ident: $($word:literal)+;)+) => {$(
        mod $name {
            use super::{End, drive};

            #[tokio::test]
            async fn uploads_runs_lists_and_downloads() {
                drive(&[$($word),+], &[]).await;
            }

            #[tokio::test]
            async fn continues_after_a_restart_of_the_daemon() {
                drive(&[$($word),+], &[End::Killed, End::Stopped]).await;
            }
        }
    )+};
}

clients! {
    claude_code: "claude-code.mjs";
    curl_as_n8n: "curl.sh";
    fastmcp: "fastmcp_client.py";
    inspector: "inspector.sh";
    n8n: "n8n.mjs";
    python_sdk: "sdk.py" "auto";
    claude_code_stdio: "claude-code.mjs" "stdio";
    python_sdk_stdio: "sdk.py" "stdio";
    python_sdk_legacy: "sdk.py" "legacy";
    typescript_sdk_1: "sdk-1.mjs";
    typescript_sdk_2: "sdk-2.mjs" "auto";
    typescript_sdk_2_legacy: "sdk-2.mjs" "legacy";
}

/// S2's and S4's networks, by bare calls as n8n makes them.
#[tokio::test]
async fn n8n_gets_a_network_for_runs_that_ask() {
    let (upstream, asked) = proxy("200 Connection established").await;
    let d = behind(&upstream).set("egress.upstream_resolves", true).start().await;
    let mut script = Script::start(NEWEST, &["network.mjs"], &d, 0);
    within(PATIENCE * 2, "the client", script.follow(d, &[])).await.stop().await;
    assert_eq!(upstream.connections(), 4, "{:?}", asked.lock().expect("no panic"));
}

/// The command of this repository in Claude Code.
#[tokio::test]
async fn claude_code_is_set_up_by_its_command() {
    let d = Daemon::start().await;
    let mut script = Script::start(NEWEST, &["setup-claude.mjs"], &d, 0);
    within(PATIENCE * 3, "the command", script.follow(d, &[])).await.stop().await;
}

/// A running script. A failing one may leave processes of its own, which are ended with it.
pub(crate) struct Script {
    child: Child,
    group: Pid,
    /// Its home and working directory; its standard error is written there.
    home: TempDir,
    /// Its standard output so far.
    said: String,
    /// The model whose answers it chooses, if it has one.
    model: Option<Model>,
}

impl Script {
    /// `python` is the virtual environment whose Python runs it, if it is a Python script.
    pub(crate) fn start(python: &str, client: &[&str], d: &Daemon, restarts: usize) -> Script {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
        let here = here.canonicalize().expect("tests/clients");
        let bins = [here.join(NEWEST).join("bin"), here.join("node_modules/.bin")];
        let python = here.join(python).join("bin/python");
        assert!(
            python.exists() && bins.iter().all(|bin| bin.is_dir()),
            "the clients are not there: tests/clients/install installs them"
        );
        let (script, args) = client.split_first().expect("a script");
        let interpreter = match Path::new(script).extension().and_then(|extension| extension.to_str()) {
            Some("mjs") => bins[0].join("node"),
            Some("py") => python,
            _ => PathBuf::from("bash"),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(bins.into_iter().chain(std::env::split_paths(&path))).expect("a PATH");
        let home = TempDir::new().expect("a directory");
        let stderr = File::create(home.path().join("stderr")).expect("a file");
        let child = Command::new(interpreter)
            .arg(here.join(script))
            .args(args)
            .current_dir(home.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", home.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PADDOCK_URL", &d.url)
            .env("PADDOCK_TOKEN", TOKEN)
            .env("PADDOCK_PROGRAM", env!("CARGO_BIN_EXE_paddock"))
            .env("SANDBOX_ROOT", d.store.path())
            .env("PADDOCK_RESTARTS", restarts.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .expect("an interpreter");
        let group =
            child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it has just been started");
        Script { child, group, home, said: String::new(), model: None }
    }

    /// Lets the script choose what this model answers: by a line `turns` with a list of turns, see
    /// `model/stub.py`, and by a line `release` with how many of them are left when those that are held go
    /// on. A line `told` is answered with the messages of the last request.
    pub(crate) fn with_model(mut self, model: Model) -> Script {
        self.model = Some(model);
        self
    }

    /// Follows it to its end, restarting the daemon when it asks for that.
    pub(crate) async fn follow(&mut self, mut d: Daemon, ends: &[End]) -> Daemon {
        let mut lines = BufReader::new(self.child.stdout.take().expect("it is piped")).lines();
        let mut stdin = self.child.stdin.take().expect("it is piped");
        let mut ends = ends.iter();
        while let Some(line) = lines.next_line().await.expect("lines") {
            self.said.push_str(&line);
            self.said.push('\n');
            if line == "restart" {
                let end = ends.next().expect("no more restarts than it was told");
                d = restarted(d, *end).await;
                stdin.write_all(b"go on\n").await.expect("it listens");
            }
            let Some(model) = &mut self.model else { continue };
            let answer = match line.split_once(' ').unwrap_or((line.as_str(), "")) {
                ("turns", turns) => {
                    model.says_to_agent(serde_json::from_str(turns).expect("turns")).await;
                    "go on".to_owned()
                }
                ("release", left) => {
                    let left: u64 = left.parse().expect("a number");
                    while model.left().await > left {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    model.release().await;
                    "go on".to_owned()
                }
                ("told", _) => model.seen().await.last().expect("a request")["body"]["messages"].to_string(),
                _ => continue,
            };
            stdin.write_all(format!("{answer}\n").as_bytes()).await.expect("it listens");
        }
        let status = self.child.wait().await.expect("a status");
        assert!(status.success(), "the client ended with {status}");
        assert!(self.said.ends_with("done\n") && ends.next().is_none(), "the client ended early");
        d
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill_process_group(self.group, Signal::KILL);
            let errors = std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default();
            eprintln!("the client said:\n{}{errors}", self.said);
        }
    }
}

/// The daemon that replaces this one, at the same address.
async fn restarted(d: Daemon, end: End) -> Daemon {
    let (addr, store) = (d.addr.to_string(), d.store.clone());
    match end {
        End::Killed => drop(d.crash().await),
        End::Bereft => {
            let view = d.view().await;
            drop(d.crash().await);
            view.remove_all().await;
        }
        End::Stopped => drop(d.stop().await),
    }
    Daemon::with().args(["--addr", &addr]).store(&store).start().await
}

async fn drive(client: &[&str], ends: &[End]) {
    let d = Daemon::start().await;
    let mut script = Script::start(NEWEST, client, &d, ends.len());
    let d = tokio::time::timeout(PATIENCE * 2, script.follow(d, ends))
        .await
        .expect("the client comes to its end");
    d.stop().await;
}
