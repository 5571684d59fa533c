//! Reads archives that others made, entry by entry, and checks each entry before returning it.
//!
//! ```text
//!  TarReader::next ─► TarMember { path, kind, … }   ─┐
//!  TarReader::piece ─► content of a File, in pieces ◄─┘ until None; `next` skips the rest
//! ```
//!
//! Sizes and names are understood as Go's `archive/tar` does, so that Docker and this reader see the same
//! archive: a PAX record overrides the header, a name ends at its first NUL, links and directories have no
//! content. An archive that readers are known to understand differently (sparse files, global PAX names, a
//! link with content, an entry below a link) is an error. [`TarReader::strictly`] also refuses an archive
//! that could not be unpacked completely. The reader must never touch a file system or trust a size before
//! the bytes arrived. In memory it must never hold more than one header, one piece and the names of links;
//! reading strictly, all names too.

mod fields;
mod member;
mod names;
mod write;

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use paddock_proto::{PathError, RelPath};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tar::Header;

use fields::{Extra, number, until_nul};
pub use member::{MemberKind, TarError, TarLimits, TarMember};
use names::Names;
pub use write::{ArchiveRecipient, pack};
pub(crate) use write::{Packer, packed};

/// Archives consist of blocks of this many bytes.
const BLOCK: usize = 512;
/// Content is returned in pieces of at most this many bytes.
const PIECE: u64 = 64 * 1024;
/// Bytes of one PAX header or long name: a path of 2 KiB, a target of 4 KiB, and other records that tools
/// write.
const MAX_META: u64 = 64 * 1024;
/// Bytes of a symbolic link's target: `PATH_MAX` of Linux, less the NUL.
const MAX_TARGET: usize = 4095;
/// Bytes of the names of all links together: the reader keeps them until the end of the archive.
const MAX_LINK_NAMES: usize = 4 << 20;

// The type of an entry in its header.
const FILE: u8 = b'0';
const HARD: u8 = b'1';
const LINK: u8 = b'2';
const CHAR: u8 = b'3';
const BLOCK_DEVICE: u8 = b'4';
const DIR: u8 = b'5';
const FIFO: u8 = b'6';
const GNU_SPARSE: u8 = b'S';
// Headers that only describe the next entry.
const PAX: u8 = b'x';
const PAX_GLOBAL: u8 = b'g';
const GNU_PATH: u8 = b'L';
const GNU_TARGET: u8 = b'K';

/// Reads one archive.
pub struct TarReader<R> {
    from: R,
    limits: TarLimits,
    /// The directory that all names must begin with, and whose content is returned.
    below: &'static str,
    /// Content of the last entry that was not read yet, and the padding behind it.
    left: u64,
    padding: u64,
    entries: u64,
    bytes: u64,
    skipped: u64,
    links: BTreeSet<RelPath>,
    link_names: usize,
    /// Every name so far, when reading strictly.
    names: Option<Names>,
    over: bool,
}

impl<R: AsyncRead + Unpin> TarReader<R> {
    /// A reader of the archive `from`.
    pub fn new(from: R, limits: TarLimits) -> Self {
        Self {
            from,
            limits,
            below: "",
            left: 0,
            padding: 0,
            entries: 0,
            bytes: 0,
            skipped: 0,
            links: BTreeSet::new(),
            link_names: 0,
            names: None,
            over: false,
        }
    }

    /// Returns `dir/a` as `a`, since engines name what they archive so; a name that is not below `dir` is an
    /// error.
    #[must_use]
    pub fn below(mut self, dir: &'static str) -> Self {
        self.below = dir;
        self
    }

    /// Refuses an archive in which one entry removes what another brought, or that names an entry in two
    /// ways. For archives that must be unpacked completely or not at all; the files of a lost container are
    /// rescued without this.
    #[must_use]
    pub fn strictly(mut self) -> Self {
        self.names = Some(Names::default());
        self
    }

