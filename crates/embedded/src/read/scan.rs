//! Scans of many partitions. Every core reads its own partitions, a portion at a time. The
//! portions are merged in token order, which does not depend on the number of cores. Clients rely
//! on this order when they page with `token(…)` themselves.
//!
//! The states of aggregates over all rows stay with their core between portions, and are merged at
//! the end. So on one core rows are added in token order, as in Cassandra.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Cells, Error, ResultRows};
use storage::{Shard, TableId};

use crate::bind::expression::groups::OpenGroup;
use crate::read::by_column::{ColumnScan, Stopped};
use crate::read::chunk::{Chunk, Ends};
use crate::read::paging::Position;
use crate::read::partition::{PartitionRead, Slice};
use crate::{Embedded, storage_error};

/// Rows that a core reads at a time, at most; there are similar bounds on bytes and partitions. A
/// portion runs to its end even if the client is gone.
pub(super) const PORTION_ROWS_MAX: u32 = 5000;
pub(crate) const PORTION_BYTES_MAX: usize = 256 << 10;
pub(super) const PORTION_PARTITIONS_MAX: u32 = 10_000;

/// Work units of a partition without its rows.
pub(super) const PARTITION_UNITS: u32 = 2;

/// Rows of a chunk of a wide partition that are charged as merged, at most. A block has hardly
/// more, and rows in memory alone are not merged.
const MERGED_ROWS_MAX: usize = 256;

/// Data to read. It is sent to every core.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) slice: Slice,
    pub(crate) tokens: RangeInclusive<i64>,
}

/// Rows of one partition.
#[derive(Debug)]
pub(super) struct PartitionRows {
    pub(super) token: i64,
    pub(super) key: Bytes,
    pub(super) rows: u32,
    /// End of its cells in those of the portion.
    pub(super) end: usize,
    /// True if the portion has all of its rows. Otherwise this value only marks the position of the
    /// partition.
    pub(super) whole: bool,
    /// Rows looked at for them, and their bytes. They count when the rows are taken: others are
    /// read again.
    pub(super) looked_at: (u64, u64),
}

/// Rows that one core has read at a time.
#[derive(Debug)]
pub(super) struct Portion {
    cells: Cells,
    partitions: VecDeque<PartitionRows>,
    carried: Carried,
    /// Position to continue from; `None` at the end.
    pub(super) next: Option<Position>,
}

/// State of one core between its portions.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Group of all rows so far, if the query has one.
    group: Option<OpenGroup>,
    /// Scan by column in progress, which has the group.
    columns: Option<Box<ColumnScan>>,
}

/// One core's part in a merge.
#[derive(Debug)]
struct ScanSource {
    core: usize,
    portion: Portion,
    /// Bytes of the portion's cells that are merged.
    merged: usize,
}

