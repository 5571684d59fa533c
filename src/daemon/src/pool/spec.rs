//! The specification of every container: one hardened shape, in which only image, names, UID and the bounds
//! of the runner differ.
//!
//! It must never depend on a caller: a container is made before anyone asks for it. If something is weakened
//! here, the proof at the start finds it ([`super::proof`]).

use std::collections::BTreeMap;

use paddock_proto::limits::{AGENT_PROGRAM, DATA_ALIASES, DATA_DIR, HOME_DATA_DIR, SNAPSHOT_DIR};
use sha2::{Digest, Sha256};

use super::agent::AgentFiles;
use super::core::Uid;
use super::disk::{self, DataPlace};
use super::loopback::{self, Loopback};
use super::mount::HostMount;
use super::runner::Runner;
use super::runtimes::Runtimes;
use super::snapshots::SnapshotMount;
use super::workspaces::Workspace;
use super::{agent, layers, seccomp, snapshots};
use crate::engine::{
    ContainerSpec, DriverConfig, Healthcheck, HostConfig, LogConfig, Mount, MountType, Ulimit, Volume,
    VolumeName, VolumeOptions, VolumeSpec,
};
use crate::id::hex;

/// The label that every container and volume of every paddock daemon carries.
pub(super) const APP: &str = "app=paddock";
/// The label that names the owner: the random id of a store.
pub(super) const OWNER: &str = "paddock.owner";
const NAME: &str = "paddock.name";
const RUNNER: &str = "paddock.runner";
const SPEC: &str = "paddock.spec";
const UID: &str = "paddock.uid";
/// Only a container over a kept workspace has it.
const OVER: &str = "paddock.over";

/// Bytes of locked memory: as much as a crypto library needs for its keys.
const MEMLOCK: u64 = 64 * 1024;
/// Bytes in POSIX message queues.
const MSGQUEUE: u64 = 64 * 1024;
/// Processes of a warm part that forks: itself, the child that waits, and the two processes that free the
/// memory of that child and of the run's.
const WARM_PIDS: u64 = 4;
/// Threads of the host that a kernel in a process, as gVisor's, has for each thread of its programs, and
/// those that it has for itself. Where the host refuses one, that kernel ends, with all of the container.
const KERNEL_PIDS: (u64, u64) = (4, 256);
/// Bytes of `/tmp` for each of its entries: 16,384 entries in 64 MiB.
const TMP_PER_INODE: u64 = 4096;
/// The least entries of `/tmp`.
const TMP_INODES: u64 = 16_384;
/// Bytes of a core dump. If `core_pattern` begins with `|`, the kernel runs a program of the host, as root,
/// for every crash; neither 0 nor any other limit prevents that, only 1 does (core(5)). The seccomp profile
/// keeps it at 1.
const CORE: u64 = 1;

/// Terminals of one container. The host has one number of terminals for all containers together
/// (`kernel.pty.max`, minus a reserve for the host), and one program could take them all; a separate mount of
/// `/dev/pts` with a bound of its own prevents that.
const TERMINALS: u64 = 64;

/// System V IPC belongs to no process: without these settings, what one run leaves would stay as long as the
/// container does, and take memory from every later run of the session. A shared memory segment ends with the
/// last process that used it. Message queues and semaphores have no such setting, so only few are allowed: 32
/// queues of 16 KiB, 32,000 semaphores in 128 sets (what Linux allowed up to 3.16).
const SYSCTLS: [(&str, &str); 3] =
    [("kernel.shm_rmid_forced", "1"), ("kernel.msgmni", "32"), ("kernel.sem", "250 32000 32 128")];

/// Files of `/proc` and `/sys` that reveal facts about the host or have been ways out of a container:
/// Docker's own list and more. The runtime skips a path that does not exist.
const MASKED: [&str; 31] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/locks",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/slabinfo",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/version",
    "/proc/vmallocinfo",
    "/proc/zoneinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
];

const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
impl Blueprint {
    /// The blueprint of the unit tests.
    pub(crate) fn example() -> Self {
        let files = AgentFiles::default();
        let name = |files: &AgentFiles| files.volume_name().unwrap();
        Blueprint {
            owner: "o".into(),
            agent: name(&files),
            readable: name(&files.readable()),
            files,
            layers: None,
            maps_users: false,
            first_user: (0, 0),
            runtimes: Runtimes::new("runc"),
        }
    }
}

