//! What good values come out as, and what is allowed and yet told.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::{Config, Overrides, WhenFull};
use super::{TOKEN, config, error, warnings};

#[test]
fn sizes_are_read_as_they_are_written() {
    let cases = [
        ("512MiB", 512 << 20),
        ("512MB", 512_000_000),
        ("512m", 512 << 20),
        ("1g", 1 << 30),
        ("1.5 GiB", 3 << 29),
        ("536870912", 512 << 20),
        ("536870912b", 512 << 20),
    ];
    for (text, expected) in cases {
        assert_eq!(config("", &[("SANDBOX_MEMORY_LIMIT", text)]).limits.memory, expected, "{text}");
        assert_eq!(config(&format!("limits.memory = \"{text}\""), &[]).limits.memory, expected, "{text}");
    }
    assert_eq!(config("limits.memory = 536870912", &[]).limits.memory, 512 << 20);
}

#[test]
fn every_variable_reaches_its_key() {
    let all = config(
        "",
        &[
            ("PUBLIC_BASE_URL", "HTTPS://Sandbox.Example.org/p/"),
            ("SANDBOX_AUTH_TOKEN", "0123456789abcdef"),
            ("WORKSPACE_BASE_DIR", "/srv/p"),
            ("FILE_SECRET", "a secret that is long"),
            ("DOCKER_HOST", "tcp://127.0.0.1:2375"),
            ("SANDBOX_TYPE", "docker"),
            ("SANDBOX_CPU_LIMIT", "0.5"),
            ("SANDBOX_MAX_OUTPUT_BYTES", "1000"),
            ("SANDBOX_MAX_CODE_BYTES", "2000"),
            ("SANDBOX_MAX_UPLOAD_BYTES", "3000"),
            ("SANDBOX_MAX_ARTIFACT_READ_BYTES", "4000"),
            ("SANDBOX_EXEC_TIMEOUT_S", "90"),
            ("WORKSPACE_CLEANUP_AFTER_HOURS", "24"),
            ("SANDBOX_SESSION_TTL_M", "1.5"),
            ("SANDBOX_MAX_SESSIONS", "4"),
            ("SANDBOX_CLEANUP_INTERVAL_M", "1"),
            ("SANDBOX_IMAGE", "python:3.13-slim"),
            ("LOG_LEVEL", "WARNING"),
            ("SANDBOX_LOG_FORMAT", "JSON"),
            ("SANDBOX_LOG_FILE", "/var/log/p.log"),
        ],
    );
    let url = all.http.public_url.as_ref().expect("it is set");
    assert_eq!((url.as_str(), url.authority()), ("https://sandbox.example.org/p", "sandbox.example.org"));
    assert_eq!(all.auth.tokens[0].name, "default");
    assert_eq!(all.store.root, Path::new("/srv/p"));
    assert_eq!(all.files.secret.expect("it is set").expose(), "a secret that is long");
    assert_eq!(all.engine.host, "tcp://127.0.0.1:2375");
    assert_eq!((all.limits.output, all.limits.code, all.limits.upload), (1000, 2000, 3000));
    assert_eq!((all.limits.artifact_read, all.timeouts.run_python.as_secs()), (4000, 90));
    assert_eq!(all.sessions.retention.map(|time| time.as_secs()), Some(86_400));
    assert_eq!((all.sessions.ttl.as_secs(), all.sessions.max, all.sessions.sweep.as_secs()), (90, 4, 60));
    assert_eq!(all.sessions.when_full, WhenFull::Evict);
    assert_eq!(all.runners, BTreeMap::from([("python".to_owned(), "python:3.13-slim".to_owned())]));
    assert_eq!(all.log.file.as_deref(), Some(Path::new("/var/log/p.log")));
}

#[test]
fn a_time_that_a_variable_sets_may_be_longer_than_the_maximum_and_then_is_it() {
    let times = |file: &str, env: &[(&str, &str)]| {
        let timeouts = config(file, env).timeouts;
        [timeouts.run_code, timeouts.run_python, timeouts.execute_code, timeouts.max].map(|t| t.as_secs())
    };
    assert_eq!(times("", &[]), [30, 60, 300, 1800], "as long as any seed's client asks for");
    assert_eq!(times("", &[("SANDBOX_TIMEOUT", "3600")]), [30, 60, 3600, 3600]);
    let both = [("SANDBOX_TIMEOUT", "700"), ("SANDBOX_EXEC_TIMEOUT_S", "900")];
    assert_eq!(times("timeouts.max = \"10m\"", &both), [30, 900, 700, 900]);
    assert_eq!(times("timeouts.run_code = \"40m\"", &[("SANDBOX_TIMEOUT", "3600")])[0], 2400);
    let endless = error("", &[("SANDBOX_TIMEOUT", "99999999")]);
    assert!(endless.starts_with("timeouts.execute_code (environment SANDBOX_TIMEOUT): is "), "{endless}");
    assert!(endless.ends_with("must be 1s to 30days"), "{endless}");
}

