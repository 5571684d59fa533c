//! Which paddock this is.

/// The version, `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first digits of the commit it was built from; empty if that is unknown.
pub const COMMIT: &str = "";
