//! The cache of blocks of table files, and of rows that were read from them, bounded in bytes.
//!
//! Blocks and rows have a queue each (`fifo.rs`), because a block takes the memory of hundreds of
//! rows: in one queue, a few blocks would evict them all. The memory goes where it saves more CPU:
//!
//! ```text
//!  blocks   ghosts ◄─ main ◄─ small      a ghost comes back: more memory would have saved a read
//!                 limit moves            of the disk. The limit moves by what it would have saved
//!  rows     ghosts ◄─ main ◄─ small      per byte of ghosts
//! ```
//!
//! At rest, a byte more for blocks would save as much as a byte more for rows. Either may use what
//! the other leaves.
//!
//! A block decompresses columns on first use, so that it grows while cached. Readers report its new
//! size with [`Cache::keep`].

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use lanes::disk::{Cached, count_lookup};

use crate::table::cached_row::{CachedRow, RowPlace};
use crate::table::fifo::Fifo;
use crate::table::part::Block;
use crate::table::scan_cache::ScanCache;

/// Blocks may use at least this fraction (1/8) of the memory, even if filters and indexes fill all
/// of it. Otherwise each read would go to the disk.
const BLOCKS_MIN_PART: usize = 8;

/// Either of rows and blocks may use at least this fraction (1/16) of the memory, so that its hits
/// can show what more would save.
const EITHER_MIN_PART: usize = 16;

/// Ghosts stand for at least this fraction (1/8) of the memory.
const GHOSTS_PART: usize = 8;

/// The limit between rows and blocks moves by this fraction (1/1024) of the memory for a read of
/// the disk that ghosts of [`GHOSTS_PART`] would have saved.
const STEP_PART: usize = 1024;

/// Cost of a read of the disk, in units of the cost of a row that is decoded from a cached block.
/// Hits of blocks save it.
const BLOCK_SAVES: usize = 10;

