//! Blocks and the parts of partitions in them.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::codec::Malformed;
use crate::model::layers::Placed;
use crate::model::partition::{Full, Partition};
use crate::model::reconcile::merge_deletion;
use crate::table::columnar;
use crate::table::columnar::decode::Wanted;

/// An open block. Cheap to clone.
pub(crate) type Block = Arc<columnar::Block>;

/// A partition, or its part in one block. Its rows are not decoded yet.
#[derive(Clone, Debug)]
pub(crate) struct BlockPart {
    token: i64,
    key: Bytes,
    block: Block,
    index: usize,
}

/// The data of a partition that a reader requests.
#[derive(Clone, Debug, Default)]
pub(crate) enum PartRequest {
    /// Everything.
    #[default]
    All,
    /// The row with this clustering, and the deletions that cover it. `columns`: the columns to
    /// decode, ascending, or `None` for all.
    Row { clustering: Bytes, columns: Option<Arc<[u32]>>, bypass_cache: bool },
    /// A number of rows in a clustering range.
    Slice(Arc<Slice>),
}

/// A stretch of a partition's rows to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The lower bound over clustering encodings.
    pub start: Bound<Bytes>,
    /// The upper bound.
    pub end: Bound<Bytes>,
    /// True to read from the end to the start.
    pub reversed: bool,
    /// The number of rows wanted, at least one. Each file and memtable gives at most this number,
    /// and fewer if they are large.
    pub rows: usize,
    /// Blocks that are not cached are read and not cached.
    pub bypass_cache: bool,
    /// True if the answer has the static cells. A reader needs them with its first read only:
    /// merging them each time would cost their bytes each time.
    pub statics: bool,
}

impl Slice {
    /// Reads the whole partition forward, `rows` rows at a time.
    pub fn all(rows: usize) -> Slice {
        let (start, end) = (Bound::Unbounded, Bound::Unbounded);
        Slice { start, end, reversed: false, rows, bypass_cache: false, statics: true }
    }

    /// Returns the rest of the slice behind a row, without static cells.
    #[must_use]
    pub fn behind(self, clustering: Bytes) -> Slice {
        let bound = Bound::Excluded(clustering);
        let rest = Slice { statics: false, ..self };
        if rest.reversed { Slice { end: bound, ..rest } } else { Slice { start: bound, ..rest } }
    }

    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(|key| &key[..]), self.end.as_ref().map(|key| &key[..]))
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self.bounds() {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) => start >= end,
        }
    }
}

/// The data that one block has for a request.
#[derive(Debug)]
pub(crate) struct PartRead {
    pub(crate) partition: Partition,
    /// True if the partition continues in the next block.
    pub(crate) more: bool,
    /// True if a row was decoded without some of its columns.
    pub(crate) partial: bool,
}

/// Returns the token of a part of a block.
pub(crate) fn token(block: &Block, part: usize) -> Result<i64, Malformed> {
    Ok(block.keys()?.token(part))
}

/// Returns true if a block has neither deletions nor static cells, so that its columns are
/// complete.
pub(crate) fn is_plain(block: &Block) -> Result<bool, Malformed> {
    Ok(!block.has_heads() && (block.row_count() == 0 || block.row_marks()?.undeleted()))
}

/// Returns the block's data for a partition, or `None` if it has none.
pub(crate) fn read(
    block: &Block,
    token: i64,
    key: &[u8],
    request: &PartRequest,
) -> Result<Option<PartRead>, Malformed> {
    let Some(part) = block.find(token, key)? else { return Ok(None) };
    let more = block.more && part + 1 == block.parts;
    let (partition, partial) = match request {
        PartRequest::All | PartRequest::Slice(_) => (partition(block, part)?, false),
        PartRequest::Row { clustering, columns, .. } => only(block, part, clustering, columns.as_deref())?,
    };
    Ok(Some(PartRead { partition, more, partial }))
}

impl BlockPart {
    /// Returns a part of a block.
    pub(crate) fn new(block: &Block, index: usize) -> Result<BlockPart, Malformed> {
        let keys = block.keys()?;
        let (token, key) = (keys.token(index), keys.keys.bytes(index));
        Ok(BlockPart { token, key, block: block.clone(), index })
    }

    pub(crate) fn place(&self) -> (i64, &Bytes) {
        (self.token, &self.key)
    }

    /// Returns true if the partition started in an earlier block.
    pub(crate) fn continued(&self) -> bool {
        self.block.continued && self.index == 0
    }

    /// Returns true if the partition continues in the next block.
    pub(crate) fn more(&self) -> bool {
        self.block.more && self.index + 1 == self.block.parts
    }

    /// Decodes everything in this part.
    pub(crate) fn partition(&self) -> Result<Partition, Malformed> {
        partition(&self.block, self.index)
    }
}

/// Decodes the deletions and static cells of a partition in this block.
pub(crate) fn head(block: &columnar::Block, part: usize) -> Result<Full, Malformed> {
    Ok(block.head(part)?.map_or_else(Full::default, |head| Full {
        deletion: head.deletion,
        statics: head.statics.clone().map(Placed::Row),
        ranges: head.ranges.clone(),
        ..Full::default()
    }))
}

fn partition(block: &columnar::Block, part: usize) -> Result<Partition, Malformed> {
    let rows = block.rows_of(part)?;
    let cut = block.continued && part == 0 || block.more && part + 1 == block.parts;
    if rows.len() == 1
        && !cut
        && block.head(part)?.is_none()
        && block.clustering()?.raw(rows.start).is_empty()
    {
        return Ok(Partition::Single(block.row(&[], rows.start, None)?));
    }
    let mut full = head(block, part)?;
    for row in rows {
        full.rows.push(block.row(&[], row, None)?);
    }
    Ok(Partition::Full(Arc::new(full)))
}

/// Decodes the head of the partition and at most one row. The flag is true if columns were left
/// out.
fn only(
    block: &columnar::Block,
    part: usize,
    clustering: &[u8],
    wanted: Wanted<'_>,
) -> Result<(Partition, bool), Malformed> {
    let rows = block.rows_of(part)?;
    let mut found = None;
    if !rows.is_empty() {
        let places = block.clustering()?;
        let at = places.lower_bound(rows.start, rows.end, clustering);
        if at < rows.end && places.raw(at) == clustering {
            found = Some(block.row(&[], at, wanted)?);
        }
    }
    let partial = found.is_some() && block.has_others(wanted);
    let partition = match (found, block.head(part)?) {
        (Some(row), None) if clustering.is_empty() => Partition::Single(row),
        (found, head) => {
            let mut full = Full::default();
            if let Some(head) = head {
                full.deletion = merge_deletion(head.deletion, head.ranges.covering(clustering));
            }
            found.into_iter().for_each(|row| full.rows.push(row));
            Partition::Full(Arc::new(full))
        }
    };
    Ok((partition, partial))
}
