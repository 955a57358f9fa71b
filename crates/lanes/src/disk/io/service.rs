//! Disk service of one core: the fair queue, and the requests in flight. Only the fast lane uses
//! it.

use std::io;
use std::sync::Arc;
use std::task::{Context, Waker};

use sched::{DiskDirection, DiskModel, InFlight, IoQueue, NodeId, Pop, Tree};

use crate::counters::{Counters, count};
use crate::disk::io::bucket::{Bucket, SharedBudget};
use crate::disk::io::op::{Action, Finished, Op};
use crate::disk::io::pool::Pool;
use crate::disk::io::uring::{self, Ring};
use crate::registry::{Registry, slot_of};
use crate::shared::CoreShared;
use crate::sync::cross;
use crate::sys;
use crate::{Flow, Group};

/// Most requests that a group may have queued on a core. Further ones wait in their tasks.
const DEPTH_MAX: usize = 4096;
/// Most that a request in flight counts, ns of disk time, whatever the model. So sums do not
/// overflow.
const COST_MAX_NS: u64 = 1_000_000_000;
/// Most requests of a core in flight.
const IN_FLIGHT_MAX: usize = 128;
const _: () = assert!(IN_FLIGHT_MAX < uring::ENTRIES as usize, "the ring is never full");

/// Result for a task: the outcome, and the request with its buffer.
pub(crate) type RequestOutcome = (io::Result<()>, Op);

/// Pending answer. It is sent once no state is borrowed, since it wakes a task.
pub(crate) struct RequestAnswer(cross::Sender<RequestOutcome>, RequestOutcome);

/// Request in the fair queue.
pub(crate) struct WaitingRequest {
    pub(crate) op: Op,
    pub(crate) ticket: cross::Sender<RequestOutcome>,
    pub(crate) group: Group,
    pub(crate) flow: Flow,
    pub(crate) submitted_ns: u64,
}

/// Effects of a run of the service on tasks and on other cores. The caller applies them once the
/// service is not borrowed.
pub(crate) struct Ran {
    pub(crate) answers: Vec<RequestAnswer>,
    /// Tasks whose group's queue may have space again.
    pub(crate) wakers: Vec<Waker>,
    /// Bucket whose waiting cores have to be woken, because the disk is idle.
    pub(crate) idle: Option<Arc<Bucket>>,
    /// Error of the kernel to report: it rejects requests of the ring.
    pub(crate) refusal: Option<io::Error>,
}

struct Sent {
    /// The operation while the ring has it; the pool has its own.
    op: Option<Op>,
    ticket: cross::Sender<RequestOutcome>,
    group: Group,
    submitted_ns: u64,
    /// Cost while it is in flight, ns of disk time.
    cost_ns: u64,
    /// Error of the ring, before the pool got the request.
    refused: Option<io::Error>,
}

/// Group in this core's queue.
struct GroupPlace {
    id: u32,
    node: NodeId,
    /// Budget of its I/O limit.
    io_budget: Option<SharedBudget>,
}

/// Disk service of one core. The head of this file describes it.
pub(crate) struct Service {
    queue: IoQueue<WaitingRequest, SharedBudget>,
    places: Vec<Option<GroupPlace>>,
    parents: [NodeId; 2],
    registry: Arc<Registry>,
    bucket: Arc<Bucket>,
    pool: Arc<Pool>,
    ring: Option<Ring>,
    /// The kernel rejected requests of the ring: no further request goes there.
    ring_refused: bool,
    /// The disk is idle, and cores that wait for its bucket have to be woken.
    disk_is_idle: bool,
    /// Error of the kernel that was not reported yet.
    refusal: Option<io::Error>,
    in_flight: Vec<Option<Sent>>,
    free: Vec<usize>,
    in_flight_count: usize,
    /// Cost of the requests in flight, ns of disk time.
    in_flight_ns: u64,
    /// Tasks that found their group's queue full.
    full: Vec<Waker>,
    /// Time at which the queue may be asked again, ns.
    retry_ns: Option<u64>,
    shared: Arc<CoreShared>,
}

