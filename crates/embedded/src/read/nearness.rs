//! Rows compared with a vector: the nearest ones seen so far, or those that are near enough.
//!
//! A scan hands over the vectors of rows that have passed the filters. The heavy lane computes
//! their similarity, some hundred rows at a time, and keeps the best in a heap. So memory is
//! bounded by the number of rows that are wanted, and by one portion of vectors.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use engine::Error;
use functions::Similarity;

use crate::bind::nearest::NearestSearch;
use crate::bind::show::RowSource;
use crate::heavy_lane::heavy;

/// Rows compared at a time, and bytes of their vectors.
const COMPARED_MAX: usize = 512;
const COMPARED_BYTES_MAX: usize = 256 << 10;

/// Rows compared between two yields of the heavy lane.
const ROWS_PER_YIELD: usize = 32;

/// Bytes of a vector that are compared in one work unit: 16 numbers, each in 3 ns.
const BYTES_PER_UNIT: usize = 64;

/// Row, with the similarity of its vector. The least of several is the best one.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) similarity: f32,
    pub(crate) token: i64,
    pub(crate) key: Bytes,
    pub(crate) row: Bytes,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        let place = |of: &Candidate| (of.token, of.key.clone(), of.row.clone());
        other.similarity.total_cmp(&self.similarity).then_with(|| place(self).cmp(&place(other)))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// The best rows so far, and those that are not compared yet.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    best: BinaryHeap<Candidate>,
    waiting: Vec<Candidate>,
    vectors: Vec<u8>,
}

/// Use of the rows that are compared.
#[derive(Debug)]
enum Use {
    /// The best of them are collected, at most this many.
    Collect(usize, Mutex<Collected>),
    /// The similarity of the one that is read is kept.
    Measure(Mutex<Option<f32>>),
    /// They are shown if they are at least this similar.
    Show(f32),
}

/// Comparison of the rows of a read with a vector.
#[derive(Debug)]
pub(crate) struct Nearness {
    /// Index of the compared column in the table's `columns`.
    column: usize,
    similarity: Similarity,
    vector: Arc<[u8]>,
    used: Use,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nearness {
    fn new(search: &NearestSearch, used: Use) -> Arc<Nearness> {
        let NearestSearch { column, similarity, vector, .. } = search;
        Arc::new(Nearness { column: *column, similarity: *similarity, vector: vector.clone(), used })
    }

    /// Returns a comparison that collects the `count` nearest rows.
    pub(crate) fn collect(search: &NearestSearch, count: usize) -> Arc<Nearness> {
        Nearness::new(search, Use::Collect(count, Mutex::default()))
    }

    /// Returns a comparison that keeps the similarity of one row.
    pub(crate) fn measure(search: &NearestSearch) -> Arc<Nearness> {
        Nearness::new(search, Use::Measure(Mutex::default()))
    }

    /// Returns a comparison that shows rows at least this similar.
    pub(crate) fn show(search: &NearestSearch, least: f32) -> Arc<Nearness> {
        Nearness::new(search, Use::Show(least))
    }

    /// Compares a row that has passed the filters. Returns true if it is to be shown.
    ///
    /// # Errors
    /// The stored value is damaged.
    pub(crate) fn shows(&self, source: &RowSource<'_>) -> Result<bool, Error> {
        let Some(vector) = source.column(self.column)? else { return Ok(false) };
        if let Use::Collect(_, collected) = &self.used {
            if vector.len() == self.vector.len() {
                let row = source.row.map(|row| Bytes::copy_from_slice(row.clustering())).unwrap_or_default();
                let (token, key) = (source.token, Bytes::copy_from_slice(source.key));
                let mut collected = lock(collected);
                collected.waiting.push(Candidate { similarity: 0.0, token, key, row });
                collected.vectors.extend_from_slice(&vector);
            }
            return Ok(false);
        }
        lanes::count((vector.len() / BYTES_PER_UNIT) as u32);
        // A vector of zeros has no direction.
        let found = self.similarity.of(&self.vector, &vector).filter(|found| !found.is_nan());
        Ok(match &self.used {
            Use::Show(least) => found.is_some_and(|found| found >= *least),
            Use::Measure(measured) => {
                *lock(measured) = found;
                false
            }
            Use::Collect(..) => false,
        })
    }

    /// Takes the similarity of the row that was read last.
    pub(crate) fn measured(&self) -> Option<f32> {
        match &self.used {
            Use::Measure(measured) => lock(measured).take(),
            Use::Collect(..) | Use::Show(_) => None,
        }
    }

    /// Returns true if the collected rows should be [compared](Nearness::compare) before others
    /// are read.
    pub(crate) fn is_full(&self) -> bool {
        let Use::Collect(_, collected) = &self.used else { return false };
        let collected = lock(collected);
        collected.waiting.len() >= COMPARED_MAX || collected.vectors.len() >= COMPARED_BYTES_MAX
    }

    /// Compares the collected rows on the heavy lane.
    pub(crate) async fn compare(&self) {
        let Use::Collect(count, collected) = &self.used else { return };
        let taken = std::mem::take(&mut *lock(collected));
        let (count, similarity, vector) = (*count, self.similarity, self.vector.clone());
        let compared = heavy(async move {
            let Collected { mut best, waiting, vectors } = taken;
            let found = waiting.into_iter().zip(vectors.chunks_exact(vector.len().max(1)));
            for (at, (candidate, own)) in found.enumerate() {
                if let Some(similarity) = similarity.of(&vector, own).filter(|found| !found.is_nan()) {
                    best.push(Candidate { similarity, ..candidate });
                }
                if best.len() > count {
                    best.pop();
                }
                if at % ROWS_PER_YIELD == 0 {
                    lanes::heavy_yield().await;
                }
            }
            Collected { best, ..Collected::default() }
        });
        *lock(collected) = compared.await;
    }

    /// Compares the rest, and takes the nearest rows, the best first.
    pub(crate) async fn finish(&self) -> Vec<Candidate> {
        self.compare().await;
        match &self.used {
            Use::Collect(_, collected) => std::mem::take(&mut *lock(collected)).best.into_sorted_vec(),
            Use::Measure(_) | Use::Show(_) => Vec::new(),
        }
    }
}