/// The cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    /// Memory of filters and indexes of open files, from the same budget, bytes.
    reserved: usize,
    /// Memory that the engine uses, from the same budget, bytes.
    lent: usize,
    blocks: Fifo<(u64, u64), Block>,
    /// By the hash of the place.
    rows: Fifo<u64, Arc<CachedRow>>,
    /// The part of the memory beyond which rows are evicted before blocks, bytes.
    rows_bytes_max: usize,
    /// Uses the free part of `bytes_max`.
    scans: Arc<ScanCache>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) row_hits: u64,
    pub(crate) row_misses: u64,
    /// The number of changes that made cached rows invalid.
    epoch: u64,
    /// Clients choose keys, but not these hashes.
    hashes: RandomState,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize, scans: Arc<ScanCache>) -> Cache {
        Cache {
            bytes_max,
            reserved: 0,
            lent: 0,
            blocks: Fifo::default(),
            rows: Fifo::default(),
            rows_bytes_max: bytes_max / 2,
            scans,
            hits: 0,
            misses: 0,
            row_hits: 0,
            row_misses: 0,
            epoch: 0,
            hashes: RandomState::new(),
        }
    }

    /// Returns the bytes that blocks and rows may use: what filters, indexes and the engine leave,
    /// or the minimum fraction.
    pub(crate) fn bytes_max(&self) -> usize {
        let free = self.bytes_max.saturating_sub(self.reserved).saturating_sub(self.lent);
        free.max(self.bytes_max / BLOCKS_MIN_PART)
    }

    /// Sets the memory of filters and indexes of open files, which share the budget.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
        self.fit();
    }

    /// Sets the memory that the engine uses.
    pub(crate) fn lend(&mut self, bytes: usize) {
        self.lent = bytes;
        self.fit();
    }

    fn fit(&mut self) {
        let limit = self.bytes_max();
        while self.bytes() > limit && !(self.rows.is_empty() && self.blocks.is_empty()) {
            let is_rows_turn = self.rows.bytes() > self.rows_bytes_max.min(limit - limit / EITHER_MIN_PART);
            if (is_rows_turn || self.blocks.is_empty()) && !self.rows.is_empty() {
                self.rows.evict(limit / GHOSTS_PART);
            } else {
                self.blocks.evict(limit / GHOSTS_PART);
            }
        }
        self.scans.set_blocks(self.bytes() + self.bytes_max - limit);
    }

    /// Moves the limit between rows and blocks, because an entry came back that was evicted.
    /// `saves`: what a hit would have saved; see [`BLOCK_SAVES`].
    fn move_limit(&mut self, to_rows: bool, saves: usize) {
        let limit = self.bytes_max();
        let (unit, least) = (limit / GHOSTS_PART, limit / EITHER_MIN_PART);
        let ghosts = if to_rows { self.rows.ghost_bytes() } else { self.blocks.ghost_bytes() };
        let per_ghost = unit as f64 / ghosts.max(unit / GHOSTS_PART).max(1) as f64;
        let step = ((limit / STEP_PART * saves / BLOCK_SAVES) as f64 * per_ghost) as usize;
        let moved = match to_rows {
            true => self.rows_bytes_max.saturating_add(step),
            false => self.rows_bytes_max.saturating_sub(step),
        };
        self.rows_bytes_max = moved.clamp(least, limit - least);
    }

    /// Returns the bytes of cached blocks and rows.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes() + self.rows.bytes()
    }

    pub(crate) fn get(&mut self, file: u64, index: usize) -> Option<Block> {
        let found = self.blocks.get((file, index as u64), |_| true).cloned();
        *if found.is_some() { &mut self.hits } else { &mut self.misses } += 1;
        count_lookup(Cached::Block, found.is_some());
        found
    }

    /// Returns the row at this place, if it is valid and `is_wanted`, which compares the place: it
    /// is found by a hash. Readers count their lookups with [`Cache::count_row`].
    pub(crate) fn row(
        &mut self,
        place: RowPlace<'_>,
        is_wanted: impl FnOnce(&CachedRow) -> bool,
    ) -> Option<Arc<CachedRow>> {
        let (key, epoch) = (self.hashes.hash_one(place), self.epoch);
        self.rows.get(key, |row| row.epoch == epoch && is_wanted(row)).cloned()
    }

    /// Counts a read that could use a cached row: a hit if there was one.
    pub(crate) fn count_row(&mut self, found: bool) {
        *if found { &mut self.row_hits } else { &mut self.row_misses } += 1;
        count_lookup(Cached::Row, found);
    }

    /// Returns the number of changes that made cached rows invalid.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes all cached rows invalid: their tables have lost data.
    pub(crate) fn forget_rows(&mut self) {
        self.epoch += 1;
    }

    /// Caches a row, instead of an earlier one with the same hash. `from_disk`: the read that
    /// found it had to read a block from disk.
    pub(crate) fn keep_row(&mut self, place: RowPlace<'_>, row: Arc<CachedRow>, from_disk: bool) {
        let bytes = row.bytes();
        if row.epoch != self.epoch || bytes > self.bytes_max() {
            return;
        }
        if self.rows.insert(self.hashes.hash_one(place), row, bytes) {
            self.move_limit(true, if from_disk { BLOCK_SAVES } else { 1 });
        }
        self.fit();
    }

    /// Caches a block after a read, or accounts for the growth of a cached block.
    #[inline]
    pub(crate) fn keep(&mut self, file: u64, index: usize, block: &Block) {
        let key = (file, index as u64);
        // Another reader may have cached the same block meanwhile. The cached one stays.
        let (block, bytes) = match self.blocks.peek(key) {
            Some((cached, bytes)) if bytes == cached.bytes() => return,
            Some((cached, _)) => (cached.clone(), cached.bytes()),
            None => (block.clone(), block.bytes()),
        };
        // A block may outgrow the memory while it is cached.
        if bytes > self.bytes_max() {
            self.blocks.remove(key);
        } else if self.blocks.insert(key, block, bytes) {
            self.move_limit(false, BLOCK_SAVES);
        }
        self.fit();
    }

    /// Removes the blocks of a deleted file, which has this many.
    pub(crate) fn forget(&mut self, file: u64, blocks: usize) {
        (0..blocks as u64).for_each(|index| self.blocks.remove((file, index)));
        self.fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_files_and_of_the_engine_is_taken_from_that_of_blocks_down_to_an_eighth() {
        let mut cache = Cache::new(800, Arc::new(ScanCache::new(800)));
        cache.reserve(100);
        cache.lend(300);
        assert_eq!(cache.bytes_max(), 400);
        cache.lend(800);
        assert_eq!(cache.bytes_max(), 100);
        cache.lend(0);
        assert_eq!(cache.bytes_max(), 700);
    }
}
