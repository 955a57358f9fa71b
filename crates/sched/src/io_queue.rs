//! One core's disk requests: first in, first out within a group, and among groups in the order of a [`Tree`] of their
//! own, charged with disk time instead of CPU time. Whether the disk can take another request is the shared bucket's
//! to say ([`crate::disk::take`]); which request that is, is said here.
//!
//! ```text
//!   push ──▶ group 3 │▒▒▒▒▒│ ─┐
//!   push ──▶ group 4 │▒│     ─┼─▶ Tree::pick ──▶ group's own limit? ──▶ disk's bucket? ──▶ Pop::Ready
//!   push ──▶ group 7 │▒▒▒│   ─┘                      throttled              Pop::Wait
//! ```
//!
//! Each group waits in a queue of bounded length; a request that finds its queue full is handed back. One group's
//! backlog can therefore neither take another's room nor its turn.

use std::collections::VecDeque;

use crate::disk::{self, DiskModel, Kind};
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
    },
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
struct Group<T> {
    waiting: VecDeque<Request<T>>,
    /// Bytes a second; none is no limit.
    io_limit: Option<u64>,
    /// State of that limit.
    paid_until_ns: u64,
    /// While throttled by it, when it may be asked again; else 0.
    throttled_until_ns: u64,
}

/// One core's disk requests in the order of their groups' shares.
#[derive(Debug)]
pub struct IoQueue<T> {
    model: DiskModel,
    /// Longest queue of one group.
    depth_max: usize,
    tree: Tree,
    /// By node of the tree.
    groups: Vec<Group<T>>,
    /// No group's limit can be asked again before this time, ns.
    unthrottle_at_ns: u64,
    len: usize,
}

impl<T> IoQueue<T> {
    /// A queue without groups, for a disk with these maxima, which holds at most `depth_max` requests a group.
    #[must_use]
    pub fn new(model: DiskModel, depth_max: usize) -> IoQueue<T> {
        let groups = vec![Group::new()];
        IoQueue { model, depth_max, tree: Tree::new(), groups, unthrottle_at_ns: u64::MAX, len: 0 }
    }

    /// Adds a group. Its id is the one a [`Tree`] with the same history of additions and removals gives, so a core's CPU
    /// tree and its queue agree on ids if both are told everything.
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
    pub fn remove(&mut self, group: NodeId) -> Vec<T> {
        self.tree.remove(group);
        let gone = std::mem::replace(&mut self.groups[group.0 as usize], Group::new());
        self.len -= gone.waiting.len();
        gone.waiting.into_iter().map(|request| request.item).collect()
    }

    /// Changes a group's shares and class at once.
    pub fn set(&mut self, group: NodeId, spec: NodeSpec) {
        self.tree.set(group, spec);
    }

    /// Limits a group to so many bytes a second on this core's queue; none lifts the limit.
    pub fn set_io_limit(&mut self, group: NodeId, bytes_per_second: Option<u64>) {
        self.groups[group.0 as usize].io_limit = bytes_per_second;
        self.unthrottle(group);
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

    /// The next request, if the disk takes it. `take` asks the disk's bucket for a cost in ns of disk: `Err` is the time
    /// to ask again, and ends the search. It is asked once at most, and a yes is always followed by [`Pop::Ready`].
    pub fn pop(&mut self, now_ns: u64, take: impl FnOnce(u64) -> Result<(), u64>) -> Pop<T> {
        if self.unthrottle_at_ns <= now_ns {
            self.unthrottle_due(now_ns);
        }
        while let Some(id) = self.tree.pick() {
            let group = &mut self.groups[id.0 as usize];
            let head = group.waiting.front().expect("an awake group has a request");
            let paid_until_ns = match group.io_limit {
                None => 0,
                Some(limit) => match disk::take_limited(group.paid_until_ns, now_ns, head.bytes, limit) {
                    Ok(paid_until_ns) => paid_until_ns,
                    Err(retry_ns) => {
                        group.throttled_until_ns = retry_ns;
                        self.unthrottle_at_ns = self.unthrottle_at_ns.min(retry_ns);
                        self.tree.throttle(id, true);
                        continue;
                    }
                },
            };
            if let Err(until_ns) = take(head.cost_ns) {
                return Pop::Wait { until_ns: until_ns.min(self.unthrottle_at_ns) };
            }
            group.paid_until_ns = paid_until_ns;
            let Request { cost_ns, item, .. } = group.waiting.pop_front().expect("seen above");
            let drained = group.waiting.is_empty();
            self.len -= 1;
            self.tree.charge_exact(id, cost_ns);
            if drained {
                self.tree.idle(id);
            }
            return Pop::Ready { group: id, cost_ns, item };
        }
        if self.len == 0 { Pop::Empty } else { Pop::Wait { until_ns: self.unthrottle_at_ns } }
    }

    fn unthrottle(&mut self, group: NodeId) {
        self.groups[group.0 as usize].throttled_until_ns = 0;
        self.tree.throttle(group, false);
    }

    /// Lifts what is due. Linear in the number of groups, at most once each time some group's limit comes due.
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

impl<T> Group<T> {
    fn new() -> Group<T> {
        Group { waiting: VecDeque::new(), io_limit: None, paid_until_ns: 0, throttled_until_ns: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_group_takes_as_many_bytes_as_the_documentation_says() {
        assert_eq!(size_of::<Group<Box<u8>>>(), 64);
        let stated = include_str!("../../../docs/scheduler.md");
        assert!(
            stated.contains("64 bytes for its queue: 184"),
            "docs/scheduler.md states the bytes of a group"
        );
    }
}
