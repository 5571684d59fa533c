//! `paddock backup` and `paddock restore` from a terminal.
//!
//! A restore must never touch a store that a daemon uses, and never bring tokens back without saying so.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, StreamExt};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

use super::target::to_new_file;
use super::unpack::unpack;
use super::{BackupError, PATH, pack};
use crate::api::SocketKind;
use crate::app::store_options;
use crate::config::{Config, Overrides};
use crate::store::{FORMAT_FILE, Store, is_vacant};
use crate::tenants::tokens_in;

/// The name for standard input and output.
const STANDARD: &str = "-";
/// Exit code for a configuration that cannot be used.
const UNUSABLE: u8 = 2;
/// Bytes of the daemon's message about why there is no backup.
const MESSAGE: usize = 64 * 1024;
/// The file of a store that identifies its daemons to an engine.
const OWNER: &str = "owner";

/// The command line of `paddock backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArguments {
    /// The file to write, which must not exist; - for standard output
    file: PathBuf,
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// The command line of `paddock restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArguments {
    /// The backup; - for standard input
    file: PathBuf,
    /// Replace the store that is there; its files are gone afterwards
    #[arg(long)]
    force: bool,
    /// Take over the containers and workspaces that the backed-up store has on its engine. Only for an engine
    /// where no other daemon uses that store any more
    #[arg(long)]
    same_owner: bool,
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Writes a backup. Returns the exit code.
pub fn backup(arguments: &BackupArguments, env: &BTreeMap<String, String>) -> u8 {
    let loaded = Config::load(arguments.config.as_deref(), env, &arguments.overrides.serving_nobody());
    run(loaded.map(|loaded| loaded.config), async |config| {
        let bytes = write_backup(&config, &arguments.file).await?;
        let (root, to) = (config.store.root.display(), arguments.file.display());
        Ok(format!("{bytes} bytes of the store {root} are in {to}; it contains secrets"))
    })
}

/// Restores a backup. Returns the exit code.
pub fn restore(arguments: &RestoreArguments, env: &BTreeMap<String, String>) -> u8 {
    let loaded = Config::load(arguments.config.as_deref(), env, &arguments.overrides.serving_nobody());
    run(loaded.map(|loaded| loaded.config), async |config| read_backup(&config, arguments).await)
}

/// Runs a command with its configuration, and says how it ended.
fn run<E: std::fmt::Display>(
    config: Result<Config, E>,
    command: impl AsyncFnOnce(Config) -> Result<String, BackupError>,
) -> u8 {
    let say = |text: &dyn std::fmt::Display| drop(writeln!(io::stderr(), "paddock: {text}"));
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            say(&error);
            return UNUSABLE;
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&error);
            return 1;
        }
    };
    let ended = runtime.block_on(command(config));
    runtime.shutdown_background(); // a read of standard input may never return
    match ended {
        Ok(done) => {
            say(&done);
            0
        }
        Err(error) => {
            say(&error);
            1
        }
    }
}

/// Writes a backup to a file that has its name only once it is complete.
async fn write_backup(config: &Config, file: &Path) -> Result<u64, BackupError> {
    if file == Path::new(STANDARD) {
        if io::stdout().is_terminal() {
            let why = "a backup is no text for a terminal: name a file, or redirect the output";
            return Err(BackupError::Refused(why.to_owned()));
        }
        return fetch(config, &mut io::stdout(), "cannot write to standard output").await;
    }
    let what = format!("cannot write {}", file.display());
    to_new_file(file, async |to: &mut File| fetch(config, to, &what).await).await
}

/// Writes the archive of the store: the running daemon makes it, or else this process.
async fn fetch(config: &Config, to: &mut impl Write, what: &str) -> Result<u64, BackupError> {
    let root = &config.store.root;
    match SocketKind::Http.connect(root).await {
        Ok(socket) => from_daemon(socket, to, what).await,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(BackupError::Daemon(format!("{error}: run this as the user of the daemon")))
        }
        Err(_) => {
            // A store that was just restored has no owner yet.
            if ![OWNER, FORMAT_FILE].iter().any(|name| root.join(name).exists()) {
                return Err(BackupError::Refused(format!("there is no store at {}", root.display())));
            }
            let store = Arc::new(Store::open(root, store_options(config))?);
            let archive = Box::pin(pack(store.snapshot().await?));
            let bytes = copy(archive, to, what).await?;
            store.close().await;
            Ok(bytes)
        }
    }
}

