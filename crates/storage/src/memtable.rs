//! What was written lately to one table, ordered by (token, key): a copy-on-write map, so a snapshot is O(1)
//! and later writes copy only the nodes they touch.
//!
//! The map is keyed by the token alone, because comparing integers within a node is several times cheaper than
//! comparing (token, key) pairs through pointers. Keys that share a token, which only happens by
//! construction, get an inner map, so that even then nothing degrades to a list.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::model::Change;
use crate::partition::Partition;

/// The partitions of one table. Cloning is O(1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Memtable {
    buckets: OrdMap<i64, Bucket>,
    partitions: usize,
}

/// Two words, so that a search for a token touches few cache lines and copying a leaf is cheap. What it points to is a
/// cache line: the two counts of the `Arc`, a short key, the partition.
#[derive(Clone, Debug)]
enum Bucket {
    One(Arc<(Key, Partition)>),
    Many(Arc<OrdMap<Bytes, Partition>>),
}

/// A key, in place if it is short: comparing it is not to cost a cache miss.
#[derive(Clone, Debug)]
enum Key {
    Short(u8, [u8; KEY_SHORT_MAX]),
    Long(Bytes),
}

const KEY_SHORT_MAX: usize = 30;

impl Key {
    fn new(key: &[u8]) -> Key {
        if key.len() > KEY_SHORT_MAX {
            return Key::Long(Bytes::copy_from_slice(key));
        }
        let mut bytes = [0; KEY_SHORT_MAX];
        bytes[..key.len()].copy_from_slice(key);
        Key::Short(key.len() as u8, bytes)
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Key::Short(len, bytes) => &bytes[..usize::from(*len)],
            Key::Long(bytes) => bytes,
        }
    }

    fn to_bytes(&self) -> Bytes {
        match self {
            Key::Short(..) => Bytes::copy_from_slice(self.as_slice()),
            Key::Long(bytes) => bytes.clone(),
        }
    }
}

/// A partition with its place.
pub(crate) type Entry = (i64, Bytes, Partition);

/// Bytes a partition takes beside its contents: its place in the map (leaves are about two thirds full).
const PARTITION_OVERHEAD: usize =
    (size_of::<Bucket>() + size_of::<i64>()) * 3 / 2 + 16 + size_of::<Key>() + size_of::<Partition>();

impl Memtable {
    pub(crate) fn len(&self) -> usize {
        self.partitions
    }

    /// The partition with this key.
    #[inline]
    pub(crate) fn get(&self, token: i64, key: &[u8]) -> Option<&Partition> {
        match self.buckets.get(&token)? {
            Bucket::One(one) => (one.0.as_slice() == key).then_some(&one.1),
            Bucket::Many(partitions) => partitions.get(key),
        }
    }

    /// Applies changes to a partition; returns about how many bytes the table grew by.
    pub(crate) fn apply(&mut self, token: i64, key: &[u8], changes: Vec<Change>) -> usize {
        match self.buckets.get_mut(&token) {
            Some(Bucket::One(one)) if one.0.as_slice() == key => {
                apply_all(&mut Arc::make_mut(one).1, changes)
            }
            Some(bucket) => {
                if let Bucket::One(one) = bucket {
                    let (own, partition) = &**one;
                    *bucket = Bucket::Many(Arc::new(OrdMap::unit(own.to_bytes(), partition.clone())));
                }
                let Bucket::Many(partitions) = bucket else { unreachable!("converted above") };
                let partitions = Arc::make_mut(partitions);
                if let Some(partition) = partitions.get_mut(key) {
                    return apply_all(partition, changes);
                }
                let (partition, bytes) = Partition::from_changes(changes);
                partitions.insert(Bytes::copy_from_slice(key), partition);
                self.partitions += 1;
                bytes + key.len() + PARTITION_OVERHEAD
            }
            None => {
                let (partition, bytes) = Partition::from_changes(changes);
                self.buckets.insert(token, Bucket::One(Arc::new((Key::new(key), partition))));
                self.partitions += 1;
                bytes + key.len() + PARTITION_OVERHEAD
            }
        }
    }

    /// Appends up to about `limit` entries in order, from `from` (inclusive token, or just after a key) to the
    /// token `last`. Fewer than `limit` means the end was reached.
    pub(crate) fn collect(&self, from: &ScanFrom, last: i64, limit: usize, out: &mut VecDeque<Entry>) {
        let first = match from {
            ScanFrom::Token(token) => *token,
            ScanFrom::After(token, _) => *token,
        };
        if first > last {
            return;
        }
        for (token, bucket) in self.buckets.range(first..=last) {
            let after = match from {
                ScanFrom::After(at, key) if at == token => Some(key),
                _ => None,
            };
            match bucket {
                Bucket::One(one) => {
                    let (key, partition) = &**one;
                    if after.is_none_or(|after| key.as_slice() > &after[..]) {
                        out.push_back((*token, key.to_bytes(), partition.clone()));
                    }
                }
                Bucket::Many(partitions) => {
                    let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&after[..]));
                    let room = limit.saturating_sub(out.len());
                    let rest = partitions.range::<_, [u8]>((start, Bound::Unbounded));
                    out.extend(
                        rest.take(room).map(|(key, partition)| (*token, key.clone(), partition.clone())),
                    );
                }
            }
            if out.len() >= limit {
                return;
            }
        }
    }
}

/// Where a scan goes on.
#[derive(Clone, Debug)]
pub(crate) enum ScanFrom {
    /// With the first key of this token.
    Token(i64),
    /// After this key.
    After(i64, Bytes),
}

fn apply_all(partition: &mut Partition, changes: Vec<Change>) -> usize {
    changes.into_iter().map(|change| partition.apply(change)).sum()
}
