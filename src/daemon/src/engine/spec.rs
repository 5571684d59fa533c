//! The specification of a container: the body of `POST /containers/create`.
//!
//! Types only. It must never choose a value: `None` is left out of the JSON, and the engine's own default
//! applies. The pool chooses the hardening that makes a container a sandbox.

use std::collections::BTreeMap;

use serde::Serialize;

/// The body of `POST /containers/create`. Equal values serialise to the same bytes, so that a hash of them
/// tells whether two containers were made alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerSpec {
    /// The image, by name or id.
    pub image: String,
    /// The program; `None` for the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Its arguments; `None` for the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    /// `uid:gid` or names of the image; `None` for the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Variables, `NAME=value`, which override the image's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Working directory; `None` for the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Its labels, which cannot change later. They override the image's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `Some(Healthcheck::DISABLED)` turns the image's health check off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthcheck: Option<Healthcheck>,
    /// The signal of `docker stop`, such as `SIGKILL`; `None` for the image's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Its host name; `None` for the first 12 digits of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Whether the engine has nothing to do with its network. The runtime then makes a network namespace with
    /// a loopback, and nobody writes `/etc/hosts` and `/etc/resolv.conf`. `false` is left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub network_disabled: bool,
    /// Mounts, limits and isolation.
    pub host_config: HostConfig,
}

/// `Healthcheck` of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    test: &'static [&'static str],
}

impl Healthcheck {
    /// No health check, even if the image declares one.
    pub const DISABLED: Healthcheck = Healthcheck { test: &["NONE"] };
}

/// `HostConfig` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostConfig {
    /// Volumes and directories, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Folders of the host, each as `host:container`. The engine makes a folder that is missing. For
    /// [`Self::mounts`] it would refuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<String>,
    /// Path → options such as `rw,nosuid,nodev,size=67108864`. The archive API cannot see the files in these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tmpfs: BTreeMap<String, String>,
    /// Whether `/` is read-only.
    pub readonly_rootfs: bool,
    /// Dropped capabilities; `ALL` for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// Such as `no-new-privileges` and `seccomp=` followed by the profile's JSON itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// `none`, or a network's name; `None` for the default bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<String>,
    /// `private`, `none`, `shareable` or `host`. `none` has no `/dev/shm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc_mode: Option<String>,
    /// `private` or `host`; `None` for the engine's default, which is `host` on cgroup v1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroupns_mode: Option<String>,
    /// `host` turns the engine's mapping of users off; `None` for the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userns_mode: Option<String>,
    /// The most processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<i64>,
    /// The most memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<i64>,
    /// The most memory and swap together, in bytes: equal to `memory` for no swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<i64>,
    /// Processor time in billionths of one processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_cpus: Option<i64>,
    /// Limits of each process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ulimits: Vec<Ulimit>,
    /// Size of `/dev/shm`, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_size: Option<i64>,
    /// The log of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_config: Option<LogConfig>,
    /// Paths hidden from it. `None` for the engine's own list, which this *replaces*.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masked_paths: Option<Vec<String>>,
    /// Paths it cannot write. `None` for the engine's own list, which this *replaces*.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readonly_paths: Option<Vec<String>>,
    /// Name servers; when empty, the engine copies those of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Options of the resolver, as in resolv.conf(5); when empty, the engine copies those of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_options: Vec<String>,
    /// Domains that names are looked up in; when empty, the engine copies those of the host. `.` means none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// −1000 to 1000: with a higher number the kernel kills it sooner when the host is out of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// One of [`EngineInfo::runtimes`](super::EngineInfo::runtimes); `None` for the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Whether the engine starts it again when it ends.
    pub restart_policy: RestartPolicy,
    /// Whether the engine's own `init` is PID 1; `None` for the engine's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<bool>,
    /// Kernel parameters of its namespaces.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
}

/// One of `HostConfig.Mounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Mount {
    /// The type of the source.
    #[serde(rename = "Type")]
    pub kind: MountType,
    /// A volume's name, or a path on the engine's host. Empty for an anonymous volume, which the engine
    /// removes with the container.
    pub source: String,
    /// The path in the container.
    pub target: String,
    /// Whether it cannot be written through this mount.
    pub read_only: bool,
    /// Only with [`MountType::Volume`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_options: Option<VolumeOptions>,
    /// Only with [`MountType::Bind`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind_options: Option<BindOptions>,
}

/// `Type` of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MountType {
    /// A volume, which the engine creates if there is none of that name.
    Volume,
    /// A path on the engine's host.
    Bind,
}

/// `BindOptions` of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindOptions {
    /// Whether what is mounted below the source stays out.
    pub non_recursive: bool,
}

/// `VolumeOptions` of a mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeOptions {
    /// Whether an empty volume stays empty; otherwise the engine copies the image's files at the target into
    /// it.
    pub no_copy: bool,
    /// Its labels, if the engine creates it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its driver, if the engine creates it; `None` for a plain folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_config: Option<DriverConfig>,
}

/// `DriverConfig` of a mount's volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DriverConfig {
    /// `local` for the engine's own driver.
    pub name: String,
    /// The same as [`VolumeSpec::driver_opts`](super::VolumeSpec::driver_opts).
    pub options: BTreeMap<String, String>,
}

