//! Checks the meaning of settings: bounds, and settings that must fit together. It must use every key of
//! [`RawConfig`]; it takes each struct apart by name, so the compiler ensures that.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub(super) mod access;
mod cluster;
mod egress;
mod engine;
mod files;
mod limits;
mod models;
mod mounts;
mod packages;
mod ports;
mod records;
mod runners;
mod secrets;
mod services;
mod shared_store;
mod tasks;

use super::env;
use super::error::{ConfigError, Origin, Warning};
use super::layers::Layers;
use super::raw::{AgentTable, McpTable, RawConfig, SessionsTable, ShutdownTable, StoreTable, TimeoutsTable};
use super::types::{
    AgentSettings, Config, McpSettings, SessionsSettings, ShutdownSettings, StoreSettings, TimeoutsSettings,
};
use super::value::{Secret, Size, Time, human};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Ten years of humantime's.
const DECADE: Duration = Duration::from_secs(10 * 31_557_600);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const PIB: u64 = 1 << 50;

/// More than a file system has inodes, and more names than fit the daemon's memory.
const MAX_FILES: u64 = 1_000_000_000;

/// A secret shorter than this can be guessed.
const SHORT_SECRET: usize = 16;

/// Checks one merged table.
pub(super) struct Checker<'a> {
    layers: &'a Layers,
    env: &'a BTreeMap<String, String>,
    is_root: bool,
    warnings: &'a mut Vec<Warning>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(
        layers: &'a Layers,
        env: &'a BTreeMap<String, String>,
        is_root: bool,
        warnings: &'a mut Vec<Warning>,
    ) -> Self {
        Self { layers, env, is_root, warnings }
    }

    pub(super) fn config(mut self, raw: RawConfig) -> Result<Config, ConfigError> {
        let RawConfig {
            http,
            auth,
            audit,
            mcp,
            store,
            cluster,
            files,
            engine,
            limits,
            timeouts,
            exec,
            sessions,
            pool,
            egress,
            models,
            packages,
            ports,
            tasks,
            coding_agents,
            runners,
            mounts,
            drops,
            agent,
            metrics,
            log,
            telemetry,
            shutdown,
        } = raw;
        let allow_open = http.allow_open;
        let http = self.http(http)?;
        let store = self.store(store)?;
        let auth = self.auth(auth, &store)?;
        self.openness(&http, &auth, allow_open)?;
        let limits = self.limits(limits, &http)?;
        let pool = self.pool(pool)?;
        let coding_agents = self.coding_agents(coding_agents, &limits)?;
        let runners = self.runners(runners, &limits, &pool)?;
        let McpTable { resume_window, toolsets } = mcp;
        let resume_window = self.time("mcp.resume_window", resume_window, Duration::ZERO..=HOUR)?;
        let engine = self.engine(engine)?;
        let files = self.files(files, limits.output)?;
        let config = Config {
            cluster: self.cluster(cluster, &files)?,
            audit: self.audit(audit)?,
            mcp: McpSettings { resume_window, toolsets },
            files,
            mounts: self.mounts(mounts, &store, &engine)?,
            drops: self.drops(drops, &auth, (&store, &engine))?,
            store,
            engine,
            timeouts: self.timeouts(timeouts)?,
            tasks: self.tasks(tasks)?,
            exec: self.exec(exec)?,
            sessions: self.sessions(sessions)?,
            pool,
            egress: self.egress((egress, models), &auth)?,
            packages: self.packages(packages)?,
            ports: self.ports(ports)?,
            coding_agents,
            runners,
            agent: self.agent(agent)?,
            metrics: self.metrics(metrics, &auth)?,
            log: self.log(log)?,
            telemetry: self.telemetry(telemetry)?,
            shutdown: self.shutdown(shutdown)?,
            conformance_fixtures: env::fixtures(self.env, self.warnings)?,
            http,
            auth,
            limits,
        };
        if config.store.max_bytes < config.limits.data {
            let (max, data) = (bytes(config.store.max_bytes), bytes(config.limits.data));
            let problem = format!("is {max}, must hold at least one session: limits.data is {data}");
            return Err(self.fail("store.max_bytes", problem));
        }
        let (files, inodes) = (config.store.max_files, config.limits.data_inodes);
        if files < u64::from(inodes) {
            let problem =
                format!("is {files}, must hold at least one session: limits.data_inodes is {inodes}");
            return Err(self.fail("store.max_files", problem));
        }
        self.uids_for_workspaces(&config)?;
        if config.sessions.max > config.pool.max_members {
            self.warn(format!(
                "sessions.max is {}, but only pool.max_containers, {}, can have a container at one time",
                config.sessions.max, config.pool.max_members
            ));
        }
        Ok(config)
    }

    fn store(
        &self,
        StoreTable { root, url, objects, credentials, max_bytes, max_files }: StoreTable,
    ) -> Result<StoreSettings, ConfigError> {
        let max_bytes = self.size("store.max_bytes", max_bytes, MIB..=PIB)?;
        let max_files = self.within("store.max_files", max_files, 64..=MAX_FILES)?;
        let is_named = !root.is_empty();
        let shared = self.shared_store(&url, &objects, &credentials)?;
        Ok(StoreSettings { root: self.root(&root)?, is_named, shared, max_bytes, max_files })
    }

    fn root(&self, given: &str) -> Result<PathBuf, ConfigError> {
        const KEY: &str = "store.root";
        if !given.is_empty() {
            return self.absolute(KEY, given);
        }
        let directory = |name| self.env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = if self.is_root {
            Some(PathBuf::from("/var/lib"))
        } else {
            directory("XDG_STATE_HOME").or_else(|| Some(directory("HOME")?.join(".local/state")))
        };
        let state = state.ok_or_else(|| {
            self.fail(KEY, "is empty, and neither XDG_STATE_HOME nor HOME is set: name a directory")
        })?;
        Ok(state.join("paddock"))
    }

    fn timeouts(&self, raw: TimeoutsTable) -> Result<TimeoutsSettings, ConfigError> {
        let TimeoutsTable { run_code, run_python, execute_code, max } = raw;
        let mut max = self.time("timeouts.max", max, SECOND..=MONTH)?;
        // No variable sets the maximum: an operator who sets a longer time by a variable must not be stopped
        // by a key that they do not see.
        let keys = [
            ("timeouts.run_code", run_code),
            ("timeouts.run_python", run_python),
            ("timeouts.execute_code", execute_code),
        ];
        for (key, Time(time)) in keys {
            if matches!(self.layers.origin(key), Origin::Environment(_)) {
                max = max.max(time);
            }
        }
        let of = |key: &str, time| {
            let time = self.time(key, time, SECOND..=MONTH)?;
            if time > max {
                let problem = format!("is {}, must be at most timeouts.max, {}", human(time), human(max));
                return Err(self.fail(key, problem));
            }
            Ok(time)
        };
        let run_code = of("timeouts.run_code", run_code)?;
        let run_python = of("timeouts.run_python", run_python)?;
        let execute_code = of("timeouts.execute_code", execute_code)?;
        Ok(TimeoutsSettings { run_code, run_python, execute_code, max })
    }

    fn sessions(&self, raw: SessionsTable) -> Result<SessionsSettings, ConfigError> {
        let SessionsTable { ttl, max, sweep, when_full, queue, retention } = raw;
        Ok(SessionsSettings {
            ttl: self.time("sessions.ttl", ttl, SECOND..=MONTH)?,
            max: self.within("sessions.max", max, 1..=100_000)?,
            sweep: self.time("sessions.sweep", sweep, SECOND..=24 * HOUR)?,
            when_full,
            queue: self.within("sessions.queue", queue, 0..=100_000)?,
            retention: self.time_or_never("sessions.retention", retention)?,
        })
    }

    fn agent(
        &self,
        AgentTable { orphan_after, warm_parts, snapshots, snapshot_age }: AgentTable,
    ) -> Result<AgentSettings, ConfigError> {
        // With less time, a daemon that merely restarts would lose its containers.
        let orphan_after = self.time("agent.orphan_after", orphan_after, 30 * SECOND..=MONTH)?;
        let snapshot_age = self.time("agent.snapshot_age", snapshot_age, 10 * SECOND..=MONTH)?;
        Ok(AgentSettings { orphan_after, warm_parts, snapshots, snapshot_age })
    }

    fn shutdown(&self, ShutdownTable { drain }: ShutdownTable) -> Result<ShutdownSettings, ConfigError> {
        Ok(ShutdownSettings { drain: self.time("shutdown.drain", drain, Duration::ZERO..=HOUR)? })
    }

    fn warn_if_short(&mut self, key: &str, secret: &Secret) {
        if (1..SHORT_SECRET).contains(&secret.expose().len()) {
            self.warn(format!(
                "{key} is short enough to be guessed: openssl rand -hex 32 makes a better one"
            ));
        }
    }

    fn absolute(&self, key: &str, path: &str) -> Result<PathBuf, ConfigError> {
        std::path::absolute(path).map_err(|error| self.fail(key, format!("is {path:?}: {}", error.kind())))
    }

    fn size(&self, key: &str, Size(size): Size, bounds: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let wrong = || out_of(bytes(size), bytes(*bounds.start()), bytes(*bounds.end()));
        if bounds.contains(&size) { Ok(size) } else { Err(self.fail(key, wrong())) }
    }

    fn time(
        &self,
        key: &str,
        Time(time): Time,
        bounds: RangeInclusive<Duration>,
    ) -> Result<Duration, ConfigError> {
        let wrong = || out_of(human(time), human(*bounds.start()), human(*bounds.end()));
        if bounds.contains(&time) { Ok(time) } else { Err(self.fail(key, wrong())) }
    }

    /// A time whose zero means never.
    fn time_or_never(&self, key: &str, time: Time) -> Result<Option<Duration>, ConfigError> {
        if time.0.is_zero() {
            return Ok(None);
        }
        if !(SECOND..=DECADE).contains(&time.0) {
            let (time, least, most) = (human(time.0), human(SECOND), human(DECADE));
            return Err(self.fail(key, format!("{}, or 0s", out_of(time, least, most))));
        }
        Ok(Some(time.0))
    }

    fn within<T: PartialOrd + Display>(
        &self,
        key: &str,
        value: T,
        bounds: RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        if bounds.contains(&value) {
            return Ok(value);
        }
        Err(self.fail(key, out_of(value, bounds.start(), bounds.end())))
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(Warning(text));
    }

    fn fail(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        self.layers.fail(key, problem)
    }
}

fn out_of(value: impl Display, least: impl Display, most: impl Display) -> String {
    format!("is {value}, must be {least} to {most}")
}

/// A size in the largest unit that shows it exactly.
fn bytes(size: u64) -> String {
    let units = [
        (PIB, "PiB"),
        (TIB, "TiB"),
        (GIB, "GiB"),
        (1_000_000_000, "GB"),
        (MIB, "MiB"),
        (1_000_000, "MB"),
        (KIB, "KiB"),
        (1000, "KB"),
    ];
    let exact = units.iter().find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{size} bytes"), |(unit, name)| format!("{} {name}", size / unit))
}
