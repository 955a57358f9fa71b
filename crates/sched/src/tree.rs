//! One core's groups as a tree, and the choice among them: hierarchical weighted fair sharing by
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
//!    reached. A child that is owed its minimum goes first (`minimum.rs`).
//! 2. *Charge*: the CPU time it used moves its clock and that of every ancestor below the root,
//!    each by time ÷ shares.
//! 3. *Wake*: a node that becomes eligible stands at max(own, parent's virtual time − credit), and
//!    so does every ancestor that becomes eligible through it. Its lag before that, up to a bound,
//!    pays for half of its next charges.
//!
//! A parent's virtual time is the clock of its least eligible child, and never goes back. It is
//! brought up to date before each change among the children: a group that wakes while another runs
//! must not be placed by where the core stood before that one was picked, or the runner's use of
//! idle time would be held against it.
//!
//! A piece that overran its slice needs no rule: its group's clock stands that much further on, and
//! the others run until theirs have caught up.

use crate::heap::{Entry, Heap, NOWHERE, Positions};
use crate::minimum::{Minimums, WHOLE_PPM};
use crate::policy::Policy;
use crate::recently_active::RecentlyActive;
use crate::virtual_time::{CHARGE_MIN_NS, Class, Clock, SHARES_MAX, SHARES_MIN};

/// Slice while no other latency-sensitive group waits, ns. A hand-over between lanes and back costs
/// about 17 µs: 3.4 %.
pub const SLICE_NS: u64 = 500_000;
/// Slice while a latency-sensitive group is waiting or may wake, ns: the bound on a fast-lane
/// piece.
pub const LATENCY_SLICE_NS: u64 = 50_000;

/// Index of a node in one tree (a group on one core). Slots are re-used after removal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Entitlement of a node among its siblings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Weight among siblings, [`SHARES_MIN`]..=[`SHARES_MAX`].
    pub shares: u32,
    /// Wake-up credit, lag, and slice length.
    pub class: Class,
    /// Served first, in millionths of what its parent's children use together; 0 for none. See
    /// `minimum.rs`.
    pub min_ppm: u32,
}

impl NodeSpec {
    /// Without a minimum.
    #[must_use]
    pub const fn new(shares: u32, class: Class) -> NodeSpec {
        NodeSpec { shares, class, min_ppm: 0 }
    }
}

/// Numbers kept for every node, 64 bytes: one cache line.
#[derive(Debug)]
struct Node {
    clock: Clock,
    /// Virtual time among this node's children.
    now: u128,
    parent: u32,
    /// Where this node stands in its parent's heap; in a heap if and only if eligible.
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

/// One core's groups. See the head of this file for the rules.
#[derive(Debug)]
pub struct Tree {
    policy: Policy,
    nodes: Vec<Node>,
    /// By node: its eligible children.
    heaps: Vec<Heap>,
    minimums: Minimums,
    free: Vec<u32>,
    eligible_leaves: u32,
    eligible_latency_leaves: u32,
    /// All CPU time charged so far, ns: the clock of `recently_active`.
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

    /// Bytes kept for each node, beside the allocator's and growth slack: the node, its heap, its
    /// entry in its parent's.
    pub const NODE_BYTES: usize = size_of::<Node>() + size_of::<Heap>() + size_of::<Entry>();

    /// A tree of a root only.
    #[must_use]
    pub fn new() -> Tree {
        Tree::with_policy(Policy::DEFAULT)
    }