impl Scan {
    /// Adds rows to the chunk from `start` on, until it is full or there are no more rows. Returns
    /// the position to continue from, if there are more.
    pub(crate) async fn run(&self, start: &Position, chunk: &mut Chunk) -> Result<Option<Position>, Error> {
        let mut reached = start.clone();
        if let (Some(key), Some(row)) = (&start.key, &start.row) {
            let core = Embedded::local().owner(start.token);
            chunk.of_partition = start.of_partition;
            if !self.slice.one_on(core, start.token, key, Some(row.clone()), chunk).await? {
                return Ok(Some(chunk.inside(start.token, key.clone())));
            }
            reached = Position::after(start.token, key.clone());
        }
        let next = Some(reached.clone());
        let portion = || Portion {
            cells: Cells::default(),
            partitions: VecDeque::new(),
            carried: Carried::default(),
            next: next.clone(),
        };
        let source = |core| ScanSource { core, portion: portion(), merged: 0 };
        let mut sources: Vec<ScanSource> = (0..lanes::cores()).map(source).collect();
        loop {
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
            if chunk.left == 0 {
                let more =
                    sources.iter().any(|s| !s.portion.partitions.is_empty() || s.portion.next.is_some());
                return Ok(more.then_some(reached));
            }
            self.refill(&mut sources, chunk).await?;
            let heads = sources.iter_mut().filter(|source| !source.portion.partitions.is_empty());
            let first = heads.min_by(|a, b| a.head().cmp(&b.head()));
            let Some(source) = first else {
                for source in &mut sources {
                    OpenGroup::merge(&mut chunk.group, source.portion.carried.group.take())?;
                }
                return Ok(None);
            };
            let piece = source.portion.partitions.pop_front().expect("the source has rows");
            let from = std::mem::replace(&mut source.merged, piece.end);
            if piece.whole && piece.rows <= chunk.left {
                chunk.rows.cells.extend_from(&source.portion.cells, from..piece.end);
                chunk.rows.count += piece.rows;
                chunk.left -= piece.rows;
                self.slice.reads.add(piece.looked_at.0, piece.looked_at.1);
                chunk.bound()?;
                reached = Position::after(piece.token, piece.key);
                continue;
            }
            // Only the core that owns the partition can find the end of the rows that still fit.
            let (token, key) = (piece.token, piece.key);
            chunk.of_partition = 0;
            if !self.slice.one_on(source.core, token, &key, None, chunk).await? {
                // If the first row did not fit, the next page begins with its partition.
                return Ok(Some(if chunk.last.is_some() { chunk.inside(token, key) } else { reached }));
            }
            reached = Position::after(token, key);
            if !piece.whole {
                source.portion.next = Some(reached.clone());
            }
        }
    }

    /// Refills the portions of all cores that ran out, in parallel, until each has rows or has
    /// reached its end.
    async fn refill(&self, sources: &mut [ScanSource], chunk: &mut Chunk) -> Result<(), Error> {
        let cores = sources.len() as u32;
        // Tokens are spread evenly, but not exactly. With a little more from each core one round
        // usually suffices.
        let share = if cores == 1 { chunk.left } else { chunk.left / cores + chunk.left / cores / 4 + 8 };
        let rows_max = share.min(chunk.left).min(PORTION_ROWS_MAX);
        let bytes_max = chunk.bytes_max.min(PORTION_BYTES_MAX);
        loop {
            let mut reads = Vec::new();
            for source in sources.iter_mut().filter(|source| source.portion.partitions.is_empty()) {
                let Some(start) = source.portion.next.take() else { continue };
                let (scan, core) = (self.clone(), source.core);
                let carried = std::mem::take(&mut source.portion.carried);
                engine::note(|| format!("Scanning on core {core}, at most {rows_max} rows"));
                let read = move || async move {
                    scan.portion(&Embedded::local().shard, start, rows_max, bytes_max, carried).await
                };
                reads.push((source, lanes::spawn(lanes::current_group(), lanes::call(core, read))));
            }
            if reads.is_empty() {
                let ahead = sources.iter().map(|source| source.portion.cells.len() - source.merged);
                return chunk.grants.cover(chunk.rows.cells.len() + ahead.sum::<usize>());
            }
            for (source, task) in reads {
                (source.portion, source.merged) = (task.await?, 0);
            }
        }
    }

    /// Reads partitions of one core, after `start`. `carried` comes from its last portion.
    pub(super) async fn portion(
        &self,
        shard: &Rc<Shard>,
        start: Position,
        rows_max: u32,
        bytes_max: usize,
        carried: Carried,
    ) -> Result<Portion, Error> {
        if let Some(probe) = &self.slice.probe {
            return self.portion_by_index(shard, probe, start, rows_max, bytes_max, carried.group).await;
        }
        let columns = match carried.columns {
            None if start.key.is_none() => ColumnScan::of_core(self, shard),
            columns => columns,
        };
        if let Some(columns) = columns
            && let Some(portion) = self.portion_by_column(&start, columns).await?
        {
            return Ok(portion);
        }
        self.portion_of(shard, self.tokens.clone(), start, rows_max, bytes_max, carried.group).await
    }

