//! W3C Trace Context: which trace a request is part of, so that its lines are found beside those of whoever sent it.
//! Source: <https://www.w3.org/TR/trace-context/>; MCP carries the same in `_meta` (SEP-414).
//!
//! It must never put anything into a log that came in other than hexadecimal digits of these lengths.

use std::fmt;

use crate::id::{hex, random_bytes};

/// The header, and the key in MCP's `_meta`.
pub const TRACEPARENT: &str = "traceparent";

/// The trace that something is part of, and its own place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// 32 hexadecimal digits: the same for all that belongs together.
    pub trace_id: String,
    /// 16: what is done here.
    pub span_id: String,
    /// 16: what asked for it, if that said so.
    pub parent_id: Option<String>,
    /// Whether whoever asked keeps its traces: handed on, and otherwise not ours to judge.
    sampled: bool,
}

impl Trace {
    /// A new one, of something that nobody told us the trace of.
    #[must_use]
    pub fn new() -> Self {
        Self { trace_id: hex(&random_bytes::<16>()), span_id: span_id(), parent_id: None, sampled: false }
    }

    /// The trace that a `traceparent` names, and a place in it. `None` for what is no such value: it is then as if there
    /// were none.
    #[must_use]
    pub fn of(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let (version, trace_id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let more = parts.next();
        // Later versions may have more behind it; this one has not, and ff is none.
        let known = is_hex(version, 2) && version != "ff" && (version != "00" || more.is_none());
        let named = is_hex(trace_id, 32) && is_hex(parent, 16) && is_hex(flags, 2);
        if !known || !named || is_zero(trace_id) || is_zero(parent) {
            return None;
        }
        let sampled = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
        Some(Self {
            trace_id: trace_id.to_owned(),
            span_id: span_id(),
            parent_id: Some(parent.to_owned()),
            sampled,
        })
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

/// As a header has it, for whoever is told which trace its request became.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

fn span_id() -> String {
    hex(&random_bytes::<8>())
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|b| b == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_goes_on_under_its_name() {
        let trace = Trace::of(GIVEN).expect("a trace");
        assert_eq!(trace.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.parent_id.as_deref(), Some("00f067aa0ba902b7"));
        assert!(is_hex(&trace.span_id, 16) && trace.span_id != "00f067aa0ba902b7");
        let said = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", trace.span_id);
        assert_eq!(trace.to_string(), said);
        // A later version may have more to say.
        assert!(Trace::of(&GIVEN.replacen("00", "01", 1)).is_some());
        assert!(Trace::of(&(GIVEN.replacen("00", "cc", 1) + "-what-comes")).is_some());
    }

    #[test]
    fn what_is_none_is_passed_over() {
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\n-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
        ] {
            assert_eq!(Trace::of(bad), None, "{bad}");
        }
    }

    #[test]
    fn new_ones_are_never_alike() {
        let (one, other) = (Trace::new(), Trace::new());
        assert!(one.trace_id != other.trace_id && is_hex(&one.trace_id, 32) && one.parent_id.is_none());
    }
}
