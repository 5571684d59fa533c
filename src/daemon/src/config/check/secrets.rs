//! Secrets of the configuration: the value itself, or where it stands. The secrets of Docker Swarm and of
//! Kubernetes are files.
//!
//! No error may show a secret. The words `file:PATH` themselves must never become the secret: everybody who
//! reads the configuration knows them.

use super::super::error::ConfigError;
use super::super::value::Secret;
use super::Checker;

impl Checker<'_> {
    /// The secret that this key has, or that it names by `env:NAME` or `file:PATH`; white space around the
    /// text of a file is no part of it.
    pub(super) fn secret(&self, key: &str, given: Secret) -> Result<Secret, ConfigError> {
        if let Some(name) = given.expose().strip_prefix("env:") {
            let found = self.env.get(name).filter(|value| !value.is_empty());
            let missing = || self.fail(key, format!("names {name:?}, a variable that is not set"));
            return found.map(|value| Secret::of(value)).ok_or_else(missing);
        }
        let Some(path) = given.expose().strip_prefix("file:") else { return Ok(given) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| self.fail(key, format!("names the file {path:?}: {}", error.kind())))?;
        match text.trim() {
            "" => Err(self.fail(key, format!("names the file {path:?}, which is empty"))),
            text => Ok(Secret::of(text)),
        }
    }
}
