//! A throwaway container, made as the pool makes them: what a process in it can do, and how much it can use.
//!
//! It must never judge by what was requested from the engine, only by what was seen inside.

use std::time::Duration;

use bytesize::ByteSize;
use paddock_proto::limits::PAGE;
use paddock_proto::message::{Allowed, Taken};

use super::check::{Check, Checks, Group};
use super::shared_with_host;
use crate::engine::EngineError;
use crate::pool::trial::{TrialError, TrialReport};
use crate::pool::{Aspect, DataPlace, DiskBound};

/// `ENOSPC`: the error of a full quota.
const FULL: i32 = 28;
/// A container usually takes a tenth of a second; a call that finds none idle waits for all of it.
const SLOW: Duration = Duration::from_secs(5);

/// The result of a trial.
pub(super) struct ContainerFacts {
    pub(super) tried: Result<TrialReport, String>,
    /// Whether its image declares a warm part, and the configuration wants it.
    pub(super) warm_wanted: bool,
    /// The owner of everything that was made, and the error that prevented its removal.
    pub(super) owner: String,
    pub(super) left: Option<String>,
}

impl ContainerFacts {
    pub(super) fn new(
        tried: &Result<TrialReport, TrialError>,
        left: Option<&EngineError>,
        warm_wanted: bool,
        owner: &str,
    ) -> Self {
        let tried = match tried {
            Ok(tried) => Ok(tried.clone()),
            Err(error) => Err(error.to_string()),
        };
        Self { tried, warm_wanted, owner: owner.to_owned(), left: left.map(ToString::to_string) }
    }
}

pub(super) fn judge(facts: &ContainerFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Container);
    match &facts.tried {
        Err(error) => checks.fail(
            "start",
            format!("no container could be tried: {error}"),
            "a run would get none either; the engine's log says more (`journalctl -u docker`)",
        ),
        Ok(tried) => {
            start(tried, facts.warm_wanted, &mut checks);
            confined(tried, &mut checks);
            places(tried, &mut checks);
            bounds(tried, &mut checks);
            shared_with_host::judge(tried, &mut checks);
            policies(tried, &mut checks);
            task_levels(tried, &mut checks);
        }
    }
    if let Some(error) = &facts.left {
        checks.warn(
            "removal",
            format!("not everything that was made for this test could be removed: {error}"),
            format!(
                "the next `paddock doctor` removes it after an hour; to do it now: docker rm -f $(docker ps \
                 -aqf label=paddock.owner={0}); docker volume rm $(docker volume ls -qf \
                 label=paddock.owner={0})",
                facts.owner
            ),
        );
    }
    checks.done()
}

fn start(tried: &TrialReport, warm_wanted: bool, checks: &mut Checks) {
    let (image, armed) = (&tried.image, tried.armed.as_millis());
    let found = format!("a container of {image} is armed in {armed} ms");
    if tried.armed > SLOW {
        let advice = "a call that finds no idle container waits for that: keep more (pool.idle), or check \
                      the engine's disk";
        checks.warn("start", found, advice);
    } else {
        checks.ok("start", found);
    }
    match (tried.warm, warm_wanted) {
        (Some(warm), _) => checks.ok(
            "warm",
            format!(
                "its warm part is ready {} ms later: runs in it start no interpreter and repeat no import",
                warm.as_millis()
            ),
        ),
        (None, true) => checks.warn(
            "warm",
            "its warm part did not become ready",
            "every run starts its interpreter and imports for itself: the image's label sandbox.warm names \
             the part, run it by hand to see why (runner-images/README.md)",
        ),
        (None, false) => checks.ok("warm", "it has no warm part: every run starts its interpreter"),
    }
}

