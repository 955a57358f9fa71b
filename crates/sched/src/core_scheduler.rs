//! Scheduler of one core: decides which group runs next, on which lane, for how long, and when the
//! core polls the network. It is pure. The caller measures, keeps the run queues, and reports
//! events.
//!
//! ```text
//!   woke(leaf)          ─┐                        ┌─▶ Sleep               no leaf may run
//!   ran(leaf, lane, ns)  ├─▶ CoreScheduler::next ─┼─▶ Run(leaf, slice)    its tasks of the fast lane
//!   polled(cost, found)  │                        ├─▶ Yield(leaf, ns)     the core goes to its heavy work
//!   mark_idle(leaf)     ─┘                        ├─▶ Lease(leaf, ns)     to be taken from the budget of its cap
//!                                                 └─▶ Empty(leaf)         it is to be marked idle
//! ```
//!
//! While heavy work has the core, [`CoreScheduler::preempts`] decides which wake-ups take it back,
//! and [`CoreScheduler::poll_after_ns`] when the network is polled. `docs/scheduler.md` gives the
//! rules and their bounds.

use crate::cap::{self, Cap};
use crate::poll_budget::PollBudget;
use crate::tree::{NodeId, NodeSpec, Tree};
use crate::virtual_time::{LATENCY_SLICE_NS, SLICE_NS};

/// Longest time that the core goes to heavy work while no other leaf is eligible, ns. A leaf that
/// wakes ends it.
const ALONE_NS: u64 = 10_000_000;

/// Fast-lane time of a leaf, while it has heavy work too, after which the heavy work gets the core,
/// ns.
const FAST_BEFORE_HEAVY_NS: u64 = 4 * SLICE_NS;

/// One of the two nodes below the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parent {
    /// Parent of service levels.
    Users,
    /// Parent of the server's own groups.
    System,
}

/// Lane that work runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Short tasks, on the thread that schedules.
    Fast,
    /// Long tasks, on threads that run while that thread sleeps.
    Heavy,
}

/// Entitlement and limit of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpec {
    /// Shares, class and minimum.
    pub node: NodeSpec,
    /// Most CPU, in millionths of all cores; 0 for no limit.
    pub cpu_limit_ppm: u32,
}

/// Ready work of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// On the fast lane.
    pub fast: bool,
    /// On the heavy lane.
    pub heavy: bool,
}

/// Next thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// No leaf may run.
    Sleep,
    /// Run the leaf's fast-lane tasks for at most this long, ns.
    Run(NodeId, u64),
    /// Yield the core to the leaf's heavy work, for at most this long, ns.
    Yield(NodeId, u64),
    /// Take this much CPU, ns, from the budget of the leaf's cap. Then call
    /// [`CoreScheduler::granted`] or [`CoreScheduler::throttle`], and ask again.
    Lease(NodeId, u64),
    /// The leaf has nothing to run: call [`CoreScheduler::mark_idle`], and ask again.
    Empty(NodeId),
}

/// State of the core while heavy work has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Yielded {
    /// The leaf that has it.
    pub leaf: NodeId,
    /// Start of its time, ns.
    pub began_ns: u64,
    /// Latest end of its time, ns.
    pub until_ns: u64,
    /// No other leaf was eligible: one that wakes takes the core back.
    pub alone: bool,
    /// The leaf had no fast-lane work. Fast-lane work of its own takes the core back.
    pub own_preempts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    is_level: bool,
    spec: LeafSpec,
    cap: Cap,
    /// It had heavy work when last checked.
    heavy: bool,
    /// Fast-lane time since its heavy work last ran, ns.
    fast_since_heavy_ns: u64,
}

/// Scheduler of one core. The head of this file gives the rules.
#[derive(Debug)]
pub struct CoreScheduler {
    tree: Tree,
    /// Indexed by node.
    leaves: Vec<Option<Leaf>>,
    parents: [NodeId; 2],
    /// Throttled leaves, each with the end of its throttle, ns.
    throttled: Vec<(NodeId, u64)>,
    /// The leaf that has the core, and the start of its slice, ns.
    slice: Option<(NodeId, u64)>,
    polls: PollBudget,
}

