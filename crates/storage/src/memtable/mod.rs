//! Memtable of a table: recent writes, ordered by (token, key), in a copy-on-write map. A snapshot
//! is O(1), and later writes copy only the nodes that they touch.
//!
//! The map is keyed by the token alone (`token_map.rs`). Keys that share a token, which only
//! happens on purpose, get an inner map, so that a search among them is logarithmic too.

pub(crate) mod token_map;

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::memtable::token_map::TokenMap;
use crate::model::Change;
use crate::model::FreeInChunks;
use crate::model::layers::Placed;
use crate::model::partition::{Growth, Partition};
use crate::model::row::{Draft, EncodedRow};

/// The partitions of a table. Cloning is O(1).
#[derive(Clone, Debug)]
pub(crate) struct Memtable {
    buckets: TokenMap<Bucket>,
    partitions: usize,
    /// Bytes of the largest row so far.
    largest_row: usize,
    /// The greatest timestamp so far.
    newest: i64,
}

impl Default for Memtable {
    fn default() -> Memtable {
        Memtable { buckets: TokenMap::default(), partitions: 0, largest_row: 0, newest: i64::MIN }
    }
}

/// Two words, so that a slot of the map is half a cache line.
#[derive(Clone, Debug)]
enum Bucket {
    /// A partition of one row without clustering. The row contains the key.
    Row(EncodedRow),
    Other(Arc<Other>),
}

#[derive(Clone, Debug)]
enum Other {
    One(Bytes, Partition),
    Many(OrdMap<Bytes, Partition>),
}

const _: () = assert!(size_of::<Bucket>() == 16);

/// A partition with its position.
pub(crate) type MemtableEntry = (i64, Bytes, Partition);

/// Bytes of a partition beside its contents: its slot in the map.
const PARTITION_OVERHEAD: usize = TokenMap::<Bucket>::OVERHEAD;

/// As [`PARTITION_OVERHEAD`], with a separate key.
const KEYED_OVERHEAD: usize = PARTITION_OVERHEAD + 16 + size_of::<Other>();

impl Bucket {
    fn new(key: &[u8], partition: Partition) -> Bucket {
        match partition {
            Partition::Single(row) => Bucket::Row(row.with_key(key)),
            full => Bucket::Other(Arc::new(Other::One(Bytes::copy_from_slice(key), full))),
        }
    }

    /// Returns the partition with this key, converted to a form that accepts any change.
    fn partition_mut(&mut self, key: &[u8]) -> Option<&mut Partition> {
        if let Bucket::Row(row) = self
            && row.key() == key
        {
            let one = Other::One(Bytes::copy_from_slice(key), Partition::Single(row.clone()));
            *self = Bucket::Other(Arc::new(one));
        }
        match self {
            Bucket::Row(_) => None,
            Bucket::Other(other) => match Arc::make_mut(other) {
                Other::One(own, partition) => (own == key).then_some(partition),
                Other::Many(partitions) => partitions.get_mut(key),
            },
        }
    }

    /// Appends the partitions with keys after `after`, until `out` has about `limit` entries.
    fn collect(&self, token: i64, after: Option<&Bytes>, limit: usize, out: &mut VecDeque<MemtableEntry>) {
        match self {
            Bucket::Row(row) => {
                if after.is_none_or(|after| row.key() > &after[..]) {
                    let key = Bytes::copy_from_slice(row.key());
                    out.push_back((token, key, Partition::Single(row.clone())));
                }
            }
            Bucket::Other(other) => match &**other {
                Other::One(key, partition) => {
                    if after.is_none_or(|after| key > after) {
                        out.push_back((token, key.clone(), partition.clone()));
                    }
                }
                Other::Many(partitions) => {
                    let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&after[..]));
                    let free = limit.saturating_sub(out.len());
                    let rest = partitions.range::<_, [u8]>((start, Bound::Unbounded));
                    out.extend(
                        rest.take(free).map(|(key, partition)| (token, key.clone(), partition.clone())),
                    );
                }
            },
        }
    }

    /// Converts the bucket to one of several keys.
    fn make_many(&mut self) -> &mut OrdMap<Bytes, Partition> {
        let one = match self {
            Bucket::Row(row) => Some((Bytes::copy_from_slice(row.key()), Partition::Single(row.clone()))),
            Bucket::Other(other) => match &**other {
                Other::One(key, partition) => Some((key.clone(), partition.clone())),
                Other::Many(_) => None,
            },
        };
        if let Some((key, partition)) = one {
            *self = Bucket::Other(Arc::new(Other::Many(OrdMap::unit(key, partition))));
        }
        match self {
            Bucket::Other(other) => match Arc::make_mut(other) {
                Other::Many(partitions) => partitions,
                Other::One(..) => unreachable!("converted above"),
            },
            Bucket::Row(_) => unreachable!("converted above"),
        }
    }
}

