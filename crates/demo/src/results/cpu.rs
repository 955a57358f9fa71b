//! Use of CPU in one phase, and times inside the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// CPU in one phase, in cores: 1 is one core all the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cpu {
    /// CPU of each service level on both lanes, as the server counts.
    pub(crate) levels: BTreeMap<String, f64>,
    /// CPU of the server's own work, such as log, flush, compaction and control.
    pub(crate) groups: BTreeMap<String, f64>,
    /// CPU of the server's process, as the kernel counts.
    pub(crate) process: f64,
    /// Use of the server's cores by all processes.
    pub(crate) busy: f64,
    /// Number of the server's cores.
    pub(crate) cores: usize,
    /// Use of the cores of the loads by all processes.
    pub(crate) loads_busy: f64,
    /// Times of the requests of each level, as the server measures them.
    pub(crate) served: BTreeMap<String, Served>,
}

impl Cpu {
    /// Returns the CPU of a level as a fraction of the server's cores.
    pub(crate) fn part(&self, level: &str) -> Option<f64> {
        self.levels.get(level).map(|used| used / self.cores.max(1) as f64)
    }

    /// Returns the CPU of the server's process as a fraction of its cores.
    pub(crate) fn server_part(&self) -> f64 {
        self.process / self.cores.max(1) as f64
    }

    /// Returns the use of the server's cores by all processes, as a fraction.
    pub(crate) fn busy_part(&self) -> f64 {
        self.busy / self.cores.max(1) as f64
    }
}

/// Times of a level's requests inside the server, µs, with the resolution of its histograms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Served {
    /// Mean service time, without the time in the queue.
    pub(crate) service_mean_us: f64,
    /// 99th percentile of the service time.
    pub(crate) service_p99_us: f64,
    /// Mean time in the queue.
    pub(crate) queue_mean_us: f64,
    /// 99th percentile of the time in the queue.
    pub(crate) queue_p99_us: f64,
}
