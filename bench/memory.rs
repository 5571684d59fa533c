//! The memory of containers that nobody uses: those of the default set-up before the first call, and what a
//! conversation adds after its first run.
//!
//! Anonymous memory is what a container takes from the machine whatever its neighbours do. Memory of tmpfs
//! and of the kernel, and pages of files, are figures of their own. It must never be read while a warm part
//! loads.

use std::collections::BTreeMap;
use std::time::Duration;

use paddock::engine::Engine;

use crate::Result;
use crate::cgroup::{self, Memory};
use crate::host::status;
use crate::programs::{PYTHON, SH, TYPESCRIPT};
use crate::report::Measurements;
use crate::setup::Setup;

pub(crate) const TITLE: &str = "Memory, nobody calling";
pub(crate) const ALL: &str = "the default set-up, anonymous";

/// The default set-up: nothing is configured but what keeps the daemon apart from others.
const CONFIG: &str = r#"
http.addr = "127.0.0.1:0"
pool = { uids = "33000-33999" }
runners = { python = "paddock-runner-python", typescript = "paddock-runner-typescript", sh = "paddock-example-sh" }
"#;

const NAME: &str = "memory";
/// The label that says the language of a container.
const RUNNER: &str = "paddock.runner";
/// Idle containers of each language by default.
const IDLE: u32 = 2;
/// Conversations of each language that run once; with three languages fewer than may hold containers.
const CONVERSATIONS: u32 = 2;
/// For what a warm part does after it has said that it is ready, and for memory of a run that is still freed.
const SETTLE: Duration = Duration::from_secs(2);
const MIB: f64 = 1_048_576.0;

/// The fact of a language.
pub(crate) fn idle(language: &str) -> String {
    format!("an idle container of {language}, anonymous")
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let engine = setup.engine.clone();
    let (daemon, client) = setup.other(NAME, CONFIG).await?;
    let programs = [PYTHON, TYPESCRIPT, SH];
    for program in programs {
        daemon.wait_for_armed(program.language, IDLE).await?;
    }
    daemon.wait_for_warm().await?;
    tokio::time::sleep(SETTLE).await;
    let before = standing(&engine, &daemon.label).await?;
    let all = before.values().flatten().copied();
    let (count, sum): (usize, Memory) = (all.clone().count(), all.sum());
    let block = report.block(TITLE);
    block.fact(ALL, sum.anonymous / MIB, "MiB");
    block.fact("its containers", f64::from(u32::try_from(count)?), "");
    others(block, "the default set-up", sum);
    block.fact("the default set-up, the daemon resident", status(daemon.pid, "VmRSS")? / 1024.0, "MiB");
    for (language, all) in &before {
        let middle = median(all);
        block.fact(idle(language), middle.anonymous / MIB, "MiB");
        others(block, &format!("an idle container of {language}"), middle);
    }

    for program in programs {
        let armed = daemon.armed(program.language);
        for number in 0..CONVERSATIONS {
            let session = format!("bench-memory-{}-{number}", program.name);
            client.run(program.language, &session, program.code, program.prints).await?;
        }
        daemon.wait_for_armed(program.language, armed + CONVERSATIONS).await?;
    }
    daemon.wait_for_warm().await?;
    tokio::time::sleep(SETTLE).await;
    let after = standing(&engine, &daemon.label).await?;
    let block = report.block(TITLE);
    for (language, all) in &after {
        let sum = |all: &[Memory]| all.iter().copied().sum::<Memory>().anonymous;
        let more = sum(all) - before.get(language).map_or(0.0, |all| sum(all));
        let name = format!("a conversation of {language} after a run, anonymous");
        block.fact(name, more / f64::from(CONVERSATIONS) / MIB, "MiB");
    }
    setup.end(NAME).await
}

fn others(block: &mut crate::report::Block, whose: &str, of: Memory) {
    let parts = [
        ("in swap", of.swap),
        ("tmpfs", of.tmpfs),
        ("of the kernel", of.kernel),
        ("pages of files, shared", of.cache),
    ];
    for (what, bytes) in parts {
        block.fact(format!("{whose}, {what}"), bytes / MIB, "MiB");
    }
}

/// The memory of all containers of a daemon, by language.
async fn standing(engine: &Engine, label: &str) -> Result<BTreeMap<String, Vec<Memory>>> {
    let listed = engine.container_list(&[label.to_owned()]).await?;
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for group in cgroup::of_label(engine, label).await? {
        let container = listed.iter().find(|container| container.id == *group.id());
        let language = container.and_then(|container| container.labels.get(RUNNER));
        all.entry(language.cloned().unwrap_or_default()).or_default().push(group.memory()?);
    }
    Ok(all)
}

/// The container in the middle, by its anonymous memory.
fn median(all: &[Memory]) -> Memory {
    let mut all = all.to_vec();
    all.sort_by(|a, b| a.anonymous.total_cmp(&b.anonymous));
    all.get(all.len() / 2).copied().unwrap_or_default()
}
