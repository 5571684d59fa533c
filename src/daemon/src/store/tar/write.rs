//! Packs archives of saved files: for containers, and for callers who want everything at once.
//!
//! A blocking thread builds the archive, a few pieces ahead of the reader. It must never follow a link, never
//! hold more than those pieces, and never write a size that differs from the content behind it.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use paddock_proto::message::{Entry, EntryKind};
use tokio::sync::mpsc;
use tokio_tar::{EntryType, Header};

use super::BLOCK;
use crate::store::Space;

/// Bytes of one piece of the archive.
const PIECE: usize = 256 * 1024;
/// Pieces that may wait for the reader.
const AHEAD: usize = 4;
/// Bytes of a name, or of a link's target, that fit the header itself.
const SHORT: usize = 100;
/// The name of a header that only describes the next entry.
const PAX_NAME: &[u8] = b"././@PaxHeader";
const SECOND: i64 = 1_000_000_000;

/// The recipient of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveRecipient {
    /// A container: the files belong to its user and group. The archive begins with a `.` entry of mode 0700:
    /// an engine that guesses a compression from the first bytes finds none.
    Container(u32),
    /// A caller: no owner, and nothing about the directory that it is unpacked in.
    Caller,
}

/// Packs these entries. An entry that no longer exists is left out; of a file that is replaced meanwhile, the
/// archive has either content completely.
pub fn pack(
    space: Arc<Space>,
    entries: Vec<Entry>,
    whose: ArchiveRecipient,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    packed(whose, move |packer| packer.all(&space, &entries))
}

/// Builds an archive in `work`, on a blocking thread, and streams it.
pub(crate) fn packed(
    whose: ArchiveRecipient,
    work: impl FnOnce(&mut Packer) -> io::Result<()> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut packer = Packer { sender, out: BytesMut::with_capacity(PIECE), whose };
        if let Err(error) = work(&mut packer).and_then(|()| packer.end()) {
            let _ = packer.sender.blocking_send(Err(error));
        }
    });
    futures_util::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

/// An archive in the making.
pub(crate) struct Packer {
    sender: mpsc::Sender<io::Result<Bytes>>,
    out: BytesMut,
    whose: ArchiveRecipient,
}

impl Packer {
    /// Adds a directory.
    pub(crate) fn dir(&mut self, name: &[u8], mode: u32, mtime_ns: i64) -> io::Result<()> {
        self.header(EntryType::Directory, name, b"", mode, 0, mtime_ns)
    }

    /// Adds a file of this many bytes.
    pub(crate) fn file(
        &mut self,
        name: &[u8],
        mode: u32,
        mtime_ns: i64,
        (content, size): (impl Read, u64),
    ) -> io::Result<()> {
        self.header(EntryType::Regular, name, b"", mode, size, mtime_ns)?;
        self.content(content, size)
    }

    fn end(&mut self) -> io::Result<()> {
        self.out.resize(self.out.len() + 2 * BLOCK, 0);
        self.give()
    }

