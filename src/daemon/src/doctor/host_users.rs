//! Whether somebody on this host has one of the user ids of containers.
//!
//! A process with the same user id, on the host or in another container, shares the kernel's limits of that
//! user, may send signals, and may read files that are the user's own. It must never call the ids free when
//! it could not read who has them.

use std::ops::RangeInclusive;

use super::check::{Check, Checks, Group};

/// What names users of this host, one a line, with the numbers behind the first colons.
const USERS: &str = "/etc/passwd";
/// What gives users ranges of ids for containers of their own.
const SUBORDINATES: &str = "/etc/subuid";

/// The texts of both files; the second one need not exist.
#[derive(Debug, Clone, Default)]
pub(super) struct HostUsers {
    pub(super) users: Option<String>,
    pub(super) subordinates: String,
}

pub(super) fn look() -> HostUsers {
    HostUsers {
        users: std::fs::read_to_string(USERS).ok(),
        subordinates: std::fs::read_to_string(SUBORDINATES).unwrap_or_default(),
    }
}

/// Judges `pool.uids` on the host of the engine.
pub(super) fn judge(ids: &RangeInclusive<u32>, host: &HostUsers) -> Vec<Check> {
    let mut checks = Checks::of(Group::Engine);
    let (low, high) = (*ids.start(), *ids.end());
    let advice = format!(
        "processes with such an id share limits of the kernel with programs, and can signal them; choose a \
         range of pool.uids that nobody has, as long as {low}-{high}"
    );
    let Some(users) = &host.users else {
        checks.warn("user ids", format!("{USERS} cannot be read"), advice);
        return checks.done();
    };
    let taken = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        ids.contains(&id).then(|| format!("{name} ({id})"))
    });
    let given = host.subordinates.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, first) = (fields.next()?, fields.next()?.parse::<u32>().ok()?);
        let count = fields.next()?.trim().parse::<u32>().ok()?;
        let last = first.checked_add(count.checked_sub(1)?)?;
        (first <= high && low <= last).then(|| format!("{name} ({first}-{last}, {SUBORDINATES})"))
    });
    let found: Vec<String> = taken.chain(given).take(5).collect();
    if found.is_empty() {
        checks.ok("user ids", format!("nobody on this host has one of pool.uids ({low}-{high})"));
    } else {
        let found = found.join(", ");
        checks.warn("user ids", format!("ids of pool.uids ({low}-{high}) belong to {found}"), advice);
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn users_of_the_host_with_ids_of_containers_are_named() {
        let host = |users: &str, subordinates: &str| HostUsers {
            users: Some(format!("root:x:0:0:root:/root:/bin/sh\nbroken\n{users}\n")),
            subordinates: subordinates.to_owned(),
        };
        for (users, subordinates, named) in [
            ("ann:x:19999:100::/:/bin/sh", "", None),
            ("ann:x:21000:100::/:/bin/sh", "", None),
            ("ann:x:20000:100::/:/bin/sh", "", Some("ann (20000)")),
            ("ann:x:20999:100::/:/bin/sh", "", Some("ann (20999)")),
            ("", "bob:100000:65536\nodd\nbob:x:1", None),
            ("", "bob:19000:1000", None),
            ("", "bob:19000:1001", Some("bob (19000-20000, /etc/subuid)")),
            ("", "bob:20999:65536", Some("bob (20999-86534, /etc/subuid)")),
            ("", "bob:4294967295:65536\nbob:20000:0", None),
        ] {
            let [check] = &judge(&(20_000..=20_999), &host(users, subordinates))[..] else { panic!("one") };
            let expected = if named.is_some() { Status::Warn } else { Status::Ok };
            assert_eq!(check.status, expected, "{users} {subordinates}: {}", check.found);
            assert!(named.is_none_or(|name| check.found.contains(name)), "{}", check.found);
        }
        let [check] = &judge(&(20_000..=20_999), &HostUsers::default())[..] else { panic!("one") };
        assert_eq!(check.status, Status::Warn, "who cannot be asked is not nobody");
    }
}
