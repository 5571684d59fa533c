//! The daemon as a user starts it: the real binary, a configuration file, a clean environment, a store of its
//! own.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};

use super::answer::Ran;
use super::engine::View;
use super::log::{Log, field};
use super::{Answer, Call, PATIENCE, Request, Session, Store};

/// The token in the environment, unless a test sets another.
pub(crate) const TOKEN: &str = "the-token-of-these-tests";

/// Time for a drain and the removal of every container.
const END: Duration = Duration::from_secs(80);

/// Time for a snapshot of a large warm part. To take one and to prove it is half a minute's work for a
/// processor, and it gets only the time that other containers leave.
const SNAPSHOT: Duration = Duration::from_secs(300);

/// The daemon's binary, or that of `PADDOCK_TEST_DAEMON`. Keeps it open: a build in the middle of the tests
/// must not change what they test.
pub(crate) fn program() -> &'static str {
    static PROGRAM: OnceLock<(File, String)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let other = std::env::var("PADDOCK_TEST_DAEMON").ok();
        let path = other.as_deref().unwrap_or(env!("CARGO_BIN_EXE_paddock"));
        let file = File::open(path).expect("the daemon's binary");
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        (file, path)
    });
    path
}

/// The settings of a daemon to be started.
#[derive(Clone)]
pub(crate) struct Setup {
    config: toml::Table,
    env: Vec<(String, String)>,
    args: Vec<String>,
    token: Option<String>,
    store: Store,
    under: Vec<String>,
}

/// A daemon that serves. Dropping it stops it; [`Daemon::stop`] also checks how it ended.
pub(crate) struct Daemon {
    process: Process,
    pub(crate) addr: SocketAddr,
    pub(crate) url: String,
    pub(crate) log: Log,
    pub(crate) store: Store,
    token: Option<String>,
}

/// A daemon that refused to start.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
}

struct Process {
    child: Child,
    log: Log,
    /// Disconnected when the process has ended, for code that cannot await.
    ended: Receiver<()>,
    over: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        let mut config = toml::Table::new();
        // Containers are started on demand: most tests want one, of one language.
        put(&mut config, "pool.idle", 0.into());
        // The tools of tasks are listed where there is an image of a coding agent, and a host may have one.
        put(&mut config, "mcp.toolsets", vec!["code", "exec"].into());
        // A snapshot costs seconds of the processor; tests of snapshots take some. With this variable all
        // tests do.
        if std::env::var_os("PADDOCK_TEST_SNAPSHOTS").is_none() {
            put(&mut config, "agent.snapshots", false.into());
        }
        // An image that is not the one of the usual name yet.
        for (variable, key) in
            [("PADDOCK_TEST_PYTHON", "runners.python"), ("PADDOCK_TEST_TYPESCRIPT", "runners.typescript")]
        {
            if let Ok(image) = std::env::var(variable) {
                put(&mut config, key, image.into());
            }
        }
        Setup {
            config,
            env: Vec::new(),
            args: ["--addr", "127.0.0.1:0"].map(str::to_owned).to_vec(),
            token: Some(TOKEN.to_owned()),
            store: Store::new(),
            under: Vec::new(),
        }
    }
}

impl Setup {
    /// Sets a key of the configuration file.
    pub(crate) fn set(mut self, key: &str, value: impl Into<toml::Value>) -> Setup {
        put(&mut self.config, key, value.into());
        self
    }

    /// Serves the tools of tasks too.
    pub(crate) fn with_tasks(self) -> Setup {
        self.set("mcp.toolsets", vec!["code", "exec", "task"])
    }

    /// Adds a variable to the environment, which is empty otherwise.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Setup {
        self.args = args.map(str::to_owned).to_vec();
        self
    }

    /// Removes the token from the environment.
    pub(crate) fn without_token(mut self) -> Setup {
        self.token = None;
        self
    }

    /// Starts it without the right to trace (`CAP_SYS_PTRACE`): its traffic to containers goes through the
    /// engine.
    pub(crate) fn without_tracing(self) -> Setup {
        self.under(&["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"])
    }

    /// Starts it by this command, which becomes the daemon: the daemon's own command line follows.
    pub(crate) fn under(mut self, command: &[&str]) -> Setup {
        self.under = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Uses the store of an earlier daemon.
    pub(crate) fn store(mut self, store: &Store) -> Setup {
        self.store = store.clone();
        self
    }

    fn spawn(&self) -> Process {
        let file = self.store.path().join("config.toml");
        std::fs::write(&file, self.config.to_string()).expect("a configuration file");
        let mut command = match self.under.split_first() {
            None => Command::new(program()),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program());
                command
            }
        };
        if self.under.is_empty() {
            command.arg0("paddock");
        }
        command.arg("serve").arg("--config").arg(&file).args(&self.args);
        command.env_clear().env("SANDBOX_ROOT", self.store.path());
        if let Some(token) = &self.token {
            command.env("MCP_API_TOKEN", token);
        }
        if let Ok(host) = std::env::var("DOCKER_HOST") {
            command.env("DOCKER_HOST", host);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the daemon's binary");
        let (log, ended) = Log::read(child.stderr.take().expect("it is piped"));
        Process { child, log, ended, over: false }
    }

    /// Starts a daemon and waits until it serves.
    pub(crate) async fn start(self) -> Daemon {
        let process = self.spawn();
        let log = process.log.clone();
        let is_json = self.config.get("log").and_then(|log| log.get("format")?.as_str()) == Some("json");
        let serving = if is_json { r#""message":"serving""# } else { " serving " };
        let Some(line) = log.line_or_end(serving).await else {
            panic!("the daemon did not start:\n{}", log.text());
        };
        let addr = field(&line, "addr").and_then(|addr| addr.parse().ok()).expect("an address");
        let url = field(&line, "url").expect("a URL");
        Daemon { process, addr, url, log, store: self.store, token: self.token }
    }

    /// Starts a daemon and kills it while it starts: `later` after the first line with `what`, but no later
    /// than when it serves.
    pub(crate) async fn crash_at(self, what: &str, later: Duration) {
        let mut process = self.spawn();
        let log = process.log.clone();
        tokio::select! {
            _ = log.line_or_end(what) => {}
            _ = log.line_or_end(" serving ") => {}
        }
        tokio::time::sleep(later).await;
        process.signal(Signal::KILL);
        log.end(PATIENCE).await;
        process.wait();
    }

    /// Starts a daemon that must end before it serves.
    pub(crate) async fn refusal(self) -> Refusal {
        let mut process = self.spawn();
        let log = process.log.clone();
        if let Some(line) = log.line_or_end(" serving ").await {
            panic!("the daemon started: {line}");
        }
        Refusal { code: process.wait().code(), said: log.text() }
    }
}

