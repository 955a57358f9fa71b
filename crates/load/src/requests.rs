//! Sequence of a worker's requests: random reads and writes, or each row of a prefill once. A
//! prefill repeats failed rows.

use rand::Rng as _;
use rand::rngs::SmallRng;

use crate::histogram::OpKind;
use crate::keys::{KeySource, Stride};
use crate::spec::{Spec, Workload};
use crate::statement::RowId;

/// Consecutive failures after which a prefill gives up.
const FAILURES_MAX: u64 = 1000;

/// Requests of one worker.
#[derive(Debug)]
pub(crate) struct Requests {
    workload: Workload,
    write_ratio: f64,
    keys: KeySource,
    /// Largest clustering key of a request.
    clustering_last: u64,
    prefill: Option<Remaining>,
    /// A request that was drawn but not sent yet.
    stash: Option<(RowId, OpKind)>,
}

/// Rows that a prefill still has to write. Rows are numbered, and a worker takes every `step`-th.
#[derive(Debug)]
struct Remaining {
    key_first: u64,
    rows_per_key: u64,
    next: u64,
    end: u64,
    step: u64,
    /// Failed rows to write again. At most as many as were in flight.
    retries: Vec<RowId>,
    failures: u64,
}

impl Requests {
    /// Returns the requests of the worker with this stride.
    pub(crate) fn new(spec: &Spec, stride: Stride) -> Requests {
        let keys = spec.key_range();
        let rows_per_key = spec.rows.per_partition.max(1);
        let prefill = (spec.workload == Workload::Prefill).then(|| Remaining {
            key_first: keys.start,
            rows_per_key,
            next: stride.first,
            end: (keys.end - keys.start).saturating_mul(rows_per_key),
            step: stride.step,
            retries: Vec::new(),
            failures: 0,
        });
        // Begin a slice early enough that the partition has `slice_rows` rows from there.
        let span = if spec.workload == Workload::Slice { spec.rows.slice_rows } else { 1 };
        Requests {
            workload: spec.workload,
            write_ratio: spec.write_ratio,
            keys: KeySource::new(spec.keys.distribution, keys, stride),
            clustering_last: rows_per_key.saturating_sub(span),
            prefill,
            stash: None,
        }
    }

    /// Returns the next request. `None`: all rows of a prefill were returned.
    pub(crate) fn next(&mut self, rng: &mut SmallRng) -> Option<(RowId, OpKind)> {
        if let Some(stashed) = self.stash.take() {
            return Some(stashed);
        }
        if let Some(remaining) = &mut self.prefill {
            return remaining.take().map(|row| (row, OpKind::Write));
        }
        let kind = match self.workload {
            Workload::Read | Workload::Slice => OpKind::Read,
            Workload::Write | Workload::Prefill => OpKind::Write,
            Workload::Mixed if rng.random::<f64>() < self.write_ratio => OpKind::Write,
            Workload::Mixed => OpKind::Read,
        };
        let clustering = match self.clustering_last {
            0 => 0,
            last => rng.random_range(0..=last),
        };
        Some((RowId { key: self.keys.next(rng), clustering }, kind))
    }

    /// Keeps an unsent request for the next call, so that the sequence of requests does not depend
    /// on the speed of answers.
    pub(crate) fn put_back(&mut self, row: RowId, kind: OpKind) {
        self.stash = Some((row, kind));
    }

    /// Records a success.
    pub(crate) fn succeeded(&mut self) {
        if let Some(remaining) = &mut self.prefill {
            remaining.failures = 0;
        }
    }

    /// Records a failure. A prefill writes the row again.
    pub(crate) fn failed(&mut self, row: RowId) {
        if let Some(remaining) = &mut self.prefill {
            remaining.failures += 1;
            remaining.retries.push(row);
        }
    }

    /// Returns true if a prefill has written everything or has given up. `in_flight` requests are
    /// without an answer.
    pub(crate) fn over(&self, in_flight: usize) -> bool {
        self.prefill.as_ref().is_some_and(|remaining| {
            let all_sent =
                remaining.next >= remaining.end && remaining.retries.is_empty() && self.stash.is_none();
            (all_sent && in_flight == 0) || remaining.failures >= FAILURES_MAX
        })
    }
}

impl Remaining {
    fn take(&mut self) -> Option<RowId> {
        if let Some(row) = self.retries.pop() {
            return Some(row);
        }
        if self.next >= self.end {
            return None;
        }
        let number = self.next;
        self.next = self.next.saturating_add(self.step);
        let key = self.key_first + number / self.rows_per_key;
        Some(RowId { key, clustering: number % self.rows_per_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    fn spec(workload: Workload, keys: u64, per_partition: u64) -> Spec {
        let mut spec = Spec { workload, ..Spec::default() };
        (spec.keys.population, spec.rows.per_partition) = (keys, per_partition);
        spec
    }

    #[test]
    fn prefill_workers_write_every_row_once() {
        let spec = spec(Workload::Prefill, 10, 3);
        let mut rng = SmallRng::seed_from_u64(1);
        let mut rows = Vec::new();
        for worker in 0..4 {
            let mut requests = Requests::new(&spec, Stride { first: worker, step: 4 });
            while let Some((row, kind)) = requests.next(&mut rng) {
                assert_eq!(kind, OpKind::Write);
                rows.push((row.key, row.clustering));
            }
            assert!(requests.over(0) && !requests.over(1));
        }
        assert_eq!(rows.len(), 30);
        let wanted: BTreeSet<(u64, u64)> = (0..10).flat_map(|key| (0..3).map(move |ck| (key, ck))).collect();
        assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), wanted);
    }

    #[test]
    fn failed_or_unsent_rows_are_repeated() {
        let mut requests = Requests::new(&spec(Workload::Prefill, 2, 0), Stride { first: 0, step: 1 });
        let mut rng = SmallRng::seed_from_u64(1);
        let (first, kind) = requests.next(&mut rng).expect("two keys");
        requests.put_back(first, kind);
        assert_eq!(requests.next(&mut rng), Some((first, kind)));
        requests.failed(first);
        assert_eq!(requests.next(&mut rng), Some((first, kind)));
        assert_eq!(requests.next(&mut rng).map(|(row, _)| row.key), Some(1));
        assert_eq!(requests.next(&mut rng), None);
        (0..FAILURES_MAX).for_each(|_| requests.failed(first));
        assert!(requests.over(5), "the prefill gives up");
    }

    #[test]
    fn slices_begin_where_all_rows_exist() {
        let check = |per_partition: u64, slice_rows: u64, last: u64| {
            let mut spec = spec(Workload::Slice, 10, per_partition);
            spec.rows.slice_rows = slice_rows;
            let mut requests = Requests::new(&spec, Stride { first: 0, step: 1 });
            let mut rng = SmallRng::seed_from_u64(3);
            let found =
                (0..5000).filter_map(|_| requests.next(&mut rng)).map(|(row, _)| row.clustering).max();
            assert_eq!(found, Some(last));
        };
        check(100, 100, 0);
        check(100, 200, 0);
        check(110, 100, 10);
        check(100, 1, 99);
    }
}