impl Service {
    pub(crate) fn new(
        shared: Arc<CoreShared>,
        bucket: Arc<Bucket>,
        pool: Arc<Pool>,
        ring: Option<Ring>,
        model: DiskModel,
    ) -> Service {
        let registry = shared.registry.clone();
        let mut queue = IoQueue::new(model, bucket.cores(), bucket.budget(), DEPTH_MAX);
        let spec = |group: Group| registry.get(group).expect("built in").disk_spec();
        let parents = [Group::USERS, Group::SYSTEM].map(|group| queue.add(Tree::ROOT, spec(group)));
        Service {
            queue,
            places: Vec::new(),
            parents,
            registry,
            bucket,
            pool,
            ring,
            ring_refused: false,
            disk_is_idle: false,
            refusal: None,
            in_flight: Vec::new(),
            free: Vec::new(),
            in_flight_count: 0,
            in_flight_ns: 0,
            full: Vec::new(),
            retry_ns: None,
            shared,
        }
    }

    /// Returns the node of a group, or that of [`Group::DEFAULT`] if there is no such group.
    fn place(&mut self, group: Group) -> NodeId {
        let slot = slot_of(group.0);
        if let Some(Some(place)) = self.places.get(slot)
            && place.id == group.0
        {
            return place.node;
        }
        let registry = self.registry.clone();
        let Some((found, parent)) = registry.get(group).and_then(|found| match found.parent() {
            Group::USERS => Some((found, self.parents[0])),
            Group::SYSTEM => Some((found, self.parents[1])),
            _ => None,
        }) else {
            return self.place(Group::DEFAULT);
        };
        if slot >= self.places.len() {
            self.places.resize_with(slot + 1, || None);
        }
        if let Some(old) = self.places[slot].as_ref().map(|place| Group(place.id)) {
            self.drop_group(old);
        }
        let node = self.queue.add(parent, found.disk_spec());
        let limit = found.io_limit().clone();
        let io_budget = limit.as_ref().map(|(_, budget)| budget.clone());
        self.queue.set_io_limit(node, limit);
        self.places[slot] = Some(GroupPlace { id: group.0, node, io_budget });
        node
    }

    pub(crate) fn refresh(&mut self, group: Group) {
        let registry = self.registry.clone();
        let Some(found) = registry.get(group) else { return };
        match group {
            Group::USERS => self.queue.set(self.parents[0], found.disk_spec()),
            Group::SYSTEM => self.queue.set(self.parents[1], found.disk_spec()),
            _ => {
                let node = self.place(group);
                self.queue.set(node, found.disk_spec());
                let limit = found.io_limit().clone();
                let place = self.places.get_mut(slot_of(group.0)).and_then(Option::as_mut);
                let Some(place) = place.filter(|place| place.node == node) else { return };
                let budget = limit.as_ref().map(|(_, budget)| budget.clone());
                let is_same = match (&place.io_budget, &budget) {
                    (Some(old), Some(new)) => old.is_same(new),
                    (None, None) => true,
                    _ => false,
                };
                if !is_same {
                    place.io_budget = budget;
                    self.queue.set_io_limit(node, limit);
                }
            }
        }
    }

    /// Moves the queued requests of a dropped group to [`Group::DEFAULT`].
    pub(crate) fn drop_group(&mut self, group: Group) {
        let slot = slot_of(group.0);
        let gone = self.places.get_mut(slot).and_then(|place| place.take_if(|place| place.id == group.0));
        let Some(gone) = gone else { return };
        for waiting in self.queue.remove(gone.node, sys::monotonic_ns()) {
            let (kind, bytes) = waiting.op.cost();
            let default = self.place(Group::DEFAULT);
            if let Err(refused) = self.queue.push_from(default, waiting.flow.0, kind, bytes, waiting) {
                refused.ticket.send((Err(io::ErrorKind::ResourceBusy.into()), refused.op));
            }
        }
    }

    pub(crate) fn set_model(&mut self, model: DiskModel) {
        self.queue.set_model(model);
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.retry_ns
    }

