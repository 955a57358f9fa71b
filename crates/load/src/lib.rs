//! `fairlane load`: open- and closed-loop load over the native protocol, and what it did to the server.
//!
//! It comes through the front door like any client: its own threads, its own sockets, no part of the
//! server. A fault in the lanes can therefore not flatter its own measurement. What it promises:
//!
//! - In an open loop latency runs from the moment a request was *due*, not from the moment it was sent, so a
//!   server that stalls is charged for every request that should have gone out meanwhile.
//! - Nothing is hidden: requests held back by the limit on requests in flight, requests never answered,
//!   connections lost and reads that found nothing are counted and shown.
//! - The generator measures itself: above 80 % of its core a run is marked invalid.
//!
//! ```text
//!   cli ── flags ──► Spec ──► run ──► worker (a thread, an event loop)  ──► connection (a socket)
//!                              │        arrivals (when) · keys (which) · statement (what)
//!                              │        window a second ──► timeline ──► observer
//!                              └──► Report ──► text, JSON, raw histograms (merge)
//! ```
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

mod arrivals;
mod cli;
mod clock;
mod common;
mod connection;
mod connector;
mod data;
mod error;
mod flags;
mod histogram;
mod keys;
mod ladder;
mod merge;
mod plan;
mod poller;
mod reply;
mod report;
mod requests;
mod routing;
mod run;
mod scrape;
pub mod session;
mod spec;
pub mod sql;
mod statement;
mod tally;
mod text;
mod timeline;
pub mod usl;
mod worker;

pub use cli::cli;
pub use data::{Filling, Tables, fill};
pub use error::LoadError;
pub use histogram::{Latencies, Latency, OpKind};
pub use keys::Distribution;
pub use ladder::{Ladder, ladder};
pub use merge::{Merged, merge};
pub use report::{ErrorCount, Operations, Report, Step as StepReport};
pub use run::{StopFlag, run};
pub use scrape::{Exposed, ServiceTime, scrape, scrape_named};
pub use spec::{Keys, Pacing, Rows, Spec, Step, Workload};
pub use timeline::{Moment, Second};
