//! Checks the settings of mounts and drop folders: their names, their paths, and that no path leads to a
//! place that programs must not see.
//!
//! This module must never look at a folder that a program may see: the engine may be on another machine. The
//! pool does where it can. Only of the daemon's own files it finds out where links lead.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use paddock_proto::limits::DATA_ALIASES;

use super::Checker;
use super::runners::{TAKES_LANGUAGE, is_language};
use super::services::credential_file;
use crate::config::error::ConfigError;
use crate::config::raw::{DropTable, MountTable};
use crate::config::types::{AuthSettings, DropSettings, EngineSettings, MountSettings, StoreSettings};
use crate::pool::mount::{PARENT, places, touches};
use crate::sign::DEFAULT_OWNER;

/// Mounts of one daemon. Each is a mount of every container, and a sentence that every model reads.
const MOUNTS: usize = 16;
/// Characters of what a mount is about: a model reads it in every list of tools.
const ABOUT: usize = 200;
/// Characters of a name.
const NAME: usize = 32;

/// Folders with sockets, secrets and devices of the host, or with the files of other containers.
const CLOSED: [&str; 7] =
    ["/proc", "/sys", "/dev", "/run", "/var/run", "/var/lib/docker", "/var/lib/containerd"];

/// Names the folder with the sockets of a user: that of a rootless engine is there.
const RUNTIME_DIRECTORY: &str = "XDG_RUNTIME_DIR";

impl Checker<'_> {
    pub(super) fn mounts(
        &self,
        raw: Vec<MountTable>,
        store: &StoreSettings,
        engine: &EngineSettings,
    ) -> Result<Vec<MountSettings>, ConfigError> {
        if raw.len() > MOUNTS {
            return Err(self.fail("mounts", format!("has {} entries, must have at most {MOUNTS}", raw.len())));
        }
        let closed = self.closed(store, engine);
        let mut names = BTreeSet::new();
        let mut mounts = Vec::new();
        for (at, MountTable { name, path, about, runners }) in raw.into_iter().enumerate() {
            let key = |key: &str| format!("mounts[{at}].{key}");
            self.mount_name(&key("name"), &name)?;
            if !names.insert(name.clone()) {
                return Err(self.fail(&key("name"), format!("is {name:?}, which another mount has too")));
            }
            let path = self.mount_path(&key("path"), &path, &closed)?;
            if about.chars().count() > ABOUT || about.chars().any(char::is_control) {
                let problem = format!("takes one line of at most {ABOUT} characters");
                return Err(self.fail(&key("about"), problem));
            }
            if let Some(wrong) = runners.iter().find(|name| !is_language(name)) {
                let problem = format!("has {wrong:?}; a runner's name {TAKES_LANGUAGE}");
                return Err(self.fail(&key("runners"), problem));
            }
            mounts.push(MountSettings { name, path, about, runners });
        }
        Ok(mounts)
    }

    pub(super) fn drops(
        &self,
        raw: Vec<DropTable>,
        auth: &AuthSettings,
        (store, engine): (&StoreSettings, &EngineSettings),
    ) -> Result<Vec<DropSettings>, ConfigError> {
        let closed = self.closed(store, engine);
        let mut all: Vec<DropSettings> = Vec::new();
        for (at, DropTable { tenant, path }) in raw.into_iter().enumerate() {
            let key = |key: &str| format!("drops[{at}].{key}");
            let tenant = tenant.unwrap_or_else(|| DEFAULT_OWNER.to_owned());
            let is_known = tenant == DEFAULT_OWNER
                || auth.tokens.iter().any(|token| token.name == tenant)
                || auth.tokens_file.guards(); // one of its tokens may have the name, now or later
            if !is_known {
                let problem = format!("is {tenant:?}, which is the name of no token of auth.tokens");
                return Err(self.fail(&key("tenant"), problem));
            }
            if all.iter().any(|other| other.tenant == tenant) {
                return Err(self.fail(&key("tenant"), format!("is {tenant:?}, which has a folder already")));
            }
            let path = self.mount_path(&key("path"), &path, &closed)?;
            let overlaps =
                |other: &&DropSettings| other.path.starts_with(&path) || path.starts_with(&other.path);
            if let Some(other) = all.iter().find(overlaps) {
                let problem = format!("is {path:?}, which tenant {:?} has, or has a part of", other.tenant);
                return Err(self.fail(&key("path"), problem));
            }
            all.push(DropSettings { tenant, path });
        }
        Ok(all)
    }

    fn mount_name(&self, key: &str, name: &str) -> Result<(), ConfigError> {
        let of_a_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        let is_name = (1..=NAME).contains(&name.len())
            && name.bytes().all(of_a_name)
            && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if !is_name {
            let problem =
                format!("is {name:?}, takes up to {NAME} of a-z, 0-9, _ and -, a letter or digit first");
            return Err(self.fail(key, problem));
        }
        let target = format!("{PARENT}/{name}");
        if DATA_ALIASES.contains(&target.as_str()) {
            let problem = format!("is {name:?}, but {target} is the session's own folder: take another name");
            return Err(self.fail(key, problem));
        }
        Ok(())
    }

    fn mount_path(&self, key: &str, given: &str, closed: &[PathBuf]) -> Result<PathBuf, ConfigError> {
        let path = Path::new(given);
        let is_plain =
            path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // As it is written, since components leave out `//`, `/./` and a slash at the end.
        let plain: PathBuf = path.components().collect();
        if !path.is_absolute() || !is_plain || plain.as_os_str() != path.as_os_str() {
            let problem =
                format!("is {given:?}, takes an absolute path without `.`, `..` and a slash at the end");
            return Err(self.fail(key, problem));
        }
        if given.chars().any(char::is_control) {
            return Err(self.fail(key, format!("is {given:?}, must have no control characters")));
        }
        match closed.iter().find_map(|closed| touches(path, closed)) {
            Some(why) => Err(self.fail(key, format!("is {given:?}, which {why}"))),
            None => Ok(plain),
        }
    }
    /// What nobody may mount: folders of the host, and what the daemon itself reads and writes.
    fn closed(&self, store: &StoreSettings, engine: &EngineSettings) -> Vec<PathBuf> {
        let mut closed: Vec<PathBuf> = CLOSED.iter().map(PathBuf::from).collect();
        closed.push(store.root.clone());
        closed.extend(engine.host.strip_prefix("unix://").map(PathBuf::from));
        closed.extend(engine.certificates.clone());
        closed.extend(self.env.get(RUNTIME_DIRECTORY).map(PathBuf::from));
        let texts = self.layers.texts_outside(&["mounts", "drops"]);
        let named = texts.into_iter().filter_map(credential_file);
        let single = [("egress", "ca_bundle"), ("log", "file"), ("http", "tls_key")];
        let single = single.iter().filter_map(|(table, key)| self.layers.text(table, key)).map(Path::new);
        let files = named.chain(single).chain(self.layers.file());
        closed.extend(files.filter_map(|file| std::path::absolute(file).ok()));
        // The root of the host is above everything: to close it would close all.
        closed.retain(|path| path.is_absolute() && path.parent().is_some());
        closed.iter().flat_map(|path| places(path)).collect()
    }
}
