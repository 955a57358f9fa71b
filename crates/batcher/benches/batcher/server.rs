//! Response times of the simulated server: R = 10 · S. The network's part is constant, and the
//! service time S follows the Universal Scalability Law.

use crate::database::ResponseTimes;

/// Response time of a single operation, µs.
pub(crate) const RESPONSE_US: u64 = 2000;
const SERVICE_US: f64 = RESPONSE_US as f64 / 10.0;
/// Contention and coherence of the service time. Those of the response time are a tenth.
const SIGMA: f64 = 0.02;
const KAPPA: f64 = 0.0001;

/// Operations in flight with the highest throughput: √((1 − σ) ÷ κ) with σ = 0.002, κ = 0.00001.
pub(crate) const PEAK_N: f64 = 315.9;
/// Throughput there: 500 · N ÷ (1 + σ · (N − 1) + κ · N · (N − 1)).
pub(crate) const PEAK_PER_S: f64 = 60_194.0;

/// The law.
#[derive(Debug, Default)]
pub(crate) struct Scalability;

impl ResponseTimes for Scalability {
    fn next_us(&mut self, in_flight: usize) -> u64 {
        let n = in_flight as f64;
        let law = 1.0 + SIGMA * (n - 1.0) + KAPPA * n * (n - 1.0);
        (RESPONSE_US as f64 - SERVICE_US + SERVICE_US * law) as u64
    }
}
