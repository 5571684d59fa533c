//! The proof at the start: a throwaway container, made like every other, is asked what it can do.
//!
//! A daemon whose containers are not what DESIGN promises must not serve. It must never be skipped, and never
//! judge by what was asked of the engine, only by what a process inside sees.

use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::{Facts, Quotas};
use paddock_proto::{Event, Request};

use super::container;
use super::core::Uid;
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::{Blueprint, Bounds};
use crate::engine::Engine;
use crate::link::{Incoming, LinkError};

/// The probe makes a few system calls and reads a few files.
const WITHIN: Duration = Duration::from_secs(10);

const EROFS: i32 = 30;
const EACCES: i32 = 13;

/// Why the proof failed.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// No container came up to be asked.
    #[error("no container of image {image} comes up: {error}")]
    Start {
        /// The image.
        image: String,
        /// What went wrong.
        error: String,
    },
    /// It came up and could not be asked.
    #[error("the container could not be probed: {0}")]
    Link(#[from] LinkError),
    /// It can do what it must not.
    #[error("containers on this engine are not confined as they must be: {}", .0.join("; "))]
    Unconfined(Vec<String>),
}

/// Starts a container, asks it, removes it, judges.
///
/// # Errors
/// See [`ProofError`]; the daemon must not serve then.
pub(super) async fn prove(
    engine: &Engine,
    blueprint: &Blueprint,
    runner: &Arc<Runner>,
    uid: Uid,
    terms: &AgentTerms,
) -> Result<Facts, ProofError> {
    let failed = |error: String| ProofError::Start { image: runner.image.clone(), error };
    let plan = blueprint.plan(runner, uid).ok_or_else(|| failed("no name can be made for it".to_owned()))?;
    let name = plan.name.clone();
    let started = container::start(engine, plan, uid, runner.clone(), terms).await;
    let facts = match &started {
        Ok(armed) => {
            let asked = ask(armed, None).await;
            asked.map_err(ProofError::from)
        }
        Err(error) => Err(failed(error.to_string())),
    };
    let removed = container::destroy(engine, &name, started.as_ref().ok().map(|armed| &armed.id)).await;
    let facts = facts?;
    removed.map_err(|error| failed(error.to_string()))?;
    let faults = judge(&facts, &blueprint.bounds, uid);
    if faults.is_empty() { Ok(facts) } else { Err(ProofError::Unconfined(faults)) }
}

/// What a process in there sees, with these quotas tried out.
///
/// # Errors
/// The link's.
pub(super) async fn ask(armed: &container::Armed, quotas: Option<Quotas>) -> Result<Facts, LinkError> {
    let asked = async {
        let stream = armed.link.request(&Request::Probe(quotas))?;
        loop {
            match stream.next().await? {
                Incoming::Event(Event::Facts(facts)) => return Ok(*facts),
                Incoming::Event(_) | Incoming::Data(..) => {}
                Incoming::End => return Err(LinkError::Refused),
            }
        }
    };
    tokio::time::timeout(WITHIN, asked).await.unwrap_or(Err(LinkError::Silent(WITHIN)))
}

/// What is demanded of a container, aspect by aspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// Whom it runs as.
    User,
    /// Capabilities.
    Capabilities,
    /// That nothing in there gains privileges.
    Privileges,
    /// The filter of system calls, and what it must refuse.
    Seccomp,
    /// That there is no network.
    Network,
    /// That the image cannot be written.
    Root,
    /// That `/data` can be written.
    Writing,
    /// The size of `/data`.
    Data,
    /// How many entries `/data` may have.
    Inodes,
    /// That `/data` has its other names.
    Names,
    /// The size of `/tmp`.
    Tmp,
}

/// A demand that does not hold, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What it is about.
    pub aspect: Aspect,
    /// What is wrong.
    pub text: String,
}

fn judge(facts: &Facts, bounds: &Bounds, uid: Uid) -> Vec<String> {
    faults(facts, bounds, uid).into_iter().map(|fault| fault.text).collect()
}

