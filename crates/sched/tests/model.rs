//! Comparison of the tree with a model without heaps, counts and caches, which visits every node
//! for every answer. Random histories contain every operation. After each step every answer must
//! agree.

mod common;

use std::collections::BTreeMap;

use common::config;
use proptest::prelude::*;
use sched::{
    CHARGE_MIN_NS, Class, LAG_NS_MAX, LATENCY_SLICE_NS, NodeId, NodeSpec, RECENTLY_ACTIVE_NS, SLICE_NS, Tree,
};

const UNIT: u128 = 1024;

/// Node whose clocks follow their definition: the point where they were last placed, and all
/// charges since.
#[derive(Debug)]
struct Node {
    parent: NodeId,
    spec: NodeSpec,
    put_at: u128,
    charged_ns: u128,
    /// Lag, ns. It pays for half of each charge.
    lag_ns: u128,
    /// Point where the clock of its minimum was last placed.
    paid_at: u128,
    paid_ns: u128,
    /// CPU charged to its children while any of them had a minimum, ns.
    used_ns: u128,
    /// Virtual time among its children.
    now: u128,
    awake: bool,
    throttled: bool,
    active_until_ns: u64,
}

#[derive(Default)]
struct Model {
    nodes: BTreeMap<NodeId, Node>,
    /// Virtual time among the root's children.
    root_now: u128,
    root_used_ns: u128,
    charged_ns: u64,
    /// Latest CPU total until which a leaf counts as active that was removed or became a batch
    /// leaf.
    gone_until_ns: u64,
}

impl Node {
    fn time(&self) -> u128 {
        self.put_at + self.charged_ns * UNIT / u128::from(self.spec.shares)
    }

    fn put(&mut self, time: u128) {
        (self.put_at, self.charged_ns) = (time, 0);
    }

    /// Returns the point up to which it has had its minimum, as CPU time of its parent.
    fn paid(&self) -> u128 {
        self.paid_at + self.paid_ns * UNIT / u128::from(self.spec.min_ppm)
    }

    fn put_paid(&mut self, time: u128) {
        (self.paid_at, self.paid_ns) = (time, 0);
    }
}

