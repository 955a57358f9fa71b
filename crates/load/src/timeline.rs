//! Results by second. Each worker sends one window a second. The windows of all workers for the
//! same second are merged into one [`Second`], in order, once no worker can add to it.

use std::collections::BTreeMap;
use std::ops::Range;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::histogram::{Latencies, OpKind};

/// Counts of one worker in one second, or in the last part of a step.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) index: u64,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// Stretch of the run. One past the last while only waiting for answers.
    pub(crate) stretch: usize,
    pub(crate) latencies: Latencies,
    pub(crate) sent: u64,
    pub(crate) errors: u64,
    pub(crate) in_flight: usize,
    pub(crate) in_flight_max: usize,
    /// Requests in flight, integrated over the time of the window, nanoseconds.
    pub(crate) in_flight_ns: f64,
    /// The same for the time after its end, which belongs to the next window.
    pub(crate) in_flight_later_ns: f64,
    pub(crate) cpu_ns: u64,
}

impl Window {
    /// Returns an empty window.
    pub(crate) fn new(index: u64, begin_ns: u64, stretch: usize) -> Window {
        Window {
            index,
            begin_ns,
            end_ns: begin_ns,
            stretch,
            latencies: Latencies::default(),
            sent: 0,
            errors: 0,
            in_flight: 0,
            in_flight_max: 0,
            in_flight_ns: 0.0,
            in_flight_later_ns: 0.0,
            cpu_ns: 0,
        }
    }

    /// Returns the window after this one, which ends at `end_ns` with `in_flight` requests.
    pub(crate) fn next(&self, end_ns: u64, stretch: usize, in_flight: usize) -> Window {
        let in_flight_ns = self.in_flight_later_ns;
        Window { in_flight_max: in_flight, in_flight_ns, ..Window::new(self.index + 1, end_ns, stretch) }
    }

    /// Adds `in_flight` requests over a time in nanoseconds. A window is closed only after its end,
    /// `end_ns`.
    pub(crate) fn integrate(&mut self, in_flight: usize, time_ns: Range<u64>, end_ns: u64) {
        let within = time_ns.end.min(end_ns).saturating_sub(time_ns.start);
        let later = time_ns.end.saturating_sub(time_ns.start.max(end_ns));
        self.in_flight_ns += in_flight as f64 * within as f64;
        self.in_flight_later_ns += in_flight as f64 * later as f64;
    }
}

/// Message of a worker to the collector.
#[derive(Debug)]
pub(crate) enum Message {
    Window(usize, Box<Window>),
    Ended(usize),
}

/// Answers of one kind in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Requests answered without error.
    pub ops: u64,
    /// Mean latency, µs.
    #[serde(default)]
    pub mean_us: f64,
    /// Median latency, µs.
    pub p50_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// Maximum, µs.
    pub max_us: f64,
}

impl Moment {
    fn of(histogram: &Histogram<u64>) -> Moment {
        if histogram.is_empty() {
            return Moment::default();
        }
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        let max_us = histogram.max() as f64 / 1000.0;
        let mean_us = histogram.mean() / 1000.0;
        Moment { ops: histogram.len(), mean_us, p50_us: us(0.5), p99_us: us(0.99), max_us }
    }
}

/// One second of a run, over all workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Start by wall clock, milliseconds since 1970.
    pub unix_ms: u64,
    /// Start, seconds since the run began.
    pub at_s: f64,
    /// Duration, seconds. The last second of a step may be shorter.
    pub seconds: f64,
    /// Step it belongs to, from 0. -1 in the warm-up, -2 while waiting for the last answers.
    pub step: i64,
    /// Requests sent.
    pub sent: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests in flight at its end.
    pub in_flight: usize,
    /// Requests in flight, mean over it.
    #[serde(default)]
    pub in_flight_mean: f64,
    /// Most requests in flight during it, summed over the threads.
    pub in_flight_max: usize,
    /// CPU of the busiest generator thread, as a share of its core.
    pub generator_cpu: f64,
    /// All answers.
    pub all: Moment,
    /// Reads.
    pub reads: Moment,
    /// Writes.
    pub writes: Moment,
}

impl Second {
    /// Returns the answers per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.all.ops as f64 / self.seconds } else { 0.0 }
    }
}

/// Merges windows of workers into seconds.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// Number of windows received from each worker. `u64::MAX` after its end.
    seen: Vec<u64>,
    waiting: BTreeMap<u64, (Box<Window>, f64)>,
}

impl Timeline {
    pub(crate) fn new(workers: usize) -> Timeline {
        Timeline { seen: vec![0; workers], waiting: BTreeMap::new() }
    }

