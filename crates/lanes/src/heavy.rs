//! The heavy lane of a core: one running worker and spares, all of the idle class, so that the kernel takes the CPU from
//! them the moment the fast lane wakes. Which group a worker may run is granted by the fast lane; workers look at
//! their grant between tasks and at yield points.
//!
//! One more worker is of normal priority. It sleeps until the lane is *starved*: another program on the CPU, which the idle
//! class gives way to, leaves it next to nothing. Then urgent tasks (somebody waits at a login, a memtable must go) are this worker's,
//! and the others leave them alone: a task taken up by a thread that gets no CPU would be stuck with it.
//!
//! ```text
//!   any thread ──schedule──▶ inbox ──▶ queues by group (a lock among workers only) ──▶ worker: grant = group, epoch
//!   fast lane  ──grant, unpark──▶ worker ──"group has no more"──▶ message to the fast lane
//! ```
//!
//! A worker counts the CPU of each of its turns when it ends (`heavy_closed_ns`); of the turn under way the fast lane
//! reads the worker's CPU clock. A sequence number tells it when it caught a worker between the two.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use rustc_hash::FxHashMap;

use crate::Group;
use crate::context::{in_group, piece_begins, take_seat};
use crate::lanes::Lanes;
use crate::queue::Inbox;
use crate::registry::{Counters, NOBODY, slot_of};
use crate::shared::{CoreShared, Message};
use crate::sys::{self, ThreadClock};
use crate::task::{self, Runnable};

/// Threads of the idle class: one that runs and spares for turns that overrun or block. With all of them stuck, heavy work
/// of other groups waits.
pub(crate) const WORKERS: usize = 4;
/// The worker of normal priority, for urgent tasks while the lane is starved.
pub(crate) const RESCUER: usize = WORKERS;
/// All threads of a heavy lane.
pub(crate) const SEATS: usize = WORKERS + 1;

/// An epoch and a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant(pub(crate) u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(NOBODY as u64);

    pub(crate) fn group(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn next(self, group: u32) -> Grant {
        Grant(((self.0 >> 32) + 1) << 32 | u64::from(group))
    }
}

/// One worker, as the fast lane sees it.
pub(crate) struct Worker {
    /// Written by the fast lane.
    grant: AtomicU64,
    /// The grant it took up last.
    taken: AtomicU64,
    /// The grant it found no more work under.
    done: AtomicU64,
    /// Odd while the next two change.
    sequence: AtomicU32,
    turn_group: AtomicU32,
    turn_began_cpu_ns: AtomicU64,
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
            turn_group: AtomicU32::new(NOBODY),
            turn_began_cpu_ns: AtomicU64::new(0),
            clock: OnceLock::new(),
            thread: OnceLock::new(),
        }
    }

    pub(crate) fn grant(&self) -> Grant {
        Grant(self.grant.load(SeqCst))
    }

    pub(crate) fn has_taken(&self, grant: Grant) -> bool {
        self.taken.load(SeqCst) == grant.0
    }

    /// As its thread does with the grant that it has.
    #[cfg(test)]
    pub(crate) fn take(&self) {
        self.taken.store(self.grant.load(SeqCst), SeqCst);
        self.turn_group.store(self.grant().group(), SeqCst);
    }

    pub(crate) fn is_done(&self, grant: Grant) -> bool {
        self.done.load(SeqCst) == grant.0 || grant.group() == NOBODY
    }

    /// Fast lane: changes the grant; a worker that waits for one is woken.
    pub(crate) fn give(&self, grant: Grant) {
        self.grant.store(grant.0, SeqCst);
        if grant.group() != NOBODY {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// The group whose turn is under way; [`NOBODY`] if none.
    pub(crate) fn turn_group(&self) -> u32 {
        self.turn_group.load(SeqCst)
    }

    /// CPU used in the turn of `group` under way, ns; none if there is none, or if it is just changing.
    pub(crate) fn turn_cpu_ns(&self, group: u32) -> Option<u64> {
        let before = self.sequence.load(Acquire);
        if before % 2 == 1 || self.turn_group() != group {
            return None;
        }
        let began = self.turn_began_cpu_ns.load(Acquire);
        let now = self.clock.get()?.read_ns();
        (self.sequence.load(Acquire) == before).then(|| now.saturating_sub(began))
    }

    fn change_turn(&self, group: u32, began_cpu_ns: u64, count: impl FnOnce()) {
        self.sequence.fetch_add(1, AcqRel);
        count();
        self.turn_began_cpu_ns.store(began_cpu_ns, Release);
        self.turn_group.store(group, SeqCst);
        self.sequence.fetch_add(1, AcqRel);
    }
}

/// Tasks that wait for a worker, by group.
struct Waiting {
    inbox: Inbox<Runnable>,
    /// Shared by workers only, and by whoever ends the lane once they have ended.
    queues: Mutex<FxHashMap<u32, VecDeque<Runnable>>>,
}

impl Waiting {
    fn new() -> Waiting {
        Waiting { inbox: Inbox::new(), queues: Mutex::default() }
    }

    fn pop(&self, group: u32) -> Option<Runnable> {
        // Poison means that a worker panicked between two queue operations, none of which leaves them half done.
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for runnable in self.inbox.take() {
            let queued_as = runnable.metadata().queued_as.load(Relaxed);
            queues.entry(queued_as).or_default().push_back(runnable);
        }
        let queue = queues.get_mut(&group)?;
        let runnable = queue.pop_front();
        if queue.is_empty() {
            queues.remove(&group); // groups come and go: no entry is kept for one without work
        }
        runnable
    }

    fn take_all(&self) -> Vec<Runnable> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = queues.drain().flat_map(|(_, queue)| queue);
        queued.chain(self.inbox.take()).collect()
    }
}

