//! The runtimes of an engine: which of them containers ask for, and what the proof of each found.
//!
//! Containers of one engine may run under several runtimes (`engine.runtime`, `[runners.NAME] runtime`), and
//! each is proved for itself. What a runtime can do is what a process in one of its containers saw, never
//! what its name promises: a name is only a line in the engine's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use paddock_proto::limits::AGENT_PROGRAM;
use paddock_proto::message::ProbeReport;

use super::loopback::Loopback;
use super::proof::EPERM;
use super::seccomp::Clone3;
use crate::engine::EngineInfo;

/// Runtimes whose containers have the kernel of the engine's host, by their names. Others have a kernel, and
/// so terminals and a network, of their own. This must be known before a container can be looked into.
const OF_HOST: [&str; 3] = ["runc", "crun", "io.containerd.runc.v2"];

/// A runtime that is asked for and that the engine does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{key} is {name:?}, and the engine has no runtime of that name: it has {}; `docker info` lists them, and \
     /etc/docker/daemon.json names them",
    .there.join(", ")
)]
pub struct UnknownRuntime {
    /// The key that names it.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Those that there are.
    pub there: Vec<String>,
}

/// Whether containers can ask this engine for a runtime of this name. Newer engines accept a shim by its type
/// without configuration.
pub(crate) fn is_known(info: &EngineInfo, name: &str) -> bool {
    name.is_empty() || info.runtimes.contains_key(name) || name.starts_with("io.containerd.")
}

/// The first of these runtimes, each with the key that names it, that the engine does not have.
pub(super) fn unknown(
    info: &EngineInfo,
    asked: impl IntoIterator<Item = (String, String)>,
) -> Result<(), UnknownRuntime> {
    match asked.into_iter().find(|(_, name)| !is_known(info, name)) {
        None => Ok(()),
        Some((key, name)) => {
            Err(UnknownRuntime { key, name, there: info.runtimes.keys().cloned().collect() })
        }
    }
}

/// What the proof of a runtime found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RuntimeFacts {
    /// Whether its containers keep the programs of one run out of the memory of another.
    pub(super) separates: bool,
    /// Whether its containers have the engine's own kernel: then a process can be restored in them from
    /// files.
    pub(super) shares_kernel: bool,
    /// Whether a filter of system calls can answer with any errno. Older versions of gVisor know `EPERM`
    /// alone.
    pub(super) has_errnos: bool,
}

/// A call that the profile answers with an errno other than `EPERM`.
const TELLING: &str = "io_setup";

impl RuntimeFacts {
    /// Of a container that was looked into, on an engine with this kernel.
    pub(super) fn of(seen: &ProbeReport, kernel: &str) -> Self {
        let is_eperm = |(call, errno): &(String, i32)| call == TELLING && *errno == EPERM;
        Self {
            separates: seen.separates,
            shares_kernel: seen.machine.kernel == kernel,
            has_errnos: !seen.refused.iter().any(is_eperm),
        }
    }
}

/// What is known of the runtimes of one engine. All copies share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Runtimes {
    /// The runtime of a container that names none.
    default: String,
    known: Arc<RwLock<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    facts: BTreeMap<String, RuntimeFacts>,
    /// Those that start only a program that everybody may read.
    reading: BTreeSet<String>,
    /// Who makes the loopback.
    loopbacks: BTreeMap<String, Loopback>,
}

impl Runtimes {
    /// Of an engine with this default; nothing is proved yet.
    pub(super) fn new(default: &str) -> Self {
        Self { default: default.to_owned(), ..Self::default() }
    }

    /// The name of the runtime that a container has if it asks for this one.
    pub(super) fn name<'a>(&'a self, asked: &'a str) -> &'a str {
        if asked.is_empty() { &self.default } else { asked }
    }

    /// Whether its containers have the kernel of the engine's host, by its name.
    pub(super) fn is_of_host(&self, asked: &str) -> bool {
        let name = self.name(asked);
        name.is_empty() || OF_HOST.contains(&name)
    }

