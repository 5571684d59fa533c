//! Where `/data` lies: in memory, or for coding agents on the engine's disk.
//!
//! ```text
//!  Memory  a tmpfs volume: its size and its number of entries are bounds of the kernel
//!  Disk    a plain volume at /data, another for the home directory at /home
//!            Hard     the volumes have a size of their own: the engine sets a quota of its file system
//!            Watched  they have none, so the agent looks at what they take and ends the run
//! ```
//!
//! A plain volume belongs to root, and a container has no capability to change that. So the engine unpacks an
//! archive of two directories into each container before it starts: one becomes the home directory, the
//! other has the name at which `/data` is mounted once more, and so gives `/data` its owner and its mode.
//! This must never name a path of the host: an engine may be on another machine.

use std::collections::BTreeMap;

use paddock_proto::limits::{HOME_DATA_DIR, HOME_DIR, HOMES_DIR};
use paddock_proto::message::DiskLimit;
use tokio_tar::{Builder, EntryType, Header};

use super::bounds::Bounds;
use super::core::Uid;
use super::runner::Runner;
use super::spec::{APP, OWNER};
use crate::engine::{
    DriverConfig, Engine, EngineError, Mount, MountType, VolumeName, VolumeOptions, VolumeSpec,
};
use crate::id::random_hex;

/// Bytes of the volume that shows whether the engine's driver takes a size.
const TRIED: u64 = 16 << 20;

/// Where `/data` lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPlace {
    /// In memory.
    Memory,
    /// On the engine's disk.
    Disk(DiskBound),
}

/// What keeps the volumes of a container on the disk within their size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiskBound {
    /// The file system: no program can write more.
    Hard,
    /// The agent: it looks while a run is under way, and ends the run.
    #[default]
    Watched,
}

/// The options of the volume at `/data`. `first` are the user and the group that the engine counts as 0 of
/// its containers.
pub(super) fn volume_options(bounds: &Bounds, uid: Uid, first: (u32, u32)) -> BTreeMap<String, String> {
    let Bounds { data, data_inodes, .. } = bounds;
    let (user, group) = (first.0.saturating_add(uid.0), first.1.saturating_add(uid.0));
    let options = match bounds.place {
        DataPlace::Memory => vec![
            ("type", "tmpfs".to_owned()),
            ("device", "tmpfs".to_owned()),
            (
                "o",
                format!("size={data},nr_inodes={data_inodes},uid={user},gid={group},mode=0700,nosuid,nodev"),
            ),
        ],
        DataPlace::Disk(bound) => size_option(bound, *data),
    };
    options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn size_option(bound: DiskBound, bytes: u64) -> Vec<(&'static str, String)> {
    match bound {
        DiskBound::Hard => vec![("size", bytes.to_string())],
        DiskBound::Watched => Vec::new(),
    }
}

/// The name of the volume of the home directory, in the container of this name.
pub(super) fn home_of(name: &VolumeName) -> Option<VolumeName> {
    format!("{name}-home").parse().ok()
}

/// The volume of the home directory, which the engine makes with the container. It has a name: without one
/// the engine would remove it with its container.
pub(super) fn home(bounds: &Bounds, name: &VolumeName, labels: BTreeMap<String, String>) -> Mount {
    let options = match bounds.place {
        DataPlace::Memory => Vec::new(),
        DataPlace::Disk(bound) => size_option(bound, bounds.data),
    };
    let options = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let driver_config = Some(DriverConfig { name: "local".to_owned(), options });
    Mount {
        kind: MountType::Volume,
        source: home_of(name).map(|name| name.to_string()).unwrap_or_default(),
        target: HOMES_DIR.to_owned(),
        read_only: false,
        volume_options: Some(VolumeOptions { no_copy: true, labels, driver_config }),
        bind_options: None,
    }
}

/// The archive that gives the volumes of a container their owner; to be unpacked at [`HOMES_DIR`].
pub(super) async fn owners(uid: Uid) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    // The engine takes no directory entry for compressed data. It leaves the root as it is.
    for (path, owner, mode) in
        [(HOMES_DIR, 0, 0o755), (HOME_DIR, uid.0, 0o700), (HOME_DATA_DIR, uid.0, 0o700)]
    {
        let name = path.strip_prefix(HOMES_DIR).and_then(|name| name.strip_prefix('/')).unwrap_or(".");
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_mode(mode);
        header.set_uid(owner.into());
        header.set_gid(owner.into());
        header.set_size(0);
        builder.append_data(&mut header, name, tokio::io::empty()).await?;
    }
    builder.into_inner().await
}

