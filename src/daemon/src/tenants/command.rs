//! `paddock token add | list | revoke`: writes the file of tokens, which a running daemon takes up by itself.
//!
//! A token is 32 random bytes. It is printed once, alone on standard output, and only its SHA-256 is kept: of
//! so much chance nobody can guess any, so a hash that is quick to compute gives nothing away.
//!
//! It must never print a token twice, nor write a file that a daemon would not take.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use clap::{Args, Subcommand};
use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::file;
use super::token::{KnownToken, check_name};
use crate::config::Config;
use crate::id::{hex, random_bytes};

/// What a token begins with, so that people and scanners of secrets know what they found.
const PREFIX: &str = "pdk_";

/// Digits of a hash that name a token among those of the same name.
const ID: usize = 8;

/// The command line.
#[derive(Debug, Args)]
pub struct TokenArguments {
    #[command(subcommand)]
    what: TokenCommand,
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// The directory for the files of all sessions, which has the file of tokens if no other is configured
    #[arg(long, value_name = "DIRECTORY", global = true)]
    pub store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token and print it, once. A second token of a name has the limits of the first unless it names
    /// its own: add it, move its users over, and revoke the first by its id
    Add {
        /// The name of the token, which is that of its tenant: sessions belong to it
        name: String,
        /// When the token ends: after a time ("30d") or at one ("2027-01-31T12:00:00Z")
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
        /// Its part of what all wait for, against the weights of others: 1 to 1000
        #[arg(long)]
        weight: Option<u32>,
        /// Serve it before all others, also when everything is in use
        #[arg(long)]
        operator: bool,
        /// A limit, such as runs=4, stored_bytes=1GiB or requests_per_second=10; may be given several times
        #[arg(long = "limit", value_name = "KEY=VALUE")]
        limits: Vec<String>,
    },
    /// Show all tokens: name, id, end and limits
    List,
    /// End all tokens of a name, or one: within a second its requests, streams and executions end
    Revoke {
        /// The name of the token
        name: String,
        /// The id of one token of that name, as `list` shows it
        #[arg(long)]
        id: Option<String>,
    },
}

/// Carries the command out; the text for standard output, and one for people.
///
/// # Errors
/// Why nothing was changed.
pub fn run(arguments: &TokenArguments, config: &Config) -> Result<(String, String), String> {
    let path = &config.auth.tokens_file.path;
    match &arguments.what {
        TokenCommand::Add { name, expires, weight, operator, limits } => {
            let wanted =
                Wanted { name, expires: expires.as_deref(), weight: *weight, operator: *operator, limits };
            let root = &config.store.root;
            if path.parent() == Some(root) {
                make_store(root)?;
            }
            let (token, entry) = wanted.entry(SystemTime::now())?;
            let configured = &config.auth.tokens;
            file::change(path, |tokens| wanted.add(tokens, entry, configured))?;
            let file = path.display();
            Ok((
                format!("{token}\n"),
                format!(
                    "This is the token {name:?}. It is shown this once; {file} has its SHA-256 only. A \
                     running daemon takes it within a second.\n"
                ),
            ))
        }
        TokenCommand::List => {
            let of_file = if path.exists() { file::read(path) } else { Ok(Vec::new()) };
            let of_file = of_file.map_err(|why| format!("{}: {why}", path.display()))?;
            Ok((list(&config.auth.tokens, &of_file, SystemTime::now()), String::new()))
        }
        TokenCommand::Revoke { name, id } => {
            let id = id.as_deref();
            if config.auth.tokens.iter().any(|token| token.name == *name && is_meant(&hex(&token.sha256), id))
            {
                return Err(format!(
                    "a token {name:?} stands in the configuration (auth.token, auth.tokens): take it out \
                     there and restart the daemon"
                ));
            }
            let revoked = file::change(path, |tokens| remove(tokens, name, id))?;
            let token = if revoked == 1 { "token" } else { "tokens" };
            Ok((
                String::new(),
                format!(
                    "{revoked} {token} of the name {name:?} revoked; a running daemon ends them within a \
                     second.\n"
                ),
            ))
        }
    }
}

/// Prints what a command has to say.
pub fn print(out: &str, to_people: &str) {
    let _ = std::io::stdout().write_all(out.as_bytes());
    let _ = std::io::stderr().write_all(to_people.as_bytes());
}

/// The folder of a store that no daemon has used yet, for this user alone.
fn make_store(root: &std::path::Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root);
    made.map_err(|error| format!("cannot make {}: {error}", root.display()))
}

/// A token as the command line asks for it.
struct Wanted<'a> {
    name: &'a str,
    expires: Option<&'a str>,
    weight: Option<u32>,
    operator: bool,
    limits: &'a [String],
}

