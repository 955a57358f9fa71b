//! The cache of table-file chunks for scans: stored bytes, as they were read.
//!
//! It shares the memory of the block cache (`cache.rs`) and has the lower priority: chunks use the
//! memory that blocks leave free, and are evicted when blocks need it. So scans take no memory from
//! point reads. Blocks are cached decompressed, by the fast lane. Chunks are cached as stored, up
//! to a megabyte each, by heavy lanes. Heavy lanes share a short lock. The fast lane only tries the
//! lock.
//!
//! The least recently used chunk is evicted first. A new chunk evicts only chunks that were not
//! used within the last [`STAY_FACTOR`] × (number of chunks) reads. Plain LRU fails on a cyclic
//! scan that is larger than the cache: it evicts each chunk just before the scan returns to it.
//! With the rule, such a scan finds as many chunks as fit. A table larger than [`STAY_FACTOR`]
//! times the cache passes through.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bytes::Bytes;

/// Reads for each cached chunk during which a chunk stays. See the head of this file.
const STAY_FACTOR: u64 = 4;

/// Chunks that the fast lane frees at a time, of up to a megabyte each.
const CHUNKS_FREED_MAX: usize = 8;

/// Smaller chunks are copied: the memory of a read may be four times its length.
const COPIED_BYTES_MAX: usize = 256 << 10;

/// Adjacent blocks of a file, as stored.
pub(crate) type Chunk = (Range<usize>, Bytes);

/// A file, and a block of it.
type BlockId = (u64, usize);

/// The cached chunks of one shard's files.
#[derive(Debug)]
pub(crate) struct ScanCache {
    /// The limit of blocks and chunks together.
    bytes_max: usize,
    /// Memory of blocks.
    blocks_bytes: AtomicUsize,
    /// Memory of chunks, updated at the end of each use of the lock.
    bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    chunks: Mutex<Chunks>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// By file and first block. Chunks of a file do not overlap.
    by_block: BTreeMap<BlockId, ScanCacheEntry>,
    /// Ordered by the number of the read that used the chunk last.
    by_use: BTreeMap<u64, BlockId>,
    bytes: usize,
    /// The number of reads so far.
    reads: u64,
}

#[derive(Debug)]
struct ScanCacheEntry {
    end: usize,
    bytes: Bytes,
    used: u64,
}

impl Chunks {
    /// Returns the chunk that contains this block.
    fn find(&mut self, file: u64, block: usize) -> Option<Chunk> {
        self.reads += 1;
        let (id, entry) = self.by_block.range_mut(..=(file, block)).next_back()?;
        if id.0 != file || entry.end <= block {
            return None;
        }
        self.by_use.remove(&entry.used);
        entry.used = self.reads;
        self.by_use.insert(self.reads, *id);
        Some((id.1..entry.end, entry.bytes.clone()))
    }

    /// Returns the first block at or after this one with which a chunk starts.
    fn next(&self, file: u64, block: usize) -> Option<usize> {
        let (id, _) = self.by_block.range((file, block)..).next()?;
        (id.0 == file).then_some(id.1)
    }

    fn overlaps(&self, file: u64, blocks: &Range<usize>) -> bool {
        let before = self.by_block.range(..(file, blocks.end)).next_back();
        before.is_some_and(|(id, entry)| id.0 == file && entry.end > blocks.start)
    }

    fn insert(&mut self, file: u64, blocks: Range<usize>, bytes: Bytes) {
        self.reads += 1;
        self.bytes += bytes.len();
        let id = (file, blocks.start);
        self.by_use.insert(self.reads, id);
        self.by_block.insert(id, ScanCacheEntry { end: blocks.end, bytes, used: self.reads });
    }

    /// Removes the least recently used chunk, unless a read used it since read number `before`.
    fn take_oldest(&mut self, before: u64) -> Option<Bytes> {
        let (used, id) = self.by_use.first_key_value().map(|(used, id)| (*used, *id))?;
        (used < before).then(|| self.remove(used, id))
    }

