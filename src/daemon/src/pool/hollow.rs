//! Volumes whose removal the end of their engine broke off.
//!
//! To remove a volume, the engine removes the folder with its content and then what it knows of it. One that
//! is killed in between keeps the volume, and refuses from then on to remove it, also after a restart: before
//! that it unmounts the folder, and there is none (seen with Docker 20.10). For a container that binds a
//! folder of the host the engine makes the folder if it is missing. So the daemon asks for a path in such a
//! container, as it does elsewhere ([`super::restored`]), and removes the volume again.
//!
//! It must never start that container, nor bind anything but the folder of a volume that is to be removed.

use paddock_proto::limits::DATA_DIR;
use tracing::info;

use super::container::gone;
use super::runner;
use crate::engine::{ContainerSpec, Engine, EngineError, HostConfig, VolumeName};

/// Removes a volume, also one whose removal was broken off before.
///
/// # Errors
/// The engine's: the volume may then still be there.
pub(super) async fn remove_volume(engine: &Engine, name: &VolumeName) -> Result<(), EngineError> {
    match gone(engine.volume_remove(name).await) {
        Err(error) if is_hollow(&error) => {
            if !make_folder(engine, name).await? {
                return Err(error);
            }
            info!(%name, "the engine has the folder of a volume again, whose removal it did not end");
            gone(engine.volume_remove(name).await)
        }
        done => done,
    }
}

/// Whether the engine refuses to remove a volume because the volume's folder is missing.
fn is_hollow(error: &EngineError) -> bool {
    let says =
        |message: &str| ["umount", "no such file or directory"].iter().all(|word| message.contains(word));
    matches!(error, EngineError::Api { status, message, .. } if status.is_server_error() && says(message))
}

/// Has the engine make the folder of a volume; false if it has no image of a runner for a container.
async fn make_folder(engine: &Engine, name: &VolumeName) -> Result<bool, EngineError> {
    let volume = engine.volume_inspect(name).await?;
    let images = engine.image_list(&[runner::LABEL.to_owned()]).await?;
    let Some(image) = images.into_iter().next() else { return Ok(false) };
    let spec = ContainerSpec {
        image: image.id.to_string(),
        // A sweep that finds it finds a leftover.
        labels: volume.labels,
        network_disabled: true,
        host_config: HostConfig {
            binds: vec![format!("{}:{DATA_DIR}", volume.mountpoint)],
            readonly_rootfs: true,
            ..HostConfig::default()
        },
        ..ContainerSpec::default()
    };
    let container = engine.container_create(None, &spec).await?.id;
    let asked = engine.archive_stat(&container, DATA_DIR).await;
    gone(engine.container_remove(&container).await)?;
    asked.map(|_| true)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::engine::EngineOp;

    #[test]
    fn only_a_missing_folder_is_made_again() {
        let error = |status, message: &str| EngineError::Api {
            op: EngineOp::VolumeRemove,
            status,
            message: message.to_owned(),
        };
        // What Docker 20.10.24 says.
        let said = "remove v: umount /var/lib/docker/volumes/v/_data, flags: 0x2: no such file or directory";
        assert!(is_hollow(&error(StatusCode::INTERNAL_SERVER_ERROR, said)));
        assert!(!is_hollow(&error(StatusCode::NOT_FOUND, said)), "it is gone");
        let busy = "remove v: umount /var/lib/docker/volumes/v/_data, flags: 0x2: device or resource busy";
        assert!(!is_hollow(&error(StatusCode::INTERNAL_SERVER_ERROR, busy)));
    }
}
