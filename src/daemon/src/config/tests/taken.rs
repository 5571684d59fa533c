//! The results of valid values, and the warnings about allowed but odd ones.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::super::env::fixtures_of_build;
use super::super::{Config, MountSettings, Overrides, RunnerSettings, UrlStyle, WhenFull};
use super::{TOKEN, config, error, warnings};

#[test]
fn every_notation_of_a_size_is_read() {
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
            ("WORKSPACE_CLEANUP_AFTER_HOURS", "36"),
            ("SANDBOX_SESSION_TTL_M", "1.5"),
            ("SANDBOX_MAX_SESSIONS", "4"),
            ("SANDBOX_CLEANUP_INTERVAL_M", "1"),
            ("SANDBOX_IMAGE", "python:3.13-slim"),
            ("LOG_LEVEL", "WARNING"),
            ("SANDBOX_LOG_FORMAT", "JSON"),
            ("SANDBOX_LOG_FILE", "/var/log/p.log"),
            ("SANDBOX_ALLOWED_HOSTS", "paddock.lan, host.docker.internal:8080,"),
            ("SANDBOX_URL_STYLE", "Hashed"),
        ],
    );
    assert_eq!(all.http.allowed_hosts, ["paddock.lan", "host.docker.internal:8080"]);
    assert_eq!(all.files.url_style, UrlStyle::Hashed);
    let url = all.http.public_url.as_ref().expect("it is set");
    assert_eq!((url.as_str(), url.authority()), ("https://sandbox.example.org/p", "sandbox.example.org"));
    assert_eq!(all.auth.tokens[0].name, "default");
    assert_eq!(all.store.root, Path::new("/srv/p"));
    assert_eq!(all.files.secret.expect("it is set").expose(), "a secret that is long");
    assert_eq!(all.engine.host, "tcp://127.0.0.1:2375");
    assert_eq!((all.limits.output, all.limits.code, all.limits.upload), (1000, 2000, 3000));
    assert_eq!((all.limits.artifact_read, all.timeouts.run_python.as_secs()), (4000, 90));
    assert_eq!(all.tasks.kept.map(|kept| kept.retention.as_secs()), Some(129_600));
    assert_eq!(all.sessions.retention, None, "files of sessions stay");
    assert_eq!((all.sessions.ttl.as_secs(), all.sessions.max, all.sessions.sweep.as_secs()), (90, 4, 60));
    assert_eq!(all.sessions.when_full, WhenFull::Evict);
    let python = RunnerSettings { image: Some("python:3.13-slim".to_owned()), ..RunnerSettings::default() };
    assert_eq!(all.runners, BTreeMap::from([("python".to_owned(), python)]));
    assert_eq!(all.log.file.as_deref(), Some(Path::new("/var/log/p.log")));
}

#[test]
fn a_runner_is_an_image_or_a_table_and_a_variable_changes_only_its_image() {
    let text = config("runners.sh = \"sh\"", &[]);
    assert_eq!(text.runners["sh"].image.as_deref(), Some("sh"));
    assert_eq!(config("[runners.sh]\nimage = \"sh\"", &[]).runners, text.runners);
    let both = config("[runners.python]\nmemory = \"1g\"\nidle = 4", &[("SANDBOX_IMAGE", "python:3")]);
    let python = &both.runners["python"];
    assert_eq!(
        (python.image.as_deref(), python.memory, python.idle),
        (Some("python:3"), Some(1 << 30), Some(4))
    );
    let replaced = config("runners.python = \"python:2\"", &[("SANDBOX_IMAGE", "python:3")]);
    assert_eq!(replaced.runners["python"].image.as_deref(), Some("python:3"));
}

#[test]
fn coding_agents_take_the_variables_of_their_resources_and_images() {
    let env = [
        ("RESOURCE_CPU_CORES", "1.5"),
        ("RESOURCE_MEMORY_GB", "0.5"),
        ("RESOURCE_MAX_PROCESSES", "64"),
        ("RESOURCE_MAX_DISK_GB", "11"),
        ("DOCKER_IMAGE_CLAUDE", "claude:1"),
        ("DOCKER_IMAGE_OPENCODE", "opencode:1"),
    ];
    let all = config("", &env);
    let agents = &all.coding_agents;
    assert_eq!((agents.cpus, agents.memory), (Some(1.5), Some(512 << 20)));
    assert_eq!((agents.pids, agents.data, agents.idle), (Some(64), Some(11 << 30), Some(0)));
    assert_eq!(all.runners["claude-code"].image.as_deref(), Some("claude:1"));
    assert_eq!(all.runners["opencode"].image.as_deref(), Some("opencode:1"));
    let text = "limits = { data = \"3GiB\", data_inodes = 300000 }\n\
                coding_agents = { data = \"1GiB\", data_inodes = 1000 }";
    let larger = config(text, &[]).coding_agents;
    assert_eq!((larger.data, larger.data_inodes), (Some(3 << 30), Some(300_000)), "as much as a session");
    assert_eq!(larger.stored, Some(3 << 30), "all that may be saved of a session");
}

