//! Cores, and two lanes on each of them.

pub mod disk;
pub mod net;
pub mod random;
pub mod sync;
pub mod time;

mod config;
mod group;
mod interim;
mod sys;

pub use config::{Config, DISK_UNMEASURED, DiskBackend};
pub use group::{Group, GroupSpec, Usage};
pub use interim::*;
