//! Heavy lane of a core: one running worker and spares, all of the kernel's idle class. So the
//! kernel takes the CPU from them the moment the fast lane wakes. The fast lane grants a worker the
//! group that it may run. Workers check their grant between tasks and at yield points.
//!
//! One more worker has normal priority. It sleeps until the lane is *starved*: another program on
//! the CPU leaves the idle class next to nothing. Then this worker runs urgent tasks (a client
//! waits for a login, a memtable must be flushed). The other workers leave those alone, because a
//! task that a thread without CPU has taken up would be stuck with it.
//!
//! ```text
//!   any thread ──schedule──▶ inbox ──▶ queues by group (a lock among workers only) ──▶ worker: grant = group, epoch
//!   fast lane  ──grant, unpark──▶ worker ──"group has no more"──▶ message to the fast lane
//! ```
//!
//! A worker counts the CPU of a slice when the slice ends (`heavy_closed_ns`). For a running slice
//! the fast lane reads the worker's CPU clock. A sequence number detects a read while the worker is
//! between the two.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use rustc_hash::FxHashMap;
use sched::Rounds;

use crate::Flow;
use crate::counters::Counters;
use crate::group::NO_GROUP;
use crate::queue::Inbox;
use crate::sys::ThreadClock;
use crate::task::Runnable;

/// Threads of the idle class: one that runs, and spares for slices that overrun or block. With all
/// of them stuck, heavy work of other groups waits.
pub(crate) const WORKERS: usize = 4;
/// Index of the normal-priority worker, for urgent tasks while the lane is starved.
pub(crate) const NORMAL_WORKER: usize = WORKERS;
/// Number of threads of a heavy lane.
pub(crate) const SEATS: usize = WORKERS + 1;

/// Grant of a worker: an epoch and a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant(pub(crate) u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(NO_GROUP as u64);

    pub(crate) fn group(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn next(self, group: u32) -> Grant {
        Grant(((self.0 >> 32) + 1) << 32 | u64::from(group))
    }
}

/// State of one worker that the fast lane sees.
pub(crate) struct Worker {
    /// The current grant. Written by the fast lane.
    grant: AtomicU64,
    /// Grant that the worker took up last.
    taken: AtomicU64,
    /// Grant under which the worker found no more work.
    done: AtomicU64,
    /// Sequence number, odd while the next two fields change.
    sequence: AtomicU32,
    slice_group: AtomicU32,
    slice_began_cpu_ns: AtomicU64,
    clock: OnceLock<ThreadClock>,
    thread: OnceLock<Thread>,
}

impl Worker {
    fn new() -> Worker {
        let none = || AtomicU64::new(Grant::NONE.0);
        Worker {
            grant: none(),
            taken: none(),
            done: none(),
            sequence: AtomicU32::new(0),
            slice_group: AtomicU32::new(NO_GROUP),
            slice_began_cpu_ns: AtomicU64::new(0),
            clock: OnceLock::new(),
            thread: OnceLock::new(),
        }
    }

    pub(crate) fn grant(&self) -> Grant {
        Grant(self.grant.load(SeqCst))
    }

    /// Returns true while `grant` is the current one. Takes a nanosecond.
    pub(crate) fn has_grant(&self, grant: Grant) -> bool {
        self.grant.load(Relaxed) == grant.0
    }

    pub(crate) fn has_taken(&self, grant: Grant) -> bool {
        self.taken.load(SeqCst) == grant.0
    }

    /// Takes up the grant as the worker's thread does.
    #[cfg(test)]
    pub(crate) fn take(&self) {
        self.taken.store(self.grant.load(SeqCst), SeqCst);
        self.slice_group.store(self.grant().group(), SeqCst);
    }

    pub(crate) fn is_done(&self, grant: Grant) -> bool {
        self.done.load(SeqCst) == grant.0 || grant.group() == NO_GROUP
    }