    /// Entries so far that are not files, directories or links: devices, FIFOs, and unknown types.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The source, for reading what follows the archive.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// The next entry; the unread content of the last one is skipped. `None` at the end of the archive, which
    /// is two blocks of zeros, one at the end of the source, or just that end.
    ///
    /// # Errors
    /// See [`TarError`]; the reader can then only be dropped.
    pub async fn next(&mut self) -> Result<Option<TarMember>, TarError> {
        let mut extra = Extra::default();
        while !self.over {
            self.pass_content().await?;
            let Some(header) = self.header().await? else {
                self.over = true;
                break;
            };
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(TarError::TooMany(self.limits.entries));
            }
            let own_size = self.number(&header.as_old().size, "its size is not a number")?;
            let own_size = u64::try_from(own_size).map_err(|_| self.damaged("its size is negative"))?;
            match header.as_old().linkflag[0] {
                PAX => {
                    let text = self.meta(own_size).await?;
                    let (path, target) = (extra.long_path.take(), extra.long_target.take());
                    extra = self.pax(&text)?;
                    (extra.long_path, extra.long_target) = (path, target);
                }
                PAX_GLOBAL => {
                    let text = self.meta(own_size).await?;
                    let global = self.pax(&text)?;
                    if global.path.is_some() || global.target.is_some() || global.size.is_some() {
                        return Err(self.damaged("a global PAX header names or measures single entries"));
                    }
                }
                GNU_PATH => {
                    extra.long_path = Some(until_nul(&self.meta(own_size).await?).to_vec());
                    extra.any = true;
                }
                GNU_TARGET => {
                    extra.long_target = Some(until_nul(&self.meta(own_size).await?).to_vec());
                    extra.any = true;
                }
                _ => {
                    if let Some(member) = self.member(&header, own_size, std::mem::take(&mut extra))? {
                        return Ok(Some(member));
                    }
                }
            }
        }
        if extra.any {
            return Err(self.damaged("it describes an entry that does not come"));
        }
        Ok(None)
    }

    /// The next piece of the last file's content; `None` at its end.
    ///
    /// # Errors
    /// [`TarError::Read`], and [`TarError::Cut`] if the source ends before the content does.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, TarError> {
        if self.left == 0 {
            return Ok(None);
        }
        let want = self.left.min(PIECE);
        let mut piece = BytesMut::with_capacity(usize::try_from(want).unwrap_or_default());
        let got = (&mut self.from).take(want).read_buf(&mut piece).await.map_err(TarError::Read)?;
        if got == 0 {
            return Err(TarError::Cut(self.entries));
        }
        self.left -= got as u64;
        Ok(Some(piece.freeze()))
    }

    /// An entry that is not just a PAX or GNU header about another one. `None` for an entry to skip.
    fn member(
        &mut self,
        header: &Header,
        own_size: u64,
        extra: Extra,
    ) -> Result<Option<TarMember>, TarError> {
        let size = extra.size.unwrap_or(own_size);
        if let (Some(_), Some(name)) = (&self.names, extra.named_twice()) {
            return Err(
                self.refused(name, "has a PAX header and a GNU header that both name it; keep one of them")
            );
        }
        let name = extra.long_path.or(extra.path).unwrap_or_else(|| header.path_bytes().into_owned());
        let target = extra
            .long_target
            .or(extra.target)
            .unwrap_or_else(|| until_nul(&header.as_old().linkname).to_vec());
        let flag = match header.as_old().linkflag[0] {
            0 if name.ends_with(b"/") => DIR, // as tar wrote directories before they had a type
            0 => FILE,
            flag => flag,
        };
        let has_content = match flag {
            HARD | LINK | CHAR | BLOCK_DEVICE | DIR | FIFO => false,
            GNU_SPARSE => {
                return Err(
                    self.refused(&name, "is a sparse file, which is not supported; pack it without holes")
                );
            }
            _ => true,
        };
        if !has_content && size != 0 {
            return Err(self.refused(&name, "has content, which its type never has"));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.bytes {
            return Err(TarError::TooLarge(self.limits.bytes));
        }
        (self.left, self.padding) = (size, padding(size));
        let Some(path) = self.path(&name, flag == DIR)? else {
            // `.` is the outermost directory, which always exists.
            return if flag == DIR { Ok(None) } else { Err(self.empty(&name)) };
        };
        let through =
            std::iter::successors(path.parent(), RelPath::parent).any(|dir| self.links.contains(&dir));
        if through {
            return Err(self.refused(&name, "lies below a symbolic link of the same archive"));
        }
        if self.links.contains(&path) && flag == DIR {
            return Err(self.refused(&name, "is a directory and was a symbolic link before"));
        }
        self.links.remove(&path);
        let kind = match flag {
            FILE => MemberKind::File(size),
            DIR => MemberKind::Dir,
            LINK => {
                if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
                    return Err(
                        self.refused(&name, "is a link whose target is empty, too long, or has a NUL")
                    );
                }
                self.link_names += path.as_bytes().len();
                if self.link_names > MAX_LINK_NAMES {
                    return Err(
                        self.refused(&name, "is one link too many: the names of all links may take 4 MiB")
                    );
                }
                self.links.insert(path.clone());
                MemberKind::Link(target)
            }
            HARD => match self.path(&target, false)? {
                Some(target) => MemberKind::Hard(target),
                None => return Err(self.empty(&target)),
            },
            _ => {
                self.skipped += 1;
                return Ok(None);
            }
        };
        if let Some(Err(what)) = self.names.as_mut().map(|names| names.note(&path, flag == DIR)) {
            return Err(self.refused(&name, what));
        }
        let mode = self.number(&header.as_old().mode, "its mode is not a number")?;
        let mtime = self.number(&header.as_old().mtime, "its time is not a number")?;
        Ok(Some(TarMember {
            path,
            kind,
            mode: u32::try_from(mode & 0o777).unwrap_or_default(),
            mtime_ns: extra.mtime_ns.unwrap_or(mtime.saturating_mul(1_000_000_000)),
        }))
    }

    /// A name as the store keeps it; `None` for the outermost directory.
    fn path(&self, name: &[u8], is_dir: bool) -> Result<Option<RelPath>, TarError> {
        let wrong = |problem| TarError::Name { entry: self.entries, name: shown(name), problem };
        let mut rest = name.strip_prefix(b"./").unwrap_or(name);
        if rest.starts_with(b"/") {
            return Err(wrong(PathError::Absolute));
        }
        if is_dir {
            rest = rest.strip_suffix(b"/").unwrap_or(rest);
        }
        if rest.is_empty() && !name.is_empty() || rest == b"." {
            return Ok(None);
        }
        let path = RelPath::new(rest).map_err(wrong)?;
        if self.below.is_empty() {
            return Ok(Some(path));
        }
        match path.as_bytes().strip_prefix(self.below.as_bytes()) {
            Some([]) => Ok(None),
            Some([b'/', inner @ ..]) => RelPath::new(inner).map(Some).map_err(wrong),
            Some(_) | None => Err(wrong(PathError::Parent)),
        }
    }

    /// Skips the rest of the last entry.
    async fn pass_content(&mut self) -> Result<(), TarError> {
        while self.piece().await?.is_some() {}
        let mut rest = [0; BLOCK];
        let rest = &mut rest[..usize::try_from(std::mem::take(&mut self.padding)).unwrap_or_default()];
        // Some tools leave out the very last padding.
        self.fill(rest).await.map(drop)
    }

    /// The next header, whose checksum is right; `None` at the end.
    async fn header(&mut self) -> Result<Option<Header>, TarError> {
        let mut header = Header::new_old();
        match self.fill(header.as_mut_bytes()).await? {
            0 => return Ok(None),
            BLOCK => {}
            _ => return Err(TarError::Cut(self.entries + 1)),
        }
        if header.as_bytes().iter().all(|b| *b == 0) {
            let mut second = [0; BLOCK];
            let got = self.fill(&mut second).await?;
            if second.iter().take(got).any(|b| *b != 0) {
                return Err(TarError::Damaged {
                    entry: self.entries + 1,
                    what: "a block of zeros stands where it should begin",
                });
            }
            return Ok(None);
        }
        let field = 148..156;
        let sums = header.as_bytes().iter().enumerate().fold((0i64, 0i64), |(plain, signed), (at, byte)| {
            let byte = if field.contains(&at) { b' ' } else { *byte };
            (plain + i64::from(byte), signed + i64::from(byte.cast_signed()))
        });
        // Some old tools added up signed bytes.
        let wanted = number(&header.as_old().cksum);
        if wanted != Some(sums.0) && wanted != Some(sums.1) {
            return Err(TarError::Damaged { entry: self.entries + 1, what: "its checksum is wrong" });
        }
        Ok(Some(header))
    }

    /// The content of a header that describes the next entry.
    async fn meta(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_META {
            return Err(self.damaged("its header says more about another entry than 64 KiB"));
        }
        let mut text = vec![0; usize::try_from(size).unwrap_or_default()];
        if self.fill(&mut text).await? != text.len() {
            return Err(TarError::Cut(self.entries));
        }
        self.padding = padding(size);
        Ok(text)
    }

    fn pax(&self, text: &[u8]) -> Result<Extra, TarError> {
        Extra::parse(text).map_err(|what| self.damaged(what))
    }

    /// Reads until `buffer` is full or the source ends; returns the number of bytes.
    async fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, TarError> {
        let mut got = 0;
        while got < buffer.len() {
            match self.from.read(&mut buffer[got..]).await.map_err(TarError::Read)? {
                0 => break,
                more => got += more,
            }
        }
        Ok(got)
    }

    fn number(&self, field: &[u8], what: &'static str) -> Result<i64, TarError> {
        number(field).ok_or_else(|| self.damaged(what))
    }

    fn damaged(&self, what: &'static str) -> TarError {
        TarError::Damaged { entry: self.entries, what }
    }

    fn refused(&self, name: &[u8], what: &'static str) -> TarError {
        TarError::Refused { entry: self.entries, name: shown(name), what }
    }

    fn empty(&self, name: &[u8]) -> TarError {
        TarError::Name { entry: self.entries, name: shown(name), problem: PathError::Empty }
    }
}

/// Zeros behind a content, up to the next block.
fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(80).collect()
}

#[cfg(test)]
mod tests;
