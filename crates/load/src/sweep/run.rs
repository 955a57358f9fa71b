//! One run of a sweep: an open loop at one rate, second by second, and the reasons for which it is
//! invalid or unstable.

use serde::{Deserialize, Serialize};

use crate::experiment::{MeasuredSecond, MeasuredStep, ServerUse};
use crate::histogram::Latency;
use crate::report::{GENERATOR_CPU_MAX, StepReport};

/// Growth of the mean response time from the first to the last quarter above which a run is
/// unstable.
const GROWTH_MAX: f64 = 2.0;
/// Percentiles of N between which its band is.
const BAND_LOW: f64 = 0.05;
const BAND_HIGH: f64 = 0.95;
/// Most requests without an answer or with an error, as a part of all.
const FAILED_MAX: f64 = 0.001;

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepSecond {
    /// Begin, seconds since the measured part began.
    pub at_s: f64,
    /// Duration, seconds.
    pub seconds: f64,
    /// Requests answered without error.
    pub answered: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests in flight, mean.
    pub n: f64,
    /// Most requests in flight.
    pub n_max: usize,
    /// Mean response time from when a request was due, µs. Zero without answers.
    pub response_us: f64,
    /// 99th percentile of the response time, µs. Zero without answers.
    pub response_p99_us: f64,
    /// Mean service time by the server's clock, µs. `None`: no metrics, or no requests.
    pub service_us: Option<f64>,
}

impl SweepSecond {
    /// Returns a second of a run whose measured part began at `begin_s`.
    fn of(measured: &MeasuredSecond, begin_s: f64) -> SweepSecond {
        let second = &measured.client;
        SweepSecond {
            at_s: second.at_s - begin_s,
            seconds: second.seconds,
            answered: second.all.ops,
            errors: second.errors,
            n: second.in_flight_mean,
            n_max: second.in_flight_max,
            response_us: second.all.mean_us,
            response_p99_us: second.all.p99_us,
            service_us: measured.server.service_us,
        }
    }
}

/// Rate of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedRate {
    /// Rate as a part of the peak.
    pub part: f64,
    /// Number among the runs at this rate, from 1.
    pub number: usize,
    /// Requested rate, requests a second.
    pub rate_per_s: f64,
}

/// Requests in flight during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlightBand {
    /// Mean.
    pub n: f64,
    /// 5th percentile over the seconds.
    pub n_low: f64,
    /// 95th percentile over the seconds.
    pub n_high: f64,
    /// Most at once.
    pub n_max: usize,
}

/// The generator's part in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// Delay by the generator itself, 99th percentile, µs. Part of the response time.
    #[serde(rename = "generator_lag_p99_us")]
    pub lag_p99_us: f64,
    /// CPU of the busiest generator thread, as a share of its core.
    #[serde(rename = "generator_cpu")]
    pub cpu: f64,
}

/// Counts of requests of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepCounts {
    /// Requests sent.
    pub sent: u64,
    /// Requests with an error, lost with their connection, or without an answer.
    pub failed: u64,
    /// Requests that waited for the bound on requests in flight. Their wait is part of the response
    /// time.
    pub held_back: u64,
}

/// Results of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepRun {
    /// Its rate.
    #[serde(flatten)]
    pub requested: RequestedRate,
    /// Answers without error a second.
    pub throughput_per_s: f64,
    /// Requests in flight.
    #[serde(flatten)]
    pub in_flight: InFlightBand,
    /// Response time from when a request was due.
    pub response: Latency,
    /// Mean response time of the last quarter ÷ that of the first. `None`: one of them has no
    /// answers.
    pub growth: Option<f64>,
    /// Service time and CPU of the server.
    #[serde(flatten)]
    pub server: ServerUse,
    /// The generator's part.
    #[serde(flatten)]
    pub generator: GeneratorUse,
    /// Counts of requests.
    #[serde(flatten)]
    pub counts: SweepCounts,
    /// Reasons why the run does not describe the server. Empty: it is valid.
    pub invalid: Vec<String>,
    /// Reasons why it is unstable. Empty: it is stable, if valid.
    pub unstable: Vec<String>,
    /// The measured seconds.
    pub seconds: Vec<SweepSecond>,
}

impl SweepRun {
    /// Returns the run of a measurement. `bound` is the most that may be in flight.
    pub(super) fn of(requested: RequestedRate, bound: usize, measured: &MeasuredStep) -> SweepRun {
        let begin_s = measured.seconds.first().map_or(0.0, |first| first.client.at_s);
        let seconds = measured.seconds.iter().map(|second| SweepSecond::of(second, begin_s)).collect();
        SweepRun::with_seconds(requested, bound, measured, seconds)
    }