/// The archive from the daemon that has this socket.
async fn from_daemon(socket: UnixStream, to: &mut impl Write, what: &str) -> Result<u64, BackupError> {
    let broke = |error: hyper::Error| BackupError::Daemon(format!("the connection broke: {error}"));
    let (mut sender, connection) = handshake(TokioIo::new(socket)).await.map_err(broke)?;
    let _driving = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::get(PATH).header(HOST, "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| BackupError::Daemon(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(broke)?;
    let status = response.status();
    if status != StatusCode::OK {
        let said = Limited::new(response.into_body(), MESSAGE).collect().await;
        let said = said.map(|said| said.to_bytes()).unwrap_or_default();
        let why = format!("it answers {status}: {}", String::from_utf8_lossy(&said));
        return Err(BackupError::Daemon(why));
    }
    let archive = response.into_body().into_data_stream();
    let broke = |error| io::Error::other(format!("{error}; the log of the daemon may say why"));
    copy(archive.map(|piece| piece.map_err(broke)), to, what).await
}

async fn copy(
    mut archive: impl Stream<Item = io::Result<Bytes>> + Unpin,
    to: &mut impl Write,
    what: &str,
) -> Result<u64, BackupError> {
    let mut bytes = 0;
    while let Some(piece) = archive.next().await {
        let piece = piece.map_err(BackupError::io("the backup is incomplete"))?;
        to.write_all(&piece).map_err(BackupError::io(what))?;
        bytes += piece.len() as u64;
    }
    to.flush().map_err(BackupError::io(what))?;
    Ok(bytes)
}

/// Restores a backup to the place of the configured store.
async fn read_backup(config: &Config, arguments: &RestoreArguments) -> Result<String, BackupError> {
    let root = &config.store.root;
    let failed = || BackupError::io(format!("cannot read {}", root.display()));
    let is_free = !root.exists() || is_vacant(root).map_err(failed())?;
    if !is_free && !arguments.force {
        let why = format!(
            "{} is not empty: name another folder by --store, or replace what is there by --force",
            root.display()
        );
        return Err(BackupError::Refused(why));
    }
    let mut unpacked = Default::default();
    let owner = std::fs::read(root.join(OWNER)).ok();
    Store::put_in_place(root, async |folder: &Path| {
        unpacked = if arguments.file == Path::new(STANDARD) {
            unpack(tokio::io::stdin(), folder).await?
        } else {
            let from = tokio::fs::File::open(&arguments.file).await;
            let from = from.map_err(BackupError::io(format!("cannot read {}", arguments.file.display())))?;
            unpack(tokio::io::BufReader::new(from), folder).await?
        };
        if arguments.same_owner {
            return Ok(());
        }
        // What is on this engine belongs to the store that was here; a store in a new place has nothing.
        let own = folder.join(OWNER);
        let changed = std::fs::remove_file(&own).and_then(|()| match owner {
            Some(owner) => {
                let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own)?;
                file.write_all(&owner)
            }
            None => Ok(()),
        });
        changed.map_err(BackupError::io("the backup has no owner"))
    })
    .await?;
    let (files, bytes) = (unpacked.files, unpacked.bytes);
    let tokens = restored_tokens(root, &config.auth.tokens_file.path);
    let restored = format!("{files} files with {bytes} bytes are restored to {}", root.display());
    Ok(format!("{restored}; start the daemon{tokens}"))
}

/// What the operator must know about tokens that came with the backup; nothing if none did.
fn restored_tokens(root: &Path, file: &Path) -> String {
    let Ok(changed) = file.metadata().and_then(|meta| meta.modified()) else { return String::new() };
    if !file.starts_with(root) {
        return String::new();
    }
    let (count, changed) = (tokens_in(file), humantime::format_rfc3339_seconds(changed));
    let tokens = if count == 1 { "token" } else { "tokens" };
    format!(
        ". The file of tokens is that of the backup, as it has been since {changed}, with {count} {tokens}: \
         every token that was revoked later is valid again, so look at `paddock token list` first"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_spoken_of_where_they_came_with_the_backup() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = dir.path().join("tokens.toml");
        assert_eq!(restored_tokens(dir.path(), &file), "");
        let token = |name: &str| format!("[[tokens]]\nname = {name:?}\nsha256 = {:?}\n", name.repeat(64));
        std::fs::write(&file, token("a") + &token("b")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        let said = restored_tokens(dir.path(), &file);
        assert!(said.contains("since 2023-11-14T22:13:20Z, with 2 tokens"), "{said}");
        assert_eq!(restored_tokens(elsewhere.path(), &file), "");
    }
}