impl FreeInChunks for Bucket {
    fn free_chunk(&mut self, left: &mut usize) -> bool {
        match self {
            Bucket::Row(_) => false,
            Bucket::Other(other) => match Arc::get_mut(other) {
                Some(Other::One(_, partition)) => partition.free_chunk(left),
                // Few keys share a token.
                Some(Other::Many(_)) | None => false,
            },
        }
    }
}

impl FreeInChunks for Memtable {
    fn free_chunk(&mut self, left: &mut usize) -> bool {
        self.buckets.free_chunk(left)
    }
}

impl Memtable {
    /// Returns true if no scan or merge has a snapshot of it.
    pub(crate) fn is_unused(&self) -> bool {
        self.buckets.is_unshared()
    }

    pub(crate) fn len(&self) -> usize {
        self.partitions
    }

    /// Returns the bytes of the largest row so far.
    #[inline]
    pub(crate) fn largest_row(&self) -> usize {
        self.largest_row
    }

    /// Returns the greatest timestamp so far; `i64::MIN` without data.
    #[inline]
    pub(crate) fn newest(&self) -> i64 {
        self.newest
    }

    /// Returns true if it may have a partition with this token.
    #[inline]
    pub(crate) fn may_have(&self, token: i64) -> bool {
        self.buckets.get(token).is_some()
    }

    /// Returns the partition with this key.
    pub(crate) fn get(&self, token: i64, key: &[u8]) -> Option<Partition> {
        match self.buckets.get(token)? {
            Bucket::Row(row) => (row.key() == key).then(|| Partition::Single(row.clone())),
            Bucket::Other(other) => match &**other {
                Other::One(own, partition) => (own == key).then(|| partition.clone()),
                Other::Many(partitions) => partitions.get(key).cloned(),
            },
        }
    }

    /// Returns a stored row, and the timestamp up to which deletions of the partition or a range
    /// shadow it. This is the fast path of point reads.
    #[inline]
    pub(crate) fn row(&self, token: i64, key: &[u8], clustering: &[u8]) -> Option<(Placed, i64)> {
        let partition = match self.buckets.get(token)? {
            Bucket::Row(row) => {
                let is_here = row.key() == key && clustering.is_empty();
                return is_here.then(|| (Placed::Row(row.clone()), i64::MIN));
            }
            Bucket::Other(other) => match &**other {
                Other::One(own, partition) => (own == key).then_some(partition)?,
                Other::Many(partitions) => partitions.get(key)?,
            },
        };
        partition.placed(clustering)
    }

    /// Prefetches the slot of a partition, for [`Memtable::prefetch_row`], [`Memtable::row`] or
    /// [`Memtable::put`].
    #[inline]
    pub(crate) fn prefetch(&self, token: i64) {
        self.buckets.prefetch(token, self.partitions);
    }

    /// Prefetches the row of a partition that has only one.
    #[inline]
    pub(crate) fn prefetch_row(&self, token: i64) {
        if let Some(Bucket::Row(row)) = self.buckets.get(token) {
            row.prefetch();
        }
    }

    /// Writes a row. Takes a fast path if the row contains its key and is the only one of its
    /// partition. Returns the approximate growth in bytes.
    pub(crate) fn put(&mut self, token: i64, key: &[u8], row: &Draft) -> usize {
        self.newest = self.newest.max(row.newest());
        match self.buckets.get_mut(token) {
            Some(Bucket::Row(old))
                if old.key() == key && row.clustering().is_empty() && old.takes_in(row) =>
            {
                let before = old.bytes();
                old.absorb(row);
                self.largest_row = self.largest_row.max(old.bytes());
                return old.bytes().saturating_sub(before);
            }
            None if row.clustering().is_empty() && row.key() == key => {
                let row = row.row();
                let bytes = row.bytes() + PARTITION_OVERHEAD;
                self.largest_row = self.largest_row.max(row.bytes());
                self.buckets.insert(token, Bucket::Row(row));
                self.partitions += 1;
                return bytes;
            }
            _ => {}
        }
        self.apply(token, key, &[Change::Row(row.row())])
    }