/// Everything that is the same for all containers of one daemon.
#[derive(Debug, Clone)]
pub(super) struct Blueprint {
    /// The store's owner id.
    pub owner: String,
    /// The volume that holds the agent.
    pub agent: VolumeName,
    /// The volume for runtimes that start only a program that everybody may read.
    pub readable: VolumeName,
    /// What the first of them holds.
    pub files: AgentFiles,
    /// The volume of layers of packages; `None` where there are none.
    pub layers: Option<VolumeName>,
    /// Whether the engine maps users. Most kernels then refuse to set [`SYSCTLS`], so that no container would
    /// start.
    pub maps_users: bool,
    /// The user and the group of the engine's host that are 0 in containers, for what the engine mounts.
    pub first_user: (u32, u32),
    /// What is known of its runtimes.
    pub runtimes: Runtimes,
}

/// What to ask of the engine for one new container.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name; the volume has the same.
    pub name: VolumeName,
    /// Its `/data`.
    pub volume: VolumeSpec,
    /// The container.
    pub container: ContainerSpec,
    /// What the agent's volume holds.
    pub(super) files: AgentFiles,
}

/// The labels of a container that a pool made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerLabels {
    /// The name of the container and of its volume.
    pub(super) name: VolumeName,
    /// The user and group of its processes.
    pub(super) uid: Uid,
    /// What it runs.
    pub(super) language: String,
    /// The hash of its specification, see [`Blueprint::hash`].
    pub(super) spec: String,
    /// Whether it began over a kept workspace: it has files of a session even if nothing ran in it.
    pub(super) is_over: bool,
}

/// The name of the container that a volume of ours belongs to: the one on its label, or else the volume's own
/// name.
pub(super) fn container_of(volume: Volume) -> VolumeName {
    volume.labels.get(NAME).and_then(|name| name.parse().ok()).unwrap_or(volume.name)
}

impl ContainerLabels {
    /// `None` for a container that no pool made, such as the agent's writer.
    pub(super) fn of(labels: &BTreeMap<String, String>) -> Option<Self> {
        let name = labels.get(NAME)?.parse().ok()?;
        let uid = Uid(labels.get(UID)?.parse().ok()?);
        let (language, spec) = (labels.get(RUNNER)?.clone(), labels.get(SPEC)?.clone());
        Some(Self { name, uid, language, spec, is_over: labels.contains_key(OVER) })
    }
}

/// The workspace that this volume has, if a pool made it as `/data`.
pub(super) fn workspace_of(volume: &Volume) -> Option<Workspace> {
    let ContainerLabels { name, uid, language, .. } = ContainerLabels::of(&volume.labels)?;
    (name == volume.name).then_some(Workspace { name, uid, language })
}

impl Blueprint {
    /// The labels that select all containers and volumes of this owner.
    pub(super) fn owned(&self) -> [String; 2] {
        [APP.to_owned(), format!("{OWNER}={}", self.owner)]
    }

    /// The label that selects the container of this name, whatever its id.
    pub(super) fn named(name: &VolumeName) -> String {
        format!("{NAME}={name}")
    }

    /// The plan for a container of `runner` that runs as `uid`, under a name never used before.
    pub(super) fn plan(&self, runner: &Runner, uid: Uid) -> Option<Plan> {
        let owner = self.owner.get(..8).unwrap_or(&self.owner);
        let name: VolumeName =
            format!("paddock-{owner}-{}-{}", uid.0, crate::id::random_hex::<4>()).parse().ok()?;
        Some(self.plan_named(runner, uid, name))
    }

    /// The plan for a container of `runner` over the kept workspace of this name, whose files are `uid`'s.
    pub(super) fn plan_over(&self, runner: &Runner, uid: Uid, name: VolumeName) -> Plan {
        let mut plan = self.plan_named(runner, uid, name);
        plan.container.labels.insert(OVER.to_owned(), "workspace".to_owned());
        plan
    }

    fn plan_named(&self, runner: &Runner, uid: Uid, name: VolumeName) -> Plan {
        let container = self.container(runner, uid, &name);
        let labels = container.labels.clone();
        let driver_opts = disk::volume_options(&runner.bounds, uid, self.first_user);
        let volume = VolumeSpec { driver_opts, labels, ..VolumeSpec::local(name.clone()) };
        let (_, files) = self.agent_for(&runner.bounds.runtime);
        Plan { name, volume, container, files }
    }

