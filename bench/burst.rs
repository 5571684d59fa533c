//! A hundred new sessions at once, as public benchmarks of sandboxes measure the time to interactive: from
//! the request for a sandbox to the first output of a program in it. With a container standing ready for
//! each, with the defaults, and with none ready.
//!
//! It must never leave out a session that failed: the share of answered sessions is a share of all hundred.

use std::time::Duration;

use futures_util::future::join_all;

use crate::Result;
use crate::client::Client;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "A burst of new sessions, to first output";
const SESSIONS: &str = "PADDOCK_BENCH_BURST";
const DEFAULT_SESSIONS: usize = 100;

/// Which containers stand ready when the burst comes.
#[derive(Clone, Copy)]
enum Ready {
    OneEach,
    /// As many as by default, and no more conversations with containers than by default.
    ByDefault,
    None,
}

const CASES: [(Ready, &str, &str); 3] = [
    (Ready::OneEach, "burst-ready", "paddock, a container ready for each"),
    (Ready::ByDefault, "burst-default", "paddock, as set up by default"),
    (Ready::None, "burst-none", "paddock, no container ready"),
];

impl Ready {
    fn config(self, sessions: usize) -> String {
        // Containers that are being removed count as well.
        let most = 2 * sessions + 20;
        let python = |idle| {
            format!(
                "sessions.max = {sessions}\n\
                 pool = {{ idle = 0, max_containers = {most}, uids = \"35000-35999\" }}\n\
                 runners.python = {{ image = \"paddock-runner-python\", idle = {idle} }}\n"
            )
        };
        let rest = match self {
            Self::OneEach => python(sessions),
            Self::ByDefault => {
                "pool.uids = \"35000-35999\"\nrunners.python = \"paddock-runner-python\"\n".to_owned()
            }
            Self::None => python(0),
        };
        format!("http.addr = \"127.0.0.1:0\"\n{rest}")
    }
}

/// The fact of a case: the share of the sessions that were answered.
pub(crate) fn answered(name: &str) -> String {
    format!("{name}: answered")
}

/// The names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CASES.into_iter().map(|(_, _, name)| name)
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let sessions = crate::number(SESSIONS, DEFAULT_SESSIONS)?;
    for (ready, folder, name) in CASES {
        let (daemon, client) = setup.other(folder, &ready.config(sessions)).await?;
        let idle = match ready {
            Ready::OneEach => u32::try_from(sessions)?,
            Ready::ByDefault => 2,
            Ready::None => 0,
        };
        daemon.wait_for_many(PYTHON.language, idle).await?;
        let mut clients = Vec::new();
        for _ in 0..sessions {
            clients.push(client.another().await?);
        }
        let each = clients.iter_mut().enumerate().map(|(n, client)| one(client, n));
        let (mut times, mut good) = (Times::default(), 0.0);
        for taken in join_all(each).await {
            match taken {
                Ok(taken) => {
                    good += 1.0;
                    times.record(taken)?;
                }
                Err(error) => crate::table::say(&format!("{name}: {error}")),
            }
        }
        drop(clients);
        let all = f64::from(u32::try_from(sessions)?);
        let block = report.block(TITLE);
        block.line(name, times, None);
        block.fact(answered(name), good / all * 100.0, "%");
        setup.end(folder).await?;
    }
    Ok(())
}

async fn one(client: &mut Client, number: usize) -> Result<Duration> {
    let session = format!("bench-burst-{number}");
    Ok(client.run(PYTHON.language, &session, PYTHON.code, PYTHON.prints).await?.1)
}
