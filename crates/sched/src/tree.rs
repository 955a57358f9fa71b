//! Tree of the groups of one core, and the choice among them: hierarchical weighted fair sharing by
//! virtual time.
//!
//! ```text
//!             root                     shares   virtual time
//!          ┌───┴────┐
//!        users    system                1000 : 200
//!       ┌──┴──┐    ┌─┴──┐
//!     oltp  olap  log  flush            1000 : 10
//! ```
//!
//! 1. *Pick*: from the root, go to the eligible child with the least virtual time, until a leaf is
//!    reached. A child that lags behind its minimum goes first (`minimum.rs`).
//! 2. *Charge*: the CPU time used moves the clock of the leaf and of every ancestor below the root,
//!    each by time ÷ shares.
//! 3. *Wake*: a node that becomes eligible starts at max(own, parent's virtual time − credit), and
//!    so does every ancestor that becomes eligible with it. Its lag before that, up to a bound,
//!    pays for half of its next charges.
//!
//! The virtual time of a parent is the clock of its least eligible child, and never goes back. It
//! is brought up to date before each change among the children. Otherwise a group that wakes while
//! another runs would start where the core stood before that slice, and the use of idle time would
//! become debt.
//!
//! A task poll that overruns its slice needs no rule. The clock of its group is ahead by the
//! overrun, and the others run until their clocks have reached it.

use crate::heap::{Heap, HeapEntry, NOWHERE, Positions};
use crate::minimum::{Minimums, WHOLE_PPM};
use crate::recently_active::RecentlyActive;
use crate::virtual_time::{CHARGE_MIN_NS, Class, Clock, LATENCY_SLICE_NS, SHARES_MAX, SHARES_MIN, SLICE_NS};

/// Index of a node in one tree (a group on one core). Slots are reused after removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Entitlement of a node among its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Weight among siblings, [`SHARES_MIN`]..=[`SHARES_MAX`].
    pub shares: u32,
    /// Wake-up credit, lag, and slice length.
    pub class: Class,
    /// Minimum, served first, in millionths of the CPU that the children of its parent use
    /// together; 0 for none. See `minimum.rs`.
    pub min_ppm: u32,
}

impl NodeSpec {
    /// Returns a specification without a minimum.
    #[must_use]
    pub const fn new(shares: u32, class: Class) -> NodeSpec {
        NodeSpec { shares, class, min_ppm: 0 }
    }
}

/// State of a node, 64 bytes: one cache line.
#[derive(Debug)]
struct Node {
    clock: Clock,
    /// Virtual time among this node's children.
    now: u128,
    parent: u32,
    /// Position in the heap of the parent, or [`NOWHERE`] unless eligible.
    position: u32,
    children: u32,
    depth: u16,
    shares: u16,
    class: Class,
    live: bool,
    /// Leaves only: has runnable work.
    awake: bool,
    /// Leaves only: may not run although awake.
    throttled: bool,
}

impl Positions for Vec<Node> {
    fn moved(&mut self, node: u32, position: u32) {
        self[node as usize].position = position;
    }
}

const ROOT: u32 = 0;

