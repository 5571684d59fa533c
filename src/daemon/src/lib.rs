//! placeholder
pub mod api;
pub mod app;
pub mod config;
pub mod engine;
pub mod id;
pub mod link;
pub mod log;
pub mod pool;
pub mod session;
pub mod sign;
pub mod store;
pub mod tools;
