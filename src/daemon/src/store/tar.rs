//! Archives that others made, read entry by entry, each checked before it is seen.
//!
//! ```text
//!  TarReader::next ─► Member { path, kind, … }      ─┐
//!  TarReader::piece ─► content of a File, in pieces ◄─┘ until None, or skipped by the next `next`
//! ```
//!
//! What sizes and names are is decided as Go's `archive/tar` does, so that Docker and this reader see the same
//! archive: a PAX record is stronger than the header, a name ends at its first NUL, links and directories have no
//! content. Where readers are known to differ (sparse files, global PAX names, a link with content, an entry below
//! a link) it is an error. [`TarReader::strictly`] also refuses what would be unpacked with something missing. It must
//! never touch a file system, trust a size before the bytes came, or hold more than one header and one piece in memory,
//! beside the names of links, and all names where it reads strictly.

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
pub use member::{Member, MemberKind, TarError, TarLimits};
use names::Names;
pub use write::{For, pack};

/// Archives come in blocks of this many bytes.
const BLOCK: usize = 512;
/// Content is given in pieces of at most this many bytes.
const PIECE: u64 = 64 * 1024;
/// Bytes of one PAX header or long name: a path of 2 KiB, a target of 4 KiB, and what else tools note.
const MAX_META: u64 = 64 * 1024;
/// Bytes of a symbolic link's target: Linux' own `PATH_MAX`, less the NUL.
const MAX_TARGET: usize = 4095;
/// Bytes of the names of all links together: they are kept until the end of the archive.
const MAX_LINK_NAMES: usize = 4 << 20;

// What an entry is, as a header says it.
const FILE: u8 = b'0';
const HARD: u8 = b'1';
const LINK: u8 = b'2';
const CHAR: u8 = b'3';
const BLOCK_DEVICE: u8 = b'4';
const DIR: u8 = b'5';
const FIFO: u8 = b'6';
const GNU_SPARSE: u8 = b'S';
// What only says more about the entry to come.
const PAX: u8 = b'x';
const PAX_GLOBAL: u8 = b'g';
const GNU_PATH: u8 = b'L';
const GNU_TARGET: u8 = b'K';

/// Reads one archive.
pub struct TarReader<R> {
    from: R,
    limits: TarLimits,
    /// The directory whose content is wanted, when all names begin with it.
    below: &'static str,
    /// Content of the entry given last that was not read yet, and the padding behind it.
    left: u64,
    padding: u64,
    entries: u64,
    bytes: u64,
    skipped: u64,
    links: BTreeSet<RelPath>,
    link_names: usize,
    /// Every name so far, if it reads strictly.
    names: Option<Names>,
    over: bool,
}

impl<R: AsyncRead + Unpin> TarReader<R> {
    /// A reader of what comes from `from`.
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

    /// Takes `dir/a` for `a`, as engines name what they archive; a name that is not below `dir` is an error.
    #[must_use]
    pub fn below(mut self, dir: &'static str) -> Self {
        self.below = dir;
        self
    }

    /// Refuses an archive in which one entry takes away what another brought, or that names an entry in two ways. For
    /// whatever is to be had whole or not at all; what is rescued from a lost container is read without this.
    #[must_use]
    pub fn strictly(mut self) -> Self {
        self.names = Some(Names::default());
        self
    }

    /// Entries so far that are neither file, directory nor link: devices, FIFOs, and what nobody knows.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The source, for what may come behind the archive.
    pub fn into_inner(self) -> R {
        self.from
    }

    /// The next entry; what was not read of the one before is passed over. `None` at the archive's end, which is
    /// two blocks of zeros, one at the source's end, or just that end.
    ///
    /// # Errors
    /// See [`TarError`]; the reader is then only good to be dropped.
    pub async fn next(&mut self) -> Result<Option<Member>, TarError> {
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
            let own_size = self.number(&header.as_old().size, "its size is no number")?;
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

    /// The next piece of the content of the file given last; `None` at its end.
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

    /// An entry that is one: neither PAX nor GNU's way to say more about another. `None` for one to be skipped.
    fn member(&mut self, header: &Header, own_size: u64, extra: Extra) -> Result<Option<Member>, TarError> {
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
            0 if name.ends_with(b"/") => DIR, // as tar had it before it had a type for directories
            0 => FILE,
            flag => flag,
        };
        let has_content = match flag {
            HARD | LINK | CHAR | BLOCK_DEVICE | DIR | FIFO => false,
            GNU_SPARSE => return Err(self.refused(&name, "is sparse in a way that is not taken")),
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
            // `.`, the root of it all, is there anyway.
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
                    return Err(self.refused(&name, "is one link too many"));
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
        let mode = self.number(&header.as_old().mode, "its mode is no number")?;
        let mtime = self.number(&header.as_old().mtime, "its time is no number")?;
        Ok(Some(Member {
            path,
            kind,
            mode: u32::try_from(mode & 0o777).unwrap_or_default(),
            mtime_ns: extra.mtime_ns.unwrap_or(mtime.saturating_mul(1_000_000_000)),
        }))
    }

    /// A name as the store has it; `None` for the root.
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

    /// Passes over what is left of the last entry.
    async fn pass_content(&mut self) -> Result<(), TarError> {
        while self.piece().await?.is_some() {}
        let mut rest = [0; BLOCK];
        let rest = &mut rest[..usize::try_from(std::mem::take(&mut self.padding)).unwrap_or_default()];
        // The very last padding may be missing: some tools leave it out.
        self.fill(rest).await.map(drop)
    }

    /// The next header, its checksum right; `None` at the end.
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
        // Some old tools summed signed bytes.
        let wanted = number(&header.as_old().cksum);
        if wanted != Some(sums.0) && wanted != Some(sums.1) {
            return Err(TarError::Damaged { entry: self.entries + 1, what: "its checksum is wrong" });
        }
        Ok(Some(header))
    }

    /// The content of an entry that only describes the next.
    async fn meta(&mut self, size: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_META {
            return Err(self.damaged("it says more about another entry than is ever needed"));
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

    /// Reads until `buffer` is full or the source ends; how many bytes came.
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
