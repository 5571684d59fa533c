//! Whether the engine's machine has enough for all containers together, and this process enough for all
//! clients.
//!
//! It must never assume that containers use less than they may.

use bytesize::ByteSize;
use rustix::process::{Resource, getrlimit};

use super::check::{Check, Checks, Group};
use crate::api::CONNECTIONS;
use crate::config::Config;
use crate::engine::EngineInfo;
use crate::pool::Runner;

/// Most descriptors for one container: its carrier, the stream of an exec, and files being transferred.
const OF_A_CONTAINER: u64 = 8;
/// Descriptors of the daemon itself: the store, connections to the engine, logs, local clients.
const OWN: u64 = 400;

/// The needs of all containers and clients, and what the machine and this process have.
#[derive(Debug, Clone)]
pub(super) struct CapacityFacts {
    /// Containers at one time.
    pub(super) containers: u64,
    /// What determines that number.
    pub(super) because: String,
    /// Bytes and processors of all together.
    pub(super) memory: u64,
    pub(super) cpus: f64,
    /// Bytes and processors of the largest.
    pub(super) largest: (u64, f64),
    /// Those of the engine's machine.
    pub(super) has_memory: u64,
    pub(super) has_cpus: u32,
    /// Descriptors that this process may open; `None`: any number.
    pub(super) descriptors: Option<u64>,
    pub(super) connections: u64,
}

/// The needs of these runners. A session may have a container of any of them, so each counts as one of the
/// largest.
pub(super) fn look(config: &Config, info: &EngineInfo, runners: &[Runner]) -> CapacityFacts {
    let sessions = u64::from(config.sessions.max);
    let idle: u64 = runners.iter().map(|runner| u64::from(runner.idle)).sum();
    let (most, wanted) = (u64::from(config.pool.max_members), sessions.saturating_add(idle));
    let memory = runners.iter().map(Runner::container_memory).max().unwrap_or_default();
    let cpus = runners.iter().map(|runner| runner.bounds.cpus).fold(0.0, f64::max);
    let of_idle = |runner: &Runner| runner.container_memory().saturating_mul(runner.idle.into());
    let memory_of_idle = runners.iter().map(of_idle).fold(0, u64::saturating_add);
    let cpus_of_idle: f64 = runners.iter().map(|runner| runner.bounds.cpus * f64::from(runner.idle)).sum();
    CapacityFacts {
        containers: wanted.min(most),
        because: if wanted > most {
            "pool.max_containers".to_owned()
        } else {
            format!("sessions.max {sessions}, and {idle} idle ones of {} runners", runners.len())
        },
        memory: memory_of_idle
            .saturating_add(memory.saturating_mul(sessions))
            .min(memory.saturating_mul(most)),
        cpus: (cpus_of_idle + cpus * f64::from(config.sessions.max))
            .min(cpus * f64::from(config.pool.max_members)),
        largest: (memory, cpus),
        has_memory: info.mem_total,
        has_cpus: info.ncpu,
        descriptors: getrlimit(Resource::Nofile).current,
        connections: CONNECTIONS as u64,
    }
}

pub(super) fn judge(facts: &CapacityFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Capacity);
    let n = facts.containers;
    let (memory, cpus) = facts.largest;
    let found = format!(
        "{n} containers ({}) may use {} of memory, up to {} each, of {}",
        facts.because,
        ByteSize::b(facts.memory),
        ByteSize::b(memory),
        ByteSize::b(facts.has_memory)
    );
    if facts.memory > facts.has_memory {
        let advice = "when all of them use it, the kernel kills some and their runs are lost: lower \
                      sessions.max, pool.idle, limits.memory, limits.data or those of one runner";
        checks.warn("memory", found, advice);
    } else {
        checks.ok("memory", found);
    }
    let found = format!(
        "{n} containers may use {:.1} processors, up to {cpus} each, of {}",
        facts.cpus, facts.has_cpus
    );
    if facts.cpus > f64::from(facts.has_cpus) {
        let advice = "when all of them use them, each gets less and takes longer: acceptable for most; \
                      otherwise lower sessions.max or limits.cpus";
        checks.warn("processors", found, advice);
    } else {
        checks.ok("processors", found);
    }
    let wanted = facts.connections + n.saturating_mul(OF_A_CONTAINER) + OWN;
    let why = format!("{} connections and {n} containers may take {wanted}", facts.connections);
    match facts.descriptors {
        Some(limit) if limit < wanted => checks.warn(
            "open files",
            format!("this process may have {limit} open files; {why}"),
            format!(
                "calls fail when they are used up: start it with `ulimit -n {0}`, or LimitNOFILE={0} in its \
                 unit",
                wanted.next_multiple_of(1024)
            ),
        ),
        Some(limit) => checks.ok("open files", format!("this process may have {limit} open files; {why}")),
        None => checks.ok("open files", format!("this process may have any number of open files; {why}")),
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::Warn;
    use super::super::check::tests::lacks;
    use super::*;

    fn good() -> CapacityFacts {
        CapacityFacts {
            containers: 10,
            because: "sessions".into(),
            memory: 10 << 30,
            cpus: 10.0,
            largest: (1 << 30, 1.0),
            has_memory: 10 << 30,
            has_cpus: 10,
            descriptors: Some(4096),
            connections: 1024,
        }
    }

    #[test]
    fn each_defect_gives_its_check_and_no_other() {
        assert_eq!(lacks(&judge(&good())), []);
        assert_eq!(lacks(&judge(&CapacityFacts { descriptors: None, ..good() })), []);
        for (facts, name, word) in [
            (CapacityFacts { has_memory: (10 << 30) - 1, ..good() }, "memory", "10.0 GiB"),
            (CapacityFacts { has_cpus: 9, ..good() }, "processors", "10.0 processors"),
            (CapacityFacts { descriptors: Some(1024), ..good() }, "open files", "1024"),
        ] {
            let checks = judge(&facts);
            assert_eq!(lacks(&checks), [(name, Warn)], "{facts:?}");
            assert!(checks.iter().any(|check| check.found.contains(word)), "{word}: {checks:?}");
        }
    }
}
