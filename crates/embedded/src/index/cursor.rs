//! Reading the places that an index names on this core, in the order of the table's rows: the
//! entries of one value, those that several values have in common, or those of a range.
//!
//! Several values are intersected before any row is read: each list jumps to the first place that
//! the others have left. So a value of few rows makes the lists of the others short.

use std::collections::VecDeque;
use std::ops::{Bound, RangeInclusive};
use std::rc::Rc;

use bytes::Bytes;
use engine::Error;
use storage::{Shard, TableId};

use crate::index::entry::{self, Entry, Place};
use crate::index::list::{ENTRIES_AT_ONCE, IndexKey, List};
use crate::index::range::{Found, IndexRange, Ordered};

/// Entries of the first value that one call drops, at most, because other lists do not have them.
const DROPPED_MAX: usize = 20_000;

/// Lookup of a query. It is sent to every core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    pub(crate) lookup: Lookup,
    /// True if entries name rows, false if they name partitions.
    pub(crate) names_rows: bool,
}

/// Values to look up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// A value, and others that the rows have too, each in its index.
    Values(IndexKey, Vec<IndexKey>),
    /// A range of values.
    Range(IndexRange),
}

impl Probe {
    /// Returns the data of the index whose entries are read.
    pub(crate) fn data(&self) -> TableId {
        match &self.lookup {
            Lookup::Values(first, _) => first.data,
            Lookup::Range(range) => range.data,
        }
    }

    /// Returns the data of all indexes whose entries are read.
    pub(crate) fn all_data(&self) -> impl Iterator<Item = TableId> {
        let others = match &self.lookup {
            Lookup::Values(_, others) => &others[..],
            Lookup::Range(_) => &[],
        };
        std::iter::once(self.data()).chain(others.iter().map(|key| key.data))
    }

    /// Returns true if it finds the rows of one partition without reading its other rows.
    pub(crate) fn finds_rows_of_partition(&self) -> bool {
        self.names_rows && matches!(self.lookup, Lookup::Values(..))
    }
}

/// Result of looking for the next entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// Some are in hand.
    Entries,
    /// None so far: the search goes on at the first partition of this token.
    Paused(i64),
    /// Too many to sort: these tokens are to be scanned.
    Many(RangeInclusive<i64>),
    End,
}

/// Position among the entries of a lookup.
pub(crate) struct Cursor<'a>(Source<'a>);

enum Source<'a> {
    Lists(List<'a>, Vec<List<'a>>),
    Ordered(Ordered<'a>),
}