impl CoreScheduler {
    /// Creates the scheduler of a core without leaves.
    #[must_use]
    pub fn new(users: NodeSpec, system: NodeSpec) -> CoreScheduler {
        let mut tree = Tree::new();
        let parents = [users, system].map(|spec| tree.add(Tree::ROOT, spec));
        CoreScheduler {
            tree,
            leaves: Vec::new(),
            parents,
            throttled: Vec::new(),
            slice: None,
            polls: PollBudget::default(),
        }
    }

    /// Adds a leaf, idle.
    pub fn add(&mut self, parent: Parent, spec: LeafSpec) -> NodeId {
        let node = self.tree.add(self.parents[parent as usize], spec.node);
        let at = node.0 as usize;
        if at >= self.leaves.len() {
            self.leaves.resize(at + 1, None);
        }
        let is_level = parent == Parent::Users;
        self.leaves[at] =
            Some(Leaf { is_level, spec, cap: Cap::new(), heavy: false, fast_since_heavy_ns: 0 });
        node
    }

    /// Changes the entitlement and the limit of a leaf at once. A throttled leaf asks for its new
    /// limit at the next decision.
    pub fn set(&mut self, leaf: NodeId, spec: LeafSpec) {
        self.leaf_mut(leaf).spec = spec;
        self.throttled.iter_mut().filter(|(throttled, _)| *throttled == leaf).for_each(|entry| entry.1 = 0);
        self.tree.set(leaf, spec.node);
    }

    /// Changes the entitlement of a parent.
    pub fn set_parent(&mut self, parent: Parent, spec: NodeSpec) {
        self.tree.set(self.parents[parent as usize], spec);
    }

    /// Removes a leaf.
    pub fn remove(&mut self, leaf: NodeId) {
        self.throttled.retain(|&(throttled, _)| throttled != leaf);
        self.slice = None;
        self.tree.remove(leaf);
        self.leaves[leaf.0 as usize] = None;
    }

    /// Marks a leaf as having work. Returns true if it was idle, which also ends the running slice.
    pub fn woke(&mut self, leaf: NodeId) -> bool {
        if self.tree.is_awake(leaf) {
            return false;
        }
        self.slice = None;
        self.tree.wake(leaf);
        true
    }

    /// Marks a leaf as having no work. Returns the unused rest of its lease, ns, which goes back to
    /// the budget of its cap.
    pub fn mark_idle(&mut self, leaf: NodeId) -> u64 {
        let local = self.leaf_mut(leaf);
        local.heavy = false;
        let unused_ns = if local.spec.cpu_limit_ppm > 0 { local.cap.release() } else { 0 };
        self.tree.idle(leaf);
        unused_ns
    }

    /// Charges a slice of the fast lane, at least the minimum charge.
    pub fn ran(&mut self, leaf: NodeId, cpu_ns: u64) {
        self.account(leaf, Lane::Fast, cpu_ns);
        self.tree.charge(leaf, cpu_ns);
    }

    /// Charges CPU time that was not a slice of the fast lane: heavy work, a poll, kernel work
    /// found later.
    pub fn used(&mut self, leaf: NodeId, lane: Lane, cpu_ns: u64) {
        self.account(leaf, lane, cpu_ns);
        self.tree.charge_exact(leaf, cpu_ns);
    }

    fn account(&mut self, leaf: NodeId, lane: Lane, cpu_ns: u64) {
        let local = self.leaf_mut(leaf);
        let fast_since_heavy_ns = local.fast_since_heavy_ns + cpu_ns;
        local.fast_since_heavy_ns = if lane == Lane::Fast && local.heavy { fast_since_heavy_ns } else { 0 };
        if local.spec.cpu_limit_ppm > 0 {
            local.cap.charge(cpu_ns);
        }
    }