    /// Removes the oldest chunks, at most `chunks_max`, until no more than `limit` bytes are left.
    fn take_above(&mut self, limit: usize, chunks_max: usize) -> Vec<Bytes> {
        let mut out = Vec::new();
        while self.bytes > limit && out.len() < chunks_max {
            out.extend(self.take_oldest(u64::MAX));
        }
        out
    }

    fn take_of(&mut self, file: u64, chunks_max: usize) -> Vec<Bytes> {
        let of_file = self.by_block.range((file, 0)..=(file, usize::MAX)).take(chunks_max);
        let of_file: Vec<(u64, BlockId)> = of_file.map(|(id, entry)| (entry.used, *id)).collect();
        of_file.into_iter().map(|(used, id)| self.remove(used, id)).collect()
    }

    fn remove(&mut self, used: u64, id: BlockId) -> Bytes {
        self.by_use.remove(&used);
        let entry = self.by_block.remove(&id).expect("both maps have the same chunks");
        self.bytes -= entry.bytes.len();
        entry.bytes
    }
}

impl ScanCache {
    /// Creates a cache. `bytes_max` includes the memory of blocks.
    pub(crate) fn new(bytes_max: usize) -> ScanCache {
        ScanCache {
            bytes_max,
            blocks_bytes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            chunks: Mutex::default(),
        }
    }

