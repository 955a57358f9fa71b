//! `fairlane load sql`: queries over the Postgres protocol, through a client library, with the same account of it as the native protocol's:
//! latency from the moment a query was due, everything late, failed, lost or unanswered counted.
//!
//! One thread drives all connections; each has one query under way. In a closed loop every connection runs one query after the other,
//! the files in turn over all connections. In an open loop a free connection takes the next arrival and waits for its moment; an
//! arrival that found none free is late, and its wait is part of its latency.

mod book;
mod cli;
mod client;
mod flags;
mod queries;
mod report;
mod run;
mod spec;

pub(crate) use cli::run as cli;
pub use queries::{Query, carried};
pub use report::{QueryFigures, SqlReport, SqlStep};
pub use run::run;
pub use spec::SqlSpec;
