//! S1's document with Python's SDK: its example program exactly as it is, and each of its tools, arguments,
//! events, limits and settings (`tests/clients/s1.py`). Only SDKs before 2.0 have what that program imports;
//! the rest runs with both versions.

use crate::clients::{End, NEWEST, Script};
use crate::support::{Daemon, PATIENCE, Setup};
use crate::upstream_proxy::{behind, proxy};

/// Python's SDK before 2.0.
const BEFORE_2: &str = "venv-1";

async fn drive(python: &str, part: &str, setup: Setup, ends: &[End]) {
    let d = setup.start().await;
    let mut script = Script::start(python, &["s1.py", part], &d, ends.len());
    let d = tokio::time::timeout(PATIENCE * 2, script.follow(d, ends)).await;
    d.expect("the client comes to its end").stop().await;
}

#[tokio::test]
async fn its_example_runs_unchanged() {
    drive(BEFORE_2, "example", Daemon::with().without_token(), &[]).await;
}

#[tokio::test]
async fn its_lists_of_hosts_are_held() {
    for python in [BEFORE_2, NEWEST] {
        let (proxy, asked) = proxy("200 Connection established").await;
        let setup = behind(&proxy).set("egress.upstream_resolves", true);
        drive(python, "network", setup, &[]).await;
        assert_eq!(proxy.connections(), 6, "{:?}", asked.lock().expect("no panic"));
    }
}

#[tokio::test]
async fn its_variables_set_what_they_say() {
    let setup = Daemon::with().args([]).without_token();
    let variables = [
        ("SANDBOX_HOST", "127.0.0.1"),
        ("SANDBOX_PORT", "0"),
        ("SANDBOX_MAX_CONCURRENT", "3"),
        ("SANDBOX_MAX_PER_SESSION", "2"),
        ("SANDBOX_TIMEOUT", "2"),
        ("SANDBOX_AUTH_TOKEN", crate::support::TOKEN),
        ("SANDBOX_LOG_FILE", ""),
    ];
    let setup = variables.into_iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    drive(NEWEST, "settings", setup, &[]).await;
}

/// A test of each part for each SDK, with the ways in which the daemon ends during it.
macro_rules! parts {
    ($($part:ident: $($end:ident)*;)+) => {
        mod before_2 {$(
            #[tokio::test]
            async fn $part() {
                let ends: &[super::End] = &[$(super::End::$end),*];
                super::drive(super::BEFORE_2, stringify!($part), super::Daemon::with(), ends).await;
            }
        )+}
        mod newest {$(
            #[tokio::test]
            async fn $part() {
                let ends: &[super::End] = &[$(super::End::$end),*];
                super::drive(super::NEWEST, stringify!($part), super::Daemon::with(), ends).await;
            }
        )+}
    };
}

parts! {
    tools:;
    events:;
    limits:;
    files:;
    live:;
    sessions:;
    restart: Killed Bereft;
}
