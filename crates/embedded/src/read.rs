//! Reading: one partition's slice on the core that owns it, encoded as CQL wants it.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Rows};
use schema::{TableDef, token, value};
use storage::{PartitionView, RowView, Shard, TableId};

use crate::paging::Position;
use crate::restrict::BoundFilter;
use crate::select::{Show, Want};
use crate::slice::{Range, descending};
use crate::{Embedded, storage_error};

/// What to read of a partition. It travels to the core that owns the partition.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) def: Arc<TableDef>,
    pub(crate) want: Arc<Want>,
    pub(crate) ranges: Arc<[Range]>,
    pub(crate) filters: Arc<[BoundFilter]>,
    pub(crate) reversed: bool,
    pub(crate) distinct: bool,
    /// No clustering restriction: a partition with static cells alone shows as one row.
    pub(crate) whole: bool,
    pub(crate) per_partition: u32,
    pub(crate) now_s: u32,
}

/// How far reading has come.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: Rows,
    /// Rows counted, where a count is wanted.
    pub(crate) counted: u64,
    /// The clustering key of the last row taken from the present partition, and how many were.
    pub(crate) last: Option<Bytes>,
    pub(crate) of_partition: u32,
    /// Rows that may still be taken.
    pub(crate) left: u32,
    /// At so many bytes of cells no more rows are taken.
    pub(crate) bytes_max: usize,
}

impl Chunk {
    /// The chunk itself, to be sent to another core; an empty one stays here until it comes back.
    pub(crate) fn take(&mut self) -> Chunk {
        let rows = Rows::new(Arc::from([]));
        std::mem::replace(
            self,
            Chunk { rows, counted: 0, last: None, of_partition: 0, left: 0, bytes_max: 0 },
        )
    }

    /// Where to go on behind the last row taken, within a partition; behind the partition where none was.
    pub(crate) fn inside(&self, token: i64, key: Bytes) -> Position {
        Position { of_partition: self.of_partition, row: self.last.clone(), ..Position::after(token, key) }
    }

    /// Takes no more rows once there are enough bytes.
    pub(crate) fn bound(&mut self) {
        if self.rows.cells.len() >= self.bytes_max {
            self.left = 0;
        }
    }
}

impl Slice {
    /// The partition with this key, on the core that owns it.
    async fn view(&self, shard: &Rc<Shard>, token: i64, key: &Bytes) -> Result<Option<PartitionView>, Error> {
        let table = TableId(self.def.id.as_u128());
        shard.read_partition(table, token, key, self.now_s).wait().await.map_err(storage_error)
    }

    /// Reads one partition, on the core that owns it, from after a row: whether to its end.
    async fn one(
        &self,
        shard: &Rc<Shard>,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        chunk.last.clone_from(&after);
        match self.view(shard, token, key).await? {
            Some(view) => self.partition((token, key), &view, after.as_ref(), chunk).await,
            None => Ok(true),
        }
    }

    /// As [`Slice::one`], from any core.
    pub(crate) async fn one_on(
        &self,
        core: usize,
        token: i64,
        key: &Bytes,
        after: Option<Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        if core == lanes::current_core() {
            return self.one(&Embedded::local().shard, token, key, after, chunk).await;
        }
        let (mut away, slice, key) = (chunk.take(), self.clone(), key.clone());
        let read = move || async move {
            let whole = slice.one(&Embedded::local().shard, token, &key, after, &mut away).await;
            (away, whole)
        };
        let (back, whole) = lanes::call(core, read).await;
        *chunk = back;
        whole
    }

    /// Takes rows of one partition into the chunk, from after `after`, until it is full or the partition ends.
    /// Returns whether the partition was read to its end. Gives way every few dozen microseconds.
    pub(crate) async fn partition(
        &self,
        partition: (i64, &[u8]),
        view: &PartitionView,
        after: Option<&Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let statics = |id| view.static_cell(id);
        let mut found = after.is_some();
        let mut ranges: Vec<&Range> = self.ranges.iter().collect();
        if self.reversed {
            ranges.reverse();
        }
        for range in ranges {
            let (mut start, mut end) = (as_slice(&range.0), as_slice(&range.1));
            match after {
                Some(row) if self.reversed => end = lower_end(end, row),
                Some(row) => start = higher_start(start, row),
                None => {}
            }
            if is_empty(start, end) {
                continue;
            }
            for row in view.range(start, end, self.reversed) {
                found = true;
                if lanes::should_yield() {
                    lanes::yield_now().await;
                }
                if !self.passes(partition, Some(&row), view)? {
                    continue;
                }
                if chunk.left == 0 {
                    return Ok(false);
                }
                if chunk.of_partition >= self.per_partition {
                    return Ok(true);
                }
                take(&self.def, &self.want, partition, Some(&row), &statics, self.now_s, chunk)?;
                chunk.last = Some(Bytes::copy_from_slice(row.clustering()));
                if self.distinct {
                    return Ok(true);
                }
            }
        }
        if !found
            && self.whole
            && view.static_cells().next().is_some()
            && self.passes(partition, None, view)?
        {
            if chunk.left == 0 {
                return Ok(false);
            }
            take(&self.def, &self.want, partition, None, &statics, self.now_s, chunk)?;
        }
        Ok(true)
    }

