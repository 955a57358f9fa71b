//! Reading many partitions: every core reads its own, a stretch at a time, and the stretches are merged into the order of tokens, the
//! one order that does not depend on how many cores there are. Clients rely on it when they page by `token(…)` themselves.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Rows};
use storage::{Shard, TableId};

use crate::paging::Position;
use crate::read::{Begun, Chunk, Slice};
use crate::{Embedded, storage_error};

/// A core reads no more rows at a time, nor goes on beyond so many bytes of cells or so many partitions: what was asked of
/// it runs to its end, also when nobody waits for it any more.
const STRETCH_ROWS_MAX: u32 = 5000;
const STRETCH_BYTES_MAX: usize = 256 << 10;
const STRETCH_PARTITIONS_MAX: u32 = 10_000;

/// Work units of a partition beside its rows.
const PARTITION_UNITS: u32 = 2;

/// Rows of a piece of a wide partition that count as merged, at most: a block has hardly more, and rows in memory alone are not
/// merged.
const MERGED_ROWS_MAX: usize = 256;

/// What to read. It travels to every core.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) slice: Slice,
    pub(crate) tokens: RangeInclusive<i64>,
}

/// The rows of one partition.
#[derive(Debug)]
struct Piece {
    token: i64,
    key: Bytes,
    rows: u32,
    /// Where its cells end in those of the stretch.
    end: usize,
    /// Whether the stretch had room for all of it. If not, the piece marks its place only.
    whole: bool,
}

/// What one core has read at a time.
#[derive(Debug)]
struct Stretch {
    cells: Vec<u8>,
    pieces: VecDeque<Piece>,
    counted: u64,
    /// Where the core goes on; `None` at its end.
    next: Option<Position>,
}

/// One core's part in a merge.
#[derive(Debug)]
struct Source {
    core: usize,
    stretch: Stretch,
    /// How much of the stretch's cells is merged.
    merged: usize,
}

impl Scan {
    /// Takes rows into the chunk, from `start` on, until it is full or there are no more: where to go on, if there are.
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
        let stretch =
            || Stretch { cells: Vec::new(), pieces: VecDeque::new(), counted: 0, next: next.clone() };
        let source = |core| Source { core, stretch: stretch(), merged: 0 };
        let mut sources: Vec<Source> = (0..lanes::cores()).map(source).collect();
        loop {
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
            if chunk.left == 0 {
                let more = sources.iter().any(|s| !s.stretch.pieces.is_empty() || s.stretch.next.is_some());
                return Ok(more.then_some(reached));
            }
            self.refill(&mut sources, chunk).await?;
            let heads = sources.iter_mut().filter(|source| !source.stretch.pieces.is_empty());
            let first = heads.min_by(|a, b| a.head().cmp(&b.head()));
            let Some(source) = first else { return Ok(None) };
            let piece = source.stretch.pieces.pop_front().expect("its head was looked at");
            let from = std::mem::replace(&mut source.merged, piece.end);
            if piece.whole && piece.rows <= chunk.left {
                chunk.rows.cells.extend_from_slice(&source.stretch.cells[from..piece.end]);
                chunk.rows.count += piece.rows;
                chunk.left -= piece.rows;
                chunk.bound()?;
                reached = Position::after(piece.token, piece.key);
                continue;
            }
            // As much of it as there is room for in the answer: only that core can say where that ends.
            let (token, key) = (piece.token, piece.key);
            chunk.of_partition = 0;
            if !self.slice.one_on(source.core, token, &key, None, chunk).await? {
                return Ok(Some(chunk.inside(token, key)));
            }
            reached = Position::after(token, key);
            if !piece.whole {
                source.stretch.next = Some(reached.clone());
            }
        }
    }

    /// Has every core whose stretch is used up read on until it has something or has come to its end, all at once.
    async fn refill(&self, sources: &mut [Source], chunk: &mut Chunk) -> Result<(), Error> {
        let cores = sources.len() as u32;
        // Tokens are spread evenly, but not exactly: with a little more from each core, one round is mostly enough.
        let share = if cores == 1 { chunk.left } else { chunk.left / cores + chunk.left / cores / 4 + 8 };
        let rows_max = share.min(chunk.left).min(STRETCH_ROWS_MAX);
        let bytes_max = chunk.bytes_max.min(STRETCH_BYTES_MAX);
        loop {
            let mut asked = Vec::new();
            for source in sources.iter_mut().filter(|source| source.stretch.pieces.is_empty()) {
                let Some(start) = source.stretch.next.take() else { continue };
                let (scan, core) = (self.clone(), source.core);
                let read = move || async move {
                    scan.stretch(&Embedded::local().shard, start, rows_max, bytes_max).await
                };
                asked.push((source, lanes::spawn(lanes::current_group(), lanes::call(core, read))));
            }
            if asked.is_empty() {
                return Ok(());
            }
            for (source, task) in asked {
                (source.stretch, source.merged) = (task.await?, 0);
                chunk.counted += source.stretch.counted;
            }
        }
    }

    /// Reads partitions of one core, behind `start`.
    async fn stretch(
        &self,
        shard: &Rc<Shard>,
        start: Position,
        rows_max: u32,
        bytes_max: usize,
    ) -> Result<Stretch, Error> {
        let rows = Rows::new(Arc::from([]));
        let mut chunk = Chunk::new(rows, rows_max, bytes_max);
        let mut pieces = VecDeque::new();
        let table = TableId(self.slice.def.data_id().as_u128());
        let after = start.key.clone().map(|key| (start.token, key));
        let mut scan = shard.scan(table, self.tokens.clone(), after, self.slice.now_s);
        let mut next = start;
        for _ in 0..STRETCH_PARTITIONS_MAX {
            let (mut begun, mut before) = (Begun::default(), None);
            let (token, key, whole) = loop {
                let Some(piece) = scan.next_piece().await.map_err(storage_error)? else {
                    return Ok(Stretch::of(chunk, pieces, None));
                };
                if piece.first {
                    (chunk.of_partition, chunk.last) = (0, None);
                    before = Some((chunk.rows.count, chunk.rows.cells.len()));
                }
                let merged = if piece.last { 0 } else { piece.view.stored().min(MERGED_ROWS_MAX) as u32 };
                if lanes::spend(PARTITION_UNITS + merged) {
                    lanes::yield_now().await;
                }
                if let Some(whole) = self.slice.piece(&piece, &mut begun, &mut chunk).await? {
                    scan.skip_rest();
                    break (piece.token, piece.key, whole);
                }
            };
            let (rows, cells) = before.expect("a partition has a first piece");
            if !whole {
                chunk.rows.cells.truncate(cells);
            }
            let (rows, end) = (chunk.rows.count - rows, chunk.rows.cells.len());
            if rows > 0 {
                pieces.push_back(Piece { token, key: key.clone(), rows, end, whole });
            }
            if !whole {
                break;
            }
            next = Position::after(token, key);
        }
        Ok(Stretch::of(chunk, pieces, Some(next)))
    }
}

impl Stretch {
    fn of(chunk: Chunk, pieces: VecDeque<Piece>, next: Option<Position>) -> Stretch {
        Stretch { cells: chunk.rows.cells, pieces, counted: chunk.counted, next }
    }
}

impl Source {
    /// Where its first piece stands.
    fn head(&self) -> Option<(i64, &Bytes)> {
        self.stretch.pieces.front().map(|piece| (piece.token, &piece.key))
    }
}