    /// A tree of a root only, under this policy.
    #[must_use]
    pub fn with_policy(policy: Policy) -> Tree {
        let root = Node::new(ROOT, 0, 1, Class::Normal, 0);
        Tree {
            policy,
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

    /// A new child of `parent`, idle, owed nothing. Asserts that `parent` exists and is not itself
    /// awake or throttled (work is at the leaves only), and that the shares are in range.
    pub fn add(&mut self, parent: NodeId, spec: NodeSpec) -> NodeId {
        let shares = shares_of(spec);
        let above = &mut self.nodes[parent.0 as usize];
        assert!(above.live && !above.awake && !above.throttled, "{parent:?} cannot take children");
        above.children += 1;
        above.clock.lag_ns = 0;
        let (depth, siblings) = (above.depth + 1, above.children as usize);
        let now = self.catch_up(parent.0);
        self.heaps[parent.0 as usize].make_room(siblings);
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

    /// Removes a leaf, made idle first. Asserts that it is neither the root nor a parent.
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

    /// Changes shares, class and minimum at once, also of a node that is waiting. Its debt or
    /// credit stays the same CPU time. Asserts that the node exists, is not the root, and that the
    /// shares are in range.
    pub fn set(&mut self, node: NodeId, spec: NodeSpec) {
        let shares = shares_of(spec);
        let old = self.live(node);
        assert!(node != Tree::ROOT, "the root has no siblings");
        let (parent, position, before, class) = (old.parent, old.position, old.shares, old.class);
        let leaf = old.children == 0;
        self.minimums.set(parent, node.0, spec.min_ppm, position != NOWHERE);
        let now = self.catch_up(parent);
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

    /// The leaf has runnable work. Does nothing if it already had.
    pub fn wake(&mut self, leaf: NodeId) {
        self.leaf_mut(leaf).awake = true;
        self.enter(leaf.0);
    }

    /// The leaf has no runnable work. Does nothing if it had none.
    pub fn idle(&mut self, leaf: NodeId) {
        let node = self.leaf_mut(leaf);
        if !node.awake {
            return;
        }
        node.awake = false;
        if node.class != Class::Batch {
            self.recently_active.idle(leaf.0, self.charged_ns, self.policy.recently_active_ns);
        }
        self.leave(leaf.0);
    }

    /// Returns whether the leaf has runnable work, throttled or not.
    #[must_use]
    pub fn is_awake(&self, leaf: NodeId) -> bool {
        self.live(leaf).awake
    }

    /// Returns whether the leaf may be picked: it is awake and not throttled.
    #[must_use]
    pub fn is_eligible(&self, leaf: NodeId) -> bool {
        self.live(leaf).position != NOWHERE
    }

    /// While on, the leaf is not picked although awake. Switched off, an awake leaf is treated as
    /// one that wakes.
    pub fn throttle(&mut self, leaf: NodeId, on: bool) {
        self.leaf_mut(leaf).throttled = on;
        if on { self.leave(leaf.0) } else { self.enter(leaf.0) }
    }

    /// Returns whether the leaf is throttled.
    #[must_use]
    pub fn is_throttled(&self, leaf: NodeId) -> bool {
        self.live(leaf).throttled
    }

    /// The eligible leaf that is owed the most. It stays where it is: charge it after it ran.
    #[must_use]
    pub fn pick(&self) -> Option<NodeId> {
        let mut node = self.first(ROOT)?;
        while let Some(first) = self.first(node) {
            node = first;
        }
        Some(NodeId(node))
    }

    /// The child whose turn it is: one that is owed its minimum, else the one with the least
    /// virtual time.
    fn first(&self, parent: u32) -> Option<u32> {
        if self.minimums.any()
            && let Some(owed) = self.minimums.first(parent)
        {
            return Some(owed);
        }
        self.heaps[parent as usize].least().map(|least| least.node)
    }

    /// Returns whether `candidate` would be picked before `running` as both stand now: compared
    /// where their paths meet. True if only `candidate` is eligible. What `running` used since it
    /// was picked counts only once it has been charged.
    #[must_use]
    pub fn precedes(&self, candidate: NodeId, running: NodeId) -> bool {
        let (mut a, mut b) = (candidate.0, running.0);
        if a == b || !self.is_eligible(candidate) {
            return false;
        }
        if !self.is_eligible(running) {
            return true;
        }
        while self.nodes[a as usize].parent != self.nodes[b as usize].parent {
            let (over_a, over_b) = (self.nodes[a as usize].depth, self.nodes[b as usize].depth);
            if over_a >= over_b {
                a = self.nodes[a as usize].parent;
            }
            if over_b >= over_a {
                b = self.nodes[b as usize].parent;
            }
        }
        let parent = self.nodes[a as usize].parent;
        let turn = |at: u32| match self.minimums.owed(parent, at) {
            Some(paid) => (false, paid, at),
            None => (true, self.nodes[at as usize].clock.time, at),
        };
        turn(a) < turn(b)
    }

    /// Returns the lag (ns) that a node repays beside its siblings; 0 above leaves.
    #[must_use]
    pub fn lag_ns(&self, node: NodeId) -> u64 {
        self.live(node).clock.lag_ns.into()
    }

    /// Charges a dispatch: the measured CPU time, at least [`CHARGE_MIN_NS`], to the leaf and all
    /// above it. Also right for a leaf that was idle or not picked: it is charged from where it
    /// would have woken.
    pub fn charge(&mut self, leaf: NodeId, ran_ns: u64) {
        self.charge_exact(leaf, ran_ns.max(CHARGE_MIN_NS));
    }

    /// Charges time that is not a dispatch (the rest of a piece charged before, kernel work found
    /// later): no minimum.
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
        let now = self.catch_up(parent);
        let node = &mut self.nodes[at as usize];
        if node.position == NOWHERE {
            node.wake(now, &self.policy);
        }
        node.clock.advance(ran_ns, node.shares.into());
        let (position, time) = (node.position, node.clock.time);
        if position != NOWHERE {
            self.heaps[parent as usize].update(position, time, &mut self.nodes);
        }
        self.catch_up(parent);
    }

    /// Returns the length of the picked leaf's slice, ns: [`LATENCY_SLICE_NS`] while a
    /// latency leaf is eligible and not alone, else [`SLICE_NS`].
    #[must_use]
    pub fn slice_ns(&self) -> u64 {
        let contended = self.eligible_latency_leaves > 0 && self.eligible_leaves > 1;
        if contended { self.policy.latency_slice_ns } else { self.policy.slice_ns }
    }

    /// Returns how long `running` may run before the next poll, ns: [`LATENCY_SLICE_NS`] while
    /// another latency leaf is eligible, or another leaf that is no batch leaf went idle within the
    /// last [`crate::RECENTLY_ACTIVE_NS`] of CPU time: its next event should be found soon. Else
    /// [`SLICE_NS`]. Only work that keeps the lane from seeing events needs this; a lane that
    /// sleeps in its poller sees them anyway.
    #[must_use]
    pub fn poll_ns(&self, running: NodeId) -> u64 {
        let node = self.live(running);
        let own = u32::from(node.position != NOWHERE && node.class == Class::Latency);
        let waiting = self.eligible_latency_leaves > own;
        let active = self.recently_active.any_beside(running.0, self.charged_ns);
        if waiting || active { self.policy.latency_slice_ns } else { self.policy.slice_ns }
    }

    /// Leaves that are eligible.
    #[must_use]
    pub fn eligible(&self) -> u32 {
        self.eligible_leaves
    }

    /// Returns whether a leaf other than `leaf` is eligible.
    #[must_use]
    pub fn backlogged_beside(&self, leaf: NodeId) -> bool {
        self.eligible_leaves > u32::from(self.is_eligible(leaf))
    }

    /// Puts an eligible leaf, and every ancestor that becomes eligible with it, where the wake-up
    /// rule says.
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
            let now = self.catch_up(parent);
            let node = &mut self.nodes[at as usize];
            node.wake(now, &self.policy);
            let entry = Entry { time: node.clock.time, node: at };
            self.heaps[parent as usize].insert(entry, &mut self.nodes);
            self.minimums.enter(parent, at);
            at = parent;
        }
    }

    /// Takes a leaf, and every ancestor left without eligible children, out of the running. Clocks
    /// stay as they are.
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
            self.catch_up(parent);
            self.heaps[parent as usize].remove(position, &mut self.nodes);
            self.minimums.leave(parent, at);
            at = parent;
        }
    }

