//! W3C Trace Context: the trace that a request belongs to, by which its log lines are found beside its
//! sender's. Source: <https://www.w3.org/TR/trace-context/>; MCP carries the same in `_meta` (SEP-414).
//!
//! Nothing from a caller may reach a log through it but hexadecimal digits of these lengths.

use std::fmt;

use crate::id::{hex, random_bytes};

/// The header, and the key in MCP's `_meta`.
pub const TRACEPARENT: &str = "traceparent";

/// A span of a trace: one request, and the trace that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The trace's id: 32 hexadecimal digits.
    pub trace_id: String,
    /// The id of this span: 16 hexadecimal digits.
    pub span_id: String,
    /// The id of the caller's span, if the caller sent one: 16 hexadecimal digits.
    pub parent_id: Option<String>,
    /// Whether the caller records its trace. The daemon only passes this on.
    sampled: bool,
}

impl Trace {
    /// A new trace, for a request that came without one.
    #[must_use]
    pub fn new() -> Self {
        Self { trace_id: hex(&random_bytes::<16>()), span_id: span_id(), parent_id: None, sampled: false }
    }

    /// A new span of the trace that a `traceparent` names. `None` if the value is not valid: the standard
    /// says to treat it as if there were none.
    #[must_use]
    pub fn of(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let (version, trace_id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let more = parts.next();
        // Later versions may append more fields; version 00 may not, and ff is not a version.
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

/// The value of a `traceparent` header, for the answer to the caller.
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
        // A later version may append fields.
        assert!(Trace::of(&GIVEN.replacen("00", "01", 1)).is_some());
        assert!(Trace::of(&(GIVEN.replacen("00", "cc", 1) + "-what-comes")).is_some());
    }

    #[test]
    fn an_invalid_value_is_ignored() {
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
    fn new_traces_are_never_alike() {
        let (one, other) = (Trace::new(), Trace::new());
        assert!(one.trace_id != other.trace_id && is_hex(&one.trace_id, 32) && one.parent_id.is_none());
    }
}