/// See the head of this file.
pub(crate) struct HeavyLane {
    /// Apart from the others, also because of the locks: a worker of a starved lane may lose the CPU while it holds one.
    urgent: Waiting,
    rest: Waiting,
    pub(crate) workers: [Worker; SEATS],
    /// Tasks that are ready or being polled, of all groups.
    ready: AtomicU32,
    /// Urgent tasks are for the [`RESCUER`] only. Written by the fast lane.
    pub(crate) starved: AtomicBool,
}

impl HeavyLane {
    pub(crate) fn new() -> HeavyLane {
        HeavyLane {
            urgent: Waiting::new(),
            rest: Waiting::new(),
            workers: std::array::from_fn(|_| Worker::new()),
            ready: AtomicU32::new(0),
            starved: AtomicBool::new(false),
        }
    }

    /// The next task of a group for worker `index`, urgent ones first.
    fn pop(&self, index: usize, group: u32, counters: &Counters) -> Option<Runnable> {
        let rescuer = index == RESCUER;
        let urgent = (rescuer || !self.starved.load(SeqCst)) && counters.urgent_queued.load(SeqCst) > 0;
        let found = if urgent { self.urgent.pop(group) } else { None };
        if found.is_some() || rescuer { found } else { self.rest.pop(group) }
    }

    /// Tasks that are ready or being polled.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Relaxed)
    }

    /// Wakes all workers, to see that the lane ends.
    pub(crate) fn wake_all(&self) {
        self.workers.iter().filter_map(|worker| worker.thread.get()).for_each(Thread::unpark);
    }

    /// Drops all queued tasks, and those that are woken by that: whether there were any. Only once the workers have ended.
    ///
    /// Dropped here, where no lock is held: who wakes a task may hold locks that the task's end takes too. So the queues are never
    /// closed, and what is woken once all lanes have ended is leaked.
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

/// Queues a heavy task that was woken, from any thread.
pub(crate) fn schedule(shared: &Arc<CoreShared>, runnable: Runnable) {
    let header = runnable.metadata();
    let asked = Group(header.group.load(Relaxed));
    let (group, before) = match count_ready(shared, asked) {
        Some(before) => (asked, before),
        None => {
            let before = count_ready(shared, Group::DEFAULT);
            (Group::DEFAULT, before.expect("the default group is never dropped"))
        }
    };
    header.queued_as.store(group.0, Relaxed);
    let urgent = header.urgent;
    if urgent {
        // Before it is queued, so that who does not find it counted need not look.
        shared.registry.counters(slot_of(group.0))[shared.index].urgent_queued.fetch_add(1, SeqCst);
    }
    shared.heavy.ready.fetch_add(1, Relaxed);
    let waiting = if urgent { &shared.heavy.urgent } else { &shared.heavy.rest };
    let Ok(()) = waiting.inbox.push(runnable) else { unreachable!("it is never closed") };
    if before == 0 {
        tell(shared, group);
    } // else the fast lane knows of this group, or will when the worker that finds it empty says so
}