impl Wanted<'_> {
    /// A new token, and its entry.
    fn entry(&self, now: SystemTime) -> Result<(String, Table), String> {
        check_name(self.name).map_err(|fault| format!("the name {}", fault.problem))?;
        let token = format!("{PREFIX}{}", BASE64_URL_SAFE_NO_PAD.encode(random_bytes::<32>()));
        let mut entry = Table::new();
        entry.insert("name".into(), self.name.into());
        entry.insert("sha256".into(), hex(&Sha256::digest(token.as_bytes())).into());
        if let Some(text) = self.expires {
            entry.insert("expires".into(), end(text, now)?.into());
        }
        if let Some(weight) = self.weight {
            entry.insert("weight".into(), i64::from(weight).into());
        }
        if self.operator {
            entry.insert("operator".into(), true.into());
        }
        if !self.limits.is_empty() {
            let limits = self.limits.iter().map(|text| limit(text)).collect::<Result<Table, _>>()?;
            entry.insert("limits".into(), Value::Table(limits));
        }
        Ok((token, entry))
    }

    /// Adds it. What it does not name is as in the last token of the name.
    fn add(
        &self,
        tokens: &mut Vec<Value>,
        mut entry: Table,
        configured: &[KnownToken],
    ) -> Result<(), String> {
        let is_same = |value: &&Value| value.get("name").and_then(Value::as_str) == Some(self.name);
        if let Some(Value::Table(before)) = tokens.iter().rfind(is_same) {
            for key in ["weight", "operator", "limits"] {
                if let (Some(value), false) = (before.get(key), entry.contains_key(key)) {
                    entry.insert(key.to_owned(), value.clone());
                }
            }
        } else if configured.iter().any(|token| token.name == self.name) && !entry.contains_key("limits") {
            return Err(format!(
                "a token {:?} stands in the configuration, whose limits this one would replace: name its \
                 limits with --limit, or choose another name",
                self.name
            ));
        }
        tokens.push(Value::Table(entry));
        Ok(())
    }
}

/// Removes the tokens of a name, or the one with this id; how many there were.
fn remove(tokens: &mut Vec<Value>, name: &str, id: Option<&str>) -> Result<usize, String> {
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let goes = |value: &Value| text(value, "name") == name && is_meant(&text(value, "sha256"), id);
    let before = tokens.len();
    if id.is_some() && tokens.iter().filter(|value| goes(value)).count() > 1 {
        return Err("this id is the beginning of several: give more of its digits".to_owned());
    }
    tokens.retain(|value| !goes(value));
    match before - tokens.len() {
        0 => {
            let with = id.map(|id| format!(" with the id {id:?}")).unwrap_or_default();
            Err(format!("there is no token {name:?}{with}: `paddock token list` shows all"))
        }
        removed => Ok(removed),
    }
}

fn is_meant(hash: &str, id: Option<&str>) -> bool {
    id.is_none_or(|id| !id.is_empty() && hash.to_ascii_lowercase().starts_with(&id.to_ascii_lowercase()))
}

/// The time at which a token ends, as the file has it.
fn end(text: &str, now: SystemTime) -> Result<String, String> {
    let at = match humantime::parse_duration(text) {
        Ok(time) => now.checked_add(time),
        Err(_) => humantime::parse_rfc3339_weak(text).ok(),
    };
    let takes =
        || format!("--expires is {text:?}, takes a time such as \"30d\", or \"2027-01-31T12:00:00Z\"");
    let at = at.ok_or_else(takes)?;
    if at <= now + Duration::from_secs(1) {
        return Err(format!("--expires is {text:?}, which is over already"));
    }
    Ok(humantime::format_rfc3339_seconds(at).to_string())
}

/// `KEY=VALUE` as an entry of `limits`; the file's own check says what a key takes.
fn limit(text: &str) -> Result<(String, Value), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("--limit is {text:?}, takes KEY=VALUE such as runs=4"))?;
    let (key, value) = (key.trim().to_owned(), value.trim());
    let value = if let Ok(whole) = value.parse::<i64>() {
        // A rate and dollars are numbers with a fraction.
        if matches!(key.as_str(), "requests_per_second" | "model_usd_per_day") {
            value.parse::<f64>().map_or(Value::Integer(whole), Value::Float)
        } else {
            Value::Integer(whole)
        }
    } else {
        value.parse::<f64>().map_or_else(|_| Value::String(value.to_owned()), Value::Float)
    };
    Ok((key, value))
}

/// All tokens as a table.
fn list(configured: &[KnownToken], of_file: &[KnownToken], now: SystemTime) -> String {
    let mut rows = vec![["NAME", "ID", "ENDS", "WEIGHT", "LIMITS"].map(str::to_owned)];
    let from = [(configured, "in the configuration"), (of_file, "")];
    for (token, from) in from.iter().flat_map(|(tokens, from)| tokens.iter().map(move |token| (token, from)))
    {
        let ends = match token.expires {
            None => "never".to_owned(),
            Some(_) if token.is_over(now) => "over".to_owned(),
            Some(at) => humantime::format_rfc3339_seconds(at).to_string(),
        };
        let id = hex(&token.sha256).chars().take(ID).collect();
        let mut limits = limits(token);
        if !from.is_empty() {
            limits.push((*from).to_owned());
        }
        rows.push([token.name.clone(), id, ends, token.terms.weight.to_string(), limits.join(" ")]);
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    rows.iter().fold(String::new(), |mut text, row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        text
    })
}