impl Model {
    fn children(&self, parent: NodeId) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.parent == parent).map(|(&id, _)| id).collect()
    }

    fn is_leaf(&self, id: NodeId) -> bool {
        id != Tree::ROOT && self.children(id).is_empty()
    }

    fn eligible(&self, id: NodeId) -> bool {
        match self.children(id) {
            none if none.is_empty() => self.nodes[&id].awake && !self.nodes[&id].throttled,
            below => below.iter().any(|&child| self.eligible(child)),
        }
    }

    fn least(&self, parent: NodeId) -> Option<NodeId> {
        let eligible = self.children(parent).into_iter().filter(|&child| self.eligible(child));
        eligible.min_by_key(|child| (self.nodes[child].time(), *child))
    }

    /// Returns the order among siblings, least first: nodes that lag behind a minimum, then
    /// all others by virtual time.
    fn order(&self, id: NodeId) -> (bool, u128, NodeId) {
        let node = &self.nodes[&id];
        let lags = self.eligible(id) && node.spec.min_ppm > 0 && node.paid() <= self.used(node.parent);
        (!lags, if lags { node.paid() } else { node.time() }, id)
    }

    fn first(&self, parent: NodeId) -> Option<NodeId> {
        let eligible = self.children(parent).into_iter().filter(|&child| self.eligible(child));
        eligible.min_by_key(|&child| self.order(child))
    }

    fn pick(&self) -> Option<NodeId> {
        let mut at = self.first(Tree::ROOT)?;
        while let Some(below) = self.first(at) {
            at = below;
        }
        Some(at)
    }

    /// Returns the path from the root's child down to the node.
    fn path(&self, id: NodeId) -> Vec<NodeId> {
        let mut path: Vec<NodeId> =
            std::iter::successors(Some(id), |at| self.nodes.get(at).map(|node| node.parent))
                .take_while(|&at| at != Tree::ROOT)
                .collect();
        path.reverse();
        path
    }

    fn precedes(&self, candidate: NodeId, running: NodeId) -> bool {
        if candidate == running || !self.eligible(candidate) || !self.eligible(running) {
            return candidate != running && self.eligible(candidate);
        }
        let (ours, theirs) = (self.path(candidate), self.path(running));
        let (a, b) = ours.iter().zip(&theirs).find(|(a, b)| a != b).expect("leaves differ");
        self.order(*a) < self.order(*b)
    }

    fn used(&self, parent: NodeId) -> u128 {
        let used_ns = if parent == Tree::ROOT { self.root_used_ns } else { self.nodes[&parent].used_ns };
        used_ns * UNIT / 1_000_000
    }

    /// Adds a charge of a child to the CPU that its minimums count.
    fn add_used(&mut self, parent: NodeId, ns: u64) {
        if self.children(parent).iter().any(|child| self.nodes[child].spec.min_ppm > 0) {
            match self.nodes.get_mut(&parent) {
                Some(node) => node.used_ns += u128::from(ns),
                None => self.root_used_ns += u128::from(ns),
            }
        }
    }

    fn now(&self, parent: NodeId) -> u128 {
        if parent == Tree::ROOT { self.root_now } else { self.nodes[&parent].now }
    }

    /// Updates virtual time after each step: the clock of the least eligible child, never going
    /// back.
    fn update_virtual_time(&mut self) {
        let parents: Vec<NodeId> = std::iter::once(Tree::ROOT).chain(self.nodes.keys().copied()).collect();
        for parent in parents {
            let least = self.least(parent).map_or(0, |least| self.nodes[&least].time());
            let now = self.now(parent).max(least);
            match self.nodes.get_mut(&parent) {
                Some(node) => node.now = now,
                None => self.root_now = now,
            }
        }
    }

    fn wake(&mut self, id: NodeId) {
        let (now, leaf) = (self.now(self.nodes[&id].parent), self.is_leaf(id));
        let node = self.nodes.get_mut(&id).unwrap();
        let credit = if node.spec.class == Class::Batch { 0 } else { u128::from(SLICE_NS) };
        let floor = now.saturating_sub(credit * UNIT / u128::from(node.spec.shares));
        if node.time() < floor {
            let lag_ns = node.lag_ns + (floor - node.time()) * u128::from(node.spec.shares) / UNIT;
            let longest = if node.spec.class == Class::Batch || !leaf { 0 } else { LAG_NS_MAX };
            node.lag_ns = lag_ns.min(longest.into());
            node.put(floor);
        }
    }

    fn wake_minimum(&mut self, id: NodeId) {
        let used = self.used(self.nodes[&id].parent);
        self.wake_minimum_at(id, used);
    }

    fn wake_minimum_at(&mut self, id: NodeId, used: u128) {
        let node = self.nodes.get_mut(&id).unwrap();
        if node.spec.min_ppm > 0 {
            let floor = used.saturating_sub(u128::from(SLICE_NS) * UNIT / u128::from(node.spec.min_ppm));
            if node.paid() < floor {
                node.put_paid(floor);
            }
        }
    }

    /// Changes the flags of a leaf, and applies the wake-up rule to every node on its path that
    /// becomes eligible.
    fn change(&mut self, leaf: NodeId, change: impl FnOnce(&mut Node)) {
        let before: Vec<NodeId> = self.path(leaf).into_iter().filter(|&at| !self.eligible(at)).collect();
        change(self.nodes.get_mut(&leaf).unwrap());
        for at in before {
            if self.eligible(at) {
                self.wake(at);
                self.wake_minimum(at);
            }
        }
    }

    fn idle(&mut self, leaf: NodeId) {
        let until = self.charged_ns + RECENTLY_ACTIVE_NS;
        let node = &self.nodes[&leaf];
        let was_active = node.awake && node.spec.class != Class::Batch;
        self.change(leaf, |node| node.awake = false);
        if was_active {
            self.nodes.get_mut(&leaf).unwrap().active_until_ns = until;
        }
    }

    fn set(&mut self, id: NodeId, spec: NodeSpec) {
        let (now, used) = (self.now(self.nodes[&id].parent), self.used(self.nodes[&id].parent));
        let node = self.nodes.get_mut(&id).unwrap();
        if spec.shares != node.spec.shares {
            node.put(reshared(now, node.time(), node.spec.shares, spec.shares));
        }
        match (node.spec.min_ppm, spec.min_ppm) {
            (before, after) if before == after || after == 0 => {}
            (0, _) => node.put_paid(used),
            (before, after) => node.put_paid(reshared(used, node.paid(), before, after)),
        }
        let gets_minimum = node.spec.min_ppm != spec.min_ppm;
        node.spec = spec;
        if spec.class == Class::Batch {
            node.lag_ns = 0;
            self.gone_until_ns = self.gone_until_ns.max(std::mem::take(&mut node.active_until_ns));
        }
        if gets_minimum && self.eligible(id) {
            self.wake_minimum(id);
        }
    }

    fn charge(&mut self, leaf: NodeId, ns: u64) {
        self.charged_ns += ns;
        for at in self.path(leaf) {
            let parent = self.nodes[&at].parent;
            let used = self.used(parent);
            self.add_used(parent, ns);
            if self.nodes[&at].spec.min_ppm > 0 {
                if !self.eligible(at) {
                    self.wake_minimum_at(at, used);
                }
                let node = self.nodes.get_mut(&at).unwrap();
                if node.paid() <= used {
                    node.paid_ns += u128::from(ns);
                    continue;
                }
            }
            if !self.eligible(at) {
                self.wake(at);
            }
            let node = self.nodes.get_mut(&at).unwrap();
            let repaid_ns = node.lag_ns.min(u128::from(ns / 2));
            node.lag_ns -= repaid_ns;
            node.charged_ns += u128::from(ns) - repaid_ns;
        }
    }

    fn eligible_leaves(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().filter(|&id| self.is_leaf(id) && self.eligible(id)).collect()
    }

    fn slice_ns(&self) -> u64 {
        let eligible = self.eligible_leaves();
        let latency = eligible.iter().any(|id| self.nodes[id].spec.class == Class::Latency);
        if latency && eligible.len() > 1 { LATENCY_SLICE_NS } else { SLICE_NS }
    }

    fn poll_ns(&self, running: NodeId) -> u64 {
        let active = |(&id, node): (&NodeId, &Node)| {
            let waits = node.spec.class == Class::Latency && self.is_leaf(id) && self.eligible(id);
            id != running && (waits || node.active_until_ns > self.charged_ns)
        };
        if self.gone_until_ns > self.charged_ns || self.nodes.iter().any(active) {
            LATENCY_SLICE_NS
        } else {
            SLICE_NS
        }
    }
}