    /// The volume that holds the agent in containers of this runtime, and what is in it.
    pub(super) fn agent_for(&self, runtime: &str) -> (&VolumeName, AgentFiles) {
        match self.runtimes.must_read(runtime) {
            true => (&self.readable, self.files.readable()),
            false => (&self.agent, self.files.clone()),
        }
    }

    /// The processes of the host for so many in a container of this runtime, once its proof is known.
    fn pids_of_host(&self, runtime: &str, inside: u64) -> u64 {
        match self.runtimes.facts(runtime) {
            Some(facts) if !facts.shares_kernel => {
                inside.saturating_mul(KERNEL_PIDS.0).saturating_add(KERNEL_PIDS.1)
            }
            _ => inside,
        }
    }

    /// The agent's volumes that containers may have.
    pub(super) fn agents(&self) -> Vec<VolumeName> {
        let readable = self.runtimes.some_must_read().then(|| self.readable.clone());
        std::iter::once(self.agent.clone()).chain(readable).collect()
    }

    /// A hash that two containers share if, and only if, they differ in nothing but name and UID.
    pub(super) fn hash(&self, runner: &Runner) -> String {
        let name: Result<VolumeName, _> = "any".parse();
        let text = name.map(|name| {
            let mut spec = self.container_without_hash(runner, Uid(0), &name);
            spec.labels.clear();
            let Runner { bounds, argv, warm, snapshot_labels, .. } = runner;
            let restore = snapshot_labels.as_ref().map(|labels| (&labels.restore, &labels.levels));
            format!("{}\n{bounds:?}\n{argv:?}\n{warm:?}\n{restore:?}", serde_json::json!(spec))
        });
        hex(&Sha256::digest(text.unwrap_or_default())[..8])
    }

    fn container(&self, runner: &Runner, uid: Uid, name: &VolumeName) -> ContainerSpec {
        let mut spec = self.container_without_hash(runner, uid, name);
        spec.labels.insert(SPEC.to_owned(), self.hash(runner));
        spec
    }

    fn container_without_hash(&self, runner: &Runner, uid: Uid, name: &VolumeName) -> ContainerSpec {
        let labels = [
            ("app", "paddock".to_owned()),
            (OWNER, self.owner.clone()),
            (NAME, name.to_string()),
            (RUNNER, runner.language.clone()),
            (UID, uid.0.to_string()),
        ];
        ContainerSpec {
            image: runner.image_id.to_string(),
            entrypoint: Some(vec![AGENT_PROGRAM.to_owned(), "init".to_owned()]),
            cmd: Some(Vec::new()),
            user: Some(format!("{0}:{0}", uid.0)),
            env: Vec::new(),
            working_dir: Some("/".to_owned()),
            labels: labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            healthcheck: Some(Healthcheck::DISABLED),
            stop_signal: Some("SIGKILL".to_owned()),
            hostname: Some("sandbox".to_owned()),
            network_disabled: self.loopback(runner).is_of_runtime(),
            host_config: self.host_config(runner, name),
        }
    }

    /// A `/dev/pts` of the container's own, on an anonymous volume that the engine removes with the
    /// container.
    fn terminals(&self, name: &VolumeName) -> Mount {
        let map = |pairs: &[(&str, String)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<BTreeMap<_, _>>()
        };
        // Group 5 is `tty` everywhere, and the group that the engine itself uses.
        let tty = 5 + self.first_user.1;
        let options = format!("ptmxmode=0666,mode=0620,gid={tty},nosuid,noexec,max={TERMINALS}");
        let options = map(&[("type", "devpts".into()), ("device", "devpts".into()), ("o", options)]);
        let labels = map(&[("app", "paddock".into()), (OWNER, self.owner.clone()), (NAME, name.to_string())]);
        let driver_config = Some(DriverConfig { name: "local".to_owned(), options });
        Mount {
            kind: MountType::Volume,
            source: String::new(),
            target: "/dev/pts".to_owned(),
            read_only: false,
            volume_options: Some(VolumeOptions { no_copy: true, labels, driver_config }),
            bind_options: None,
        }
    }

    /// Who makes the loopback of its containers.
    pub(super) fn loopback(&self, runner: &Runner) -> Loopback {
        self.runtimes.loopback(&runner.bounds.runtime).unwrap_or_default()
    }

