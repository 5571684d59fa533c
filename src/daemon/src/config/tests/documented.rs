//! The example file is the documentation: it must name every key and every variable, and every key in it must
//! have an effect.

use std::collections::BTreeSet;
use std::time::Duration;

use toml::{Table, Value};

use super::super::{EXAMPLE, KeptWorkspaces, UrlStyle, variables};
use super::{config, error, load};

/// Another valid value for every key. Each must change the resulting configuration.
const OTHER_VALUES: &[(&str, &str)] = &[
    ("http.addr", "\"127.0.0.2:81\""),
    ("http.public_url", "\"http://localhost:9\""),
    ("http.allowed_hosts", "[\"paddock.lan\"]"),
    ("http.allowed_origins", "[\"https://n8n.example.org\"]"),
    ("http.max_body", "\"97MiB\""),
    ("http.header_timeout", "\"11s\""),
    ("http.body_timeout", "\"31s\""),
    ("http.write_timeout", "\"61s\""),
    ("auth.token", "\"0123456789abcdef\""),
    ("telemetry.otlp_endpoint", "\"http://collector:4318\""),
    ("audit.file", "\"/var/log/paddock/audit.log\""),
    ("audit.rotate", "\"65MiB\""),
    ("auth.tokens_file", "\"/etc/paddock/tokens.toml\""),
    ("mcp.resume_window", "\"31s\""),
    ("mcp.toolsets", "[\"code\"]"),
    ("store.root", "\"/srv/paddock\""),
    ("store.max_bytes", "\"51GiB\""),
    ("store.max_files", "1000001"),
    ("files.secret", "\"0123456789abcdef\""),
    ("files.previous_secrets", "[\"0123456789abcdef\"]"),
    ("files.url_ttl", "\"1h\""),
    ("files.url_style", "\"hashed\""),
    ("files.max_log", "\"17MiB\""),
    ("engine.host", "\"tcp://127.0.0.1:2375\""),
    ("engine.certificates", "\"/etc/paddock/engine\""),
    ("engine.runtime", "\"runsc\""),
    ("limits.memory", "\"1GiB\""),
    ("limits.cpus", "2"),
    ("limits.pids", "129"),
    ("limits.output", "\"101KB\""),
    ("limits.shown", "\"21KB\""),
    ("limits.code", "\"101KB\""),
    ("limits.upload", "\"51MB\""),
    ("limits.artifact_read", "\"11MB\""),
    ("limits.data", "\"1GiB\""),
    ("limits.data_inodes", "16385"),
    ("limits.tmp", "\"65MiB\""),
    ("limits.shm", "\"17MiB\""),
    ("limits.open_files", "1025"),
    ("limits.file_size", "\"1GiB\""),
    ("limits.environment", "\"65KiB\""),
    ("limits.stdin", "\"2MiB\""),
    ("timeouts.run_code", "\"31s\""),
    ("timeouts.run_python", "\"61s\""),
    ("timeouts.execute_code", "\"4m\""),
    ("timeouts.max", "\"31m\""),
    ("exec.runner", "\"typescript\""),
    ("exec.max", "11"),
    ("exec.per_session", "6"),
    ("exec.keep", "\"2h\""),
    ("exec.kept", "1001"),
    ("sessions.ttl", "\"31m\""),
    ("sessions.max", "11"),
    ("sessions.sweep", "\"6m\""),
    ("sessions.when_full", "\"refuse\""),
    ("sessions.queue", "17"),
    ("sessions.retention", "\"720h\""),
    ("pool.idle", "3"),
    ("pool.idle_ttl", "\"31m\""),
    ("pool.queue", "65"),
    ("pool.wait", "\"31s\""),
    ("pool.uids", "\"30000-30999\""),
    ("pool.starting", "3"),
    ("pool.max_containers", "65"),
    ("egress.mode", "\"open\""),
    ("egress.allow", "[\"example.com:443\"]"),
    ("egress.deny", "[\"*.example.com\"]"),
    ("egress.private", "[\"10.0.0.5:5432\"]"),
    ("egress.own_addresses", "[\"198.51.100.7\"]"),
    ("egress.connections", "1025"),
    ("egress.connections_per_token", "513"),
    ("egress.connections_per_run", "65"),
    ("egress.bytes", "\"2GiB\""),
    ("egress.names", "1001"),
    ("egress.requests", "10001"),
    ("egress.connect_timeout", "\"11s\""),
    ("egress.idle_timeout", "\"6m\""),
    ("packages.enabled", "false"),
    ("packages.max_bytes", "\"513MiB\""),
    ("packages.max_files", "30001"),
    ("packages.total_bytes", "\"5GiB\""),
    ("packages.retention", "\"15d\""),
    ("packages.timeout", "\"6m\""),
    ("packages.fetches", "3"),
    ("packages.python_index", "\"https://pypi.lan/simple/\""),
    ("packages.npm_registry", "\"https://npm.lan/\""),
    ("packages.hosts", "[\"files.lan:443\"]"),
    ("ports.addr", "\"127.0.0.1:8081\""),
    ("ports.public_url", "\"https://ports.example.org\""),
    ("ports.connections", "1025"),
    ("ports.connect_timeout", "\"11s\""),
    ("ports.answer_timeout", "\"3m\""),
    ("ports.idle_timeout", "\"31m\""),
    ("egress.upstream_proxy", "\"http://proxy.lan:3128\""),
    ("egress.upstream_resolves", "true"),
    ("egress.ask", "true"),
    ("egress.prompts", "6"),
    ("egress.prompt_timeout", "\"61s\""),
    ("egress.ca_bundle", concat!("\"", env!("CARGO_MANIFEST_DIR"), "/src/egress/ca_bundle/test.pem\"")),
    ("egress.listen_ports", "[443]"),
    ("tasks.agent", "\"opencode\""),
    ("tasks.level", "2"),
    ("tasks.timeout", "\"11m\""),
    ("tasks.retention", "\"25h\""),
    ("tasks.workspaces", "17"),
    ("coding_agents.idle", "1"),
    ("coding_agents.memory", "\"5GiB\""),
    ("coding_agents.cpus", "3"),
    ("coding_agents.pids", "101"),
    ("coding_agents.data", "\"3GiB\""),
    ("coding_agents.data_inodes", "262145"),
    ("coding_agents.stored", "\"1MiB\""),
    ("coding_agents.tmp", "\"2GiB\""),
    ("coding_agents.open_files", "4097"),
    ("coding_agents.file_size", "\"2GiB\""),
    ("coding_agents.runtime", "\"runsc\""),
    ("agent.orphan_after", "\"11m\""),
    ("agent.warm_parts", "false"),
    ("agent.snapshots", "false"),
    ("agent.snapshot_age", "\"25h\""),
    ("metrics.addr", "\"127.0.0.1:9464\""),
    ("metrics.token", "\"0123456789abcdef\""),
    ("log.level", "\"debug\""),
    ("log.format", "\"json\""),
    ("log.file", "\"/var/log/paddock.log\""),
    ("shutdown.drain", "\"11s\""),
];

