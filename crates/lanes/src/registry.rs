//! Registry of all groups of the server: their specifications, the state of their CPU and I/O
//! budgets, and their usage on each core. Every thread reads it without a lock, except for I/O
//! limits. A group's id is a slot and a generation, so that a dropped group is never taken for its
//! successor in the slot.
//!
//! ```text
//!   Group = generation (12 bits) │ slot (20 bits)        chunk k holds 64·2^k slots, made when first needed
//! ```
#![expect(unsafe_code, reason = "chunks of slots behind atomic pointers, freed with the registry")]

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sched::{Class, NodeSpec, SHARES_MAX, SHARES_MIN};

use crate::counters::Counters;
use crate::disk::io::bucket::SharedBudget;
use crate::group::NO_GROUP;
use crate::waits::Waits;
use crate::{Group, GroupSpec, Usage};

const SLOT_BITS: u32 = 20;
/// Largest number of groups at a time: about a million.
pub(crate) const GROUPS_MAX: u32 = 1 << SLOT_BITS;
const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = 15;
const _: () = assert!(FIRST_CHUNK as u64 * ((1 << CHUNKS) - 1) >= GROUPS_MAX as u64);
/// Returns the slot of a group's id.
pub(crate) fn slot_of(group: u32) -> usize {
    (group & (GROUPS_MAX - 1)) as usize
}

pub(crate) struct GroupSlot {
    id: AtomicU32,
    parent: AtomicU32,
    shares: AtomicU32,
    class: AtomicU32,
    /// Minimum in millionths; 0: none.
    cpu_min_ppm: AtomicU32,
    /// 0 is no limit.
    cpu_limit_ppm: AtomicU32,
    next_free: AtomicU32,
    /// Number of cores that have not released the dropped group.
    cores_left: AtomicU32,
    /// I/O limit in bytes a second, with the state of its budget, which all cores share. Each new
    /// limit has a budget of its own: a core that learns of it late charges the old one. The lock
    /// is held for a copy, and taken only when a limit is set or a core learns of it.
    io_limit: Mutex<Option<(u64, SharedBudget)>>,
    /// State of the CPU budget, shared by all cores.
    pub(crate) budget: AtomicU64,
    /// First 48 bytes of the name, in words: a reader may meet a writer, and then reads a garbled
    /// name.
    name: [AtomicU64; 6],
    pub(crate) counters: Arc<[Counters]>,
    /// Waits on each core.
    pub(crate) waits: Arc<[Waits]>,
}

pub(crate) struct Registry {
    cores: usize,
    chunks: [AtomicPtr<GroupSlot>; CHUNKS],
    /// Number of slots ever used.
    used: AtomicU32,
    /// Head of the list of free slots: a tag (against ABA) and slot + 1.
    free: AtomicU64,
}

/// Returns the chunk of a slot and the index in it.
fn place(slot: u32) -> (usize, usize) {
    let chunk = (slot / FIRST_CHUNK + 1).ilog2();
    (chunk as usize, (slot - FIRST_CHUNK * ((1 << chunk) - 1)) as usize)
}

fn chunk_len(chunk: usize) -> usize {
    (FIRST_CHUNK as usize) << chunk
}