    fn with_seconds(
        requested: RequestedRate,
        bound: usize,
        measured: &MeasuredStep,
        seconds: Vec<SweepSecond>,
    ) -> SweepRun {
        let step = &measured.step;
        let mut run = SweepRun {
            requested,
            throughput_per_s: step.throughput_per_s,
            in_flight: InFlightBand::of(step, &seconds),
            response: Latency::of(&step.latencies.both()),
            growth: growth(&seconds),
            server: measured.server,
            generator: GeneratorUse { lag_p99_us: step.generator_lag_p99_us, cpu: step.generator_cpu },
            counts: SweepCounts {
                sent: step.sent,
                failed: step.errors + step.lost + step.unanswered,
                held_back: step.held_back,
            },
            invalid: Vec::new(),
            unstable: Vec::new(),
            seconds,
        };
        run.invalid = run.reasons_invalid(measured.stopped);
        run.unstable = run.reasons_unstable(bound);
        run
    }

    /// Returns true if the run describes the server.
    pub fn is_valid(&self) -> bool {
        self.invalid.is_empty()
    }

    /// Returns true if it is valid and stable.
    pub fn is_stable(&self) -> bool {
        self.is_valid() && self.unstable.is_empty()
    }

    fn reasons_invalid(&self, stopped: bool) -> Vec<String> {
        let mut out = Vec::new();
        if stopped {
            out.push("it was stopped".to_string());
        }
        if self.generator.cpu > GENERATOR_CPU_MAX {
            out.push(format!("the generator used {:.0} % of its core", self.generator.cpu * 100.0));
        }
        if self.counts.sent == 0 {
            out.push("nothing was sent".to_string());
        }
        out
    }

    fn reasons_unstable(&self, bound: usize) -> Vec<String> {
        let mut out = Vec::new();
        // With several threads each has its part of the bound, and may reach it alone.
        if self.in_flight.n_max >= bound || self.counts.held_back > 0 {
            out.push(format!("N reached the bound of {bound}"));
        }
        match self.growth {
            Some(growth) if growth > GROWTH_MAX => {
                out.push(format!("R grew to {growth:.1} times that of the first quarter"));
            }
            None => out.push("a quarter has no answers".to_string()),
            Some(_) => {}
        }
        let failed = self.counts.failed as f64 / self.counts.sent.max(1) as f64;
        if failed > FAILED_MAX {
            out.push(format!("{:.2} % of the requests failed", failed * 100.0));
        }
        out
    }
}

impl InFlightBand {
    /// Returns the band of N: percentiles of its means over the seconds, by the nearest rank.
    fn of(step: &StepReport, seconds: &[SweepSecond]) -> InFlightBand {
        let mut means: Vec<f64> = seconds.iter().map(|second| second.n).collect();
        means.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (part * means.len() as f64).ceil().max(1.0) as usize;
            means.get(rank - 1).copied().unwrap_or(0.0)
        };
        InFlightBand {
            n: step.in_flight_mean,
            n_low: at(BAND_LOW),
            n_high: at(BAND_HIGH),
            n_max: step.in_flight_max,
        }
    }
}

