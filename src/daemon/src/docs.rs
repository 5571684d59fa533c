//! Documents that are read on their own too: the API for clients, what differs from the documents that
//! paddock implements, the threat model, what was tried with which engine and kernel, how to contribute.
//!
//! There is no code here. The texts are the Markdown files of `src/daemon/docs`.

#[doc = include_str!("../docs/api.md")]
pub mod api {}

#[doc = include_str!("../docs/differences.md")]
pub mod differences {}

#[doc = include_str!("../docs/threat-model.md")]
pub mod threat_model {}

#[doc = include_str!("../docs/platforms.md")]
pub mod platforms {}

#[doc = include_str!("../docs/contributing.md")]
pub mod contributing {}
