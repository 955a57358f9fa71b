//! Observations of a run: operations in flight, latencies, and a point for each second.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use batcher::{CqlError, CqlStore, Order, Store};
use load::Latency;

use super::keys::{Key, RowValues};
use crate::metrics::now_s;
use crate::results::{InFlight, Point};

/// Counts of operations since the last call of [`OperationCounts::take`].
#[derive(Debug)]
pub(super) struct OperationCounts {
    in_flight: Cell<u64>,
    most: Cell<u64>,
    done: Cell<u64>,
    /// Integral of the operations in flight over time, seconds.
    integral_s: Cell<f64>,
    since: Cell<Instant>,
    begin: Cell<Instant>,
}

/// Operations during some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) done: u64,
    pub(super) mean: f64,
    pub(super) most: u64,
}

impl OperationCounts {
    pub(super) fn new() -> OperationCounts {
        let now = Instant::now();
        OperationCounts {
            in_flight: Cell::new(0),
            most: Cell::new(0),
            done: Cell::new(0),
            integral_s: Cell::new(0.0),
            since: Cell::new(now),
            begin: Cell::new(now),
        }
    }

    /// Adds the time since the last change.
    fn elapse(&self) -> Instant {
        let now = Instant::now();
        let seconds = now.duration_since(self.since.replace(now)).as_secs_f64();
        self.integral_s.set(self.integral_s.get() + self.in_flight.get() as f64 * seconds);
        now
    }

    fn begin(&self) {
        self.elapse();
        self.in_flight.set(self.in_flight.get() + 1);
        self.most.set(self.most.get().max(self.in_flight.get()));
    }

    fn end(&self) {
        self.elapse();
        self.in_flight.set(self.in_flight.get() - 1);
        self.done.set(self.done.get() + 1);
    }

    pub(super) fn take(&self) -> Taken {
        let now = self.elapse();
        let seconds = now.duration_since(self.begin.replace(now)).as_secs_f64();
        Taken {
            done: self.done.take(),
            mean: self.integral_s.take() / seconds.max(1e-9),
            most: self.most.replace(self.in_flight.get()),
        }
    }
}

/// The library's store of a table, with counts.
pub(super) struct CountedStore {
    pub(super) store: CqlStore<Key, RowValues>,
    pub(super) counts: Rc<OperationCounts>,
}

impl Store for CountedStore {
    type Slot = Key;
    type Value = RowValues;
    type Error = CqlError;

    const ORDER: Order = <CqlStore<Key, RowValues> as Store>::ORDER;

    async fn read(&self, slot: &Key) -> Result<Option<RowValues>, CqlError> {
        self.counts.begin();
        let read = self.store.read(slot).await;
        self.counts.end();
        read
    }

    async fn write(&self, slot: &Key, value: Option<RowValues>, stamp: u64) -> Result<(), CqlError> {
        self.counts.begin();
        let written = self.store.write(slot, value, stamp).await;
        self.counts.end();
        written
    }

    fn is_without_effect(&self, error: &CqlError) -> bool {
        self.store.is_without_effect(error)
    }

    fn stamp_seen(&self) -> u64 {
        self.store.stamp_seen()
    }
}

/// Commands of a run.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Commands that have a place and have not ended.
    pub(super) open: Cell<u64>,
    /// Outputs that are not those of sequential execution.
    pub(super) wrong: Cell<u64>,
    /// The first failure.
    pub(super) failure: RefCell<Option<String>>,
    /// Latencies of this second, µs.
    second_us: RefCell<Vec<f64>>,
    /// Latencies of earlier seconds of the phase, µs.
    phase_us: RefCell<Vec<f64>>,
}

impl Commands {
    pub(super) fn ended(&self, latency_us: f64) {
        self.second_us.borrow_mut().push(latency_us);
    }

    /// Forgets the latencies so far.
    pub(super) fn clear(&self) {
        self.second_us.borrow_mut().clear();
        self.phase_us.borrow_mut().clear();
    }

    /// Ends a second. Returns its point.
    pub(super) fn second(&self, seconds: f64) -> Point {
        let mut ended = self.second_us.take();
        let latency = latency(&mut ended);
        let point = Point {
            at_s: now_s() - seconds / 2.0,
            seconds,
            rate_per_s: ended.len() as f64 / seconds,
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
        };
        self.phase_us.borrow_mut().append(&mut ended);
        point
    }

    /// Ends the phase. Returns the number of commands that ended in it, and their latency.
    pub(super) fn phase(&self) -> (usize, Latency) {
        let mut ended = self.phase_us.take();
        ended.append(&mut self.second_us.borrow_mut());
        (ended.len(), latency(&mut ended))
    }
}

/// Returns the point of operations in flight.
pub(super) fn in_flight(taken: Taken, seconds: f64) -> InFlight {
    InFlight { at_s: now_s() - seconds / 2.0, mean: taken.mean, most: taken.most as f64 }
}

/// Returns the percentiles of latencies, which it sorts.
fn latency(us: &mut [f64]) -> Latency {
    us.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let rank = (us.len() as f64 * part).ceil() as usize;
        us.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    Latency {
        mean_us: us.iter().sum::<f64>() / us.len().max(1) as f64,
        p50_us: at(0.5),
        p95_us: at(0.95),
        p99_us: at(0.99),
        p999_us: at(0.999),
        p9999_us: at(0.9999),
        max_us: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_latencies() {
        let mut us: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let found = latency(&mut us);
        assert_eq!((found.p50_us, found.p99_us, found.max_us), (500.0, 990.0, 1000.0));
        assert_eq!(latency(&mut []), Latency::default());
    }

    #[test]
    fn phase_contains_all_of_its_seconds() {
        let commands = Commands::default();
        commands.ended(9.0);
        commands.clear();
        commands.ended(1.0);
        assert_eq!(commands.second(0.5).rate_per_s, 2.0);
        commands.ended(3.0);
        let (count, latency) = commands.phase();
        assert_eq!((count, latency.max_us, latency.mean_us), (2, 3.0, 2.0));
        assert_eq!(commands.phase().0, 0);
    }

    #[test]
    fn counts_begin_anew_with_what_is_in_flight() {
        let counts = OperationCounts::new();
        counts.begin();
        counts.begin();
        counts.end();
        let taken = counts.take();
        assert_eq!((taken.done, taken.most), (1, 2));
        let taken = counts.take();
        assert_eq!((taken.done, taken.most), (0, 1));
        assert!((taken.mean - 1.0).abs() < 1e-6, "{}", taken.mean);
    }
}