/// The daemon's own proof: it serves nothing if one of these fails.
fn confined(tried: &TrialReport, checks: &mut Checks) {
    let facts = &tried.facts;
    let mut of = |aspect: Aspect, name: &'static str, good: String, advice: &str| {
        let wrong: Vec<&str> =
            tried.violations.iter().filter(|fault| fault.aspect == aspect).map(|f| f.text.as_str()).collect();
        if wrong.is_empty() {
            checks.ok(name, good);
        } else {
            checks.fail(name, wrong.join(", "), advice);
        }
    };
    const ASKED: &str = "paddock requested it and did not get it: the runtime (engine.runtime, `docker \
                         info`) is not what it should be, or a wrapper or plugin of the engine changes \
                         containers";
    of(Aspect::User, "user", format!("UID and GID {}, no other groups", tried.asked.uid), ASKED);
    of(Aspect::Capabilities, "capabilities", "no capabilities".to_owned(), ASKED);
    of(Aspect::Privileges, "no-new-privileges", "no program gains privileges".to_owned(), ASKED);
    let seccomp =
        format!("system calls are filtered; {} forbidden ones were tried, and refused", facts.refused.len());
    of(
        Aspect::Seccomp,
        "seccomp",
        seccomp,
        "a vulnerability of the kernel is then a way out: use a kernel and a runtime with seccomp, and \
         nothing that changes the profile. gVisor takes the profile only with --oci-seccomp among its \
         runtimeArgs (/etc/docker/daemon.json)",
    );
    let network = match tried.engine_makes_network {
        false => "no network but a loopback, which the runtime makes",
        true => {
            "no network but a loopback. The engine makes it: before version 28 a container starts 0.1 s \
             later than if the runtime made it"
        }
    };
    of(Aspect::Network, "network", network.to_owned(), ASKED);
    of(Aspect::Root, "read-only root", "the image cannot be written".to_owned(), ASKED);
    of(
        Aspect::HostFiles,
        "host files",
        "/proc tells nothing of the host's locks, keys and symbols".to_owned(),
        ASKED,
    );
    of(Aspect::Names, "names", "/mnt/data and /workspace are /data".to_owned(), ASKED);
    let label = match facts.label.as_str() {
        "" | "unconfined" => "no security module confines it".to_owned(),
        label => format!("a security module confines it as {label}"),
    };
    checks.ok("security module", label);
}

/// The places where it may write, and how much; tested by writing more.
fn places(tried: &TrialReport, checks: &mut Checks) {
    let (facts, bounds) = (&tried.facts, &tried.asked.bounds);
    let filled = facts.filled;
    let page = |bytes: u64| bytes.next_multiple_of(PAGE);
    // A place that cannot be written cannot be filled.
    let closed = tried.violations.iter().find(|fault| fault.aspect == Aspect::Writing);
    if let Some(fault) = closed {
        checks.fail(
            "data",
            fault.text.clone(),
            "no run could even start: the engine or its runtime gives volumes to the wrong user. With \
             userns-remap the engine's folder is named after the users that it maps to; see that `docker \
             info` shows that name (Docker Root Dir)",
        );
    }
    let size = |bytes: u64| ByteSize::b(bytes).to_string();
    for (aspect, name, what, quota, most, taken, unit) in [
        (Aspect::Data, "data", "/data", size(bounds.data), page(bounds.data), filled.map(|f| f.data), true),
        (
            Aspect::Inodes,
            "inodes",
            "/data",
            format!("{} entries", bounds.data_inodes),
            bounds.data_inodes,
            filled.map(|f| f.data_inodes),
            false,
        ),
        (Aspect::Tmp, "tmp", "/tmp", size(bounds.tmp), page(bounds.tmp), filled.map(|f| f.tmp), true),
    ] {
        if closed.is_some() && aspect != Aspect::Tmp {
            continue;
        }
        let mut wrong: Vec<String> = tried
            .violations
            .iter()
            .filter(|fault| fault.aspect == aspect)
            .map(|fault| fault.text.clone())
            .collect();
        let amount = |n: u64| if unit { size(n) } else { format!("{n} entries") };
        match taken {
            Some(taken) if taken.errno == 0 || taken.amount > most => {
                wrong.push(format!("{} could be had in {what}, its limit is {quota}", amount(taken.amount)));
            }
            Some(Taken { errno, .. }) if errno != FULL => {
                wrong.push(format!(
                    "filling {what} ended with another error than a full quota (errno {errno})"
                ));
            }
            Some(_) | None => {}
        }
        if wrong.is_empty() {
            let how = match (aspect, bounds.place) {
                (Aspect::Data, DataPlace::Disk(DiskBound::Hard)) => "a quota of the engine's file system",
                (Aspect::Data | Aspect::Inodes, DataPlace::Disk(_)) => "the agent watches it",
                _ if taken.is_some() => "filled, and it refuses more",
                _ => "not tested, it is too large",
            };
            checks.ok(name, format!("{what} takes {quota}: {how}"));
        } else {
            checks.fail(
                name,
                wrong.join(", "),
                "one program can use up the host's memory: the engine should respect the sizes of local \
                 volumes and tmpfs mounts; find out what changes them",
            );
        }
    }
}