    /// Reaps completions and sends requests. Has the task of `cx` woken at the next completion.
    pub(crate) fn run(&mut self, cx: Option<&mut Context<'_>>) -> Ran {
        if let (Some(cx), Some(ring)) = (cx, self.ring.as_mut()) {
            ring.rest(cx);
        }
        let answers = self.reap();
        self.dispatch();
        let wakers = std::mem::take(&mut self.full);
        let idle = std::mem::take(&mut self.disk_is_idle).then(|| self.bucket.clone());
        Ran { answers, wakers, idle, refusal: self.refusal.take() }
    }

    /// Queues a request. Returns it if its group's queue is full. The task of `cx` is then woken
    /// when that may have changed.
    pub(crate) fn queue_request(
        &mut self,
        waiting: WaitingRequest,
        cx: &Context<'_>,
    ) -> Option<WaitingRequest> {
        let (kind, bytes) = waiting.op.cost();
        let node = self.place(waiting.group);
        let refused = self.queue.push_from(node, waiting.flow.0, kind, bytes, waiting).err();
        if refused.is_some() {
            self.full.push(cx.waker().clone());
        }
        refused
    }

    /// Ends a request that the pool has completed. Returns its group and its answer.
    pub(crate) fn finished(&mut self, finished: Finished) -> (Group, RequestAnswer) {
        let Finished { token, op, result, .. } = finished;
        let group = self.in_flight[token].as_ref().map_or(Group::CONTROL, |done| done.group);
        (group, self.finish(token, op, result))
    }

    /// Ends the service: waits until the kernel has finished with the buffers of requests in
    /// flight.
    pub(crate) fn end(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        // Submit the last requests. If the kernel rejects them, it has not seen their buffers
        // either.
        while !self.ring_refused && ring.submit().is_ok() && ring.has_unsubmitted() {}
        for token in ring.take_unsubmitted() {
            self.in_flight[token].as_mut().expect("in use until done").op = None;
        }
        while self.in_flight.iter().flatten().any(|in_flight| in_flight.op.is_some()) {
            ring.wait();
            for (token, _) in ring.reap() {
                self.in_flight[token].as_mut().expect("in use until done").op = None;
            }
        }
    }

    /// Sends the requests that the disk takes.
    fn dispatch(&mut self) {
        self.retry_ns = None;
        while self.in_flight_count < IN_FLIGHT_MAX && !self.queue.is_empty() {
            let now_ns = sys::monotonic_ns();
            let in_flight = InFlight { own_ns: self.in_flight_ns, all_ns: self.bucket.in_flight_ns() };
            match self.queue.pop(now_ns, in_flight) {
                Pop::Ready { item, cost_ns, .. } => {
                    let counters = self.counters(item.group);
                    count(&counters.disk_ns, cost_ns);
                    count(&counters.disk_queue_ns, now_ns.saturating_sub(item.submitted_ns));
                    self.send(item, cost_ns.min(COST_MAX_NS));
                }
                Pop::Wait { for_disk: true, .. } if !self.bucket.wait_for_idle(self.shared.index) => {}
                Pop::Wait { until_ns, .. } => {
                    self.retry_ns = Some(until_ns);
                    break;
                }
                Pop::Full | Pop::Empty => break,
            }
        }
        let Some(ring) = &mut self.ring else { return };
        // After a rejection, earlier queued requests are not submitted any more, and go to the pool
        // as well.
        let submitted =
            if self.ring_refused { Err(io::ErrorKind::Unsupported.into()) } else { ring.submit() };
        if let Err(error) = submitted {
            for token in ring.take_unsubmitted() {
                let in_flight = self.in_flight[token].as_mut().expect("in use until done");
                let op = in_flight.op.take().expect("with the ring");
                self.pool.send(&self.shared, token, op);
            }
            self.refuse(error);
        }
    }

    /// Switches to the pool for all further requests.
    fn refuse(&mut self, error: io::Error) {
        if !std::mem::replace(&mut self.ring_refused, true) {
            self.refusal = Some(error);
        }
    }