/// Groups of one core. The head of this file gives the rules.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Eligible children of each node.
    heaps: Vec<Heap>,
    minimums: Minimums,
    free: Vec<u32>,
    eligible_leaves: u32,
    eligible_latency_leaves: u32,
    /// CPU time charged so far, ns. It is the clock of `recently_active`.
    charged_ns: u64,
    recently_active: RecentlyActive,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// The root, which stands for the core and cannot be removed.
    pub const ROOT: NodeId = NodeId(ROOT);

    /// Bytes for each node without allocator overhead and growth slack: the node, its heap, its
    /// entry in the heap of its parent.
    pub const NODE_BYTES: usize = size_of::<Node>() + size_of::<Heap>() + size_of::<HeapEntry>();

    /// Creates a tree with only a root.
    #[must_use]
    pub fn new() -> Tree {
        let root = Node::new(ROOT, 0, 1, Class::Normal, 0);
        Tree {
            nodes: vec![root],
            heaps: vec![Heap::default()],
            minimums: Minimums::default(),
            free: Vec::new(),
            eligible_leaves: 0,
            eligible_latency_leaves: 0,
            charged_ns: 0,
            recently_active: RecentlyActive::default(),
        }
    }

    /// Adds an idle child of `parent` without lag. Panics unless `parent` exists, is neither awake
    /// nor throttled itself (only leaves have work), and the shares are in range.
    pub fn add(&mut self, parent: NodeId, spec: NodeSpec) -> NodeId {
        let shares = shares_of(spec);
        let above = &mut self.nodes[parent.0 as usize];
        assert!(above.live && !above.awake && !above.throttled, "{parent:?} cannot take children");
        above.children += 1;
        above.clock.lag_ns = 0;
        let depth = above.depth + 1;
        let siblings = above.children as usize;
        let now = self.update_virtual_time(parent.0);
        self.heaps[parent.0 as usize].reserve(siblings);
        let node = Node::new(parent.0, depth, shares, spec.class, now);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = node;
                slot
            }
            None => {
                self.nodes.push(node);
                self.heaps.push(Heap::default());
                u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes")
            }
        };
        self.minimums.set(parent.0, slot, spec.min_ppm, false);
        NodeId(slot)
    }

    /// Marks a leaf as idle and removes it. Panics on the root and on a node with children.
    pub fn remove(&mut self, node: NodeId) {
        let gone = self.live(node);
        assert!(node != Tree::ROOT && gone.children == 0, "{node:?} is the root or has children");
        let parent = gone.parent;
        self.idle(node);
        self.nodes[parent as usize].children -= 1;
        self.nodes[node.0 as usize].live = false;
        self.heaps[node.0 as usize] = Heap::default();
        self.recently_active.forget(node.0);
        self.minimums.remove(parent, node.0);
        self.free.push(node.0);
    }

    /// Changes shares, class and minimum at once, also of a waiting node. Its debt or credit stays
    /// the same CPU time. Panics on a removed node, on the root, and on shares out of range.
    pub fn set(&mut self, node: NodeId, spec: NodeSpec) {
        let shares = shares_of(spec);
        let old = self.live(node);
        assert!(node != Tree::ROOT, "the root has no siblings");
        let parent = old.parent;
        let position = old.position;
        let before = old.shares;
        let class = old.class;
        let leaf = old.children == 0;
        self.minimums.set(parent, node.0, spec.min_ppm, position != NOWHERE);
        let now = self.update_virtual_time(parent);
        let changed = &mut self.nodes[node.0 as usize];
        changed.shares = shares;
        changed.class = spec.class;
        if shares != before {
            changed.clock.reshare(now, before.into(), shares.into());
            let time = changed.clock.time;
            if position != NOWHERE {
                self.heaps[parent as usize].update(position, time, &mut self.nodes);
            }
        }
        if leaf && position != NOWHERE {
            self.eligible_latency_leaves -= u32::from(class == Class::Latency);
            self.eligible_latency_leaves += u32::from(spec.class == Class::Latency);
        }
        if spec.class == Class::Batch {
            self.nodes[node.0 as usize].clock.lag_ns = 0;
            self.recently_active.forget(node.0);
        }
    }

    /// Marks the leaf as having runnable work. Does nothing if it already had some.
    pub fn wake(&mut self, leaf: NodeId) {
        self.leaf_mut(leaf).awake = true;
        self.enter(leaf.0);
    }

    /// Marks the leaf as having no runnable work. Does nothing if it had none.
    pub fn idle(&mut self, leaf: NodeId) {
        let node = self.leaf_mut(leaf);
        if !node.awake {
            return;
        }
        node.awake = false;
        if node.class != Class::Batch {
            self.recently_active.idle(leaf.0, self.charged_ns);
        }
        self.leave(leaf.0);
    }

    /// Returns true if the leaf has runnable work, throttled or not.
    #[must_use]
    pub fn is_awake(&self, leaf: NodeId) -> bool {
        self.live(leaf).awake
    }

    /// Returns true if the leaf may be picked: it is awake and not throttled.
    #[must_use]
    pub fn is_eligible(&self, leaf: NodeId) -> bool {
        self.live(leaf).position != NOWHERE
    }

    /// Throttles a leaf: it is not picked although awake. Switching this off treats an awake leaf
    /// as one that wakes.
    pub fn throttle(&mut self, leaf: NodeId, on: bool) {
        self.leaf_mut(leaf).throttled = on;
        if on { self.leave(leaf.0) } else { self.enter(leaf.0) }
    }

    /// Returns true if the leaf is throttled.
    #[must_use]
    pub fn is_throttled(&self, leaf: NodeId) -> bool {
        self.live(leaf).throttled
    }

    /// Returns the eligible leaf that runs next. Does not move its clock: charge the leaf after it
    /// ran.
    #[must_use]
    pub fn pick(&self) -> Option<NodeId> {
        let mut node = self.first(ROOT)?;
        while let Some(first) = self.first(node) {
            node = first;
        }
        Some(NodeId(node))
    }

    /// Returns the child that runs next: one that lags behind its minimum, else that with the least
    /// virtual time.
    fn first(&self, parent: u32) -> Option<u32> {
        if self.minimums.any()
            && let Some(lagging) = self.minimums.first(parent)
        {
            return Some(lagging);
        }
        self.heaps[parent as usize].least().map(|least| least.node)
    }

    /// Returns true if `candidate` would be picked before `running`, comparing clocks where their
    /// paths meet. True if only `candidate` is eligible. CPU time that `running` used since its
    /// pick counts only once it has been charged.
    #[must_use]
    pub fn precedes(&self, candidate: NodeId, running: NodeId) -> bool {
        let mut a = candidate.0;
        let mut b = running.0;
        if a == b || !self.is_eligible(candidate) {
            return false;
        }
        if !self.is_eligible(running) {
            return true;
        }
        while self.nodes[a as usize].parent != self.nodes[b as usize].parent {
            let over_a = self.nodes[a as usize].depth;
            let over_b = self.nodes[b as usize].depth;
            if over_a >= over_b {
                a = self.nodes[a as usize].parent;
            }
            if over_b >= over_a {
                b = self.nodes[b as usize].parent;
            }
        }
        let parent = self.nodes[a as usize].parent;
        let order = |at: u32| match self.minimums.lagging(parent, at) {
            Some(paid) => (false, paid, at),
            None => (true, self.nodes[at as usize].clock.time, at),
        };
        order(a) < order(b)
    }

    /// Returns the lag (ns) that a node repays to its siblings; 0 above leaves.
    #[must_use]
    pub fn lag_ns(&self, node: NodeId) -> u64 {
        self.live(node).clock.lag_ns.into()
    }

    /// Charges the CPU time of a slice, at least [`CHARGE_MIN_NS`], to the leaf and all its
    /// ancestors. A leaf that was idle or not picked is charged from where it would have woken.
    pub fn charge(&mut self, leaf: NodeId, ran_ns: u64) {
        self.charge_exact(leaf, ran_ns.max(CHARGE_MIN_NS));
    }

    /// Charges time that was not a slice, without the minimum charge: the rest of a task poll
    /// charged before, or kernel work found later.
    pub fn charge_exact(&mut self, leaf: NodeId, ran_ns: u64) {
        assert!(self.live(leaf).children == 0, "{leaf:?} is not a leaf");
        self.charged_ns = self.charged_ns.saturating_add(ran_ns);
        let mut at = leaf.0;
        while at != ROOT {
            let parent = self.nodes[at as usize].parent;
            if !(self.minimums.any() && self.minimums.pays(parent, at, ran_ns)) {
                self.charge_shares(at, parent, ran_ns);
            }
            at = parent;
        }
    }

    fn charge_shares(&mut self, at: u32, parent: u32, ran_ns: u64) {
        let now = self.update_virtual_time(parent);
        let node = &mut self.nodes[at as usize];
        if node.position == NOWHERE {
            node.wake(now);
        }
        node.clock.advance(ran_ns, node.shares.into());
        let position = node.position;
        let time = node.clock.time;
        if position != NOWHERE {
            self.heaps[parent as usize].update(position, time, &mut self.nodes);
        }
        self.update_virtual_time(parent);
    }

    /// Returns the slice length of the picked leaf, ns: [`LATENCY_SLICE_NS`] while a
    /// latency-class leaf is eligible alongside others, else [`SLICE_NS`].
    #[must_use]
    pub fn slice_ns(&self) -> u64 {
        let contended = self.eligible_latency_leaves > 0 && self.eligible_leaves > 1;
        if contended { LATENCY_SLICE_NS } else { SLICE_NS }
    }

    /// Returns the time that `running` may run before the next poll, ns. It is
    /// [`LATENCY_SLICE_NS`] while another latency-class leaf is eligible, and while another
    /// leaf, not of the batch class, is recently active ([`crate::RECENTLY_ACTIVE_NS`]), since its
    /// next event should be found soon. Otherwise it is [`SLICE_NS`]. Only work that keeps
    /// the lane from polling needs this: a lane that sleeps in its poller sees events at once.
    #[must_use]
    pub fn poll_ns(&self, running: NodeId) -> u64 {
        let node = self.live(running);
        let own = u32::from(node.position != NOWHERE && node.class == Class::Latency);
        let waiting = self.eligible_latency_leaves > own;
        let active = self.recently_active.any_beside(running.0, self.charged_ns);
        if waiting || active { LATENCY_SLICE_NS } else { SLICE_NS }
    }

    /// Returns the number of eligible leaves.
    #[must_use]
    pub fn eligible(&self) -> u32 {
        self.eligible_leaves
    }

    /// Returns true if a leaf other than `leaf` is eligible.
    #[must_use]
    pub fn backlogged_beside(&self, leaf: NodeId) -> bool {
        self.eligible_leaves > u32::from(self.is_eligible(leaf))
    }

    /// Makes a leaf eligible, and every ancestor with it, at the clock that the wake-up rule gives.
    fn enter(&mut self, leaf: u32) {
        let node = &self.nodes[leaf as usize];
        if !node.awake || node.throttled || node.position != NOWHERE {
            return;
        }
        self.eligible_leaves += 1;
        self.eligible_latency_leaves += u32::from(node.class == Class::Latency);
        let mut at = leaf;
        while at != ROOT && self.nodes[at as usize].position == NOWHERE {
            let parent = self.nodes[at as usize].parent;
            let now = self.update_virtual_time(parent);
            let node = &mut self.nodes[at as usize];
            node.wake(now);
            let entry = HeapEntry { time: node.clock.time, node: at };
            self.heaps[parent as usize].insert(entry, &mut self.nodes);
            self.minimums.enter(parent, at);
            at = parent;
        }
    }

    /// Makes a leaf ineligible, and every ancestor without eligible children. Their clocks stay.
    fn leave(&mut self, leaf: u32) {
        let node = &self.nodes[leaf as usize];
        if node.position == NOWHERE {
            return;
        }
        self.eligible_leaves -= 1;
        self.eligible_latency_leaves -= u32::from(node.class == Class::Latency);
        let mut at = leaf;
        while at != ROOT && self.heaps[at as usize].is_empty() {
            let Node { parent, position, .. } = self.nodes[at as usize];
            self.update_virtual_time(parent);
            self.heaps[parent as usize].remove(position, &mut self.nodes);
            self.minimums.leave(parent, at);
            at = parent;
        }
    }

    /// Updates and returns the virtual time among the children of `parent`: at least the least
    /// clock of the eligible ones.
    fn update_virtual_time(&mut self, parent: u32) -> u128 {
        let least = self.heaps[parent as usize].least().map_or(0, |entry| entry.time);
        let above = &mut self.nodes[parent as usize];
        above.now = above.now.max(least);
        above.now
    }

    fn live(&self, node: NodeId) -> &Node {
        let found = &self.nodes[node.0 as usize];
        assert!(found.live, "{node:?} was removed");
        found
    }

    fn leaf_mut(&mut self, leaf: NodeId) -> &mut Node {
        let found = &mut self.nodes[leaf.0 as usize];
        assert!(found.live && found.children == 0 && leaf.0 != ROOT, "{leaf:?} is not a leaf");
        found
    }
}

