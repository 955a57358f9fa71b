//! The cache of blocks of table files, and of rows that were read from them, bounded in bytes.
//!
//! Evicts by S3-FIFO, because most blocks and rows are used once:
//!
//! 1. A new block enters the *small* queue, which has a tenth of the memory.
//! 2. If it is used again there, it moves to the *main* queue. Otherwise it is evicted, and its
//!    number stays for a while as a *ghost*.
//! 3. A block whose ghost still exists enters the main queue at once.
//! 4. A block at the front of the main queue that was used meanwhile goes to the back, not out.
//!
//! A scan of any length therefore passes through the small queue only. A hit increments one
//! counter, where LRU relinks entries.
//!
//! Rows share the queues with blocks. A hot row is answered without its block, whose uses then end,
//! so that memory goes from blocks to rows by itself.
//!
//! A block decompresses columns on first use, so that it grows while cached. Readers report its new
//! size with [`Cache::keep`].

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::read::cached_row::{CachedRow, Place};
use crate::table::part::Block;
use crate::table::scan_cache::ScanCache;

/// A block by its file and index, or a row by the hash of its place and [`ROW`].
type Id = (u64, u64);

/// Stands for the index of a block in the id of a row.
const ROW: u64 = u64::MAX;

/// Blocks may use at least this fraction (1/8) of the memory, even if filters and indexes fill all
/// of it. Otherwise each read would go to the disk.
const BLOCKS_MIN_PART: usize = 8;

/// Uses counted for a block. More do not change its eviction.
const USES_MAX: u8 = 3;

/// Bytes of a slot with its places in the map and a queue.
const SLOT_BYTES: usize = 2 * (size_of::<Id>() + size_of::<Slot>()) + size_of::<Id>();

/// The block cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    /// Memory of filters and indexes of open files, from the same budget, bytes.
    reserved: usize,
    bytes: usize,
    small_bytes: usize,
    slots: FxHashMap<Id, Slot>,
    /// Oldest first.
    small: VecDeque<Id>,
    main: VecDeque<Id>,
    /// Blocks evicted from the small queue recently, with the number of the eviction.
    ghosts: FxHashMap<Id, u64>,
    ghost_order: VecDeque<(Id, u64)>,
    evictions: u64,
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

#[derive(Clone, Debug)]
enum Held {
    Block(Block),
    Row(Arc<CachedRow>),
}

