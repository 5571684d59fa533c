//! Containers that outlived a restart of their engine, and what the engine then gets wrong about their volumes.
//!
//! With live-restore, engines before 24 come back with no mount counted for a running container's volume. When that
//! container ends they count one mount less all the same, below zero, take the volume for mounted from then on ("volume
//! has active mounts"), and refuse to remove it until their next restart. Asking for a path in the container mounts and
//! unmounts its volumes once, after which the engine no longer counts an unmount at the container's end. So every
//! container is asked once after a restart, before anything removes it. This must never change what is in a container.

use futures_util::{StreamExt, stream};
use paddock_proto::limits::DATA_DIR;
use tracing::{debug, info};

use super::REMOVALS;
use crate::engine::{ContainerId, Engine, EngineError};

/// Asks every container of this owner, if the engine keeps containers over its restarts. What fails is left: a volume
/// that cannot be removed costs a directory, and goes after the engine's next restart.
pub(super) async fn remind(engine: &Engine, owned: &[String; 2]) {
    match engine.info().await {
        Ok(info) if info.live_restore_enabled => {}
        Ok(_) => return,
        Err(error) => return debug!(%error, "it is not known whether containers outlive the engine"),
    }
    let containers = match engine.container_list(owned).await {
        Ok(containers) => containers,
        Err(error) => return debug!(%error, "the containers that outlived the engine cannot be listed"),
    };
    remind_all(engine, containers.into_iter().map(|container| container.id).collect()).await;
}

async fn remind_all(engine: &Engine, containers: Vec<ContainerId>) {
    let count = containers.len();
    let asked = stream::iter(containers).map(async |id| {
        if let Err(error) = engine.archive_stat(&id, DATA_DIR).await {
            debug!(container = id.short(), %error, "a container was not reminded of its volume");
        }
    });
    asked.buffer_unordered(REMOVALS).for_each(async |()| {}).await;
    if count > 0 {
        info!(containers = count, "the engine counts the volumes of its restored containers again");
    }
}

/// Whether the engine takes the volume for mounted though no container has it any more.
pub(super) fn is_miscounted(error: &EngineError) -> bool {
    matches!(error, EngineError::Api { status, message, .. }
        if status.is_server_error() && message.contains("active mounts"))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::engine::Op;

    #[test]
    fn only_the_engines_own_mistake_is_taken_for_it() {
        let error = |status, message: &str| EngineError::Api {
            op: Op::VolumeRemove,
            status,
            message: message.into(),
        };
        let said = "remove paddock-x: volume has active mounts";
        assert!(is_miscounted(&error(StatusCode::INTERNAL_SERVER_ERROR, said)));
        // A container has it still.
        assert!(!is_miscounted(&error(StatusCode::CONFLICT, "volume is in use - [0123]")));
        assert!(!is_miscounted(&error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "unlinkat: device or resource busy"
        )));
    }
}
