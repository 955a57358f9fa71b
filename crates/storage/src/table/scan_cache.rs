//! What scans read of table files, kept as it is stored for scans that come after.
//!
//! It shares the memory of the block cache (cache.rs), and comes second there: a chunk is kept where blocks leave room, and goes when
//! blocks need it. So analytics use what memory there is and take none from point reads. Blocks are kept unpacked and by the fast lane;
//! chunks as they were read, up to a megabyte of blocks each, by heavy lanes, which share a short lock here. The fast lane only ever tries
//! that lock.
//!
//! The chunk used longest ago goes first, but for another chunk none goes that was used within the last [`STAYS`] × as many reads as there
//! are chunks. Without that, a scan of more than there is room for would push out each chunk just before it comes back to it, as in
//! any least-recently-used cache, and find nothing; with it, it finds again what there is room for. A table larger than [`STAYS`] times the
//! room passes through, and whatever is not read any more is gone after so many reads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;

/// See the head of this file.
const STAYS: u64 = 4;

/// Chunks that the fast lane takes out at a time: a free or two of a megabyte each.
const PIECE: usize = 8;

/// Smaller ones are copied: a read's memory may be four times what was read.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Some blocks of a file that lie one behind the other, as stored.
pub(crate) type Chunk = (Range<usize>, Bytes);

/// A file and a block of it.
type BlockId = (u64, usize);

/// The chunks of one shard's files.
#[derive(Debug)]
pub(crate) struct ScanCache {
    /// For blocks and chunks together.
    bytes_max: usize,
    /// What blocks take of it.
    blocks_bytes: AtomicUsize,
    /// What chunks take, as the lock's holder left it.
    bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By their first blocks; those of a file have no blocks in common.
    chunks: BTreeMap<BlockId, Entry>,
    /// By the numbers of the reads that used them last.
    by_use: BTreeMap<u64, BlockId>,
    bytes: usize,
    /// Reads so far.
    reads: u64,
}

#[derive(Debug)]
struct Entry {
    end: usize,
    bytes: Bytes,
    used: u64,
}

impl Kept {
    /// The chunk that has this block.
    fn find(&mut self, file: u64, block: usize) -> Option<Chunk> {
        self.reads += 1;
        let (id, entry) = self.chunks.range_mut(..=(file, block)).next_back()?;
        if id.0 != file || entry.end <= block {
            return None;
        }
        self.by_use.remove(&entry.used);
        entry.used = self.reads;
        self.by_use.insert(self.reads, *id);
        Some((id.1..entry.end, entry.bytes.clone()))
    }

    /// The first block, of those from this one on, that a chunk begins with.
    fn next(&self, file: u64, block: usize) -> Option<usize> {
        let (id, _) = self.chunks.range((file, block)..).next()?;
        (id.0 == file).then_some(id.1)
    }

    fn overlaps(&self, file: u64, blocks: &Range<usize>) -> bool {
        let before = self.chunks.range(..(file, blocks.end)).next_back();
        before.is_some_and(|(id, entry)| id.0 == file && entry.end > blocks.start)
    }

    fn insert(&mut self, file: u64, blocks: Range<usize>, bytes: Bytes) {
        self.reads += 1;
        self.bytes += bytes.len();
        let id = (file, blocks.start);
        self.by_use.insert(self.reads, id);
        self.chunks.insert(id, Entry { end: blocks.end, bytes, used: self.reads });
    }

    /// Takes out the one used longest ago, if no read used it since `before`.
    fn take_oldest(&mut self, before: u64) -> Option<Bytes> {
        let (used, id) = self.by_use.first_key_value().map(|(used, id)| (*used, *id))?;
        (used < before).then(|| self.remove(used, id))
    }

    /// Takes out the oldest until no more than `room` is left, `chunks_max` at most.
    fn take_above(&mut self, room: usize, chunks_max: usize) -> Vec<Bytes> {
        let mut out = Vec::new();
        while self.bytes > room && out.len() < chunks_max {
            out.extend(self.take_oldest(u64::MAX));
        }
        out
    }