#[test]
fn tls_to_the_engine_is_asked_for_as_dockers_own_client_does() {
    let folder = |file: &str, env: &[(&str, &str)]| config(file, env).engine.certificates;
    let tcp = ("DOCKER_HOST", "tcp://10.0.0.1:2376");
    assert_eq!(folder("", &[tcp, ("DOCKER_CERT_PATH", "/c")]).as_deref(), Some(Path::new("/c")));
    let home = Path::new("/home/ann/.docker");
    assert_eq!(folder("", &[tcp, ("DOCKER_TLS_VERIFY", "0")]).as_deref(), Some(home));
    let both = [tcp, ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/c"), TOKEN];
    assert_eq!((folder("", &both).as_deref(), warnings("", &both)), (Some(Path::new("/c")), vec![]));
    assert_eq!(folder("", &[tcp]), None);
    // By a socket there is nothing to protect, and nothing is ignored without a word.
    let verify = [("DOCKER_TLS_VERIFY", "1"), TOKEN];
    let told = "DOCKER_TLS_VERIFY is set and does nothing: engine.host is a Unix socket, which has no TLS";
    assert_eq!((folder("", &verify), warnings("", &verify)), (None, vec![told.to_owned()]));
    let told = "engine.certificates is set and does nothing: engine.host is a Unix socket, which has no TLS";
    assert_eq!(warnings("", &[("DOCKER_CERT_PATH", "/c"), TOKEN]), [told]);
}

#[test]
fn a_token_is_kept_as_its_digest_and_a_name_may_have_two() {
    let file = r#"
        [[auth.tokens]]
        name = "default"
        sha256 = "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08"
    "#;
    let auth = config(file, &[TOKEN]).auth;
    assert_eq!(auth.tokens.len(), 2);
    // SHA-256 of "test".
    assert_eq!(auth.tokens[1].sha256[..4], [0x9f, 0x86, 0xd0, 0x81]);

    let twice = super::error(file, &[("MCP_API_TOKEN", "test")]);
    let expected =
        "auth.tokens[0].sha256 (/etc/paddock.toml): is there already: one token cannot have two names";
    assert_eq!(twice, expected);
}

#[test]
fn the_store_lies_where_its_user_keeps_state() {
    let root = |env: &[(&str, &str)], is_root| {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let loaded = Config::from_layers(None, &env, &Overrides::default(), is_root);
        loaded.map(|loaded| loaded.config.store.root.display().to_string()).map_err(|error| error.to_string())
    };
    assert_eq!(root(&[("HOME", "/root")], true).as_deref(), Ok("/var/lib/paddock"));
    let both = [("HOME", "/home/ann"), ("XDG_STATE_HOME", "/state")];
    assert_eq!(root(&both, false).as_deref(), Ok("/state/paddock"));
    let relative = [("HOME", "/home/ann"), ("XDG_STATE_HOME", "state")];
    assert_eq!(root(&relative, false).as_deref(), Ok("/home/ann/.local/state/paddock"));
    let nowhere =
        "store.root (default): is empty, and neither XDG_STATE_HOME nor HOME is set: name a directory";
    assert_eq!(root(&[], false), Err(nowhere.to_owned()));
}

#[test]
fn what_is_allowed_but_odd_is_told() {
    let open = "http.addr = \":8080\"\nhttp.public_url = \"http://localhost:8080\"\nhttp.allow_open = true";
    assert_eq!(
        warnings(open, &[]),
        ["there is no token: everyone who reaches 0.0.0.0:8080 can run code here"]
    );
    assert_eq!(warnings("", &[]), ["there is no token: everyone on this machine can run code here"]);
    assert_eq!(warnings("", &[TOKEN]), [""; 0]);
    let cases = [
        (
            "http.addr = \":8080\"",
            "http.public_url is not set: links to files will only work on this machine",
        ),
        (
            "engine.host = \"tcp://10.0.0.1:2375\"",
            "engine.host is reached without TLS: whoever stands on the way there is root at its end",
        ),
        (
            "sessions.max = 100",
            "sessions.max is 100, but only pool.max_containers, 64, can have a container at one time",
        ),
        (
            "files.secret = \"short\"",
            "files.secret is short enough to be guessed: openssl rand -hex 32 makes a better one",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(warnings(text, &[TOKEN]), [expected]);
    }
}

#[test]
fn fixtures_are_served_only_if_asked_for_and_that_is_told() {
    let asked = |text| config("", &[TOKEN, ("PADDOCK_CONFORMANCE_FIXTURES", text)]).conformance_fixtures;
    assert_eq!((asked("1"), asked("0"), asked("")), (true, false, false));
    assert!(!config("", &[TOKEN]).conformance_fixtures);
    let told = warnings("", &[TOKEN, ("PADDOCK_CONFORMANCE_FIXTURES", "1")]);
    assert!(told.iter().any(|told| told.starts_with("PADDOCK_CONFORMANCE_FIXTURES IS SET")), "{told:?}");
    assert_eq!(
        error("", &[("PADDOCK_CONFORMANCE_FIXTURES", "yes")]),
        "PADDOCK_CONFORMANCE_FIXTURES is \"yes\": takes 0 or 1"
    );
}

#[test]
fn a_file_with_a_secret_that_others_can_read_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("paddock.toml");
    let env = BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
    let told = |text: &str, mode| {
        std::fs::write(&path, text).expect("it is written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
        let loaded = Config::load(Some(&path), &env, &Overrides::default()).expect("it loads");
        loaded.warnings.iter().filter(|warning| warning.to_string().contains("chmod 600")).count()
    };
    let secret = "files.secret = \"0123456789abcdef\"";
    assert_eq!(told("files.previous_secrets = [\"0123456789abcdef\"]", 0o644), 1);
    assert_eq!((told(secret, 0o644), told(secret, 0o640), told(secret, 0o600)), (1, 1, 0));
    assert_eq!(told("files.max_log = \"20MiB\"", 0o644), 0);
}