    /// Takes a message. [`Timeline::pop`] then returns the seconds it completed.
    pub(crate) fn push(&mut self, message: Message) {
        match message {
            Message::Ended(worker) => self.seen[worker] = u64::MAX,
            Message::Window(worker, window) => {
                self.seen[worker] = window.index + 1;
                let length = (window.end_ns - window.begin_ns).max(1);
                let cpu = window.cpu_ns as f64 / length as f64;
                match self.waiting.get_mut(&window.index) {
                    None => {
                        self.waiting.insert(window.index, (window, cpu));
                    }
                    Some((sum, busiest)) => {
                        sum.latencies.add(&window.latencies);
                        sum.sent += window.sent;
                        sum.errors += window.errors;
                        sum.in_flight += window.in_flight;
                        sum.in_flight_max += window.in_flight_max;
                        sum.in_flight_ns += window.in_flight_ns;
                        sum.end_ns = sum.end_ns.max(window.end_ns);
                        *busiest = busiest.max(cpu);
                    }
                }
            }
        }
    }

    /// Returns the next second that no worker can add to. `step` maps a stretch to its step,
    /// `unix_ms` a time to the wall clock.
    pub(crate) fn pop(
        &mut self,
        step: impl Fn(usize) -> i64,
        unix_ms: impl Fn(u64) -> u64,
    ) -> Option<Second> {
        let complete = self.seen.iter().min().copied().unwrap_or(0);
        let entry = self.waiting.first_entry()?;
        if *entry.key() >= complete {
            return None;
        }
        let (window, generator_cpu) = entry.remove();
        let length_ns = window.end_ns - window.begin_ns;
        Some(Second {
            unix_ms: unix_ms(window.begin_ns),
            at_s: window.begin_ns as f64 / 1e9,
            seconds: length_ns as f64 / 1e9,
            step: step(window.stretch),
            sent: window.sent,
            errors: window.errors,
            in_flight: window.in_flight,
            in_flight_mean: window.in_flight_ns / length_ns.max(1) as f64,
            in_flight_max: window.in_flight_max,
            generator_cpu,
            all: Moment::of(&window.latencies.both()),
            reads: Moment::of(window.latencies.of(OpKind::Read)),
            writes: Moment::of(window.latencies.of(OpKind::Write)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(worker: usize, index: u64, sent: u64) -> Message {
        let mut window = Window::new(index, index * 1_000_000_000, 0);
        (0..sent).for_each(|_| window.latencies.record(OpKind::Read, 1000));
        (window.end_ns, window.sent) = ((index + 1) * 1_000_000_000, sent);
        (window.in_flight, window.in_flight_max, window.cpu_ns) = (1, 2, sent * 100_000_000);
        window.integrate(2, window.begin_ns..window.begin_ns + 250_000_000, window.end_ns);
        Message::Window(worker, Box::new(window))
    }

    #[test]
    fn time_after_the_end_belongs_to_the_next_window() {
        let mut first = Window::new(0, 0, 0);
        first.integrate(3, 0..600, 1000);
        first.integrate(5, 600..1200, 1000);
        let next = first.next(1000, 0, 5);
        assert_eq!((first.in_flight_ns, next.in_flight_ns), (3.0 * 600.0 + 5.0 * 400.0, 5.0 * 200.0));
        assert_eq!((next.index, next.begin_ns, next.in_flight_max), (1, 1000, 5));
        first.integrate(7, 1200..1300, 1000);
        assert_eq!(first.in_flight_later_ns, 5.0 * 200.0 + 7.0 * 100.0);
    }

    #[test]
    fn complete_seconds_are_returned_in_order() {
        let mut timeline = Timeline::new(2);
        let pop = |timeline: &mut Timeline| timeline.pop(|_| 0, |ns| ns / 1_000_000);
        timeline.push(window(0, 0, 3));
        timeline.push(window(0, 1, 4));
        assert_eq!(pop(&mut timeline), None);
        timeline.push(window(1, 0, 5));
        let first = pop(&mut timeline).expect("both workers sent it");
        assert_eq!((first.sent, first.all.ops, first.in_flight, first.unix_ms), (8, 8, 2, 0));
        assert!(first.in_flight_mean == 1.0 && (first.all.mean_us - 1.0).abs() < 0.01, "{first:?}");
        assert!((first.generator_cpu - 0.5).abs() < 1e-9, "the maximum, not the sum");
        assert_eq!(pop(&mut timeline), None);
        timeline.push(Message::Ended(1));
        assert_eq!(pop(&mut timeline).map(|second| (second.sent, second.unix_ms)), Some((4, 1000)));
        assert_eq!(pop(&mut timeline), None);
    }
}
