//! The machine on which the figures were measured: without it they mean nothing.

use std::time::SystemTime;

use paddock::engine::Engine;
use serde_json::{Value, json};

use crate::Result;

pub(crate) async fn describe(engine: &Engine) -> Result<Value> {
    let info = engine.info().await?;
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<_> = load.split(' ').take(3).collect();
    Ok(json!({
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "paddock": env!("CARGO_PKG_VERSION"),
        "cores": info.ncpu,
        "processor": cpu.unwrap_or("unknown"),
        "memory": format!("{} MiB", info.mem_total >> 20),
        "kernel": info.kernel_version,
        "engine": format!(
            "{} (API {}, {}, {}, cgroup {})",
            info.server_version, engine.api_version(), info.default_runtime, info.driver, info.cgroup_version
        ),
        "load at the end": load.join(" "),
    }))
}
