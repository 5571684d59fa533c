//! `sandbox_config`: limits for a command, in addition to those of its container.
//!
//! Keys may be in snake_case or in camelCase. It must never ignore a key: it refuses unknown keys, and keys
//! that this host cannot enforce.

use paddock_proto::FilePolicy;
use paddock_proto::message::RunLimits;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::egress::{Dollars, NetworkArgument, NetworkRequest};
use crate::tools::{Code, Fault};

const MIB: u64 = 1 << 20;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxConfig {
    /// What the command may reach outside of its container. Without it: nothing.
    network: Option<Network>,
    /// Paths: absolute, below ~, or relative to the working directory, with the patterns * ? [] and **. A
    /// name without a / in a deny list matches at any depth below the working directory.
    filesystem: Option<Filesystem>,
    #[serde(alias = "resourceLimits")]
    resource_limits: Option<ResourceLimits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Network {
    /// Only these: names such as example.com, all names below one such as *.example.com, * for everything, or
    /// addresses such as 10.0.0.0/8, each with a port if only that port is meant. Empty: no network.
    #[serde(alias = "allowedDomains")]
    allowed_domains: Option<Vec<String>>,
    /// Not these, whatever is allowed.
    #[serde(alias = "deniedDomains")]
    denied_domains: Option<Vec<String>>,
    /// Names of services that the operator has set up. The command reaches each as `http://NAME.paddock/`,
    /// and the server adds the credentials.
    services: Option<Vec<String>>,
    /// What the command may spend on models among these services, in dollars, as their operator has set the
    /// prices. The next request after that is refused.
    #[schemars(with = "Option<f64>", range(min = 0, max = 1_000_000))]
    #[serde(alias = "maxCostUsd")]
    max_cost_usd: Option<Dollars>,
}

/// What a configuration means.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SandboxTerms {
    pub(super) limits: RunLimits,
    pub(super) files: Option<FilePolicy>,
    /// What the command asks to reach; `None`: nothing.
    pub(super) network: Option<NetworkRequest>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filesystem {
    /// The command may write only here. Without it: wherever its user may.
    #[serde(alias = "allowWrite")]
    allow_write: Option<Vec<String>>,
    /// The command may not write these, for example .env or *.key.
    #[serde(alias = "denyWrite")]
    deny_write: Option<Vec<String>>,
    /// The command may not read these.
    #[serde(alias = "denyRead")]
    deny_read: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResourceLimits {
    /// Memory of all its processes together, in MiB.
    #[schemars(range(min = 1))]
    #[serde(alias = "maxMemoryMb", alias = "maxMemoryMB")]
    max_memory_mb: Option<u64>,
    /// CPU time of each of its processes, in seconds.
    #[schemars(range(min = 1))]
    #[serde(alias = "maxCpuSeconds")]
    max_cpu_seconds: Option<u32>,
    /// Size of each file that it writes, in MiB.
    #[schemars(range(min = 1))]
    #[serde(alias = "maxFileSizeMb", alias = "maxFileSizeMB")]
    max_file_size_mb: Option<u64>,
    /// Processes at one time. One more ends the command and every process that it started; fork itself does
    /// not fail.
    #[schemars(range(min = 1))]
    #[serde(alias = "maxProcesses")]
    max_processes: Option<u32>,
}

impl SandboxConfig {
    /// What it means. Whether its network is one that this daemon gives is not looked at.
    pub(super) fn check(self) -> Result<SandboxTerms, Fault> {
        let network = self.network.unwrap_or_default();
        let network = NetworkArgument::Lists {
            allowed_domains: network.allowed_domains.unwrap_or_default(),
            denied_domains: network.denied_domains.unwrap_or_default(),
            services: network.services.unwrap_or_default(),
            max_cost_usd: network.max_cost_usd,
        };
        let Filesystem { allow_write, deny_read, deny_write } = self.filesystem.unwrap_or_default();
        let (deny_read, deny_write) = (deny_read.unwrap_or_default(), deny_write.unwrap_or_default());
        let files = FilePolicy { allow_write, deny_read, deny_write };
        files.check().map_err(|problem| {
            Fault::new(Code::InvalidArgument, format!("`sandbox_config.filesystem.{problem}`"))
        })?;
        let limits = self.resource_limits.unwrap_or_default();
        let limits = RunLimits {
            cpu_seconds: over_zero("max_cpu_seconds", limits.max_cpu_seconds)?,
            file_size: mib("max_file_size_mb", limits.max_file_size_mb)?,
            memory: mib("max_memory_mb", limits.max_memory_mb)?,
            processes: over_zero("max_processes", limits.max_processes)?,
            disk: None,
        };
        let files = Some(files).filter(|files| !files.is_empty());
        Ok(SandboxTerms { limits, files, network: network.into_request() })
    }
}

fn over_zero<T: Default + PartialEq>(key: &str, value: Option<T>) -> Result<Option<T>, Fault> {
    if value.as_ref() == Some(&T::default()) {
        let message = format!("`sandbox_config.resource_limits.{key}` is 0; it must be at least 1");
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    Ok(value)
}

fn mib(key: &str, value: Option<u64>) -> Result<Option<u64>, Fault> {
    let Some(number) = over_zero(key, value)? else { return Ok(None) };
    let most = u64::MAX / MIB;
    let bytes = number.checked_mul(MIB).ok_or_else(|| {
        let message =
            format!("`sandbox_config.resource_limits.{key}` is {number}; it must be at most {most}");
        Fault::new(Code::InvalidArgument, message)
    })?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<SandboxTerms, String> {
        let config: SandboxConfig = serde_path_to_error::deserialize(value)
            .map_err(|error| format!("{}: {}", error.path(), error.inner()))?;
        config.check().map_err(|fault| fault.code.as_str().to_owned())
    }

    #[test]
    fn both_spellings_mean_the_same() {
        let limits = RunLimits {
            cpu_seconds: Some(30),
            file_size: Some(100 << 20),
            memory: Some(512 << 20),
            processes: Some(10),
            disk: None,
        };
        let snake = json!({ "network": { "allowed_domains": [], "denied_domains": ["evil.com"] },
            "resource_limits": { "max_memory_mb": 512, "max_cpu_seconds": 30, "max_file_size_mb": 100,
                "max_processes": 10 } });
        let camel = json!({ "network": { "allowedDomains": [], "deniedDomains": ["evil.com"] },
            "resourceLimits": { "maxMemoryMb": 512, "maxCpuSeconds": 30, "maxFileSizeMb": 100,
                "maxProcesses": 10 } });
        let limited = || SandboxTerms { limits, ..SandboxTerms::default() };
        assert_eq!(read(snake), Ok(limited()));
        assert_eq!(read(camel), Ok(limited()));
        for nothing in
            [json!({ "filesystem": {} }), json!({ "network": null, "filesystem": { "deny_read": null } })]
        {
            assert_eq!(read(nothing), Ok(SandboxTerms::default()));
        }
        let files = FilePolicy {
            allow_write: Some(vec!["/tmp".into()]),
            deny_read: vec!["~/.ssh".into()],
            deny_write: vec!["*.key".into()],
        };
        for filesystem in [
            json!({ "allow_write": ["/tmp"], "deny_read": ["~/.ssh"], "deny_write": ["*.key"] }),
            json!({ "allowWrite": ["/tmp"], "denyRead": ["~/.ssh"], "denyWrite": ["*.key"] }),
        ] {
            let read = read(json!({ "filesystem": filesystem }));
            assert_eq!(read, Ok(SandboxTerms { files: Some(files.clone()), ..SandboxTerms::default() }));
        }
        for network in [
            json!({ "allowed_domains": ["example.com"], "denied_domains": ["a.example.com"] }),
            json!({ "allowedDomains": ["example.com"], "deniedDomains": ["a.example.com"] }),
        ] {
            let network = read(json!({ "network": network })).map(|terms| terms.network);
            let asked = NetworkRequest {
                allowed_domains: vec!["example.com".into()],
                denied_domains: vec!["a.example.com".into()],
                ..NetworkRequest::default()
            };
            assert_eq!(network, Ok(Some(asked)));
        }
        let nothing = FilePolicy { allow_write: Some(Vec::new()), ..FilePolicy::default() };
        assert_eq!(
            read(json!({ "filesystem": { "allow_write": [] } })).map(|terms| terms.files),
            Ok(Some(nothing))
        );
    }

    #[test]
    fn nothing_is_passed_over() {
        for (value, wanted) in [
            (json!({ "netwrok": {} }), "netwrok"),
            (json!({ "network": { "domains": [] } }), "network.domains"),
            (json!({ "filesystem": { "allow_read": [] } }), "filesystem.allow_read"),
            (json!({ "filesystem": { "deny_write": [""] } }), "invalid_argument"),
            (json!({ "filesystem": { "allow_write": "/tmp" } }), "filesystem.allow_write"),
            (json!({ "resource_limits": { "max_memory": 5 } }), "resource_limits.max_memory"),
            (json!({ "resource_limits": { "max_memory_mb": "5" } }), "resource_limits.max_memory_mb"),
            (json!({ "resource_limits": { "max_processes": -1 } }), "resource_limits.max_processes"),
            (json!({ "resource_limits": { "max_cpu_seconds": 0 } }), "invalid_argument"),
            (json!({ "resource_limits": { "max_memory_mb": u64::MAX } }), "invalid_argument"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.starts_with(wanted), "{value} gave {error}");
        }
    }
}