/// One of `HostConfig.Ulimits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ulimit {
    /// Its name without `RLIMIT_`, in lower case: `nofile`, `core`, `fsize`, …
    pub name: String,
    /// The limit at the start.
    pub soft: i64,
    /// The value up to which the process can raise it; −1 for no limit.
    pub hard: i64,
}

/// `HostConfig.LogConfig`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LogConfig {
    /// The driver; `none` keeps nothing.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The driver's options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

impl LogConfig {
    /// The engine keeps none of the container's output.
    pub fn none() -> LogConfig {
        LogConfig { kind: "none".to_owned(), config: BTreeMap::new() }
    }
}

/// `HostConfig.RestartPolicy`. Only one policy leaves the decision to the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "Name")]
pub enum RestartPolicy {
    /// A container that ended is not started again.
    #[default]
    #[serde(rename = "no")]
    No,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unset_fields_are_left_out() {
        let spec = ContainerSpec { image: "a".into(), ..ContainerSpec::default() };
        assert_eq!(
            json!(spec),
            json!({"Image": "a", "HostConfig": {"ReadonlyRootfs": false, "RestartPolicy": {"Name": "no"}}})
        );
    }

    #[test]
    fn every_field_has_the_engines_name() {
        let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let spec = ContainerSpec {
            image: "a".into(),
            entrypoint: Some(vec!["e".into()]),
            cmd: Some(vec![]),
            user: Some("1:2".into()),
            env: vec!["A=b".into()],
            working_dir: Some("/w".into()),
            labels: map("l", "v"),
            healthcheck: Some(Healthcheck::DISABLED),
            stop_signal: Some("SIGKILL".into()),
            hostname: Some("h".into()),
            network_disabled: true,
            host_config: HostConfig {
                mounts: vec![Mount {
                    kind: MountType::Volume,
                    source: "v".into(),
                    target: "/data".into(),
                    read_only: true,
                    volume_options: Some(VolumeOptions {
                        no_copy: true,
                        labels: map("l", "v"),
                        driver_config: Some(DriverConfig {
                            name: "local".into(),
                            options: map("o", "max=1"),
                        }),
                    }),
                    bind_options: Some(BindOptions { non_recursive: true }),
                }],
                binds: vec!["/h:/c".into()],
                tmpfs: map("/tmp", "size=1"),
                readonly_rootfs: true,
                cap_drop: vec!["ALL".into()],
                security_opt: vec!["no-new-privileges".into()],
                network_mode: Some("none".into()),
                ipc_mode: Some("private".into()),
                cgroupns_mode: Some("private".into()),
                userns_mode: Some("host".into()),
                pids_limit: Some(1),
                memory: Some(2),
                memory_swap: Some(3),
                nano_cpus: Some(4),
                ulimits: vec![Ulimit { name: "core".into(), soft: 0, hard: -1 }],
                shm_size: Some(5),
                log_config: Some(LogConfig::none()),
                masked_paths: Some(vec![]),
                readonly_paths: Some(vec!["/proc/sys".into()]),
                dns: vec!["127.0.0.1".into()],
                dns_options: vec!["ndots:0".into()],
                dns_search: vec![".".into()],
                oom_score_adj: Some(800),
                runtime: Some("runsc".into()),
                restart_policy: RestartPolicy::No,
                init: Some(false),
                sysctls: map("a.b", "1"),
            },
        };
        let expected = json!({
            "Image": "a", "Entrypoint": ["e"], "Cmd": [], "User": "1:2", "Env": ["A=b"], "WorkingDir": "/w",
            "Labels": {"l": "v"}, "Healthcheck": {"Test": ["NONE"]}, "StopSignal": "SIGKILL", "Hostname": "h",
            "NetworkDisabled": true,
            "HostConfig": {
                "Mounts": [{"Type": "volume", "Source": "v", "Target": "/data", "ReadOnly": true,
                            "VolumeOptions": {"NoCopy": true, "Labels": {"l": "v"},
                                              "DriverConfig": {"Name": "local", "Options": {"o": "max=1"}}},
                            "BindOptions": {"NonRecursive": true}}],
                "Binds": ["/h:/c"], "Tmpfs": {"/tmp": "size=1"}, "ReadonlyRootfs": true, "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"], "NetworkMode": "none", "IpcMode": "private",
                "CgroupnsMode": "private", "UsernsMode": "host", "PidsLimit": 1, "Memory": 2, "MemorySwap": 3,
                "NanoCpus": 4, "Ulimits": [{"Name": "core", "Soft": 0, "Hard": -1}], "ShmSize": 5,
                "LogConfig": {"Type": "none"}, "MaskedPaths": [], "ReadonlyPaths": ["/proc/sys"],
                "Dns": ["127.0.0.1"], "DnsOptions": ["ndots:0"], "DnsSearch": ["."], "OomScoreAdj": 800,
                "Runtime": "runsc",
                "RestartPolicy": {"Name": "no"}, "Init": false, "Sysctls": {"a.b": "1"}
            }
        });
        assert_eq!(json!(spec), expected);
    }
}