    fn passes(
        &self,
        partition: (i64, &[u8]),
        row: Option<&RowView>,
        view: &PartitionView,
    ) -> Result<bool, Error> {
        for filter in self.filters.iter() {
            let column = &self.def.columns[filter.column];
            let mut scratch = Vec::new();
            let value = match column.kind {
                schema::ColumnKind::PartitionKey(at) => Some(key_part(&self.def, partition.1, at)?),
                schema::ColumnKind::Clustering(at, _) => match row {
                    Some(row) => {
                        clustering_part(&self.def, row.clustering(), at, &mut scratch)?;
                        Some(scratch.as_slice())
                    }
                    None => None,
                },
                schema::ColumnKind::Static => view.static_cell(column.id).and_then(|c| c.value()),
                schema::ColumnKind::Regular => row.and_then(|r| r.cell(column.id)).and_then(|c| c.value()),
            };
            if !filter.passes(&column.ty, value) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Takes one row into the chunk.
pub(crate) fn take<'v>(
    def: &TableDef,
    want: &Want,
    partition: (i64, &[u8]),
    row: Option<&RowView>,
    statics: &impl Fn(u32) -> Option<storage::CellRef<'v>>,
    now_s: u32,
    chunk: &mut Chunk,
) -> Result<(), Error> {
    chunk.of_partition += 1;
    match want {
        Want::Rows(shows) => {
            chunk.left -= 1;
            chunk.rows.count += 1;
            let mut scratch = Vec::new();
            for show in shows {
                push(def, *show, partition, row, statics, now_s, &mut chunk.rows, &mut scratch)?;
            }
            chunk.bound();
        }
        Want::Count(None) => chunk.counted += 1,
        Want::Count(Some(show)) => {
            let mut one = Rows::new(Arc::from([]));
            push(def, *show, partition, row, statics, now_s, &mut one, &mut Vec::new())?;
            chunk.counted += u64::from(one.cells[..4] != (-1i32).to_be_bytes());
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "one cell of a row needs to see all of the row")]
fn push<'v>(
    def: &TableDef,
    show: Show,
    partition: (i64, &[u8]),
    row: Option<&RowView>,
    statics: &impl Fn(u32) -> Option<storage::CellRef<'v>>,
    now_s: u32,
    rows: &mut Rows,
    scratch: &mut Vec<u8>,
) -> Result<(), Error> {
    let cell = |id: u32, is_static: bool| if is_static { statics(id) } else { row.and_then(|r| r.cell(id)) };
    match show {
        Show::Key(at) => rows.push(Some(key_part(def, partition.1, at)?)),
        Show::Clustering(at) => match row {
            Some(row) => {
                scratch.clear();
                clustering_part(def, row.clustering(), at, scratch)?;
                rows.push(Some(scratch));
            }
            None => rows.push(None),
        },
        Show::Static(id) => rows.push(statics(id).and_then(|c| c.value())),
        Show::Regular(id) => rows.push(row.and_then(|r| r.cell(id)).and_then(|c| c.value())),
        Show::WriteTime(id, is_static) => match cell(id, is_static) {
            Some(cell) => rows.push(Some(&cell.timestamp.to_be_bytes())),
            None => rows.push(None),
        },
        Show::Ttl(id, is_static) => match cell(id, is_static).and_then(|c| c.expiry()) {
            Some(expiry) => rows.push(Some(&(expiry.at_s.saturating_sub(now_s) as i32).to_be_bytes())),
            None => rows.push(None),
        },
        Show::Token => rows.push(Some(&partition.0.to_be_bytes())),
    }
    Ok(())
}

fn key_part<'a>(def: &TableDef, key: &'a [u8], at: usize) -> Result<&'a [u8], Error> {
    let count = def.partition_key().count();
    if count == 1 {
        return Ok(key);
    }
    let part = token::partition_key_components(count, key).nth(at).expect("the key has all components");
    part.map_err(|e| Error::Server(format!("a stored partition key is damaged: {e}")))
}

fn clustering_part(def: &TableDef, mut key: &[u8], at: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    for (place, column) in def.clustering().enumerate() {
        let before = out.len();
        value::decode_key_part(&column.ty, descending(column), &mut key, out)
            .map_err(|e| Error::Server(format!("a stored clustering key is damaged: {e}")))?;
        if place == at {
            return Ok(());
        }
        out.truncate(before);
    }
    Ok(())
}

fn as_slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(edge) => Bound::Included(edge),
        Bound::Excluded(edge) => Bound::Excluded(edge),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn higher_start<'a>(start: Bound<&'a [u8]>, row: &'a Bytes) -> Bound<&'a [u8]> {
    match start {
        Bound::Included(edge) | Bound::Excluded(edge) if edge > &row[..] => start,
        _ => Bound::Excluded(row),
    }
}

fn lower_end<'a>(end: Bound<&'a [u8]>, row: &'a Bytes) -> Bound<&'a [u8]> {
    match end {
        Bound::Included(edge) | Bound::Excluded(edge) if edge < &row[..] => end,
        _ => Bound::Excluded(row),
    }
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}
