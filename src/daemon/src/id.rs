//! Random ids and random bytes.
//!
//! It must never make an id that could be guessed where a guess would give access: such ids have at least 48
//! random bits, or come from a keyed hash.

use std::fmt::Write;

/// Random bytes of the system.
///
/// # Panics
/// If the kernel has none: nothing could be done safely then.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "without randomness no secret can be made; continuing would be worse"
    )]
    getrandom::fill(&mut bytes).expect("the kernel's random numbers");
    bytes
}

/// A random number.
pub fn random_u64() -> u64 {
    u64::from_le_bytes(random_bytes())
}

/// `N` random bytes as lower-case hex.
pub fn random_hex<const N: usize>() -> String {
    hex(&random_bytes::<N>())
}

/// The bytes that `2 * N` hex digits of either case stand for; `None` for any other text.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_back_and_nothing_else_is() {
        let bytes: [u8; 8] = random_bytes();
        assert_eq!(from_hex(&hex(&bytes)), Some(bytes));
        assert_eq!(from_hex(&hex(&bytes).to_uppercase()), Some(bytes));
        assert_eq!(from_hex(""), Some([]));
        for wrong in ["0", "000", "0000", "0g", "+1", " 1", "\u{e9}"] {
            assert_eq!(from_hex::<1>(wrong), None, "{wrong:?}");
        }
    }
}
