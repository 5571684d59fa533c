//! Sessions that rest are evicted while calls wait for containers that a full pool cannot start.
//!
//! It must never evict a session that no waiting call needs: it evicts one, and then asks the pool again.

use std::sync::Arc;

use crate::session::gate::Gate;
use crate::session::port::ContainerPool;

/// Evicts sessions that rest for as long as the pool is starved, until the pool ends.
///
/// No wake-up is lost: both channels are marked as seen before the pool and the gate are asked. A change that
/// these answers do not include therefore comes after the mark, and ends the wait. The pool tells of every
/// change of its number. While that number is not 0, another answer of the gate takes a session that comes to
/// rest, of which the gate tells.
pub(in crate::session) async fn evict_for_pool(pool: Arc<dyn ContainerPool>, gate: Gate) {
    let (mut starved, mut rests) = (pool.starved_changes(), gate.rests());
    loop {
        starved.mark_unchanged();
        rests.mark_unchanged();
        // The containers of the session that was just evicted are included: see the port.
        if pool.starved().await > 0 && gate.evict_for_pool() {
            continue;
        }
        let changed = tokio::select! {
            changed = starved.changed() => changed,
            changed = rests.changed() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}
