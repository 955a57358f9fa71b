//! Load generator behind `fairlane load`: open and closed loops over the CQL native protocol and
//! over Postgres, with reports of latency, throughput and errors.
//!
//! The generator is an ordinary client with threads and sockets of its own. It shares no code with
//! the server's scheduler, so that a fault there cannot distort its own measurement. Guarantees:
//!
//! - In an open loop, latency starts at the time a request was *due*, not at the time it was sent.
//!   A stalled server is charged for every request that should have been sent meanwhile.
//! - Every problem is counted and reported: requests delayed by the limit on requests in flight,
//!   requests without an answer, lost connections, and reads that returned no row.
//! - The generator measures its own CPU. A run above 80 % of a core is marked invalid.
//!
//! ```text
//!   cli ── flags ──► Spec ──► run ──► worker (a thread, an event loop)  ──► connection (a socket)
//!                              │        arrivals (when) · keys (which) · statement (what)
//!                              │        window a second ──► timeline ──► observer
//!                              └──► Report ──► text, JSON, raw histograms (merge)
//!   experiment: runs of many concurrencies or rates, each a step
//!     usl:   concurrencies ──► Ladder ──► law, regions ──► text, JSON, plot
//!     sweep: rates at parts of the peak ──► Sweep ──► text, JSON, page
//!   scan: pages of a whole table, a thread a connection ──► text, JSON
//!   capacity: Ladder ──► cores and concurrency for a rate
//! ```
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

mod arrivals;
pub mod capacity;
mod cli;
mod clock;
mod commands;
mod common_flags;
mod connection;
mod connector;
mod data;
mod delay_line;
mod error;
mod experiment;
mod flag_values;
mod flags;
mod histogram;
mod keys;
mod merge;
mod output;
pub mod overload;
mod plan;
mod poller;
mod reply;
mod report;
mod requests;
mod routing;
mod run;
mod scan;
mod scrape;
pub mod session;
mod spec;
pub mod sql;
mod sql_flags;
mod statement;
pub mod sweep;
mod tally;
mod text;
mod timeline;
pub mod usl;
mod worker;

pub use cli::cli;
pub use data::{Filling, Tables, fill};
pub use delay_line::DelayLine;
pub use error::LoadError;
pub use experiment::{Conditions, Experiment, RepeatedLoad, ServerUse};
pub use histogram::{Latencies, Latency, OpKind};
pub use keys::Distribution;
pub use merge::{Merged, merge};
pub use report::{ErrorCount, Operations, Report, StepReport};
pub use run::{StopFlag, run};
pub use scrape::{Exposed, ServiceTime, fetch as fetch_metrics, scrape, scrape_named};
pub use spec::{Keys, Pacing, RateStep, RowLayout, Spec, ValueSizes, Workload};
pub use sweep::{Sweep, sweep as run_sweep};
pub use timeline::{Moment, Second};
pub use usl::{Ladder, ladder};
