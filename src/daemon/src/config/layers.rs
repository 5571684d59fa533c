//! Defaults, file, environment and flags as one table that records the origin of each value. This module
//! knows no key by name, except to keep secrets out of messages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::error::{ConfigError, Origin, Warning};
use super::raw::RawConfig;
use super::{EXAMPLE, env};

/// The merged table.
#[derive(Debug)]
pub(super) struct Layers {
    table: Table,
    /// By the path of a key, or of a table that only one layer has.
    origins: BTreeMap<String, Origin>,
    file: Option<PathBuf>,
}

impl Layers {
    pub(super) fn defaults() -> Result<Self, ConfigError> {
        let table = parse(Path::new("config.example.toml"), EXAMPLE)?;
        Ok(Self { table, origins: BTreeMap::new(), file: None })
    }

    /// Lays a file's keys over the table. Tables are merged, everything else is replaced.
    pub(super) fn overlay(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let origin = Origin::File(path.to_owned());
        let mut layer = parse(path, text)?;
        images_as_tables(&mut layer);
        merge(&mut self.table, layer, "", &origin, &mut self.origins);
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Sets one key, named by its path.
    pub(super) fn set(&mut self, key: &str, value: Value, origin: Origin) {
        let layer = key
            .rsplit('.')
            .fold(value, |value, part| Value::Table(Table::from_iter([(part.to_owned(), value)])));
        if let Value::Table(layer) = layer {
            merge(&mut self.table, layer, "", &origin, &mut self.origins);
        }
    }

    pub(super) fn text(&self, table: &str, key: &str) -> Option<&str> {
        self.table.get(table)?.get(key)?.as_str()
    }

    /// The configuration file, if there is one.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// All texts, wherever they stand, but those in these tables.
    pub(super) fn texts_outside(&self, tables: &[&str]) -> Vec<&str> {
        let mut all = Vec::new();
        let outside = self.table.iter().filter(|(name, _)| !tables.contains(&name.as_str()));
        outside.for_each(|(_, value)| texts_in(value, &mut all));
        all
    }

    /// The origin of a key's value, or of the closest table around it.
    pub(super) fn origin(&self, key: &str) -> Origin {
        let around = |given: &str| {
            key.strip_prefix(given).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let closest =
            self.origins.iter().filter(|(given, _)| around(given)).max_by_key(|(given, _)| given.len());
        closest.map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// An error about one key.
    pub(super) fn fail(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::Key { key: key.to_owned(), origin: self.origin(key), problem: problem.into() }
    }

    /// The table as typed values.
    pub(super) fn raw(&self) -> Result<RawConfig, ConfigError> {
        serde_path_to_error::deserialize(self.table.clone()).map_err(|error| {
            let key = error.path().to_string();
            let problem = self.explain(&key, error.inner().message());
            self.fail(&key, problem)
        })
    }

    /// Serde's message in the words of a configuration.
    fn explain(&self, key: &str, message: &str) -> String {
        let holds_secret =
            env::SECRETS.iter().any(|secret| secret.starts_with(key)) || key.starts_with("auth");
        if message.starts_with("unknown field") {
            let known = message.split_once("expected").map_or("", |(_, known)| known).replace("one of ", "");
            return format!("is unknown; known here:{}", known.replace('`', ""));
        }
        if holds_secret && message.starts_with("invalid type") {
            return "has the wrong type".to_owned();
        }
        let message =
            message.replace("expected u32", &format!("expected a whole number from 0 to {}", u32::MAX));
        message.replace("expected f64", "expected a number").replace("expected a sequence", "expected a list")
    }
}

/// Reads a configuration file.
pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// Warns if other users can read a file that holds a secret.
pub(super) fn exposed_secret(path: &Path, text: &str) -> Option<Warning> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let table = text.parse::<Table>().ok()?;
    let held = env::SECRETS.iter().find(|key| {
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let value = table.get(section).and_then(|section| section.get(name));
        value.is_some_and(|value| holds_something(value) && !(section == "egress" && has_no_password(value)))
    })?;
    (mode & 0o044 != 0).then(|| {
        Warning(format!("{} holds {held} and other users can read it: chmod 600 {0}", path.display()))
    })
}

/// Warns if every user can read the key of TLS. A group may, as Debian's ssl-cert does.
pub(super) fn exposed_key(path: &Path) -> Option<Warning> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        let path = path.display();
        Warning(format!("{path} is the key of http.tls_key and all users can read it: chmod o-rwx {path}"))
    })
}

fn holds_something(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty()) || value.as_array().is_some_and(|all| !all.is_empty())
}

/// Whether the URL of a proxy has no password in it, or stands elsewhere.
fn has_no_password(url: &Value) -> bool {
    url.as_str().is_some_and(|url| !url.contains('@'))
}

fn parse(path: &Path, text: &str) -> Result<Table, ConfigError> {
    text.parse::<Table>().map_err(|error| {
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError::Syntax {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
            message: error.message().replace('\n', " "),
        }
    })
}

/// `runners.NAME = "IMAGE"` is short for `runners.NAME.image = "IMAGE"`. It becomes a table before layers are
/// merged, so that a variable that names the image leaves the other keys of the runner as they are.
fn images_as_tables(layer: &mut Table) {
    let runners = layer.get_mut("runners").and_then(Value::as_table_mut);
    for (_, value) in runners.into_iter().flatten() {
        if value.is_str() {
            let image = std::mem::replace(value, Value::Boolean(false));
            *value = Value::Table(Table::from_iter([("image".to_owned(), image)]));
        }
    }
}

fn texts_in<'a>(value: &'a Value, all: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => all.push(text),
        Value::Array(values) => values.iter().for_each(|value| texts_in(value, all)),
        Value::Table(table) => table.values().for_each(|value| texts_in(value, all)),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

fn merge(
    into: &mut Table,
    layer: Table,
    prefix: &str,
    origin: &Origin,
    origins: &mut BTreeMap<String, Origin>,
) {
    for (name, value) in layer {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match (into.get_mut(&name), value) {
            (Some(Value::Table(into)), Value::Table(layer)) => merge(into, layer, &key, origin, origins),
            (_, value) => {
                origins.insert(key, origin.clone());
                into.insert(name, value);
            }
        }
    }
}