#[test]
fn a_daemon_without_idle_containers_has_none_of_any_runner() {
    let all = config("coding_agents.idle = 1\nrunners.python.idle = 3", &[]).without_idle();
    assert_eq!((all.pool.idle_per_runner, all.coding_agents.idle), (0, Some(0)));
    assert_eq!(all.runners["python"].idle, None);
}

#[test]
fn a_variable_can_allow_open_access() {
    let open = |given: &str| config("", &[("MCP_HTTP_ADDR", ":8080"), ("SANDBOX_ALLOW_OPEN", given)]);
    for given in ["true", "1", "Yes"] {
        assert!(open(given).auth.tokens.is_empty(), "{given}");
    }
    for (given, says) in [("false", "allow_open"), ("0", "allow_open"), ("perhaps", "SANDBOX_ALLOW_OPEN")] {
        let refused = error("", &[("MCP_HTTP_ADDR", ":8080"), ("SANDBOX_ALLOW_OPEN", given)]);
        assert!(refused.contains(says), "{given}: {refused}");
    }
    let refused = error("", &[("SANDBOX_URL_STYLE", "plain")]);
    assert!(refused.contains("SANDBOX_URL_STYLE"), "{refused}");
}

#[test]
fn a_longer_time_set_by_a_variable_raises_the_maximum() {
    let times = |file: &str, env: &[(&str, &str)]| {
        let timeouts = config(file, env).timeouts;
        [timeouts.run_code, timeouts.run_python, timeouts.execute_code, timeouts.max].map(|t| t.as_secs())
    };
    assert_eq!(times("", &[]), [30, 60, 300, 1800], "the defaults");
    assert_eq!(times("", &[("SANDBOX_TIMEOUT", "3600")]), [30, 60, 3600, 3600]);
    let both = [("SANDBOX_TIMEOUT", "700"), ("SANDBOX_EXEC_TIMEOUT_S", "900")];
    assert_eq!(times("timeouts.max = \"10m\"", &both), [30, 900, 700, 900]);
    assert_eq!(times("timeouts.run_code = \"40m\"", &[("SANDBOX_TIMEOUT", "3600")])[0], 2400);
    let endless = error("", &[("SANDBOX_TIMEOUT", "99999999")]);
    assert!(endless.starts_with("timeouts.execute_code (environment SANDBOX_TIMEOUT): is "), "{endless}");
    assert!(endless.ends_with("must be 1s to 30days"), "{endless}");
}

