//! The folders of the host that programs can read: whether they can be mounted, what programs could do in
//! them beside reading, and who could put something else in their place.
//!
//! It must never read a file, and must end however large a folder is.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::check::{Check, Checks, Group};
use crate::app::mounts;
use crate::config::{Config, DropSettings};
use crate::pool::HostMount;
use crate::pool::mount::look;

/// Entries of one folder that are looked at.
const ENTRIES: usize = 20_000;
/// The time for that.
const TIME: Duration = Duration::from_secs(3);

/// The mode bits of all users: to read, to write, to enter a folder.
const READ: u32 = 0o004;
const WRITE: u32 = 0o002;
const ENTER: u32 = 0o001;

/// What is in a folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    /// Files and folders that were looked at.
    seen: usize,
    /// Whether there are more.
    more: bool,
    /// Files and folders that a container's user cannot read, and the first of them.
    closed: usize,
    first_closed: Option<PathBuf>,
    /// The first socket or FIFO that every user may write to.
    channel: Option<PathBuf>,
}

/// Looks at every mount and at the places of drop folders, and judges them.
pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let mut checks = Checks::of(Group::Mounts);
    for DropSettings { tenant, path } in config.drops.clone() {
        let looking = tokio::task::spawn_blocking(move || (look(&path), fs::metadata(&path).ok(), path));
        if let Ok(Ok((found, meta, path))) = tokio::time::timeout(TIME, looking).await {
            judge_drops(&tenant, &path, found, meta.map_or(0, |meta| meta.mode()), &mut checks);
        } else {
            checks.warn("drops", "the folder of drop folders does not answer", "its file system hangs");
        }
    }
    for mount in mounts(config) {
        let name = format!("{} is at {} to read", mount.path.display(), mount.target());
        if let Err(error) = mount.look(&[]).await {
            checks.fail("mount", error.to_string(), "the daemon does not start without it; see [[mounts]]");
            continue;
        }
        if !mount.is_here {
            checks.ok("mount", format!("{name}; it is on the engine's host, so it was not looked at"));
            continue;
        }
        let path = mount.path.clone();
        let looking = tokio::task::spawn_blocking(move || content(&path));
        match tokio::time::timeout(TIME * 2, looking).await {
            Ok(Ok(found)) => judge(&mount, &name, &found, &mut checks),
            Ok(Err(_)) | Err(_) => checks.warn(
                "mount",
                format!("{} does not answer", mount.path.display()),
                "its file system hangs, and programs that read there hang too",
            ),
        }
    }
    checks.done()
}

fn judge_drops(tenant: &str, path: &Path, found: Result<(), String>, mode: u32, checks: &mut Checks) {
    let shown = path.display();
    match found {
        Err(why) => {
            checks.fail("drops", format!("drops: {shown} {why}"), "the daemon does not start without it");
        }
        Ok(()) if mode & WRITE != 0 => checks.warn(
            "drops",
            format!(
                "every user of this host can make drop folders in {shown}, for conversations of {tenant:?}"
            ),
            "they can give its programs any file, and read what those make: `chmod o-w` it",
        ),
        Ok(()) => checks.ok("drops", format!("drop folders of {tenant:?} are in {shown}")),
    }
}

fn judge(mount: &HostMount, name: &str, found: &Content, checks: &mut Checks) {
    let more = if found.more { ", and more that were not looked at" } else { "" };
    checks.ok("mount", format!("{name}: {} files and folders{more}", found.seen));
    if let Some(channel) = &found.channel {
        checks.warn(
            "mount channel",
            format!("every program can write to {}, a socket or FIFO", channel.display()),
            "a mount that is read-only does not prevent that: move it out of the folder, or `chmod o-w` it",
        );
    }
    if let Some(first) = &found.first_closed {
        checks.warn(
            "mount unreadable",
            format!("programs cannot read {} of them, such as {}", found.closed, first.display()),
            "each container has a user id of its own, so only what all users may read can be read: `chmod -R \
             o+rX` it if programs are to read it",
        );
    }
    if let Some(who) = mount.replaceable_by() {
        checks.warn(
            "mount replaceable",
            format!("{} can be replaced by {who}", mount.path.display()),
            "at that moment programs could read another folder that all users may read: move it below a \
             folder that only root or the daemon's user can change, if that matters",
        );
    }
}

