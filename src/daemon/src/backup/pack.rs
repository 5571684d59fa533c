//! Packs a snapshot of the store. It must never follow a link, and never name a size that differs from the
//! content behind it.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::Stream;
use sha2::{Digest, Sha256};

use super::manifest::{self, Line};
use super::{ABOUT, ARCHIVE, About, MANIFEST, STORE};
use crate::id::hex;
use crate::store::tar::{ArchiveRecipient, Packer, packed};
use crate::store::{FORMAT, Snapshot};

/// A file up to this size is read before its size is written: output that grows meanwhile does no harm.
const SMALL: u64 = 1 << 20;

/// The archive of a snapshot, as it is made.
pub(crate) fn pack(snapshot: Snapshot) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    packed(ArchiveRecipient::Caller, move |packer| {
        let about = About { archive: ARCHIVE, store: FORMAT, paddock: crate::build::LONG.to_owned() };
        let about = serde_json::to_vec(&about)?;
        packer.file(ABOUT.as_bytes(), 0o600, 0, (&about[..], about.len() as u64))?;
        let mut lines = Vec::new();
        folder(packer, snapshot.root(), Path::new(""), &mut lines)?;
        let list = manifest::write(&lines);
        packer.file(MANIFEST.as_bytes(), 0o600, 0, (list.as_bytes(), list.len() as u64))
    })
}

/// Packs what is in a folder, in the order of names.
fn folder(packer: &mut Packer, root: &Path, at: &Path, lines: &mut Vec<Line>) -> io::Result<()> {
    let mut names: Vec<_> =
        fs::read_dir(root.join(at))?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    for name in names {
        let path = at.join(name);
        let meta = fs::symlink_metadata(root.join(&path))?;
        let mtime_ns = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
        let mode = meta.mode() & 0o777;
        let member = [STORE.as_bytes(), path.as_os_str().as_bytes()].concat();
        if meta.is_dir() {
            packer.dir(&member, mode, mtime_ns)?;
            lines.push(Line { path: path.clone(), mode, mtime_ns, size: 0, sha256: None });
            folder(packer, root, &path, lines)?;
        } else if meta.is_file() {
            let (size, sha256) = file(packer, &root.join(&path), &member, (mode, mtime_ns))?;
            lines.push(Line { path, mode, mtime_ns, size, sha256: Some(sha256) });
        }
    }
    Ok(())
}

/// Packs a file; returns its size and the SHA-256 of its content.
fn file(
    packer: &mut Packer,
    path: &PathBuf,
    member: &[u8],
    (mode, mtime_ns): (u32, i64),
) -> io::Result<(u64, String)> {
    let mut from = File::open(path)?;
    let size = from.metadata()?.len();
    if size <= SMALL {
        let mut content = Vec::new();
        from.take(SMALL).read_to_end(&mut content)?;
        let size = content.len() as u64;
        let sha256 = hex(&Sha256::digest(&content));
        packer.file(member, mode, mtime_ns, (Cursor::new(content), size))?;
        return Ok((size, sha256));
    }
    let mut hashed = Hashed { from: &mut from, digest: Sha256::new() };
    packer.file(member, mode, mtime_ns, (&mut hashed, size))?;
    Ok((size, hex(&hashed.digest.finalize())))
}

/// Hashes what is read.
struct Hashed<'a> {
    from: &'a mut File,
    digest: Sha256,
}

impl Read for Hashed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        self.digest.update(into.get(..count).unwrap_or_default());
        Ok(count)
    }
}
