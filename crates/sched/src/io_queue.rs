//! One core's disk requests: first in, first out within a group, and among groups in the order of a
//! [`Tree`] of their own, charged with disk time instead of CPU time. Whether the disk can take
//! another request is the window's and the shared bucket's to say ([`DiskModel::has_room`],
//! [`crate::disk::ask`]), and whether the group may have more, its limit's, which all cores share
//! as well; which request it is, is said here.
//!
//! ```text
//!   push ──▶ group 3 │▒▒▒▒▒│ ─┐
//!   push ──▶ group 4 │▒│     ─┼─▶ Tree::pick ──▶ group's own limit? ──▶ disk's bucket? ──▶ Pop::Ready
//!   push ──▶ group 7 │▒▒▒│   ─┘                      throttled              Pop::Wait
//! ```
//!
//! Each group waits in a queue of bounded length; a request that finds its queue full is handed
//! back. One group's backlog can therefore neither take another's room nor its turn.

use std::collections::VecDeque;

use crate::disk::{self, BURST_NS, DiskModel, Kind, LIMIT_PIECE_NS, UnderWay};
use crate::io_claim::{Budget, Claim};
use crate::tree::{NodeId, NodeSpec, Tree};

/// What [`IoQueue::pop`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Pop<T> {
    /// Send this one now.
    Ready {
        /// Whose request it is.
        group: NodeId,
        /// What it was charged, ns of disk.
        cost_ns: u64,
        /// What was pushed.
        item: T,
    },
    /// Something is queued that may not be sent before this time, ns.
    Wait {
        /// When to call again.
        until_ns: u64,
        /// It is the disk's turn that is waited for, and not only a group's limit: when the disk
        /// has done everything, call again before that time.
        for_disk: bool,
    },
    /// Something is queued, and as much is under way as may be: call again once a request of this
    /// core has ended.
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
    waiting: VecDeque<Request<T>>,
    /// None is no limit.
    limit: Option<Box<Limit<B>>>,
    /// While throttled by it, when it may be asked again; else 0.
    throttled_until_ns: u64,
}

#[derive(Debug)]
struct Limit<B> {
    bytes_per_second: u64,
    /// The group's, on all cores.
    budget: B,
    claim: Claim,
}

/// One core's disk requests in the order of their groups' shares; `B` is how it reaches budgets
/// that all cores share.
#[derive(Debug)]
pub struct IoQueue<T, B: Budget> {
    model: DiskModel,
    /// Cores that use the disk.
    cores: usize,
    /// The disk's bucket.
    bucket: B,
    claim: Claim,
    /// Longest queue of one group.
    depth_max: usize,
    tree: Tree,
    /// By node of the tree.
    groups: Vec<Group<T, B>>,
    /// No group's limit can be asked again before this time, ns.
    unthrottle_at_ns: u64,
    len: usize,
}