    /// Who makes the loopback of its containers; `None` before that is settled.
    pub(super) fn loopback(&self, asked: &str) -> Option<Loopback> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.loopbacks.get(self.name(asked)).cloned()
    }

    /// The runtimes that make the loopback of their containers.
    pub(super) fn with_loopback(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_runtime = known.loopbacks.iter().filter(|(_, of)| of.is_of_runtime());
        of_runtime.map(|(name, _)| name.clone()).collect()
    }

    /// Settles who makes the loopback of its containers.
    pub(super) fn has_loopback(&self, asked: &str, of: Loopback) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.loopbacks.insert(self.name(asked).to_owned(), of);
    }

    /// What its proof found; `None` before that.
    pub(super) fn facts(&self, asked: &str) -> Option<RuntimeFacts> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.facts.get(self.name(asked)).copied()
    }

    /// How its containers answer `clone3`; as the engine's kernel must before the proof.
    pub(super) fn clone3(&self, asked: &str) -> Clone3 {
        match self.facts(asked) {
            Some(RuntimeFacts { shares_kernel: false, has_errnos: false, .. }) => Clone3::Allowed,
            _ => Clone3::Absent,
        }
    }

    /// Notes what its proof found.
    pub(super) fn proved(&self, asked: &str, facts: RuntimeFacts) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.facts.insert(self.name(asked).to_owned(), facts);
    }

    /// Whether it starts only a program that everybody may read.
    pub(super) fn must_read(&self, asked: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.reading.contains(self.name(asked))
    }

    /// Whether any of them does.
    pub(super) fn some_must_read(&self) -> bool {
        !self.known.read().unwrap_or_else(PoisonError::into_inner).reading.is_empty()
    }

    /// Notes that it starts only a program that everybody may read.
    pub(super) fn reads(&self, asked: &str) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.reading.insert(self.name(asked).to_owned());
    }

    /// Whether a process can be restored from files in its containers; false before its proof.
    pub(super) fn restores(&self, asked: &str) -> bool {
        self.facts(asked).is_some_and(|facts| facts.shares_kernel)
    }
}

/// Whether a container did not start because its runtime could not open the agent's program, which nobody may
/// read: gVisor opens every program that it starts.
pub(super) fn could_not_read(error: &str) -> bool {
    let said = error.to_ascii_lowercase();
    said.contains(AGENT_PROGRAM) && said.contains("permission denied")
}

