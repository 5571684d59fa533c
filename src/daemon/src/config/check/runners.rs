//! The images of the runners, and the settings of the pool. The pool checks its own rules; this module only
//! translates the names of their fields into keys.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::limits::{CPUS, DATA, DATA_INODES, FILE_SIZE, MEMORY, OPEN_FILES, PIDS, TMP};
use super::{Checker, MIB, MONTH, SECOND, bytes};
use crate::config::error::ConfigError;
use crate::config::raw::{ExecTable, PoolTable, RunnerTable};
use crate::config::types::{ExecSettings, LimitsSettings, RunnerSettings};
use crate::config::value::Size;
use crate::config::{Backoff, PoolSettings, RawPoolSettings};

/// The pause between attempts: short enough for a brief failure of the engine, long enough not to hammer a
/// broken image.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(30) };

pub(super) const TAKES_LANGUAGE: &str = "takes up to 32 of a-z, 0-9, _, - and +";

pub(super) fn is_language(text: &str) -> bool {
    let named = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-+".contains(&b);
    !text.is_empty() && text.len() <= 32 && text.bytes().all(named)
}

impl Checker<'_> {
    pub(super) fn pool(&self, raw: PoolTable) -> Result<PoolSettings, ConfigError> {
        let PoolTable { idle, idle_ttl, queue, wait, uids, starting, max_containers } = raw;
        let range = uids.split_once('-').and_then(|(low, high)| {
            Some(RangeInclusive::new(low.trim().parse().ok()?, high.trim().parse().ok()?))
        });
        let Some(uid_range) = range else {
            return Err(self.fail("pool.uids", format!("is {uids:?}, takes a range such as \"20000-20999\"")));
        };
        let raw = RawPoolSettings {
            idle_per_runner: idle,
            max_starting: starting,
            idle_ttl: idle_ttl.0,
            queue,
            wait: wait.0,
            uid_range,
            backoff: BACKOFF,
            max_members: max_containers,
        };
        PoolSettings::try_from(raw).map_err(|error| {
            let key = match error.field() {
                "idle_per_runner" => "idle",
                "max_starting" => "starting",
                "uid_range" => "uids",
                "max_members" => "max_containers",
                same => same,
            };
            self.fail(&format!("pool.{key}"), error.to_string())
        })
    }

    pub(super) fn exec(&self, raw: ExecTable) -> Result<ExecSettings, ConfigError> {
        let ExecTable { runner, max, per_session, keep, kept } = raw;
        if !is_language(&runner) {
            return Err(self.fail("exec.runner", format!("is {runner:?}, {TAKES_LANGUAGE}")));
        }
        Ok(ExecSettings {
            runner,
            max: self.within("exec.max", max, 1..=10_000)?,
            per_session: self.within("exec.per_session", per_session, 1..=10_000)?,
            keep: self.time("exec.keep", keep, SECOND..=MONTH)?,
            kept: self.within("exec.kept", kept, 1..=100_000)?,
        })
    }

    /// The bounds of all coding agents. The files of a session must fit into each of its containers, so
    /// `/data` is never smaller than for languages.
    pub(super) fn coding_agents(
        &self,
        raw: RunnerTable,
        limits: &LimitsSettings,
    ) -> Result<RunnerSettings, ConfigError> {
        if raw.image.is_some() {
            let problem = "is not a key: each coding agent has an image of its own, runners.NAME.image";
            return Err(self.fail("coding_agents.image", problem));
        }
        let data = raw.data.map(|Size(data)| Size(data.max(limits.data)));
        let data_inodes = raw.data_inodes.map(|entries| entries.max(limits.data_inodes));
        let table = RunnerTable { data, data_inodes, ..raw };
        self.runner("coding_agents", table, limits)
    }

    pub(super) fn runners(
        &self,
        runners: BTreeMap<String, RunnerTable>,
        limits: &LimitsSettings,
        pool: &PoolSettings,
    ) -> Result<BTreeMap<String, RunnerSettings>, ConfigError> {
        let mut all = BTreeMap::new();
        for (name, table) in runners {
            let key = format!("runners.{name}");
            if !is_language(&name) {
                return Err(self.fail(&key, format!("is not the name of a runner: {TAKES_LANGUAGE}")));
            }
            let runner = self.runner(&key, table, limits)?;
            if runner.idle == Some(0) && pool.queue == 0 {
                let problem =
                    "is 0 while pool.queue is 0, so nothing could ever run in it; must be at least 1";
                return Err(self.fail(&format!("{key}.idle"), problem));
            }
            all.insert(name, runner);
        }
        Ok(all)
    }

    fn runner(
        &self,
        table: &str,
        raw: RunnerTable,
        limits: &LimitsSettings,
    ) -> Result<RunnerSettings, ConfigError> {
        let RunnerTable {
            image,
            idle,
            memory,
            cpus,
            pids,
            data,
            data_inodes,
            stored,
            tmp,
            open_files,
            file_size,
            runtime,
        } = raw;
        // 0: as much as there may be of a session.
        let stored = stored.map(|Size(stored)| Size(if stored == 0 { limits.data } else { stored }));
        let key = |name: &str| format!("{table}.{name}");
        let size = |name: &str, size: Option<Size>, range: RangeInclusive<u64>| {
            size.map(|size| self.size(&key(name), size, range)).transpose()
        };
        let count = |name: &str, n: Option<u32>, range: RangeInclusive<u32>| {
            n.map(|n| self.within(&key(name), n, range)).transpose()
        };
        if let Some(image) = &image
            && (image.is_empty() || image.starts_with('-') || !image.bytes().all(|b| b.is_ascii_graphic()))
        {
            let problem = format!("is {image:?}, takes an image such as \"python:3.13-slim\"");
            return Err(self.fail(&key("image"), problem));
        }
        let runner = RunnerSettings {
            image,
            idle,
            memory: size("memory", memory, MEMORY)?,
            cpus: cpus.map(|n| self.within(&key("cpus"), n, CPUS)).transpose()?,
            pids: count("pids", pids, PIDS)?,
            data: size("data", data, DATA)?,
            data_inodes: count("data_inodes", data_inodes, DATA_INODES)?,
            stored: size("stored", stored, MIB..=limits.data.max(MIB))?,
            tmp: size("tmp", tmp, TMP)?,
            open_files: count("open_files", open_files, OPEN_FILES)?,
            file_size: size("file_size", file_size, FILE_SIZE)?,
            runtime: self.runtime(&key("runtime"), runtime.unwrap_or_default())?,
        };
        let why = "since the files of a session must fit into each of its containers";
        if let Some(data) = runner.data.filter(|data| *data < limits.data) {
            let (data, least) = (bytes(data), bytes(limits.data));
            let problem = format!("is {data}, must be at least limits.data, {least}, {why}");
            return Err(self.fail(&key("data"), problem));
        }
        if let Some(entries) = runner.data_inodes.filter(|entries| *entries < limits.data_inodes) {
            let least = limits.data_inodes;
            let problem = format!("is {entries}, must be at least limits.data_inodes, {least}, {why}");
            return Err(self.fail(&key("data_inodes"), problem));
        }
        Ok(runner)
    }
}
