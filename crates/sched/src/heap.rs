//! Eligible children of one node, least virtual time first: a 4-ary heap that reports the position
//! of each child. Moving or removing a child is O(log n), reading the least is O(1). Four children
//! to a heap node halve the depth, and their keys are adjacent (two cache lines). Equal times are
//! ordered by node, so that every history has one outcome.

const ARITY: usize = 4;

/// Position of a node that is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Child with a copy of its virtual time, so that a comparison touches no node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HeapEntry {
    pub(crate) time: u128,
    pub(crate) node: u32,
}

/// Receiver of every move: `(node, position)`.
pub(crate) trait Positions {
    fn moved(&mut self, node: u32, position: u32);
}

#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<HeapEntry>,
}

impl Heap {
    pub(crate) fn least(&self) -> Option<HeapEntry> {
        self.entries.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reserves capacity for `count` children, so that no later `insert` allocates.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count.saturating_sub(self.entries.len()));
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    pub(crate) fn insert(&mut self, entry: HeapEntry, positions: &mut impl Positions) {
        self.entries.push(entry);
        self.up(self.entries.len() - 1, positions);
    }

    pub(crate) fn remove(&mut self, position: u32, positions: &mut impl Positions) {
        let at = position as usize;
        let gone = self.entries.swap_remove(at);
        positions.moved(gone.node, NOWHERE);
        if at < self.entries.len() {
            self.restore_order(at, positions);
        }
    }

    /// Moves the child at `position` to `time`.
    pub(crate) fn update(&mut self, position: u32, time: u128, positions: &mut impl Positions) {
        let at = position as usize;
        let later = time >= self.entries[at].time;
        self.entries[at].time = time;
        if later { self.down(at, positions) } else { self.up(at, positions) }
    }

    fn restore_order(&mut self, at: usize, positions: &mut impl Positions) {
        if at > 0 && self.entries[at] < self.entries[(at - 1) / ARITY] {
            self.up(at, positions);
        } else {
            self.down(at, positions);
        }
    }

    fn up(&mut self, mut at: usize, positions: &mut impl Positions) {
        let entry = self.entries[at];
        while at > 0 {
            let above = (at - 1) / ARITY;
            if self.entries[above] < entry {
                break;
            }
            self.place(at, self.entries[above], positions);
            at = above;
        }
        self.place(at, entry, positions);
    }

    fn down(&mut self, mut at: usize, positions: &mut impl Positions) {
        let entry = self.entries[at];
        loop {
            let first = at * ARITY + 1;
            let below = first..self.entries.len().min(first + ARITY);
            let Some(least) = below.min_by_key(|&child| self.entries[child]) else { break };
            if entry < self.entries[least] {
                break;
            }
            self.place(at, self.entries[least], positions);
            at = least;
        }
        self.place(at, entry, positions);
    }

    fn place(&mut self, at: usize, entry: HeapEntry, positions: &mut impl Positions) {
        self.entries[at] = entry;
        positions.moved(entry.node, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Positions for Vec<u32> {
        fn moved(&mut self, node: u32, position: u32) {
            self[node as usize] = position;
        }
    }

    fn check_in_order(heap: &Heap, positions: &[u32]) {
        for (at, entry) in heap.entries.iter().enumerate() {
            assert_eq!(positions[entry.node as usize], at as u32);
            assert!(at == 0 || heap.entries[(at - 1) / ARITY] < *entry, "position {at}");
        }
    }

    #[test]
    fn order_and_positions_hold_after_random_changes() {
        const CHILDREN: u64 = 400;
        let (mut heap, mut positions) = (Heap::default(), vec![NOWHERE; CHILDREN as usize]);
        let mut random = testkit::Random::new(7);
        for _ in 0..20_000 {
            let (node, time) = (random.below(CHILDREN), u128::from(random.below(1 << 14)));
            let position = positions[node as usize];
            match (position, random.below(4)) {
                (NOWHERE, _) => heap.insert(HeapEntry { time, node: node as u32 }, &mut positions),
                (_, 0) => heap.remove(position, &mut positions),
                _ => heap.update(position, time, &mut positions),
            }
            check_in_order(&heap, &positions);
        }
    }
}
