//! `paddock doctor` as a user runs it, and the differences from its report about a healthy host.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::process::Command;

use crate::support::{PATIENCE, TOKEN, engine_host, program, within};

/// A secret that its output must never contain.
const SECRET: &str = "the-secret-that-signs-links";

/// A doctor to run.
#[derive(Clone)]
pub(crate) struct Look {
    engine: String,
    store: PathBuf,
    program: String,
    /// The program and arguments that start it, if any.
    under: Vec<String>,
    config: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

/// Its report.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    document: Value,
}

impl Look {
    /// A doctor for this store, with a configuration that has no defect of its own.
    pub(crate) fn at(store: &Path) -> Look {
        let config = "\
            http.addr = '127.0.0.1:0'\n\
            store.max_bytes = '256MiB'\n\
            limits.data = '80MiB'\n\
            limits.data_inodes = 1000\n\
            sessions.max = 1\n\
            pool.idle = 0\n\
            agent.warm_parts = false\n\
            egress.mode = 'none'\n";
        Look {
            engine: engine_host().to_string(),
            store: store.to_owned(),
            program: program().to_owned(),
            under: Vec::new(),
            config: config.to_owned(),
            args: Vec::new(),
            env: vec![("MCP_API_TOKEN".to_owned(), TOKEN.to_owned())],
        }
    }

    pub(crate) fn engine(mut self, host: &str) -> Look {
        self.engine = host.to_owned();
        self
    }

    /// Sets a key of the configuration.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Look {
        let kept: Vec<_> = self
            .config
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} ")))
            .map(str::to_owned)
            .collect();
        self.config = format!("{}\n{key} = {value}\n", kept.join("\n"));
        self
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Look {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Look {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without_token(mut self) -> Look {
        self.env.retain(|(name, _)| name != "MCP_API_TOKEN");
        self
    }

    /// Starts it by this program and its arguments.
    pub(crate) fn under(mut self, words: &[&str]) -> Look {
        self.under = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Runs a copy that every user may execute.
    pub(crate) fn program(mut self, path: &Path) -> Look {
        self.program = path.display().to_string();
        self
    }

    /// The command, with its configuration in `file`.
    pub(crate) fn command(&self, file: &Path) -> Command {
        std::fs::write(file, &self.config).expect("a configuration file");
        let words: Vec<&str> = self.under.iter().chain([&self.program]).map(String::as_str).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("doctor").arg("--config").arg(file).arg("--store").arg(&self.store);
        command.args(["--engine", &self.engine]).args(&self.args);
        command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default()).env("FILE_SECRET", SECRET);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs it with `--json`.
    pub(crate) async fn run(&self) -> Report {
        let mut report = self.clone().args(&["--json"]).print().await;
        report.document = serde_json::from_str(&report.text).unwrap_or_else(|e| panic!("{e}: {report:?}"));
        let failed = report.of("fail").next().is_some();
        assert_eq!(report.code, Some(i32::from(failed)), "{report:?}");
        let verdict = report.document["verdict"].as_str().expect("a verdict");
        assert_eq!(
            verdict.contains("would serve,") && !verdict.contains("must not"),
            report.of("warn").next().is_some() && !failed,
            "{verdict}"
        );
        report
    }

    /// Runs it as it is.
    pub(crate) async fn print(&self) -> Report {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let begun = Instant::now();
        let path = file.path().to_owned();
        // Any user may read the file.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&path, open).expect("a mode");
        let ran = within(PATIENCE, "doctor", self.command(&path).output()).await.expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (said, stderr) = (text(&ran.stdout), text(&ran.stderr));
        for secret in [TOKEN, SECRET] {
            assert!(
                !said.contains(secret) && !stderr.contains(secret),
                "a secret is printed: {said}{stderr}"
            );
        }
        Report { code: ran.status.code(), text: said, stderr, took: begun.elapsed(), document: Value::Null }
    }
}

/// The group and the name, since `memory` is in two groups: `container/memory` and `room/memory`.
fn name_of(check: &Value) -> String {
    format!("{}/{}", check["group"].as_str().expect("text"), check["name"].as_str().expect("text"))
}

impl Report {
    fn checks(&self) -> impl Iterator<Item = &Value> {
        self.document["checks"].as_array().expect("checks").iter()
    }

    /// All defects, for the message of a failed test.
    fn brief(&self) -> String {
        let lacks = self.checks().filter(|check| check["status"] != "ok");
        let lacks =
            lacks.map(|check| format!("- {} {}: {}", check["status"], name_of(check), check["found"]));
        lacks.chain([self.stderr.clone()]).collect::<Vec<_>>().join("\n")
    }

    fn of(&self, status: &str) -> impl Iterator<Item = &Value> {
        self.checks().filter(move |check| check["status"] == status)
    }

    /// The text of the check with this `group/name`.
    #[track_caller]
    pub(crate) fn found(&self, name: &str) -> &str {
        let check = self.checks().find(|check| name_of(check) == name);
        check.and_then(|check| check["found"].as_str()).unwrap_or_else(|| panic!("no {name}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn advice(&self, name: &str) -> &str {
        let check = self.checks().find(|check| name_of(check) == name);
        check.and_then(|check| check["advice"].as_str()).unwrap_or_else(|| panic!("no {name}: {}", self.text))
    }

    /// The names of all checks that are not ok, with their status. Left out is what was slow: that depends on
    /// what else this machine does.
    pub(crate) fn lacks(&self) -> BTreeSet<(String, String)> {
        let was_slow = |check: &&Value| {
            check["status"] == "warn" && ["store/sync", "container/start"].contains(&name_of(check).as_str())
        };
        let lacks = self.checks().filter(|check| check["status"] != "ok" && !was_slow(check));
        lacks.map(|check| (name_of(check), check["status"].as_str().expect("text").to_owned())).collect()
    }

    /// It reports the defects of `base`, these, and no others.
    #[track_caller]
    pub(crate) fn expect(&self, base: &Report, more: &[(&str, &str)]) {
        let mut expected = base.lacks();
        expected.extend(more.iter().map(|(name, status)| ((*name).to_owned(), (*status).to_owned())));
        assert_eq!(self.lacks(), expected, "{}", self.brief());
    }

    /// No container started: it reports the defects of `base` outside of containers, this one, and no others.
    #[track_caller]
    pub(crate) fn expect_no_container(&self, base: &Report, name: &str, status: &str) {
        let mut expected = base.lacks();
        expected.retain(|(lack, _)| !lack.starts_with("container/"));
        expected.insert((name.to_owned(), status.to_owned()));
        assert_eq!(self.lacks(), expected, "{}", self.brief());
    }

    /// It reports the defects of `base` without this one.
    #[track_caller]
    pub(crate) fn expect_without(&self, base: &Report, name: &str) {
        let mut expected = base.lacks();
        expected.retain(|(lack, _)| lack != name);
        assert_eq!(self.lacks(), expected, "{}", self.brief());
        assert_ne!(self.lacks(), base.lacks(), "{name} was no lack before");
    }

    #[track_caller]
    pub(crate) fn expect_nothing_failed(&self) {
        assert_eq!(self.of("fail").count(), 0, "{}", self.brief());
    }

    /// It reports exactly this failure, whatever warnings there are.
    #[track_caller]
    pub(crate) fn expect_failure(&self, name: &str, found: &str, advice: &str) {
        let failed: Vec<_> = self.of("fail").map(name_of).collect();
        assert_eq!(failed, [name], "{}", self.brief());
        assert!(self.found(name).contains(found), "{}", self.brief());
        assert!(self.advice(name).contains(advice), "{}", self.brief());
    }
}