impl Node {
    /// Applies the wake-up rule. Only leaves repay lag: `system` would repay it to flushes, whose
    /// class has none.
    fn wake(&mut self, now: u128) {
        let Node { class, shares, children, .. } = *self;
        let lag_max_ns = if children == 0 { class.lag_max_ns() } else { 0 };
        self.clock.wake(now, class.credit_ns(), lag_max_ns, shares.into());
    }

    fn new(parent: u32, depth: u16, shares: u16, class: Class, time: u128) -> Node {
        Node {
            clock: Clock::at(time),
            now: 0,
            parent,
            position: NOWHERE,
            children: 0,
            depth,
            shares,
            class,
            live: true,
            awake: false,
            throttled: false,
        }
    }
}

fn shares_of(spec: NodeSpec) -> u16 {
    assert!((SHARES_MIN..=SHARES_MAX).contains(&spec.shares), "shares {} out of range", spec.shares);
    assert!(spec.min_ppm <= WHOLE_PPM, "a minimum of {} millionths is more than all", spec.min_ppm);
    spec.shares as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn node_size_matches_the_documentation() {
        assert_eq!(size_of::<Node>(), 64, "one cache line");
        assert_eq!((size_of::<Heap>(), size_of::<HeapEntry>()), (24, 32));
        assert_eq!(Tree::NODE_BYTES, 120);
        let documented = include_str!("../../../docs/scheduler.md");
        assert!(documented.contains("120 bytes"), "docs/scheduler.md states the bytes of a level");
    }

    #[test]
    fn pick_charge_wake_and_idle_do_not_allocate() {
        let mut tree = Tree::new();
        let spec = NodeSpec::new(10, Class::Normal);
        let leaves: Vec<NodeId> = (0..300).map(|_| tree.add(Tree::ROOT, spec)).collect();
        let capacity = tree.heaps[0].capacity();
        for round in 0..20 {
            leaves.iter().for_each(|&leaf| tree.wake(leaf));
            (0..500).for_each(|n| tree.charge(tree.pick().expect("all are awake"), n));
            leaves.iter().skip(round).for_each(|&leaf| tree.idle(leaf));
        }
        assert_eq!(tree.heaps[0].capacity(), capacity);
    }
}
