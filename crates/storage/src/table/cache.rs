//! Blocks of table files in memory, bounded in bytes.
//!
//! What goes is decided by S3-FIFO: most blocks are used once and never again, so a new one waits in a *small* queue of a tenth
//! of the memory, and only if it is used again there does it enter the *main* queue, in which a block that was used since it was last
//! looked at goes round once more. Who was turned out of the small queue is remembered for a while, by number only, and enters the
//! main queue at once when it comes back. So a scan, however long, passes through the small queue and leaves the main one alone;
//! and a hit costs one counter, where LRU moves entries about.
//!
//! A block unpacks its columns when they are first asked for, so it grows while it is here; readers tell ([`Cache::keep`]).

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::table::part::Block;
use crate::table::scan_cache::ScanCache;

type BlockId = (u64, usize);

/// However many files are open, blocks may have this part of the memory: without any, each read would go to the disk.
const ROOM_MIN_PART: usize = 8;

/// Uses counted of a block; more make no difference.
const USES_MAX: u8 = 3;

/// The block cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    /// Taken of it by filters and indexes of open files.
    reserved: usize,
    bytes: usize,
    small_bytes: usize,
    slots: FxHashMap<BlockId, Slot>,
    /// Oldest first.
    small: VecDeque<BlockId>,
    main: VecDeque<BlockId>,
    /// Turned out of the small queue lately, with how many were before.
    ghosts: FxHashMap<BlockId, u64>,
    ghost_order: VecDeque<(BlockId, u64)>,
    turned_out: u64,
    /// Has what room is left.
    scans: Arc<ScanCache>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Debug)]
struct Slot {
    block: Block,
    /// What it is counted with.
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
            turned_out: 0,
            scans,
            hits: 0,
            misses: 0,
        }
    }

    /// Bytes it may hold: what filters and indexes leave of its memory, and a part of it at least.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.saturating_sub(self.reserved).max(self.bytes_max / ROOM_MIN_PART)
    }

    /// Filters and indexes of open files take so many bytes: they are in the same budget.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.reserved = bytes;
        self.fit();
    }

    fn fit(&mut self) {
        let room = self.bytes_max();
        while self.bytes > room {
            self.evict();
        }
        self.scans.set_blocks(self.bytes + self.bytes_max - room);
    }

    /// Bytes held now.
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

    /// Keeps a block that was read, or counts anew what has been unpacked of one that is here.
    #[inline]
    pub(crate) fn keep(&mut self, file: u64, index: usize, block: &Block) {
        let (bytes, room) = (block.bytes(), self.bytes_max());
        let id = (file, index);
        match self.slots.get_mut(&id) {
            Some(slot) if slot.bytes == bytes => return,
            Some(slot) => {
                // Another reader may have read the same block meanwhile; the one that is here stays.
                let bytes = slot.block.bytes();
                self.bytes = self.bytes - slot.bytes + bytes;
                if !slot.is_main {
                    self.small_bytes = self.small_bytes - slot.bytes + bytes;
                }
                slot.bytes = bytes;
            }
            None if bytes > room => return,
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

    /// Notes who was turned out; as many as there are blocks are remembered.
    fn remember(&mut self, id: BlockId) {
        self.turned_out += 1;
        self.ghosts.insert(id, self.turned_out);
        self.ghost_order.push_back((id, self.turned_out));
        while self.ghost_order.len() > self.slots.len().max(16) {
            let (oldest, number) = self.ghost_order.pop_front().expect("there are several");
            if self.ghosts.get(&oldest) == Some(&number) {
                self.ghosts.remove(&oldest);
            }
        }
    }

    /// Forgets the blocks of a file that is gone.
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