    fn host_config(&self, runner: &Runner, name: &VolumeName) -> HostConfig {
        let bounds = &runner.bounds;
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mount = |target: &str| Mount {
            kind: MountType::Volume,
            source: name.to_string(),
            target: target.to_owned(),
            read_only: false,
            volume_options: Some(VolumeOptions { no_copy: true, ..VolumeOptions::default() }),
            bind_options: None,
        };
        let (agent, _) = self.agent_for(&bounds.runtime);
        let agent = agent::mount(agent, agent::labels(Some(&self.owner)), true);
        let mut mounts = vec![agent, mount(DATA_DIR)];
        mounts.extend(DATA_ALIASES.iter().map(|alias| mount(alias)));
        if bounds.place != DataPlace::Memory {
            let labels =
                [("app", "paddock".to_owned()), (OWNER, self.owner.clone()), (NAME, name.to_string())];
            let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            mounts.extend([disk::home(bounds, name, labels), mount(HOME_DATA_DIR)]);
        }
        mounts.extend(runner.mounts.iter().map(HostMount::mount));
        // One mount for all layers: it stands before anybody knows which packages a program asks for.
        if let Some(volume) = self.layers.as_ref().filter(|_| runner.packages.is_some() && !runner.fetches) {
            mounts.push(layers::mount(volume, &self.owner, true));
        }
        match &runner.snapshot {
            SnapshotMount::None => {}
            SnapshotMount::Saving => mounts.push(mount(SNAPSHOT_DIR)),
            SnapshotMount::Restored(volume) => mounts.push(snapshots::mount(volume, &self.owner, true)),
        }
        if self.runtimes.is_of_host(&bounds.runtime) {
            mounts.push(self.terminals(name));
        }
        mounts.extend(self.loopback(runner).mounts());
        let ulimit = |name: &str, n: u64| Ulimit { name: name.to_owned(), soft: signed(n), hard: signed(n) };
        let tmp_inodes = (bounds.tmp / TMP_PER_INODE).max(TMP_INODES);
        let tmp = format!("rw,exec,nosuid,nodev,size={},nr_inodes={tmp_inodes},mode=1777", bounds.tmp);
        let mut tmpfs = BTreeMap::from([("/tmp".to_owned(), tmp)]);
        // A volume that the image declares would be a writable directory on the host's disk, without a quota.
        for path in &runner.volumes {
            if !mounts.iter().any(|m| m.target == *path) && path != "/tmp" {
                tmpfs.insert(path.clone(), "ro,nosuid,nodev,noexec,size=4k,nr_inodes=4".to_owned());
            }
        }
        let list = |paths: &[&str]| Some(paths.iter().map(|p| (*p).to_owned()).collect());
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked by the configuration to be 0.01 to 1024"
        )]
        let nano_cpus = (bounds.cpus * 1e9) as i64;
        let warm_pids = if runner.warm.is_empty() { 0 } else { WARM_PIDS };
        let memory = signed(runner.container_memory());
        let profile = seccomp::profile(self.runtimes.clone3(&bounds.runtime));
        let sysctls: &[_] = if self.maps_users { &[] } else { &SYSCTLS };
        HostConfig {
            mounts,
            tmpfs,
            readonly_rootfs: true,
            cap_drop: vec!["ALL".to_owned()],
            security_opt: vec!["no-new-privileges".to_owned(), format!("seccomp={profile}")],
            network_mode: Some("none".to_owned()),
            ipc_mode: Some("private".to_owned()),
            cgroupns_mode: Some("private".to_owned()),
            userns_mode: None,
            pids_limit: Some(signed(
                self.pids_of_host(&bounds.runtime, bounds.pids.saturating_add(warm_pids)),
            )),
            memory: Some(memory),
            memory_swap: Some(memory),
            nano_cpus: Some(nano_cpus),
            ulimits: vec![
                ulimit("nofile", bounds.open_files),
                ulimit("core", CORE),
                ulimit("fsize", bounds.file_size),
                ulimit("memlock", MEMLOCK),
                ulimit("msgqueue", MSGQUEUE),
            ],
            shm_size: Some(signed(bounds.shm)),
            log_config: Some(LogConfig::none()),
            masked_paths: list(&MASKED),
            readonly_paths: list(&READ_ONLY),
            dns: vec![loopback::RESOLVER.to_owned()],
            dns_options: loopback::RESOLVER_OPTIONS.map(str::to_owned).to_vec(),
            dns_search: vec![loopback::NO_DOMAIN.to_owned()],
            oom_score_adj: Some(800),
            runtime: (!bounds.runtime.is_empty()).then(|| bounds.runtime.clone()),
            init: Some(false),
            sysctls: sysctls.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..HostConfig::default()
        }
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
