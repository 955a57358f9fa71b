//! S3-FIFO: a queue of cached entries that are evicted in the order in which they came, unless they
//! were used. Most entries of a cache are used once.
//!
//! 1. A new entry joins the *small* queue, which has a tenth of the memory.
//! 2. If it is used again there, it moves to the *main* queue. Otherwise it is evicted, and its
//!    key stays for a while as a *ghost*.
//! 3. An entry whose ghost still exists joins the main queue at once.
//! 4. An entry at the front of the main queue that was used meanwhile goes to the back, not out.
//!
//! A scan of any length therefore passes through the small queue only. A hit increments one
//! counter, where LRU relinks entries.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};

use rustc_hash::{FxBuildHasher, FxHashMap};

/// Uses counted for an entry. More do not change its eviction.
const USES_MAX: u8 = 3;
/// Keys of removed entries that stay in the queues until they are cleared, at least.
const QUEUE_MIN: usize = 64;
/// The small queue has this fraction (1/10) of the memory.
const SMALL_PART: usize = 10;

/// The number of maps of a [`Slots`], a power of two.
const MAPS: usize = 256;

/// A map in parts. A map of a million entries that doubles moves all of them, which holds a core
/// for tens of milliseconds. Here a part does.
#[derive(Debug)]
struct Slots<K, V>(Box<[FxHashMap<K, V>]>);

impl<K: Eq + Hash, V> Slots<K, V> {
    fn new() -> Slots<K, V> {
        Slots((0..MAPS).map(|_| FxHashMap::default()).collect())
    }

    #[inline]
    fn of(&self, key: &K) -> &FxHashMap<K, V> {
        &self.0[place(key)]
    }

    #[inline]
    fn of_mut(&mut self, key: &K) -> &mut FxHashMap<K, V> {
        &mut self.0[place(key)]
    }
}

/// Returns the part of a key, from other bits of its hash than the map uses.
#[inline]
fn place<K: Hash>(key: &K) -> usize {
    (FxBuildHasher.hash_one(key) >> 40) as usize % MAPS
}

/// Entries with their sizes in bytes. Its owner decides when to evict.
#[derive(Debug)]
pub(crate) struct Fifo<K, V> {
    slots: Slots<K, FifoSlot<V>>,
    /// The number of entries.
    len: usize,
    /// Keys with the numbers of their entries, oldest first. Removed entries stay for a while.
    small: VecDeque<(K, u64)>,
    main: VecDeque<(K, u64)>,
    bytes: usize,
    small_bytes: usize,
    /// Keys of evicted entries.
    ghosts: Slots<K, Ghost>,
    ghosts_len: usize,
    /// Latest evictions with their numbers and bytes, oldest first. The ghosts of some may have
    /// become entries again.
    evicted: VecDeque<(K, u64, usize)>,
    evicted_bytes: usize,
    ghost_bytes: usize,
    /// Numbers entries and ghosts.
    number: u64,
}

#[derive(Debug)]
struct FifoSlot<V> {
    value: V,
    number: u64,
    /// The size it was last accounted with.
    bytes: usize,
    uses: u8,
    is_main: bool,
}

#[derive(Debug)]
struct Ghost {
    number: u64,
    bytes: usize,
}

