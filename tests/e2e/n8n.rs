//! A real n8n, which imports the workflows of `deploy/n8n` by its command line and runs them: `make n8n`. It
//! takes 2 GB and ten minutes to install, so it is not part of the tests of every change; there,
//! `clients::n8n` runs the same workflows in a program that does what their nodes do.

use std::time::Duration;

use crate::clients::{NEWEST, Script};
use crate::support::{Daemon, Setup, within};

/// A start of n8n takes ten seconds, and there are nine.
const LONG: Duration = Duration::from_secs(900);

async fn imports_and_runs(kind: &str, setup: Setup) {
    let d = setup.set("pool.idle", 2).start().await;
    let mut script = Script::start(NEWEST, &["n8n-real.mjs", kind], &d, 0);
    within(LONG, "n8n's last workflow", script.follow(d, &[])).await.stop().await;
}

#[tokio::test]
#[ignore = "make n8n installs n8n, and runs this"]
async fn runs_the_workflows_without_a_token() {
    imports_and_runs("open", Daemon::with().without_token()).await;
}

#[tokio::test]
#[ignore = "make n8n installs n8n, and runs this"]
async fn runs_the_workflows_with_a_token() {
    imports_and_runs("token", Daemon::with()).await;
}
