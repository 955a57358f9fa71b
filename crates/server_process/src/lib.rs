//! A running server as tools see it from outside: the addresses that it prints when it is ready,
//! its page of metrics, and the kernel's counters of its process. Standard library only, so that
//! `xtask` is built quickly. Each tool starts and ends its servers in its own way.
#![expect(clippy::disallowed_methods, reason = "tools stand outside the lanes")]

pub mod kernel;
pub mod metrics;
mod start;

pub use start::{Addresses, tail, wait_until_ready, without_settings};