/// Counts one more ready task of a group: how many there were; none if the group was dropped.
///
/// The group may be dropped by another thread at any moment. Who drops takes the group's number away and then has each
/// core look at the count; here the count is raised and then the number looked at. In the one order of sequentially
/// consistent operations, the core sees the task and keeps the group for it, or it is seen here that the group is gone.
fn count_ready(shared: &Arc<CoreShared>, group: Group) -> Option<u32> {
    let pending = &shared.registry.get(group)?.counters[shared.index].heavy_pending;
    let before = pending.fetch_add(1, SeqCst);
    if shared.registry.get(group).is_some() {
        return Some(before);
    }
    pending.fetch_sub(1, SeqCst);
    tell(shared, group); // a core that saw the count meanwhile may let go of the group now
    None
}

/// Has the fast lane look whether a group has heavy work.
fn tell(shared: &Arc<CoreShared>, group: Group) {
    let mut told = false;
    crate::context::with_own_core(shared, |core| {
        core.look(group);
        told = true;
    });
    if !told {
        drop(shared.send(Message::Look(group)));
    }
}

/// A worker's seat, known to the code that it runs.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) lanes: Lanes,
    pub(crate) shared: Arc<CoreShared>,
    worker: usize,
    grant: Grant,
}

impl Seat {
    pub(crate) fn turn_is_over(&self) -> bool {
        self.shared.heavy.workers[self.worker].grant.load(Relaxed) != self.grant.0
    }
}

/// A worker thread, until the lane stops.
pub(crate) fn work(lanes: Lanes, shared: Arc<CoreShared>, index: usize) {
    let worker = &shared.heavy.workers[index];
    if !shared.cpus.is_empty() {
        // Inherited from the fast lane already; a failure changes nothing.
        drop(sys::pin_to(&shared.cpus));
    }
    let class = if index == RESCUER { Ok(()) } else { sys::become_idle_class() };
    if let (Ok(()), Ok(clock)) = (class, ThreadClock::of_this_thread()) {
        let _ = worker.clock.set(clock);
    }
    let _ = worker.thread.set(std::thread::current());
    while !shared.stop.load(SeqCst) {
        let grant = worker.grant();
        if worker.is_done(grant) {
            std::thread::park();
            continue;
        }
        take_seat(Some(Seat { lanes: lanes.clone(), shared: shared.clone(), worker: index, grant }));
        if turn(&shared, index, grant) {
            drop(shared.send(Message::Look(Group(grant.group()))));
        }
    }
    take_seat(None);
}

/// Runs tasks of the granted group until the grant changes or there are no more: whether the latter.
fn turn(shared: &CoreShared, index: usize, grant: Grant) -> bool {
    let worker = &shared.heavy.workers[index];
    worker.change_turn(grant.group(), sys::thread_cpu_ns(), || ());
    worker.taken.store(grant.0, SeqCst);
    // The slot, not the group: it may have been dropped since, and its counts must fall all the same.
    let counters = &shared.registry.counters(slot_of(grant.group()))[shared.index];
    let mut drained = false;
    while worker.grant() == grant && !shared.stop.load(Relaxed) {
        let Some(runnable) = shared.heavy.pop(index, grant.group(), counters) else {
            drained = true;
            break;
        };
        let header = runnable.metadata();
        if header.urgent {
            counters.urgent_queued.fetch_sub(1, SeqCst);
        }
        let group = Group(header.group.load(Relaxed));
        piece_begins(sys::monotonic_ns());
        in_group(group, || task::run(runnable));
        counters.heavy_pending.fetch_sub(1, AcqRel);
        shared.heavy.ready.fetch_sub(1, Relaxed);
    }
    let now = sys::thread_cpu_ns();
    let used = now.saturating_sub(worker.turn_began_cpu_ns.load(Relaxed));
    worker.change_turn(NOBODY, now, || {
        counters.heavy_closed_ns.fetch_add(used, AcqRel);
    });
    if drained {
        worker.done.store(grant.0, SeqCst);
    }
    drained
}
