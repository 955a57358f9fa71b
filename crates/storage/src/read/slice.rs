//! Slices: reads of a stretch of a partition, forward or backward, a bounded number of rows at a
//! time. Pages are made of them.
//!
//! A partition may be far larger than memory. In a file, a slice starts at the block with its first
//! row and continues block by block. Of the blocks before, only the one with the partition's head
//! is read, and not even that if the index shows that the partition has neither deletions nor
//! static cells.
//!
//! Every source gives up to `rows` rows. If one stopped early, rows of other sources behind its
//! last row are left out, and the reader continues from there:
//!
//! ```text
//!  rows: 3    file 1    a  c  d |            stopped behind d
//!             file 2    b  c  h |            stopped behind h
//!             memory    k                    has no more
//!             answer    a  b  c  d           continue behind d
//! ```

use std::ops::{Bound, Range};
use std::sync::Arc;

use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::model::partition::{Full, Partition, PartitionRows};
use crate::model::view::PartitionView;
use crate::table::columnar::values::Values;
use crate::table::part::{Block, Slice, head};

/// Bytes of rows at which a source stops early. A chunk of rows is then about as long as a page of
/// a client, however large its rows are.
pub const SLICE_BYTES: usize = 1 << 20;

/// The answer of one read of a slice.
#[derive(Clone, Debug)]
pub struct Sliced {
    /// The partition with the rows of this answer.
    pub view: PartitionView,
    /// The row behind which the slice continues; `None`: this was the end of it.
    pub next: Option<Bytes>,
}

/// The rows that one source gave.
#[derive(Debug)]
pub(crate) struct SliceRows {
    pub(crate) partition: Partition,
    pub(crate) rows: usize,
    /// Bytes of the rows.
    pub(crate) bytes: usize,
    /// The last of the rows.
    pub(crate) last: Option<Bytes>,
    /// True if the source, or the block, has more rows of the slice.
    pub(crate) more: bool,
    /// True if the slice ends within the block.
    pub(crate) ended: bool,
}

impl SliceRows {
    fn nothing(partition: Partition) -> SliceRows {
        SliceRows { partition, rows: 0, bytes: 0, last: None, more: false, ended: false }
    }
}

/// Returns a partition's rows in the slice, at most `rows` and up to [`SLICE_BYTES`], from memory.
/// Costs the rows taken.
pub(crate) fn of_partition(partition: &Partition, slice: &Slice, rows: usize) -> SliceRows {
    let (start, end) = slice.bounds();
    let full = match partition {
        Partition::Full(full) => full,
        Partition::Single(row) => {
            let inside = std::ops::RangeBounds::<[u8]>::contains(&(start, end), row.clustering());
            let clustering = Some(Bytes::copy_from_slice(row.clustering()));
            return match inside && rows > 0 {
                true => SliceRows { rows: 1, last: clustering, ..SliceRows::nothing(partition.clone()) },
                false => SliceRows::nothing(Partition::empty()),
            };
        }
    };
    let deletion = full.deletion;
    let statics = full.statics.clone().filter(|_| slice.statics);
    let mut taken = Full { deletion, statics, ..Full::default() };
    if slice.is_empty() {
        return SliceRows::nothing(Partition::Full(Arc::new(taken)));
    }
    let mut all = full.rows.range(start, end);
    let mut next = || if slice.reversed { all.next_back() } else { all.next() };
    let mut count = 0;
    let mut bytes = 0;
    let mut last = None;
    while count < rows
        && bytes < SLICE_BYTES
        && let Some(placed) = next()
    {
        taken.rows.push_placed(placed.clone());
        last = Some(placed);
        bytes += placed.bytes();
        count += 1;
    }
    let last = last.map(|row| Bytes::copy_from_slice(row.clustering()));
    let more = next().is_some();
    // Ranges that cover later rows are part of the answer with those rows.
    taken.ranges = match last.clone().filter(|_| more).map(Bound::Included) {
        Some(last) if slice.reversed => full.ranges.between(&last, &slice.end),
        Some(last) => full.ranges.between(&slice.start, &last),
        None => full.ranges.between(&slice.start, &slice.end),
    };
    SliceRows { partition: Partition::Full(Arc::new(taken)), rows: count, bytes, last, more, ended: false }
}