/// Returns the mean response time of the last quarter ÷ that of the first. A second belongs to the
/// quarter of its middle. `None`: one of them has no answers.
fn growth(seconds: &[SweepSecond]) -> Option<f64> {
    let end_s = seconds.last().map(|second| second.at_s + second.seconds)?;
    let mean = |from: f64, to: f64| {
        let within = seconds.iter().filter(|second| {
            let middle = (second.at_s + second.seconds / 2.0) / end_s;
            from <= middle && middle < to
        });
        let (sum, count) = within.fold((0.0, 0.0), |(sum, count), second| {
            let answered = second.answered as f64;
            (sum + answered * second.response_us, count + answered)
        });
        (count > 0.0 && sum > 0.0).then(|| sum / count)
    };
    Some(mean(0.75, 1.0)? / mean(0.0, 0.25)?)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::histogram::OpKind;

    /// Returns seconds with these response times, µs, and N = 1 in the first, 2 in the second, ….
    fn seconds(response_us: &[f64]) -> Vec<SweepSecond> {
        let second = |(index, us): (usize, &f64)| SweepSecond {
            at_s: index as f64,
            seconds: 1.0,
            answered: if *us > 0.0 { 1000 } else { 0 },
            n: index as f64 + 1.0,
            response_us: *us,
            ..SweepSecond::default()
        };
        response_us.iter().enumerate().map(second).collect()
    }

    /// Returns a run at a part of the peak, with this response time and service time, µs.
    pub(in super::super) fn run(part: f64, number: usize, response_us: f64, service_us: f64) -> SweepRun {
        TestRun { part, number, response_us, service_us, ..TestRun::default() }.changed(|_| {})
    }

    /// A run to make up.
    pub(in super::super) struct TestRun<'a> {
        pub(in super::super) part: f64,
        pub(in super::super) number: usize,
        pub(in super::super) response_us: f64,
        pub(in super::super) service_us: f64,
        pub(in super::super) stopped: bool,
        /// Response time of each second. `None`: eight seconds with that of the run.
        pub(in super::super) of_seconds_us: Option<&'a [f64]>,
    }

    impl Default for TestRun<'_> {
        fn default() -> Self {
            TestRun {
                part: 1.0,
                number: 1,
                response_us: 500.0,
                service_us: 20.0,
                stopped: false,
                of_seconds_us: None,
            }
        }
    }

    impl TestRun<'_> {
        pub(in super::super) fn changed(self, change: impl Fn(&mut StepReport)) -> SweepRun {
            let mut step =
                StepReport { sent: 100_000, generator_cpu: 0.5, in_flight_max: 40, ..StepReport::default() };
            step.latencies.record(OpKind::Read, (self.response_us * 1e3) as u64);
            change(&mut step);
            let server = ServerUse { service_us: Some(self.service_us), ..ServerUse::default() };
            let measured = MeasuredStep { step, stopped: self.stopped, server, seconds: Vec::new() };
            let part = self.part;
            let requested = RequestedRate { part, number: self.number, rate_per_s: part * 1e5 };
            let seconds = seconds(self.of_seconds_us.unwrap_or(&[self.response_us; 8]));
            SweepRun::with_seconds(requested, 4096, &measured, seconds)
        }
    }

    fn check(change: impl Fn(&mut StepReport), response_us: &[f64], invalid: &[&str], unstable: &[&str]) {
        let run = TestRun { of_seconds_us: Some(response_us), ..TestRun::default() }.changed(change);
        for (found, expected) in [(&run.invalid, invalid), (&run.unstable, unstable)] {
            assert_eq!(found.len(), expected.len(), "{run:?}");
            assert!(found.iter().zip(expected).all(|(reason, words)| reason.contains(words)), "{found:?}");
        }
    }

    #[test]
    fn run_is_unstable_for_each_reason_alone() {
        let even = [100.0; 8];
        check(|_| {}, &even, &[], &[]);
        check(|s| s.in_flight_max = 4096, &even, &[], &["bound of 4096"]);
        check(|s| s.held_back = 1, &even, &[], &["bound of 4096"]);
        check(|s| s.errors = 101, &even, &[], &["0.10 %"]);
        check(|s| s.unanswered = 100, &even, &[], &[]);
        let grown = |last: f64| [100.0, 100.0, 900.0, 900.0, 900.0, 900.0, last, last];
        check(|_| {}, &grown(200.0), &[], &[]);
        check(|_| {}, &grown(201.0), &[], &["2.0 times"]);
        check(|_| {}, &grown(0.0), &[], &["no answers"]);
        check(|_| {}, &[], &[], &["no answers"]);
    }

    #[test]
    fn run_that_measures_the_generator_is_invalid() {
        check(|s| s.generator_cpu = 0.81, &[100.0; 8], &["81 %"], &[]);
        let requested = RequestedRate { part: 1.0, number: 1, rate_per_s: 5.0 };
        let stopped = MeasuredStep { stopped: true, ..MeasuredStep::default() };
        let nothing = SweepRun::of(requested, 9, &stopped);
        assert_eq!((nothing.invalid.len(), nothing.in_flight.n_low, nothing.growth), (2, 0.0, None));
        assert!(!nothing.is_valid() && !nothing.is_stable());
    }

    #[test]
    fn quarters_are_weighted_by_their_answers() {
        let mut uneven = seconds(&[100.0, 300.0, 1.0, 1.0, 1.0, 1.0, 500.0, 500.0]);
        uneven[1].answered = 3000;
        assert_eq!(growth(&uneven), Some(500.0 / 250.0));
    }

    #[test]
    fn band_of_n_leaves_out_the_outer_twentieths() {
        let band = |seconds: &[SweepSecond]| {
            let band = InFlightBand::of(&StepReport::default(), seconds);
            (band.n_low, band.n_high)
        };
        assert_eq!(band(&seconds(&[1.0; 40])), (2.0, 38.0));
        assert_eq!(band(&seconds(&[1.0; 8])), (1.0, 8.0));
        assert_eq!(band(&[]), (0.0, 0.0));
    }
}