/// The limits of its control group.
fn bounds(tried: &TrialReport, checks: &mut Checks) {
    let (facts, asked) = (&tried.facts, &tried.asked);
    let size = |bytes: u64| ByteSize::b(bytes).to_string();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked by the configuration to be 0.01 to 1024"
    )]
    let milli = (asked.bounds.cpus * 1000.0).round() as u64;
    let processors = |milli: u64| format!("{:.2} processors", Duration::from_millis(milli).as_secs_f64());
    const HOW: &str = "`docker info` warns of limits that the kernel does not enforce; on cgroup 1 the \
                       kernel's command line enables them (cgroup_enable=memory swapaccount=1), a rootless \
                       engine needs cgroup 2 and delegation";
    for (name, what, allowed, most, shown) in [
        ("memory", "memory is", facts.memory, asked.memory, size as fn(u64) -> String),
        ("processes", "processes and threads are", facts.pids, asked.pids, |n| n.to_string()),
        ("processors", "processor time is", facts.cpu_milli, milli + 1, processors),
    ] {
        match allowed {
            Allowed::UpTo(bound) if bound <= most => {
                checks.ok(name, format!("{what} bounded: {}", shown(bound)))
            }
            Allowed::UpTo(bound) => checks.unsafe_to_serve(
                name,
                format!("{what} bounded by {}, not by {}", shown(bound), shown(most)),
                format!("one program can take that much from all others: {HOW}"),
            ),
            Allowed::All => checks.unsafe_to_serve(
                name,
                format!("{what} not bounded"),
                format!("one program can use everything there is: {HOW}"),
            ),
            Allowed::Unseen => checks.warn(
                name,
                format!("whether {what} bounded cannot be seen from inside"),
                "its control group is not visible there (gVisor shows none): `docker stats` and `docker \
                 inspect` show the engine's limits",
            ),
        }
    }
    match facts.swap {
        Allowed::UpTo(0) => checks.ok("swap", "no swap"),
        // If nothing counts swap and nothing bounds memory, the check of memory reported it.
        _ if facts.memory == Allowed::All => {}
        Allowed::Unseen => checks.ok("swap", "swap is not counted here; memory is bounded"),
        Allowed::UpTo(_) | Allowed::All => checks.warn(
            "swap",
            "it may use swap beside its memory",
            format!("a program can make the host's disk busy, and have more memory than its limit: {HOW}"),
        ),
    }
}

/// The requirement of the levels of tasks: rules on what may be executed, which the kernel enforces wherever
/// it keeps the runs of a session apart.
fn task_levels(tried: &TrialReport, checks: &mut Checks) {
    let facts = &tried.facts;
    if !facts.no_new_privs {
        return; // another check reports that
    }
    let version = facts.landlock;
    match facts.separates {
        true => checks.ok(
            "task levels",
            format!("Landlock {version}: what a coding agent may execute at its level is enforced"),
        ),
        false => checks.warn(
            "task levels",
            format!("nothing bounds what a coding agent may execute (Landlock {version})"),
            "tasks at yolo_level 1 to 3, and all of opencode, are answered unsupported_policy: they need \
             Linux 6.2 with landlock among its security modules (cat /sys/kernel/security/lsm)",
        ),
    }
}

/// The requirements of `sandbox_config.filesystem`.
fn policies(tried: &TrialReport, checks: &mut Checks) {
    let facts = &tried.facts;
    // Both need it, and another check reports that it is missing.
    if !facts.no_new_privs {
        return;
    }
    match &facts.policies_lack {
        None => checks.ok(
            "file policies",
            format!(
                "Landlock {} and seccomp's user notification: file policies are enforced",
                facts.landlock
            ),
        ),
        Some(lack) => {
            let answers = if facts.notification { "answers" } else { "does not answer" };
            checks.warn(
                "file policies",
                format!("{lack} (Landlock {}, user notification {answers})", facts.landlock),
                "commands with sandbox_config.filesystem are answered unsupported_policy: they need Linux \
                 6.2 with landlock among its security modules (cat /sys/kernel/security/lsm), and a runtime \
                 that allows its system calls",
            );
        }
    }
}

#[cfg(test)]
#[path = "container_tests.rs"]
pub(super) mod tests;
