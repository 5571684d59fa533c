//! The daemon under measurement: the release binary with its defaults, a store of its own and a token of its
//! own.
//!
//! It must never be configured otherwise than a real one, except for the bounds that many new sessions need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use paddock::config::{Config, Overrides};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::Result;

/// One idle container for each language. Closed sessions keep their containers to the end, so that no removal
/// disturbs the measurement. Its user ids are not those of a daemon with defaults, and its images are our
/// own, whatever else the engine has.
pub(crate) const CONFIG: &str = r#"
http.addr = "127.0.0.1:0"
sessions.max = 400
pool = { idle = 1, max_containers = 500, uids = "30000-30999" }
runners = { python = "paddock-runner-python", typescript = "paddock-runner-typescript", sh = "paddock-example-sh" }
"#;

/// The same, but each new session waits for a container to be started.
pub(crate) const EMPTY: &str = r#"
http.addr = "127.0.0.1:0"
sessions.max = 400
pool = { idle = 0, max_containers = 500, uids = "31000-31999" }
runners = { python = "paddock-runner-python", typescript = "paddock-runner-typescript", sh = "paddock-example-sh" }
"#;

/// More commands may run, and each may write so much that none ends before the measurement does.
pub(crate) const FLOODED: &str = r#"
http.addr = "127.0.0.1:0"
files.max_log = "4GiB"
exec = { runner = "sh", max = 100, per_session = 20 }
pool = { idle = 0, max_containers = 20, uids = "32000-32999" }
runners = { sh = "paddock-example-sh" }
"#;

/// The folder beside those of the daemons in which nodes note whose a session is; others do not look at it.
pub(crate) const OWNERS: &str = "owners";

/// From its start to `serving`: it makes the agent's volume and proves the confinement.
const START: Duration = Duration::from_secs(60);
/// For a container to be ready again.
const REFILL: Duration = Duration::from_secs(30);
/// For the warm parts of 64 containers that are started at the same time: each takes over a second of a core.
const WARM: Duration = Duration::from_secs(240);
/// To take a snapshot, to prove it, and to replace the container that was kept ready.
const SNAPSHOT: Duration = Duration::from_secs(120);
/// From the signal to the end; mostly the removal of all containers.
const END: Duration = Duration::from_secs(90);

pub(crate) struct Daemon {
    child: Child,
    pub(crate) pid: u32,
    /// The label of its containers and volumes.
    pub(crate) label: String,
    seen: watch::Receiver<LogState>,
    pub(crate) token: String,
    pub(crate) addr: SocketAddr,
}

/// What its log says so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct LogState {
    serving: Option<SocketAddr>,
    /// Containers that came up, by language, and how long the last one took.
    armed: BTreeMap<String, (u32, Duration)>,
    /// Containers whose warm part does not stand yet.
    cold: BTreeSet<String>,
    /// How many containers of Python had come up when the snapshot of its warm part was taken; or why there
    /// is none.
    snapshot: Option<std::result::Result<u32, String>>,
    over: bool,
}

/// The daemon's configuration, as this process reads it; the reference containers are made from it.
pub(crate) fn config(dir: &Path) -> Result<Config> {
    let file = file(dir, CONFIG)?;
    let env = environment(String::new()).into_iter().collect();
    Ok(Config::load(Some(&file), &env, &Overrides::default())?.config)
}

fn file(dir: &Path, config: &str) -> Result<PathBuf> {
    let file = dir.join("bench.toml");
    std::fs::write(&file, config)?;
    Ok(file)
}

/// Of the caller's environment only what leads to the engine.
fn environment(token: String) -> Vec<(String, String)> {
    let kept = ["PATH", "HOME", "DOCKER_HOST"];
    let mut all: Vec<_> =
        kept.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect();
    all.push(("MCP_API_TOKEN".to_owned(), token));
    all
}

