//! The file of tokens: `[[tokens]]` with the keys of `[[auth.tokens]]`, on its own, so that a command can
//! write it and the daemon take it up while it runs.
//!
//! ```text
//!  paddock token add ─► lock the folder ─► read, change ─► new file (0600, synced) ─► rename over the old
//!  daemon ─► look every 250 ms (mtime, inode, size) ─► read ─► a new book, or what stood and a warning
//! ```
//!
//! It is looked at, not watched by inotify: a look costs one `stat`, and sees what inotify does not, such as
//! the links that Kubernetes exchanges below a mounted secret, and files of other machines.
//!
//! It must never hold a token, only hashes; and nobody may ever find a half of it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::Deserialize;
use toml::{Table, Value};

use super::token::{KnownToken, MAX_TOKENS, TokenTable};
use crate::id::random_hex;

/// Bytes of the file: a thousand tokens with every limit take a quarter of it.
const MAX_BYTES: u64 = 1 << 20;

/// The mode bits with which others than its owner can change it.
const WRITABLE: u32 = 0o022;

/// What the mark says.
const MARK: &[u8] = b"Callers of this store need a token: it had a file of tokens. See auth.tokens_file.\n";

/// What stands at the top of the file.
const HEADING: &str = "# The tokens of paddock, each known by its SHA-256. `paddock token add|list|revoke`\n\
                       # write this file, and a running daemon takes up every change within a second.\n";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    #[serde(default)]
    tokens: Vec<TokenTable>,
}

/// Where further tokens stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensFile {
    /// The file, which may not exist yet.
    pub path: PathBuf,
    /// The file beside it that is made once it was there, so that a store that was guarded does not open
    /// because its tokens are gone. `None` for a file that the operator has named: it guards from the start.
    pub mark: Option<PathBuf>,
}

impl TokensFile {
    /// Whether nobody comes in without a token because of this file. What cannot be looked at is there.
    #[must_use]
    pub fn guards(&self) -> bool {
        self.mark.is_none() || is_there(&self.path)
    }

    /// Whether it was there at an earlier start.
    pub(crate) fn was_there(&self) -> bool {
        self.mark.as_deref().is_some_and(is_there)
    }

    /// Notes that it is there.
    pub(super) fn set_mark(&self) -> io::Result<()> {
        let Some(mark) = &self.mark else { return Ok(()) };
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(mark) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            other => other?,
        };
        file.write_all(MARK)?;
        file.sync_all()?;
        mark.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

pub(crate) fn is_there(path: &Path) -> bool {
    !matches!(path.try_exists(), Ok(false))
}

/// What shows that the file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The stamp of the file now; `None` if there is no file.
///
/// # Errors
/// The system's.
pub(super) fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the tokens of the file.
///
/// # Errors
/// Why it cannot be used, as a sentence without a secret.
pub(super) fn read(path: &Path) -> Result<Vec<KnownToken>, String> {
    parse(&text(path)?)
}

fn text(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("it cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if let Some(why) = distrusted(&meta) {
        return Err(why);
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    Ok(text)
}

/// Whoever can write it can give themselves a token.
fn distrusted(meta: &Metadata) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_file() {
        return Some("it is not a file".to_owned());
    }
    if meta.uid() != own && meta.uid() != 0 {
        let owner = meta.uid();
        return Some(format!(
            "it belongs to the user with the id {owner}, who can change it: `chown` it to {own}"
        ));
    }
    let mode = meta.mode() & 0o777;
    (mode & WRITABLE != 0)
        .then(|| format!("other users than its owner can write it (mode {mode:03o}): `chmod 600` it"))
}

/// The tokens of a text.
fn parse(text: &str) -> Result<Vec<KnownToken>, String> {
    // The message of the parser can quote a line, and so the hash in it.
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
        format!("it is not TOML: line {line}: {}", error.message().lines().next().unwrap_or_default())
    })?;
    let shape: Result<FileTable, _> = serde_path_to_error::deserialize(table);
    let FileTable { tokens } =
        shape.map_err(|error| format!("{}: {}", error.path(), error.inner().message()))?;
    if tokens.len() > MAX_TOKENS {
        return Err(format!("it has {} tokens, must have at most {MAX_TOKENS}", tokens.len()));
    }
    let mut known: Vec<KnownToken> = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.into_iter().enumerate() {
        let token = token.check().map_err(|fault| format!("tokens[{at}].{} {}", fault.key, fault.problem))?;
        if known.iter().any(|other| other.sha256 == token.sha256) {
            return Err(format!(
                "tokens[{at}].sha256 is the digest of another token: one token has one name"
            ));
        }
        known.push(token);
    }
    Ok(known)
}