    /// Records a poll that took the core from the heavy work of `had_core`, cost `cost_ns` and
    /// found fast-lane work of `found`.
    pub fn polled(&mut self, now_ns: u64, cost_ns: u64, found: NodeId, had_core: Option<NodeId>) {
        let lagging = had_core.is_some_and(|had_core| self.lags_beside(found, had_core));
        self.polls.polled(now_ns, cost_ns, lagging);
    }

    /// Adds `cpu_ns` of CPU that the budget of the leaf's cap granted.
    pub fn granted(&mut self, leaf: NodeId, cpu_ns: u64) {
        self.leaf_mut(leaf).cap.grant(cpu_ns);
    }

    /// Keeps a leaf from being picked until `until_ns`.
    pub fn throttle(&mut self, leaf: NodeId, until_ns: u64) {
        self.tree.throttle(leaf, true);
        self.throttled.push((leaf, until_ns));
    }

    /// Ends the throttle of one leaf whose time has come. Call it until it returns `None`, before
    /// [`CoreScheduler::next`].
    pub fn unthrottle(&mut self, now_ns: u64) -> Option<NodeId> {
        let at = self.throttled.iter().position(|&(_, until_ns)| until_ns <= now_ns)?;
        let (leaf, _) = self.throttled.swap_remove(at);
        self.tree.throttle(leaf, false);
        Some(leaf)
    }

    /// Returns the time at which the first throttled leaf may run again, ns.
    #[must_use]
    pub fn next_unthrottle_ns(&self) -> Option<u64> {
        self.throttled.iter().map(|&(_, until_ns)| until_ns).min()
    }

    /// Decides what runs next. `queued` returns the work of a leaf.
    pub fn next(&mut self, now_ns: u64, queued: impl FnOnce(NodeId) -> Queued) -> Decision {
        let Some(leaf) = self.pick(now_ns) else { return Decision::Sleep };
        let queued = queued(leaf);
        let local = self.leaves[leaf.0 as usize].as_mut().expect("leaves in the tree are known");
        local.heavy = queued.heavy;
        let limit_ppm = local.spec.cpu_limit_ppm;
        if limit_ppm > 0 && local.cap.exhausted() {
            let lease_ns = if queued.fast { cap::LEASE_NS } else { cap::long_lease_ns(limit_ppm) };
            return Decision::Lease(leaf, local.cap.want_ns(lease_ns));
        }
        let budget_ns = match limit_ppm {
            0 => u64::MAX,
            // A slice shorter than a lane switch would never end the lease. Time beyond the lease
            // becomes debt.
            _ => local.cap.remaining_ns().unsigned_abs().max(LATENCY_SLICE_NS),
        };
        let heavy_waits = queued.heavy && local.fast_since_heavy_ns >= FAST_BEFORE_HEAVY_NS;
        match queued {
            Queued { fast: true, .. } if !heavy_waits => {
                let slice_ns = self.tree.slice_ns().min(self.tree.poll_ns(leaf));
                Decision::Run(leaf, slice_ns.min(budget_ns))
            }
            Queued { heavy: true, .. } => {
                // Not when it is charged: another program may leave the heavy lane no CPU.
                local.fast_since_heavy_ns = 0;
                Decision::Yield(leaf, budget_ns)
            }
            _ => Decision::Empty(leaf),
        }
    }

    /// Returns the leaf whose slice goes on. Picks a new leaf at the end of a slice and after a
    /// leaf has woken.
    fn pick(&mut self, now_ns: u64) -> Option<NodeId> {
        if let Some((leaf, since_ns)) = self.slice
            && now_ns.saturating_sub(since_ns) < self.tree.slice_ns()
            && self.tree.is_eligible(leaf)
        {
            return Some(leaf);
        }
        let picked = self.tree.pick();
        self.slice = picked.map(|leaf| (leaf, now_ns));
        picked
    }

