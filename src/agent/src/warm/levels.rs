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

/// A run that comes right behind the request for a warm part says which part is wanted first.
const AT_ONCE: Duration = Duration::from_millis(2);

/// One level.
pub(super) struct Level {
    pub(super) part: Rc<Warm>,
    pub(super) words: LevelWords,
}

/// Keeps all levels and the main part standing, for as long as the container lives. They are restored one
/// after the other, the lightest first: it serves within milliseconds. If a run waits for a part, this part
/// is restored next. The part whose restoring has begun goes on meanwhile.
pub(super) async fn keep_levels(warm: Rc<Warm>, spec: Rc<WarmSpec>) {
    let mut parts = warm.levels();
    parts.push(warm.clone());
    let mut pending: Vec<usize> = (0..parts.len()).collect();
    let run_comes = async {
        while warm.wanted().is_none() {
            warm.news().await;
        }
    };
    if parts.len() > 1 {
        let _ = tokio::time::timeout(AT_ONCE, run_comes).await;
    }
    while !pending.is_empty() {
        let at = pending.remove(next(&pending, warm.wanted()));
        let part = parts[at].clone();
        let spec = if Rc::ptr_eq(&part, &warm) { Some(spec.clone()) } else { part.spec() };
        let Some(spec) = spec else { continue };
        spawn_local(keep(part.clone(), spec));
        let settled = async {
            while part.stands().is_none() && part.not_restored().is_none() {
                let news = warm.news();
                if warm.wanted().is_some_and(|wanted| pending.contains(&wanted)) {
                    return;
                }
                news.await;
            }
        };
        let _ = tokio::time::timeout(ALONE, settled).await;
    }
}

/// Which of the parts that are still to be restored is next: its place among them. There is at least one.
fn next(pending: &[usize], wanted: Option<usize>) -> usize {
    pending.iter().position(|part| Some(*part) == wanted).unwrap_or(0)
}

/// What the level at this place asks for, as a specification of its own.
pub(super) fn level_spec(spec: &WarmSpec, at: usize) -> WarmSpec {
    let restore = spec.levels.get(at).map_or_else(Vec::new, |level| level.restore.clone());
    WarmSpec { argv: Vec::new(), env: spec.env.clone(), restore, levels: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_a_run_waits_for_is_next_and_otherwise_the_lightest() {
        assert_eq!(next(&[0, 1, 2], None), 0);
        assert_eq!(next(&[0, 1, 2], Some(0)), 0);
        assert_eq!(next(&[0, 1, 2], Some(2)), 2);
        assert_eq!(next(&[1, 2], Some(2)), 1);
        assert_eq!(next(&[1, 2], Some(0)), 0, "it is on its way already");
    }
}
