//! The environment: which variable sets which key, under the names that people already use. It must never
//! print the value of a secret.

use std::collections::BTreeMap;

use toml::Value;

use super::error::{ConfigError, Origin, Warning};
use super::layers::Layers;
use super::types::LogLevel;
use super::value::{Size, TAKES_SIZE};

mod address;

pub(super) use self::address::{TAKES_ADDR, parse_addr};

/// The keys whose values are never shown.
pub(super) const SECRETS: [&str; 6] = [
    "auth.token",
    "cluster.key",
    "egress.upstream_proxy",
    "files.previous_secrets",
    "files.secret",
    "store.url",
];

/// An environment variable that sets a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The key it sets.
    pub key: &'static str,
}

/// Every variable that sets a key.
pub fn variables() -> impl Iterator<Item = Variable> {
    let rows = ROWS.iter().flat_map(|row| row.names.iter().map(|&name| Variable { name, key: row.key }));
    rows.chain(address::NAMES.map(|name| Variable { name, key: address::KEY }))
}

/// Converts a variable's text into a value of the table; the error says what it accepts.
type ParseVariable = fn(&str) -> Result<Value, &'static str>;

/// The variables of one key, the most specific first.
struct VariableRow {
    key: &'static str,
    names: &'static [&'static str],
    read: ParseVariable,
}

const ROWS: &[VariableRow] = &[
    VariableRow { key: "http.public_url", names: &["PUBLIC_BASE_URL"], read: text },
    VariableRow { key: "http.allowed_hosts", names: &["SANDBOX_ALLOWED_HOSTS"], read: list },
    VariableRow { key: "http.allow_open", names: &["SANDBOX_ALLOW_OPEN"], read: boolean },
    VariableRow { key: "auth.token", names: &["MCP_API_TOKEN", "SANDBOX_AUTH_TOKEN"], read: text },
    VariableRow { key: "store.root", names: &["SANDBOX_ROOT", "WORKSPACE_BASE_DIR"], read: text },
    VariableRow { key: "cluster.peers", names: &["SANDBOX_CLUSTER_PEERS"], read: list },
    VariableRow { key: "cluster.key", names: &["SANDBOX_CLUSTER_KEY"], read: text },
    VariableRow { key: "cluster.name", names: &["SANDBOX_CLUSTER_NAME"], read: text },
    VariableRow { key: "cluster.addr", names: &["SANDBOX_CLUSTER_ADDR"], read: text },
    VariableRow { key: "files.secret", names: &["FILE_SECRET"], read: text },
    VariableRow { key: "files.url_style", names: &["SANDBOX_URL_STYLE"], read: style },
    VariableRow { key: "engine.host", names: &["DOCKER_HOST"], read: text },
    VariableRow { key: "engine.certificates", names: &["DOCKER_CERT_PATH"], read: text },
    VariableRow { key: "engine.allow_plain", names: &["SANDBOX_ALLOW_PLAIN_ENGINE"], read: boolean },
    VariableRow { key: "limits.memory", names: &["SANDBOX_MEMORY_LIMIT"], read: size },
    VariableRow { key: "limits.cpus", names: &["SANDBOX_CPU_LIMIT"], read: number },
    VariableRow { key: "limits.output", names: &["SANDBOX_MAX_OUTPUT_BYTES"], read: size },
    VariableRow { key: "limits.code", names: &["SANDBOX_MAX_CODE_BYTES"], read: size },
    VariableRow { key: "limits.upload", names: &["SANDBOX_MAX_UPLOAD_BYTES"], read: size },
    VariableRow { key: "limits.artifact_read", names: &["SANDBOX_MAX_ARTIFACT_READ_BYTES"], read: size },
    VariableRow { key: "timeouts.run_python", names: &["SANDBOX_EXEC_TIMEOUT_S"], read: seconds },
    VariableRow { key: "timeouts.execute_code", names: &["SANDBOX_TIMEOUT"], read: seconds },
    VariableRow { key: "exec.max", names: &["SANDBOX_MAX_CONCURRENT"], read: count },
    VariableRow { key: "exec.per_session", names: &["SANDBOX_MAX_PER_SESSION"], read: count },
    VariableRow { key: "sessions.ttl", names: &["SANDBOX_SESSION_TTL_M"], read: minutes },
    VariableRow { key: "sessions.max", names: &["SANDBOX_MAX_SESSIONS"], read: count },
    VariableRow { key: "sessions.sweep", names: &["SANDBOX_CLEANUP_INTERVAL_M"], read: minutes },
    VariableRow { key: "tasks.retention", names: &["WORKSPACE_CLEANUP_AFTER_HOURS"], read: hours },
    VariableRow { key: "egress.mode", names: &["NETWORK_MODE"], read: mode },
    VariableRow { key: "tasks.agent", names: &["DEFAULT_AGENT"], read: text },
    VariableRow { key: "tasks.level", names: &["YOLO_DEFAULT_LEVEL"], read: count },
    VariableRow { key: "tasks.timeout", names: &["RESOURCE_TIMEOUT_SECONDS"], read: seconds },
    VariableRow { key: "coding_agents.memory", names: &["RESOURCE_MEMORY_GB"], read: gigabytes },
    VariableRow { key: "coding_agents.cpus", names: &["RESOURCE_CPU_CORES"], read: number },
    VariableRow { key: "coding_agents.pids", names: &["RESOURCE_MAX_PROCESSES"], read: count },
    VariableRow { key: "coding_agents.data", names: &["RESOURCE_MAX_DISK_GB"], read: gigabytes },
    VariableRow { key: "runners.python.image", names: &["SANDBOX_IMAGE"], read: text },
    VariableRow { key: "runners.claude-code.image", names: &["DOCKER_IMAGE_CLAUDE"], read: text },
    VariableRow { key: "runners.opencode.image", names: &["DOCKER_IMAGE_OPENCODE"], read: text },
    VariableRow { key: "log.level", names: &["SANDBOX_LOG_LEVEL", "LOG_LEVEL"], read: level },
    VariableRow { key: "log.format", names: &["SANDBOX_LOG_FORMAT"], read: format },
    VariableRow { key: LOG_FILE, names: &["SANDBOX_LOG_FILE"], read: text },
    VariableRow { key: "telemetry.otlp_endpoint", names: &["OTEL_EXPORTER_OTLP_ENDPOINT"], read: text },
];

