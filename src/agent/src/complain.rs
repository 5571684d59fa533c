//! One line on standard error. Nobody reads that of PID 1 (its container has no log); the daemon reads the
//! bridge's.

use std::io::Write;

pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "paddock-agent: {text}");
}
