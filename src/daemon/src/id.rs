//! Names that the daemon makes up, and randomness.
//!
//! It must never make a name that could be guessed where the guess would open something: those have 48
//! random bits at least, or come from a keyed hash.

use std::fmt::Write;

/// Fills with the system's randomness.
///
/// # Panics
/// Where the kernel has none to give: nothing safe could be done then.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "without randomness no secret can be made; going on would be worse"
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

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