/// Changes the file, or makes it. Two that change it at once do so one after the other.
///
/// # Errors
/// Why it was not changed.
pub(super) fn change<T>(
    path: &Path,
    change: impl FnOnce(&mut Vec<Value>) -> Result<T, String>,
) -> Result<T, String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| format!("{} is no name of a file", path.display()))?;
    let failed = |what: &str, error: io::Error| format!("{what} {}: {error}", path.display());
    let folder_file = File::open(folder)
        .map_err(|error| format!("cannot open the folder {}: {error}", folder.display()))?;
    rustix::fs::flock(&folder_file, FlockOperation::LockExclusive)
        .map_err(|error| failed("cannot lock the folder of", error.into()))?;
    let before = match fs::metadata(path) {
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("cannot read", error)),
    };
    let mut table: Table = match &before {
        Some(_) => {
            let text = text(path).map_err(|why| format!("{}: {why}", path.display()))?;
            parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
            text.parse().map_err(|_| format!("{} is not TOML", path.display()))?
        }
        None => Table::new(),
    };
    let mut tokens = match table.remove("tokens") {
        Some(Value::Array(tokens)) => tokens,
        Some(_) | None => Vec::new(),
    };
    let done = change(&mut tokens)?;
    table.insert("tokens".to_owned(), Value::Array(tokens));
    let text = format!("{HEADING}\n{}", toml::to_string(&table).map_err(|error| error.to_string())?);
    parse(&text)?; // what the daemon would not take is not written
    let owner = before.map_or_else(|| folder_file.metadata(), Ok).map_err(|e| failed("cannot read", e))?;
    let staged = folder.join(format!(".{}.{}", name.to_string_lossy(), random_hex::<4>()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(text.as_bytes())?;
        // A superuser that changes it for a daemon of another user must not take it away from that user.
        if rustix::process::geteuid().is_root() && owner.uid() != 0 {
            std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.sync_all()?;
        fs::rename(&staged, path)?;
        folder_file.sync_all()
    };
    write().inspect_err(|_| drop(fs::remove_file(&staged))).map_err(|error| failed("cannot write", error))?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn entry(name: &str, byte: u8) -> Value {
        let mut entry = Table::new();
        entry.insert("name".into(), name.into());
        entry.insert("sha256".into(), crate::id::hex(&[byte; 32]).into());
        Value::Table(entry)
    }

    fn add(path: &Path, name: &str, byte: u8) -> Result<(), String> {
        change(path, |tokens| {
            tokens.push(entry(name, byte));
            Ok(())
        })
    }

    #[test]
    fn it_is_made_for_its_owner_alone_and_changed_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        assert_eq!(stamp(&path).unwrap(), None);
        add(&path, "ann", 1).unwrap();
        let first = stamp(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        add(&path, "bob", 2).unwrap();
        assert_ne!(stamp(&path).unwrap(), first, "the change can be seen");
        let names: Vec<String> = read(&path).unwrap().into_iter().map(|token| token.name).collect();
        assert_eq!(names, ["ann", "bob"]);
        let why = add(&path, "a name", 3).unwrap_err();
        assert!(why.contains("tokens[2].name"), "{why}");
        assert!(add(&path, "eve", 1).unwrap_err().contains("one token has one name"));
        assert_eq!(read(&path).unwrap().len(), 2, "what is not good is not written");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn changes_at_the_same_time_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for byte in 0..16 {
                let path = &path;
                scope.spawn(move || add(path, "ann", byte).unwrap());
            }
        });
        assert_eq!(read(&path).unwrap().len(), 16);
    }

    #[test]
    fn a_file_that_is_no_good_is_refused_without_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let long = "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 1);
        for (text, said) in [
            ("tokens = [", "line 1"),
            ("[[tokens]]\nname = \"ann\"\nsha256 = \"s3cret-token\"", "tokens[0].sha256"),
            ("[[tokens]]\nname = \"ann\"\nsha256 = 7", "tokens[0].sha256"),
            ("[[token]]\nname = \"ann\"", "unknown field"),
            (long.as_str(), "bytes"),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let why = read(&path).unwrap_err();
            assert!(why.contains(said) && !why.contains("s3cret"), "{why}");
        }
        fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap().is_empty());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(read(&path).unwrap_err().contains("chmod 600"));
        assert!(read(folder.path()).unwrap_err().contains("not a file"));
        assert!(read(&folder.path().join("none")).is_err());
    }
}
