//! The levels of a warm part: lighter parts beside it, each with less loaded, for programs that need no more.
//!
//! Each is a part like the main one, with a job, a line and an end of its own. It is restored from the main
//! part's snapshot or it is not there: nothing imports for it. A run must never fail for a level's sake.

use std::rc::Rc;
use std::time::Duration;

use paddock_proto::message::WarmSpec;
use tokio::task::spawn_local;

use super::keep::keep;
use super::look::LevelWords;
use super::state::Warm;

/// A part has the processor for itself for this long, before the next one is restored.
const ALONE: Duration = Duration::from_millis(100);

/// So long the others wait for the first part, which serves already when it stands.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// So long the first part is then the only one, unless a run wants another: a session that is over by then
/// does not pay for parts that it never uses.
const OTHERS_AFTER: Duration = Duration::from_millis(250);

/// With so many runs a session is no short one.
const SHORT: u64 = 3;

/// A run that comes right behind the request for a warm part says which part is wanted first.
const AT_ONCE: Duration = Duration::from_millis(2);

/// One level.
pub(super) struct Level {
    pub(super) part: Rc<Warm>,
    pub(super) words: LevelWords,
}

/// Keeps all levels and the main part standing, for as long as the container lives. They are restored one
/// after the other, the lightest first: it serves within milliseconds, and the others follow after a rest. A
/// part that a run waits for is restored next, at once. The part whose restoring has begun goes on meanwhile.
pub(super) async fn keep_levels(warm: Rc<Warm>, spec: Rc<WarmSpec>) {
    let mut parts = warm.levels();
    parts.push(warm.clone());
    let mut pending: Vec<usize> = (0..parts.len()).collect();
    if parts.len() > 1 {
        let run_comes = until(&warm, || !warm.wanted().is_empty());
        let _ = tokio::time::timeout(AT_ONCE, run_comes).await;
    }
    while !pending.is_empty() {
        let at = pending.remove(wanted(&pending, &warm.wanted()).unwrap_or(0));
        let is_first = pending.len() + 1 == parts.len();
        let part = parts[at].clone();
        let spec = if Rc::ptr_eq(&part, &warm) { Some(spec.clone()) } else { part.spec() };
        let Some(spec) = spec else { continue };
        spawn_local(keep(part.clone(), spec));
        let is_wanted = || wanted(&pending, &warm.wanted()).is_some();
        let settled =
            until(&warm, || part.stands().is_some() || part.not_restored().is_some() || is_wanted());
        let _ = tokio::time::timeout(if is_first { FIRST_WITHIN } else { ALONE }, settled).await;
        // A part that code must not meet as it loads waits until no run is left: it comes before them.
        if is_first && part.stands().is_some() && !pending.is_empty() && !warm.is_wary() {
            let goes_on = until(&warm, || {
                is_wanted() || part.stands().is_none() || warm.is_wary() || warm.runs.begun() >= SHORT
            });
            let _ = tokio::time::timeout(OTHERS_AFTER, goes_on).await;
        }
    }
}

/// Waits until this is so, which only news can change.
async fn until(warm: &Warm, is_so: impl Fn() -> bool) {
    loop {
        let news = warm.news();
        if is_so() {
            return;
        }
        news.await;
    }
}

/// Which of the parts that are still to be restored the first run that waits for one of them waits for: its
/// place among them.
fn wanted(pending: &[usize], wanted: &[usize]) -> Option<usize> {
    wanted.iter().find_map(|wanted| pending.iter().position(|part| part == wanted))
}

/// What the level at this place asks for, as a specification of its own.
pub(super) fn level_spec(spec: &WarmSpec, at: usize) -> WarmSpec {
    let restore = spec.levels.get(at).map_or_else(Vec::new, |level| level.restore.clone());
    WarmSpec { argv: Vec::new(), env: spec.env.clone(), restore, levels: Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use paddock_proto::message::WarmLevel;
    use tokio::task::LocalSet;

    use super::*;
    use crate::link::Link;
    use crate::network::Network;
    use crate::reap::Reaper;
    use crate::runs::Runs;
    use crate::{sys, tree};

    #[test]
    fn the_part_that_a_run_waits_for_is_next() {
        assert_eq!(wanted(&[0, 1, 2], &[]), None);
        assert_eq!(wanted(&[0, 1, 2], &[0]), Some(0));
        assert_eq!(wanted(&[0, 1, 2], &[2, 0]), Some(2));
        assert_eq!(wanted(&[1, 2], &[0, 2]), Some(1), "0 is on its way already");
        assert_eq!(wanted(&[1, 2], &[0]), None);
    }

    /// Keeps two levels and a main part, all of them shells. Which stood, in this order, and how long the
    /// first one was the only one. If `wants` says so, a run wants the main part once the first one stands.
    async fn order(wants: bool) -> (Vec<usize>, Duration) {
        let reaper = Rc::<Reaper>::default();
        let warm = Warm::new(reaper.clone(), Rc::<Runs>::default(), Network::new(Link::new()));
        spawn_local(async move {
            loop {
                reaper.reap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let restore = ["/bin/sh", "-c", "echo ready >&3; read line <&3"].map(str::to_owned).to_vec();
        let level = WarmLevel { restore: restore.clone(), modules: Vec::new(), never: Vec::new() };
        let levels = vec![level.clone(), level];
        let spec = WarmSpec { argv: Vec::new(), env: Vec::new(), restore, levels };
        let spec = warm.set_spec(spec).expect("it is the first");
        spawn_local(keep_levels(warm.clone(), spec));
        let mut parts = warm.levels();
        parts.push(warm.clone());
        let (mut stood, mut first, mut alone) = (Vec::new(), None, Duration::ZERO);
        while stood.len() < parts.len() {
            let news = warm.news();
            let new = |at: &usize| parts[*at].stands().is_some();
            let Some(at) = (0..parts.len()).filter(|at| !stood.contains(at)).find(new) else {
                news.await;
                continue;
            };
            stood.push(at);
            if let Some(first) = first.replace(Instant::now()).filter(|_| stood.len() == 2) {
                alone = first.elapsed();
            }
            if wants && stood.len() == 1 {
                warm.want(2);
            }
        }
        tree::kill(&tree::descendants(std::process::id().cast_signed()));
        (stood, alone)
    }

    /// Whether the parts once stand as they should: on a machine under load even a shell needs a while.
    fn once(wants: bool, should: fn(&[usize], Duration) -> bool) -> bool {
        let stand = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            LocalSet::new().block_on(&runtime, async {
                let (stood, alone) = order(wants).await;
                should(&stood, alone)
            })
        };
        (0..10).any(|_| sys::in_a_child(stand))
    }

    #[test]
    fn the_first_part_is_the_only_one_for_a_while_unless_a_run_wants_another() {
        assert!(once(false, |stood, alone| stood == [0, 1, 2] && alone >= OTHERS_AFTER));
        assert!(once(true, |stood, alone| stood == [0, 2, 1] && alone < OTHERS_AFTER));
    }
}