fn limits(token: &KnownToken) -> Vec<String> {
    let limits = &token.terms.limits;
    let given = [
        ("sessions", limits.sessions.map(|n| n.to_string())),
        ("executions", limits.executions.map(|n| n.to_string())),
        ("runs", limits.runs.map(|n| n.to_string())),
        ("requests_per_second", limits.requests_per_second.map(|n| n.to_string())),
        ("stored_bytes", limits.stored_bytes.map(|n| n.to_string())),
        ("stored_files", limits.stored_files.map(|n| n.to_string())),
        ("egress_bytes_per_hour", limits.egress_bytes_per_hour.map(|n| n.to_string())),
        ("model_usd_per_day", limits.model_usd_per_day.map(|n| n.to_string())),
    ];
    let operator = token.terms.is_operator.then(|| "operator".to_owned());
    let given = given.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
    operator.into_iter().chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(tokens: &mut Vec<Value>, name: &str, limits: &[&str]) -> Result<String, String> {
        let limits: Vec<String> = limits.iter().map(|text| (*text).to_owned()).collect();
        let wanted = Wanted { name, expires: Some("30d"), weight: None, operator: false, limits: &limits };
        let (token, entry) = wanted.entry(SystemTime::now())?;
        wanted.add(tokens, entry, &[]).map(|()| token)
    }

    #[test]
    fn a_token_is_random_and_only_its_hash_is_kept() {
        let mut tokens = Vec::new();
        let (one, two) =
            (add(&mut tokens, "ann", &["runs=4"]).unwrap(), add(&mut tokens, "ann", &[]).unwrap());
        assert!(one != two && one.starts_with(PREFIX) && one.len() == PREFIX.len() + 43);
        let text = toml::to_string(&Table::from_iter([("tokens".to_owned(), Value::Array(tokens))])).unwrap();
        assert!(!text.contains(&one[4..]) && text.contains(&hex(&Sha256::digest(one.as_bytes()))));
        assert_eq!(text.matches("runs = 4").count(), 2, "the second has the limits of the first: {text}");
    }

    #[test]
    fn tokens_are_revoked_by_name_or_one_by_its_id() {
        let mut tokens = Vec::new();
        let first = add(&mut tokens, "ann", &[]).unwrap();
        for name in ["ann", "bob"] {
            add(&mut tokens, name, &[]).unwrap();
        }
        let id = &hex(&Sha256::digest(first.as_bytes()))[..ID];
        assert!(remove(&mut tokens, "ann", Some("")).is_err() && remove(&mut tokens, "eve", None).is_err());
        assert!(remove(&mut tokens, "bob", Some(id)).is_err());
        assert_eq!(remove(&mut tokens, "ann", Some(id)), Ok(1));
        assert_eq!((remove(&mut tokens, "ann", None), tokens.len()), (Ok(1), 1));
    }

    #[test]
    fn limits_and_ends_are_read_as_people_write_them() {
        assert_eq!(limit("runs=4"), Ok(("runs".into(), Value::Integer(4))));
        assert_eq!(limit("requests_per_second=10"), Ok(("requests_per_second".into(), Value::Float(10.0))));
        assert_eq!(limit("stored_bytes = 1GiB"), Ok(("stored_bytes".into(), Value::String("1GiB".into()))));
        assert!(limit("runs").is_err());
        let now = humantime::parse_rfc3339("2027-01-01T00:00:00Z").unwrap();
        assert_eq!(end("2d", now).as_deref(), Ok("2027-01-03T00:00:00Z"));
        assert_eq!(end("2027-02-01T00:00:00Z", now).as_deref(), Ok("2027-02-01T00:00:00Z"));
        for wrong in ["soon", "2026-12-31T00:00:00Z", "0s"] {
            assert!(end(wrong, now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_list_shows_no_hash() {
        let mut token = KnownToken::plain("ann", [0xab; 32]);
        token.terms.limits.runs = Some(2);
        token.expires = Some(SystemTime::UNIX_EPOCH);
        let text = list(&[KnownToken::plain("default", [1; 32])], &[token], SystemTime::now());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].ends_with("in the configuration") && lines[1].contains("01010101  never"), "{text}");
        assert!(lines[2].contains("abababab  over") && lines[2].ends_with("runs=2"), "{text}");
        assert!(!text.contains("ababababab"), "{text}");
    }
}
