//! `fairlane load sweep`: response times, service times and concurrency under open loops. A closed
//! loop slows down with the server, so that it finds capacity but hides latency. Users are an open
//! loop: one throughput below the peak belongs to two concurrencies, and one of them is unstable.
//!
//! ```text
//!   cli ── flags ──► SweepPlan ──► experiment: Poisson arrivals at 4, 40, 100 % of the peak
//!                                    └──► SweepRun (S, R, N) ──► verdict ──► text, JSON, HTML
//! ```

mod cli;
pub(crate) mod flags;
mod measure;
mod page;
mod run;
mod text;
mod verdict;

pub(crate) use cli::run as cli;
pub use measure::{PeakRate, Sweep, SweepEvent, SweepPlan, sweep};
pub use run::{GeneratorUse, InFlightBand, RequestedRate, SweepCounts, SweepRun, SweepSecond};
pub use verdict::{Compared, Verdict};
