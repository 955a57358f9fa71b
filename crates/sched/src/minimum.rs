//! Minimum of a node: the part of its parent's CPU that is *served first; the rest goes by shares*.
//! Each node with a minimum has a second clock. It counts not the CPU of the node but that of its
//! parent: the point up to which the node has had its minimum.
//!
//! ```text
//!            paid               used
//!   ──────────●───────────────────┼───────────●────────▶ CPU used by all children of the parent
//!             └── lag: this far × minimum     └ paid: has had its minimum, and more is by shares
//! ```
//!
//! 1. *Pick*: an eligible child that is not ahead of `used` goes before all children that go by
//!    shares. Of several, the one furthest behind goes first.
//! 2. *Charge*: `used` moves by the time. If the charged child was not ahead, its `paid` moves by
//!    time ÷ minimum, and its clock of virtual time stays. So the minimum comes on top of its
//!    shares. If it was ahead, its clock of virtual time moves, as that of any child.
//! 3. *Wake*: a child that becomes eligible starts at max(own, `used` − [`SAVED_NS_MAX`] ÷
//!    minimum). While eligible it loses nothing.
//!
//! Both are the clocks of [`crate::virtual_time`], with millionths of the parent's CPU for shares.
//! A slice that overran moved `paid` that much further. The child repays it by waiting until it is
//! next by shares.
//!
//! Sums above the whole are not rejected here. Children with minimums then divide the parent's CPU
//! by them, and the others get nothing. The caller keeps the sum below.

use crate::heap::{Heap, HeapEntry, NOWHERE, Positions};
use crate::virtual_time::SLICE_NS;
use crate::virtual_time::{CHARGE_MIN_NS, Clock, UNITS_LOG2};

/// CPU of a parent, in millionths.
pub(crate) const WHOLE_PPM: u32 = 1_000_000;
const _: () = assert!(CHARGE_MIN_NS << UNITS_LOG2 >= WHOLE_PPM as u64, "a charge must move every clock");

/// Most that a node may have saved up of its minimum when it wakes, ns. It is the credit of shares,
/// and for every class, since the user asked for the minimum.
pub(crate) const SAVED_NS_MAX: u64 = SLICE_NS;

/// Minimum of a node as a child. A node that is only a parent has an unused one.
#[derive(Debug)]
struct ChildState {
    /// The minimum in millionths; 0 for none.
    ppm: u32,
    /// Position in the heap of siblings with a minimum, or [`NOWHERE`] unless eligible.
    position: u32,
    paid: Clock,
}

/// State of a parent for the minimums of its children.
#[derive(Debug, Default)]
struct ParentState {
    /// CPU charged to its children while any of them had a minimum, in units at [`WHOLE_PPM`].
    used: Clock,
    /// Number of children with a minimum.
    children: u32,
    /// The eligible children with a minimum, by `paid`.
    waiting: Heap,
}

/// Minimums of one tree. Nodes without a minimum, and without children that have one, have no entry
/// here.
#[derive(Debug, Default)]
pub(crate) struct Minimums {
    /// Number of nodes with a minimum.
    count: u32,
    /// Index of each node's entry, up to the last node that has one.
    entries: Vec<u32>,
    children: Vec<ChildState>,
    /// Parallel to `children`.
    parents: Vec<ParentState>,
    free: Vec<u32>,
}

/// Receiver of positions from the heap.
struct Places<'a> {
    entries: &'a [u32],
    children: &'a mut [ChildState],
}

impl Positions for Places<'_> {
    fn moved(&mut self, node: u32, position: u32) {
        self.children[self.entries[node as usize] as usize].position = position;
    }
}

impl Minimums {
    /// Returns true if any node has a minimum. Trees without minimums pay only for this check.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Returns the minimum of a node, 0 for none.
    pub(crate) fn of(&self, node: u32) -> u32 {
        self.entry(node).map_or(0, |at| self.children[at].ppm)
    }

    /// Returns the eligible child that lags behind its minimum, of several the one furthest behind.
    pub(crate) fn first(&self, parent: u32) -> Option<u32> {
        let above = &self.parents[self.entry(parent)?];
        above.waiting.least().filter(|least| least.time <= above.used.time).map(|least| least.node)
    }

    /// Returns the `paid` clock of an eligible child that lags behind its minimum. The least is
    /// served first.
    pub(crate) fn lagging(&self, parent: u32, child: u32) -> Option<u128> {
        let above = &self.parents[self.entry(parent)?];
        let part = &self.children[self.entry(child)?];
        (part.position != NOWHERE && part.paid.time <= above.used.time).then_some(part.paid.time)
    }

