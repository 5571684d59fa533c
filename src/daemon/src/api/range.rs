//! The `Range` header (RFC 9110 §14), with one range at most.

/// The part of a file that a `Range` header asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// These bytes.
    Part { from: u64, length: u64 },
    /// Bytes that the file does not have.
    Unsatisfiable,
}

impl Range {
    /// Reads a header. Anything but one range of bytes (several ranges, other units, nonsense) counts as no
    /// header.
    pub(super) fn parse(text: &str, size: u64) -> Option<Self> {
        let (from, to) = text.strip_prefix("bytes=")?.trim().split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (from, to) = match (from, to) {
            ("", last) => {
                let last = number(last)?;
                if last == 0 {
                    return Some(Self::Unsatisfiable);
                }
                (size.saturating_sub(last), size)
            }
            (from, "") => (number(from)?, size),
            (from, to) => {
                let (from, to) = (number(from)?, number(to)?);
                if to < from {
                    return Some(Self::Unsatisfiable);
                }
                (from, to.saturating_add(1).min(size))
            }
        };
        if from >= size {
            return Some(Self::Unsatisfiable);
        }
        Some(Self::Part { from, length: to - from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let part = |from, length| Some(Range::Part { from, length });
        for (text, want) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-", part(2, 8)),
            ("bytes=-1", part(9, 1)),
            ("bytes=-99", part(0, 10)),
            ("bytes=0-18446744073709551615", part(0, 10)),
            ("bytes=0-99999999999999999999999", part(0, 10)),
            ("bytes=10-", Some(Range::Unsatisfiable)),
            ("bytes=-0", Some(Range::Unsatisfiable)),
            ("bytes=5-2", Some(Range::Unsatisfiable)),
            ("bytes=0-1,3-4", None),
            ("bytes=a-b", None),
            ("bytes=-", None),
            ("lines=0-1", None),
        ] {
            assert_eq!(Range::parse(text, 10), want, "{text}");
        }
        assert_eq!(Range::parse("bytes=0-", 0), Some(Range::Unsatisfiable));
    }
}