impl Registry {
    pub(crate) fn new(cores: usize) -> Registry {
        let registry = Registry {
            cores,
            chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS],
            used: AtomicU32::new(0),
            free: AtomicU64::new(0),
        };
        let built_in = [
            (Group::USERS, NO_GROUP, "users", 1000, Class::Normal),
            (Group::SYSTEM, NO_GROUP, "system", 200, Class::Normal),
            (Group::CONTROL, Group::SYSTEM.0, "control", 1000, Class::Latency),
            (Group::LOG, Group::SYSTEM.0, "log", 1000, Class::Latency),
            (Group::FLUSH, Group::SYSTEM.0, "flush", 200, Class::Batch),
            (Group::COMPACTION, Group::SYSTEM.0, "compaction", 100, Class::Batch),
            (Group::DEFAULT, Group::USERS.0, "default", 1000, Class::Normal),
            (Group::DRIVER, Group::USERS.0, "driver", 200, Class::Batch),
            (Group::INDEX, Group::SYSTEM.0, "index", 100, Class::Batch),
        ];
        for (group, parent, name, shares, class) in built_in {
            let made = registry.create(Group(parent), &GroupSpec { class, ..GroupSpec::new(name, shares) });
            assert_eq!(made, Some(group));
        }
        registry
    }

    /// Creates a group. `None`: there are [`GROUPS_MAX`] groups already.
    pub(crate) fn create(&self, parent: Group, spec: &GroupSpec) -> Option<Group> {
        let (slot_number, id) = match self.pop_free() {
            Some(slot) => {
                let before = self.slot(slot).parent.load(Relaxed); // the last id, kept here while the slot is free
                (slot, slot | ((before >> SLOT_BITS).wrapping_add(1) << SLOT_BITS))
            }
            None => {
                let slot = self
                    .used
                    .fetch_update(Relaxed, Relaxed, |used| (used < GROUPS_MAX - 1).then_some(used + 1));
                let slot = slot.ok()?;
                (slot, slot)
            }
        };
        let slot = self.slot(slot_number);
        slot.parent.store(parent.0, Relaxed);
        slot.budget.store(0, Relaxed);
        *slot.io_limit() = None;
        slot.counters.iter().for_each(Counters::reset);
        slot.waits.iter().for_each(Waits::reset);
        slot.describe(spec);
        slot.id.store(id, Release);
        Some(Group(id))
    }

    /// Returns the slot of an existing group.
    pub(crate) fn get(&self, group: Group) -> Option<&GroupSlot> {
        let slot_number = slot_of(group.0) as u32;
        if slot_number >= self.used.load(Acquire) {
            return None;
        }
        let slot = self.slot(slot_number);
        (slot.id.load(SeqCst) == group.0).then_some(slot)
    }

    /// Returns the slot of a dropped group, valid until all cores have released it.
    pub(crate) fn dropped_slot(&self, group: Group) -> &GroupSlot {
        self.slot(slot_of(group.0) as u32)
    }

    /// Returns the counters of the group that is now in the slot, for each core.
    pub(crate) fn counters(&self, slot: usize) -> &[Counters] {
        &self.slot(slot as u32).counters
    }

    /// Drops a group. Returns true if it existed.
    pub(crate) fn drop_group(&self, group: Group) -> bool {
        let Some(slot) = self.get(group) else { return false };
        if slot.id.compare_exchange(group.0, NO_GROUP, SeqCst, Relaxed).is_err() {
            return false;
        }
        slot.parent.store(group.0, Relaxed);
        slot.cores_left.store(self.cores as u32, Release);
        true
    }

    /// Releases a dropped group on one core. The last core frees its slot.
    pub(crate) fn release_from_core(&self, group: Group) {
        let slot_number = slot_of(group.0) as u32;
        if self.slot(slot_number).cores_left.fetch_sub(1, AcqRel) == 1 {
            self.push_free(slot_number);
        }
    }

    pub(crate) fn usage(&self, group: Group, core: Option<usize>) -> Usage {
        let mut sum = Usage::default();
        let Some(slot) = self.get(group) else { return sum };
        for (index, counters) in slot.counters.iter().enumerate() {
            if core.is_none_or(|core| core == index) {
                counters.add_to(&mut sum);
            }
        }
        sum
    }

    /// Returns the waits of a group on all cores, ns, with each group once; [`NO_GROUP`] for
    /// others.
    pub(crate) fn waited_for(&self, group: Group) -> BTreeMap<u32, u64> {
        let mut sums = BTreeMap::new();
        let all = self.get(group).into_iter().flat_map(|slot| slot.waits.iter().flat_map(Waits::all));
        all.for_each(|(runner, ns)| *sums.entry(runner).or_default() += ns);
        sums
    }

    fn slot(&self, slot: u32) -> &GroupSlot {
        let (chunk, at) = place(slot);
        let mut first = self.chunks[chunk].load(Acquire);
        if first.is_null() {
            first = self.make_chunk(chunk);
        }
        // SAFETY: a chunk holds `chunk_len` slots from `first` on, `at` is below that, and chunks
        // live as long as `self`.
        unsafe { &*first.add(at) }
    }

    #[cold]
    fn make_chunk(&self, chunk: usize) -> *mut GroupSlot {
        let slots: Box<[GroupSlot]> = (0..chunk_len(chunk)).map(|_| GroupSlot::new(self.cores)).collect();
        let made = Box::into_raw(slots).cast::<GroupSlot>();
        match self.chunks[chunk].compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(others) => {
                free_chunk(made, chunk);
                others
            }
        }
    }

    fn push_free(&self, slot: u32) {
        let _ = self.free.fetch_update(AcqRel, Acquire, |head| {
            self.slot(slot).next_free.store(head as u32, Relaxed);
            Some(((head >> 32) + 1) << 32 | u64::from(slot + 1))
        });
    }

    fn pop_free(&self) -> Option<u32> {
        let popped = self.free.fetch_update(AcqRel, Acquire, |head| {
            let slot = (head as u32).checked_sub(1)?;
            let next = self.slot(slot).next_free.load(Relaxed);
            Some(((head >> 32) + 1) << 32 | u64::from(next))
        });
        popped.ok().map(|head| head as u32 - 1)
    }
}

fn free_chunk(first: *mut GroupSlot, chunk: usize) {
    // SAFETY: made by `make_chunk` from a boxed slice of this length, and not used any more.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, chunk_len(chunk))) });
}

