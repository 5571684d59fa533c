//! The images of the runners, and the settings of the pool. The pool checks its own rules; this module only
//! translates the names of their fields into keys.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Checker, MONTH, SECOND};
use crate::config::error::ConfigError;
use crate::config::raw::{ExecTable, PoolTable};
use crate::config::types::ExecSettings;
use crate::config::{Backoff, PoolSettings, RawPoolSettings};

/// The pause between attempts: short enough for a brief failure of the engine, long enough not to hammer a
/// broken image.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_secs(30) };

const TAKES_LANGUAGE: &str = "takes up to 32 of a-z, 0-9, _, - and +";

fn is_language(text: &str) -> bool {
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

    pub(super) fn runners(
        &self,
        runners: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        for (language, image) in &runners {
            let key = format!("runners.{language}");
            if !is_language(language) {
                return Err(self.fail(&key, format!("is not the name of a language: {TAKES_LANGUAGE}")));
            }
            if image.is_empty() || image.starts_with('-') || !image.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(
                    self.fail(&key, format!("is {image:?}, takes an image such as \"python:3.13-slim\""))
                );
            }
        }
        Ok(runners)
    }
}