/// What is in a folder, without following links and without other file systems.
fn content(root: &Path) -> Content {
    let begun = Instant::now();
    let mut content = Content::default();
    let mut waiting = vec![root.to_owned()];
    let mut devices = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        if content.seen >= ENTRIES || begun.elapsed() > TIME {
            content.more = true;
            break;
        }
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if devices.is_empty() {
            devices.insert(meta.dev());
        }
        if meta.file_type().is_symlink() || !devices.contains(&meta.dev()) {
            continue;
        }
        content.seen += 1;
        let kind = meta.file_type();
        if (kind.is_socket() || kind.is_fifo()) && meta.mode() & WRITE != 0 && content.channel.is_none() {
            content.channel = Some(path.clone());
        }
        let needed = if meta.is_dir() { READ | ENTER } else { READ };
        if meta.mode() & needed != needed {
            content.closed += 1;
            content.first_closed.get_or_insert(path.clone());
        }
        // Behind a folder that nobody can enter nothing is reached.
        if meta.is_dir() && meta.mode() & ENTER != 0 {
            let inside = fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(inside.take(ENTRIES).map(|entry| entry.path()));
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::super::check::tests::lacks;
    use super::*;

    #[test]
    fn what_programs_cannot_read_and_what_they_could_write_to_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let set = |name: &str, mode| {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["open", "closed"] {
            fs::write(root.join(name), "").unwrap();
        }
        set("open", 0o644);
        set("closed", 0o640);
        symlink("/etc/shadow", root.join("link")).unwrap();
        fs::create_dir(root.join("private")).unwrap();
        fs::write(root.join("private/open"), "").unwrap();
        set("private", 0o700);
        let found = content(root);
        assert_eq!((found.seen, found.closed, found.more, &found.channel), (4, 2, false, &None), "{found:?}");
        let _socket = UnixListener::bind(root.join("app.sock")).unwrap();
        set("app.sock", 0o755);
        assert_eq!(content(root).channel, None, "only its owner can use it");
        set("app.sock", 0o777);
        assert_eq!(content(root).channel, Some(root.join("app.sock")));
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_stops_the_daemon_and_the_doctor_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let with = |path: &Path| {
            let text = format!("[[mounts]]\nname = \"docs\"\npath = \"{}\"\n", path.display());
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), text).unwrap();
            let env = std::collections::BTreeMap::from([("HOME".to_owned(), "/home/ann".to_owned())]);
            Config::load(Some(file.path()), &env, &crate::config::Overrides::default()).unwrap().config
        };
        assert_eq!(lacks(&examine(&with(&root)).await), []);
        let gone = examine(&with(&root.join("gone"))).await;
        assert_eq!(lacks(&gone), [("mount", super::super::check::Status::Fail)]);
        assert!(gone[0].found.contains("does not exist"), "{}", gone[0].found);
    }

    #[test]
    fn a_place_of_drop_folders_is_a_folder_that_not_everybody_can_write_to() {
        let judged = |found: Result<(), String>, mode| {
            let mut checks = Checks::of(Group::Mounts);
            judge_drops("default", Path::new("/srv/drops"), found, mode, &mut checks);
            lacks(&checks.done())
        };
        assert_eq!(judged(Ok(()), 0o755), []);
        assert_eq!(judged(Ok(()), 0o1777), [("drops", super::super::check::Status::Warn)]);
        assert_eq!(judged(Err("is gone".into()), 0), [("drops", super::super::check::Status::Fail)]);
    }
}