    /// Changes the grant, and wakes the worker if it gets a group. Called by the fast lane.
    pub(crate) fn give(&self, grant: Grant) {
        self.grant.store(grant.0, SeqCst);
        if grant.group() != NO_GROUP {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// Returns the group of the running slice; [`NO_GROUP`] if none.
    pub(crate) fn slice_group(&self) -> u32 {
        self.slice_group.load(SeqCst)
    }

    /// Returns the CPU used in the running slice of `group`, ns. `None`: no such slice runs, or it
    /// is changing right now.
    pub(crate) fn slice_cpu_ns(&self, group: u32) -> Option<u64> {
        let before = self.sequence.load(Acquire);
        if before % 2 == 1 || self.slice_group() != group {
            return None;
        }
        let began = self.slice_began_cpu_ns.load(Acquire);
        let now = self.clock.get()?.read_ns();
        (self.sequence.load(Acquire) == before).then(|| now.saturating_sub(began))
    }

    /// Registers the calling thread as that of the worker, with its CPU clock.
    pub(crate) fn attach_thread(&self, clock: Option<ThreadClock>) {
        if let Some(clock) = clock {
            let _ = self.clock.set(clock);
        }
        let _ = self.thread.set(std::thread::current());
    }

    /// Takes up a grant. `cpu_ns`: the reading of the thread's CPU clock, ns.
    pub(crate) fn begin_slice(&self, grant: Grant, cpu_ns: u64) {
        self.change_slice(grant.group(), cpu_ns, || ());
        self.taken.store(grant.0, SeqCst);
    }

    /// Ends the slice, and adds its CPU to the counters of its group.
    pub(crate) fn end_slice(&self, cpu_ns: u64, counters: &Counters) {
        let used_ns = cpu_ns.saturating_sub(self.slice_began_cpu_ns.load(Relaxed));
        self.change_slice(NO_GROUP, cpu_ns, || {
            counters.heavy_closed_ns.fetch_add(used_ns, AcqRel);
        });
    }

    /// Records that the granted group has no more work.
    pub(crate) fn mark_done(&self, grant: Grant) {
        self.done.store(grant.0, SeqCst);
    }

    fn change_slice(&self, group: u32, began_cpu_ns: u64, count: impl FnOnce()) {
        self.sequence.fetch_add(1, AcqRel);
        count();
        self.slice_began_cpu_ns.store(began_cpu_ns, Release);
        self.slice_group.store(group, SeqCst);
        self.sequence.fetch_add(1, AcqRel);
    }
}

/// CPU time of one turn of a flow on a heavy lane, ns: a quarter of its longest task poll.
const HEAVY_TURN_NS: u32 = 250_000;

/// Queues of tasks that wait for a worker, by group.
struct WaitingTasks {
    inbox: Inbox<Runnable>,
    /// Shared by workers only, and at the end of the lane by the thread that drains it.
    queues: Mutex<FxHashMap<u32, Rounds<Runnable>>>,
}

impl WaitingTasks {
    fn new() -> WaitingTasks {
        WaitingTasks { inbox: Inbox::new(), queues: Mutex::default() }
    }

    fn pop(&self, group: u32) -> Option<Runnable> {
        let mut queues = self.lock();
        for runnable in self.inbox.take() {
            let queued_as = runnable.metadata().queued_as.load(Relaxed);
            let queue = queues.entry(queued_as).or_insert_with(|| Rounds::new(HEAVY_TURN_NS));
            queue.push(runnable.metadata().flow.0, runnable);
        }
        let queue = queues.get_mut(&group)?;
        let runnable = queue.pop();
        if queue.is_empty() {
            queues.remove(&group); // groups come and go: no entry is kept for one without work
        }
        runnable
    }

    /// Returns true if several flows of the group wait.
    fn is_contended(&self, group: u32) -> bool {
        self.lock().get(&group).is_some_and(Rounds::is_contended)
    }

    /// Charges a task poll to the turn of its flow.
    fn charge(&self, group: u32, flow: Flow, cpu_ns: u64) {
        if let Some(queue) = self.lock().get_mut(&group) {
            queue.charge_flow(flow.0, cpu_ns);
        }
    }

    /// Locks the queues. A poisoned lock means that a worker panicked between two queue operations,
    /// which leave no partial state.
    fn lock(&self) -> MutexGuard<'_, FxHashMap<u32, Rounds<Runnable>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_all(&self) -> Vec<Runnable> {
        let mut queues = self.lock();
        let queued = queues.drain().flat_map(|(_, mut queue)| queue.take_all());
        queued.chain(self.inbox.take()).collect()
    }
}

/// Heavy lane of a core. The head of this file describes it.
pub(crate) struct HeavyLane {
    /// Urgent tasks. Their lock is separate, because a worker of a starved lane may lose the CPU
    /// while it holds the other one.
    urgent: WaitingTasks,
    rest: WaitingTasks,
    pub(crate) workers: [Worker; SEATS],
    /// Number of tasks of all groups that are ready or being polled.
    ready: AtomicU32,
    /// Only the [`NORMAL_WORKER`] may take urgent tasks. Written by the fast lane.
    pub(crate) starved: AtomicBool,
}

impl HeavyLane {
    pub(crate) fn new() -> HeavyLane {
        HeavyLane {
            urgent: WaitingTasks::new(),
            rest: WaitingTasks::new(),
            workers: std::array::from_fn(|_| Worker::new()),
            ready: AtomicU32::new(0),
            starved: AtomicBool::new(false),
        }
    }