    fn take_of(&mut self, file: u64, chunks_max: usize) -> Vec<Bytes> {
        let of_file = self.chunks.range((file, 0)..=(file, usize::MAX)).take(chunks_max);
        let of_file: Vec<(u64, BlockId)> = of_file.map(|(id, entry)| (entry.used, *id)).collect();
        of_file.into_iter().map(|(used, id)| self.remove(used, id)).collect()
    }

    fn remove(&mut self, used: u64, id: BlockId) -> Bytes {
        self.by_use.remove(&used);
        let entry = self.chunks.remove(&id).expect("both maps have the same chunks");
        self.bytes -= entry.bytes.len();
        entry.bytes
    }
}

impl ScanCache {
    /// For so many bytes, those of blocks included.
    pub(crate) fn new(bytes_max: usize) -> ScanCache {
        ScanCache {
            bytes_max,
            blocks_bytes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// Bytes held now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Reads that found their chunk here, and that did not.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.blocks_bytes.load(Relaxed))
    }

    /// The lock, for heavy lanes. Poison means that a thread panicked between two operations, none of which leaves the maps half done.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for the fast lane, which waits for nobody.
    fn try_lock(&self) -> Option<MutexGuard<'_, Kept>> {
        match self.kept.try_lock() {
            Ok(kept) => Some(kept),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Heavy lanes: the chunk with this block; if there is none, where a read from this block on should end because the next chunk begins.
    pub(crate) fn find(&self, file: u64, block: usize) -> Result<Chunk, Option<usize>> {
        let mut kept = self.lock();
        let found = kept.find(file, block);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Relaxed);
        found.ok_or_else(|| kept.next(file, block))
    }

    /// Heavy lanes: keeps what was read, if there is room.
    pub(crate) fn keep(&self, file: u64, (blocks, bytes): Chunk) {
        let bytes = if bytes.len() < COPIED_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes };
        let room = self.room();
        let mut kept = self.lock();
        let mut out = kept.take_above(room, usize::MAX);
        // Another scan may have read the same meanwhile.
        if bytes.len() <= room && !kept.overlaps(file, &blocks) {
            let stays = kept.reads.saturating_sub(STAYS * kept.chunks.len() as u64);
            while kept.bytes + bytes.len() > room {
                let Some(oldest) = kept.take_oldest(stays) else { break };
                out.push(oldest);
            }
            if kept.bytes + bytes.len() <= room {
                kept.insert(file, blocks, bytes);
            }
        }
        self.give_back(kept, out);
    }

    /// Ends the holding of the lock, and then frees what was taken out.
    fn give_back(&self, kept: MutexGuard<'_, Kept>, out: Vec<Bytes>) {
        self.bytes.store(kept.bytes, Relaxed);
        drop(kept);
        drop(out);
    }

    /// Fast lane: blocks take so much now. Chunks make room for them, if no heavy lane holds the lock, else when this or [`Self::keep`]
    /// is called next.
    pub(crate) fn set_blocks(&self, blocks_bytes: usize) {
        self.blocks_bytes.store(blocks_bytes, Relaxed);
        let room = self.room();
        if self.bytes() <= room {
            return;
        }
        if let Some(mut kept) = self.try_lock() {
            let out = kept.take_above(room, PIECE);
            self.give_back(kept, out);
        }
    }

    /// Fast lane: forgets some of a file that is gone, unless a heavy lane holds the lock: whether nothing of it is left.
    pub(crate) fn forget_some(&self, file: u64) -> bool {
        let Some(mut kept) = self.try_lock() else { return false };
        let out = kept.take_of(file, PIECE);
        let is_gone = out.len() < PIECE;
        self.give_back(kept, out);
        is_gone
    }

