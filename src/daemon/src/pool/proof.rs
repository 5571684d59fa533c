//! The proof at the start: a probe in a throwaway container, made like every other, reports what a program
//! can do.
//!
//! A daemon whose containers are not confined must not serve. The proof must never be skipped, and must never
//! judge by what the daemon asked of the engine, only by what a process inside the container sees.

use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::{Outside, ProbeReport, Quotas};
use paddock_proto::{Event, Request};

use super::bounds::Bounds;
use super::container;
use super::core::Uid;
use super::disk::{DataPlace, DiskBound};
use super::loopback;
use super::runner::Runner;
use super::secret::AgentTerms;
use super::spec::Blueprint;
use crate::engine::Engine;
use crate::link::{Incoming, LinkError};

/// How long the probe may take: it makes a few system calls and reads a few files.
const WITHIN: Duration = Duration::from_secs(10);

const EROFS: i32 = 30;
const EACCES: i32 = 13;
pub(super) const EPERM: i32 = 1;

/// By these the kernel refuses what has no way out: no route (ENETUNREACH, EHOSTUNREACH), no address to come
/// from (EADDRNOTAVAIL), no such family of addresses (EAFNOSUPPORT), or a policy.
const NO_WAY: [i32; 6] = [101, 113, 99, 97, EACCES, EPERM];

/// Why the proof failed.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// No container came up to be probed.
    #[error("no container of image {image}{under} comes up: {error}")]
    Start {
        /// The image.
        image: String,
        /// Names the runtime, if one is asked for; with a space before it.
        under: String,
        /// The error of the step that failed.
        error: String,
    },
    /// The container came up, but the probe gave no answer.
    #[error("the container could not be probed: {0}")]
    Link(#[from] LinkError),
    /// A program in the container can do what it must not.
    #[error("containers on this engine{under} are not confined as they must be: {}", sentences(.found))]
    Unconfined {
        /// Names the runtime, if one is asked for; with a space before it.
        under: String,
        /// What it can do.
        found: Vec<Violation>,
    },
}

impl ProofError {
    /// Whether another way to the same network may help.
    pub(super) fn may_be_the_network(&self) -> bool {
        match self {
            Self::Start { .. } => true,
            Self::Link(_) => false,
            Self::Unconfined { found, .. } => {
                found.iter().any(|violation| violation.aspect == Aspect::Network)
            }
        }
    }
}

fn sentences(found: &[Violation]) -> String {
    found.iter().map(|violation| violation.text.as_str()).collect::<Vec<_>>().join("; ")
}

/// Starts a container, probes it, removes it, and judges what the probe found.
///
/// # Errors
/// See [`ProofError`]; the daemon must not serve then.
pub(super) async fn prove(
    engine: &Engine,
    blueprint: &Blueprint,
    runner: &Arc<Runner>,
    uid: Uid,
    terms: &AgentTerms,
) -> Result<ProbeReport, ProofError> {
    let under = match runner.bounds.runtime.as_str() {
        "" => String::new(),
        name => format!(" under the runtime {name}"),
    };
    let failed =
        |error: String| ProofError::Start { image: runner.image.clone(), under: under.clone(), error };
    let plan = blueprint.plan(runner, uid).ok_or_else(|| failed("no name can be made for it".to_owned()))?;
    let name = plan.name.clone();
    let started = container::start(engine, plan, uid, runner.clone(), terms).await;
    let facts = match &started {
        Ok(armed) => probe(armed, None).await.map_err(ProofError::from),
        Err(error) => Err(failed(error.to_string())),
    };
    let id = started.as_ref().ok().map(|armed| &armed.id);
    let removed = container::destroy(engine, &name, id, runner.bounds.place).await;
    let facts = facts?;
    removed.map_err(|error| failed(error.to_string()))?;
    let violations = violations(&facts, &runner.bounds, uid);
    if violations.is_empty() {
        return Ok(facts);
    }
    Err(ProofError::Unconfined { under, found: violations })
}

