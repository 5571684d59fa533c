//! Symbolic links of `/data`, as data: one file beside `files/`, written beside and renamed.
//!
//! It is synced before it is renamed, since a replay of the journal begins from the links of that time. It
//! must never make a link on the host.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use paddock_proto::{LinkTarget, RelPath};
use xxhash_rust::xxh3::xxh3_64;

use super::replace::replace;

const NAME: &str = "links";

/// Version of the format: the first byte of the file. The checksum of the rest follows it.
const VERSION: u8 = 1;

/// The target of each link.
pub(super) type Links = BTreeMap<RelPath, LinkTarget>;

/// The links of the session at `dir`.
///
/// # Errors
/// An error of the file system; `InvalidData` for a file that the store did not write.
pub(super) fn read(dir: &Path) -> io::Result<Links> {
    let bytes = match fs::read(dir.join(NAME)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Links::new());
        }
        other => other?,
    };
    let damaged = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the session's file `links` is damaged: its checksum is wrong",
        )
    };
    let ([VERSION, sum @ ..], rest) = bytes.split_first_chunk::<9>().ok_or_else(damaged)? else {
        return Err(damaged());
    };
    if *sum != xxh3_64(rest).to_le_bytes() {
        return Err(damaged());
    }
    postcard::from_bytes(rest).map_err(|_| damaged())
}

/// Writes the links; removes the file if there are none.
pub(super) fn write(dir: &Path, staged: &Path, links: &Links) -> io::Result<()> {
    if links.is_empty() {
        return match fs::remove_file(dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
    }
    let rest = postcard::to_stdvec(links).map_err(io::Error::other)?;
    let content = [&[VERSION], &xxh3_64(&rest).to_le_bytes()[..], &rest].concat();
    replace(&dir.join(NAME), staged, &content, true)
}

/// Removes the links that cannot stay when another entry is put at `path`; whether there were any.
pub(super) fn give_way(links: &mut Links, path: &RelPath) -> bool {
    let before = links.len();
    path.remove_from(links);
    give_way_above(links, path) || links.len() != before
}

/// Removes a link at `path`, or above it, where a directory is put; whether there was one.
pub(super) fn give_way_above(links: &mut Links, path: &RelPath) -> bool {
    let above = std::iter::successors(Some(path.clone()), RelPath::parent);
    above.filter(|dir| links.remove(dir).is_some()).count() > 0
}
