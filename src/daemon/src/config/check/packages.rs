//! Packages beyond the images of runners.

use url::Url;

use super::{Checker, GIB, HOUR, MIB, MONTH, SECOND, TIB};
use crate::config::error::ConfigError;
use crate::config::raw::PackagesTable;
use crate::egress::Pattern;
use crate::packages::{IndexSettings, PackagesSettings};

impl Checker<'_> {
    pub(super) fn packages(&self, raw: PackagesTable) -> Result<PackagesSettings, ConfigError> {
        let PackagesTable {
            enabled,
            max_bytes,
            max_files,
            total_bytes,
            retention,
            timeout,
            fetches,
            python_index,
            npm_registry,
            hosts,
        } = raw;
        let layer_bytes = self.size("packages.max_bytes", max_bytes, MIB..=64 * GIB)?;
        let total_bytes = self.size("packages.total_bytes", total_bytes, MIB..=TIB)?;
        if total_bytes < layer_bytes {
            let problem = "is less than packages.max_bytes: it must hold at least one layer";
            return Err(self.fail("packages.total_bytes", problem));
        }
        // What a fetch may reach is judged by the same patterns as everything else; each must be one.
        let _: Vec<Pattern> = self.each("packages.hosts", &hosts)?;
        Ok(PackagesSettings {
            enabled,
            layer_bytes,
            layer_entries: self.within("packages.max_files", max_files, 100..=1_000_000)?.into(),
            total_bytes,
            retention: self.time("packages.retention", retention, SECOND..=12 * MONTH)?,
            timeout: self.time("packages.timeout", timeout, SECOND..=HOUR)?,
            fetches: usize::try_from(self.within("packages.fetches", fetches, 1..=16)?).unwrap_or(1),
            index: IndexSettings {
                python: self.index("packages.python_index", &python_index)?,
                npm: self.index("packages.npm_registry", &npm_registry)?,
                hosts,
            },
        })
    }

    /// The URL of an index. A program in the container of a fetch reads it, so it must be no secret.
    fn index(&self, key: &str, text: &str) -> Result<Option<Url>, ConfigError> {
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = || {
            // A text with a user may have a password.
            let shown = if text.contains('@') { String::new() } else { format!("is {text:?}, ") };
            let problem = format!(
                "{shown}takes an http or https URL without a user, a query or a fragment, such as \
                 \"https://pypi.lan/simple/\""
            );
            self.fail(key, problem)
        };
        let url = Url::parse(text).map_err(|_| wrong())?;
        let is_plain = matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some_and(|host| !host.is_empty())
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        if is_plain { Ok(Some(url)) } else { Err(wrong()) }
    }
}