/// What keeps volumes within their size on this engine, found out by making one with a size, of this owner.
///
/// # Errors
/// The engine's, but for its refusal.
pub(super) async fn bound(engine: &Engine, owner: &str) -> Result<DiskBound, EngineError> {
    let name: Result<VolumeName, _> = format!("paddock-size-{}", random_hex::<6>()).parse();
    let Ok(name) = name else { return Ok(DiskBound::Watched) };
    let labels = [APP.to_owned(), format!("{OWNER}={owner}")];
    let labels = labels.iter().filter_map(|label| label.split_once('='));
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = size_option(DiskBound::Hard, TRIED).into_iter();
    let driver_opts = options.map(|(name, value)| (name.to_owned(), value)).collect();
    let made =
        engine.volume_create(&VolumeSpec { driver_opts, labels, ..VolumeSpec::local(name.clone()) }).await;
    match made {
        Ok(_) => {
            super::container::gone(engine.volume_remove(&name).await)?;
            Ok(DiskBound::Hard)
        }
        Err(error) if error.status().is_some() => Ok(DiskBound::Watched),
        Err(error) => Err(error),
    }
}

impl Runner {
    /// What the volumes of its containers may take on the disk; `None` where `/data` is in memory.
    pub fn disk_limit(&self) -> Option<DiskLimit> {
        let Bounds { data, data_inodes, place, .. } = self.bounds;
        match place {
            DataPlace::Memory => None,
            DataPlace::Disk(DiskBound::Hard) => Some(DiskLimit { bytes: None, entries: data_inodes }),
            DataPlace::Disk(DiskBound::Watched) => {
                Some(DiskLimit { bytes: Some(data), entries: data_inodes })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    fn on(place: DataPlace) -> Bounds {
        Bounds { place, data: 10 << 30, ..Bounds::example() }
    }

    #[test]
    fn a_volume_has_the_bound_of_its_place() {
        let memory = volume_options(&on(DataPlace::Memory), Uid(20_000), (0, 0));
        assert!(memory["o"].contains("size=10737418240,nr_inodes=16384,uid=20000"), "{memory:?}");
        let mapped = volume_options(&on(DataPlace::Memory), Uid(20_000), (500_000, 600_000));
        assert!(mapped["o"].contains(",uid=520000,gid=620000,"), "the engine's own numbers: {mapped:?}");
        let hard = on(DataPlace::Disk(DiskBound::Hard));
        let bounded = volume_options(&hard, Uid(1), (0, 0));
        assert_eq!(bounded, BTreeMap::from([("size".into(), "10737418240".into())]));
        let watched = on(DataPlace::Disk(DiskBound::Watched));
        assert_eq!(volume_options(&watched, Uid(1), (0, 0)), BTreeMap::new());
        let name = "paddock-a".parse().unwrap();
        assert_eq!(home(&hard, &name, BTreeMap::new()).source, "paddock-a-home");
        let driver =
            |bounds| home(bounds, &name, BTreeMap::new()).volume_options.unwrap().driver_config.unwrap();
        assert_eq!(driver(&hard).options["size"], "10737418240");
        assert!(driver(&watched).options.is_empty());
    }

    #[test]
    fn what_lies_on_a_disk_is_no_memory() {
        let memory = on(DataPlace::Memory).total_memory();
        assert_eq!(on(DataPlace::Disk(DiskBound::Watched)).total_memory(), memory - (10 << 30));
    }

    #[tokio::test]
    async fn the_archive_gives_both_volumes_their_owner() {
        let archive = owners(Uid(20_007)).await.unwrap();
        let mut archive = tokio_tar::Archive::new(archive.as_slice());
        let mut seen = Vec::new();
        let mut entries = archive.entries().unwrap();
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            seen.push((path, header.uid().unwrap(), header.gid().unwrap(), header.mode().unwrap()));
        }
        let own = |name: &str| (name.to_owned(), 20_007, 20_007, 0o700);
        assert_eq!(seen, [(".".to_owned(), 0, 0, 0o755), own("agent"), own("workspace")]);
    }
}
