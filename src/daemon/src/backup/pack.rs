//! Packs a snapshot of the store. It must never follow a link, never name a size that differs from the
//! content behind it, and never make an archive that cannot be restored.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::Stream;
use sha2::{Digest, Sha256};

use super::manifest::{Line, ListWriter, MAX_LIST};
use super::{ABOUT, ARCHIVE, About, MANIFEST, STORE};
use crate::id::hex;
use crate::store::tar::{ArchiveRecipient, Packer, packed};
use crate::store::{FORMAT, Snapshot};

/// A file up to this size is read before its size is written: output that grows meanwhile does no harm.
const SMALL: u64 = 1 << 20;

/// The archive of a snapshot, as it is made.
pub(crate) fn pack(snapshot: Snapshot) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    pack_within(snapshot, MAX_LIST)
}

/// The same with a list of at most `most` bytes.
fn pack_within(snapshot: Snapshot, most: u64) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    packed(ArchiveRecipient::Caller, move |packer| {
        let about = About { archive: ARCHIVE, store: FORMAT, paddock: crate::build::LONG.to_owned() };
        let about = serde_json::to_vec(&about)?;
        packer.file(ABOUT.as_bytes(), 0o600, 0, (&about[..], about.len() as u64))?;
        let mut list = ListWriter::new(snapshot.scratch()?, most);
        folder(packer, snapshot.root(), Path::new(""), &mut list)?;
        packer.file(MANIFEST.as_bytes(), 0o600, 0, list.end()?)
    })
}

/// Packs what is in a folder, in the order of names.
fn folder(packer: &mut Packer, root: &Path, at: &Path, list: &mut ListWriter) -> io::Result<()> {
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
            let line = Line { path, mode, mtime_ns, size: 0, sha256: None };
            list.line(&line)?;
            folder(packer, root, &line.path, list)?;
        } else if meta.is_file() {
            let (size, sha256) = file(packer, &root.join(&path), &member, (mode, mtime_ns))?;
            list.line(&Line { path, mode, mtime_ns, size, sha256: Some(sha256) })?;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::TryStreamExt;

    use super::super::unpack::unpack;
    use super::*;
    use crate::store::{Amount, Options, Quota, Store};

    /// The archive of a store with some files, with a list of at most `most` bytes.
    async fn archive(most: u64) -> (tempfile::TempDir, io::Result<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 30, entries: 1000, file: 1 << 30 };
        let total = Amount { bytes: 1 << 40, entries: 1 << 40 };
        let store = Arc::new(Store::open(dir.path(), Options { quota, total }).unwrap());
        let folder = store.folder("mcp").unwrap();
        for name in 0..100 {
            fs::write(folder.join(name.to_string()), name.to_string()).unwrap();
        }
        let pieces: io::Result<Vec<Bytes>> =
            Box::pin(pack_within(store.snapshot().await.unwrap(), most)).try_collect().await;
        let left = fs::read_dir(dir.path().join("tmp")).unwrap().count();
        assert_eq!(left, 0, "nothing stays in tmp/");
        (dir, pieces.map(|pieces| pieces.concat()))
    }

    #[tokio::test]
    async fn a_list_beyond_its_bound_fails_the_backup_and_not_the_restore() {
        let (_store, small) = archive(4096).await;
        let why = small.unwrap_err().to_string();
        assert!(why.contains("more than 4096 bytes"), "{why}");

        let (_store, archive) = archive(MAX_LIST).await;
        let to = tempfile::tempdir().unwrap();
        let unpacked = unpack(&archive.unwrap()[..], to.path()).await.unwrap();
        assert!(unpacked.files >= 100, "{unpacked:?}");
        assert_eq!(fs::read_to_string(to.path().join("mcp/77")).unwrap(), "77");
        let top = fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(top.into_iter().all(|name| !name.to_string_lossy().contains("list")));
    }
}