    /// Charges a child of the parent. Returns true if its minimum pays for the charge.
    pub(crate) fn pays(&mut self, parent: u32, child: u32, ns: u64) -> bool {
        let Some(above) = self.entry(parent).filter(|&above| self.parents[above].children > 0) else {
            return false;
        };
        let used = self.parents[above].used.time;
        self.parents[above].used.advance(ns, WHOLE_PPM);
        let Some(own) = self.entry(child).filter(|&own| self.children[own].ppm > 0) else { return false };
        let ChildState { ppm, position, ref mut paid } = self.children[own];
        if position == NOWHERE {
            paid.wake(used, SAVED_NS_MAX, 0, ppm);
        }
        if paid.time > used {
            return false;
        }
        paid.advance(ns, ppm);
        if position != NOWHERE {
            let time = paid.time;
            let mut places = Places { entries: &self.entries, children: &mut self.children };
            self.parents[above].waiting.update(position, time, &mut places);
        }
        true
    }

    /// Adds a child that became eligible.
    pub(crate) fn enter(&mut self, parent: u32, child: u32) {
        if self.of(child) == 0 {
            return;
        }
        let above = self.entry_of(parent);
        let own = self.entry_of(child);
        let used = self.parents[above].used.time;
        let part = &mut self.children[own];
        part.paid.wake(used, SAVED_NS_MAX, 0, part.ppm);
        let entry = HeapEntry { time: part.paid.time, node: child };
        let mut places = Places { entries: &self.entries, children: &mut self.children };
        self.parents[above].waiting.insert(entry, &mut places);
    }

    /// Removes a child that is no longer eligible.
    pub(crate) fn leave(&mut self, parent: u32, child: u32) {
        let Some(own) = self.entry(child) else { return };
        let position = self.children[own].position;
        if position != NOWHERE {
            let above = self.entry_of(parent);
            let mut places = Places { entries: &self.entries, children: &mut self.children };
            self.parents[above].waiting.remove(position, &mut places);
        }
    }

    /// Sets, changes or removes (0) the minimum of a child. Its distance to `used` stays the same
    /// CPU time.
    pub(crate) fn set(&mut self, parent: u32, child: u32, ppm: u32, eligible: bool) {
        let before = self.of(child);
        if ppm == before {
            return;
        }
        self.leave(parent, child);
        let above = self.make(parent);
        let own = self.make(child);
        let above = &mut self.parents[above];
        let part = &mut self.children[own];
        part.ppm = ppm;
        if ppm == 0 {
            above.children -= 1;
            self.count -= 1;
            return;
        }
        if before == 0 {
            part.paid = Clock::at(above.used.time);
            above.children += 1;
            above.waiting.reserve(above.children as usize);
            self.count += 1;
        } else {
            part.paid.reshare(above.used.time, before, ppm);
        }
        if eligible {
            self.enter(parent, child);
        }
    }

    /// Removes a child that has no children itself.
    pub(crate) fn remove(&mut self, parent: u32, child: u32) {
        let Some(own) = self.entry(child) else { return };
        self.set(parent, child, 0, false);
        self.entries[child as usize] = NOWHERE;
        self.free.push(own as u32);
    }

    fn entry(&self, node: u32) -> Option<usize> {
        self.entries.get(node as usize).filter(|&&entry| entry != NOWHERE).map(|&entry| entry as usize)
    }

    fn entry_of(&self, node: u32) -> usize {
        self.entry(node).expect("a node with a minimum and its parent have entries")
    }

    fn make(&mut self, node: u32) -> usize {
        if let Some(there) = self.entry(node) {
            return there;
        }
        if self.entries.len() <= node as usize {
            self.entries.resize(node as usize + 1, NOWHERE);
        }
        let part = ChildState { ppm: 0, position: NOWHERE, paid: Clock::at(0) };
        let above = ParentState::default();
        let at = match self.free.pop() {
            Some(free) => {
                (self.children[free as usize], self.parents[free as usize]) = (part, above);
                free as usize
            }
            None => {
                self.children.push(part);
                self.parents.push(above);
                self.children.len() - 1
            }
        };
        self.entries[node as usize] = at as u32;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn minimum_size_matches_the_documentation() {
        assert_eq!(size_of::<ChildState>() + size_of::<ParentState>() + size_of::<HeapEntry>(), 120);
        let documented = include_str!("../../../docs/scheduler.md");
        assert!(documented.contains("120 bytes more"), "docs/scheduler.md states the bytes of a minimum");
    }

    #[test]
    fn charges_do_not_allocate_and_slots_are_reused() {
        let mut minimums = Minimums::default();
        for _ in 0..3 {
            (1..=300).for_each(|child| minimums.set(0, child, 1_000, false));
            let capacity = minimums.parents[0].waiting.capacity();
            for _ in 0..5 {
                (1..=300).for_each(|child| minimums.enter(0, child));
                (0..500).for_each(|n| {
                    let child = minimums.first(0).unwrap_or(1);
                    minimums.pays(0, child, n);
                });
                (1..=300).for_each(|child| minimums.leave(0, child));
            }
            assert_eq!(minimums.parents[0].waiting.capacity(), capacity);
            (1..=300).for_each(|child| minimums.remove(0, child));
            assert!(!minimums.any());
            assert_eq!(minimums.parents[0].children, 0, "so that the heap is as large as its children need");
        }
        assert_eq!(minimums.children.len(), 301, "one for each child, and the parent's");
    }
}
