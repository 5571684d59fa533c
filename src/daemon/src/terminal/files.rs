//! Files in and out: which files the arguments name, and where the files of a program are written.
//!
//! A program chooses the names of its files. This module must never write outside the given folder, whatever
//! the names are.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use paddock_proto::RelPath;
use serde_json::Value;

use super::Failed;
use super::client::Client;
use super::progress::ProgressLine;
use crate::printable::printable;

/// Levels of folders below a given one.
const DEPTH: usize = 32;

/// A file for the program, and its name in `/data`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputFile {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl InputFile {
    /// The files that these arguments name, with those in folders; and a list of entries of those folders
    /// that are not files.
    pub(super) fn look(arguments: &[String]) -> Result<(Vec<Self>, Vec<String>), Failed> {
        let (mut all, mut left_out) = (Vec::new(), Vec::new());
        for argument in arguments {
            let (path, name) = split(argument);
            let unreadable =
                |error: io::Error| Failed::Message(format!("cannot read {}: {error}", path.display()));
            let found = std::fs::metadata(&path).map_err(unreadable)?;
            let name = match name.or_else(|| own_name(&path)) {
                Some(name) => name,
                None => {
                    return Err(Failed::Message(format!(
                        "{argument:?} has no name of its own; give one as PATH:NAME"
                    )));
                }
            };
            if RelPath::new(name.as_bytes()).is_err() {
                return Err(Failed::Message(format!(
                    "{name:?} cannot be a name below /data; give another as PATH:NAME"
                )));
            }
            if found.is_dir() {
                below(&path, &name, DEPTH, (&mut all, &mut left_out)).map_err(unreadable)?;
            } else {
                all.push(Self { path, name });
            }
        }
        Ok((all, left_out))
    }
}

/// Splits `PATH:NAME`, unless there is a file with exactly that name.
fn split(argument: &str) -> (PathBuf, Option<String>) {
    match argument.rsplit_once(':') {
        Some((path, name)) if !path.is_empty() && !name.is_empty() && !Path::new(argument).exists() => {
            (PathBuf::from(path), Some(name.trim_start_matches("/data/").to_owned()))
        }
        Some(_) | None => (PathBuf::from(argument), None),
    }
}

fn own_name(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The regular files below a folder. Symbolic links are left out, since they lead elsewhere.
fn below(
    folder: &Path,
    name: &str,
    depth: usize,
    (all, left_out): (&mut Vec<InputFile>, &mut Vec<String>),
) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other(format!("its folders are more than {DEPTH} deep")));
    }
    let mut entries = std::fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let file_name = entry.file_name();
        let Some(own) = file_name.to_str() else {
            return Err(io::Error::other(format!("{} has no UTF-8 name", entry.path().display())));
        };
        let (path, name) = (entry.path(), format!("{name}/{own}"));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            below(&path, &name, depth - 1, (&mut *all, &mut *left_out))?;
        } else if kind.is_file() {
            all.push(InputFile { path, name });
        } else {
            left_out.push(format!(
                "{} is a {}",
                path.display(),
                if kind.is_symlink() { "link" } else { "special file" }
            ));
        }
    }
    Ok(())
}

/// The names of the files that a run made or changed, relative to `/data`. An answer lists at most the first
/// hundred; if there are more, this returns all files of the session.
async fn made(client: &Client, session: &str, document: &Value) -> Result<BTreeSet<String>, Failed> {
    let mut names: BTreeSet<String> = listed(&document["artifacts"]);
    if document["artifacts_truncated"] == true {
        let mut cursor = None;
        loop {
            let page = client.list(session, cursor.as_deref()).await?;
            names.extend(listed(&page["artifacts"]));
            cursor = page["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(names)
}

fn listed(artifacts: &Value) -> BTreeSet<String> {
    let paths = artifacts.as_array().into_iter().flatten().filter_map(|artifact| artifact["path"].as_str());
    paths.map(|path| path.strip_prefix("/mnt/data/").unwrap_or(path).to_owned()).collect()
}

/// Writes the files that a program or a task made or changed to a folder; returns how many could not be
/// written. Their names reach the terminal only in a printable form.
pub(super) async fn download(
    client: &Client,
    session: &str,
    (document, folder): (&Value, &Path),
    progress: &ProgressLine,
) -> Result<usize, Failed> {
    let mut failed = 0;
    for name in made(client, session, document).await? {
        if let Some(why) = left_out(&name) {
            progress.complain(&why);
            continue;
        }
        progress.say(&format!("downloading {}", printable(&name)));
        let got = match path_for(folder, &name) {
            Ok(place) => client.get(session, &name, &place).await,
            Err(error) => Err(error),
        };
        if let Err(error) = got {
            progress.complain(&printable(&error.to_string()));
            failed += 1;
        }
    }
    progress.clear();
    Ok(failed)
}

/// Why a file is not written to a folder of this machine, whatever it contains: git runs programs that a
/// repository's own files name.
pub(super) fn left_out(name: &str) -> Option<String> {
    let is_of_a_repository = name.split('/').any(|part| part.eq_ignore_ascii_case(".git"));
    is_of_a_repository
        .then(|| format!("{} is not downloaded: it is part of a git repository", printable(name)))
}

/// Makes the folder for the program's files: before anything runs, so that no result is lost because it is
/// missing.
pub(super) fn make(folder: &Path) -> Result<(), Failed> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failed::Message(format!("cannot make the folder {}: {error}", folder.display())))
}

/// The path for a file of this name; makes its folders.
pub(super) fn path_for(folder: &Path, name: &str) -> Result<PathBuf, Failed> {
    let relative = Path::new(name);
    let is_below = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_below || name.is_empty() {
        return Err(Failed::Message(format!("{name:?} cannot be the name of a file below a folder")));
    }
    let unmade = |error: io::Error| Failed::Message(format!("cannot make {}: {error}", folder.display()));
    make(folder)?;
    let top = folder.canonicalize().map_err(unmade)?;
    let place = top.join(relative);
    let parent = place.parent().unwrap_or(&top);
    std::fs::create_dir_all(parent).map_err(unmade)?;
    // A symbolic link in the folder may lead outside, and the name may go through it.
    if !parent.canonicalize().map_err(unmade)?.starts_with(&top) || place.is_symlink() {
        return Err(Failed::Message(format!("{} leads out of {}", place.display(), folder.display())));
    }
    Ok(place)
}
