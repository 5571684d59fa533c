//! The engine itself: whether it can be used, and what it says about itself. Its claims about limits count
//! only where a container cannot show them: see `container`.
//!
//! It must never change anything on the engine.

use std::time::Duration;

use super::advisories;
use super::check::{Check, Checks, Group};
use super::down::Down;
use super::runc;
use super::runtimes;
use crate::app::engine_host;
use crate::config::Config;
use crate::engine::{ApiVersion, Engine, EngineInfo, EngineLimits, EngineVersion};

/// A healthy engine answers a read in milliseconds; a hanging one should be reported soon.
const LIMITS: fn() -> EngineLimits = || EngineLimits {
    connect: Duration::from_secs(3),
    read: Duration::from_secs(5),
    change: Duration::from_secs(20),
    archive: Duration::from_secs(20),
    ..EngineLimits::default()
};

/// The address of the engine, and its answer.
#[derive(Debug, Clone)]
pub(super) struct EngineFacts {
    pub(super) host: String,
    pub(super) answer: Result<Box<Up>, Down>,
}

/// What an engine says about itself.
#[derive(Debug, Clone)]
pub(super) struct Up {
    pub(super) version: EngineVersion,
    pub(super) api: ApiVersion,
    pub(super) info: EngineInfo,
    /// Whether its address is a Unix socket.
    pub(super) by_socket: bool,
    /// The kernel of this process.
    pub(super) kernel: String,
    /// The configured runtimes, each with the key that names it.
    pub(super) asked: Vec<(String, String)>,
}

/// Asks the engine; returns its client too if it is usable.
pub(super) async fn look(config: &Config) -> (EngineFacts, Option<Engine>) {
    let host = config.engine.host.clone();
    match ask(config).await {
        Ok((up, engine)) => (EngineFacts { host, answer: Ok(Box::new(up)) }, Some(engine)),
        Err(down) => (EngineFacts { host, answer: Err(down) }, None),
    }
}

async fn ask(config: &Config) -> Result<(Up, Engine), Down> {
    let host = engine_host(config).map_err(|e| Down::Address(e.to_string()))?;
    let engine = Engine::connect(&host, LIMITS()).await.map_err(Down::of)?;
    let version = engine.version().await.map_err(Down::of)?;
    let info = engine.info().await.map_err(Down::of)?;
    let up = Up {
        version,
        api: engine.api_version(),
        info,
        by_socket: host.unix_path().is_some(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        asked: runtimes::asked(config),
    };
    Ok((up, engine))
}

pub(super) fn judge(facts: &EngineFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Engine);
    match &facts.answer {
        Err(down) => {
            let (found, advice) = down.complaint(&facts.host);
            checks.fail(
                "reachable",
                found,
                format!("{advice}; engine.host (DOCKER_HOST, --engine) names it"),
            );
        }
        Ok(up) => {
            says(&facts.host, up, &mut checks);
            confines(up, &mut checks);
            runs(up, &mut checks);
            advisories::judge(&up.version, &up.info.plugins.authorization, &mut checks);
        }
    }
    checks.done()
}

/// The version of the engine, and where it is.
fn says(host: &str, up: &Up, checks: &mut Checks) {
    let (version, info) = (&up.version, &up.info);
    checks.ok("reachable", format!("Engine {} answers at {host}", version.version));
    checks.ok(
        "api",
        format!(
            "API {} is used; the engine supports {} to {}, paddock {} to {}",
            up.api,
            version.min_api_version,
            version.api_version,
            ApiVersion::OLDEST,
            ApiVersion::NEWEST
        ),
    );
    let own = std::env::consts::ARCH;
    if info.os_type != "linux" {
        let found = format!("its containers are for {}", info.os_type);
        checks.fail(
            "platform",
            found,
            "paddock needs Linux containers: switch the engine to Linux containers",
        );
    } else if info.architecture != own {
        let found = format!("it runs on {}, this paddock has an agent for {own}", info.architecture);
        checks.fail("platform", found, format!("build paddock for {} and run that", info.architecture));
    } else {
        checks.ok("platform", format!("linux on {own}, kernel {}", info.kernel_version));
    }
    let place = match (up.by_socket, info.kernel_version == up.kernel) {
        (true, true) => "it is on this machine",
        (true, false) => "it is on another machine or in a virtual one: its kernel differs",
        (false, _) => "it is reached by TCP, so it counts as another machine",
    };
    checks.ok("place", place);
}

