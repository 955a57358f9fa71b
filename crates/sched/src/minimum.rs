//! The least that a node is to have of its parent's CPU: *served first; the rest goes by shares*.
//! It is a second clock for each node that has a minimum, which counts not its own CPU but its
//! parent's: the point up to which it has had its minimum.
//!
//! ```text
//!            paid               used
//!   ──────────●───────────────────┼───────────●────────▶ CPU used by all children of the parent
//!             └── owed: this far × minimum    └ paid: has had its minimum, and more is by shares
//! ```
//!
//! 1. *Pick*: an eligible child that is not ahead of `used` goes before all that go by shares; of
//!    several, the one that is furthest behind.
//! 2. *Charge*: `used` moves by the time. If the charged child was not ahead, its `paid` moves by
//!    time ÷ minimum, and its clock of virtual time stays: so the minimum is on top of its shares.
//!    If it was ahead, its clock moves, as everyone's does.
//! 3. *Wake*: a child that becomes eligible stands at max(own, `used` − [`SAVED_NS_MAX`] ÷
//!    minimum). While eligible it loses nothing.
//!
//! Both are the clocks of [`crate::virtual_time`], with millionths of the parent's CPU for shares.
//! A piece that overran moved `paid` that much further: it is repaid by waiting for one's turn by
//! shares.
//!
//! Sums above the whole are not refused here: those with minimums then divide the parent's CPU by
//! them, and the others get nothing. Who sets them sees to it that they are less.

use crate::heap::{Entry, Heap, NOWHERE, Positions};
use crate::tree::SLICE_NS;
use crate::virtual_time::{CHARGE_MIN_NS, Clock, UNITS_LOG2};

/// All of a parent's CPU, in millionths.
pub(crate) const WHOLE_PPM: u32 = 1_000_000;
const _: () = assert!(CHARGE_MIN_NS << UNITS_LOG2 >= WHOLE_PPM as u64, "a dispatch must move every clock");

/// What a node may have saved up of its minimum when it wakes, ns: as much as of its shares, and
/// for every class, since a minimum is asked for by name.
pub(crate) const SAVED_NS_MAX: u64 = SLICE_NS;

/// A node's part in minimums: as a child that has one, as a parent of such, or both.
#[derive(Debug)]
struct Part {
    /// As a child: 0 for none.
    ppm: u32,
    /// Where it stands among its siblings that have one; in their heap if and only if eligible.
    position: u32,
    paid: Clock,
}

/// What a parent keeps of its children's minimums.
#[derive(Debug, Default)]
struct Fund {
    /// What its children were charged while any of them had one, in units at [`WHOLE_PPM`].
    used: Clock,
    /// Children with a minimum.
    children: u32,
    /// The eligible ones, by `paid`.
    waiting: Heap,
}

/// The minimums of one tree. Nodes without any part in them have no entry here.
#[derive(Debug, Default)]
pub(crate) struct Minimums {
    /// Nodes that have one.
    count: u32,
    /// By node, up to the last that has an entry: where its entry is.
    entries: Vec<u32>,
    parts: Vec<Part>,
    /// Beside `parts`.
    funds: Vec<Fund>,
    free: Vec<u32>,
}

/// Where the heap leaves word.
struct Places<'a> {
    entries: &'a [u32],
    parts: &'a mut [Part],
}

impl Positions for Places<'_> {
    fn moved(&mut self, node: u32, position: u32) {
        self.parts[self.entries[node as usize] as usize].position = position;
    }
}

impl Minimums {
    /// Whether there is any: the one question in the way of those who have none.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// The minimum of a node, 0 for none.
    pub(crate) fn of(&self, node: u32) -> u32 {
        self.entry(node).map_or(0, |at| self.parts[at].ppm)
    }

    /// The eligible child that is owed its minimum, of several the one furthest behind.
    pub(crate) fn first(&self, parent: u32) -> Option<u32> {
        let fund = &self.funds[self.entry(parent)?];
        fund.waiting.least().filter(|least| least.time <= fund.used.time).map(|least| least.node)
    }

    /// Where a child stands that is eligible and owed its minimum: the less, the sooner it is
    /// served.
    pub(crate) fn owed(&self, parent: u32, child: u32) -> Option<u128> {
        let (fund, part) = (&self.funds[self.entry(parent)?], &self.parts[self.entry(child)?]);
        (part.position != NOWHERE && part.paid.time <= fund.used.time).then_some(part.paid.time)
    }

