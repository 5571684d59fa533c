//! placeholder

pub mod config;
pub mod pool;
