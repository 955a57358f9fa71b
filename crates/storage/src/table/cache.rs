//! The cache of blocks of table files, bounded in bytes.
//!
//! Evicts by S3-FIFO, because most blocks are used once:
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
//! A block decompresses columns on first use, so that it grows while cached. Readers report its new
//! size with [`Cache::keep`].

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::table::part::Block;
use crate::table::scan_cache::ScanCache;

type BlockId = (u64, usize);

/// Blocks may use at least this fraction (1/8) of the memory, even if filters and indexes fill all
/// of it. Otherwise each read would go to the disk.
const BLOCKS_MIN_PART: usize = 8;

/// Uses counted for a block. More do not change its eviction.
const USES_MAX: u8 = 3;

/// The block cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    /// Memory of filters and indexes of open files, from the same budget, bytes.
    reserved: usize,
    bytes: usize,
    small_bytes: usize,
    slots: FxHashMap<BlockId, Slot>,
    /// Oldest first.
    small: VecDeque<BlockId>,
    main: VecDeque<BlockId>,
    /// Blocks evicted from the small queue recently, with the number of the eviction.
    ghosts: FxHashMap<BlockId, u64>,
    ghost_order: VecDeque<(BlockId, u64)>,
    evictions: u64,
    /// Uses the free part of `bytes_max`.
    scans: Arc<ScanCache>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Debug)]
struct Slot {
    block: Block,
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
        match self.slots.get_mut(&(file, index)) {
            Some(slot) => {
                slot.uses = (slot.uses + 1).min(USES_MAX);
                self.hits += 1;
                Some(slot.block.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// Caches a block after a read, or accounts for the growth of a cached block.
    #[inline]
    pub(crate) fn keep(&mut self, file: u64, index: usize, block: &Block) {
        let (bytes, limit) = (block.bytes(), self.bytes_max());
        let id = (file, index);
        match self.slots.get_mut(&id) {
            Some(slot) if slot.bytes == bytes => return,
            Some(slot) => {
                // Another reader may have cached the same block meanwhile. The cached one stays.
                let bytes = slot.block.bytes();
                self.bytes = self.bytes - slot.bytes + bytes;
                if !slot.is_main {
                    self.small_bytes = self.small_bytes - slot.bytes + bytes;
                }
                slot.bytes = bytes;
            }
            None if bytes > limit => return,
            None => {
                let is_main = self.ghosts.remove(&id).is_some();
                self.slots.insert(id, Slot { block: block.clone(), bytes, uses: 0, is_main });
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
        let slot = self.slots.get_mut(&id).expect("queues and slots agree");
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
    fn remember(&mut self, id: BlockId) {
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

    /// Removes the blocks of a deleted file.
    pub(crate) fn forget(&mut self, file: u64) {
        self.small.retain(|id| id.0 != file);
        self.main.retain(|id| id.0 != file);
        self.ghosts.retain(|id, _| id.0 != file);
        self.ghost_order.retain(|(id, _)| id.0 != file);
        let (bytes, small_bytes) = (&mut self.bytes, &mut self.small_bytes);
        self.slots.retain(|id, slot| {
            if id.0 == file {
                *bytes -= slot.bytes;
                *small_bytes -= if slot.is_main { 0 } else { slot.bytes };
            }
            id.0 != file
        });
        self.fit();
    }
}
