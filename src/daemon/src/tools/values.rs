//! Values that several tools take, and what is right for them.
//!
//! It must never echo the value of an environment variable.

use std::collections::BTreeMap;
use std::time::Duration;

use paddock_proto::limits::MAX_ARGUMENT;

use super::{Code, Fault, ToolLimits, run};

/// Set by the agent for a program that has an input; not a caller's to set.
const RESERVED: &str = "SANDBOX_STDIN_FD";

fn invalid(message: String) -> Fault {
    Fault::new(Code::InvalidArgument, message)
}

/// Variables that a program can have.
pub(super) fn environment(
    given: BTreeMap<String, String>,
    limits: &ToolLimits,
) -> Result<Vec<(String, String)>, Fault> {
    let size: usize = given.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    run::bounded("environment", size, limits.environment.min(MAX_ARGUMENT))?;
    for (name, value) in &given {
        let shown: String = name.chars().take(40).collect();
        let wrong = match name.as_str() {
            "" => "is empty",
            RESERVED => "is set by the sandbox itself",
            _ if name.contains('=') => "contains `=`",
            _ if name.contains('\0') || value.contains('\0') => "or its value contains a NUL byte",
            _ => continue,
        };
        return Err(invalid(format!("the name {shown:?} in `environment` {wrong}")));
    }
    Ok(given.into_iter().collect())
}

/// A wall time, or what holds when none is given.
pub(super) fn timeout(given: Option<f64>, unsaid: Duration, limits: &ToolLimits) -> Result<Duration, Fault> {
    let Some(seconds) = given else { return Ok(unsaid) };
    let timeout = Duration::try_from_secs_f64(seconds).ok();
    timeout.filter(|timeout| !timeout.is_zero() && *timeout <= limits.longest).ok_or_else(|| {
        let longest = limits.longest.as_secs();
        invalid(format!("`timeout_seconds` is {seconds}; it must be over 0 and at most {longest}"))
    })
}