impl<K: Eq + Hash, V> Default for Fifo<K, V> {
    fn default() -> Fifo<K, V> {
        Fifo {
            slots: Slots::new(),
            len: 0,
            small: VecDeque::new(),
            main: VecDeque::new(),
            bytes: 0,
            small_bytes: 0,
            ghosts: Slots::new(),
            ghosts_len: 0,
            evicted: VecDeque::new(),
            evicted_bytes: 0,
            ghost_bytes: 0,
            number: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, V> Fifo<K, V> {
    /// Memory of an entry without its own, bytes: a slot with its places in the map and a queue.
    const SLOT: usize = 2 * (size_of::<K>() + size_of::<FifoSlot<V>>()) + size_of::<(K, u64)>();
    /// Memory of a ghost, bytes.
    const GHOST: usize = 2 * (size_of::<K>() + size_of::<Ghost>());

    /// Returns the memory of the entries, of the queues, and of ghosts, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let evicted = self.evicted.len() * size_of::<(K, u64, usize)>();
        self.bytes + self.ghosts_len * Self::GHOST + evicted
    }

    /// Returns the bytes that the entries of the ghosts had.
    pub(crate) fn ghost_bytes(&self) -> usize {
        self.ghost_bytes
    }

    /// Returns true if there is nothing to evict.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns an entry, and counts the use.
    #[inline]
    pub(crate) fn get(&mut self, key: K, is_wanted: impl FnOnce(&V) -> bool) -> Option<&V> {
        let slot = self.slots.of_mut(&key).get_mut(&key).filter(|slot| is_wanted(&slot.value))?;
        slot.uses = (slot.uses + 1).min(USES_MAX);
        Some(&slot.value)
    }

    /// Returns an entry with the size that it is accounted with, without counting a use.
    #[inline]
    pub(crate) fn peek(&self, key: K) -> Option<(&V, usize)> {
        self.slots.of(&key).get(&key).map(|slot| (&slot.value, slot.bytes - Self::SLOT))
    }

    /// Adds an entry, or replaces it. Returns true if its ghost still existed.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) -> bool {
        let bytes = bytes + Self::SLOT;
        if let Some(slot) = self.slots.of_mut(&key).get_mut(&key) {
            self.bytes = self.bytes - slot.bytes + bytes;
            if !slot.is_main {
                self.small_bytes = self.small_bytes - slot.bytes + bytes;
            }
            (slot.value, slot.bytes) = (value, bytes);
            return false;
        }
        let is_main = self.forget_ghost(key);
        self.number += 1;
        self.len += 1;
        self.slots.of_mut(&key).insert(key, FifoSlot { value, number: self.number, bytes, uses: 0, is_main });
        self.bytes += bytes;
        self.small_bytes += if is_main { 0 } else { bytes };
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.push_back((key, self.number));
        if self.small.len() + self.main.len() > 2 * self.len + QUEUE_MIN {
            let slots = &self.slots;
            let is_there =
                |(key, number): &(K, u64)| slots.of(key).get(key).is_some_and(|slot| slot.number == *number);
            self.small.retain(is_there);
            self.main.retain(is_there);
        }
        is_main
    }

    /// Takes a step of eviction: evicts an entry, or gives one that was used another chance.
    /// A ghost stays until as many bytes as the entries have were evicted after it, at least
    /// `ghosts_min`.
    pub(crate) fn evict(&mut self, ghosts_min: usize) {
        let from_small = self.main.is_empty() || self.small_bytes > self.bytes / SMALL_PART;
        let queue = if from_small && !self.small.is_empty() { &mut self.small } else { &mut self.main };
        let Some((key, number)) = queue.pop_front() else { return };
        let Some(slot) = self.slots.of_mut(&key).get_mut(&key).filter(|slot| slot.number == number) else {
            return;
        };
        if slot.uses > 0 {
            slot.uses -= if slot.is_main { 1 } else { slot.uses };
            if !slot.is_main {
                slot.is_main = true;
                self.small_bytes -= slot.bytes;
            }
            return self.main.push_back((key, number));
        }
        let bytes = slot.bytes;
        self.remove(key);
        self.number += 1;
        self.ghosts_len += 1;
        self.ghosts.of_mut(&key).insert(key, Ghost { number: self.number, bytes });
        self.ghost_bytes += bytes;
        self.evicted.push_back((key, self.number, bytes));
        self.evicted_bytes += bytes;
        while self.evicted_bytes > self.bytes.max(ghosts_min) {
            let Some((oldest, number, bytes)) = self.evicted.pop_front() else { return };
            self.evicted_bytes -= bytes;
            if self.ghosts.of(&oldest).get(&oldest).is_some_and(|ghost| ghost.number == number) {
                self.forget_ghost(oldest);
            }
        }
    }

    fn forget_ghost(&mut self, key: K) -> bool {
        let Some(ghost) = self.ghosts.of_mut(&key).remove(&key) else { return false };
        self.ghosts_len -= 1;
        self.ghost_bytes -= ghost.bytes;
        true
    }

    /// Removes an entry and its ghost.
    pub(crate) fn remove(&mut self, key: K) {
        self.forget_ghost(key);
        if let Some(slot) = self.slots.of_mut(&key).remove(&key) {
            self.len -= 1;
            self.bytes -= slot.bytes;
            self.small_bytes -= if slot.is_main { 0 } else { slot.bytes };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    const SIZE: usize = 1000;

    fn fit(fifo: &mut Fifo<u64, u64>, bytes_max: usize) {
        while fifo.bytes() > bytes_max {
            fifo.evict(0);
        }
    }

    /// Reads a key, and caches it if it was not there. Returns true for a hit.
    fn read(fifo: &mut Fifo<u64, u64>, key: u64, bytes_max: usize) -> bool {
        let hit = fifo.get(key, |value| *value == key).is_some();
        if !hit {
            fifo.insert(key, key, SIZE);
            fit(fifo, bytes_max);
        }
        hit
    }

    #[test]
    fn scan_evicts_nothing_that_is_used() {
        let (mut fifo, bytes_max) = (Fifo::default(), 100 * SIZE);
        for _ in 0..3 {
            (0..50).for_each(|key| _ = read(&mut fifo, key, bytes_max));
        }
        (1000..9000).for_each(|key| _ = read(&mut fifo, key, bytes_max));
        let hits = (0..50).filter(|key| read(&mut fifo, *key, bytes_max)).count();
        assert!(hits >= 45, "{hits} of 50 are still there");
    }

    #[test]
    fn entry_returns_to_the_main_queue_while_its_ghost_exists() {
        let mut fifo = Fifo::default();
        (0..20).for_each(|key| _ = read(&mut fifo, key, 15 * SIZE));
        assert!(!fifo.insert(100, 100, SIZE) && fifo.insert(0, 0, SIZE));
        assert!(fifo.slots.of(&0)[&0].is_main && !fifo.slots.of(&100)[&100].is_main);
    }

    #[test]
    fn ghosts_stay_while_others_come_back() {
        let mut fifo = Fifo::default();
        (0..40).for_each(|key| _ = read(&mut fifo, key, 30 * SIZE));
        let ghosts: Vec<u64> = (0..40).filter(|key| fifo.ghosts.of(key).contains_key(key)).collect();
        let (old, young) = ghosts.split_at(ghosts.len() / 3);
        assert!(old.len() > 3, "{ghosts:?} were evicted");
        young.iter().for_each(|key| assert!(fifo.insert(*key, *key, SIZE), "{key} came back"));
        fifo.evict(0);
        let last = *old.last().expect("there are several");
        assert!(fifo.insert(last, last, SIZE), "one eviction makes no other ghost end");
    }

    #[test]
    fn parts_of_a_map_are_even() {
        fn check<K: Eq + Hash>(name: &str, keys: impl Iterator<Item = K>) {
            let mut slots = Slots::new();
            keys.for_each(|key| _ = slots.of_mut(&key).insert(key, ()));
            let largest = slots.0.iter().map(FxHashMap::len).max();
            assert!(largest < Some(2 * 100_000 / MAPS), "{name}: {largest:?} keys in a part");
        }
        let mut random = Random::new(1);
        check("rows", (0..100_000).map(|_| random.next_u64()));
        check("blocks of ten files", (0..100_000_u64).map(|number| (number % 10, number / 10)));
        check("blocks of many files", (0..100_000_u64).map(|number| (number / 20 * 7, number % 20)));
    }

    #[test]
    fn sums_are_those_of_the_entries() {
        let mut fifo = Fifo::<u64, u64>::default();
        let mut random = Random::new(1);
        for step in 0..20_000 {
            let key = random.skewed(500, 0.9);
            match random.below(10) {
                0 => fifo.remove(key),
                1 => _ = fifo.insert(key, key, random.within(1, 3 * SIZE as u64) as usize),
                _ => _ = read(&mut fifo, key, 60 * SIZE),
            }
            fit(&mut fifo, 60 * SIZE);
            let sum = |is_main: bool| -> usize {
                fifo.slots
                    .0
                    .iter()
                    .flat_map(FxHashMap::values)
                    .filter(|slot| slot.is_main == is_main)
                    .map(|slot| slot.bytes)
                    .sum()
            };
            assert_eq!((fifo.small_bytes, fifo.bytes), (sum(false), sum(false) + sum(true)), "{step}");
            let ghosts = || fifo.ghosts.0.iter().flatten();
            assert_eq!(fifo.ghost_bytes, ghosts().map(|(_, ghost)| ghost.bytes).sum::<usize>());
            assert!(ghosts().all(|(key, _)| !fifo.slots.of(key).contains_key(key)), "{step}");
            let count = |maps: usize| (fifo.len, fifo.ghosts_len) == (maps, ghosts().count());
            assert!(count(fifo.slots.0.iter().map(FxHashMap::len).sum()), "{step}");
            let queued = fifo.small.len() + fifo.main.len();
            assert!(queued <= 2 * fifo.len + QUEUE_MIN, "{queued} keys in the queues");
            let evicted: usize = fifo.evicted.iter().map(|(_, _, bytes)| bytes).sum();
            assert!(fifo.evicted_bytes == evicted && fifo.ghost_bytes <= evicted, "{step}");
        }
    }
}
