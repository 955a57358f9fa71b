//! One experiment and its phases.

use load::Latency;
use serde::{Deserialize, Serialize};

use super::cpu::Cpu;
use super::loads::{Batches, LoadRun, MostUseful, Offered, WindowLoad};
use super::nodes::NodeUse;
use super::points::{CpuPoint, DiskPoint, InFlight, Series, SpacePoint, StoragePoint};

/// One experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Chapter {
    /// Stable short name for programs.
    pub(crate) id: String,
    /// Heading.
    pub(crate) title: String,
    /// Description of the experiment and its result.
    pub(crate) what: String,
    /// Phases, in order.
    pub(crate) windows: Vec<Window>,
    /// Loads over their whole run, for loads without a latency in each phase.
    pub(crate) runs: Vec<LoadRun>,
    /// Each load, second by second.
    pub(crate) series: Vec<Series>,
    /// CPU by level, second by second.
    pub(crate) cpu: Vec<CpuPoint>,
    /// Activity of storage, second by second, if it is the subject.
    pub(crate) storage: Vec<StoragePoint>,
    /// Use of the disk by level, second by second, if it is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) disk: Vec<DiskPoint>,
    /// Space of the table files over time, if it is the subject.
    pub(crate) space: Vec<SpacePoint>,
    /// Operations of the batcher in each phase, if it is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) batches: Vec<Batches>,
    /// Each offered rate without and with a limit, if overload is the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) offered: Vec<Offered>,
    /// Use of the node by each level in each phase, behind a front.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeUse>,
    /// Operations in flight, second by second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) in_flight: Vec<InFlight>,
    /// Concurrency that operations in flight should not exceed, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) most_useful: Option<MostUseful>,
}

impl Chapter {
    /// Returns the phase with this id.
    pub(crate) fn window(&self, id: &str) -> Option<&Window> {
        self.windows.iter().find(|window| window.id == id)
    }

    /// Returns the begin of the first phase and the end of the last.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let (first, last) = (self.windows.first(), self.windows.last());
        (first.map_or(0.0, |window| window.begin_s), last.map_or(0.0, |window| window.end_s))
    }

    /// Returns the mean of a value of storage in the phases with this label.
    pub(crate) fn storage_mean(&self, label: &str, value: fn(&StoragePoint) -> f64) -> f64 {
        let is_inside = |point: &&StoragePoint| {
            let mut phases = self.windows.iter().filter(|window| window.label == label);
            phases.any(|window| (window.begin_s..window.end_s).contains(&point.at_s))
        };
        let values: Vec<f64> = self.storage.iter().filter(is_inside).map(value).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    }

    /// Returns the sum of a value of storage over the seconds of a phase.
    pub(crate) fn storage_sum(&self, window: &Window, value: fn(&StoragePoint) -> f64) -> f64 {
        let phase = window.begin_s..window.end_s;
        self.storage.iter().filter(|point| phase.contains(&point.at_s)).map(value).sum()
    }

    /// Returns the space that a compaction took beyond the space at its start, as a fraction of it.
    pub(crate) fn temporary_space(&self) -> Option<f64> {
        let before = self.space.first()?.bytes;
        let most = self.space.iter().map(|point| point.bytes).fold(0.0, f64::max);
        (before > 0.0).then(|| most / before - 1.0)
    }
}

/// One phase of an experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Window {
    /// Stable short name for programs.
    pub(crate) id: String,
    /// Label above the chart.
    pub(crate) label: String,
    /// Begin, seconds since 1970.
    pub(crate) begin_s: f64,
    /// End, seconds since 1970.
    pub(crate) end_s: f64,
    /// Loads in this phase.
    pub(crate) loads: Vec<WindowLoad>,
    /// CPU in this phase.
    pub(crate) cpu: Cpu,
}

impl Window {
    /// True if several loads ran at once, so that the server should have been full.
    pub(crate) fn contended(&self) -> bool {
        self.loads.iter().filter(|load| load.throughput_per_s > 0.0).count() > 1
    }

    /// Returns a load of this phase.
    pub(crate) fn load(&self, load: &str) -> Option<&WindowLoad> {
        self.loads.iter().find(|found| found.load == load)
    }

    /// Returns the throughput of a load, a second.
    pub(crate) fn throughput(&self, load: &str) -> Option<f64> {
        self.load(load).map(|found| found.throughput_per_s)
    }

    /// Returns the latency of a load.
    pub(crate) fn latency(&self, load: &str) -> Option<Latency> {
        self.load(load).and_then(|found| found.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_of_storage_is_over_phases_with_the_label() {
        let window = |label: &str, begin_s: f64| Window {
            label: label.into(),
            begin_s,
            end_s: begin_s + 2.0,
            ..Window::default()
        };
        let point = |at_s: f64, flush_bytes_per_s: f64| StoragePoint {
            at_s,
            flush_bytes_per_s,
            ..StoragePoint::default()
        };
        let chapter = Chapter {
            windows: vec![window("a", 0.0), window("b", 4.0)],
            storage: vec![point(0.5, 2e6), point(1.5, 4e6), point(4.5, 0.0), point(7.5, 9e9)],
            ..Chapter::default()
        };
        let mean = |label| chapter.storage_mean(label, StoragePoint::background_bytes_per_s);
        assert_eq!(["a", "b", "c"].map(mean), [3e6, 0.0, 0.0]);
    }

    #[test]
    fn temporary_space_is_the_maximum_above_the_start() {
        let of = |bytes: &[f64]| {
            let point = |bytes: &f64| SpacePoint { bytes: *bytes, ..SpacePoint::default() };
            Chapter { space: bytes.iter().map(point).collect(), ..Chapter::default() }.temporary_space()
        };
        assert_eq!(of(&[100.0, 150.0, 125.0, 60.0]), Some(0.5));
        assert_eq!(of(&[100.0, 60.0]), Some(0.0));
        assert_eq!(of(&[]), None);
    }
}