impl<T, B: Budget> IoQueue<T, B> {
    /// A queue without groups, for a disk with these maxima and this bucket, which `cores` cores
    /// use; it holds at most `depth_max` requests a group.
    #[must_use]
    pub fn new(model: DiskModel, cores: usize, bucket: B, depth_max: usize) -> IoQueue<T, B> {
        let (groups, claim) = (vec![Group::new()], Claim::new());
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

    /// Adds a group. Its id is the one a [`Tree`] with the same history of additions and removals
    /// gives, so a core's CPU tree and its queue agree on ids if both are told everything.
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

    /// Removes a leaf: what it still had queued, in order, to be refused by the caller.
    pub fn remove(&mut self, group: NodeId, now_ns: u64) -> Vec<T> {
        self.tree.remove(group);
        let mut gone = std::mem::replace(&mut self.groups[group.0 as usize], Group::new());
        gone.release(now_ns);
        self.len -= gone.waiting.len();
        self.settle(now_ns);
        gone.waiting.into_iter().map(|request| request.item).collect()
    }

    /// Changes a group's shares and class at once.
    pub fn set(&mut self, group: NodeId, spec: NodeSpec) {
        self.tree.set(group, spec);
    }

    /// Limits a group to so many bytes a second, on all cores that have the same budget for it;
    /// none lifts the limit. A new limit wants its budget made anew: what was granted at the old
    /// rate is forgotten. Whether it is a new limit.
    pub fn set_io_limit(&mut self, group: NodeId, limit: Option<(u64, B)>) -> bool {
        let old = self.groups[group.0 as usize].limit.as_ref().map(|old| old.bytes_per_second);
        if old == limit.as_ref().map(|new| new.0) {
            return false;
        }
        let limit = limit.map(|(bytes_per_second, budget)| {
            Box::new(Limit { bytes_per_second, budget, claim: Claim::new() })
        });
        self.groups[group.0 as usize].limit = limit;
        self.unthrottle(group);
        true
    }

    /// Changes the disk's maxima; requests already queued keep their cost.
    pub fn set_model(&mut self, model: DiskModel) {
        self.model = model;
    }

    /// Requests queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Requests queued by one group.
    #[must_use]
    pub fn depth(&self, group: NodeId) -> usize {
        self.groups[group.0 as usize].waiting.len()
    }

    /// Queues a request of a group.
    ///
    /// # Errors
    /// The group's queue is full: the item, back.
    pub fn push(&mut self, group: NodeId, kind: Kind, bytes: u64, item: T) -> Result<(), T> {
        let queue = &mut self.groups[group.0 as usize].waiting;
        if queue.len() >= self.depth_max {
            return Err(item);
        }
        let cost_ns = self.model.cost_ns(kind, bytes);
        queue.push_back(Request { bytes, cost_ns, item });
        self.len += 1;
        self.tree.wake(group);
        Ok(())
    }

    /// The next request, if the disk takes it.
    pub fn pop(&mut self, now_ns: u64, under_way: UnderWay) -> Pop<T> {
        if self.len > 0 && !self.model.has_room(under_way, self.cores) {
            return Pop::Full;
        }
        if self.unthrottle_at_ns <= now_ns {
            self.unthrottle_due(now_ns);
        }
        while let Some(id) = self.tree.pick() {
            let group = &mut self.groups[id.0 as usize];
            let head = group.waiting.front().expect("an awake group has a request");
            let (bytes, cost_ns) = (head.bytes, head.cost_ns);
            if let Err(until_ns) = group.ask(now_ns, bytes) {
                group.throttled_until_ns = until_ns;
                self.unthrottle_at_ns = self.unthrottle_at_ns.min(until_ns);
                self.tree.throttle(id, true);
                continue;
            }
            if let Err(until_ns) = disk::ask(&mut self.claim, now_ns, cost_ns, under_way, &self.bucket) {
                return Pop::Wait { until_ns: until_ns.min(self.unthrottle_at_ns), for_disk: true };
            }
            self.claim.spend(cost_ns);
            group.spend(bytes);
            let item = group.waiting.pop_front().expect("seen above").item;
            let drained = group.waiting.is_empty();
            self.tree.charge_exact(id, cost_ns);
            if drained {
                group.release(now_ns);
                self.tree.idle(id);
            }
            self.len -= 1;
            self.settle(now_ns);
            return Pop::Ready { group: id, cost_ns, item };
        }
        // Nobody here may use it now.
        self.claim.release(now_ns, &self.bucket);
        if self.len == 0 {
            Pop::Empty
        } else {
            Pop::Wait { until_ns: self.unthrottle_at_ns, for_disk: false }
        }
    }

    /// Gives back what no request here needs.
    fn settle(&mut self, now_ns: u64) {
        if self.len == 0 {
            self.claim.release(now_ns, &self.bucket);
        }
    }

    fn unthrottle(&mut self, group: NodeId) {
        self.groups[group.0 as usize].throttled_until_ns = 0;
        self.tree.throttle(group, false);
    }

    /// Lifts what is due. Linear in the number of groups, at most once each time some group's limit
    /// comes due.
    fn unthrottle_due(&mut self, now_ns: u64) {
        self.unthrottle_at_ns = u64::MAX;
        for at in 0..self.groups.len() {
            match self.groups[at].throttled_until_ns {
                0 => {}
                due if due <= now_ns => self.unthrottle(NodeId(at as u32)),
                later => self.unthrottle_at_ns = self.unthrottle_at_ns.min(later),
            }
        }
    }
}

impl<T, B: Budget> Group<T, B> {
    fn new() -> Group<T, B> {
        Group { waiting: VecDeque::new(), limit: None, throttled_until_ns: 0 }
    }

    /// Whether its limit lets it move so many bytes; else from when on.
    fn ask(&mut self, now_ns: u64, bytes: u64) -> Result<(), u64> {
        let Some(limit) = &mut self.limit else { return Ok(()) };
        let cost_ns = disk::limit_cost_ns(bytes, limit.bytes_per_second);
        limit.claim.ask(now_ns, cost_ns, LIMIT_PIECE_NS, BURST_NS, &limit.budget)
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

    struct Nobody;

    impl Budget for Nobody {
        fn update(&self, change: impl Fn(u64) -> u64) -> u64 {
            change(0)
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_group_takes_as_many_bytes_as_the_documentation_says() {
        assert_eq!(size_of::<Group<Box<u8>, Nobody>>(), 48);
        let stated = include_str!("../../../docs/scheduler.md");
        assert!(
            stated.contains("48 bytes for its queue: 168"),
            "docs/scheduler.md states the bytes of a group"
        );
    }
}
