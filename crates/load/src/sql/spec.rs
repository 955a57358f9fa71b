//! Description of a SQL load as data. Part of its report.

use serde::{Deserialize, Serialize};

use super::queries::Query;
use crate::spec::{Pacing, RateStep};

/// A load of queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlSpec {
    /// HOST:PORT of each server. Connections are spread over them.
    pub hosts: Vec<String>,
    /// User to log in as.
    pub user: String,
    /// Password of the user. Not part of reports.
    #[serde(skip)]
    pub password: Option<String>,
    /// Database to connect to.
    pub database: String,
    /// Queries, run in turn.
    pub queries: Vec<Query>,
    /// Statements run first on every connection.
    pub setup: Vec<String>,
    /// Times at which queries are sent. The queries of a closed loop go over the connections in
    /// turn.
    pub pacing: Pacing,
    /// Runs of every query after which the load ends early. Zero: run until the time is up.
    pub rounds: u64,
    /// Number of connections.
    pub concurrency: usize,
    /// Most queries in flight on a connection. The server answers those of a connection in order.
    #[serde(default = "one")]
    pub pipeline: usize,
    /// Warm-up at the first rate before measuring begins, seconds.
    pub warmup_s: f64,
    /// Time to wait for answers at the end, seconds. Queries still in flight are then cancelled.
    pub drain_s: f64,
    /// Seed of the arrival times.
    pub seed: u64,
}

/// Most queries in flight on a connection. 64 on each of 64 connections are 4,096.
pub(crate) const PIPELINE_MAX: usize = 1024;

fn one() -> usize {
    1
}

impl SqlSpec {
    /// Returns the number of queries that may be in flight.
    pub(crate) fn in_flight_max(&self) -> usize {
        let most = self.concurrency * self.pipeline;
        match self.pacing {
            Pacing::Closed { in_flight, .. } => in_flight.min(most),
            Pacing::Open(_) => most,
        }
    }

    /// Returns the measured steps, without the warm-up.
    pub fn steps(&self) -> Vec<RateStep> {
        match &self.pacing {
            Pacing::Open(steps) => steps.clone(),
            Pacing::Closed { seconds, .. } => vec![RateStep { rate_per_s: 0.0, seconds: *seconds }],
        }
    }
}
