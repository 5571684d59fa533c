//! Checks `[files]`: secrets of links, and how long they last.

use super::{Checker, KIB, TIB, bytes};
use crate::config::error::ConfigError;
use crate::config::raw::FilesTable;
use crate::config::types::{FilesSettings, UrlStyle};

/// A link that the current secret does not verify is tried with each of these.
const PREVIOUS_SECRETS: usize = 8;

impl Checker<'_> {
    pub(super) fn files(&mut self, raw: FilesTable, output: u64) -> Result<FilesSettings, ConfigError> {
        let FilesTable { secret, previous_secrets, url_ttl, url_style, max_log } = raw;
        let max_log = self.size("files.max_log", max_log, KIB..=TIB)?;
        if max_log < output {
            let problem = format!("is {}, must be at least limits.output, {}", bytes(max_log), bytes(output));
            return Err(self.fail("files.max_log", problem));
        }
        let secret = self.secret("files.secret", secret)?;
        self.warn_if_short("files.secret", &secret);
        if let Some(at) = previous_secrets.iter().position(|secret| secret.expose().is_empty()) {
            let key = format!("files.previous_secrets[{at}]");
            return Err(self.fail(&key, "is empty, takes a previous value of files.secret"));
        }
        if previous_secrets.len() > PREVIOUS_SECRETS {
            let problem =
                format!("has {} secrets, must have at most {PREVIOUS_SECRETS}", previous_secrets.len());
            return Err(self.fail("files.previous_secrets", problem));
        }
        let numbered = previous_secrets.into_iter().enumerate();
        let previous_secrets = numbered
            .map(|(at, secret)| self.secret(&format!("files.previous_secrets[{at}]"), secret))
            .collect::<Result<Vec<_>, _>>()?;
        let url_ttl = self.time_or_never("files.url_ttl", url_ttl)?;
        if url_ttl.is_some() && url_style == UrlStyle::Hashed {
            let problem = "is set, but hashed links do not expire: it takes files.url_style = \"signed\"";
            return Err(self.fail("files.url_ttl", problem));
        }
        let secret = Some(secret).filter(|secret| !secret.expose().is_empty());
        Ok(FilesSettings { secret, previous_secrets, url_ttl, url_style, max_log })
    }
}