/// What programs lack under a runtime in whose container this was seen, one sentence each; nothing of a
/// container with the engine's own kernel.
pub(crate) fn lacks(seen: &ProbeReport, kernel: &str) -> Vec<String> {
    let facts = RuntimeFacts::of(seen, kernel);
    if facts.shares_kernel {
        return Vec::new();
    }
    let mut all = vec![format!(
        "its kernel is its own ({}, the engine's is {kernel}), so warm parts import their libraries and are \
             restored from no snapshot",
        seen.machine.kernel
    )];
    if !facts.has_errnos {
        all.push(
            "its filter of system calls knows no errno but EPERM, so programs call clone3 without one, by \
             which they may make namespaces of that kernel"
                .to_owned(),
        );
    }
    if let Some(what) = &seen.connects_lack {
        all.push(format!("programs reach names on the ports of egress.listen_ports only (it lacks {what})"));
    }
    if !seen.separates {
        all.push("a run that has a network is alone in its session".to_owned());
    }
    if let Some(what) = &seen.policies_lack {
        all.push(format!("file policies are answered unsupported_policy ({what})"));
    }
    if seen.segments_stay {
        all.push("System V memory stays until the session's container ends".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use paddock_proto::message::Machine;

    use super::*;

    const KERNEL: &str = "6.18.1";

    fn seen(kernel: &str) -> ProbeReport {
        let machine = Machine { kernel: kernel.into(), ..Machine::default() };
        ProbeReport { machine, separates: true, ..ProbeReport::default() }
    }

    #[test]
    fn a_runtime_is_known_by_what_the_engine_lists_and_a_shim_by_its_type() {
        let info: EngineInfo = serde_json::from_value(serde_json::json!({
            "ID": "a", "Name": "h", "ServerVersion": "28", "OSType": "linux", "Architecture": "x86_64",
            "KernelVersion": KERNEL, "NCPU": 2, "MemTotal": 1, "Driver": "overlay2", "SystemTime": "",
            "Runtimes": { "runc": { "path": "runc" }, "runsc": { "path": "/usr/bin/runsc" } },
        }))
        .unwrap();
        let asked = |names: &[&str]| {
            unknown(&info, names.iter().map(|name| (format!("key of {name}"), (*name).to_owned())))
        };
        assert_eq!(asked(&["", "runc", "runsc", "io.containerd.kata.v2"]), Ok(()));
        let said = asked(&["runsc", "kata"]).unwrap_err().to_string();
        assert!(
            said.starts_with("key of kata is \"kata\"") && said.contains("it has runc, runsc;"),
            "{said}"
        );
    }

    #[test]
    fn a_container_that_names_no_runtime_has_the_default_and_shares_its_proof() {
        let runtimes = Runtimes::new("runsc");
        let facts = RuntimeFacts::of(&seen("4.4.0"), KERNEL);
        assert_eq!(runtimes.facts(""), None);
        runtimes.clone().proved("", facts);
        assert_eq!(
            (runtimes.facts(""), runtimes.facts("runsc"), runtimes.facts("runc")),
            (Some(facts), Some(facts), None)
        );
        assert!(!runtimes.is_of_host("") && runtimes.is_of_host("runc"));
        assert!(Runtimes::default().is_of_host(""), "an engine that does not say its default");
        assert!(!runtimes.some_must_read() && !runtimes.must_read(""));
        runtimes.reads("");
        assert!(runtimes.must_read("runsc") && !runtimes.must_read("runc") && runtimes.some_must_read());
    }

    #[test]
    fn a_process_is_restored_only_where_the_kernel_is_the_engines_and_that_was_seen() {
        let runtimes = Runtimes::new("runc");
        assert!(!runtimes.restores("runc"), "not proved yet");
        runtimes.proved("runc", RuntimeFacts::of(&seen(KERNEL), KERNEL));
        runtimes.proved("runsc", RuntimeFacts::of(&seen("4.4.0"), KERNEL));
        assert!(runtimes.restores("") && runtimes.restores("runc") && !runtimes.restores("runsc"));
    }

    #[test]
    fn clone3_is_for_another_kernel_whose_filter_has_no_errno_for_it() {
        let seen = |kernel: &str, errno| {
            let refused = vec![("vmsplice".to_owned(), EPERM), ("io_setup".to_owned(), errno)];
            ProbeReport { refused, ..seen(kernel) }
        };
        let runtimes = Runtimes::default();
        assert_eq!(runtimes.clone3("runsc"), Clone3::Absent, "not proved yet");
        for (kernel, errno, expected) in [
            ("4.4.0", EPERM, Clone3::Allowed),
            ("4.4.0", 38, Clone3::Absent),
            (KERNEL, EPERM, Clone3::Absent),
        ] {
            runtimes.proved("runsc", RuntimeFacts::of(&seen(kernel, errno), KERNEL));
            assert_eq!(runtimes.clone3("runsc"), expected, "{kernel} {errno}");
        }
    }

    #[test]
    fn only_the_agents_program_is_tried_again_readable() {
        let of_runsc =
            format!("creating process: failed to load {AGENT_PROGRAM}: permission denied: unknown");
        assert!(could_not_read(&of_runsc));
        for other in
            ["failed to load /bin/sh: permission denied", "/.paddock/agent: no such file or directory"]
        {
            assert!(!could_not_read(other), "{other}");
        }
    }

    #[test]
    fn what_a_runtime_lacks_is_said_and_nothing_of_the_engines_own_kernel() {
        let mut poor = seen("4.4.0");
        assert_eq!(lacks(&poor, KERNEL).len(), 1, "{:?}", lacks(&poor, KERNEL));
        poor.separates = false;
        poor.connects_lack = Some("user notification".into());
        poor.policies_lack = Some("no Landlock".into());
        poor.segments_stay = true;
        poor.refused = vec![("io_setup".to_owned(), EPERM)];
        let said = lacks(&poor, KERNEL).join("; ");
        for word in [
            "no snapshot",
            "clone3",
            "user notification",
            "alone in its session",
            "unsupported_policy",
            "System V",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
        poor.machine.kernel = KERNEL.into();
        assert!(lacks(&poor, KERNEL).is_empty());
    }
}
