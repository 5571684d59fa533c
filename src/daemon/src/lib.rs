//! placeholder

pub mod pool;
