//! S1's document, by Python's SDK: the program that it gives its readers as it stands, and each of its tools, arguments,
//! events, bounds and settings (`tests/clients/s1.py`). Before 2.0 the SDK had what that program imports; the rest runs by
//! both.

use crate::clients::{End, NEWEST, Script};
use crate::support::{Daemon, PATIENCE, Setup};

/// Python's SDK before 2.0.
const BEFORE_2: &str = "venv-1";

async fn drive(python: &str, part: &str, setup: Setup, ends: &[End]) {
    let d = setup.start().await;
    let mut script = Script::start(python, &["s1.py", part], &d, ends.len());
    let d = tokio::time::timeout(PATIENCE * 2, script.follow(d, ends)).await;
    d.expect("the client comes to its end").stop().await;
}

#[tokio::test]
async fn its_example_runs_as_it_stands() {
    drive(BEFORE_2, "example", Daemon::with().without_token(), &[]).await;
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

/// A test of each part for each SDK; how the daemon ends on the way.
macro_rules! parts {
    ($($part:ident: $($end:ident)*;)+) => {
        mod before_2 {$(
            #[tokio::test]
            async fn $part() {
                super::drive(super::BEFORE_2, stringify!($part), super::Daemon::with(), &[$(super::End::$end),*]).await;
            }
        )+}
        mod newest {$(
            #[tokio::test]
            async fn $part() {
                super::drive(super::NEWEST, stringify!($part), super::Daemon::with(), &[$(super::End::$end),*]).await;
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