/// What is wrong with a container.
pub(super) fn faults(facts: &Facts, bounds: &Bounds, uid: Uid) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut demand = |aspect: Aspect, holds: bool, text: String| {
        if !holds {
            faults.push(Fault { aspect, text });
        }
    };
    demand(
        Aspect::User,
        facts.uids == [uid.0; 3],
        format!("processes run as UID {:?}, not {}", facts.uids, uid.0),
    );
    demand(
        Aspect::User,
        facts.gids == [uid.0; 3],
        format!("processes run as GID {:?}, not {}", facts.gids, uid.0),
    );
    let foreign: Vec<_> = facts.groups.iter().filter(|group| **group != uid.0).collect();
    demand(Aspect::User, foreign.is_empty(), format!("processes have the groups {foreign:?}"));
    demand(
        Aspect::Capabilities,
        facts.capabilities == 0,
        format!("capabilities {:#x} are left", facts.capabilities),
    );
    demand(Aspect::Privileges, facts.no_new_privs, "no-new-privileges is not set".to_owned());
    demand(
        Aspect::Seccomp,
        facts.seccomp == 2,
        format!("seccomp is in mode {}, not 2 (filter)", facts.seccomp),
    );
    demand(
        Aspect::Network,
        facts.interfaces.is_empty(),
        format!("there are network interfaces {:?}", facts.interfaces),
    );
    // Only a file system that can be written gets as far as asking whether this user may.
    let root_text = match facts.root_write_errno {
        0 => "a file can be created in /".to_owned(),
        errno => format!("/ is not mounted read-only (errno {errno})"),
    };
    let read_only = match facts.root_write_errno {
        EROFS => true,
        EACCES => facts.root_read_only,
        _ => false,
    };
    demand(Aspect::Root, read_only, root_text);
    demand(
        Aspect::Writing,
        facts.data_write_errno == 0,
        format!(
            "nothing can be written in /data (errno {}); does the engine map users?",
            facts.data_write_errno
        ),
    );
    demand(
        Aspect::Data,
        facts.data_bytes > 0 && facts.data_bytes <= bounds.data.next_multiple_of(4096),
        format!("/data has {} bytes, its quota is {}", facts.data_bytes, bounds.data),
    );
    demand(
        Aspect::Inodes,
        facts.data_inodes > 0 && facts.data_inodes <= bounds.data_inodes,
        format!("/data has {} inodes, its quota is {}", facts.data_inodes, bounds.data_inodes),
    );
    demand(Aspect::Names, facts.data_aliases, "/mnt/data or /workspace is not /data".to_owned());
    demand(
        Aspect::Tmp,
        facts.tmp_bytes > 0 && facts.tmp_bytes <= bounds.tmp.next_multiple_of(4096),
        format!("/tmp has {} bytes, its size is {}", facts.tmp_bytes, bounds.tmp),
    );
    for (call, errno) in &facts.refused {
        demand(Aspect::Seccomp, *errno != 0, format!("{call} goes through"));
    }
    demand(Aspect::Seccomp, !facts.refused.is_empty(), "the probe tried no system call".to_owned());
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            memory: 1 << 29,
            cpus: 1.0,
            pids: 128,
            data: 1 << 28,
            data_inodes: 16_384,
            tmp: 1 << 26,
            shm: 1 << 24,
            open_files: 1024,
            file_size: 1 << 28,
            runtime: String::new(),
        }
    }

    fn good() -> Facts {
        Facts {
            uids: [20_000; 3],
            gids: [20_000; 3],
            groups: vec![20_000],
            capabilities: 0,
            no_new_privs: true,
            seccomp: 2,
            interfaces: vec![],
            root_write_errno: EROFS,
            root_read_only: true,
            data_bytes: 1 << 28,
            data_inodes: 16_384,
            data_aliases: true,
            tmp_bytes: 1 << 26,
            refused: vec![("io_uring_setup".into(), 1)],
            landlock: 7,
            ..Facts::default()
        }
    }

    #[test]
    fn each_weakness_is_found_and_named() {
        assert_eq!(judge(&good(), &bounds(), Uid(20_000)), Vec::<String>::new());
        type Spoil = fn(&mut Facts);
        let spoil: [(&str, Spoil); 16] = [
            ("UID", |f| f.uids[1] = 0),
            ("GID", |f| f.gids = [0; 3]),
            ("groups", |f| f.groups.push(0)),
            ("capabilities", |f| f.capabilities = 1 << 21),
            ("no-new-privileges", |f| f.no_new_privs = false),
            ("seccomp", |f| f.seccomp = 0),
            ("eth0", |f| f.interfaces.push("eth0".into())),
            ("created in /", |f| f.root_write_errno = 0),
            ("read-only", |f| (f.root_write_errno, f.root_read_only) = (EACCES, false)),
            ("written in /data", |f| f.data_write_errno = EACCES),
            ("bytes", |f| f.data_bytes = 1 << 40),
            ("inodes", |f| f.data_inodes = 0),
            ("/workspace", |f| f.data_aliases = false),
            ("/tmp", |f| f.tmp_bytes = 1 << 40),
            ("io_uring_setup goes through", |f| f.refused[0].1 = 0),
            ("no system call", |f| f.refused.clear()),
        ];
        for (word, spoil) in spoil {
            let mut facts = good();
            spoil(&mut facts);
            let faults = judge(&facts, &bounds(), Uid(20_000));
            assert!(faults.len() == 1 && faults[0].contains(word), "{word}: {faults:?}");
        }
    }
}
