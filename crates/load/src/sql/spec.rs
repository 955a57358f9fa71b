//! What a SQL load is, as data; the report carries it.

use serde::{Deserialize, Serialize};

use super::queries::Query;
use crate::spec::{Pacing, Step};

/// A load of queries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlSpec {
    /// HOST:PORT of each server; connections are spread over them.
    pub hosts: Vec<String>,
    /// Who logs in.
    pub user: String,
    /// Not part of reports.
    #[serde(skip)]
    pub password: Option<String>,
    /// The database to connect to.
    pub database: String,
    /// What is run, in turn.
    pub queries: Vec<Query>,
    /// Statements that every connection begins with.
    pub setup: Vec<String>,
    /// When queries are sent. In a closed loop what is in flight is the number of connections.
    pub pacing: Pacing,
    /// Every query so many times and then the end, before the time is up; zero for as long as the time lasts.
    pub rounds: u64,
    /// Connections.
    pub concurrency: usize,
    /// Seconds at the first rate before measuring begins.
    pub warmup_s: f64,
    /// Seconds to wait for answers at the end; what is still under way then is cancelled.
    pub drain_s: f64,
    /// Arrivals follow from it.
    pub seed: u64,
}

impl SqlSpec {
    /// Seconds measured, warm-up left out.
    pub fn steps(&self) -> Vec<Step> {
        match &self.pacing {
            Pacing::Open(steps) => steps.clone(),
            Pacing::Closed { seconds, .. } => vec![Step { rate_per_s: 0.0, seconds: *seconds }],
        }
    }
}
