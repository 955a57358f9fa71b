//! `fairlane load sql`: queries over the Postgres protocol through a client library. The accounting
//! is that of the CQL load: latency starts when a query is due, and every query that is late,
//! failed, lost or unanswered is counted.
//!
//! One thread drives all connections, each with one query in flight. In a closed loop all
//! connections together cycle through the queries. In an open loop a free connection takes the next
//! arrival and waits until it is due. An arrival without a free connection is late, and its wait is
//! part of its latency.

mod accounting;
mod cli;
mod client;
mod flags;
mod queries;
mod report;
mod run;
mod spec;

pub(crate) use cli::{ladder as ladder_cli, run as cli};
pub use queries::{Query, bundled_queries};
pub use report::{QueryResults, SqlReport, SqlStep};
pub use run::run;
pub use spec::SqlSpec;