/// A value for every key of one runner.
const RUNNER_VALUES: [&str; 11] = [
    "image = \"python:3\"",
    "idle = 2",
    "memory = \"1GiB\"",
    "cpus = 2",
    "pids = 129",
    "data = \"1GiB\"",
    "data_inodes = 16385",
    "tmp = \"65MiB\"",
    "open_files = 1025",
    "file_size = \"1GiB\"",
    "runtime = \"runsc\"",
];

/// Keys that change no value: these turn an error into a warning, which other tests cover.
const PERMISSIONS: [&str; 2] = ["http.allow_open", "engine.allow_plain"];

/// Keys that are set together or not at all.
const TOGETHER: [&str; 2] = ["http.tls_certificate", "http.tls_key"];

/// Keys of a store of many machines: two together, and one beside them.
const SHARED_STORE: [&str; 3] = ["store.url", "store.objects", "store.credentials"];
/// Keys that make this node one of several, together.
const OF_CLUSTER: [(&str, &str); 4] = [
    ("cluster.peers", "[\"tasks.paddock:7946\"]"),
    ("cluster.key", "\"0123456789abcdef\""),
    ("cluster.name", "\"node-1\""),
    ("cluster.addr", "\":7946\""),
];

/// A key that does something only beside `audit.file`.
const OF_AUDIT: &str = "audit.required";

