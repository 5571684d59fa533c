//! The settings of a store of many machines: PostgreSQL and S3.
//!
//! No error shows the address of the database or a credential.

use paddock_ledger::{AWS_NAMES, LedgerConfig, ObjectsConfig};

use super::Checker;
use crate::config::error::ConfigError;
use crate::config::types::SharedStoreSettings;
use crate::config::value::Secret;

const URL: &str = "store.url";
const OBJECTS: &str = "store.objects";
const CREDENTIALS: &str = "store.credentials";

impl Checker<'_> {
    pub(super) fn shared_store(
        &self,
        url: &Secret,
        objects: &str,
        credentials: &str,
    ) -> Result<Option<SharedStoreSettings>, ConfigError> {
        let url = self.secret(URL, url.clone())?.expose().to_owned();
        match (url.is_empty(), objects.is_empty()) {
            (true, true) if credentials.is_empty() => return Ok(None),
            (true, true) => {
                return Err(self.fail(CREDENTIALS, "is set, and store.url is not: a store on disk has none"));
            }
            (true, false) => {
                return Err(self
                    .fail(URL, "is empty, while store.objects is set: a store of many machines needs both"));
            }
            (false, true) => {
                return Err(self
                    .fail(OBJECTS, "is empty, while store.url is set: a store of many machines needs both"));
            }
            (false, false) => {}
        }
        let mut options: Vec<(String, String)> = AWS_NAMES
            .iter()
            .filter_map(|name| {
                Some(((*name).to_owned(), self.env.get(*name).filter(|v| !v.is_empty())?.clone()))
            })
            .collect();
        if !credentials.is_empty() {
            for (name, value) in self.credentials(credentials)? {
                options.retain(|(held, _)| *held != name);
                options.push((name, value));
            }
        }
        let objects = ObjectsConfig { url: objects.to_owned(), options };
        LedgerConfig::check(&url, &objects).map_err(|(setting, problem)| self.fail(setting, problem))?;
        Ok(Some(SharedStoreSettings { url, objects }))
    }

    /// The lines of the file of credentials: NAME=value.
    fn credentials(&self, path: &str) -> Result<Vec<(String, String)>, ConfigError> {
        let path = self.absolute(CREDENTIALS, path)?;
        let shown = path.display();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| self.fail(CREDENTIALS, format!("names {shown}: {}", error.kind())))?;
        let lines = text
            .lines()
            .map(str::trim)
            .enumerate()
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(at, line)| {
                let (name, value) = line.split_once('=').unwrap_or((line, ""));
                let name = name.trim().trim_start_matches("export ").trim();
                if !AWS_NAMES.contains(&name) || !line.contains('=') {
                    let known = AWS_NAMES.join(", ");
                    let problem =
                        format!("names {shown}, whose line {} is none of NAME=value with {known}", at + 1);
                    return Err(self.fail(CREDENTIALS, problem));
                }
                Ok((name.to_owned(), value.trim().trim_matches('"').to_owned()))
            })
            .collect()
    }
}
