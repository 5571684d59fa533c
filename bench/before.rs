//! Eight sessions back to back, and one, of this build and of an earlier one in turns. Only such a pair of
//! figures says how much faster a build is.
//!
//! `PADDOCK_BENCH_BEFORE` is the program of that build; without it the block has only the rows of this build.
//! Both builds use the same images, unless `PADDOCK_BENCH_BEFORE_PYTHON` names another one for the older
//! build. It must never compare two sittings.

use crate::Result;
use crate::concurrency::{SLICE, SLICES, end, open_sessions, ours};
use crate::load::Load;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;

pub(crate) const TITLE: &str = "8 sessions, beside an earlier build";
pub(crate) const BEFORE: &str = "the earlier build, 8 sessions";
const BEFORE_ALONE: &str = "the earlier build, 1 session";
pub(crate) const SESSIONS: usize = 8;

const PROGRAM: &str = "PADDOCK_BENCH_BEFORE";
const IMAGE: &str = "PADDOCK_BENCH_BEFORE_PYTHON";
const NAME: &str = "before";

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let mut callers = Vec::new();
    open_sessions(setup.client()?, &mut callers, SESSIONS, PYTHON).await?;
    setup.ours()?.0.wait_for_warm().await?;
    let (mut now, mut before) = (Load::default(), Load::default());
    let mut old_callers = Vec::new();
    if let Some(program) = std::env::var_os(PROGRAM) {
        let image = std::env::var(IMAGE).unwrap_or_else(|_| "paddock-runner-python".to_owned());
        let config = format!(
            "http.addr = \"127.0.0.1:0\"\nsessions.max = 20\n\
             pool = {{ idle = 0, uids = \"37000-37999\" }}\nrunners.python = \"{image}\"\n"
        );
        let (daemon, client) = setup.build(program.as_ref(), NAME, &config).await?;
        open_sessions(client, &mut old_callers, SESSIONS, PYTHON).await?;
        daemon.wait_for_warm().await?;
    }
    for _ in 0..2 * SLICES {
        if !old_callers.is_empty() {
            before.closed(&mut old_callers, SLICE).await?;
        }
        now.closed(&mut callers, SLICE).await?;
    }
    let (mut alone, mut before_alone) = (Load::default(), Load::default());
    for _ in 0..2 * SLICES {
        if let Some(one) = old_callers.get_mut(..1) {
            before_alone.closed(one, SLICE).await?;
        }
        alone.closed(&mut callers[..1], SLICE).await?;
    }
    let block = report.block(TITLE);
    let rows = [
        (BEFORE.to_owned(), before),
        (ours(SESSIONS), now),
        (BEFORE_ALONE.to_owned(), before_alone),
        (ours(1), alone),
    ];
    let has_before = !old_callers.is_empty();
    for (name, load) in rows.into_iter().filter(|(name, _)| has_before || !name.starts_with("the earlier")) {
        let rate = load.per_second();
        block.line(name, load.times, Some(rate));
    }
    end(callers).await?;
    if !old_callers.is_empty() {
        end(old_callers).await?;
        setup.end(NAME).await?;
    }
    Ok(())
}