#[derive(Debug)]
struct Slot {
    held: Held,
    /// The size it was last accounted with.
    bytes: usize,
    uses: u8,
    is_main: bool,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize, scans: Arc<ScanCache>) -> Cache {
        Cache {
            bytes_max,
            reserved: 0,
            bytes: 0,
            small_bytes: 0,
            slots: FxHashMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: FxHashMap::default(),
            ghost_order: VecDeque::new(),
            evictions: 0,
            scans,
            hits: 0,
            misses: 0,
            row_hits: 0,
            row_misses: 0,
            epoch: 0,
            hashes: RandomState::new(),
        }
    }

    /// Returns the bytes that blocks may use: what filters and indexes leave, or the minimum
    /// fraction.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.saturating_sub(self.reserved).max(self.bytes_max / BLOCKS_MIN_PART)
    }

    /// Sets the memory of filters and indexes of open files, which share the budget.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
        self.fit();
    }

    fn fit(&mut self) {
        let limit = self.bytes_max();
        while self.bytes > limit {
            self.evict();
        }
        self.scans.set_blocks(self.bytes + self.bytes_max - limit);
    }

    /// Returns the bytes of cached blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&mut self, file: u64, index: usize) -> Option<Block> {
        let found = self.find(file, index);
        lanes::disk::count_lookup(found.is_some());
        found
    }

    fn find(&mut self, file: u64, index: usize) -> Option<Block> {
        match self.slots.get_mut(&(file, index as u64)) {
            Some(Slot { held: Held::Block(block), uses, .. }) => {
                *uses = (*uses + 1).min(USES_MAX);
                self.hits += 1;
                Some(block.clone())
            }
            _ => {
                self.misses += 1;
                None
            }
        }
    }

    /// Returns the row at this place, if it is valid and `is_wanted`, which compares the place: it
    /// is found by a hash.
    pub(crate) fn row(
        &mut self,
        place: Place<'_>,
        is_wanted: impl FnOnce(&CachedRow) -> bool,
    ) -> Option<Arc<CachedRow>> {
        let id = (self.hashes.hash_one(place), ROW);
        if let Some(Slot { held: Held::Row(row), uses, .. }) = self.slots.get_mut(&id)
            && row.epoch == self.epoch
            && is_wanted(row)
        {
            *uses = (*uses + 1).min(USES_MAX);
            self.row_hits += 1;
            return Some(row.clone());
        }
        None
    }

    /// Returns the number of changes that made cached rows invalid.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Makes all cached rows invalid: their tables have lost data.
    pub(crate) fn forget_rows(&mut self) {
        self.epoch += 1;
    }

    /// Caches a row, in place of an earlier one with the same hash.
    pub(crate) fn keep_row(&mut self, place: Place<'_>, row: Arc<CachedRow>) {
        if row.epoch == self.epoch {
            let (id, bytes) = ((self.hashes.hash_one(place), ROW), row.bytes() + SLOT_BYTES);
            self.insert(id, Held::Row(row), bytes);
        }
    }

    /// Caches a block after a read, or accounts for the growth of a cached block.
    #[inline]
    pub(crate) fn keep(&mut self, file: u64, index: usize, block: &Block) {
        let id = (file, index as u64);
        match self.slots.get(&id) {
            Some(slot) if slot.bytes == block.bytes() => {}
            // Another reader may have cached the same block meanwhile. The cached one stays.
            Some(Slot { held: held @ Held::Block(cached), .. }) => {
                let (held, bytes) = (held.clone(), cached.bytes());
                self.insert(id, held, bytes);
            }
            _ => self.insert(id, Held::Block(block.clone()), block.bytes()),
        }
    }

    fn insert(&mut self, id: Id, held: Held, bytes: usize) {
        let limit = self.bytes_max();
        match self.slots.get_mut(&id) {
            Some(slot) => {
                self.bytes = self.bytes - slot.bytes + bytes;
                if !slot.is_main {
                    self.small_bytes = self.small_bytes - slot.bytes + bytes;
                }
                (slot.held, slot.bytes) = (held, bytes);
            }
            None if bytes > limit => return,
            None => {
                let is_main = self.ghosts.remove(&id).is_some();
                self.slots.insert(id, Slot { held, bytes, uses: 0, is_main });
                self.bytes += bytes;
                if is_main {
                    self.main.push_back(id);
                } else {
                    self.small_bytes += bytes;
                    self.small.push_back(id);
                }
            }
        }
        self.fit();
    }

    fn evict(&mut self) {
        let from_small = self.main.is_empty() || self.small_bytes > self.bytes_max() / 10;
        let queue = if from_small && !self.small.is_empty() { &mut self.small } else { &mut self.main };
        let id = queue.pop_front().expect("bytes are held by blocks in queues");
        // Blocks of deleted files stay in the queues.
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if slot.uses > 0 {
            slot.uses -= if slot.is_main { 1 } else { slot.uses };
            if !slot.is_main {
                slot.is_main = true;
                self.small_bytes -= slot.bytes;
            }
            return self.main.push_back(id);
        }
        self.bytes -= slot.bytes;
        if !slot.is_main {
            self.small_bytes -= slot.bytes;
            self.remember(id);
        }
        self.slots.remove(&id);
    }

    /// Adds a ghost. Keeps as many ghosts as there are blocks, at least 16.
    fn remember(&mut self, id: Id) {
        self.evictions += 1;
        self.ghosts.insert(id, self.evictions);
        self.ghost_order.push_back((id, self.evictions));
        while self.ghost_order.len() > self.slots.len().max(16) {
            let (oldest, number) = self.ghost_order.pop_front().expect("there are several");
            if self.ghosts.get(&oldest) == Some(&number) {
                self.ghosts.remove(&oldest);
            }
        }
    }

    /// Removes the blocks of a deleted file, which has this many.
    pub(crate) fn forget(&mut self, file: u64, blocks: usize) {
        for id in (0..blocks as u64).map(|index| (file, index)) {
            self.ghosts.remove(&id);
            if let Some(slot) = self.slots.remove(&id) {
                self.bytes -= slot.bytes;
                self.small_bytes -= if slot.is_main { 0 } else { slot.bytes };
            }
        }
        self.fit();
    }
}