/// Its claims about limits and isolation.
fn confines(up: &Up, checks: &mut Checks) {
    let info = &up.info;
    let version = if info.cgroup_version.is_empty() { "1" } else { &info.cgroup_version };
    if info.cgroup_driver == "none" {
        checks.warn(
            "cgroup",
            "it uses no control groups (cgroup driver none)",
            "nothing bounds memory, processes or processors: a rootless engine needs cgroup 2 and systemd, \
             see https://docs.docker.com/engine/security/rootless/",
        );
    } else {
        let driver = if info.cgroup_driver.is_empty() { "not named" } else { &info.cgroup_driver };
        checks.ok("cgroup", format!("cgroup version {version}, driver {driver}"));
    }
    let limits = [
        ("memory", info.memory_limit),
        ("swap", info.swap_limit),
        ("processes", info.pids_limit),
        ("processors", info.cpu_cfs_quota),
    ];
    let lacking: Vec<_> = limits.iter().filter(|(_, has)| !has).map(|(what, _)| *what).collect();
    if lacking.is_empty() {
        checks.ok("limits", "it says that memory, swap, processes and processors are limited");
    } else {
        checks.warn(
            "limits",
            format!("it says that these are not limited: {}", lacking.join(", ")),
            "a program can use all that the machine has of them; `docker info` says so too. Enable them in \
             the kernel, such as by cgroup_enable=memory swapaccount=1 on its command line, or delegate them \
             to a rootless engine",
        );
    }
    let has = |name: &str| {
        info.security_options
            .iter()
            .any(|option| option == name || option.split(',').any(|part| part == format!("name={name}")))
    };
    if has("seccomp") {
        checks.ok("seccomp", "it says that it filters system calls");
    } else {
        checks.warn(
            "seccomp",
            "it says that it does not filter system calls",
            "the daemon does not start without it: use a kernel and a runc with seccomp",
        );
    }
    match ["apparmor", "selinux"].into_iter().find(|name| has(name)) {
        Some(name) => checks.ok("security module", format!("{name} is on")),
        None => {
            checks.ok("security module", "neither AppArmor nor SELinux is on; paddock does not need them")
        }
    }
    match (has("rootless"), has("userns")) {
        (true, _) => checks.ok("users", "it is rootless: root in a container is an ordinary user outside"),
        (false, true) => {
            checks.ok("users", "it maps users (userns-remap): root in a container is another user outside")
        }
        (false, false) => checks.ok("users", "it does not map users; paddock's containers never run as root"),
    }
}

/// How it runs containers.
fn runs(up: &Up, checks: &mut Checks) {
    let info = &up.info;
    if info.live_restore_enabled {
        // pool/restored.rs works around what engines before 24 do wrong with it.
        checks.ok("live-restore", "containers live on when it is restarted");
    } else {
        checks.warn(
            "live-restore",
            "containers end when it is restarted (live-restore is off)",
            "runs are lost then, saved files are not: put \"live-restore\": true into \
             /etc/docker/daemon.json and `systemctl reload docker`",
        );
    }
    if info.driver == "vfs" {
        checks.warn(
            "storage",
            "its storage driver is vfs",
            "each container copies its whole image: set \"storage-driver\": \"overlay2\" in \
             /etc/docker/daemon.json",
        );
    } else {
        checks.ok("storage", format!("its storage driver is {}", info.driver));
    }
    if !runtimes::judge_names(info, &up.asked, checks) {
        return;
    }
    // Where one of them is runc, its version matters.
    let usual = up.asked.iter().find(|(key, _)| key == "engine.runtime").map(|(_, name)| name.as_str());
    let usual = usual.unwrap_or(&info.default_runtime);
    let mut all = std::iter::once(usual).chain(up.asked.iter().map(|(_, name)| name.as_str()));
    let name = all.find(|name| is_runc(up, name)).unwrap_or(usual);
    which_runc(up, name, checks);
}

/// By its name, or by the program that the engine says it is.
fn is_runc(up: &Up, name: &str) -> bool {
    let path = up.info.runtimes.get(name).and_then(|runtime| runtime.path.as_deref()).unwrap_or(name);
    matches!(name, "" | "runc" | "io.containerd.runc.v2") || path.ends_with("runc")
}

fn which_runc(up: &Up, name: &str, checks: &mut Checks) {
    if !is_runc(up, name) {
        return checks
            .ok("runc", format!("{name} runs the containers, so the version of runc does not matter"));
    }
    let said = up.version.components.iter().find(|component| component.name == "runc");
    let said = said.map(|component| component.version.as_str()).unwrap_or_default();
    let upgrade = "upgrade it on the engine's machine (`apt-get install --only-upgrade runc`, or \
                   containerd.io if that package contains it)";
    match runc::Version::parse(said) {
        None => checks.warn(
            "runc",
            format!("it does not say which runc it uses ({said:?})"),
            format!(
                "`runc --version` there should say 1.2.8, 1.3.3, 1.4.0 or newer: older ones have {}",
                runc::HOLES
            ),
        ),
        Some(version) => match version.mended_by() {
            None => checks.ok("runc", format!("runc {said}")),
            Some(mended) => checks.warn(
                "runc",
                format!(
                    "runc {said} has {}, unless your distribution has fixed it under that number",
                    runc::HOLES
                ),
                format!(
                    "they let a container that chooses its mounts get out; paddock's cannot choose any, \
                     others on this engine might: {upgrade} to {mended} or newer"
                ),
            ),
        },
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
