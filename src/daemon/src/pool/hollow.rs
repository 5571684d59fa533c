//! Volumes that lost their folder, because their engine was killed while it removed them.
//!
//! The engine removes first the folder of a volume, and then its own note of the volume. If it is killed
//! between the two, the note stays. From then on the engine refuses to remove the volume, also after a
//! restart, because it tries to unmount the folder first (seen with Docker 20.10). But when a container binds
//! a folder of the host that is missing, the engine makes that folder. So the daemon makes such a container,
//! asks for a path in it, as [`super::restored`] does too, and removes the volume again.
//!
//! It must never start that container, nor bind anything but the folder of a volume that is to be removed.

use paddock_proto::limits::DATA_DIR;
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::agent;
use super::container::gone;
use super::runner::LABEL;
use super::spec::{APP, OWNER};
use crate::engine::{Engine, EngineError, VolumeName};

/// One task at a time makes a folder. A second one could make it again after the first has removed the
/// volume, and then nobody would know of the folder.
static MAKING: Mutex<()> = Mutex::const_new(());

/// Removes a volume, also one whose removal was broken off before.
///
/// # Errors
/// The engine's: the volume may then still be there.
pub(super) async fn remove_volume(engine: &Engine, name: &VolumeName) -> Result<(), EngineError> {
    match gone(engine.volume_remove(name).await) {
        Err(error) if is_hollow(&error) => {}
        done => return done,
    }
    let _making = MAKING.lock().await;
    match gone(engine.volume_remove(name).await) {
        Err(error) if is_hollow(&error) => {}
        done => return done,
    }
    match make_folder(engine, name).await {
        Ok(true) => info!(%name, "the engine has the folder of a volume again, whose removal it did not end"),
        Ok(false) => {
            warn!(%name, "a volume has lost its folder, and the engine has no image to mend that with")
        }
        Err(error) => warn!(%name, %error, "a volume has lost its folder, and the engine made none"),
    }
    gone(engine.volume_remove(name).await)
}

/// Whether the engine refuses to remove a volume because the volume's folder is missing.
fn is_hollow(error: &EngineError) -> bool {
    let says =
        |message: &str| ["umount", "no such file or directory"].iter().all(|word| message.contains(word));
    matches!(error, EngineError::Api { status, message, .. } if status.is_server_error() && says(message))
}

/// Has the engine make the folder of a volume, in a container of any of its images: nothing of that is used.
/// False if it has no image.
async fn make_folder(engine: &Engine, name: &VolumeName) -> Result<bool, EngineError> {
    let volume = engine.volume_inspect(name).await?;
    let mut images = engine.image_list(&[LABEL.to_owned()]).await?;
    if images.is_empty() {
        images = engine.image_list(&[]).await?;
    }
    let Some(image) = images.into_iter().next() else { return Ok(false) };
    // By these labels a sweep finds it as a leftover.
    let owner = format!("{OWNER}={}", volume.labels.get(OWNER).map_or("", String::as_str));
    let mut holder = agent::helper(&image.id, Vec::new(), &[APP.to_owned(), owner]);
    holder.host_config.binds = vec![format!("{}:{DATA_DIR}", volume.mountpoint)];
    let container = engine.container_create(None, &holder).await?.id;
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
