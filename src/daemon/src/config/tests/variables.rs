//! The errors of variables and flags that stop the start, word for word, with the value and what it takes.

use super::super::Overrides;
use super::{error, load_with};

#[test]
fn a_bad_variable_is_named_with_its_value_and_what_it_takes() {
    let size = "takes a size such as \"512MiB\" or \"100KB\", or a number of bytes";
    let cases = [
        ("SANDBOX_MEMORY_LIMIT", "much", format!("SANDBOX_MEMORY_LIMIT is \"much\": {size}")),
        ("SANDBOX_MAX_CODE_BYTES", "-1", format!("SANDBOX_MAX_CODE_BYTES is \"-1\": {size}")),
        (
            "SANDBOX_MEMORY_LIMIT",
            "1",
            "limits.memory (environment SANDBOX_MEMORY_LIMIT): is 1 bytes, must be 16 MiB to 16 TiB".into(),
        ),
        ("SANDBOX_CPU_LIMIT", "half", "SANDBOX_CPU_LIMIT is \"half\": takes a number such as 1.5".into()),
        (
            "SANDBOX_CPU_LIMIT",
            "inf",
            "limits.cpus (environment SANDBOX_CPU_LIMIT): is inf, must be 0.01 to 1024".into(),
        ),
        (
            "SANDBOX_MAX_SESSIONS",
            "1.5",
            "SANDBOX_MAX_SESSIONS is \"1.5\": takes a whole number such as 10".into(),
        ),
        (
            "SANDBOX_MAX_SESSIONS",
            "0",
            "sessions.max (environment SANDBOX_MAX_SESSIONS): is 0, must be 1 to 100000".into(),
        ),
        (
            "SANDBOX_SESSION_TTL_M",
            "30m",
            "SANDBOX_SESSION_TTL_M is \"30m\": takes a number of minutes such as 30".into(),
        ),
        (
            "SANDBOX_SESSION_TTL_M",
            "-3",
            "SANDBOX_SESSION_TTL_M is \"-3\": takes a number of minutes such as 30".into(),
        ),
        (
            "SANDBOX_SESSION_TTL_M",
            "0",
            "sessions.ttl (environment SANDBOX_SESSION_TTL_M): is 0s, must be 1s to 30days".into(),
        ),
        (
            "SANDBOX_EXEC_TIMEOUT_S",
            "1m",
            "SANDBOX_EXEC_TIMEOUT_S is \"1m\": takes a number of seconds such as 60".into(),
        ),
        (
            "WORKSPACE_CLEANUP_AFTER_HOURS",
            "-1",
            "WORKSPACE_CLEANUP_AFTER_HOURS is \"-1\": takes a number of hours such as 24".into(),
        ),
        ("SANDBOX_LOG_FORMAT", "xml", "SANDBOX_LOG_FORMAT is \"xml\": takes console or json".into()),
        ("LOG_LEVEL", "loud", "LOG_LEVEL is \"loud\": takes error, warn, info, debug or trace".into()),
        ("SANDBOX_PORT", "70000", "SANDBOX_PORT is \"70000\": takes a port from 0 to 65535".into()),
        (
            "SANDBOX_HOST",
            "example.org",
            "SANDBOX_HOST is \"example.org\": takes an IP address or localhost".into(),
        ),
        (
            "RESOURCE_MEMORY_GB",
            "4GB",
            "RESOURCE_MEMORY_GB is \"4GB\": takes a number of gigabytes such as 4".into(),
        ),
        ("SANDBOX_TYPE", "firejail", "SANDBOX_TYPE is \"firejail\": takes only docker".into()),
        (
            "SANDBOX_IMAGE",
            "two words",
            "runners.python.image (environment SANDBOX_IMAGE): is \"two words\", takes an image such as \
             \"python:3.13-slim\""
                .into(),
        ),
    ];
    for (name, value, expected) in cases {
        assert_eq!(error("", &[(name, value)]), expected);
    }
}

#[test]
fn a_bad_flag_is_named() {
    let flags = Overrides { log_level: Some("loud".into()), ..Overrides::default() };
    let problem = load_with("", &[], &flags).expect_err("a bad level").to_string();
    assert_eq!(problem, "log.level (--log-level): is \"loud\", takes error, warn, info, debug or trace");
    let flags = Overrides { store: Some(String::new()), ..Overrides::default() };
    assert_eq!(load_with("", &[], &flags).expect_err("empty").to_string(), "--store is \"\": takes a value");
}
