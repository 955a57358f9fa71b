//! `fairlane load sql`: queries over the Postgres protocol through a client library. The accounting
//! is that of the CQL load: latency starts when a query is due, and every query that is late,
//! failed, lost or unanswered is counted.
//!
//! One thread drives all connections. A worker is a task with one query in flight. A connection has
//! one worker, or several where a ladder or a sweep has more queries in flight than connections.
//! In a closed loop all workers together cycle through the queries, and a query is due when another
//! is answered. In an open loop a free worker takes the next arrival and waits until it is due. An
//! arrival without a free worker is late, and its wait is part of its latency.

mod accounting;
mod client;
mod connection;
pub(crate) mod queries;
mod report;
mod run;
mod spec;

pub use queries::{Query, bundled_queries};
pub use report::{QueryResults, SqlReport, SqlStep};
pub use run::run;
pub(crate) use spec::PIPELINE_MAX;
pub use spec::SqlSpec;