    /// Returns the bytes of cached chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the number of reads that found their chunk here, and of those that did not.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    fn limit(&self) -> usize {
        self.bytes_max.saturating_sub(self.blocks_bytes.load(Relaxed))
    }

    /// Locks, on heavy lanes. A poisoned lock is used: a panic happens only between two operations,
    /// and each leaves both maps consistent.
    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to lock, on the fast lane, which must not wait.
    fn try_lock(&self) -> Option<MutexGuard<'_, Chunks>> {
        match self.chunks.try_lock() {
            Ok(chunks) => Some(chunks),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Heavy lanes: returns the chunk with this block. Otherwise the block at which a read should
    /// end because the next chunk starts there.
    pub(crate) fn find(&self, file: u64, block: usize) -> Result<Chunk, Option<usize>> {
        let mut chunks = self.lock();
        let found = chunks.find(file, block);
        let count = if found.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Relaxed);
        found.ok_or_else(|| chunks.next(file, block))
    }

    /// Heavy lanes: caches a chunk, if there is free space.
    pub(crate) fn keep(&self, file: u64, (blocks, bytes): Chunk) {
        let bytes = if bytes.len() < COPIED_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes };
        let limit = self.limit();
        let mut chunks = self.lock();
        let mut out = chunks.take_above(limit, usize::MAX);
        // Another scan may have cached the same blocks meanwhile.
        if bytes.len() <= limit && !chunks.overlaps(file, &blocks) {
            let stay_from = chunks.reads.saturating_sub(STAY_FACTOR * chunks.by_block.len() as u64);
            while chunks.bytes + bytes.len() > limit {
                let Some(oldest) = chunks.take_oldest(stay_from) else { break };
                out.push(oldest);
            }
            if chunks.bytes + bytes.len() <= limit {
                chunks.insert(file, blocks, bytes);
            }
        }
        self.unlock(chunks, out);
    }

    /// Releases the lock before it frees the removed chunks.
    fn unlock(&self, chunks: MutexGuard<'_, Chunks>, out: Vec<Bytes>) {
        self.bytes.store(chunks.bytes, Relaxed);
        drop(chunks);
        drop(out);
    }

    /// Fast lane: sets the memory of blocks, and evicts chunks for them. If a heavy lane holds the
    /// lock, the next call of this or [`Self::keep`] evicts.
    pub(crate) fn set_blocks(&self, blocks_bytes: usize) {
        self.blocks_bytes.store(blocks_bytes, Relaxed);
        let limit = self.limit();
        if self.bytes() <= limit {
            return;
        }
        if let Some(mut chunks) = self.try_lock() {
            let out = chunks.take_above(limit, CHUNKS_FREED_MAX);
            self.unlock(chunks, out);
        }
    }

    /// Fast lane: removes some chunks of a deleted file. Returns true if none is left, and false if
    /// a heavy lane holds the lock.
    pub(crate) fn forget_some(&self, file: u64) -> bool {
        let Some(mut chunks) = self.try_lock() else { return false };
        let out = chunks.take_of(file, CHUNKS_FREED_MAX);
        let is_gone = out.len() < CHUNKS_FREED_MAX;
        self.unlock(chunks, out);
        is_gone
    }

    /// Heavy lanes: removes the chunks of a file after a failed check, in case only the cached
    /// bytes are damaged.
    pub(crate) fn forget(&self, file: u64) {
        let mut chunks = self.lock();
        let out = chunks.take_of(file, usize::MAX);
        self.unlock(chunks, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1000;

    /// Scans blocks of a file like [`ReadAhead`](crate::table::read_ahead::ReadAhead), in chunks of
    /// two blocks and 100 bytes. Returns the number of chunks found.
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
    fn cached_chunk_is_found_from_any_of_its_blocks() {
        let cache = ScanCache::new(ROOM);
        assert_eq!(scan(&cache, 1, 4..12), 0);
        assert_eq!(scan(&cache, 1, 4..12), 4);
        assert_eq!(scan(&cache, 1, 7..12), 3, "the first of them from its second block on");
        assert_eq!(scan(&cache, 2, 4..6), 0, "another file");
        // Two new chunks before, of which one ends where the next cached one starts. Nothing is
        // cached twice.
        assert_eq!(scan(&cache, 1, 1..12), 4);
        assert_eq!(cache.bytes(), 4 * 100 + 100 + 100 + 50);
        assert_eq!(cache.lookups(), (4 + 3 + 4, 4 + 1 + 2));
    }

    #[test]
    fn cyclic_scan_larger_than_the_cache_finds_what_fits() {
        let cache = ScanCache::new(ROOM);
        for round in 0..5 {
            let found = scan(&cache, 1, 0..60);
            assert_eq!(found, if round == 0 { 0 } else { 10 }, "thirty chunks, of which ten stay");
        }
        // A scan that is far too large finds nothing, and does not evict other chunks for long.
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
    fn blocks_evict_chunks() {
        let cache = ScanCache::new(ROOM);
        scan(&cache, 1, 0..20);
        assert_eq!(cache.bytes(), ROOM);
        for blocks in 1..=10 {
            cache.set_blocks(blocks * 100);
            assert_eq!(cache.bytes(), ROOM - blocks * 100);
        }
        assert_eq!(scan(&cache, 1, 0..20), 0);
        assert_eq!(cache.bytes(), 0, "no free space");
        cache.set_blocks(600);
        scan(&cache, 1, 0..20);
        assert_eq!((scan(&cache, 1, 0..20), cache.bytes()), (4, 400));
    }

    #[test]
    fn file_is_forgotten_unless_the_lock_is_held() {
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
        assert!(!cache.forget_some(3), "it has more chunks than are freed at a time");
        assert!(cache.forget_some(3));
    }

    #[test]
    fn next_scan_evicts_the_chunks_that_blocks_displace() {
        let cache = ScanCache::new(ROOM);
        for block in 0..100 {
            cache.keep(1, (block..block + 1, vec![0; 10].into()));
        }
        assert_eq!(cache.bytes(), ROOM);
        cache.set_blocks(900);
        assert_eq!(cache.bytes(), ROOM - 10 * CHUNKS_FREED_MAX, "CHUNKS_FREED_MAX chunks at a time");
        // No more blocks arrive. The next scan evicts the rest, although its own chunk does not
        // fit.
        cache.keep(2, (0..1, vec![0; 200].into()));
        assert_eq!(cache.bytes(), 100);
    }
}
