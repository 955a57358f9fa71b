//! The server's side of a rung, from its metrics page: service time and CPU between the end of the
//! warm-up and the last measured second. Other servers have no such page.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::scrape::{Exposed, fetch, scrape};
use crate::timeline::Second;

/// Counter of CPU by level and lane, seconds.
const CPU: &str = "fairlane_cpu_seconds_total{";

/// Service time and CPU of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ServerSide {
    /// Mean service time of the level with the most requests, µs.
    pub(super) service_us: Option<f64>,
    /// CPU of all levels, in cores.
    pub(super) cores: Option<f64>,
}

/// Counters at one moment.
struct Sample {
    at: Instant,
    levels: BTreeMap<String, Exposed>,
    cpu_s: f64,
}

/// Reads the counters of one rung.
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
    pub(super) fn second(&mut self, second: &Second) {
        let Some(address) = self.address.as_ref().filter(|_| second.step >= -1) else { return };
        match fetch(address) {
            Ok(page) => {
                let sample = Some(Sample { at: Instant::now(), levels: scrape(&page), cpu_s: cpu_s(&page) });
                if second.step < 0 || self.before.is_none() {
                    self.before = sample;
                } else {
                    self.after = sample;
                }
            }
            Err(error) => self.failure = Some(format!("no metrics from {address}: {error}")),
        }
    }

    /// Returns what the server did in between.
    pub(super) fn between(&self) -> ServerSide {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return ServerSide::default() };
        let seconds = (after.at - before.at).as_secs_f64();
        let nothing = Exposed::default();
        let during = after
            .levels
            .iter()
            .map(|(level, values)| values.since(before.levels.get(level).unwrap_or(&nothing)));
        let busiest =
            during.max_by(|a, b| a.count().total_cmp(&b.count())).filter(|level| level.count() > 0.0);
        ServerSide {
            service_us: busiest.map(|level| level.mean_s() * 1e6),
            cores: (after.cpu_s > 0.0 && seconds > 0.0).then(|| (after.cpu_s - before.cpu_s) / seconds),
        }
    }
}

/// Returns the sum of the CPU counters of a page, seconds.
fn cpu_s(page: &str) -> f64 {
    let value = |line: &str| line.strip_prefix(CPU)?.rsplit_once(' ')?.1.trim().parse::<f64>().ok();
    page.lines().filter_map(value).sum()
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
             fairlane_service_time_seconds_count{{level=\"b\"}} 7\n",
            requests * 2e-6
        );
        Sample { at, levels: scrape(&page), cpu_s: cpu_s(&page) }
    }

    #[test]
    fn only_the_time_between_the_samples_counts() {
        let (begin, mut samples) = (Instant::now(), Samples::new(None));
        assert_eq!(samples.between(), ServerSide::default());
        samples.before = Some(sample(begin, 100.0));
        samples.after = Some(sample(begin + Duration::from_secs(2), 104.0));
        let found = samples.between();
        assert_eq!(found.cores, Some(2.0));
        assert!((found.service_us.expect("level a") - 2.0).abs() < 1e-9, "{found:?}");
    }
}
