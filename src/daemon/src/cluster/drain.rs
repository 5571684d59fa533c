//! A node that drains gives its sessions to other nodes, one after another, while it still serves them.
//!
//! ```text
//!  owned ─► is a call in it? ─ yes ─► try again in a second
//!                └ no ─► end its containers ─► keep calls out ─► give it to the node where it fits best
//! ```
//!
//! It must never give a session away before its containers have ended: the session would run at two nodes.
//! A call that begins between the first two steps is cancelled, and what it did is saved.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::owners::SessionKey;
use super::{Cluster, ClusterFault};
use crate::session::{Sessions, TurnKind};

/// How often a node looks whether it can give away what it still has.
const AGAIN: Duration = Duration::from_secs(1);

/// Hands sessions over for as long as this node drains and has any.
pub(crate) async fn hand_over(cluster: Arc<Cluster>, sessions: Arc<Sessions>, stopping: CancellationToken) {
    while cluster.is_draining() {
        match hand_over_once(&cluster, &sessions).await {
            Ok(0) => {
                info!("every session was handed over");
                return;
            }
            Ok(_) => {}
            Err(fault) => warn!(%fault, "sessions cannot be handed over now"),
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = stopping.cancelled() => return,
        }
    }
}

/// Gives every session away that no call is in; returns how many stay. Its containers end first, so that it
/// never runs at two nodes, and no call can be in it while it is given.
async fn hand_over_once(cluster: &Cluster, sessions: &Sessions) -> Result<usize, ClusterFault> {
    let mut stay = 0;
    for key in cluster.owned().await? {
        if !cluster.is_draining() {
            return Ok(1); // no more is given
        }
        match hand_over_one(cluster, sessions, &key).await {
            Some(Ok(to)) => info!(session_id = %key.session, to, "a session was handed over"),
            Some(Err(fault)) => {
                warn!(%fault, session_id = %key.session, "a session cannot be handed over now");
                stay += 1;
            }
            None => stay += 1,
        }
    }
    Ok(stay)
}

/// Gives one session away; `None` if it is in use.
async fn hand_over_one(
    cluster: &Cluster,
    sessions: &Sessions,
    key: &SessionKey,
) -> Option<Result<String, ClusterFault>> {
    let alone = || sessions.try_enter(&key.tenant, &key.session, TurnKind::Whole);
    drop(alone().await.ok()?);
    if let Err(error) = sessions.close(&key.tenant, &key.session, false).await {
        debug!(%error, session_id = %key.session, "the containers of a session stay");
        return None;
    }
    let _turn = alone().await.ok()?;
    Some(cluster.give_away(key).await)
}