/// Asks the agent what a process in the container sees. With `quotas`, the probe also fills them up.
///
/// # Errors
/// The link's.
pub(super) async fn probe(
    armed: &container::ArmedContainer,
    quotas: Option<Quotas>,
) -> Result<ProbeReport, LinkError> {
    let answer = async {
        let stream = armed.link.request(&Request::Probe(quotas))?;
        loop {
            match stream.next().await? {
                Incoming::Event(Event::Probed(facts)) => return Ok(*facts),
                Incoming::Event(_) | Incoming::Data(..) => {}
                Incoming::End => return Err(LinkError::Refused),
            }
        }
    };
    tokio::time::timeout(WITHIN, answer).await.unwrap_or(Err(LinkError::Silent(WITHIN)))
}

/// One demand that every container must meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aspect {
    /// Processes run as the container's own user and group, with no other groups.
    User,
    /// Processes have no capabilities.
    Capabilities,
    /// Processes can gain no privileges.
    Privileges,
    /// System calls are filtered, and the filter refuses what it must.
    Seccomp,
    /// No crash runs a program of the host.
    Cores,
    /// There is no network but a loopback: no other interface, no route, and whatever is tried is refused at
    /// once. The loopback works, and names are asked of PID 1 alone.
    Network,
    /// The image cannot be written.
    Root,
    /// `/data` can be written.
    Writing,
    /// `/data` has a bounded size.
    Data,
    /// `/data` has a bounded number of entries.
    Inodes,
    /// `/data` has its other names.
    Names,
    /// `/tmp` has a bounded size.
    Tmp,
    /// Files of `/proc` about the whole host are masked.
    HostFiles,
}

/// A demand that a container does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The demand.
    pub aspect: Aspect,
    /// What is wrong, in a sentence.
    pub text: String,
}

