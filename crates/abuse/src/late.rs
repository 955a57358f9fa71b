//! Times in which the tool's own threads waited for a core. The tool shares the machine with the
//! server, so that a read can be late because its client was. Probes and a monitor record each late
//! wake-up. Reads are then reported with and without that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Smallest delay recorded as a span, microseconds. Smaller delays come from the timer.
const SPAN_MIN_US: u64 = 200;
/// Sleep of the monitor between wake-ups.
const PERIOD: Duration = Duration::from_micros(500);

/// Returns microseconds since the first call, at least 1.
pub(crate) fn now_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_micros() as u64 + 1
}

/// Late wake-ups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Late {
    delays_us: Vec<u64>,
    /// Due time and actual time of each late wake-up.
    spans: Vec<(u64, u64)>,
}

impl Late {
    pub(crate) fn record(&mut self, due_us: u64, now_us: u64) {
        let delay = now_us.saturating_sub(due_us);
        self.delays_us.push(delay);
        if delay >= SPAN_MIN_US {
            self.spans.push((due_us, now_us));
        }
    }

    pub(crate) fn add(&mut self, other: Late) {
        self.delays_us.extend(other.delays_us);
        self.spans.extend(other.spans);
    }

    /// Makes spans disjoint and ascending, and sorts the delays.
    pub(crate) fn merged(mut self) -> Late {
        self.delays_us.sort_unstable();
        self.spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in self.spans {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Late { delays_us: self.delays_us, spans: merged }
    }

    /// Returns how long a thread of the tool waited within `from..to`, microseconds. Needs merged
    /// spans.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        let first = self.spans.partition_point(|span| span.1 <= from);
        let spans = self.spans[first..].iter().take_while(|span| span.0 < to);
        spans.map(|span| span.1.min(to) - span.0.max(from)).sum()
    }

    /// Returns the quantile `part` of the delays, milliseconds. Needs merged delays.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        let last = self.delays_us.len().saturating_sub(1);
        self.delays_us.get((last as f64 * part).round() as usize).map_or(0.0, |us| *us as f64 / 1_000.0)
    }
}

/// A thread that only sleeps and records the delay of each wake-up.
#[derive(Debug)]
pub(crate) struct LateMonitor {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<Late>,
}

impl LateMonitor {
    pub(crate) fn start() -> LateMonitor {
        let stops = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stops);
        let thread = std::thread::spawn(move || {
            let mut late = Late::default();
            while !ends.load(Ordering::Relaxed) {
                let due = now_us() + PERIOD.as_micros() as u64;
                std::thread::sleep(PERIOD);
                late.record(due, now_us());
            }
            late
        });
        LateMonitor { stops, thread }
    }

    pub(crate) fn stop(self) -> Late {
        self.stops.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_are_counted_once() {
        let mut late = Late::default();
        late.record(1_000, 3_000);
        let mut other = Late::default();
        other.record(2_000, 4_000);
        other.record(9_000, 9_050);
        other.record(8_000, 8_500);
        late.add(other);
        let late = late.merged();
        assert_eq!(late.within(0, 10_000), 3_500);
        assert_eq!(late.within(3_500, 8_100), 600);
        assert_eq!(late.within(4_000, 8_000), 0);
        assert_eq!(late.quantile_ms(1.0), 2.0);
        assert_eq!(Late::default().merged().quantile_ms(0.99), 0.0);
    }
}