    /// Yields the core to the heavy work of a leaf for at most `budget_ns`. `fast`: the leaf has
    /// fast-lane work as well. `in_reach`: any wake-up can take the core back at once.
    #[must_use]
    pub fn yield_core(
        &self,
        leaf: NodeId,
        budget_ns: u64,
        fast: bool,
        in_reach: bool,
        now_ns: u64,
    ) -> Yielded {
        let alone = in_reach && !fast && !self.tree.backlogged_beside(leaf);
        let longest_ns = if alone { ALONE_NS } else { SLICE_NS };
        let until_ns = now_ns.saturating_add(budget_ns.min(longest_ns));
        Yielded { leaf, began_ns: now_ns, until_ns, alone, own_preempts: !fast }
    }

    /// Returns true if a leaf with work takes the core back from heavy work. `woke`: it was idle
    /// before. `fast`: it has fast-lane work.
    #[must_use]
    pub fn preempts(&self, leaf: NodeId, woke: bool, fast: bool, yielded: &Yielded) -> bool {
        if leaf == yielded.leaf {
            return yielded.own_preempts && fast;
        }
        (woke && yielded.alone) || self.tree.precedes(leaf, yielded.leaf)
    }

    /// Returns the time until which the network need not be polled while heavy work has the core,
    /// ns. `None`: poll at each event.
    #[must_use]
    pub fn poll_after_ns(&self, now_ns: u64) -> Option<u64> {
        self.polls.not_before_ns(now_ns)
    }

    /// Returns true if a level lags behind another one that had the core. Its events are then
    /// polled for sooner. False alongside flushes and compactions, which must keep up.
    #[must_use]
    pub fn lags_beside(&self, leaf: NodeId, had_core: NodeId) -> bool {
        leaf != had_core && self.is_level(had_core) && self.is_level(leaf) && self.tree.lag_ns(leaf) > 0
    }

    /// Returns the capped leaf to charge for a wake-up of the core: its lease ended while it had
    /// the core alone, or its throttle ended while the core slept.
    #[must_use]
    pub fn wake_up_payer(&self, yielded: Option<&Yielded>, slept: bool, now_ns: u64) -> Option<NodeId> {
        let leaf = match yielded {
            Some(yielded) => (yielded.alone && now_ns >= yielded.until_ns).then_some(yielded.leaf),
            None if slept => {
                self.throttled.iter().find(|(_, until_ns)| *until_ns <= now_ns).map(|(leaf, _)| *leaf)
            }
            None => None,
        };
        leaf.filter(|leaf| self.known(*leaf).is_some_and(|local| local.spec.cpu_limit_ppm > 0))
    }

    /// Returns the number of leaves that may be picked.
    #[must_use]
    pub fn eligible(&self) -> u32 {
        self.tree.eligible()
    }

    /// Returns true if a leaf other than `leaf` may be picked.
    #[must_use]
    pub fn backlogged_beside(&self, leaf: NodeId) -> bool {
        self.tree.backlogged_beside(leaf)
    }

    /// Returns true if the leaf has work, throttled or not.
    #[must_use]
    #[inline]
    pub fn is_awake(&self, leaf: NodeId) -> bool {
        self.tree.is_awake(leaf)
    }

    /// Returns true if the leaf is throttled.
    #[must_use]
    pub fn is_throttled(&self, leaf: NodeId) -> bool {
        self.tree.is_throttled(leaf)
    }

    fn known(&self, leaf: NodeId) -> Option<&Leaf> {
        self.leaves.get(leaf.0 as usize)?.as_ref()
    }

    fn is_level(&self, leaf: NodeId) -> bool {
        self.known(leaf).is_some_and(|local| local.is_level)
    }

    fn leaf_mut(&mut self, leaf: NodeId) -> &mut Leaf {
        self.leaves[leaf.0 as usize].as_mut().expect("a leaf of this core")
    }
}

#[cfg(test)]
mod tests;