/// The one key for which an empty variable has a meaning: no file.
const LOG_FILE: &str = "log.file";

/// Sets nothing; refused if it names another engine than Docker.
const ENGINE_KIND: &str = "SANDBOX_TYPE";
/// For Docker's own client any value, even 0, means TLS; another variable names the folder of certificates.
pub(super) const TLS_VERIFY: &str = "DOCKER_TLS_VERIFY";

/// Sets no key: it is for tests of MCP, and must never be in anybody's configuration.
const FIXTURES: &str = "PADDOCK_CONFORMANCE_FIXTURES";

fn text(text: &str) -> Result<Value, &'static str> {
    Ok(Value::String(text.to_owned()))
}

fn mode(text: &str) -> Result<Value, &'static str> {
    let mode = text.trim().to_ascii_lowercase();
    let is_known = ["none", "restricted", "open"].contains(&mode.as_str());
    if is_known { Ok(Value::String(mode)) } else { Err("none, restricted or open") }
}

fn size(text: &str) -> Result<Value, &'static str> {
    Size::parse(text).ok_or(TAKES_SIZE).and(Ok(Value::String(text.to_owned())))
}

/// A number of units of 2^30 bytes, in the notation of the file.
fn gigabytes(text: &str) -> Result<Value, &'static str> {
    const TAKES: &str = "a number of gigabytes such as 4";
    let number = text.trim();
    let is_number = number.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0);
    let size = format!("{number}GiB");
    (is_number && Size::parse(&size).is_some()).then_some(Value::String(size)).ok_or(TAKES)
}

fn number(text: &str) -> Result<Value, &'static str> {
    text.trim().parse().map(Value::Float).map_err(|_| "a number such as 1.5")
}

fn count(text: &str) -> Result<Value, &'static str> {
    text.trim().parse().map(|n: u32| Value::Integer(n.into())).map_err(|_| "a whole number such as 10")
}

fn seconds(text: &str) -> Result<Value, &'static str> {
    duration(text, 1.0).ok_or("a number of seconds such as 60")
}

fn minutes(text: &str) -> Result<Value, &'static str> {
    duration(text, 60.0).ok_or("a number of minutes such as 30")
}

fn hours(text: &str) -> Result<Value, &'static str> {
    duration(text, 3600.0).ok_or("a number of hours such as 24")
}

/// A number of units of this many seconds, in the notation of the file.
fn duration(text: &str, unit: f64) -> Option<Value> {
    let number: f64 = text.trim().parse().ok()?;
    let time = std::time::Duration::try_from_secs_f64(number * unit).ok()?;
    Some(Value::String(humantime::format_duration(time).to_string()))
}

