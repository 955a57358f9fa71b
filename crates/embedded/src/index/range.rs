//! Entries of a range of values on this core, in the order of the table's rows.
//!
//! 1. Read the entries of the range in the bucket of the next token. They have the order of values.
//! 2. Keep the least places from the next one on, each once, up to [`PLACES_MAX`].
//! 3. If there are more, read the bucket again for the next ones. Otherwise continue with the next
//!    bucket.
//!
//! A bucket with more than [`ENTRIES_MAX`] entries of the range, or [`BYTES_MAX`] bytes of them, is
//! not sorted: a scan of its tokens costs about as much as reading the rows one by one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;

use bytes::Bytes;
use engine::Error;
use schema::value;
use storage::{Shard, TableId};

use crate::index::entry::{self, Entry};
use crate::index::list::{ENTRIES_AT_ONCE, damaged};
use crate::storage_error;

/// Places sorted at a time. With about 200 bytes each, 800 KiB.
const PLACES_MAX: usize = 4096;

/// Entries of one bucket that are read for a place, at most: about 10 ms.
const ENTRIES_MAX: usize = 16_384;

/// Bytes of these entries, at most: four times those of [`ENTRIES_MAX`] usual ones. Keys of 64 KiB
/// are possible, and the places are in memory.
const BYTES_MAX: usize = 4 << 20;

/// Range of values of an index. It is sent to every core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IndexRange {
    /// The data of the index.
    pub(crate) data: TableId,
    /// Bounds on the clustering keys of ordered entries.
    start: Bound<Bytes>,
    end: Bound<Bytes>,
}

impl IndexRange {
    /// Returns the range between bounds on values, which are keys of the index with this data.
    pub(crate) fn new(data: TableId, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> IndexRange {
        // Rows are checked, so a bound may admit more.
        let start = match lower {
            Bound::Excluded(key) => match value::prefix_end(&key) {
                Some(end) => Bound::Included(end.into()),
                None => Bound::Included(key.into()),
            },
            lower => lower.map(Bytes::from),
        };
        let end = match upper {
            Bound::Included(key) => match value::prefix_end(&key) {
                Some(end) => Bound::Excluded(end.into()),
                None => Bound::Unbounded,
            },
            upper => upper.map(Bytes::from),
        };
        IndexRange { data, start, end }
    }

    fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Excluded(end)) => start >= end,
            _ => false,
        }
    }
}

/// Result of looking for the next entries of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Entries,
    /// Too many entries of the range are in the bucket. Its tokens from the position on are to be
    /// scanned.
    Many(RangeInclusive<i64>),
    End,
}

/// Position among the entries of a range.
pub(crate) struct Ordered<'a> {
    shard: &'a Rc<Shard>,
    range: &'a IndexRange,
    now_s: u32,
    /// Tokens that are left: the first bucket may have been read in part.
    tokens: RangeInclusive<i64>,
    /// Least place to return.
    from: Vec<u8>,
    buffer: VecDeque<Entry>,
    /// True if the bucket of the entries in hand has more.
    is_cut: bool,
}

impl<'a> Ordered<'a> {
    /// Returns the entries of a token range from a place on.
    pub(crate) fn new(
        shard: &'a Rc<Shard>,
        range: &'a IndexRange,
        now_s: u32,
        tokens: RangeInclusive<i64>,
        from: Vec<u8>,
    ) -> Ordered<'a> {
        let tokens = if range.is_empty() { RangeInclusive::new(1, 0) } else { tokens };
        Ordered { shard, range, now_s, tokens, from, buffer: VecDeque::new(), is_cut: false }
    }

    /// Looks for entries if none are in hand.
    pub(crate) async fn fill(&mut self) -> Result<Found, Error> {
        while self.buffer.is_empty() {
            if self.tokens.is_empty() {
                return Ok(Found::End);
            }
            let bucket = entry::bucket_tokens(*self.tokens.start());
            let last = *bucket.end().min(self.tokens.end());
            let Some(found) = self.read_bucket().await? else {
                return Ok(Found::Many(*self.tokens.start()..=last));
            };
            match found.back().filter(|_| self.is_cut) {
                Some(back) => {
                    self.from = entry::after(&back.place).to_vec();
                    self.tokens = back.token..=*self.tokens.end();
                }
                None => match last.checked_add(1) {
                    Some(next) => self.tokens = next..=*self.tokens.end(),
                    None => self.tokens = RangeInclusive::new(1, 0),
                },
            }
            self.buffer = found;
        }
        Ok(Found::Entries)
    }

    /// Returns the least places of the first bucket. `None`: too many entries are in it.
    async fn read_bucket(&mut self) -> Result<Option<VecDeque<Entry>>, Error> {
        let partition = Bytes::copy_from_slice(&entry::bucket_key(*self.tokens.start()));
        let token = schema::token::token(&partition);
        let (start, end) = (self.range.start.clone(), self.range.end.clone());
        let mut rest = storage::Slice { start, end, ..storage::Slice::all(ENTRIES_AT_ONCE) };
        let mut least: BTreeMap<Bytes, Entry> = BTreeMap::new();
        let (mut looked, mut bytes) = (0, 0);
        self.is_cut = false;
        loop {
            if lanes::spend(READ_UNITS) {
                lanes::yield_now().await;
            }
            let read = self.shard.read_slice(self.range.data, token, &partition, &rest, self.now_s);
            let Some(sliced) = read.wait().await.map_err(storage_error)? else { break };
            let _ = lanes::spend(2 * sliced.view.stored() as u32);
            for row in sliced.view.rows() {
                looked += 1;
                bytes += row.clustering().len();
                let entry = Entry::decode_ordered(&partition, row.clustering()).ok_or_else(damaged)?;
                if entry.place < self.from || entry.token > *self.tokens.end() {
                    continue;
                }
                least.insert(entry.place.clone(), entry);
                if least.len() > PLACES_MAX {
                    self.is_cut = least.pop_last().is_some();
                }
            }
            if looked > ENTRIES_MAX || bytes > BYTES_MAX {
                return Ok(None);
            }
            match sliced.next {
                Some(last) => rest = rest.behind(last),
                None => break,
            }
        }
        Ok(Some(least.into_values().collect()))
    }

    /// Returns the entries in hand.
    pub(crate) fn in_hand(&mut self) -> &mut VecDeque<Entry> {
        &mut self.buffer
    }

    /// Returns true if a partition may have more entries than those in hand.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Drops the entries before `place`.
    pub(crate) fn skip_to(&mut self, place: &[u8]) {
        let before = self.buffer.partition_point(|entry| entry.place < place);
        self.buffer.drain(..before);
        if self.from[..] < *place {
            self.from = place.to_vec();
        }
    }
}

/// Work units of requesting entries from storage.
const READ_UNITS: u32 = 5;
