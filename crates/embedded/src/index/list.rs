//! Entries of one value of an index on this core, in the order of the table's rows. Each place
//! comes once, whatever classes it has.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

use bytes::Bytes;
use engine::Error;
use storage::{Shard, TableId};

use crate::index::entry::{Entry, value_key};
use crate::storage_error;

/// Entries read at a time, at most. One entry has about 50 bytes.
pub(crate) const ENTRIES_AT_ONCE: usize = 256;

/// Entries read behind a jump, at least. The number doubles with each further read.
const ENTRIES_BEHIND_JUMP: usize = 16;

/// Work units of requesting entries from storage.
const ENTRY_READ_UNITS: u32 = 5;

/// A value to look up in an index. It is sent to every core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IndexKey {
    /// The data of the index.
    pub(crate) data: TableId,
    /// Token of `value` in the index.
    token: i64,
    /// The value as a key of the index.
    value: Bytes,
}

impl IndexKey {
    /// Returns the key of a value in the index with this data, which may find ranges.
    pub(crate) fn new(data: TableId, value: &[u8], finds_ranges: bool) -> IndexKey {
        let value = value_key(value, finds_ranges);
        IndexKey { data, token: schema::token::token(&value), value: value.into() }
    }
}

/// Position among the entries of a value.
pub(crate) struct List<'a> {
    shard: &'a Rc<Shard>,
    key: &'a IndexKey,
    now_s: u32,
    rest: storage::Slice,
    buffer: VecDeque<Entry>,
    /// The place of the last entry.
    last: Option<Bytes>,
    has_ended: bool,
    /// Places that the last read served. They tell how many entries to read behind a jump.
    served: usize,
}

impl<'a> List<'a> {
    /// Returns the entries of `bounds`, whose clustering keys begin with places.
    pub(crate) fn new(
        shard: &'a Rc<Shard>,
        key: &'a IndexKey,
        now_s: u32,
        bounds: storage::Slice,
    ) -> List<'a> {
        let (buffer, last) = (VecDeque::new(), None);
        List { shard, key, now_s, rest: bounds, buffer, last, has_ended: false, served: 0 }
    }

    /// Reads entries if none are in hand. Returns false at the end.
    pub(crate) async fn fill(&mut self) -> Result<bool, Error> {
        while self.buffer.is_empty() && !self.has_ended {
            if lanes::spend(ENTRY_READ_UNITS) {
                lanes::yield_now().await;
            }
            let IndexKey { data, token, value } = self.key;
            let read = self.shard.read_slice(*data, *token, value, &self.rest, self.now_s);
            let Some(sliced) = read.wait().await.map_err(storage_error)? else {
                self.has_ended = true;
                break;
            };
            let _ = lanes::spend(sliced.view.stored() as u32);
            for row in sliced.view.range(Bound::Unbounded, Bound::Unbounded, self.rest.reversed) {
                let entry = Entry::decode(value, row.clustering()).ok_or_else(damaged)?;
                // Another class of the same place.
                if self.last.as_ref() == Some(&entry.place) {
                    continue;
                }
                self.last = Some(entry.place.clone());
                self.buffer.push_back(entry);
            }
            self.rest.rows = (self.rest.rows * 2).min(ENTRIES_AT_ONCE);
            match sliced.next {
                Some(last) => self.rest = self.rest.clone().behind(last),
                None => self.has_ended = true,
            }
        }
        Ok(!self.buffer.is_empty())
    }

    /// Returns the entries in hand.
    pub(crate) fn in_hand(&mut self) -> &mut VecDeque<Entry> {
        &mut self.buffer
    }

    /// Returns true if there are no entries but those in hand.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the list behind the entries in hand.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Drops the entries before `place`, which is behind all entries that were taken.
    pub(crate) fn skip_to(&mut self, place: &[u8]) {
        let before = self.buffer.partition_point(|entry| entry.place < place);
        self.buffer.drain(..before);
        if self.buffer.is_empty() && !self.has_ended {
            self.jump(Bytes::copy_from_slice(place));
        }
    }

    /// Reads on from a place.
    pub(crate) fn jump(&mut self, place: Bytes) {
        self.buffer.clear();
        let rows = 2 * std::mem::take(&mut self.served);
        self.rest.rows = rows.clamp(ENTRIES_BEHIND_JUMP, ENTRIES_AT_ONCE);
        self.rest.start = Bound::Included(place);
    }

    /// Returns the first place from `place` on. `None`: there is none.
    pub(crate) async fn seek(&mut self, place: &[u8]) -> Result<Option<&Bytes>, Error> {
        self.skip_to(place);
        self.fill().await?;
        self.served += 1;
        Ok(self.buffer.front().map(|entry| &entry.place))
    }
}

/// Returns the error of an entry that cannot be decoded.
pub(crate) fn damaged() -> Error {
    Error::Server("an entry of an index is damaged: drop the index and create it again".into())
}
