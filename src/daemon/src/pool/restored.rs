//! Containers that outlived a restart of their engine, and the engine's wrong count of their volumes' mounts.
//!
//! With live-restore, engines before 24 come back with a count of zero mounts for a running container's
//! volume. When that container ends, they lower the count all the same, to below zero; from then on they
//! regard the volume as mounted ("volume has active mounts") and refuse to remove it until their next
//! restart. Asking for a path in the container makes the engine mount and unmount its volumes once; after
//! that it no longer counts an unmount when the container ends. So the daemon asks every container for a path
//! once after a restart, before anything removes it. This must never change what is in a container.

use futures_util::{StreamExt, stream};
use paddock_proto::limits::DATA_DIR;
use tracing::{debug, info};

use super::REMOVALS;
use crate::engine::{ContainerId, Engine, EngineError};

/// Repairs the count for every container of this owner, if the engine keeps containers over its restarts.
/// Failures are only logged: a volume that cannot be removed costs a directory, until the engine's next
/// restart.
pub(super) async fn repair_mount_counts(engine: &Engine, owned: &[String; 2]) {
    match engine.info().await {
        Ok(info) if info.live_restore_enabled => {}
        Ok(_) => return,
        Err(error) => {
            return debug!(%error, "the engine did not say whether containers outlive its restarts");
        }
    }
    let containers = match engine.container_list(owned).await {
        Ok(containers) => containers,
        Err(error) => return debug!(%error, "the containers that outlived the engine cannot be listed"),
    };
    repair_all(engine, containers.into_iter().map(|container| container.id).collect()).await;
}

async fn repair_all(engine: &Engine, containers: Vec<ContainerId>) {
    let count = containers.len();
    let asked = stream::iter(containers).map(async |id| {
        if let Err(error) = engine.archive_stat(&id, DATA_DIR).await {
            debug!(container = id.short(), %error, "the mounts of a container could not be counted again");
        }
    });
    asked.buffer_unordered(REMOVALS).for_each(async |()| {}).await;
    if count > 0 {
        info!(containers = count, "the engine counts the volumes of its restored containers again");
    }
}

/// Whether the engine refuses to remove a volume as mounted although no container uses it.
pub(super) fn is_miscounted(error: &EngineError) -> bool {
    matches!(error, EngineError::Api { status, message, .. }
        if status.is_server_error() && message.contains("active mounts"))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::engine::EngineOp;

    #[test]
    fn only_the_engines_wrong_count_is_taken_for_it() {
        let error = |status, message: &str| EngineError::Api {
            op: EngineOp::VolumeRemove,
            status,
            message: message.into(),
        };
        let said = "remove paddock-x: volume has active mounts";
        assert!(is_miscounted(&error(StatusCode::INTERNAL_SERVER_ERROR, said)));
        // A container still uses it.
        assert!(!is_miscounted(&error(StatusCode::CONFLICT, "volume is in use - [0123]")));
        assert!(!is_miscounted(&error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unlinkat: device or resource busy"
        )));
    }
}
