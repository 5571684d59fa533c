//! Values that several tools take, and the checks on them.
//!
//! It must never repeat the value of an environment variable.

use std::collections::BTreeMap;
use std::time::Duration;

use paddock_proto::limits::MAX_ARGUMENT;

use super::{Code, Fault, ToolLimits};
use crate::session::PACKAGES;

/// The agent sets the first for a program that has an input, the daemon the second for one that has packages;
/// a caller may not.
const RESERVED: [&str; 2] = ["SANDBOX_STDIN_FD", PACKAGES];

/// A size as people and models read it: in the largest unit that shows it exactly, else in a binary one with
/// one decimal.
pub(super) fn size(bytes: u64) -> String {
    const EXACT: [(u64, &str); 6] = [
        (1 << 30, "GiB"),
        (1_000_000_000, "GB"),
        (1 << 20, "MiB"),
        (1_000_000, "MB"),
        (1 << 10, "KiB"),
        (1000, "KB"),
    ];
    if let Some((unit, name)) =
        EXACT.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit))
    {
        return format!("{} {name}", bytes / unit);
    }
    match [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
    {
        // Whole tenths, rounded down.
        Some((unit, name)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} bytes"),
    }
}

/// Checks that an argument is within its limit.
pub(super) fn bounded(what: &str, bytes: usize, limit: usize) -> Result<(), Fault> {
    let over = || Fault::new(Code::TooLarge, format!("`{what}` has {bytes} bytes, the limit is {limit}"));
    if bytes > limit { Err(over()) } else { Ok(()) }
}

fn invalid(message: String) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

/// Checks environment variables: a program must be able to have their names and values.
pub(super) fn environment(
    given: BTreeMap<String, String>,
    limits: &ToolLimits,
) -> Result<Vec<(String, String)>, Fault> {
    let size: usize = given.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    bounded("environment", size, limits.environment.min(MAX_ARGUMENT))?;
    for (name, value) in &given {
        let shown: String = name.chars().take(40).collect();
        let wrong = match name.as_str() {
            "" => "is empty",
            name if RESERVED.contains(&name) => "is set by the sandbox itself",
            _ if name.contains('=') => "contains `=`",
            _ if name.contains('\0') || value.contains('\0') => "or its value contains a NUL byte",
            _ => continue,
        };
        return Err(invalid(format!("the name {shown:?} in `environment` {wrong}")));
    }
    Ok(given.into_iter().collect())
}

/// A wall time: the given one if it is right, or the default if none is given.
pub(super) fn timeout(given: Option<f64>, default: Duration, limits: &ToolLimits) -> Result<Duration, Fault> {
    let Some(seconds) = given else { return Ok(default) };
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    timeout.filter(|timeout| !timeout.is_zero() && *timeout <= limits.longest).ok_or_else(|| {
        let longest = limits.longest.as_secs();
        invalid(format!("`timeout_seconds` is {seconds}; it must be over 0 and at most {longest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_said_in_the_unit_that_was_meant() {
        for (bytes, said) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1000, "1 KB"),
            (1024, "1 KiB"),
            (1234, "1.2 KiB"),
            (100_000, "100 KB"),
            (512 << 20, "512 MiB"),
            (50_000_000, "50 MB"),
            (3 << 30, "3 GiB"),
            ((1 << 20) + 1, "1.0 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(size(bytes), said);
        }
    }
}
