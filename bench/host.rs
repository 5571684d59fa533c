//! The daemon and the agents as the host's `/proc` shows them.

use paddock::engine::Engine;

use crate::Result;

/// The kernel's unit of processor time in `/proc`, a hundredth of a second on every Linux.
pub(crate) const TICKS: f64 = 100.0;

/// The memory of PID 1 of a container, in KiB.
pub(crate) struct AgentMemory {
    pub(crate) pid: u32,
    /// Its proportional set.
    pub(crate) pss: f64,
    /// Its resident set.
    pub(crate) rss: f64,
}

/// PID 1 of each of the daemon's containers, as the host sees it.
pub(crate) async fn agents(engine: &Engine, label: &str) -> Result<Vec<AgentMemory>> {
    let mut all = Vec::new();
    for container in engine.container_list(&[label.to_owned()]).await? {
        let pid = u32::try_from(engine.container_inspect(&container.id).await?.state.pid)?;
        let field = |name| field(&format!("/proc/{pid}/smaps_rollup"), name);
        all.push(AgentMemory { pid, pss: field("Pss")?, rss: field("Rss")? });
    }
    Ok(all)
}

/// A field of `/proc/PID/status`, in KiB.
pub(crate) fn status(pid: u32, name: &str) -> Result<f64> {
    field(&format!("/proc/{pid}/status"), name)
}

/// A line `Name:   number kB`.
fn field(file: &str, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{file} has no {name}").into())
}

/// Processor time of a process, its threads included, in the kernel's ticks.
pub(crate) fn ticks(pid: u32) -> Result<f64> {
    let file = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    // Behind the name, which may contain anything: utime and stime are the 14th and 15th of the whole line.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok());
    let both = field(11).zip(field(12)).map(|(user, system)| user + system);
    both.ok_or_else(|| format!("{file} is not what proc(5) says").into())
}

/// Processor time of the whole machine since it started, in the kernel's ticks: everything but idling and
/// waiting.
pub(crate) fn busy() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    // cpu user nice system idle iowait irq softirq
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu "));
    let fields: Vec<f64> =
        line.unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [user, nice, system, _, _, irq, softirq, ..] => Ok(user + nice + system + irq + softirq),
        _ => Err("/proc/stat is not what proc(5) says".into()),
    }
}

/// Processor time of a process in microseconds, its threads that live included.
pub(crate) fn cpu(pid: u32) -> Result<f64> {
    let time = |text: &str| text.split(' ').next()?.parse::<f64>().ok();
    Ok(of_threads(pid, "schedstat", |text| time(text).map(|nanos| [nanos, 0.0]))?[0] / 1e3)
}

/// How often a process has waited, and how often it was interrupted.
pub(crate) fn switches(pid: u32) -> Result<[f64; 2]> {
    let field =
        |text: &str, name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    of_threads(pid, "status", |text| {
        Some([field(text, "voluntary_ctxt_switches:")?, field(text, "nonvoluntary_ctxt_switches:")?])
    })
}

/// The sums over the threads of a process.
fn of_threads(pid: u32, name: &str, read: impl Fn(&str) -> Option<[f64; 2]>) -> Result<[f64; 2]> {
    let mut sum = [0.0; 2];
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let file = task?.path().join(name);
        // A thread may have ended.
        if let Ok(text) = std::fs::read_to_string(&file) {
            let [a, b] = read(&text).ok_or_else(|| format!("{} is not what proc(5) says", file.display()))?;
            sum = [sum[0] + a, sum[1] + b];
        }
    }
    Ok(sum)
}

/// Context switches of the whole machine since it started.
pub(crate) fn machine_switches() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let count = text.lines().find_map(|line| line.strip_prefix("ctxt ")?.parse().ok());
    count.ok_or_else(|| "/proc/stat has no ctxt".into())
}
