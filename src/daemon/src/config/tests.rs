//! The configuration as operators see it: which layer wins, what is refused, and in which words.

mod documented;
mod folders;
mod models;
mod precedence;
mod refused;
mod taken;
mod variables;

use std::collections::BTreeMap;
use std::path::Path;

use super::{Config, ConfigError, Loaded, Overrides};

const FILE: &str = "/etc/paddock.toml";

/// Loads a file's text with an environment, as an ordinary user with a home.
fn load(text: &str, env: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    load_with(text, env, &Overrides::default())
}

fn load_with(text: &str, env: &[(&str, &str)], flags: &Overrides) -> Result<Loaded, ConfigError> {
    let mut all = BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
    all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Config::from_layers(Some((Path::new(FILE), text)), &all, flags, false)
}

fn config(text: &str, env: &[(&str, &str)]) -> Config {
    load(text, env).expect("it loads").config
}

fn warnings(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    load(text, env).expect("it loads").warnings.iter().map(ToString::to_string).collect()
}

fn error(text: &str, env: &[(&str, &str)]) -> String {
    load(text, env).expect_err(text).to_string()
}

/// A token that is long enough to cause no warning about tokens.
const TOKEN: (&str, &str) = ("MCP_API_TOKEN", "0123456789abcdef");