    fn all(&mut self, space: &Space, entries: &[Entry]) -> io::Result<()> {
        if let ArchiveRecipient::Container(_) = self.whose {
            self.header(EntryType::Directory, b".", b"", 0o700, 0, 0)?;
        }
        for entry in entries {
            let (name, mode, mtime_ns) = (entry.path.as_bytes(), entry.mode, entry.mtime_ns);
            match &entry.kind {
                EntryKind::Dir => self.header(EntryType::Directory, name, b"", mode | 0o700, 0, mtime_ns)?,
                EntryKind::Link(target) => {
                    self.header(EntryType::Symlink, name, target.as_bytes(), 0o777, 0, mtime_ns)?;
                }
                EntryKind::File(_) => match space.open(&entry.path) {
                    Ok(file) => {
                        let size = file.metadata()?.len();
                        self.header(EntryType::Regular, name, b"", mode, size, mtime_ns)?;
                        self.content(file, size)?;
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    fn header(
        &mut self,
        kind: EntryType,
        name: &[u8],
        target: &[u8],
        mode: u32,
        size: u64,
        mtime_ns: i64,
    ) -> io::Result<()> {
        let mut records = Vec::new();
        let (seconds, ns) = (mtime_ns.div_euclid(SECOND), mtime_ns.rem_euclid(SECOND));
        if mtime_ns < 0 {
            let (seconds, ns) = (
                mtime_ns.unsigned_abs() / SECOND.unsigned_abs(),
                mtime_ns.unsigned_abs() % SECOND.unsigned_abs(),
            );
            record(&mut records, "mtime", format!("-{seconds}.{ns:09}").as_bytes());
        } else if ns > 0 {
            record(&mut records, "mtime", format!("{seconds}.{ns:09}").as_bytes());
        }
        for (key, text) in [("path", name), ("linkpath", target)] {
            if text.len() > SHORT {
                record(&mut records, key, text);
            }
        }
        if !records.is_empty() {
            self.plain(EntryType::XHeader, PAX_NAME, b"", 0o644, records.len() as u64, 0);
            self.out.extend_from_slice(&records);
            self.pad();
        }
        self.plain(
            kind,
            &name[..name.len().min(SHORT)],
            &target[..target.len().min(SHORT)],
            mode,
            size,
            mtime_ns,
        );
        self.give_full()
    }

    fn plain(&mut self, kind: EntryType, name: &[u8], target: &[u8], mode: u32, size: u64, mtime_ns: i64) {
        let mut header = Header::new_ustar(); // some readers refuse PAX records in a GNU archive
        header.set_entry_type(kind);
        header.set_mode(mode & 0o777);
        header.set_size(size);
        let user = if let ArchiveRecipient::Container(user) = self.whose { user.into() } else { 0 };
        header.set_uid(user);
        header.set_gid(user);
        header.set_mtime(u64::try_from(mtime_ns.div_euclid(SECOND)).unwrap_or(0));
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name);
        old.linkname[..target.len()].copy_from_slice(target);
        header.set_cksum();
        self.out.extend_from_slice(header.as_bytes());
    }

    fn content(&mut self, mut file: impl Read, size: u64) -> io::Result<()> {
        let mut left = size;
        while left > 0 {
            let room = PIECE.saturating_sub(self.out.len()).max(BLOCK);
            let want = usize::try_from(left).unwrap_or(room).min(room);
            let begin = self.out.len();
            self.out.resize(begin + want, 0);
            file.read_exact(&mut self.out[begin..])?;
            left -= want as u64;
            self.give_full()?;
        }
        self.pad();
        Ok(())
    }

    /// Fills up the last block. Every piece consists of whole blocks, but within a file; so this counts from
    /// the begin of the piece.
    fn pad(&mut self) {
        let over = self.out.len() % BLOCK;
        if over > 0 {
            self.out.resize(self.out.len() + BLOCK - over, 0);
        }
    }

    fn give_full(&mut self) -> io::Result<()> {
        if self.out.len() < PIECE { Ok(()) } else { self.give() }
    }

    /// Fails when nobody reads any more.
    fn give(&mut self) -> io::Result<()> {
        // Bytes of an incomplete block stay, so that padding can be counted from the begin of a piece.
        let whole = self.out.len() / BLOCK * BLOCK;
        let piece = self.out.split_to(whole).freeze();
        self.out.reserve(PIECE);
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// A PAX record, `length key=value\n`, whose length counts its own digits (POSIX.1-2017, pax, Extended
/// Header).
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let digits = |number: usize| number.to_string().len();
    let length = rest + digits(rest + digits(rest));
    records.extend_from_slice(format!("{length} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;
    use paddock_proto::{LinkTarget, RelPath};
    use proptest::prelude::*;

    use super::super::{MemberKind, TarLimits, TarReader};
    use super::*;
    use crate::store::{Amount, Batch, Options, Quota, Store};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    async fn read_back(archive: Vec<u8>) -> Vec<(Vec<u8>, MemberKind, i64, Vec<u8>)> {
        let mut reader = TarReader::new(&archive[..], TarLimits { entries: 1000, bytes: 1 << 30 });
        let mut all = Vec::new();
        while let Some(member) = reader.next().await.unwrap() {
            let mut content = Vec::new();
            while let Some(piece) = reader.piece().await.unwrap() {
                content.extend_from_slice(&piece);
            }
            all.push((member.path.as_bytes().to_vec(), member.kind, member.mtime_ns, content));
        }
        all
    }

    /// The number of entries that another reader finds, which refuses everything outside the standard.
    async fn strict(archive: Vec<u8>) -> usize {
        let mut entries = tokio_tar::Archive::new(&archive[..]).entries().unwrap();
        let mut count = 0;
        while let Some(entry) = futures_util::StreamExt::next(&mut entries).await {
            entry.unwrap().path().unwrap();
            count += 1;
        }
        count
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_packed_archive_holds_what_was_stored(
            sizes in proptest::collection::vec(0..700_000_usize, 0..6),
            long in 1..180_usize,
            time in -1_900_000_000_000_000_000..1_900_000_000_000_000_000_i64,
        ) {
            let dir = tempfile::tempdir().unwrap();
            runtime().block_on(async {
                let quota = Quota { bytes: 1 << 30, entries: 1000, file: 1 << 30 };
                let total = Amount { bytes: 1 << 40, entries: 1 << 40 };
                let store = Arc::new(Store::open(dir.path(), Options { quota, total }).unwrap());
                let space = store.space("o", "s").await.unwrap();
                let mut batch = Batch::new(space.clone());
                let mut wanted = Vec::new();
                let entry = |path: RelPath, kind, mtime_ns| Entry { path, kind, mode: 0o640, mtime_ns };
                for (at, size) in sizes.into_iter().enumerate() {
                    let path = RelPath::new(format!("{}/{at}\u{fc}", "d".repeat(long))).unwrap();
                    let byte = |n: usize| ((n * 31 + at) % 251).to_le_bytes()[0];
                    let content: Vec<u8> = (0..size).map(byte).collect();
                    batch.file(entry(path.clone(), EntryKind::File(size as u64), time));
                    batch.write(&content).await.unwrap();
                    batch.keep();
                    wanted.push((path.as_bytes().to_vec(), MemberKind::File(size as u64), time, content));
                }
                let target = vec![b't'; long];
                let link = RelPath::new("z").unwrap();
                batch.link(entry(link, EntryKind::Link(LinkTarget::new(target.clone()).unwrap()), time));
                wanted.push((b"z".to_vec(), MemberKind::Link(target), time, Vec::new()));
                batch.commit().await.unwrap();
                let all = space.manifest().lacking(&Default::default()).put;
                let entries = all.into_iter().map(|held| held.entry).collect();
                let packed = pack(space.clone(), entries, ArchiveRecipient::Container(20_000));
                let pieces: Vec<Bytes> = packed.try_collect().await.unwrap();
                let got = read_back(pieces.concat()).await;
                assert_eq!(strict(pieces.concat()).await, got.len() + 1, "the `.` in front");
                let got: Vec<_> = got.into_iter().filter(|(_, kind, ..)| *kind != MemberKind::Dir).collect();
                assert_eq!(got, wanted);
            });
        }
    }
}