    /// Heavy lanes: forgets a file that is not what it should be; perhaps only what was read of it is not.
    pub(crate) fn forget(&self, file: u64) {
        let mut kept = self.lock();
        let out = kept.take_of(file, usize::MAX);
        self.give_back(kept, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1000;

    /// A scan of blocks of a file, two in a chunk of 100 bytes, as [`ReadAhead`](crate::table::read_ahead::ReadAhead) does it: how many chunks it found.
    fn scan(cache: &ScanCache, file: u64, blocks: Range<usize>) -> usize {
        let (mut at, mut found) = (blocks.start, 0);
        while at < blocks.end {
            at = match cache.find(file, at) {
                Ok((chunk, bytes)) => {
                    assert!(chunk.contains(&at) && bytes.len() == 50 * chunk.len());
                    found += 1;
                    chunk.end
                }
                Err(next) => {
                    let end = next.unwrap_or(usize::MAX).min(at + 2).min(blocks.end);
                    cache.keep(file, (at..end, vec![0; 50 * (end - at)].into()));
                    end
                }
            };
            assert!(cache.bytes() <= ROOM);
        }
        found
    }

    #[test]
    fn what_was_read_is_found_again_from_any_block_on() {
        let cache = ScanCache::new(ROOM);
        assert_eq!(scan(&cache, 1, 4..12), 0);
        assert_eq!(scan(&cache, 1, 4..12), 4);
        assert_eq!(scan(&cache, 1, 7..12), 3, "the first of them from its second block on");
        assert_eq!(scan(&cache, 2, 4..6), 0, "another file");
        // Two chunks before, of which one ends where the next that is there begins, and nothing is kept twice.
        assert_eq!(scan(&cache, 1, 1..12), 4);
        assert_eq!(cache.bytes(), 4 * 100 + 100 + 100 + 50);
        assert_eq!(cache.lookups(), (4 + 3 + 4, 4 + 1 + 2));
    }

    #[test]
    fn a_scan_of_more_than_there_is_room_for_finds_again_what_there_is_room_for() {
        let cache = ScanCache::new(ROOM);
        for round in 0..5 {
            let found = scan(&cache, 1, 0..60);
            assert_eq!(found, if round == 0 { 0 } else { 10 }, "thirty chunks, of which ten stay");
        }
        // One that is far too large finds nothing, and does not keep others out for long.
        for _ in 0..3 {
            assert_eq!(scan(&cache, 2, 0..200), 0);
        }
        assert_eq!(scan(&cache, 1, 0..16), 0);
        scan(&cache, 3, 0..100);
        scan(&cache, 1, 0..16);
        scan(&cache, 1, 0..16);
        assert_eq!(scan(&cache, 1, 0..16), 8);
    }

    #[test]
    fn blocks_come_first() {
        let cache = ScanCache::new(ROOM);
        scan(&cache, 1, 0..20);
        assert_eq!(cache.bytes(), ROOM);
        for blocks in 1..=10 {
            cache.set_blocks(blocks * 100);
            assert_eq!(cache.bytes(), ROOM - blocks * 100);
        }
        assert_eq!(scan(&cache, 1, 0..20), 0);
        assert_eq!(cache.bytes(), 0, "there is no room");
        cache.set_blocks(600);
        scan(&cache, 1, 0..20);
        assert_eq!((scan(&cache, 1, 0..20), cache.bytes()), (4, 400));
    }

    #[test]
    fn a_file_is_forgotten_unless_somebody_holds_the_lock() {
        let cache = ScanCache::new(ROOM);
        scan(&cache, 1, 0..4);
        scan(&cache, 2, 0..4);
        let held = cache.lock();
        assert!(!cache.forget_some(1));
        cache.set_blocks(ROOM);
        drop(held);
        assert_eq!(cache.bytes(), 400);
        cache.set_blocks(0);
        assert!(cache.forget_some(1));
        assert_eq!((cache.bytes(), scan(&cache, 1, 0..4), scan(&cache, 2, 0..4)), (200, 0, 2));
        cache.forget(2);
        assert_eq!((cache.bytes(), scan(&cache, 2, 0..4)), (200, 0));
        cache.forget(1);
        cache.forget(2);
        scan(&cache, 3, 0..20);
        assert!(!cache.forget_some(3), "there are more than it takes out at a time");
        assert!(cache.forget_some(3));
    }

    #[test]
    fn small_chunks_make_room_for_large_blocks_in_the_end() {
        let cache = ScanCache::new(ROOM);
        for block in 0..100 {
            cache.keep(1, (block..block + 1, vec![0; 10].into()));
        }
        assert_eq!(cache.bytes(), ROOM);
        cache.set_blocks(900);
        assert_eq!(cache.bytes(), ROOM - 10 * PIECE, "so many at a time");
        // No more blocks come: the next scan sees to it, though what it read finds no room.
        cache.keep(2, (0..1, vec![0; 200].into()));
        assert_eq!(cache.bytes(), 100);
    }
}
