//! What the operator wants: read once, checked once, typed from then on.
//!
//! ```text
//! config.example.toml < file < environment < flags
//!          └───────── one table, each key with its origin ─────────> Raw ──check──> Config
//!                                                          (serde: shape)  (sense)
//! ```
//!
//! The example file at the top of the repository is embedded and is the only place of defaults, so `raw` has
//! none: a key that is missing there fails every test. After [`Config::load`] nothing about the settings is
//! checked again. This module must never log (logging is configured by it: what is odd comes back as a
//! [`Warning`]), never put a secret into a message, and never read the process environment by itself.

mod check;
mod env;
mod error;
mod flags;
mod layers;
mod pool;
mod raw;
#[cfg(test)]
mod tests;
mod types;
mod value;

use std::collections::BTreeMap;
use std::path::Path;

pub use self::env::{Variable, variables};
pub use self::error::{ConfigError, Origin, Warning};
pub use self::flags::Overrides;
use self::layers::Layers;
pub use self::pool::{Backoff, PoolSettings, RawPoolSettings, SettingsError};
pub use self::types::{
    Agent, Auth, Config, Engine, Files, Http, Limits, Log, LogFormat, LogLevel, Mcp, PublicUrl, Sessions,
    Shutdown, Store, Timeouts, Token, ToolSet, UrlStyle, WhenFull,
};
pub use self::value::Secret;

/// The text of `config.example.toml`: every key, its default and what it means.
pub const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config.example.toml"));

/// A configuration, and what its operator should hear once logging is up.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What to run with.
    pub config: Config,
    /// What was odd, in the order it was noticed.
    pub warnings: Vec<Warning>,
}

impl Config {
    /// Puts the layers together and checks the whole.
    ///
    /// `env` is the environment as a map, usually `std::env::vars().collect()`. Apart from it only the file
    /// is read, and the user id and current directory for [`Store::root`].
    ///
    /// # Errors When the file cannot be read or is not TOML, a key is unknown, has the wrong type or a value
    /// out of its bounds, a variable or flag cannot be understood, or the settings contradict each other.
    /// Each is one line that names the key, where its value came from, and what it takes.
    pub fn load(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        flags: &Overrides,
    ) -> Result<Loaded, ConfigError> {
        let text = file.map(|path| layers::read(path).map(|text| (path, text))).transpose()?;
        let text = text.as_ref().map(|(path, text)| (*path, text.as_str()));
        let root = rustix::process::geteuid().is_root();
        let mut loaded = Self::from_layers(text, env, flags, root)?;
        loaded.warnings.extend(file.and_then(|path| layers::exposed_secret(path, text.map_or("", |t| t.1))));
        Ok(loaded)
    }

    fn from_layers(
        file: Option<(&Path, &str)>,
        env: &BTreeMap<String, String>,
        flags: &Overrides,
        root: bool,
    ) -> Result<Loaded, ConfigError> {
        let mut warnings = Vec::new();
        let mut layers = Layers::defaults()?;
        if let Some((path, text)) = file {
            layers.overlay(path, text)?;
        }
        env::apply(&mut layers, env, &mut warnings)?;
        flags.apply(&mut layers)?;
        let raw = layers.raw()?;
        let config = check::Check::new(&layers, env, root, &mut warnings).config(raw)?;
        Ok(Loaded { config, warnings })
    }
}
