//! The fields of a tar header, and PAX records. This module is pure: it never reads.

const MALFORMED: &str = "its PAX records are malformed";
const SPARSE: &str = "it is a sparse file, which is not supported; pack it without holes";

/// What PAX and GNU headers say about the next entry.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime_ns: Option<i64>,
    /// From GNU's own headers, which override PAX.
    pub(super) long_path: Option<Vec<u8>>,
    pub(super) long_target: Option<Vec<u8>>,
    /// Whether there was any such header.
    pub(super) any: bool,
}

impl Extra {
    /// The name or the target that both a PAX header and a GNU header give: readers differ about which one
    /// counts.
    pub(super) fn named_twice(&self) -> Option<&[u8]> {
        let pairs = [(&self.path, &self.long_path), (&self.target, &self.long_target)];
        pairs.into_iter().find_map(|(pax, gnu)| pax.as_deref().and(gnu.as_deref()))
    }

    /// Reads the records of a PAX header, each `length key=value\n`.
    pub(super) fn parse(mut text: &[u8]) -> Result<Self, &'static str> {
        let mut extra = Self { any: true, ..Self::default() };
        while !text.is_empty() {
            let space = text.iter().take(20).position(|b| *b == b' ').ok_or(MALFORMED)?;
            let length = decimal(&text[..space]).ok_or(MALFORMED)?;
            let length = usize::try_from(length).map_err(|_| MALFORMED)?;
            // `n k=\n` is the shortest record.
            if length < space + 4 || length > text.len() {
                return Err(MALFORMED);
            }
            let (record, rest) = text.split_at(length);
            text = rest;
            let record = record[space + 1..].strip_suffix(b"\n").ok_or(MALFORMED)?;
            let equals = record.iter().position(|b| *b == b'=').ok_or(MALFORMED)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            if key.is_empty() || key.contains(&0) {
                return Err(MALFORMED);
            }
            // An empty value cancels an earlier one.
            let value = (!value.is_empty()).then_some(value);
            let is_text = value.is_none_or(|value| !value.contains(&0));
            match key {
                b"path" | b"linkpath" if !is_text => return Err(MALFORMED),
                b"path" => extra.path = value.map(<[u8]>::to_vec),
                b"linkpath" => extra.target = value.map(<[u8]>::to_vec),
                b"size" => extra.size = value.map(|value| decimal(value).ok_or(MALFORMED)).transpose()?,
                b"mtime" => extra.mtime_ns = value.map(|value| time(value).ok_or(MALFORMED)).transpose()?,
                key if key.starts_with(b"GNU.sparse.") => return Err(SPARSE),
                _ => {}
            }
        }
        Ok(extra)
    }
}

/// The bytes up to the first NUL.
pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|b| *b == 0).next().unwrap_or(field)
}

/// A number of a header: octal digits between blanks and NULs, nothing at all for 0, or, when the first bit
/// is set, a big-endian two's complement number in the other bits. `None` for anything else, and for a number
/// of more than 64 bits.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        let negative = first & 0x40 != 0;
        // The sign is extended over the bit that marks this form.
        let start = if negative { first } else { first & 0x7f };
        let mut value = i128::from(if negative { i64::from(start.cast_signed()) } else { i64::from(start) });
        for byte in &field[1..] {
            value = value.checked_mul(256)?.checked_add(i128::from(*byte))?;
        }
        return i64::try_from(value).ok();
    }
    let blank = |b: &u8| matches!(*b, b' ' | 0);
    let from = field.iter().position(|b| !blank(b)).unwrap_or(field.len());
    let to = field.iter().rposition(|b| !blank(b)).map_or(from, |at| at + 1);
    let digits = until_nul(&field[from..to]);
    digits.iter().try_fold(0i64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(i64::from(digit - b'0')),
        _ => None,
    })
}

/// Decimal digits and nothing else.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = (!text.is_empty()).then_some(text)?;
    digits.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Seconds since 1970 with decimals, in nanoseconds.
fn time(text: &[u8]) -> Option<i64> {
    let (negative, text) = text.strip_prefix(b"-").map_or((false, text), |text| (true, text));
    let mut parts = text.splitn(2, |b| *b == b'.');
    let seconds = i64::try_from(decimal(parts.next()?)?).ok()?;
    let decimals = match parts.next() {
        None | Some([]) => 0,
        Some(digits) => {
            decimal(&digits[..digits.len().min(9)])?;
            let digits = digits.iter().chain(std::iter::repeat(&b'0')).take(9);
            digits.fold(0, |value, digit| value * 10 + i64::from(digit.wrapping_sub(b'0').min(9)))
        }
    };
    let ns = seconds.saturating_mul(1_000_000_000).saturating_add(decimals);
    Some(if negative { -ns } else { ns })
}
