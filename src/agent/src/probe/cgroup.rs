//! What this container's control groups (version 1 or 2) allow, by the files that the engine shows in here.
//!
//! It must never take a missing file for a missing limit: the limit may hold all the same.

use paddock_proto::message::Allowed;

const ROOT: &str = "/sys/fs/cgroup";
/// Version 1 has no word for "all": it says the largest possible number of pages. From here on a number means
/// that.
const NO_LIMIT: u64 = 1 << 60;

/// Bytes of memory.
pub(super) fn memory() -> Allowed {
    first(&["memory.max", "memory/memory.limit_in_bytes"], amount)
}

/// Bytes of swap. Version 1 counts memory and swap together.
pub(super) fn swap() -> Allowed {
    let alone = first(&["memory.swap.max"], amount);
    match (alone, first(&["memory/memory.memsw.limit_in_bytes"], amount), memory()) {
        (Allowed::Unseen, Allowed::UpTo(both), Allowed::UpTo(memory)) => {
            Allowed::UpTo(both.saturating_sub(memory))
        }
        (Allowed::Unseen, both, _) => both,
        (alone, ..) => alone,
    }
}

/// Processes and threads.
pub(super) fn pids() -> Allowed {
    first(&["pids.max", "pids/pids.max"], amount)
}

/// Thousandths of a processor.
pub(super) fn cpu_milli() -> Allowed {
    let alone = first(&["cpu.max"], |text| {
        let (quota, period) = text.split_once(' ')?;
        share(quota, period)
    });
    if alone != Allowed::Unseen {
        return alone;
    }
    let period = ["cpu", "cpu,cpuacct"].iter().find_map(|dir| read(&format!("{dir}/cpu.cfs_period_us")));
    let Some(period) = period else { return Allowed::Unseen };
    let quota = |text: &str| share(text, &period);
    first(&["cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us"], quota)
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(format!("{ROOT}/{path}")).ok()
}

/// What the first of these files that can be read means.
fn first(paths: &[&str], meaning: impl Fn(&str) -> Option<Allowed>) -> Allowed {
    paths.iter().find_map(|path| meaning(read(path)?.trim())).unwrap_or_default()
}

fn amount(text: &str) -> Option<Allowed> {
    if text == "max" {
        return Some(Allowed::All);
    }
    let amount = text.parse().ok()?;
    Some(if amount >= NO_LIMIT { Allowed::All } else { Allowed::UpTo(amount) })
}

/// Thousandths of a processor: microseconds of CPU time in each period of so many microseconds.
fn share(quota: &str, period: &str) -> Option<Allowed> {
    if matches!(quota.trim(), "max" | "-1") {
        return Some(Allowed::All);
    }
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (period > 0).then(|| Allowed::UpTo(quota.saturating_mul(1000) / period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_files_say_is_read_in_both_versions() {
        assert_eq!(amount("max"), Some(Allowed::All));
        assert_eq!(amount("9223372036854771712"), Some(Allowed::All));
        assert_eq!(amount("128"), Some(Allowed::UpTo(128)));
        assert_eq!(amount("many"), None);
        assert_eq!(share("max", "100000"), Some(Allowed::All));
        assert_eq!(share("-1", "100000"), Some(Allowed::All));
        assert_eq!(share("150000", "100000\n"), Some(Allowed::UpTo(1500)));
        assert_eq!(share("1", "0"), None);
    }
}
