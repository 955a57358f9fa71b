//! `fairlane load plan`: the cores and the concurrency for a rate, computed from ladders of
//! `fairlane load usl`. Nothing is measured here.
//!
//! 1. A ladder determines the concurrency N: the end of its linear region, or the highest rung
//!    below whose p99 meets the target (`operating`).
//! 2. X at that N, by the law, is the throughput of the measured cores. Its lower end decides.
//! 3. Throughput over cores is a law of its own (`cores`). Two core counts do not determine it, so
//!    that a linear law and one with σ = 5 % bracket the result. Four counts determine a fit.
//!
//! ```text
//!   cli ── flags ──► Ladder of each file ──► operating ──► cores ──► Needed ──► text · JSON
//! ```

mod cli;
mod cores;
pub(crate) mod flags;
mod operating;
mod page;
mod text;

pub(crate) use cli::run as cli;
pub use cores::{Goal, Needed, NeededCores, needed};
pub use operating::{Operating, operating};