/// Returns a clock as far from `now` in CPU time as before the change of shares.
fn reshared(now: u128, time: u128, from: u32, to: u32) -> u128 {
    let scaled = |distance: u128| distance * u128::from(from) / u128::from(to);
    if time >= now { now + scaled(time - now) } else { now.saturating_sub(scaled(now - time)) }
}

/// Operation on the tree. The first number of each chooses the node, modulo their count.
#[derive(Clone, Debug)]
enum Step {
    Add(usize, NodeSpec),
    Remove(usize),
    Set(usize, NodeSpec),
    Wake(usize),
    Idle(usize),
    Throttle(usize, bool),
    Run(u64),
    Charge(usize, u64),
    ChargeExact(usize, u64),
}

fn spec() -> impl Strategy<Value = NodeSpec> {
    let class = prop_oneof![Just(Class::Latency), Just(Class::Batch), Just(Class::Normal)];
    let shares = prop_oneof![Just(1), Just(1000), Just(7), 1_u32..=1000];
    let min_ppm = prop_oneof![5 => Just(0), 1 => Just(1_000_000), 1 => Just(1), 3 => 0_u32..300_000];
    (shares, class, min_ppm).prop_map(|(shares, class, min_ppm)| NodeSpec { shares, class, min_ppm })
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0_usize..1000;
    let ns = prop_oneof![Just(0), 1_u64..3_000, Just(SLICE_NS), 1_u64..2_000_000, Just(400_000_000)];
    prop_oneof![
        3 => (node.clone(), spec()).prop_map(|(at, spec)| Step::Add(at, spec)),
        1 => node.clone().prop_map(Step::Remove),
        2 => (node.clone(), spec()).prop_map(|(at, spec)| Step::Set(at, spec)),
        6 => node.clone().prop_map(Step::Wake),
        3 => node.clone().prop_map(Step::Idle),
        2 => (node.clone(), any::<bool>()).prop_map(|(at, on)| Step::Throttle(at, on)),
        12 => ns.clone().prop_map(Step::Run),
        1 => (node.clone(), ns.clone()).prop_map(|(at, ns)| Step::Charge(at, ns)),
        1 => (node, ns).prop_map(|(at, ns)| Step::ChargeExact(at, ns)),
    ]
}

fn nth(ids: &[NodeId], n: usize) -> Option<NodeId> {
    (!ids.is_empty()).then(|| ids[n % ids.len()])
}