    /// Virtual time among the children of `parent`: at least the least of the eligible ones.
    fn catch_up(&mut self, parent: u32) -> u128 {
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
    /// The wake-up rule. Only leaves repay lag: `system` would on behalf of flushes, whose class
    /// renounces it.
    fn wake(&mut self, now: u128, policy: &Policy) {
        let Node { class, shares, children, .. } = *self;
        let lag_max_ns = if children == 0 { policy.lag_max_ns(class) } else { 0 };
        self.clock.wake(now, policy.credit_ns(class), lag_max_ns, shares.into());
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
    fn a_level_takes_as_many_bytes_as_the_documentation_says() {
        assert_eq!(size_of::<Node>(), 64, "one cache line");
        assert_eq!((size_of::<Heap>(), size_of::<Entry>()), (24, 32));
        assert_eq!(Tree::NODE_BYTES, 120);
        let stated = include_str!("../../../docs/scheduler.md");
        assert!(stated.contains("120 bytes"), "docs/scheduler.md states the bytes of a level");
    }

    #[test]
    fn running_allocates_nothing() {
        let mut tree = Tree::new();
        let spec = NodeSpec::new(10, Class::Normal);
        let leaves: Vec<NodeId> = (0..300).map(|_| tree.add(Tree::ROOT, spec)).collect();
        let room = tree.heaps[0].room();
        for round in 0..20 {
            leaves.iter().for_each(|&leaf| tree.wake(leaf));
            (0..500).for_each(|n| tree.charge(tree.pick().expect("all are awake"), n));
            leaves.iter().skip(round).for_each(|&leaf| tree.idle(leaf));
        }
        assert_eq!(tree.heaps[0].room(), room);
    }
}