    /// Queues a task that woke.
    pub(crate) fn push(&self, runnable: Runnable) {
        self.ready.fetch_add(1, Relaxed);
        let waiting = if runnable.metadata().urgent { &self.urgent } else { &self.rest };
        let Ok(()) = waiting.inbox.push(runnable) else { unreachable!("the inbox is never closed") };
    }

    /// Takes the next task of a group for worker `index`, urgent ones first.
    pub(crate) fn pop(&self, index: usize, group: u32, counters: &Counters) -> Option<Runnable> {
        let is_normal = index == NORMAL_WORKER;
        let urgent = (is_normal || !self.starved.load(SeqCst)) && counters.urgent_queued.load(SeqCst) > 0;
        let found = if urgent { self.urgent.pop(group) } else { None };
        if found.is_some() || is_normal { found } else { self.rest.pop(group) }
    }

    /// Returns true if tasks of several flows of the group wait, so that task polls are to be
    /// charged.
    pub(crate) fn is_contended(&self, group: u32) -> bool {
        self.rest.is_contended(group)
    }

    /// Charges a task poll to the turn of its flow.
    pub(crate) fn charge(&self, group: u32, flow: Flow, cpu_ns: u64) {
        self.rest.charge(group, flow, cpu_ns);
    }

    /// Records that a task was polled, as far as [`HeavyLane::ready`] is concerned.
    pub(crate) fn was_polled(&self) {
        self.ready.fetch_sub(1, Relaxed);
    }

    /// Returns the number of tasks that are ready or being polled.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Relaxed)
    }

    /// Wakes all workers, so that they see the end of the lane.
    pub(crate) fn wake_all(&self) {
        self.workers.iter().filter_map(|worker| worker.thread.get()).for_each(Thread::unpark);
    }

    /// Drops all queued tasks, and those that their drops wake. Returns true if there were any.
    /// Call it only after the workers have ended.
    ///
    /// No lock is held here during a drop: the thread that wakes a task may hold locks that the
    /// drop of the task takes too. So the queues are never closed, and a task that wakes after the
    /// end of all lanes is leaked.
    pub(crate) fn drain(&self) -> bool {
        let mut any = false;
        loop {
            let (urgent, rest) = (self.urgent.take_all(), self.rest.take_all());
            if urgent.is_empty() && rest.is_empty() {
                return any;
            }
            any = true;
        }
    }
}
