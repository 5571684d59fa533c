//! Data in, a run that reads and writes it, data out: the files of each sample, and whether they came out
//! right.
//!
//! It must never send the same content twice, nor accept an answer that was not compared byte by byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tar::{Archive, Builder, EntryType, Header};

use crate::Result;

/// The small files.
const MANY: usize = 1000;
/// Bytes of each of them, at least; consecutive files have different sizes.
const SMALL: usize = 512;
/// One read of what the engine sends.
const PIECE: usize = 256 * 1024;

/// The files that go in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// `in.bin` of this many bytes; the run makes `out.bin` of it.
    One(usize),
    /// Small files in `many/`; the run writes each anew.
    Many,
}

/// Files by name.
pub(crate) type FileSet = BTreeMap<String, Vec<u8>>;

impl Payload {
    /// New content each time, so that nothing can be cached.
    pub(crate) fn content(self) -> FileSet {
        let mut bytes = random();
        let mut some = |size| bytes.by_ref().take(size).collect();
        match self {
            Self::One(size) => FileSet::from([("in.bin".to_owned(), some(size))]),
            Self::Many => {
                let size = |n| SMALL + n % 7 * SMALL;
                (0..MANY).map(|n| (format!("many/{}/{n}", n % 10), some(size(n)))).collect()
            }
        }
    }

    /// The code of the run: it swaps the halves, so that every byte is read, and written to another place.
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::One(_) => {
                "b = memoryview(open('/data/in.bin', 'rb').read())\nh = len(b) // 2\n\
                 with open('/data/out.bin', 'wb') as f: f.write(b[h:]); f.write(b[:h])"
            }
            Self::Many => {
                "import os\nfor d, _, names in os.walk('/data/many'):\n    for n in names:\n        \
                 p = d + '/' + n\n        b = open(p, 'rb').read()\n        h = len(b) // 2\n        \
                 open(p, 'wb').write(b[h:] + b[:h])"
            }
        }
    }

    /// The files that must come out.
    pub(crate) fn made_of(self, files: &FileSet) -> FileSet {
        let swapped =
            |content: &[u8]| [&content[content.len() / 2..], &content[..content.len() / 2]].concat();
        let name = |name: &str| if self == Self::Many { name.to_owned() } else { "out.bin".to_owned() };
        files.iter().map(|(at, content)| (name(at), swapped(content))).collect()
    }

    /// The path that comes out.
    pub(crate) fn out(self) -> &'static str {
        match self {
            Self::One(_) => "out.bin",
            Self::Many => "many",
        }
    }
}

fn random() -> impl Iterator<Item = u8> {
    let mut state = paddock::id::random_u64() | 1;
    let words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten()
}

/// A tar of these files, owned by this user id.
pub(crate) async fn tar(files: &FileSet, uid: u32) -> io::Result<Bytes> {
    let header = |kind, mode, size: usize| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header.set_uid(uid.into());
        header.set_gid(uid.into());
        header
    };
    let mut builder = Builder::new(Vec::new());
    builder.append_data(&mut header(EntryType::Directory, 0o700, 0), ".", tokio::io::empty()).await?;
    let mut above = BTreeSet::new();
    for (name, content) in files {
        let mut dirs: Vec<_> = Path::new(name).ancestors().skip(1).collect();
        dirs.retain(|dir| dir.file_name().is_some() && !above.contains(*dir));
        for dir in dirs.iter().rev() {
            builder.append_data(&mut header(EntryType::Directory, 0o755, 0), dir, tokio::io::empty()).await?;
        }
        above.extend(dirs.into_iter().map(Path::to_owned));
        builder
            .append_data(&mut header(EntryType::Regular, 0o644, content.len()), name, &content[..])
            .await?;
    }
    builder.into_inner().await.map(Bytes::from)
}

/// Unpacks a tar below `dir` and syncs it, as the daemon has done by the time that it answers.
pub(crate) async fn save(tar: impl AsyncRead + Send + Unpin, dir: &Path) -> Result<()> {
    let mut archive = Archive::new(tar);
    let mut entries = archive.entries()?;
    let mut buffer = vec![0; PIECE];
    let mut files = Vec::new();
    while let Some(entry) = futures_util::StreamExt::next(&mut entries).await {
        let mut entry = entry?;
        let at = dir.join(entry.path()?);
        if entry.header().entry_type().is_dir() {
            fs::create_dir_all(&at)?;
            continue;
        }
        let mut file = File::create(at)?;
        loop {
            match entry.read(&mut buffer).await? {
                0 => break,
                n => file.write_all(&buffer[..n])?,
            }
        }
        files.push(file);
    }
    // To sync many files one by one would take much longer.
    if let [file] = &files[..] {
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    } else {
        rustix::fs::syncfs(File::open(dir)?)?;
    }
    Ok(())
}

/// The files of a tar, without its directories.
pub(crate) async fn unpacked(tar: &[u8]) -> Result<FileSet> {
    let mut archive = Archive::new(tar);
    let mut entries = archive.entries()?;
    let mut files = FileSet::new();
    while let Some(entry) = futures_util::StreamExt::next(&mut entries).await {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = entry.path()?.to_str().ok_or("a name that is no text")?.to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).await?;
            files.insert(name, content);
        }
    }
    Ok(files)
}

/// Compares what came out with what should have come out.
pub(crate) fn compare(got: &FileSet, expected: &FileSet) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    let differs = expected.iter().find(|(name, content)| got.get(*name) != Some(content));
    let name = differs.map_or("a file that nobody made", |(name, _)| name);
    Err(format!("what came out is not what should have: {name}; {} files of {}", got.len(), expected.len())
        .into())
}
