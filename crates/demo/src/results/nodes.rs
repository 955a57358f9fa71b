//! Use of a node by the service levels of the front before it.

use charts::numbers::rate;
use serde::{Deserialize, Serialize};

/// Use of a node by one service level in one phase, as the front counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NodeUse {
    /// Id of the phase.
    pub(crate) phase: String,
    /// Name of the level.
    pub(crate) level: String,
    /// Window of the node: requests in flight there, at most.
    pub(crate) window: u64,
    /// Requests in flight at the end of the phase.
    pub(crate) in_flight: u64,
    /// Requests that waited for a place in the window then.
    pub(crate) queued: u64,
    /// Requests that the node answered in the phase.
    pub(crate) requests: u64,
    /// Time for which requests held places in the window, summed over the answers in the phase.
    pub(crate) occupancy_s: f64,
}

impl NodeUse {
    /// Returns the mean time for which a request held a place, µs.
    pub(crate) fn place_us(&self) -> f64 {
        self.occupancy_s * 1e6 / (self.requests.max(1) as f64)
    }

    /// Returns the use in words.
    pub(crate) fn words(&self) -> String {
        format!(
            "{}: {} requests held places for {:.2} s, {:.0} µs each; {} in flight, {} queued",
            self.level,
            rate(self.requests as f64),
            self.occupancy_s,
            self.place_us(),
            self.in_flight,
            self.queued
        )
    }
}