/// The demands that a container with these facts does not meet.
pub(super) fn violations(facts: &ProbeReport, bounds: &Bounds, uid: Uid) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut demand = |aspect: Aspect, holds: bool, text: String| {
        if !holds {
            violations.push(Violation { aspect, text });
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
    let [soft, hard] = facts.core_limit;
    demand(
        Aspect::Cores,
        facts.core_limit == [1, 1],
        format!(
            "the limit of core dumps is {soft} (at most {hard}) after an attempt to change it; it must be 1"
        ),
    );
    demand(
        Aspect::Network,
        facts.interfaces.is_empty(),
        format!("there are network interfaces {:?}", facts.interfaces),
    );
    for text in ways_out(&facts.outside).into_iter().chain(loopback::faults(&facts.inside)) {
        demand(Aspect::Network, false, text);
    }
    // The kernel checks the user's permission only on a file system that is not mounted read-only.
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
    // What the file system does not bound is watched: there is nothing to see from inside.
    let (is_sized, is_counted) = match bounds.place {
        DataPlace::Memory => (true, true),
        DataPlace::Disk(bound) => (bound == DiskBound::Hard, false),
    };
    demand(
        Aspect::Data,
        !is_sized || facts.data_bytes > 0 && facts.data_bytes <= bounds.data.next_multiple_of(4096),
        format!("/data has {} bytes, its quota is {}", facts.data_bytes, bounds.data),
    );
    demand(
        Aspect::Inodes,
        !is_counted || facts.data_inodes > 0 && facts.data_inodes <= bounds.data_inodes,
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
    demand(
        Aspect::HostFiles,
        facts.host_files.is_empty(),
        format!("{} of the host can be read: the engine did not mask it", facts.host_files.join(", ")),
    );
    demand(Aspect::Seccomp, !facts.refused.is_empty(), "the probe tried no system call".to_owned());
    violations
}

/// What an attempt to leave the container found open; one sentence for each.
fn ways_out(outside: &Outside) -> Vec<String> {
    if outside.tries.is_empty() {
        return vec!["the probe tried no way out".to_owned()];
    }
    let open = outside.tries.iter().filter(|(_, errno)| !NO_WAY.contains(errno));
    let open = open.map(|(what, errno)| match errno {
        0 => format!("{what} is on its way: no missing route refuses it"),
        errno => format!("{what} was refused by something other than a missing route (errno {errno})"),
    });
    let routes = (!outside.routes.is_empty()).then(|| format!("there are routes {:?}", outside.routes));
    open.chain(routes).collect()
}

#[cfg(test)]
mod tests {
    use paddock_proto::message::Inside;

    use super::*;

    fn judge(facts: &ProbeReport, bounds: &Bounds, uid: Uid) -> Vec<String> {
        violations(facts, bounds, uid).into_iter().map(|violation| violation.text).collect()
    }

    fn good() -> ProbeReport {
        let resolver = || vec![loopback::RESOLVER.to_owned()];
        ProbeReport {
            uids: [20_000; 3],
            gids: [20_000; 3],
            groups: vec![20_000],
            capabilities: 0,
            no_new_privs: true,
            seccomp: 2,
            interfaces: vec![],
            outside: Outside { tries: vec![("TCP to 1.1.1.1:443".into(), 101)], routes: vec![] },
            inside: Inside { loopback_errno: 0, localhost: resolver(), name_servers: resolver() },
            root_write_errno: EROFS,
            root_read_only: true,
            data_bytes: 1 << 28,
            data_inodes: 16_384,
            data_aliases: true,
            tmp_bytes: 1 << 26,
            refused: vec![("io_uring_setup".into(), 1)],
            core_limit: [1, 1],
            landlock: 7,
            ..ProbeReport::default()
        }
    }

    #[test]
    fn each_weakness_is_found_and_named() {
        assert_eq!(judge(&good(), &Bounds::example(), Uid(20_000)), Vec::<String>::new());
        type Spoil = fn(&mut ProbeReport);
        let spoil: [(&str, Spoil); 25] = [
            ("UID", |f| f.uids[1] = 0),
            ("GID", |f| f.gids = [0; 3]),
            ("groups", |f| f.groups.push(0)),
            ("capabilities", |f| f.capabilities = 1 << 21),
            ("no-new-privileges", |f| f.no_new_privs = false),
            ("seccomp", |f| f.seccomp = 0),
            ("core dumps is 0", |f| f.core_limit = [0, 0]),
            ("at most 9", |f| f.core_limit = [1, 9]),
            ("eth0", |f| f.interfaces.push("eth0".into())),
            ("1.1.1.1:443 is on its way", |f| f.outside.tries[0].1 = 0),
            ("missing route (errno 111)", |f| f.outside.tries[0].1 = 111),
            ("routes [\"wg0", |f| f.outside.routes.push("wg0 00000000".into())),
            ("port of its own on 127.0.0.1", |f| f.inside.loopback_errno = 101),
            ("names the servers", |f| f.inside.name_servers.push("10.0.0.2".into())),
            ("tried no way out", |f| f.outside.tries.clear()),
            ("created in /", |f| f.root_write_errno = 0),
            ("read-only", |f| (f.root_write_errno, f.root_read_only) = (EACCES, false)),
            ("written in /data", |f| f.data_write_errno = EACCES),
            ("bytes", |f| f.data_bytes = 1 << 40),
            ("inodes", |f| f.data_inodes = 0),
            ("/workspace", |f| f.data_aliases = false),
            ("/tmp", |f| f.tmp_bytes = 1 << 40),
            ("io_uring_setup goes through", |f| f.refused[0].1 = 0),
            ("/proc/locks", |f| f.host_files.push("/proc/locks".into())),
            ("no system call", |f| f.refused.clear()),
        ];
        for (word, spoil) in spoil {
            let mut facts = good();
            spoil(&mut facts);
            let violations = judge(&facts, &Bounds::example(), Uid(20_000));
            assert!(violations.len() == 1 && violations[0].contains(word), "{word}: {violations:?}");
        }
    }
}
