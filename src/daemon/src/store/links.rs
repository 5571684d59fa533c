//! Symbolic links of `/data`, as data: one file beside `files/`, written beside and renamed.
//!
//! It is synced before it is renamed, since a replay of the journal begins from the links that were there before.
//! It must never make a link on the host.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use paddock_proto::{LinkTarget, RelPath};
use xxhash_rust::xxh3::xxh3_64;

const NAME: &str = "links";

/// Of the format; the file's first byte, then the checksum of the rest.
const VERSION: u8 = 1;

/// Where each link points.
pub(super) type Links = BTreeMap<RelPath, LinkTarget>;

/// The links of the session at `dir`.
///
/// # Errors
/// What the file system says; `InvalidData` for what was not written here.
pub(super) fn read(dir: &Path) -> io::Result<Links> {
    let bytes = match fs::read(dir.join(NAME)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Links::new());
        }
        other => other?,
    };
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the list of links is damaged");
    let ([VERSION, sum @ ..], rest) = bytes.split_first_chunk::<9>().ok_or_else(damaged)? else {
        return Err(damaged());
    };
    if *sum != xxh3_64(rest).to_le_bytes() {
        return Err(damaged());
    }
    postcard::from_bytes(rest).map_err(|_| damaged())
}

/// Keeps them.
pub(super) fn write(dir: &Path, staged: &Path, links: &Links) -> io::Result<()> {
    if links.is_empty() {
        return match fs::remove_file(dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
    }
    let rest = postcard::to_stdvec(links).map_err(io::Error::other)?;
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged)?;
        file.write_all(&[&[VERSION], &xxh3_64(&rest).to_le_bytes()[..], &rest].concat())?;
        file.sync_all()?;
        fs::rename(staged, dir.join(NAME))
    };
    write().inspect_err(|_| drop(fs::remove_file(staged)))
}

/// Takes out what cannot stay when something else is put at `path`; whether anything went.
pub(super) fn give_way(links: &mut Links, path: &RelPath) -> bool {
    let before = links.len();
    path.remove_from(links);
    give_way_above(links, path) || links.len() != before
}

/// Takes out a link at `path`, or above it, where a directory is put; whether anything went.
pub(super) fn give_way_above(links: &mut Links, path: &RelPath) -> bool {
    let above = std::iter::successors(Some(path.clone()), RelPath::parent);
    above.filter(|dir| links.remove(dir).is_some()).count() > 0
}