/// Returns the indexes of the slice's rows among the rows `of`.
fn stretch(places: &Values, of: Range<usize>, slice: &Slice) -> Range<usize> {
    let behind = |key: &[u8]| {
        let at = places.lower_bound(of.start, of.end, key);
        at + usize::from(at < of.end && places.raw(at) == key)
    };
    let (start, end) = slice.bounds();
    let low = match start {
        Bound::Unbounded => of.start,
        Bound::Included(key) => places.lower_bound(of.start, of.end, key),
        Bound::Excluded(key) => behind(key),
    };
    let high = match end {
        Bound::Unbounded => of.end,
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => places.lower_bound(of.start, of.end, key),
    };
    low..high.max(low)
}

/// Returns a partition's rows in the slice, at most `rows` and up to [`SLICE_BYTES`], from a block.
/// `None` if the block does not have the partition. The flag is true if the partition continues in
/// the next block.
pub(crate) fn of_block(
    block: &Block,
    token: i64,
    key: &[u8],
    slice: &Slice,
    rows: usize,
) -> Result<Option<(SliceRows, bool)>, Malformed> {
    let Some(part) = block.find(token, key)? else { return Ok(None) };
    let more = block.more && part + 1 == block.parts;
    let all = block.rows_of(part)?;
    let mut full = head(block, part)?;
    full.ranges = full.ranges.between(&slice.start, &slice.end);
    full.statics = full.statics.filter(|_| slice.statics);
    if all.is_empty() || slice.is_empty() {
        let given = SliceRows::nothing(Partition::Full(Arc::new(full)));
        return Ok(Some((SliceRows { ended: slice.is_empty(), ..given }, more)));
    }
    let places = block.clustering()?;
    let inside = stretch(places, all.clone(), slice);
    let ended = if slice.reversed { inside.start > all.start } else { inside.end < all.end };
    let mut left = inside.clone();
    let mut next = || if slice.reversed { left.next_back() } else { left.next() };
    let mut count = 0;
    let mut bytes = 0;
    let mut last = None;
    while count < rows
        && bytes < SLICE_BYTES
        && let Some(at) = next()
    {
        let row = block.row(&[], at, None)?;
        bytes += row.bytes();
        full.rows.push(row);
        last = Some(at);
        count += 1;
    }
    let given = SliceRows {
        partition: Partition::Full(Arc::new(full)),
        rows: count,
        bytes,
        last: last.map(|at| Bytes::copy_from_slice(places.raw(at))),
        more: count < inside.len(),
        ended,
    };
    Ok(Some((given, more)))
}

impl Sliced {
    /// Returns the rows of a partition up to which all sources are complete. `frontiers` are the
    /// last rows of sources that have more.
    pub(crate) fn new(partition: Partition, frontiers: Vec<Bytes>, slice: &Slice, now_s: u32) -> Sliced {
        let next = match slice.reversed {
            false => frontiers.into_iter().min(),
            true => frontiers.into_iter().max(),
        };
        let partition = match (partition, &next) {
            (Partition::Full(mut full), Some(next)) => {
                let (start, end): (Bound<&[u8]>, Bound<&[u8]>) = match slice.reversed {
                    false => (Bound::Unbounded, Bound::Included(next)),
                    true => (Bound::Included(next), Bound::Unbounded),
                };
                let mut rows = PartitionRows::default();
                full.rows.range(start, end).for_each(|placed| rows.push_placed(placed.clone()));
                Arc::make_mut(&mut full).rows = rows;
                Partition::Full(full)
            }
            (partition, _) => partition,
        };
        Sliced { view: PartitionView::new(partition, now_s), next }
    }
}