fn keys(table: &Table, prefix: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, value) in table {
        match value.as_table() {
            Some(table) => all.extend(keys(table, &format!("{prefix}{name}."))),
            None => all.extend([format!("{prefix}{name}")]),
        }
    }
    all
}

/// The comment lines directly above a key, or above the header of its table.
fn comments() -> Vec<(String, String)> {
    let (mut table, mut comment, mut all) = (String::new(), String::new(), Vec::new());
    for line in EXAMPLE.lines() {
        if let Some(text) = line.strip_prefix('#') {
            comment += text;
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
            all.push((table.clone(), comment.clone()));
        } else if let Some((name, _)) = line.split_once(" = ") {
            all.push((format!("{table}.{name}"), comment.clone()));
        }
        comment.clear();
    }
    all
}

#[test]
fn every_key_of_the_example_changes_what_the_daemon_sees() {
    let in_example = keys(&EXAMPLE.parse().expect("the example is TOML"), "");
    let tried: BTreeSet<String> = OTHER_VALUES
        .iter()
        .map(|(key, _)| *key)
        .chain(PERMISSIONS)
        .chain(TOGETHER)
        .chain(SHARED_STORE)
        .chain([OF_AUDIT])
        .chain(OF_CLUSTER.map(|(key, _)| key))
        .map(str::to_owned)
        .collect();
    assert_eq!(in_example, tried);
    let usual = config("", &[]);
    for (key, value) in OTHER_VALUES {
        assert_ne!(config(&format!("{key} = {value}"), &[]), usual, "{key} does nothing");
    }
    let together: Vec<_> = TOGETHER.iter().map(|key| format!("{key} = \"/{key}\"")).collect();
    assert_ne!(config(&together.join("\n"), &[]), usual, "TLS does nothing");
    for one in together {
        assert!(error(&one, &[]).contains("TLS needs both files"), "{one}");
    }
    let shared = |more: &str, env: &[(&str, &str)]| {
        let text = format!("[store]\nurl = \"postgres://h/d\"\nobjects = \"s3://b/p\"\n{more}");
        config(&text, env).store.shared
    };
    assert_ne!(shared("", &[]), None, "a store of many machines does nothing");
    assert_ne!(
        shared("", &[("AWS_ENDPOINT", "http://s3.lan")]),
        shared("", &[]),
        "AWS_ENDPOINT does nothing"
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "# S3\nAWS_ENDPOINT=http://s3.lan\n").expect("a file");
    let credentials = format!("credentials = {:?}", file.path());
    assert_eq!(shared(&credentials, &[]), shared("", &[("AWS_ENDPOINT", "http://s3.lan")]));
    let clustered = |other: &str| {
        let lines = OF_CLUSTER.map(|(key, value)| match key == other {
            true if key == "cluster.peers" => format!("{key} = [\"10.0.0.2:7946\"]"),
            true if key == "cluster.addr" => format!("{key} = \":7947\""),
            true => format!("{key} = \"another-0123456789\""),
            false => format!("{key} = {value}"),
        });
        config(&lines.join("\n"), &[])
    };
    for (key, _) in OF_CLUSTER {
        assert_ne!(clustered(key), clustered(""), "{key} does nothing");
    }
    let audited = |more: &str| config(&format!("[audit]\nfile = \"/a\"\n{more}"), &[]);
    assert_ne!(audited("required = true"), audited(""), "{OF_AUDIT} does nothing");
    assert!(error("audit.required = true", &[]).contains("there is no audit log"));
    assert_ne!(config("runners.python = \"python:3\"", &[]), usual, "runners do nothing");
    for value in RUNNER_VALUES {
        assert_ne!(
            config(&format!("runners.python.{value}"), &[]),
            config("runners.python = {}", &[]),
            "{value}"
        );
    }
    let model = "models.local = { provider = \"openai\", url = \"http://127.0.0.1:1\" }";
    assert_ne!(config(model, &[]), usual, "models do nothing");
    assert_ne!(config("egress.hosts.db = \"10.0.0.5\"", &[]), usual, "hosts do nothing");
}