/// Items separated by commas.
fn list(text: &str) -> Result<Value, &'static str> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(Value::Array(items.map(|item| Value::String(item.to_owned())).collect()))
}

fn boolean(text: &str) -> Result<Value, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Ok(Value::Boolean(true)),
        "false" | "0" | "no" => Ok(Value::Boolean(false)),
        _ => Err("true or false"),
    }
}

fn style(text: &str) -> Result<Value, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        style @ ("signed" | "hashed") => Ok(Value::String(style.to_owned())),
        _ => Err("signed or hashed"),
    }
}

fn level(text: &str) -> Result<Value, &'static str> {
    let known = text.parse::<LogLevel>().map(|_| Value::String(text.to_owned()));
    known.map_err(|()| "error, warn, info, debug or trace")
}

fn format(text: &str) -> Result<Value, &'static str> {
    match text.trim().to_ascii_lowercase().as_str() {
        format @ ("console" | "json") => Ok(Value::String(format.to_owned())),
        _ => Err("console or json"),
    }
}

/// Lays the environment over the table.
pub(super) fn apply(
    layers: &mut Layers,
    env: &BTreeMap<String, String>,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    refuse_other_engines(env)?;
    address::apply(layers, env, warnings)?;
    for row in ROWS {
        let mut taken: Option<(&'static str, Value)> = None;
        for &name in row.names {
            let Some(text) = env.get(name).filter(|text| !text.is_empty() || row.key == LOG_FILE) else {
                continue;
            };
            let value = (row.read)(text).map_err(|takes| ConfigError::Value {
                name,
                value: (!SECRETS.contains(&row.key)).then(|| text.clone()),
                takes,
            })?;
            match &taken {
                None => taken = Some((name, value)),
                Some((first, other)) if *other != value => warnings.push(disagree(first, name)),
                Some(_) => {}
            }
        }
        if let Some((name, value)) = taken {
            layers.set(row.key, value, Origin::Environment(name));
        }
    }
    warn_of_unused(env, warnings);
    Ok(())
}

fn disagree(taken: &str, other: &str) -> Warning {
    Warning(format!("{taken} and {other} are both set and disagree: {taken} is used"))
}

fn refuse_other_engines(env: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    let set = |name| env.get(name).filter(|text| !text.is_empty()).cloned();
    if let Some(kind) = set(ENGINE_KIND).filter(|kind| kind != "docker") {
        return Err(ConfigError::Value { name: ENGINE_KIND, value: Some(kind), takes: "only docker" });
    }
    Ok(())
}

/// Whether the fixtures of the MCP conformance suite are served.
pub(super) fn fixtures(
    env: &BTreeMap<String, String>,
    warnings: &mut Vec<Warning>,
) -> Result<bool, ConfigError> {
    fixtures_of_build(env, warnings, cfg!(feature = "conformance-fixtures"))
}

/// The same, of a build that has fixtures or has none.
pub(super) fn fixtures_of_build(
    env: &BTreeMap<String, String>,
    warnings: &mut Vec<Warning>,
    has_fixtures: bool,
) -> Result<bool, ConfigError> {
    let takes = match env.get(FIXTURES).map(String::as_str) {
        None | Some("" | "0") => return Ok(false),
        Some("1") if has_fixtures => {
            let what =
                "the MCP conformance suite's test tools, prompts and resources are served to everybody";
            warnings.push(Warning(format!("{FIXTURES} IS SET: {what}. This is for tests only")));
            return Ok(true);
        }
        Some("1") => "only 0: this build has no fixtures (the cargo feature conformance-fixtures adds them)",
        Some(_) => "0 or 1",
    };
    Err(ConfigError::Value { name: FIXTURES, value: env.get(FIXTURES).cloned(), takes })
}

/// Warns of a misspelt name, or of one for another system: otherwise it would silently do nothing.
fn warn_of_unused(env: &BTreeMap<String, String>, warnings: &mut Vec<Warning>) {
    let known = |name: &str| name == ENGINE_KIND || variables().any(|variable| variable.name == name);
    let set = env.iter().filter(|(_, text)| !text.is_empty()).map(|(name, _)| name);
    let unused = set.filter(|name| name.starts_with("SANDBOX_") && !known(name));
    warnings.extend(unused.map(|name| Warning(format!("{name} is set, but paddock does not use it"))));
}