    /// Applies changes to a partition. Returns the approximate growth in bytes.
    pub(crate) fn apply(&mut self, token: i64, key: &[u8], changes: &[Change]) -> usize {
        self.newest = changes.iter().map(Change::newest).fold(self.newest, i64::max);
        let Some(bucket) = self.buckets.get_mut(token) else {
            let (partition, Growth { bytes, row }) = Partition::from_changes(changes);
            self.largest_row = self.largest_row.max(row);
            let overhead = match &partition {
                Partition::Single(_) => PARTITION_OVERHEAD,
                Partition::Full(_) => KEYED_OVERHEAD,
            };
            self.buckets.insert(token, Bucket::new(key, partition));
            self.partitions += 1;
            return bytes + overhead + key.len();
        };
        let was_row = matches!(bucket, Bucket::Row(_));
        if let Some(partition) = bucket.partition_mut(key) {
            let Growth { bytes, row } = changes.iter().map(|change| partition.apply(change)).sum();
            self.largest_row = self.largest_row.max(row);
            return bytes + if was_row { KEYED_OVERHEAD } else { 0 };
        }
        let (partition, Growth { bytes, row }) = Partition::from_changes(changes);
        self.largest_row = self.largest_row.max(row);
        bucket.make_many().insert(Bytes::copy_from_slice(key), partition);
        self.partitions += 1;
        bytes + key.len() + KEYED_OVERHEAD
    }

    /// Inserts or replaces a partition. Of what was changed in it, `row_bytes` are those of the
    /// largest row, and `newest` is the greatest timestamp. Returns the approximate growth in
    /// bytes, without the contents of the partition.
    pub(crate) fn replace(
        &mut self,
        token: i64,
        key: &[u8],
        partition: Partition,
        row_bytes: usize,
        newest: i64,
    ) -> usize {
        self.largest_row = self.largest_row.max(row_bytes);
        self.newest = self.newest.max(newest);
        let Some(bucket) = self.buckets.get_mut(token) else {
            self.buckets.insert(token, Bucket::new(key, partition));
            self.partitions += 1;
            return KEYED_OVERHEAD + key.len();
        };
        let was_row = matches!(bucket, Bucket::Row(_));
        if let Some(own) = bucket.partition_mut(key) {
            *own = partition;
            return if was_row { KEYED_OVERHEAD } else { 0 };
        }
        bucket.make_many().insert(Bytes::copy_from_slice(key), partition);
        self.partitions += 1;
        KEYED_OVERHEAD + key.len()
    }

    /// Appends entries in order, from `from` to the token `last`, until `out` has about `limit`.
    /// Fewer than `limit` means that the end was reached.
    pub(crate) fn collect(
        &self,
        from: &ScanFrom,
        last: i64,
        limit: usize,
        out: &mut VecDeque<MemtableEntry>,
    ) {
        let first = match from {
            ScanFrom::Token(token) => *token,
            ScanFrom::After(token, _) => *token,
        };
        if first > last {
            return;
        }
        let mut near = limit.saturating_sub(out.len());
        let _ = self.buckets.visit(first, last, &mut |_, bucket| {
            match bucket {
                Bucket::Row(row) => row.prefetch_all(),
                Bucket::Other(other) => lanes::prefetch(&**other),
            }
            near = near.saturating_sub(1);
            if near == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let _ = self.buckets.visit(first, last, &mut |token, bucket| {
            let after = match from {
                ScanFrom::After(at, key) if *at == token => Some(key),
                _ => None,
            };
            bucket.collect(token, after, limit, out);
            if out.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}

/// Position at which a scan continues.
#[derive(Clone, Debug)]
pub(crate) enum ScanFrom {
    /// At the first key of this token.
    Token(i64),
    /// After this key.
    After(i64, Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::row::RowBuilder;
    use crate::model::{CellRef, CellValue};

    fn row(clustering: u32) -> Change {
        let mut row = RowBuilder::new(&[], &clustering.to_be_bytes(), 1);
        let value = CellValue::Live { value: &[7; 10], expiry: None };
        row.push(CellRef { column: 1, path: None, timestamp: 1, value });
        Change::Row(row.draft().row())
    }

    #[test]
    fn wide_partitions_are_freed_in_chunks() {
        let mut table = Memtable::default();
        for (token, rows) in [(1, 1_000), (2, 3), (3, 64)] {
            for n in 0..rows {
                table.apply(token, &[token as u8], &[row(n)]);
            }
        }
        let kept = table.clone();
        table.apply(1, &[1], &[row(5_000)]);
        let rows = |table: &Memtable| match table.get(1, &[1]) {
            Some(Partition::Full(full)) => full.rows.len(),
            _ => 0,
        };
        let mut chunks = 0;
        while table.free_chunk(&mut 64) {
            chunks += 1;
            assert!(rows(&table) == 0 || rows(&table) + 64 * chunks >= 1_001, "{} left", rows(&table));
        }
        assert!(chunks >= 15, "{chunks} chunks");
        assert_eq!(rows(&kept), 1_000);
    }
}
