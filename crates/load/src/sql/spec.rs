//! What a SQL load is, as data; the report carries it.

use serde::{Deserialize, Serialize};

use super::queries::Query;
use crate::spec::{Pacing, Step};

/// A load of queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SqlSpec {
    /// HOST:PORT of each server; connections are spread over them.
    pub(crate) hosts: Vec<String>,
    pub(crate) user: String,
    /// Not part of reports.
    #[serde(skip)]
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    /// What is run, in turn.
    pub(crate) queries: Vec<Query>,
    /// Statements that every connection begins with.
    pub(crate) setup: Vec<String>,
    /// When queries are sent. In a closed loop what is in flight is the number of connections.
    pub(crate) pacing: Pacing,
    /// Every query so many times and then the end, before the time is up; zero for as long as the time lasts.
    pub(crate) rounds: u64,
    /// Connections.
    pub(crate) concurrency: usize,
    /// Seconds at the first rate before measuring begins.
    pub(crate) warmup_s: f64,
    /// Seconds to wait for answers at the end; what is still under way then is cancelled.
    pub(crate) drain_s: f64,
    /// Arrivals follow from it.
    pub(crate) seed: u64,
}

impl SqlSpec {
    /// Seconds measured, warm-up left out.
    pub(crate) fn steps(&self) -> Vec<Step> {
        match &self.pacing {
            Pacing::Open(steps) => steps.clone(),
            Pacing::Closed { seconds, .. } => vec![Step { rate_per_s: 0.0, seconds: *seconds }],
        }
    }
}
