//! Disk requests of one core. The flows of a group take turns ([`Rounds`]), and requests of a flow
//! are first in, first out. Groups are ordered by a [`Tree`] of their own, which is charged with
//! disk time instead of CPU time. The window and the shared bucket decide whether the disk takes
//! another request ([`DiskModel::may_send`], [`crate::disk::ask`]). The limit of a group, also
//! shared by all cores, decides whether that group may send one. This queue decides which request
//! it is.
//!
//! ```text
//!   push ──▶ group 3 │▒▒▒▒▒│ ─┐
//!   push ──▶ group 4 │▒│     ─┼─▶ Tree::pick ──▶ group's own limit? ──▶ disk's bucket? ──▶ Pop::Ready
//!   push ──▶ group 7 │▒▒▒│   ─┘                      throttled              Pop::Wait
//! ```
//!
//! The queue of each group has a bounded length, and a full queue rejects the request. So the
//! backlog of one group takes neither space nor disk time of another.

use crate::disk::{self, BURST_NS, DiskDirection, DiskModel, InFlight, LIMIT_LEASE_NS};
use crate::io_claim::{Budget, Claim};
use crate::rounds::{NO_FLOW, Rounds};
use crate::tree::{NodeId, NodeSpec, Tree};

/// Disk time of one turn of a flow, ns: a few reads of a block.
const TURN_NS: u32 = 250_000;

/// Result of [`IoQueue::pop`].
#[derive(Debug, PartialEq, Eq)]
pub enum Pop<T> {
    /// Send this one now.
    Ready {
        /// Group of the request.
        group: NodeId,
        /// Disk time charged, ns.
        cost_ns: u64,
        /// The item that was pushed.
        item: T,
    },
    /// Requests are queued, but none may be sent before this time, ns.
    Wait {
        /// Time to call again, ns.
        until_ns: u64,
        /// The queue waits for the disk, and not only for the limit of a group. Call again earlier
        /// when nothing is in flight any more.
        for_disk: bool,
    },
    /// Requests are queued, but the window is full: call again once a request of this core has
    /// ended.
    Full,
    /// Nothing is queued.
    Empty,
}

#[derive(Debug)]
struct Request<T> {
    bytes: u64,
    cost_ns: u64,
    item: T,
}

#[derive(Debug)]
struct Group<T, B> {
    /// In memory of its own: most groups never use the disk of most cores.
    waiting: Option<Box<Rounds<Request<T>>>>,
    /// `None`: no limit.
    limit: Option<Box<Limit<B>>>,
    /// Time at which a group that its limit throttles may be asked again, ns; else 0.
    throttled_until_ns: u64,
}

#[derive(Debug)]
struct Limit<B> {
    bytes_per_second: u64,
    /// Budget of the group on all cores.
    budget: B,
    claim: Claim,
}

/// Disk requests of one core in the order of their groups' shares. `B` is a handle of a budget that
/// all cores share.
#[derive(Debug)]
pub struct IoQueue<T, B: Budget> {
    model: DiskModel,
    /// Number of cores that use the disk.
    cores: usize,
    /// Bucket of the disk.
    bucket: B,
    claim: Claim,
    /// Most requests queued by one group.
    depth_max: usize,
    tree: Tree,
    /// Indexed by node of the tree.
    groups: Vec<Group<T, B>>,
    /// Earliest time at which the limit of a throttled group may be asked again, ns.
    unthrottle_at_ns: u64,
    len: usize,
}

impl<T, B: Budget> IoQueue<T, B> {
    /// Creates a queue without groups, for a disk with these maxima and this bucket, which `cores`
    /// cores use. It holds at most `depth_max` requests of each group.
    #[must_use]
    pub fn new(model: DiskModel, cores: usize, bucket: B, depth_max: usize) -> IoQueue<T, B> {
        let groups = vec![Group::new()];
        let claim = Claim::new();
        let unthrottle_at_ns = u64::MAX;
        IoQueue {
            model,
            cores,
            bucket,
            claim,
            depth_max,
            tree: Tree::new(),
            groups,
            unthrottle_at_ns,
            len: 0,
        }
    }

