//! Reading the entries of one value on this core, in the order of the table's rows.

use std::collections::VecDeque;
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;

use bytes::Bytes;
use engine::Error;
use storage::{Shard, TableId};

use crate::index::entry::{self, Entry, Place};
use crate::storage_error;

/// Entries read at a time. One entry has about 50 bytes.
const ENTRIES_AT_ONCE: usize = 256;

/// A value to look up in an index. It is sent to every core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    /// The data of the index.
    pub(crate) data: TableId,
    /// Token of `value` in the index.
    pub(crate) token: i64,
    /// The value as a key of the index.
    pub(crate) value: Bytes,
    /// True if entries name rows, false if they name partitions.
    pub(crate) names_rows: bool,
}

impl Probe {
    /// Returns the probe of a value, which is a key of the index with this data.
    pub(crate) fn new(data: TableId, value: Vec<u8>, names_rows: bool) -> Probe {
        Probe { data, token: schema::token::token(&value), value: value.into(), names_rows }
    }
}

/// Position among the entries of a value.
pub(crate) struct Cursor<'a> {
    shard: &'a Rc<Shard>,
    probe: &'a Probe,
    now_s: u32,
    rest: storage::Slice,
    buffer: VecDeque<Entry>,
    has_ended: bool,
}

impl<'a> Cursor<'a> {
    fn new(shard: &'a Rc<Shard>, probe: &'a Probe, now_s: u32) -> Cursor<'a> {
        let rest = storage::Slice::all(ENTRIES_AT_ONCE);
        Cursor { shard, probe, now_s, rest, buffer: VecDeque::new(), has_ended: false }
    }

    /// Returns the entries of a token range, after a partition if one is given.
    pub(crate) fn of_tokens(
        shard: &'a Rc<Shard>,
        probe: &'a Probe,
        now_s: u32,
        tokens: &RangeInclusive<i64>,
        after: Option<Place<'_>>,
    ) -> Cursor<'a> {
        let mut cursor = Cursor::new(shard, probe, now_s);
        cursor.rest.start = Bound::Included(match after {
            Some(place) if place.token >= *tokens.start() => {
                entry::after(&entry::partition_prefix(place.token, place.key))
            }
            _ => entry::token_prefix(*tokens.start()).into(),
        });
        cursor.rest.end = match tokens.end().checked_add(1) {
            Some(end) => Bound::Excluded(entry::token_prefix(end).into()),
            None => Bound::Unbounded,
        };
        cursor
    }

    /// Returns the entries of rows of one partition, after the row of `place` if it has one.
    pub(crate) fn of_rows(
        shard: &'a Rc<Shard>,
        probe: &'a Probe,
        now_s: u32,
        place: Place<'_>,
        reversed: bool,
    ) -> Cursor<'a> {
        let mut cursor = Cursor::new(shard, probe, now_s);
        let first = entry::prefix(Place { row: Some(&[]), ..place });
        let reached = place.row.map(|_| entry::prefix(place));
        let (start, end) = match reached {
            Some(reached) if reversed => (Bytes::from(first), Bytes::from(reached)),
            Some(reached) => (entry::after(&reached), entry::after(&first)),
            None => (Bytes::from(first.clone()), entry::after(&first)),
        };
        (cursor.rest.start, cursor.rest.end) = (Bound::Included(start), Bound::Excluded(end));
        cursor.rest.reversed = reversed;
        cursor
    }

    /// Reads entries if none are in hand. Returns false at the end.
    pub(crate) async fn fill(&mut self) -> Result<bool, Error> {
        while self.buffer.is_empty() && !self.has_ended {
            if lanes::spend(ENTRY_READ_UNITS) {
                lanes::yield_now().await;
            }
            let Probe { data, token, value, .. } = self.probe;
            let read = self.shard.read_slice(*data, *token, value, &self.rest, self.now_s);
            let Some(sliced) = read.wait().await.map_err(storage_error)? else {
                self.has_ended = true;
                break;
            };
            let _ = lanes::spend(sliced.view.stored() as u32);
            for row in sliced.view.range(Bound::Unbounded, Bound::Unbounded, self.rest.reversed) {
                let entry = Entry::decode(row.clustering());
                self.buffer.push_back(entry.ok_or_else(|| {
                    Error::Server(
                        "an entry of an index is damaged: drop the index and create it again".into(),
                    )
                })?);
            }
            match sliced.next {
                Some(last) => self.rest = self.rest.clone().behind(last),
                None => self.has_ended = true,
            }
        }
        Ok(!self.buffer.is_empty())
    }

    /// Returns the next entry in hand.
    pub(crate) fn front(&self) -> Option<&Entry> {
        self.buffer.front()
    }

    /// Takes the entries in hand.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        self.buffer.drain(..).collect()
    }

    /// Takes the entries of a partition. Returns `None` if there may be more of it than in hand.
    pub(crate) fn take_partition(&mut self, token: i64, key: &[u8]) -> Option<Vec<Entry>> {
        let count = self.buffer.iter().take_while(|entry| entry.is_of(token, key)).count();
        let is_whole = count < self.buffer.len() || self.has_ended;
        let taken: Vec<Entry> = self.buffer.drain(..count).collect();
        if !is_whole {
            self.rest.start = Bound::Included(entry::after(&entry::partition_prefix(token, key)));
        }
        is_whole.then_some(taken)
    }
}

/// Work units of requesting entries from storage.
const ENTRY_READ_UNITS: u32 = 5;
