//! Defaults < file < environment < flags, and the specific name before the general one.

use super::super::{LogLevel, Overrides};
use super::{TOKEN, config, load_with, warnings};

type Env = &'static [(&'static str, &'static str)];

#[test]
fn each_layer_wins_over_the_one_before() {
    let file = "log.level = \"warn\"";
    let env = [("LOG_LEVEL", "DEBUG")];
    let flags = Overrides { log_level: Some("trace".into()), ..Overrides::default() };
    assert_eq!(config("", &[]).log.level, LogLevel::Info);
    assert_eq!(config(file, &[]).log.level, LogLevel::Warn);
    assert_eq!(config(file, &env).log.level, LogLevel::Debug);
    assert_eq!(load_with(file, &env, &flags).expect("it loads").config.log.level, LogLevel::Trace);
}

#[test]
fn the_flags_are_well_formed() {
    use clap::Args;
    Overrides::augment_args(clap::Command::new("paddock")).debug_assert();
}

#[test]
fn every_flag_sets_its_key() {
    let flags = Overrides {
        addr: Some(":81".into()),
        public_url: Some("https://sandbox.example.org/".into()),
        allow_open: true,
        store: Some("/srv/p".into()),
        engine: Some("unix:///run/other.sock".into()),
        log_level: Some("error".into()),
        log_format: Some("json".into()),
    };
    let config = load_with("", &[], &flags).expect("it loads").config;
    assert_eq!(config.http.addr.to_string(), "0.0.0.0:81");
    assert_eq!(config.http.base_url(config.http.addr), "https://sandbox.example.org");
    assert_eq!(config.store.root.to_str(), Some("/srv/p"));
    assert_eq!(config.engine.host, "unix:///run/other.sock");
    assert_eq!(config.log.level, LogLevel::Error);
}

#[test]
fn the_listening_address_may_be_given_whole_or_in_parts() {
    let file = "http.addr = \"127.0.0.9:90\"";
    let cases: &[(Env, &str)] = &[
        (&[], "127.0.0.9:90"),
        (&[("MCP_HTTP_ADDR", ":9000")], "0.0.0.0:9000"),
        (&[("MCP_HTTP_ADDR", "localhost:1")], "127.0.0.1:1"),
        (&[("MCP_HTTP_ADDR", "[::1]:2")], "[::1]:2"),
        (&[("SANDBOX_HOST", "0.0.0.0"), ("SANDBOX_PORT", "8000")], "0.0.0.0:8000"),
        (&[("SANDBOX_HOST", "::")], "[::]:90"),
        (&[("SANDBOX_PORT", "8001")], "127.0.0.9:8001"),
        (&[("SANDBOX_HTTP_PORT", "8002")], "127.0.0.9:8002"),
        (&[("SANDBOX_PORT", ""), ("SANDBOX_HTTP_PORT", "8002")], "127.0.0.9:8002"),
        (&[("SANDBOX_PORT", "8001"), ("SANDBOX_HTTP_PORT", "8002")], "127.0.0.9:8001"),
        (&[("MCP_HTTP_ADDR", "127.0.0.1:3"), ("SANDBOX_HOST", "::1"), ("SANDBOX_PORT", "4")], "127.0.0.1:3"),
    ];
    for (env, expected) in cases {
        let env = [*env, &[TOKEN]].concat();
        assert_eq!(config(file, &env).http.addr.to_string(), *expected, "{env:?}");
    }
}

#[test]
fn the_first_of_several_names_is_used_and_a_disagreement_is_reported() {
    let cases: &[(Env, &[&str])] = &[
        (
            &[("SANDBOX_LOG_LEVEL", "debug"), ("LOG_LEVEL", "info")],
            &["SANDBOX_LOG_LEVEL and LOG_LEVEL are both set and disagree: SANDBOX_LOG_LEVEL is used"],
        ),
        (&[("SANDBOX_LOG_LEVEL", "debug"), ("LOG_LEVEL", "debug")], &[]),
        (&[("SANDBOX_LOG_LEVEL", ""), ("LOG_LEVEL", "debug")], &[]),
        (
            &[("SANDBOX_AUTH_TOKEN", "fedcba9876543210")],
            &["MCP_API_TOKEN and SANDBOX_AUTH_TOKEN are both set and disagree: MCP_API_TOKEN is used"],
        ),
        (
            &[("SANDBOX_ROOT", "/a"), ("WORKSPACE_BASE_DIR", "/b")],
            &["SANDBOX_ROOT and WORKSPACE_BASE_DIR are both set and disagree: SANDBOX_ROOT is used"],
        ),
        (
            &[("SANDBOX_PORT", "1"), ("SANDBOX_HTTP_PORT", "2")],
            &["SANDBOX_PORT and SANDBOX_HTTP_PORT are both set and disagree: SANDBOX_PORT is used"],
        ),
        (
            &[("MCP_HTTP_ADDR", "127.0.0.1:3"), ("SANDBOX_HOST", "::1"), ("SANDBOX_HTTP_PORT", "4")],
            &[
                "MCP_HTTP_ADDR and SANDBOX_HOST are both set and disagree: MCP_HTTP_ADDR is used",
                "MCP_HTTP_ADDR and SANDBOX_HTTP_PORT are both set and disagree: MCP_HTTP_ADDR is used",
            ],
        ),
        (&[("SANDBOX_MEMORY_LIMITS", "1g")], &["SANDBOX_MEMORY_LIMITS is set, but paddock does not use it"]),
        (&[("DEFAULT_AGENT", "x"), ("RESOURCE_TIMEOUT_SECONDS", "60"), ("YOLO_DEFAULT_LEVEL", "1")], &[]),
    ];
    for (env, expected) in cases {
        let env = [*env, &[TOKEN]].concat();
        assert_eq!(warnings("", &env), *expected, "{env:?}");
    }
}

#[test]
fn an_empty_variable_counts_as_unset_except_for_the_log_file() {
    let file = "log.file = \"/var/log/p.log\"\nauth.token = \"0123456789abcdef\"\nlimits.pids = 9";
    let empty =
        [("SANDBOX_LOG_FILE", ""), ("MCP_API_TOKEN", ""), ("SANDBOX_MAX_SESSIONS", ""), ("SANDBOX_TYPE", "")];
    let config = config(file, &empty);
    assert_eq!((config.log.file, config.auth.tokens.len(), config.sessions.max), (None, 1, 10));
}
