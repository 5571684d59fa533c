//! `docker run` with what the daemon asks of the engine for its containers, said as flags.
//!
//! Two things of it the command cannot say: the longer lists of masked and read-only paths. It must never
//! leave out a limit that it can say.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use paddock::engine::{Engine, HostConfig, Mount, VolumeName};
use paddock::pool::Specimen;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::Result;

/// The engine still has work after `docker run` has ended; nothing else is measured meanwhile.
const SETTLE: Duration = Duration::from_millis(50);

/// One container, made and removed, with the code on standard input. The volume is removed outside of the
/// time.
pub(crate) async fn run(
    engine: &Engine,
    specimen: &Specimen,
    dir: &Path,
    code: &str,
    prints: &str,
) -> Result<Duration> {
    let volume: VolumeName = format!("{}-{}", specimen.plan.name, paddock::id::random_hex::<4>()).parse()?;
    let arguments = arguments(specimen, &volume, dir)?;
    let begun = Instant::now();
    let mut child = Command::new("docker")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the docker command is needed: {error}"))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(code.as_bytes()).await?;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let taken = begun.elapsed();
    let removed = engine.volume_remove(&volume).await;
    if !output.status.success() || output.stdout != prints.as_bytes() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("docker run: {} {said}", output.status).into());
    }
    removed?;
    tokio::time::sleep(SETTLE).await;
    Ok(taken)
}

fn arguments(specimen: &Specimen, volume: &VolumeName, dir: &Path) -> io::Result<Vec<String>> {
    let spec = &specimen.plan.container;
    let mut all: Vec<String> =
        ["run", "--rm", "--interactive", "--no-healthcheck"].map(str::to_owned).to_vec();
    let mut flag = |name: &str, value: &str| all.push(format!("--{name}={value}"));
    flag("user", spec.user.as_deref().unwrap_or(""));
    flag("workdir", spec.working_dir.as_deref().unwrap_or("/"));
    flag("hostname", spec.hostname.as_deref().unwrap_or(""));
    flag("env", "HOME=/tmp");
    for (name, value) in &spec.labels {
        flag("label", &format!("{name}={value}"));
    }
    host(&spec.host_config, dir, &mut flag)?;
    for mount in &spec.host_config.mounts {
        flag("mount", &self::mount(mount, specimen, volume));
    }
    all.push(spec.image.clone());
    Ok(all)
}

fn host(host: &HostConfig, dir: &Path, flag: &mut impl FnMut(&str, &str)) -> io::Result<()> {
    if host.readonly_rootfs {
        flag("read-only", "true");
    }
    host.cap_drop.iter().for_each(|capability| flag("cap-drop", capability));
    for option in &host.security_opt {
        match option.strip_prefix("seccomp=") {
            // The command wants a file where the API wants its content.
            Some(profile) => {
                let file = dir.join("seccomp.json");
                std::fs::write(&file, profile)?;
                flag("security-opt", &format!("seccomp={}", file.display()));
            }
            None => flag("security-opt", option),
        }
    }
    let texts = [
        ("network", &host.network_mode),
        ("ipc", &host.ipc_mode),
        ("cgroupns", &host.cgroupns_mode),
        ("runtime", &host.runtime),
    ];
    for (name, value) in texts {
        value.iter().for_each(|value| flag(name, value));
    }
    let numbers = [
        ("pids-limit", host.pids_limit),
        ("memory", host.memory),
        ("memory-swap", host.memory_swap),
        ("shm-size", host.shm_size),
        ("oom-score-adj", host.oom_score_adj.map(i64::from)),
    ];
    for (name, value) in numbers {
        value.iter().for_each(|value| flag(name, &value.to_string()));
    }
    if let Some(nanos) = host.nano_cpus {
        flag("cpus", &format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000));
    }
    for limit in &host.ulimits {
        flag("ulimit", &format!("{}={}:{}", limit.name, limit.soft, limit.hard));
    }
    for (name, value) in &host.sysctls {
        flag("sysctl", &format!("{name}={value}"));
    }
    host.dns.iter().for_each(|server| flag("dns", server));
    host.dns_options.iter().for_each(|option| flag("dns-option", option));
    host.dns_search.iter().for_each(|domain| flag("dns-search", domain));
    host.log_config.iter().for_each(|log| flag("log-driver", &log.kind));
    host.tmpfs.iter().for_each(|(path, options)| flag("tmpfs", &format!("{path}:{options}")));
    Ok(())
}

/// A mount as it is, but for the session's volume, which is made anew, with its options.
fn mount(mount: &Mount, specimen: &Specimen, volume: &VolumeName) -> String {
    let mut text = format!("type=volume,target={},volume-nocopy", mount.target);
    if mount.read_only {
        text.push_str(",readonly");
    }
    let is_the_sessions = mount.source == specimen.plan.name.as_str();
    if is_the_sessions {
        text.push_str(&format!(",source={volume}"));
    } else if !mount.source.is_empty() {
        text.push_str(&format!(",source={}", mount.source));
    }
    let own = mount.volume_options.as_ref();
    let driver = own.and_then(|options| options.driver_config.as_ref());
    let (labels, options) = if is_the_sessions {
        (Some(&specimen.plan.volume.labels), Some(&specimen.plan.volume.driver_opts))
    } else {
        (own.map(|options| &options.labels), driver.map(|driver| &driver.options))
    };
    if options.is_some_and(|options| !options.is_empty()) {
        text.push_str(",volume-driver=local");
    }
    for (name, value) in labels.into_iter().flatten() {
        text.push_str(&format!(",volume-label={name}={value}"));
    }
    for (name, value) in options.into_iter().flatten() {
        // Fields with a comma in them are quoted: the flag is a line of CSV.
        text.push_str(&format!(",\"volume-opt={name}={value}\""));
    }
    text
}