fn put(table: &mut toml::Table, key: &str, value: toml::Value) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| toml::Table::new().into());
            put(inner.as_table_mut().expect("a section"), rest, value);
        }
    }
}

impl Daemon {
    /// A daemon with a token and no idle containers.
    pub(crate) async fn start() -> Daemon {
        Setup::default().start().await
    }

    pub(crate) fn with() -> Setup {
        Setup::default()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process.child)
    }

    pub(crate) async fn view(&self) -> View {
        View::of(&self.store.owner()).await
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(self.addr, method, path);
        match &self.token {
            Some(token) => request.bearer(token),
            None => request,
        }
    }

    /// Follows a link, without a token.
    pub(crate) async fn fetch(&self, link: &str) -> Answer {
        self.link("GET", link).send().await
    }

    /// A request for a link, without a token.
    #[track_caller]
    pub(crate) fn link(&self, method: &str, link: &str) -> Request {
        let path = link.strip_prefix(&self.url).unwrap_or_else(|| panic!("{link} is not of {}", self.url));
        Request::new(self.addr, method, path)
    }

    /// The answer to one JSON-RPC request without a session.
    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.request("POST", "/mcp").set("accept", "application/json").json(&call).send().await;
        assert_eq!(answer.header("content-type"), "application/json");
        answer.json()
    }

    /// The answer of a tool to a call without a session.
    pub(crate) async fn tool(&self, name: &str, arguments: Value) -> Ran {
        Ran::of(self.rpc("tools/call", json!({ "name": name, "arguments": arguments })).await)
    }

    /// A conversation with this name.
    pub(crate) fn session(&self, id: &str) -> Session<'_> {
        Session::new(self, id)
    }

    /// A run without a conversation.
    pub(crate) fn run(&self, language: &str, code: &str) -> Call<'_> {
        let arguments =
            Map::from_iter([("language".to_owned(), json!(language)), ("code".to_owned(), json!(code))]);
        Call::new(self, "run_code", arguments)
    }

    pub(crate) async fn health(&self) -> Value {
        Request::new(self.addr, "GET", "/health").send().await.expect(200).json()
    }

    /// Stops it as a service manager does: it must exit well and leave nothing on the engine but the
    /// workspaces that it keeps.
    pub(crate) async fn stop(self) -> Log {
        let view = self.view().await;
        self.stop_and_look(view).await
    }

    /// The same for a daemon on another engine.
    pub(crate) async fn stop_on(self, host: &str) -> Log {
        let view = View::on(&host.parse().expect("a host"), &self.store.owner()).await;
        self.stop_and_look(view).await
    }

    async fn stop_and_look(mut self, view: View) -> Log {
        self.process.signal(Signal::TERM);
        self.log.end(END).await;
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{}", self.log.text());
        view.expect_empty_but_kept(&self.store.path().join("leases")).await;
        self.log.clone()
    }

    /// Asks it to stop; [`Daemon::stop`] then waits for it.
    pub(crate) fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("a living daemon");
    }

    /// Kills it; [`Daemon::crash`] then waits for its end.
    pub(crate) fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).expect("a living daemon");
    }

    /// Waits until it has ended by itself, and left nothing on the engine: its exit code, and its log.
    pub(crate) async fn end(mut self) -> (Option<i32>, Log) {
        let view = self.view().await;
        self.log.end(END).await;
        let status = self.process.wait();
        view.expect_empty_but_kept(&self.store.path().join("leases")).await;
        (status.code(), self.log.clone())
    }

    /// Waits until new containers of the one runner with a large warm part have its snapshot.
    pub(crate) async fn snapshot_in_use(&self) {
        self.log.line_within(SNAPSHOT, "restored=true").await;
        self.log.line_within(SNAPSHOT, "new containers have another snapshot").await;
    }

    /// Kills it as a crash would. Its containers remain.
    pub(crate) async fn crash(mut self) -> Store {
        self.process.signal(Signal::KILL);
        self.log.end(PATIENCE).await;
        self.process.wait();
        self.store.clone()
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        if !self.over {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    fn wait(&mut self) -> ExitStatus {
        self.over = true;
        self.child.wait().expect("an exit status")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log.text());
        }
        if self.over {
            return;
        }
        self.signal(Signal::TERM);
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            self.signal(Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
