//! The resources of a container and of a call. Each lower bound is the least that the engine or the agent
//! needs.

use std::ops::RangeInclusive;

use super::{Checker, GIB, KIB, MIB, TIB, bytes};
use crate::config::error::ConfigError;
use crate::config::raw::LimitsTable;
use crate::config::types::{HttpSettings, LimitsSettings};
use crate::config::value::Size;

/// Room in a JSON request beside the one large value that it carries.
const ENVELOPE: u64 = 64 * KIB;

/// Docker refuses less than 6 MiB; no interpreter starts with less than this.
pub(super) const MEMORY: RangeInclusive<u64> = 16 * MIB..=16 * TIB;
/// Processors.
pub(super) const CPUS: RangeInclusive<f64> = 0.01..=1024.0;
/// Up to the most that Linux has.
pub(super) const PIDS: RangeInclusive<u32> = 8..=4_194_304;
/// `/data`.
pub(super) const DATA: RangeInclusive<u64> = MIB..=16 * TIB;
/// Entries of `/data`.
pub(super) const DATA_INODES: RangeInclusive<u32> = 64..=u32::MAX;
/// `/tmp`.
pub(super) const TMP: RangeInclusive<u64> = MIB..=16 * TIB;
/// Open files of a process.
pub(super) const OPEN_FILES: RangeInclusive<u32> = 64..=1_048_576;
/// One file.
pub(super) const FILE_SIZE: RangeInclusive<u64> = MIB..=16 * TIB;

impl Checker<'_> {
    pub(super) fn limits(
        &self,
        raw: LimitsTable,
        http: &HttpSettings,
    ) -> Result<LimitsSettings, ConfigError> {
        let LimitsTable {
            memory,
            cpus,
            pids,
            output,
            shown,
            code,
            upload,
            artifact_read,
            data,
            data_inodes,
            tmp,
            shm,
            open_files,
            file_size,
            environment,
            stdin,
        } = raw;
        let limits = LimitsSettings {
            memory: self.size("limits.memory", memory, MEMORY)?,
            cpus: self.within("limits.cpus", cpus, CPUS)?,
            pids: self.within("limits.pids", pids, PIDS)?,
            // Kept in memory for each run.
            output: self.size("limits.output", output, 1..=64 * MIB)?,
            // With less, the note about the omitted part would be longer than the output shown.
            shown: self.size("limits.shown", shown, 100..=64 * MIB)?,
            code: self.size("limits.code", code, 1..=64 * MIB)?,
            upload: self.size("limits.upload", upload, 1..=16 * GIB)?,
            // Kept in memory several times, in base64 too.
            artifact_read: self.size("limits.artifact_read", artifact_read, 1..=64 * MIB)?,
            data: self.size("limits.data", data, DATA)?,
            data_inodes: self.within("limits.data_inodes", data_inodes, DATA_INODES)?,
            tmp: self.size("limits.tmp", tmp, TMP)?,
            // For Docker 0 means its default, 64 MB.
            shm: self.size("limits.shm", shm, 64 * KIB..=16 * TIB)?,
            open_files: self.within("limits.open_files", open_files, OPEN_FILES)?,
            file_size: self.size("limits.file_size", file_size, FILE_SIZE)?,
            environment: self.size("limits.environment", environment, KIB..=128 * KIB)?,
            stdin: self.size("limits.stdin", stdin, 0..=GIB)?,
        };
        self.fits_a_request("limits.code", limits.code, limits.code, http)?;
        self.fits_a_request("limits.environment", limits.environment, limits.environment, http)?;
        self.fits_a_request("limits.stdin", limits.stdin, limits.stdin, http)?;
        self.fits_a_request("limits.upload", limits.upload, limits.upload.div_ceil(3) * 4, http)?;
        if limits.upload > limits.data {
            let problem =
                format!("is {}, must be at most limits.data, {}", bytes(limits.upload), bytes(limits.data));
            return Err(self.fail("limits.upload", problem));
        }
        Ok(limits)
    }

    fn fits_a_request(
        &self,
        key: &str,
        limit: u64,
        written: u64,
        http: &HttpSettings,
    ) -> Result<(), ConfigError> {
        let needed = written + ENVELOPE;
        if needed <= http.max_body {
            return Ok(());
        }
        let (limit, needed, max) = (bytes(limit), bytes(needed), bytes(http.max_body));
        Err(self
            .fail(key, format!("is {limit}, which needs a request of {needed}: http.max_body is only {max}")))
    }

    /// The largest body: at least as much as the smallest useful call needs, at most as much as one machine
    /// may hold.
    pub(super) fn max_body(&self, size: Size) -> Result<u64, ConfigError> {
        self.size("http.max_body", size, 128 * KIB..=32 * GIB)
    }
}