    /// Adds a group. Its id is that of a [`Tree`] with the same history of additions and removals.
    /// So the CPU tree of a core and its queue agree on ids if both get every change.
    pub fn add(&mut self, parent: NodeId, spec: NodeSpec) -> NodeId {
        let id = self.tree.add(parent, spec);
        let at = id.0 as usize;
        if at == self.groups.len() {
            self.groups.push(Group::new());
        } else {
            self.groups[at] = Group::new();
        }
        id
    }

    /// Removes a leaf. Returns its queued items in order, so that the caller can reject them.
    pub fn remove(&mut self, group: NodeId, now_ns: u64) -> Vec<T> {
        self.tree.remove(group);
        let mut gone = std::mem::replace(&mut self.groups[group.0 as usize], Group::new());
        gone.release(now_ns);
        self.len -= gone.len();
        self.release_if_empty(now_ns);
        let waiting = gone.waiting.as_mut().map(|waiting| waiting.take_all());
        waiting.into_iter().flatten().map(|request| request.item).collect()
    }

    /// Changes the shares and the class of a group at once.
    pub fn set(&mut self, group: NodeId, spec: NodeSpec) {
        self.tree.set(group, spec);
    }

    /// Limits a group to the given bytes a second, on all cores that pass the same budget. `None`
    /// lifts the limit. A new limit needs a new budget: what was granted at the old rate is
    /// forgotten here, while other cores may still charge the old budget.
    pub fn set_io_limit(&mut self, group: NodeId, limit: Option<(u64, B)>) {
        let limit = limit.map(|(bytes_per_second, budget)| {
            Box::new(Limit { bytes_per_second, budget, claim: Claim::new() })
        });
        self.groups[group.0 as usize].limit = limit;
        self.unthrottle(group);
    }

    /// Changes the maxima of the disk. Queued requests keep their cost.
    pub fn set_model(&mut self, model: DiskModel) {
        self.model = model;
    }

    /// Returns the number of queued requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of requests that one group has queued.
    #[must_use]
    pub fn depth(&self, group: NodeId) -> usize {
        self.groups[group.0 as usize].len()
    }

    /// Queues a request of a group and of no flow, as [`IoQueue::push_from`] does.
    ///
    /// # Errors
    /// The queue of the group is full: returns the item.
    pub fn push(&mut self, group: NodeId, kind: DiskDirection, bytes: u64, item: T) -> Result<(), T> {
        self.push_from(group, NO_FLOW, kind, bytes, item)
    }

    /// Queues a request of a flow of a group. A flow without a request here may exceed the depth of
    /// the queue by one, so that other flows do not keep it out.
    ///
    /// # Errors
    /// The queue of the group is full: returns the item.
    pub fn push_from(
        &mut self,
        group: NodeId,
        flow: u64,
        kind: DiskDirection,
        bytes: u64,
        item: T,
    ) -> Result<(), T> {
        let queue = &mut self.groups[group.0 as usize].waiting;
        let queue = queue.get_or_insert_with(|| Box::new(Rounds::new(TURN_NS)));
        if queue.len() >= self.depth_max && (flow == NO_FLOW || queue.has(flow)) {
            return Err(item);
        }
        let cost_ns = self.model.cost_ns(kind, bytes);
        queue.push(flow, Request { bytes, cost_ns, item });
        self.len += 1;
        self.tree.wake(group);
        Ok(())
    }

