//! From shape to sense: bounds, and settings that must hold together. It must use every key of [`Raw`], which
//! taking each struct apart by name makes the compiler see to.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

mod access;
mod limits;
mod runners;

use super::error::{ConfigError, Warning};
use super::layers::Layers;
use super::raw::{
    Raw, RawAgent, RawEngine, RawFiles, RawLog, RawSessions, RawShutdown, RawStore, RawTimeouts,
};
use super::types::{Agent, Config, Engine, Files, Log, Sessions, Shutdown, Store, Timeouts};
use super::value::{Secret, Size, Time};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// A secret shorter than this can be guessed.
const SHORT_SECRET: usize = 16;

/// A checker of one merged table.
pub(super) struct Check<'a> {
    layers: &'a Layers,
    env: &'a BTreeMap<String, String>,
    is_root: bool,
    warnings: &'a mut Vec<Warning>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        layers: &'a Layers,
        env: &'a BTreeMap<String, String>,
        is_root: bool,
        warnings: &'a mut Vec<Warning>,
    ) -> Self {
        Self { layers, env, is_root, warnings }
    }

    pub(super) fn config(mut self, raw: Raw) -> Result<Config, ConfigError> {
        let Raw {
            http,
            auth,
            store,
            files,
            engine,
            limits,
            timeouts,
            sessions,
            pool,
            runners,
            agent,
            log,
            shutdown,
        } = raw;
        let allow_open = http.allow_open;
        let http = self.http(http)?;
        let auth = self.auth(auth)?;
        self.openness(&http, &auth, allow_open)?;
        let limits = self.limits(limits, &http)?;
        let config = Config {
            store: self.store(store)?,
            files: self.files(files, limits.output)?,
            engine: self.engine(engine)?,
            timeouts: self.timeouts(timeouts)?,
            sessions: self.sessions(sessions)?,
            pool: self.pool(pool)?,
            runners: self.runners(runners)?,
            agent: self.agent(agent)?,
            log: self.log(log)?,
            shutdown: self.shutdown(shutdown)?,
            http,
            auth,
            limits,
        };
        if config.sessions.max > config.pool.max_members {
            self.warn(format!(
                "sessions.max is {}, but only pool.max_containers, {}, can have a container at one time",
                config.sessions.max, config.pool.max_members
            ));
        }
        Ok(config)
    }

    fn store(&self, RawStore { root }: RawStore) -> Result<Store, ConfigError> {
        const KEY: &str = "store.root";
        if !root.is_empty() {
            return Ok(Store { root: self.absolute(KEY, &root)? });
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
        Ok(Store { root: state.join("paddock") })
    }

    fn files(&mut self, RawFiles { secret, max_log }: RawFiles, output: u64) -> Result<Files, ConfigError> {
        let max_log = self.size("files.max_log", max_log, KIB..=TIB)?;
        if max_log < output {
            let problem = format!("is {}, must be at least limits.output, {}", bytes(max_log), bytes(output));
            return Err(self.fail("files.max_log", problem));
        }
        self.warn_if_short("files.secret", &secret);
        Ok(Files { secret: Some(secret).filter(|secret| !secret.expose().is_empty()), max_log })
    }

    fn engine(&mut self, RawEngine { host, runtime }: RawEngine) -> Result<Engine, ConfigError> {
        let socket = host.strip_prefix("unix://").is_some_and(|path| path.starts_with('/'));
        let tcp = host.strip_prefix("tcp://").filter(|authority| !authority.is_empty());
        if !socket && tcp.is_none() {
            return Err(
                self.fail("engine.host", format!("is {host:?}, takes unix:///path or tcp://host:port"))
            );
        }
        if tcp.is_some_and(|authority| !access::is_loopback(authority)) {
            self.warn(
                "engine.host is reached without TLS: whoever stands on the way there is root at its end"
                    .into(),
            );
        }
        if runtime.contains(char::is_whitespace) {
            return Err(
                self.fail("engine.runtime", format!("is {runtime:?}, takes a runtime's name such as runsc"))
            );
        }
        Ok(Engine { host, runtime: Some(runtime).filter(|runtime| !runtime.is_empty()) })
    }

    fn timeouts(&self, RawTimeouts { run_code, max }: RawTimeouts) -> Result<Timeouts, ConfigError> {
        let max = self.time("timeouts.max", max, SECOND..=MONTH)?;
        let run_code = self.time("timeouts.run_code", run_code, SECOND..=MONTH)?;
        if run_code > max {
            let problem = format!("is {}, must be at most timeouts.max, {}", human(run_code), human(max));
            return Err(self.fail("timeouts.run_code", problem));
        }
        Ok(Timeouts { run_code, max })
    }

    fn sessions(&self, raw: RawSessions) -> Result<Sessions, ConfigError> {
        let RawSessions { ttl, max, sweep, when_full, queue } = raw;
        Ok(Sessions {
            ttl: self.time("sessions.ttl", ttl, SECOND..=MONTH)?,
            max: self.within("sessions.max", max, 1..=100_000)?,
            sweep: self.time("sessions.sweep", sweep, SECOND..=24 * HOUR)?,
            when_full,
            queue: self.within("sessions.queue", queue, 0..=100_000)?,
        })
    }

    fn agent(&self, RawAgent { orphan_after }: RawAgent) -> Result<Agent, ConfigError> {
        // Less, and a daemon that is merely restarted finds its containers gone.
        let orphan_after = self.time("agent.orphan_after", orphan_after, 30 * SECOND..=MONTH)?;
        Ok(Agent { orphan_after })
    }

    fn log(&self, RawLog { level, format, file }: RawLog) -> Result<Log, ConfigError> {
        let parsed = level.parse();
        let level = parsed.map_err(|()| {
            self.fail("log.level", format!("is {level:?}, takes error, warn, info, debug or trace"))
        })?;
        let file = if file.is_empty() { None } else { Some(self.absolute("log.file", &file)?) };
        Ok(Log { level, format, file })
    }

    fn shutdown(&self, RawShutdown { drain }: RawShutdown) -> Result<Shutdown, ConfigError> {
        Ok(Shutdown { drain: self.time("shutdown.drain", drain, Duration::ZERO..=HOUR)? })
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

fn human(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(time)
}

/// A size in the largest unit that shows it exactly.
fn bytes(size: u64) -> String {
    let units = [
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