impl Drop for Registry {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            let first = first.load(Acquire);
            if !first.is_null() {
                free_chunk(first, chunk);
            }
        }
    }
}

impl GroupSlot {
    fn new(cores: usize) -> GroupSlot {
        GroupSlot {
            id: AtomicU32::new(NO_GROUP),
            parent: AtomicU32::new(NO_GROUP),
            shares: AtomicU32::new(1),
            class: AtomicU32::new(0),
            cpu_min_ppm: AtomicU32::new(0),
            cpu_limit_ppm: AtomicU32::new(0),
            next_free: AtomicU32::new(0),
            cores_left: AtomicU32::new(0),
            io_limit: Mutex::new(None),
            budget: AtomicU64::new(0),
            name: [const { AtomicU64::new(0) }; 6],
            counters: (0..cores).map(|_| Counters::default()).collect(),
            waits: (0..cores).map(|_| Waits::default()).collect(),
        }
    }

    /// Stores a specification, clamped to its bounds.
    pub(crate) fn describe(&self, spec: &GroupSpec) {
        self.shares.store(spec.shares.clamp(SHARES_MIN, SHARES_MAX), Relaxed);
        self.class.store(spec.class as u32, Relaxed);
        self.cpu_min_ppm.store(spec.cpu_min_ppm.min(1_000_000), Relaxed);
        self.cpu_limit_ppm.store(spec.cpu_limit_ppm.map_or(0, |ppm| ppm.max(1)), Relaxed);
        let mut io_limit = self.io_limit();
        let rate = spec.io_limit.map(|limit| limit.max(1));
        if io_limit.as_ref().map(|(old, _)| *old) != rate {
            *io_limit = rate.map(|rate| (rate, SharedBudget::default()));
        }
        drop(io_limit);
        let mut bytes = [0; 48];
        let name = spec.name.as_bytes();
        let kept = name.len().min(bytes.len());
        bytes[..kept].copy_from_slice(&name[..kept]);
        for (word, bytes) in self.name.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
    }

    pub(crate) fn shares(&self) -> u32 {
        self.shares.load(Relaxed)
    }

    pub(crate) fn parent(&self) -> Group {
        Group(self.parent.load(Relaxed))
    }

    /// Returns its entitlement at the disk, where there are no minimums.
    pub(crate) fn disk_spec(&self) -> NodeSpec {
        let class = match self.class.load(Relaxed) {
            class if class == Class::Latency as u32 => Class::Latency,
            class if class == Class::Batch as u32 => Class::Batch,
            _ => Class::Normal,
        };
        NodeSpec::new(self.shares.load(Relaxed), class)
    }

    /// Returns its entitlement to CPU.
    pub(crate) fn cpu_spec(&self) -> NodeSpec {
        NodeSpec { min_ppm: self.cpu_min_ppm.load(Relaxed), ..self.disk_spec() }
    }

    pub(crate) fn cpu_limit_ppm(&self) -> u32 {
        self.cpu_limit_ppm.load(Relaxed)
    }

    /// Returns the I/O limit in bytes a second, and its budget.
    pub(crate) fn io_limit(&self) -> MutexGuard<'_, Option<(u64, SharedBudget)>> {
        self.io_limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self) -> String {
        let bytes: Vec<u8> = self.name.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_place_of_its_own() {
        assert_eq!(place(0), (0, 0));
        assert_eq!(place(63), (0, 63));
        assert_eq!(place(64), (1, 0));
        assert_eq!(place(191), (1, 127));
        assert_eq!(place(192), (2, 0));
        let (chunk, at) = place(GROUPS_MAX - 1);
        assert!(chunk < CHUNKS && at < chunk_len(chunk));
    }

    #[test]
    fn dropped_group_is_not_taken_for_its_successor() {
        let registry = Registry::new(2);
        let spec = GroupSpec::new("olap", 5000);
        let first = registry.create(Group::USERS, &spec).unwrap();
        assert_eq!(registry.get(first).unwrap().cpu_spec().shares, SHARES_MAX);
        assert_eq!(registry.get(first).unwrap().name(), "olap");
        assert!(registry.drop_group(first) && !registry.drop_group(first));
        registry.release_from_core(first);
        let third = registry.create(Group::USERS, &spec).unwrap();
        assert_ne!(slot_of(first.0), slot_of(third.0), "one core has not released it");
        registry.release_from_core(first);
        let second = registry.create(Group::USERS, &spec).unwrap();
        assert_eq!(slot_of(first.0), slot_of(second.0));
        assert!(first != second && registry.get(first).is_none() && registry.get(second).is_some());
        let many: Vec<Group> = (0..500).map(|_| registry.create(Group::USERS, &spec).unwrap()).collect();
        assert!(
            many.iter().all(|&group| registry.get(group).is_some_and(|slot| slot.parent() == Group::USERS))
        );
    }
}
