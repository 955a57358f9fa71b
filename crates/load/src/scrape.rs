//! Service times as the server measures them, by level, from its metrics before and after a run.
//! The report shows them beside the response times that the client measures.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use server_process::metrics::series;

/// Name of the histogram, without `_bucket`, `_sum` and `_count`.
const METRIC: &str = "fairlane_service_time_seconds";
/// Longest time of a scrape.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A Prometheus histogram with cumulative buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposed {
    /// Upper bound in seconds and the count at or below it, ascending.
    buckets: Vec<(f64, f64)>,
    sum_s: f64,
    count: f64,
}

/// Time that the server spent on a level's requests, without queueing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceTime {
    /// The service level.
    pub level: String,
    /// Number of requests.
    pub count: u64,
    /// Mean, µs.
    pub mean_us: f64,
    /// Median, µs, interpolated within its bucket.
    pub p50_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
}

/// Parses the service-time histograms of a metrics page, by level. Skips unknown lines.
pub fn scrape(page: &str) -> BTreeMap<String, Exposed> {
    scrape_named(page, METRIC)
}

/// Parses any histogram in seconds, by level. `metric` is its name without `_bucket`, `_sum` and
/// `_count`. Other labels are summed over.
pub fn scrape_named(page: &str, metric: &str) -> BTreeMap<String, Exposed> {
    let mut levels: BTreeMap<String, Exposed> = BTreeMap::new();
    for found in series(page) {
        let Some(suffix) = found.metric.strip_prefix(metric) else { continue };
        let (name, value) = (found.label("level").unwrap_or_default().to_owned(), found.value);
        let level = levels.entry(name).or_default();
        match suffix {
            "_sum" => level.sum_s += value,
            "_count" => level.count += value,
            "_bucket" => {
                let Some(bound) = found.label("le").and_then(|le| le.parse::<f64>().ok()) else { continue };
                match level.buckets.iter_mut().find(|(known, _)| *known == bound) {
                    Some((_, count)) => *count += value,
                    None => level.buckets.push((bound, value)),
                }
            }
            _ => {}
        }
    }
    for level in levels.values_mut() {
        level.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    levels
}

impl Exposed {
    /// Returns the difference to `before`.
    pub fn since(&self, before: &Exposed) -> Exposed {
        let earlier = |bound: f64| before.buckets.iter().find(|(b, _)| *b == bound).map_or(0.0, |(_, n)| *n);
        Exposed {
            buckets: self.buckets.iter().map(|(bound, n)| (*bound, n - earlier(*bound))).collect(),
            sum_s: self.sum_s - before.sum_s,
            count: self.count - before.count,
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// Returns the mean in seconds, or zero without values.
    pub fn mean_s(&self) -> f64 {
        if self.count > 0.0 { self.sum_s / self.count } else { 0.0 }
    }

    /// Returns a quantile (0 to 1) in seconds, interpolated linearly within its bucket.
    pub fn quantile_s(&self, quantile: f64) -> f64 {
        let wanted = quantile * self.count;
        let mut below = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= wanted && bound.is_finite() {
                let inside = count - below.1;
                let part = if inside > 0.0 { (wanted - below.1) / inside } else { 1.0 };
                return below.0 + (bound - below.0) * part;
            }
            if bound.is_finite() {
                below = (*bound, *count);
            }
        }
        below.0
    }
}

/// Reads the metrics before and after the measured time.
#[derive(Debug, Default)]
pub(crate) struct Scraper {
    address: Option<String>,
    before: Option<BTreeMap<String, Exposed>>,
    after: BTreeMap<String, Exposed>,
    /// Reason for missing metrics.
    pub(crate) failure: Option<String>,
}

impl Scraper {
    pub(crate) fn new(address: Option<String>) -> Scraper {
        Scraper { address, ..Scraper::default() }
    }

    pub(crate) fn begun(&self) -> bool {
        self.address.is_none() || self.before.is_some() || self.failure.is_some()
    }

    pub(crate) fn begin(&mut self) {
        let Some(address) = &self.address else { return };
        match fetch(address) {
            Ok(page) => self.before = Some(scrape(&page)),
            Err(error) => self.failure = Some(format!("No metrics from {address}: {error}.")),
        }
    }

    pub(crate) fn end(&mut self) {
        let (Some(address), Some(_)) = (&self.address, &self.before) else { return };
        match fetch(address) {
            Ok(page) => self.after = scrape(&page),
            Err(error) => self.failure = Some(format!("No metrics from {address}: {error}.")),
        }
    }

    /// Returns the service times between the scrapes, for levels with requests.
    pub(crate) fn service_times(&self) -> Vec<ServiceTime> {
        let Some(before) = &self.before else { return Vec::new() };
        let mut out = Vec::new();
        for (level, after) in &self.after {
            let during = after.since(before.get(level).unwrap_or(&Exposed::default()));
            if during.count > 0.0 {
                out.push(ServiceTime {
                    level: level.clone(),
                    count: during.count as u64,
                    mean_us: during.mean_s() * 1e6,
                    p50_us: during.quantile_s(0.5) * 1e6,
                    p99_us: during.quantile_s(0.99) * 1e6,
                });
            }
        }
        out
    }
}

/// Reads the metrics page of a server.
///
/// # Errors
/// The server cannot be reached, or does not answer in time.
pub fn fetch(address: &str) -> Result<String, std::io::Error> {
    server_process::metrics::fetch(address, TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fast: f64, slow: f64) -> String {
        format!(
            "HTTP/1.1 200 OK\r\n\r\n# TYPE {METRIC} histogram\n\
             {METRIC}_bucket{{level=\"oltp\",le=\"0.000010\"}} {fast}\n\
             {METRIC}_bucket{{level=\"oltp\",le=\"0.000020\"}} {}\n\
             {METRIC}_bucket{{level=\"oltp\",le=\"+Inf\"}} {}\n\
             {METRIC}_sum{{level=\"oltp\"}} {}\n{METRIC}_count{{level=\"oltp\"}} {}\n\
             other_metric 7\n{METRIC}_bucket nonsense\n",
            fast + slow,
            fast + slow,
            fast * 5e-6 + slow * 15e-6,
            fast + slow
        )
    }

    #[test]
    fn only_requests_between_scrapes_count() {
        let scraper = Scraper {
            address: Some("x".into()),
            before: Some(scrape(&page(1000.0, 0.0))),
            after: scrape(&page(1100.0, 100.0)),
            failure: None,
        };
        let times = scraper.service_times();
        assert_eq!((times.len(), times[0].level.as_str(), times[0].count), (1, "oltp", 200));
        assert!((times[0].mean_us - 10.0).abs() < 1e-6, "{times:?}");
        assert!((times[0].p50_us - 10.0).abs() < 1e-6, "{times:?}");
        assert!((times[0].p99_us - 19.8).abs() < 1e-6, "{times:?}");
    }

    #[test]
    fn page_of_another_server_has_no_service_times() {
        assert!(scrape("up 1\n\n# nothing\n").is_empty());
        assert!(Scraper::new(None).service_times().is_empty());
    }
}