    /// A child of the parent was charged. Whether its minimum pays for it.
    pub(crate) fn pays(&mut self, parent: u32, child: u32, ns: u64) -> bool {
        let Some(fund) = self.entry(parent).filter(|&fund| self.funds[fund].children > 0) else {
            return false;
        };
        let used = self.funds[fund].used.time;
        self.funds[fund].used.advance(ns, WHOLE_PPM);
        let Some(own) = self.entry(child).filter(|&own| self.parts[own].ppm > 0) else { return false };
        let Part { ppm, position, ref mut paid } = self.parts[own];
        if position == NOWHERE {
            paid.wake(used, SAVED_NS_MAX, 0, ppm);
        }
        if paid.time > used {
            return false;
        }
        paid.advance(ns, ppm);
        if position != NOWHERE {
            let time = paid.time;
            let mut places = Places { entries: &self.entries, parts: &mut self.parts };
            self.funds[fund].waiting.update(position, time, &mut places);
        }
        true
    }

    /// The child became eligible.
    pub(crate) fn enter(&mut self, parent: u32, child: u32) {
        if self.of(child) == 0 {
            return;
        }
        let (fund, own) = (self.known(parent), self.known(child));
        let used = self.funds[fund].used.time;
        let part = &mut self.parts[own];
        part.paid.wake(used, SAVED_NS_MAX, 0, part.ppm);
        let entry = Entry { time: part.paid.time, node: child };
        let mut places = Places { entries: &self.entries, parts: &mut self.parts };
        self.funds[fund].waiting.insert(entry, &mut places);
    }

    /// The child is no longer eligible.
    pub(crate) fn leave(&mut self, parent: u32, child: u32) {
        let Some(own) = self.entry(child) else { return };
        let position = self.parts[own].position;
        if position != NOWHERE {
            let fund = self.known(parent);
            let mut places = Places { entries: &self.entries, parts: &mut self.parts };
            self.funds[fund].waiting.remove(position, &mut places);
        }
    }

    /// Gives the child a minimum, another one, or none (0). What it is owed or owes stays the same
    /// CPU time.
    pub(crate) fn set(&mut self, parent: u32, child: u32, ppm: u32, eligible: bool) {
        let before = self.of(child);
        if ppm == before {
            return;
        }
        self.leave(parent, child);
        let (fund, own) = (self.make(parent), self.make(child));
        let (fund, part) = (&mut self.funds[fund], &mut self.parts[own]);
        part.ppm = ppm;
        if ppm == 0 {
            fund.children -= 1;
            self.count -= 1;
            return;
        }
        if before == 0 {
            part.paid = Clock::at(fund.used.time);
            fund.children += 1;
            fund.waiting.make_room(fund.children as usize);
            self.count += 1;
        } else {
            part.paid.reshare(fund.used.time, before, ppm);
        }
        if eligible {
            self.enter(parent, child);
        }
    }

    /// The child is gone; it has no children itself.
    pub(crate) fn remove(&mut self, parent: u32, child: u32) {
        let Some(own) = self.entry(child) else { return };
        self.set(parent, child, 0, false);
        self.entries[child as usize] = NOWHERE;
        self.free.push(own as u32);
    }

    fn entry(&self, node: u32) -> Option<usize> {
        self.entries.get(node as usize).filter(|&&entry| entry != NOWHERE).map(|&entry| entry as usize)
    }

    fn known(&self, node: u32) -> usize {
        self.entry(node).expect("whoever has a minimum has an entry, and so has its parent")
    }

    fn make(&mut self, node: u32) -> usize {
        if let Some(there) = self.entry(node) {
            return there;
        }
        if self.entries.len() <= node as usize {
            self.entries.resize(node as usize + 1, NOWHERE);
        }
        let (part, fund) = (Part { ppm: 0, position: NOWHERE, paid: Clock::at(0) }, Fund::default());
        let at = match self.free.pop() {
            Some(free) => {
                (self.parts[free as usize], self.funds[free as usize]) = (part, fund);
                free as usize
            }
            None => {
                self.parts.push(part);
                self.funds.push(fund);
                self.parts.len() - 1
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
    fn a_minimum_takes_as_many_bytes_as_the_documentation_says() {
        assert_eq!(size_of::<Part>() + size_of::<Fund>() + size_of::<Entry>(), 120);
        let stated = include_str!("../../../docs/scheduler.md");
        assert!(stated.contains("120 bytes more"), "docs/scheduler.md states the bytes of a minimum");
    }

    #[test]
    fn running_allocates_nothing_and_slots_are_used_again() {
        let mut minimums = Minimums::default();
        for _ in 0..3 {
            (1..=300).for_each(|child| minimums.set(0, child, 1_000, false));
            let room = minimums.funds[0].waiting.room();
            for _ in 0..5 {
                (1..=300).for_each(|child| minimums.enter(0, child));
                (0..500).for_each(|n| {
                    let child = minimums.first(0).unwrap_or(1);
                    minimums.pays(0, child, n);
                });
                (1..=300).for_each(|child| minimums.leave(0, child));
            }
            assert_eq!(minimums.funds[0].waiting.room(), room);
            (1..=300).for_each(|child| minimums.remove(0, child));
            assert!(!minimums.any());
        }
        assert_eq!(minimums.parts.len(), 301, "each child's once, and the parent's");
    }
}
