//! Decompressed blocks of table files, bounded in bytes; the CLOCK algorithm picks what goes.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::block::Block;

type BlockId = (u64, usize);

/// The block cache of one shard.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    bytes: usize,
    slots: FxHashMap<BlockId, Slot>,
    /// The clock's face; the hand is at the front.
    order: VecDeque<BlockId>,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

#[derive(Debug)]
struct Slot {
    block: Arc<Block>,
    used: bool,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache { bytes_max, bytes: 0, slots: FxHashMap::default(), order: VecDeque::new(), hits: 0, misses: 0 }
    }

    /// Bytes held now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&mut self, file: u64, index: usize) -> Option<Arc<Block>> {
        match self.slots.get_mut(&(file, index)) {
            Some(slot) => {
                slot.used = true;
                self.hits += 1;
                Some(slot.block.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    pub(crate) fn insert(&mut self, file: u64, index: usize, block: Arc<Block>) {
        let id = (file, index);
        if block.bytes() > self.bytes_max || self.slots.contains_key(&id) {
            return;
        }
        self.bytes += block.bytes();
        self.slots.insert(id, Slot { block, used: false });
        self.order.push_back(id);
        while self.bytes > self.bytes_max {
            let id = self.order.pop_front().expect("bytes are held by blocks in order");
            let slot = self.slots.get_mut(&id).expect("order and slots agree");
            if std::mem::take(&mut slot.used) {
                self.order.push_back(id);
            } else {
                self.bytes -= slot.block.bytes();
                self.slots.remove(&id);
            }
        }
    }

    /// Forgets the blocks of a file that is gone.
    pub(crate) fn forget(&mut self, file: u64) {
        self.order.retain(|id| id.0 != file);
        let bytes = &mut self.bytes;
        self.slots.retain(|id, slot| {
            if id.0 == file {
                *bytes -= slot.block.bytes();
            }
            id.0 != file
        });
    }
}