impl Daemon {
    /// Starts this program. `dir`, made here, gets the configuration and the store; its log goes to `log`.
    pub(crate) async fn start(program: &Path, dir: &Path, config: &str, log: &Path) -> Result<Self> {
        std::fs::create_dir(dir)?;
        let file = file(dir, config)?;
        static TOKEN: OnceLock<String> = OnceLock::new();
        // All nodes of a cluster have the same tokens.
        let token = TOKEN.get_or_init(paddock::id::random_hex::<16>).clone();
        let mut child = Command::new(program)
            .args(["serve", "--config"])
            .arg(file)
            .arg("--store")
            .arg(dir.join("store"))
            .env_clear()
            .envs(environment(token.clone()))
            .env("PADDOCK_TEST_OWNERS", dir.with_file_name(OWNERS))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A Ctrl-C is for us; it gets its own signal.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().ok_or("the daemon ended at once")?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no standard error")?).lines();
        let mut log_file = tokio::fs::File::create(log).await?;
        let (seen, mut now) = watch::channel(LogState::default());
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                seen.send_modify(|seen| seen.take(&line));
                let _ = log_file.write_all(format!("{line}\n").as_bytes()).await;
            }
            seen.send_modify(|seen| seen.over = true);
        });
        let serving = now.wait_for(|seen| seen.serving.is_some() || seen.over);
        let addr = tokio::time::timeout(START, serving).await.ok().and_then(|seen| seen.ok()?.serving);
        let addr = addr.ok_or_else(|| format!("the daemon did not come up; see {}", log.display()))?;
        let owner = std::fs::read_to_string(dir.join("store/owner"))?;
        let label = format!("paddock.owner={}", owner.trim());
        Ok(Self { child, pid, label, seen: now, token, addr })
    }

    /// How many containers of this language came up so far.
    pub(crate) fn armed(&self, language: &str) -> u32 {
        self.seen.borrow().armed(language)
    }

    /// How long the container took that came up as this one of its language.
    pub(crate) async fn arming(&self, language: &str, count: u32) -> Result<Duration> {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(REFILL, seen.wait_for(|seen| seen.armed(language) >= count)).await;
        let seen = waited.map_err(|_| format!("no {language} container came up within {REFILL:?}"))??;
        match seen.armed.get(language) {
            Some((last, taken)) if *last == count => Ok(*taken),
            other => Err(format!("{other:?} of {language} came up, where {count} should have").into()),
        }
    }

    /// Waits until this many came up, and the warm part stands in each.
    pub(crate) async fn wait_for_armed(&self, language: &str, count: u32) -> Result<()> {
        self.wait(language, count, REFILL).await
    }

    /// The same for so many that it takes long.
    pub(crate) async fn wait_for_many(&self, language: &str, count: u32) -> Result<()> {
        self.wait(language, count, WARM).await
    }

    async fn wait(&self, language: &str, count: u32, time: Duration) -> Result<()> {
        let mut seen = self.seen.clone();
        let enough = |seen: &LogState| seen.armed(language) >= count && seen.cold.is_empty();
        let waited = tokio::time::timeout(time, seen.wait_for(enough)).await;
        waited
            .map_err(|_| format!("{count} {language} containers did not stand ready within {time:?}"))??;
        Ok(())
    }

    /// Waits until the snapshot of Python's warm part is used: if `has_idle`, by the container that is kept
    /// ready too.
    pub(crate) async fn wait_for_snapshot(&self, has_idle: bool) -> Result<()> {
        let mut seen = self.seen.clone();
        let is_used = |seen: &LogState| match &seen.snapshot {
            Some(Ok(before)) => !has_idle || (seen.armed("python") > *before && seen.cold.is_empty()),
            Some(Err(_)) => true,
            None => false,
        };
        let waited = tokio::time::timeout(SNAPSHOT, seen.wait_for(is_used)).await;
        let waited = waited.map_err(|_| format!("no snapshot was used within {SNAPSHOT:?}"))??;
        match &waited.snapshot {
            Some(Err(why)) => Err(why.clone().into()),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Waits until the warm part stands in each container that there is.
    pub(crate) async fn wait_for_warm(&self) -> Result<()> {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(WARM, seen.wait_for(|seen| seen.cold.is_empty())).await;
        waited.map_err(|_| format!("a warm part did not stand within {WARM:?}"))??;
        Ok(())
    }

    /// Ends it as an operator would, and waits until it has removed everything.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(pid) = self.child.id().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed())) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        let status = tokio::time::timeout(END, self.child.wait()).await;
        let status = status.map_err(|_| format!("the daemon did not end within {END:?}"))??;
        if status.success() { Ok(()) } else { Err(format!("the daemon ended with {status}").into()) }
    }
}

impl LogState {
    fn armed(&self, language: &str) -> u32 {
        self.armed.get(language).map_or(0, |(count, _)| *count)
    }

    fn take(&mut self, line: &str) {
        let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
        if line.contains(" serving ") {
            self.serving = field("addr=").and_then(|addr| addr.parse().ok());
        } else if line.contains(" armed ")
            && let Some(language) = field("language=")
        {
            let (count, taken) = self.armed.entry(language.to_owned()).or_default();
            *count += 1;
            *taken = Duration::from_millis(field("ms=").and_then(|ms| ms.parse().ok()).unwrap_or_default());
            // Only these images have a warm part.
            let has_part = matches!(language, "python" | "typescript");
            self.cold.extend(field("container=").filter(|_| has_part).map(str::to_owned));
        } else if line.contains(" a snapshot of the warm part was taken ") {
            self.snapshot = Some(Ok(self.armed("python")));
        } else if line.contains(" no snapshot of the warm part ") {
            self.snapshot = Some(Err(line.to_owned()));
        } else if line.contains(" warm language=") || line.contains(" removed ") {
            self.cold.remove(field("container=").unwrap_or_default());
        }
    }
}
