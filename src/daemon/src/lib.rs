//! placeholder
pub mod engine;
pub mod id;
pub mod link;