    /// Adds some batches of columns to the group of all rows. `None`: columns cannot hold the rows
    /// of this core, so that they must be read one by one from `start`, where the scan has begun.
    async fn portion_by_column(
        &self,
        start: &Position,
        columns: Box<ColumnScan>,
    ) -> Result<Option<Portion>, Error> {
        let mut chunk = Chunk::new(ResultRows::new(Arc::from([])), 0, 0, Ends::Portion);
        let (columns, stopped) = columns.portion(&mut chunk).await?;
        let mut portion = Portion::of(chunk, VecDeque::new(), None);
        match stopped {
            Stopped::Unfit => return Ok(None),
            Stopped::End => portion.carried.group = Some(columns.into_group()),
            Stopped::Portion => {
                portion.carried.columns = Some(columns);
                portion.next = Some(start.clone());
            }
        }
        Ok(Some(portion))
    }

    /// Reads partitions of one core with these tokens, which are all or the next ones, after
    /// `start`. `group` has the rows before.
    pub(super) async fn portion_of(
        &self,
        shard: &Rc<Shard>,
        tokens: RangeInclusive<i64>,
        start: Position,
        rows_max: u32,
        bytes_max: usize,
        group: Option<OpenGroup>,
    ) -> Result<Portion, Error> {
        let rows = ResultRows::new(Arc::from([]));
        let mut chunk = Chunk { group, ..Chunk::new(rows, rows_max, bytes_max, Ends::Portion) };
        let mut partitions = VecDeque::new();
        let table = TableId(self.slice.def.data_id().as_u128());
        let after = start.key.clone().map(|key| (start.token, key));
        let slice = Slice { reads: Arc::default(), ..self.slice.clone() };
        // Partitions that are left behind the tokens.
        let behind = tokens.end().checked_add(1).filter(|token| token <= self.tokens.end());
        let behind = behind.map(|token| Position::after(token, Bytes::new()));
        let mut scan = shard.scan(table, tokens, after, self.slice.now_s);
        let mut next = start;
        for _ in 0..PORTION_PARTITIONS_MAX {
            let (mut partition, mut before) = (PartitionRead::default(), None);
            let (token, key, whole) = loop {
                let Some(piece) = scan.next_piece().await.map_err(storage_error)? else {
                    return Ok(Portion::of(chunk, partitions, behind));
                };
                if piece.first {
                    (chunk.of_partition, chunk.last) = (0, None);
                    before = Some((chunk.rows.count, chunk.rows.cells.len()));
                }
                let merged = if piece.last { 0 } else { piece.view.stored().min(MERGED_ROWS_MAX) as u32 };
                if lanes::spend(PARTITION_UNITS + merged) {
                    lanes::yield_now().await;
                }
                if let Some(whole) = slice.piece(&piece, &mut partition, &mut chunk).await? {
                    scan.skip_rest();
                    break (piece.token, piece.key, whole);
                }
            };
            let (rows, cells) = before.expect("a partition has a first chunk");
            if !whole {
                chunk.rows.cells.truncate(cells);
            }
            let (rows, end) = (chunk.rows.count - rows, chunk.rows.cells.len());
            let looked_at = slice.reads.take();
            if rows == 0 && whole {
                self.slice.reads.add(looked_at.0, looked_at.1);
            }
            // A first row that did not fit marks its partition.
            if rows > 0 || !whole && partitions.is_empty() {
                partitions.push_back(PartitionRows { token, key: key.clone(), rows, end, whole, looked_at });
            }
            if !whole {
                break;
            }
            next = Position::after(token, key);
        }
        Ok(Portion::of(chunk, partitions, Some(next)))
    }
}

impl Portion {
    pub(super) fn of(chunk: Chunk, partitions: VecDeque<PartitionRows>, next: Option<Position>) -> Portion {
        let carried = Carried { group: chunk.group, columns: None };
        Portion { cells: chunk.rows.cells, partitions, carried, next }
    }
}

impl ScanSource {
    /// Returns the token and key of its first partition.
    fn head(&self) -> Option<(i64, &Bytes)> {
        self.portion.partitions.front().map(|piece| (piece.token, &piece.key))
    }
}