#[test]
fn every_key_is_explained_and_names_its_variables_in_their_order() {
    let comments = comments();
    let explained = |key: &str| comments.iter().find(|(k, _)| k == key).map_or("", |(_, comment)| comment);
    let of_cluster = OF_CLUSTER.iter().map(|(key, _)| *key);
    for key in OTHER_VALUES.iter().map(|(key, _)| *key).chain(PERMISSIONS).chain(of_cluster) {
        assert!(explained(key).len() > 5, "{key} is not explained");
    }
    let mut seen = (String::new(), 0);
    for variable in variables() {
        // The map of runners is explained as a whole.
        let key = if variable.key.starts_with("runners.") { "runners" } else { variable.key };
        let environment = explained(key).split_once("Environment:").map_or("", |(_, names)| names);
        let at = environment.find(variable.name);
        let at = at.unwrap_or_else(|| panic!("{} is not named above {key}", variable.name));
        assert!(seen.0 != key || seen.1 < at, "{} is named out of its order", variable.name);
        seen = (key.to_owned(), at);
    }
    let others = ["ANTHROPIC_API_KEY", "SANDBOX_TYPE", "DOCKER_TLS_VERIFY", "PADDOCK_CONFORMANCE_FIXTURES"];
    for mentioned in others {
        assert!(EXAMPLE.contains(mentioned), "{mentioned} is not mentioned");
    }
}

#[test]
fn the_example_used_as_a_file_changes_nothing() {
    assert_eq!(config(EXAMPLE, &[]), config("", &[]));
}

#[test]
fn the_commented_token_is_a_good_one() {
    let mut lines = EXAMPLE.lines().skip_while(|line| *line != "# [[auth.tokens]]");
    let token: Vec<&str> = lines.by_ref().take(3).map(|line| line.trim_start_matches("# ")).collect();
    let loaded = load(&token.join("\n"), &[]).expect("the commented token loads");
    assert_eq!(loaded.config.auth.tokens[0].name, "n8n");
}

#[test]
fn the_defaults_are_the_promised_ones() {
    let defaults = config("", &[]);
    assert_eq!(defaults.http.addr.to_string(), "127.0.0.1:8080");
    assert_eq!(defaults.limits.memory, 512 << 20);
    assert_eq!(
        (defaults.limits.output, defaults.limits.code, defaults.limits.upload),
        (100_000, 100_000, 50_000_000)
    );
    assert_eq!(defaults.limits.shown, 20_000);
    assert_eq!((defaults.limits.artifact_read, defaults.store.max_bytes), (10_000_000, 50 << 30));
    assert_eq!(defaults.store.max_files, 1_000_000);
    assert_eq!((defaults.timeouts.run_code.as_secs(), defaults.timeouts.run_python.as_secs()), (30, 60));
    assert_eq!((defaults.files.url_ttl, defaults.files.url_style), (None, UrlStyle::Signed));
    assert_eq!((defaults.sessions.retention, defaults.files.previous_secrets.len()), (None, 0));
    let kept = KeptWorkspaces { retention: Duration::from_secs(24 * 3600), most: 16 };
    assert_eq!(defaults.tasks.kept, Some(kept));
    assert_eq!((defaults.limits.data, defaults.limits.data_inodes), (256 << 20, 16_384));
    assert_eq!(defaults.limits.container_memory(), (512 + 256 + 64 + 16) << 20);
    assert_eq!((defaults.sessions.max, defaults.sessions.ttl.as_secs()), (10, 30 * 60));
    assert_eq!((defaults.pool.idle_per_runner, defaults.pool.uid_range.clone()), (2, 20_000..=20_999));
    assert_eq!(defaults.store.root.to_str(), Some("/home/ann/.local/state/paddock"));
    let table: Table = EXAMPLE.parse().expect("the example is TOML");
    assert_eq!(table["pool"]["wait"], Value::String("90s".into()));
    assert_eq!((defaults.pool.queue, defaults.sessions.queue), (512, 256));
}