fn apply(step: &Step, tree: &mut Tree, model: &mut Model) -> Option<()> {
    let all: Vec<NodeId> = model.nodes.keys().copied().collect();
    let leaves: Vec<NodeId> = all.iter().copied().filter(|&id| model.is_leaf(id)).collect();
    match *step {
        Step::Add(at, spec) => {
            let mut parents = vec![Tree::ROOT];
            parents.extend(all.iter().filter(|id| !model.nodes[id].awake && !model.nodes[id].throttled));
            let parent = nth(&parents, at)?;
            let id = tree.add(parent, spec);
            let put_at = model.now(parent);
            let paid_at = model.used(parent);
            let (awake, throttled) = (false, false);
            let charged_ns = 0;
            let lag_ns = 0;
            let paid_ns = 0;
            let used_ns = 0;
            let now = 0;
            let active_until_ns = 0;
            let node = Node {
                parent,
                spec,
                put_at,
                charged_ns,
                lag_ns,
                paid_at,
                paid_ns,
                used_ns,
                now,
                awake,
                throttled,
                active_until_ns,
            };
            model.nodes.entry(parent).and_modify(|above| above.lag_ns = 0);
            let taken = model.nodes.insert(id, node);
            assert!(taken.is_none(), "{id:?} given twice");
        }
        Step::Remove(at) => {
            let leaf = nth(&leaves, at)?;
            tree.remove(leaf);
            model.idle(leaf);
            let gone = model.nodes.remove(&leaf).unwrap();
            model.gone_until_ns = model.gone_until_ns.max(gone.active_until_ns);
        }
        Step::Set(at, spec) => {
            let id = nth(&all, at)?;
            tree.set(id, spec);
            model.set(id, spec);
        }
        Step::Wake(at) => {
            let leaf = nth(&leaves, at)?;
            tree.wake(leaf);
            model.change(leaf, |node| node.awake = true);
        }
        Step::Idle(at) => {
            let leaf = nth(&leaves, at)?;
            tree.idle(leaf);
            model.idle(leaf);
        }
        Step::Throttle(at, on) => {
            let leaf = nth(&leaves, at)?;
            tree.throttle(leaf, on);
            model.change(leaf, |node| node.throttled = on);
        }
        Step::Run(ns) => {
            let leaf = tree.pick()?;
            tree.charge(leaf, ns);
            model.charge(leaf, ns.max(CHARGE_MIN_NS));
        }
        Step::Charge(at, ns) => {
            let leaf = nth(&leaves, at)?;
            tree.charge(leaf, ns);
            model.charge(leaf, ns.max(CHARGE_MIN_NS));
        }
        Step::ChargeExact(at, ns) => {
            let leaf = nth(&leaves, at)?;
            tree.charge_exact(leaf, ns);
            model.charge(leaf, ns);
        }
    }
    Some(())
}

fn check_agreement(tree: &Tree, model: &Model) {
    assert_eq!(tree.pick(), model.pick());
    assert_eq!(tree.slice_ns(), model.slice_ns());
    let leaves: Vec<NodeId> = model.nodes.keys().copied().filter(|&id| model.is_leaf(id)).collect();
    let eligible = model.eligible_leaves();
    assert_eq!(tree.eligible() as usize, eligible.len());
    for &leaf in &leaves {
        assert_eq!(tree.is_awake(leaf), model.nodes[&leaf].awake);
        assert_eq!(tree.is_throttled(leaf), model.nodes[&leaf].throttled);
        assert_eq!(tree.backlogged_beside(leaf), eligible.iter().any(|&other| other != leaf));
        assert_eq!(tree.poll_ns(leaf), model.poll_ns(leaf), "{leaf:?}");
        assert_eq!(u128::from(tree.lag_ns(leaf)), model.nodes[&leaf].lag_ns, "{leaf:?}");
        for &other in &leaves {
            assert_eq!(tree.precedes(leaf, other), model.precedes(leaf, other), "{leaf:?} before {other:?}");
        }
    }
    if let Some(picked) = tree.pick() {
        assert!(leaves.iter().all(|&leaf| !tree.precedes(leaf, picked)), "no leaf precedes the picked one");
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn every_answer_agrees_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let (mut tree, mut model) = (Tree::new(), Model::default());
        for step in &steps {
            apply(step, &mut tree, &mut model);
            model.update_virtual_time();
            check_agreement(&tree, &model);
        }
    }
}
