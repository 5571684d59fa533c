//! placeholder
pub mod config;
pub mod engine;
pub mod id;
pub mod link;
pub mod pool;
pub mod session;
pub mod sign;
pub mod store;
