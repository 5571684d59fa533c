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

/// A level has the processor for itself for this long, before the next one is restored.
const ALONE: Duration = Duration::from_millis(100);

/// One level.
pub(super) struct Level {
    pub(super) part: Rc<Warm>,
    pub(super) words: LevelWords,
}

/// Keeps all levels and the main part standing, for as long as the container lives. They are restored one
/// after the other, the lightest first: it serves within milliseconds.
pub(super) async fn keep_levels(warm: Rc<Warm>, spec: Rc<WarmSpec>) {
    for level in warm.levels() {
        let Some(spec) = level.spec() else { continue };
        spawn_local(keep(level.clone(), spec));
        let settled = async {
            while level.stands().is_none() && level.not_restored().is_none() {
                level.news().await;
            }
        };
        let _ = tokio::time::timeout(ALONE, settled).await;
    }
    keep(warm, spec).await;
}

/// What the level at this place asks for, as a specification of its own.
pub(super) fn level_spec(spec: &WarmSpec, at: usize) -> WarmSpec {
    let restore = spec.levels.get(at).map_or_else(Vec::new, |level| level.restore.clone());
    WarmSpec { argv: Vec::new(), env: spec.env.clone(), restore, levels: Vec::new() }
}