    /// Returns the next request, if the disk takes it.
    pub fn pop(&mut self, now_ns: u64, in_flight: InFlight) -> Pop<T> {
        if self.len > 0 && !self.model.may_send(in_flight, self.cores) {
            return Pop::Full;
        }
        if self.unthrottle_at_ns <= now_ns {
            self.unthrottle_due(now_ns);
        }
        while let Some(id) = self.tree.pick() {
            let group = &mut self.groups[id.0 as usize];
            let waiting = group.waiting.as_mut().expect("an awake group has a queue");
            let head = waiting.front().expect("an awake group has a request");
            let bytes = head.bytes;
            let cost_ns = head.cost_ns;
            if let Err(until_ns) = group.ask(now_ns, bytes) {
                group.throttled_until_ns = until_ns;
                self.unthrottle_at_ns = self.unthrottle_at_ns.min(until_ns);
                self.tree.throttle(id, true);
                continue;
            }
            if let Err(until_ns) = disk::ask(&mut self.claim, now_ns, cost_ns, in_flight, &self.bucket) {
                return Pop::Wait { until_ns: until_ns.min(self.unthrottle_at_ns), for_disk: true };
            }
            self.claim.spend(cost_ns);
            group.spend(bytes);
            let waiting = group.waiting.as_mut().expect("checked above");
            let item = waiting.pop().expect("checked above").item;
            waiting.charge(cost_ns);
            let drained = waiting.is_empty();
            self.tree.charge_exact(id, cost_ns);
            if drained {
                group.release(now_ns);
                self.tree.idle(id);
            }
            self.len -= 1;
            self.release_if_empty(now_ns);
            return Pop::Ready { group: id, cost_ns, item };
        }
        // No group of this core may use the lease now.
        self.claim.release(now_ns, &self.bucket);
        if self.len == 0 {
            Pop::Empty
        } else {
            Pop::Wait { until_ns: self.unthrottle_at_ns, for_disk: false }
        }
    }

    /// Gives the lease back if no request is queued.
    fn release_if_empty(&mut self, now_ns: u64) {
        if self.len == 0 {
            self.claim.release(now_ns, &self.bucket);
        }
    }

    fn unthrottle(&mut self, group: NodeId) {
        self.groups[group.0 as usize].throttled_until_ns = 0;
        self.tree.throttle(group, false);
    }

    /// Unthrottles the groups whose time has come. Linear in the number of groups, at most once for
    /// each such time.
    fn unthrottle_due(&mut self, now_ns: u64) {
        self.unthrottle_at_ns = u64::MAX;
        for at in 0..self.groups.len() {
            match self.groups[at].throttled_until_ns {
                0 => {}
                until_ns if until_ns <= now_ns => self.unthrottle(NodeId(at as u32)),
                later => self.unthrottle_at_ns = self.unthrottle_at_ns.min(later),
            }
        }
    }
}

impl<T, B: Budget> Group<T, B> {
    fn new() -> Group<T, B> {
        Group { waiting: None, limit: None, throttled_until_ns: 0 }
    }

    fn len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.len())
    }

    /// Asks the limit of the group to move `bytes`.
    ///
    /// # Errors
    /// Not yet: the time to ask again, ns.
    fn ask(&mut self, now_ns: u64, bytes: u64) -> Result<(), u64> {
        let Some(limit) = &mut self.limit else { return Ok(()) };
        let cost_ns = disk::limit_cost_ns(bytes, limit.bytes_per_second);
        limit.claim.ask(now_ns, cost_ns, LIMIT_LEASE_NS, BURST_NS, &limit.budget)
    }

    fn spend(&mut self, bytes: u64) {
        if let Some(limit) = &mut self.limit {
            let cost_ns = disk::limit_cost_ns(bytes, limit.bytes_per_second);
            limit.claim.spend(cost_ns);
        }
    }

    fn release(&mut self, now_ns: u64) {
        if let Some(limit) = &mut self.limit {
            limit.claim.release(now_ns, &limit.budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoBudget;

    impl Budget for NoBudget {
        fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
            change(0)
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn group_size_matches_the_documentation() {
        assert_eq!(size_of::<Group<Box<u8>, NoBudget>>(), 24);
        assert!(size_of::<Rounds<Request<Box<u8>>>>() <= 192);
        let documented = include_str!("../../../docs/scheduler.md");
        assert!(
            documented.contains("24 bytes for its queue: 144"),
            "docs/scheduler.md states the bytes of a group"
        );
    }
}