    fn send(&mut self, waiting: WaitingRequest, cost_ns: u64) {
        let WaitingRequest { mut op, ticket, group, submitted_ns, .. } = waiting;
        let token = self.free.pop().unwrap_or_else(|| {
            self.in_flight.push(None);
            self.in_flight.len() - 1
        });
        self.in_flight_count += 1;
        self.in_flight_ns += cost_ns;
        self.bucket.sent(cost_ns);
        let op = match &mut self.ring {
            Some(ring) if !self.ring_refused && !matches!(op.action, Action::Blocking(_)) => {
                ring.push(token, &mut op);
                Some(op)
            }
            _ => {
                self.pool.send(&self.shared, token, op);
                None
            }
        };
        self.in_flight[token] = Some(Sent { op, ticket, group, submitted_ns, cost_ns, refused: None });
    }

    /// Removes a completed request from the accounting. Returns its answer.
    fn finish(&mut self, token: usize, op: Op, result: io::Result<()>) -> RequestAnswer {
        let done = self.in_flight[token].take().expect("a token is in use until its request is done");
        if let (Some(refused), Ok(())) = (done.refused, &result) {
            self.refuse(refused); // the pool succeeded, so the ring was at fault
        }
        self.free.push(token);
        self.in_flight_count -= 1;
        self.in_flight_ns -= done.cost_ns;
        self.disk_is_idle |= self.bucket.done(done.cost_ns);
        let counters = self.counters(done.group);
        let (kind, bytes) = op.cost();
        let waited_ns = sys::monotonic_ns().saturating_sub(done.submitted_ns);
        let (bytes_total, ops) = match kind {
            DiskDirection::Read => (&counters.disk_read_bytes, &counters.disk_read_ops),
            DiskDirection::Write => (&counters.disk_write_bytes, &counters.disk_write_ops),
        };
        count(bytes_total, bytes);
        count(ops, 1);
        count(&counters.disk_wait_ns, waited_ns);
        RequestAnswer(done.ticket, (result, op))
    }

    fn counters(&self, group: Group) -> &Counters {
        let group = if self.registry.get(group).is_some() { group } else { Group::DEFAULT };
        &self.registry.counters(slot_of(group.0))[self.shared.index]
    }

    /// Reaps the completions of the ring.
    fn reap(&mut self) -> Vec<RequestAnswer> {
        let mut answers = Vec::new();
        let Some(ring) = &mut self.ring else { return answers };
        for (token, result) in ring.reap() {
            let in_flight = self.in_flight[token].as_mut().expect("in use until done");
            let mut op = in_flight.op.take().expect("with the ring");
            let result = match result {
                Ok(moved) if op.advance(moved) => Ok(()),
                // Continue a short read or write, or repeat after an interruption.
                Ok(_) => {
                    self.again(token, op);
                    continue;
                }
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
                {
                    self.again(token, op);
                    continue;
                }
                // The request or the ring may be at fault. The pool will show which.
                Err(error) if may_be_refusal(&error) => {
                    in_flight.refused = Some(error);
                    self.pool.send(&self.shared, token, op);
                    continue;
                }
                Err(error) => Err(error),
            };
            answers.push(self.finish(token, op, result));
        }
        answers
    }

    fn again(&mut self, token: usize, mut op: Op) {
        if self.ring_refused {
            return self.pool.send(&self.shared, token, op);
        }
        self.ring.as_mut().expect("it came from the ring").push(token, &mut op);
        self.in_flight[token].as_mut().expect("in use until done").op = Some(op);
    }
}

/// Returns true for errors of operations that the kernel does not support or a security module
/// forbids. Invalid requests may get them too.
fn may_be_refusal(error: &io::Error) -> bool {
    let refusals = [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EOPNOTSUPP, libc::EINVAL];
    error.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

impl RequestAnswer {
    pub(crate) fn give(self) {
        self.0.send(self.1);
    }
}

#[cfg(test)]
mod tests;
