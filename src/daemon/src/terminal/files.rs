//! Files in and out: which are meant, and where those go that a program made.
//!
//! The names of what comes out are the program's. It must never write outside the folder that was named, whatever they are.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use paddock_proto::RelPath;
use serde_json::Value;

use super::Failed;
use super::client::Client;

/// Folders below a folder that is given.
const DEPTH: usize = 32;

/// A file for the program, and its name in `/data`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) path: PathBuf,
    pub(super) name: String,
}

impl Given {
    /// The files that are meant by these arguments, those of folders included; and what is in those folders and is no file.
    pub(super) fn look(arguments: &[String]) -> Result<(Vec<Self>, Vec<String>), Failed> {
        let (mut all, mut left_out) = (Vec::new(), Vec::new());
        for argument in arguments {
            let (path, name) = split(argument);
            let unreadable =
                |error: io::Error| Failed::Said(format!("cannot read {}: {error}", path.display()));
            let found = std::fs::metadata(&path).map_err(unreadable)?;
            let name = match name.or_else(|| own_name(&path)) {
                Some(name) => name,
                None => {
                    return Err(Failed::Said(format!(
                        "{argument:?} has no name of its own; give one: PATH:NAME"
                    )));
                }
            };
            if RelPath::new(name.as_bytes()).is_err() {
                return Err(Failed::Said(format!(
                    "{name:?} is no name below /data; give another: PATH:NAME"
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

/// `PATH:NAME`, unless there is a file of that very name.
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

/// The regular files below a folder. Links are passed over: they lead elsewhere.
fn below(
    folder: &Path,
    name: &str,
    depth: usize,
    (all, left_out): (&mut Vec<Given>, &mut Vec<String>),
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
            all.push(Given { path, name });
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

/// The names of the files that a run made or changed, relative to `/data`. An answer has no more than the first hundred: of
/// more, all of the session are meant.
pub(super) async fn made(
    client: &Client,
    session: &str,
    document: &Value,
) -> Result<BTreeSet<String>, Failed> {
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

/// Makes the folder for what comes out: before anything runs, so that no result is lost for want of it.
pub(super) fn make(folder: &Path) -> Result<(), Failed> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failed::Said(format!("cannot make the folder {}: {error}", folder.display())))
}

/// Where a file of this name goes; its folders are made.
pub(super) fn place(folder: &Path, name: &str) -> Result<PathBuf, Failed> {
    let relative = Path::new(name);
    let is_below = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_below || name.is_empty() {
        return Err(Failed::Said(format!("{name:?} is no name of a file below a folder")));
    }
    let unmade = |error: io::Error| Failed::Said(format!("cannot make {}: {error}", folder.display()));
    make(folder)?;
    let top = folder.canonicalize().map_err(unmade)?;
    let place = top.join(relative);
    let parent = place.parent().unwrap_or(&top);
    std::fs::create_dir_all(parent).map_err(unmade)?;
    // A link in the folder may lead out of it, and the name be meant to go through it.
    if !parent.canonicalize().map_err(unmade)?.starts_with(&top) || place.is_symlink() {
        return Err(Failed::Said(format!("{} leads out of {}", place.display(), folder.display())));
    }
    Ok(place)
}
