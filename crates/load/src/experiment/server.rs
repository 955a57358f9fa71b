//! The server's side of a step, from its metrics page: service time and CPU between the end of the
//! warm-up and the last measured second. Other servers have no such page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use server_process::metrics::series;

use crate::scrape::{Exposed, fetch, scrape};
use crate::timeline::Second;

/// Counter of CPU by level and lane, seconds.
const CPU: &str = "fairlane_cpu_seconds_total";

/// Service time and CPU of the server. `None`: no metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerUse {
    /// Mean service time of the level with the most requests by the server's clock, µs.
    pub service_us: Option<f64>,
    /// CPU of all levels, in cores.
    #[serde(rename = "server_cores")]
    pub cores: Option<f64>,
    /// Number of cores that the server runs on. Not part of reports on steps.
    #[serde(skip)]
    pub core_count: Option<usize>,
}

/// Counters at one moment.
struct Sample {
    at: Instant,
    levels: BTreeMap<String, Exposed>,
    cpu_s: f64,
    core_count: usize,
}

impl Sample {
    fn of(page: &str, at: Instant) -> Sample {
        Sample { at, levels: scrape(page), cpu_s: cpu_s(page), core_count: core_count(page) }
    }

    /// Returns what the server did since `before`.
    fn since(&self, before: &Sample) -> ServerUse {
        let seconds = (self.at - before.at).as_secs_f64();
        let nothing = Exposed::default();
        let during = self
            .levels
            .iter()
            .map(|(level, values)| values.since(before.levels.get(level).unwrap_or(&nothing)));
        let busiest =
            during.max_by(|a, b| a.count().total_cmp(&b.count())).filter(|level| level.count() > 0.0);
        ServerUse {
            service_us: busiest.map(|level| level.mean_s() * 1e6),
            cores: (self.cpu_s > 0.0 && seconds > 0.0).then(|| (self.cpu_s - before.cpu_s) / seconds),
            core_count: (self.core_count > 0).then_some(self.core_count),
        }
    }
}

/// Reads the counters of one step.
pub(super) struct Samples {
    address: Option<String>,
    before: Option<Sample>,
    after: Option<Sample>,
    pub(super) failure: Option<String>,
}

impl Samples {
    pub(super) fn new(address: Option<String>) -> Samples {
        Samples { address, before: None, after: None, failure: None }
    }

    /// Reads the counters after a second, in the warm-up as the beginning, later as the end.
    /// Returns what the server did in a measured second.
    pub(super) fn second(&mut self, second: &Second) -> ServerUse {
        let Some(address) = self.address.as_ref().filter(|_| second.step >= -1) else {
            return ServerUse::default();
        };
        match fetch(address) {
            Ok(page) => {
                let sample = Sample::of(&page, Instant::now());
                let last = self.after.as_ref().or(self.before.as_ref());
                let since = last.map(|last| sample.since(last)).unwrap_or_default();
                if second.step < 0 || self.before.is_none() {
                    self.before = Some(sample);
                    return ServerUse::default();
                }
                self.after = Some(sample);
                return since;
            }
            Err(error) => self.failure = Some(format!("no metrics from {address}: {error}")),
        }
        ServerUse::default()
    }

    /// Returns what the server did in between.
    pub(super) fn between(&self) -> ServerUse {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => after.since(before),
            _ => ServerUse::default(),
        }
    }
}

/// Returns the sum of the CPU counters of a page, seconds.
fn cpu_s(page: &str) -> f64 {
    series(page).filter(|found| found.metric == CPU).map(|found| found.value).sum()
}

/// Returns the number of cores that a page has counters of.
fn core_count(page: &str) -> usize {
    let own = series(page).filter(|found| found.metric.starts_with("fairlane_"));
    own.filter_map(|found| found.label("core")).collect::<BTreeSet<&str>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(at: Instant, requests: f64) -> Sample {
        let page = format!(
            "fairlane_cpu_seconds_total{{level=\"a\",lane=\"fast\"}} {requests}\n\
             fairlane_cpu_seconds_total{{level=\"a\",lane=\"heavy\"}} 1.5\n\
             fairlane_service_time_seconds_sum{{level=\"a\"}} {}\n\
             fairlane_service_time_seconds_count{{level=\"a\"}} {requests}\n\
             fairlane_service_time_seconds_sum{{level=\"b\"}} 7\n\
             fairlane_service_time_seconds_count{{level=\"b\"}} 7\n\
             fairlane_wakes_total{{core=\"0\"}} 1\nfairlane_wakes_total{{core=\"1\"}} 1\n\
             fairlane_polls_total{{core=\"1\"}} 1\nother{{core=\"7\"}} 1\n",
            requests * 2e-6
        );
        Sample::of(&page, at)
    }

    #[test]
    fn only_the_time_between_the_samples_counts() {
        let begin = Instant::now();
        let mut samples = Samples::new(None);
        assert_eq!(samples.between(), ServerUse::default());
        samples.before = Some(sample(begin, 100.0));
        samples.after = Some(sample(begin + Duration::from_secs(2), 104.0));
        let found = samples.between();
        assert_eq!((found.cores, found.core_count), (Some(2.0), Some(2)));
        assert!((found.service_us.expect("level a") - 2.0).abs() < 1e-9, "{found:?}");
    }
}