#[test]
fn tls_to_the_engine_is_configured_as_for_dockers_own_client() {
    let folder = |file: &str, env: &[(&str, &str)]| config(file, env).engine.certificates;
    let tcp = ("DOCKER_HOST", "tcp://10.0.0.1:2376");
    assert_eq!(folder("", &[tcp, ("DOCKER_CERT_PATH", "/c")]).as_deref(), Some(Path::new("/c")));
    let home = Path::new("/home/ann/.docker");
    assert_eq!(folder("", &[tcp, ("DOCKER_TLS_VERIFY", "0")]).as_deref(), Some(home));
    let both = [tcp, ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/c"), TOKEN];
    assert_eq!((folder("", &both).as_deref(), warnings("", &both)), (Some(Path::new("/c")), vec![]));
    let plain = error("", &[tcp, TOKEN]);
    assert!(plain.contains("without TLS") && plain.contains("engine.allow_plain"), "{plain}");
    assert_eq!(folder("", &[tcp, ("SANDBOX_ALLOW_PLAIN_ENGINE", "true")]), None);
    assert_eq!(folder("", &[("DOCKER_HOST", "tcp://127.0.0.1:2375")]), None, "this machine needs no TLS");
    // With a socket there is nothing to protect, but a setting is never ignored silently.
    let verify = [("DOCKER_TLS_VERIFY", "1"), TOKEN];
    let told =
        "DOCKER_TLS_VERIFY is set but has no effect: engine.host is no tcp:// address, so it uses no TLS";
    assert_eq!((folder("", &verify), warnings("", &verify)), (None, vec![told.to_owned()]));
    let told =
        "engine.certificates is set but has no effect: engine.host is no tcp:// address, so it uses no TLS";
    assert_eq!(warnings("engine.host = \"ssh://engine\"", &[("DOCKER_CERT_PATH", "/c"), TOKEN]), [told]);
    assert_eq!(warnings("", &[("DOCKER_CERT_PATH", "/c"), TOKEN]), [told]);
}

#[test]
fn only_the_digest_of_a_token_is_kept_and_a_name_may_have_two() {
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
    let expected = "auth.tokens[0].sha256 (/etc/paddock.toml): is the digest of another token here: one \
                    token cannot have two names";
    assert_eq!(twice, expected);
}

#[test]
fn the_store_is_in_the_state_directory_of_its_user() {
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
fn a_store_that_needed_tokens_does_not_open_because_they_are_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = format!("store.root = {:?}", folder.path());
    config(&root, &[]); // it never needed one
    std::fs::write(folder.path().join("guarded"), "").expect("a mark");
    let said = error(&root, &[]);
    assert!(said.starts_with("auth.tokens_file (default): "), "{said}");
    assert!(said.contains("tokens.toml is not there any more") && said.contains("http.allow_open"), "{said}");
    config(&root, &[TOKEN]); // it has another token
    config(&format!("{root}\nhttp.allow_open = true"), &[]); // the operator wants it so
    std::fs::write(folder.path().join("tokens.toml"), "").expect("a file");
    config(&root, &[]); // its tokens are back
}

#[test]
fn an_allowed_but_odd_setting_causes_a_warning() {
    let open = "http.addr = \":8080\"\nhttp.public_url = \"http://localhost:8080\"\nhttp.allow_open = true";
    assert_eq!(
        warnings(open, &[]),
        ["there is no token: everyone who reaches 0.0.0.0:8080 can run code here"]
    );
    assert_eq!(warnings("", &[]), ["there is no token: everyone on this machine can run code here"]);
    assert_eq!(warnings("", &[TOKEN]), [""; 0]);
    let [named] = &warnings("auth.tokens_file = \"/nowhere/tokens.toml\"", &[])[..] else { panic!("one") };
    assert!(named.starts_with("auth.tokens_file is /nowhere/tokens.toml, which is not there: "), "{named}");
    let cases = [
        (
            "http.addr = \":8080\"",
            "http.public_url is not set: links to files will only work on this machine",
        ),
        (
            "engine.host = \"tcp://10.0.0.1:2375\"\nengine.allow_plain = true",
            "engine.host is reached without TLS: anyone on the network in between can become root on its \
             machine",
        ),
        (
            "http.public_url = \"http://localhost\"\nhttp.tls_certificate = \"/c\"\nhttp.tls_key = \"/k\"",
            "http.public_url is http://localhost, but the daemon speaks TLS: links need https",
        ),
        (
            "cluster.key = \"0123456789abcdef\"",
            "cluster.key is set but has no effect: cluster.peers names no peers",
        ),
        (
            "ports.addr = \":8081\"",
            "ports.public_url is not set: links to ports will only work on this machine",
        ),
        (
            "ports.public_url = \"https://ports.example.org\"",
            "ports.public_url is set but has no effect: ports.addr is not set",
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
fn fixtures_are_served_only_on_request_and_with_a_warning() {
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
fn a_build_without_fixtures_says_so_where_they_are_asked_for() {
    let asked = |text: &str| {
        let env = BTreeMap::from([("PADDOCK_CONFORMANCE_FIXTURES".to_owned(), text.to_owned())]);
        fixtures_of_build(&env, &mut Vec::new(), false).map_err(|error| error.to_string())
    };
    assert_eq!((asked("0"), asked("")), (Ok(false), Ok(false)));
    let refused = asked("1").unwrap_err();
    assert!(refused.contains("this build has no fixtures") && refused.contains("is \"1\""), "{refused}");
}

#[test]
fn a_file_with_a_secret_that_others_can_read_causes_a_warning() {
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

#[test]
fn mounts_are_read_with_what_they_are_about_and_there_are_none_by_default() {
    assert_eq!(config("", &[]).mounts, []);
    let all = config(
        "[[mounts]]\nname = \"docs\"\npath = \"/srv/docs\"\nabout = \"the handbook\"\n\
         runners = [\"python\"]\n\
         [[mounts]]\nname = \"data-2\"\npath = \"/home/ann/project\"\n",
        &[],
    )
    .mounts;
    let first = MountSettings {
        name: "docs".into(),
        path: "/srv/docs".into(),
        about: "the handbook".into(),
        runners: vec!["python".into()],
    };
    assert_eq!(all[0], first);
    assert_eq!((all[1].name.as_str(), all[1].about.as_str(), all[1].runners.len()), ("data-2", "", 0));
}

#[test]
fn a_secret_is_what_stands_in_the_file_or_variable_that_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        format!("file:{}", path.display())
    };
    let config = format!(
        "auth.token = \"{}\"\nfiles.secret = \"env:LINKS\"\nfiles.previous_secrets = [\"{}\"]\n\
         metrics.token = \"{}\"\ncluster = {{ key = \"{}\", peers = [\"a:1\"], addr = \":1\" }}\n",
        place("token", "the-token-in-a-file\n"),
        place("old", "an old secret of links"),
        place("metrics", " the-token-of-metrics \n"),
        place("key", "the key of the cluster\n"),
    );
    let all = super::config(&config, &[("LINKS", "the secret of links")]);
    let digest = |token: &str| -> [u8; 32] { Sha256::digest(token).into() };
    assert_eq!(all.auth.tokens[0].sha256, digest("the-token-in-a-file"));
    assert_eq!(all.metrics.token, Some(digest("the-token-of-metrics")));
    assert_eq!(all.files.secret.expect("it is set").expose(), "the secret of links");
    assert_eq!(all.files.previous_secrets[0].expose(), "an old secret of links");
    assert_eq!(all.cluster.expect("it is set").key.expose(), "the key of the cluster");
}