impl<'a> Cursor<'a> {
    /// Returns the entries of a token range, after a partition if one is given.
    pub(crate) fn of_tokens(
        shard: &'a Rc<Shard>,
        probe: &'a Probe,
        now_s: u32,
        tokens: &RangeInclusive<i64>,
        after: Option<Place<'_>>,
    ) -> Cursor<'a> {
        let after = after.filter(|place| place.token >= *tokens.start());
        let start = match after {
            Some(place) => entry::after(&entry::partition_prefix(place.token, place.key)),
            None => entry::token_prefix(*tokens.start()).into(),
        };
        match &probe.lookup {
            Lookup::Range(range) => {
                let first = after.map_or(*tokens.start(), |place| place.token);
                let tokens = first..=*tokens.end();
                Cursor(Source::Ordered(Ordered::new(shard, range, now_s, tokens, start.to_vec())))
            }
            Lookup::Values(first, others) => {
                let end = match tokens.end().checked_add(1) {
                    Some(end) => Bound::Excluded(entry::token_prefix(end).into()),
                    None => Bound::Unbounded,
                };
                let start = Bound::Included(start);
                let bounds = storage::Slice { start, end, ..storage::Slice::all(ENTRIES_AT_ONCE) };
                Cursor::of_lists(shard, first, others, now_s, bounds)
            }
        }
    }

    /// Returns the entries of rows of one partition, after the row of `place` if it has one. The
    /// probe finds rows of partitions.
    pub(crate) fn of_rows(
        shard: &'a Rc<Shard>,
        probe: &'a Probe,
        now_s: u32,
        place: Place<'_>,
    ) -> Cursor<'a> {
        let Lookup::Values(first, others) = &probe.lookup else {
            unreachable!("ranges do not find the rows of a partition")
        };
        let whole = entry::prefix(Place { row: Some(&[]), ..place });
        let end = Bound::Excluded(entry::after(&whole));
        let start = match place.row {
            Some(_) => entry::after(&entry::prefix(place)),
            None => whole.into(),
        };
        let start = Bound::Included(start);
        let bounds = storage::Slice { start, end, ..storage::Slice::all(ENTRIES_AT_ONCE) };
        Cursor::of_lists(shard, first, others, now_s, bounds)
    }

    fn of_lists(
        shard: &'a Rc<Shard>,
        first: &'a IndexKey,
        others: &'a [IndexKey],
        now_s: u32,
        bounds: storage::Slice,
    ) -> Cursor<'a> {
        let list = |key: &'a IndexKey| List::new(shard, key, now_s, bounds.clone());
        Cursor(Source::Lists(list(first), others.iter().map(list).collect()))
    }

    /// Looks for entries if none are in hand.
    pub(crate) async fn fill(&mut self) -> Result<Filled, Error> {
        match &mut self.0 {
            Source::Ordered(ordered) => Ok(match ordered.fill().await? {
                Found::Entries => Filled::Entries,
                Found::Many(tokens) => Filled::Many(tokens),
                Found::End => Filled::End,
            }),
            Source::Lists(first, others) => {
                // Those in hand are intersected.
                if !first.in_hand().is_empty() {
                    return Ok(Filled::Entries);
                }
                let (mut dropped, mut from) = (0, None);
                while first.fill().await? {
                    let next = first.in_hand().front().expect("the list was filled").token;
                    // Only between tokens: a position is behind whole partitions.
                    if *from.get_or_insert(next) < next && dropped > DROPPED_MAX {
                        return Ok(Filled::Paused(next));
                    }
                    dropped += intersect(first, others).await?;
                    if !first.in_hand().is_empty() {
                        return Ok(Filled::Entries);
                    }
                }
                Ok(Filled::End)
            }
        }
    }

    /// Returns the next entry in hand.
    pub(crate) fn front(&mut self) -> Option<&Entry> {
        self.in_hand().front()
    }

    /// Takes the entries in hand.
    pub(crate) fn take(&mut self) -> Vec<Entry> {
        self.in_hand().drain(..).collect()
    }

    /// Takes the entries of a partition. Returns `None` if there may be more of it than in hand:
    /// they are skipped.
    pub(crate) fn take_partition(&mut self, token: i64, key: &[u8]) -> Option<Vec<Entry>> {
        let in_hand = self.in_hand();
        let count = in_hand.iter().take_while(|entry| entry.is_of(token, key)).count();
        let has_others = count < in_hand.len();
        let taken: Vec<Entry> = in_hand.drain(..count).collect();
        let has_all = match &self.0 {
            Source::Lists(first, _) => first.has_ended(),
            Source::Ordered(ordered) => !ordered.is_cut(),
        };
        if has_others || has_all {
            return Some(taken);
        }
        let behind = entry::after(&entry::partition_prefix(token, key));
        match &mut self.0 {
            Source::Lists(first, _) => first.skip_to(&behind),
            Source::Ordered(ordered) => ordered.skip_to(&behind),
        }
        None
    }

    fn in_hand(&mut self) -> &mut VecDeque<Entry> {
        match &mut self.0 {
            Source::Lists(first, _) => first.in_hand(),
            Source::Ordered(ordered) => ordered.in_hand(),
        }
    }
}

/// Keeps the entries of the first list that all others have. Returns the number of the others.
async fn intersect(first: &mut List<'_>, others: &mut [List<'_>]) -> Result<usize, Error> {
    if others.is_empty() {
        return Ok(0);
    }
    let (mut kept, mut dropped) = (VecDeque::new(), 0);
    'entries: while let Some(entry) = first.in_hand().front() {
        let place: Bytes = entry.place.clone();
        for other in &mut *others {
            match other.seek(&place).await? {
                Some(found) if *found == place => {}
                Some(found) => {
                    let before = first.in_hand().len();
                    first.skip_to(&found.clone());
                    dropped += before - first.in_hand().len();
                    continue 'entries;
                }
                None => {
                    first.in_hand().clear();
                    first.end();
                    break 'entries;
                }
            }
        }
        kept.extend(first.in_hand().pop_front());
        if lanes::spend(1) {
            lanes::yield_now().await;
        }
    }
    *first.in_hand() = kept;
    Ok(dropped)
}
