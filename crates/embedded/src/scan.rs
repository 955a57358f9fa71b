//! Reading many partitions: every core reads its own, a stretch at a time, and the stretches are merged into the order of tokens, the
//! one order that does not depend on how many cores there are. Clients rely on it when they page by `token(…)` themselves.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Rows};
use storage::{PartitionView, Shard, TableId};

use crate::paging::Position;
use crate::read::{Chunk, Slice};
use crate::{Embedded, storage_error};

/// A core reads no more rows at a time, nor goes on beyond so many bytes of cells.
const STRETCH_ROWS_MAX: u32 = 5000;
const STRETCH_BYTES_MAX: usize = 256 << 10;

/// What to read. It travels to every core.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) slice: Slice,
    pub(crate) tokens: RangeInclusive<i64>,
}

/// Rows of one partition.
#[derive(Debug)]
struct Piece {
    token: i64,
    key: Bytes,
    rows: u32,
    /// Where its cells end in those of the stretch.
    end: usize,
    /// The row it begins behind, within the partition, and how many rows of the partition were taken before it.
    after: Option<Bytes>,
    taken: u32,
    /// Where to go on behind it.
    next: Position,
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
        let stretch =
            || Stretch { cells: Vec::new(), pieces: VecDeque::new(), counted: 0, next: Some(start.clone()) };
        let source = |core| Source { core, stretch: stretch(), merged: 0 };
        let mut sources: Vec<Source> = (0..lanes::cores()).map(source).collect();
        let mut reached = start.clone();
        loop {
            if chunk.left == 0 {
                let more = sources.iter().any(|s| !s.stretch.pieces.is_empty() || s.stretch.next.is_some());
                return Ok(more.then_some(reached));
            }
            self.refill(&mut sources, chunk).await?;
            let heads = sources.iter_mut().filter(|source| !source.stretch.pieces.is_empty());
            let first = heads.min_by(|a, b| a.head().cmp(&b.head()));
            let Some(source) = first else { return Ok(None) };
            let whole;
            (reached, whole) = self.merge(source, chunk).await?;
            if !whole {
                return Ok(Some(reached));
            }
        }
    }

    /// Has every core whose stretch is used up read the next, all at once.
    async fn refill(&self, sources: &mut [Source], chunk: &mut Chunk) -> Result<(), Error> {
        let cores = sources.len() as u32;
        // Tokens are spread evenly, but not exactly: with a little more from each core, one round is mostly enough.
        let share = if cores == 1 { chunk.left } else { chunk.left / cores + chunk.left / cores / 4 + 8 };
        let rows_max = share.min(STRETCH_ROWS_MAX);
        let mut asked = Vec::new();
        for source in sources.iter_mut().filter(|source| source.stretch.pieces.is_empty()) {
            let Some(start) = source.stretch.next.take() else { continue };
            let (scan, core) = (self.clone(), source.core);
            let read = move || async move { scan.stretch(&Embedded::local().shard, start, rows_max).await };
            asked.push((source, lanes::spawn(lanes::current_group(), lanes::call(core, read))));
        }
        for (source, task) in asked {
            (source.stretch, source.merged) = (task.await?, 0);
            chunk.counted += source.stretch.counted;
        }
        Ok(())
    }

    /// Takes the first piece of a source into the chunk, as far as there is room: where to go on, and whether there was room for
    /// all of it.
    async fn merge(&self, source: &mut Source, chunk: &mut Chunk) -> Result<(Position, bool), Error> {
        let piece = source.stretch.pieces.pop_front().expect("its head was looked at");
        let from = std::mem::replace(&mut source.merged, piece.end);
        if piece.rows <= chunk.left {
            chunk.rows.cells.extend_from_slice(&source.stretch.cells[from..piece.end]);
            chunk.rows.count += piece.rows;
            chunk.left -= piece.rows;
            chunk.bound();
            return Ok((piece.next, true));
        }
        // More than there is room for: where the room ends only that core can say.
        let mut away = Chunk { of_partition: piece.taken, ..chunk.take() };
        let (scan, token, key) = (self.clone(), piece.token, piece.key.clone());
        let read = move || async move {
            let shard = &Embedded::local().shard;
            let whole = scan.slice.one(shard, token, &key, piece.after, &mut away).await;
            (away, whole)
        };
        let (back, whole) = lanes::call(source.core, read).await;
        *chunk = back;
        Ok(match whole? {
            true => (Position::after(token, piece.key), true),
            false => (chunk.inside(token, piece.key), false),
        })
    }

    /// Reads partitions of one core, from `start` on.
    async fn stretch(&self, shard: &Rc<Shard>, start: Position, rows_max: u32) -> Result<Stretch, Error> {
        let rows = Rows::new(Arc::from([]));
        let mut chunk = Chunk {
            rows,
            counted: 0,
            last: None,
            of_partition: start.of_partition,
            left: rows_max,
            bytes_max: STRETCH_BYTES_MAX,
        };
        let mut pieces = VecDeque::new();
        let mut next = Some(start.clone());
        let mut scan_on = true;
        if let (Some(key), Some(row)) = (&start.key, &start.row) {
            let view = self.slice.view(shard, start.token, key).await?;
            if let Some(view) = view {
                scan_on = self.piece((start.token, key), &view, Some(row), &mut chunk, &mut pieces).await?;
            }
        }
        if scan_on {
            let after = start.key.map(|key| (start.token, key));
            let table = TableId(self.slice.def.id.as_u128());
            let mut scan = shard.scan(table, self.tokens.clone(), after, self.slice.now_s);
            next = loop {
                let Some((token, key, view)) = scan.next().await.map_err(storage_error)? else { break None };
                if lanes::should_yield() {
                    lanes::yield_now().await;
                }
                chunk.of_partition = 0;
                if !self.piece((token, &key), &view, None, &mut chunk, &mut pieces).await? {
                    break next;
                }
                next = Some(Position::after(token, key));
            };
        }
        // Behind the last row, if any was taken; partitions without rows after it are looked at again.
        let next = next.map(|next| match pieces.back() {
            Some(piece) if chunk.left == 0 => piece.next.clone(),
            _ => next,
        });
        Ok(Stretch { cells: chunk.rows.cells, pieces, counted: chunk.counted, next })
    }

    /// Takes rows of one partition; whether it was read to its end.
    async fn piece(
        &self,
        (token, key): (i64, &Bytes),
        view: &PartitionView,
        after: Option<&Bytes>,
        chunk: &mut Chunk,
        pieces: &mut VecDeque<Piece>,
    ) -> Result<bool, Error> {
        let (before, taken) = (chunk.rows.count, chunk.of_partition);
        chunk.last = after.cloned();
        let whole = self.slice.partition((token, key), view, after, chunk).await?;
        let rows = chunk.rows.count - before;
        if rows > 0 {
            let (key, after, end) = (key.clone(), after.cloned(), chunk.rows.cells.len());
            let next =
                if whole { Position::after(token, key.clone()) } else { chunk.inside(token, key.clone()) };
            pieces.push_back(Piece { token, key, rows, end, after, taken, next });
        }
        Ok(whole)
    }
}

impl Source {
    /// Where its first piece stands.
    fn head(&self) -> Option<(i64, &Bytes)> {
        self.stretch.pieces.front().map(|piece| (piece.token, &piece.key))
    }
}
