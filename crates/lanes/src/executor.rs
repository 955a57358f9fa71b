//! Fast lane of a core: its run loop inside a tokio current-thread runtime. The loop is one tokio
//! task. It returns to tokio to poll for events, or to sleep in the poller. As a task, unlike the
//! root future, it is woken by local events without a system call. The root future only forwards
//! wake-ups from other threads.
//!
//! One iteration:
//! 1. Charge the time spent outside (in tokio's poller) to the group that ran before, and the CPU
//!    of heavy workers to their groups.
//! 2. Take messages, and reap completions of the disk.
//! 3. Pick a group, run its tasks for a slice, charge it, and pick again until the next poll is
//!    due. If heavy work is first, yield the core to the heavy lane. If nothing is ready, sleep in
//!    the poller.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll, Waker};

use crate::counters::{Cached, count};
use crate::current::{clock_read, coarse_now_ns, in_group, poll_begins};
use crate::deferred::Deferred;
use crate::disk::io::service::Service;
use crate::groups::{Choice, Groups};
use crate::heavy_control::{CoreYield, HeavyControl};
use crate::lanes::Lanes;
use crate::registry::slot_of;
use crate::shared::{CoreShared, Message};
use crate::task::{self, Runnable};
use crate::timer::Timer;
use crate::{Group, Report, sys, units};

/// Length above which a fast-lane task poll is a stall, ns.
const STALL_NS: u64 = 200_000;
/// Interval between two reports of stalls, ns. All stalls are counted.
const STALL_REPORT_EVERY_NS: u64 = 60_000_000_000;
/// Interval between two reports of a starved heavy lane, ns.
const STARVED_REPORT_EVERY_NS: u64 = 10_000_000_000;
/// Length below which a slice is charged by the monotonic clock, ns. The next reading of the CPU
/// clock makes up for the difference. A reading is a system call, and would cost a tenth of so
/// short a slice.
const SHORT_NS: u64 = 10_000;

/// Fast lane of a core, used only on its own thread.
pub(crate) struct Core {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) lanes: Lanes,
    /// Never borrowed while other code (a task, a waker, a drop) runs.
    groups: RefCell<Groups>,
    heavy_control: RefCell<HeavyControl>,
    core_yield: Cell<Option<CoreYield>>,
    pub(crate) disk: RefCell<Service>,
    pub(crate) deferred: Deferred,
    /// Wakers of all unfinished tasks, by key.
    listed: RefCell<Listed>,
    /// Wakes the loop.
    waker: RefCell<Option<Waker>>,
    /// True while the loop runs or is about to.
    awake: Cell<bool>,
    in_iteration: Cell<bool>,
    /// Slot of the group that ran last in the iteration before, if one did.
    ran_last: Cell<Option<usize>>,
    /// Reading of this thread's CPU clock up to which all CPU is charged, ns.
    charged_cpu_ns: Cell<u64>,
    /// Earliest time of the next report of stalls, ns.
    stall_next_report_ns: Cell<u64>,
    /// Stalls since the last report, with the length (ns) and the group of the longest.
    stalled: Cell<(u64, u64, u32)>,
    starved_next_report_ns: Cell<u64>,
}

#[derive(Default)]
struct Listed {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// Poll that took the core back from heavy work.
#[derive(Clone, Copy)]
struct CorePoll {
    at_ns: u64,
    /// Slot of the group whose heavy work had the core.
    had_core_slot: usize,
    cost_ns: u64,
}

/// End of an iteration.
enum Next {
    /// Poll for events without sleeping.
    Poll,
    /// Sleep in the poller until an event, or until this time (ns).
    Sleep(Option<u64>),
    /// Leave the core to the heavy lane until this time (ns) without polling, unless that lane runs
    /// out of work before.
    SleepCoalesced(u64),
    Stop,
}

impl Core {
    pub(crate) fn new(lanes: Lanes, shared: Arc<CoreShared>, disk: Service) -> Core {
        let groups = Groups::new(shared.registry.clone(), shared.index, lanes.cores());
        Core {
            shared,
            lanes,
            groups: RefCell::new(groups),
            heavy_control: RefCell::new(HeavyControl::new()),
            core_yield: Cell::new(None),
            disk: RefCell::new(disk),
            deferred: Deferred::default(),
            listed: RefCell::default(),
            waker: RefCell::new(None),
            awake: Cell::new(true),
            in_iteration: Cell::new(false),
            ran_last: Cell::new(None),
            charged_cpu_ns: Cell::new(sys::thread_cpu_ns()),
            stall_next_report_ns: Cell::new(0),
            stalled: Cell::default(),
            starved_next_report_ns: Cell::new(0),
        }
    }

    /// Counts a cache lookup, for [`crate::disk::count_lookup`].
    pub(crate) fn count_lookup(&self, group: Group, cached: Cached, found: bool) {
        let registry = &self.shared.registry;
        if registry.get(group).is_some() {
            let counters = &registry.counters(slot_of(group.0))[self.shared.index];
            count(counters.lookups(cached, found), 1);
        }
    }

    pub(crate) fn reserve_listing(&self) -> usize {
        let mut listed = self.listed.borrow_mut();
        listed.free.pop().unwrap_or_else(|| {
            listed.wakers.push(None);
            listed.wakers.len() - 1
        })
    }

    pub(crate) fn list(&self, key: usize, waker: Waker) {
        self.listed.borrow_mut().wakers[key] = Some(waker);
    }

    pub(crate) fn unlist(&self, key: usize) {
        let mut listed = self.listed.borrow_mut();
        let gone = listed.wakers[key].take();
        listed.free.push(key);
        drop(listed);
        drop(gone);
    }

    /// Wakes the loop from this thread.
    pub(crate) fn wake(&self) {
        if !self.awake.replace(true) {
            self.waker.borrow().iter().for_each(Waker::wake_by_ref);
        }
    }

    /// Queues a task of this core that is ready.
    pub(crate) fn enqueue(&self, runnable: Runnable) {
        runnable.metadata().queued_ns.store(coarse_now_ns(), Relaxed);
        let mut groups = self.groups.borrow_mut();
        let slot = groups.queue_task(runnable);
        self.ready(groups, slot);
    }

    /// Checks the heavy work of a group after it began or ended.
    pub(crate) fn check_heavy(&self, group: Group) {
        let slot = self.groups.borrow_mut().slot(group);
        self.check_slot(slot);
    }

    fn check_slot(&self, slot: usize) {
        let mut groups = self.groups.borrow_mut();
        groups.check_heavy(slot);
        if groups.local(slot).heavy {
            self.ready(groups, slot);
        } else {
            groups.idle_if_empty(slot);
            drop(groups);
            if self.core_yield.get().is_some() {
                self.wake();
            }
        }
    }

    /// Marks a group as ready. Wakes the loop, unless the core was yielded to a group that comes
    /// first.
    #[inline]
    fn ready(&self, mut groups: RefMut<'_, Groups>, slot: usize) {
        let node = groups.local(slot).node;
        let was_idle = !groups.scheduler.is_awake(node);
        if was_idle {
            if self.core_yield.get().is_some() {
                // Charge first, so that the woken group is placed by the current virtual time.
                self.heavy_control.borrow_mut().collect(&self.shared, &mut groups);
            }
            groups.wake(slot, sys::monotonic_ns());
        }
        if self.awake.get() {
            return;
        }
        let run = match self.core_yield.get() {
            None => true,
            Some(core_yield) => {
                let fast = !groups.local(slot).queue.is_empty();
                groups.scheduler.preempts(node, was_idle, fast, &core_yield.yielded)
            }
        };
        drop(groups);
        if run {
            self.wake();
        }
    }

    /// Polls the loop as a tokio task.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, timer: &mut Timer) -> Poll<()> {
        if self.waker.borrow().as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        self.shared.awake();
        let slept = !self.awake.replace(true);
        self.in_iteration.set(true);
        timer.rest(cx);
        let next = self.iterate(cx, slept);
        self.in_iteration.set(false);
        match next {
            Next::Stop => Poll::Ready(()),
            Next::Poll => {
                poll_events(cx);
                Poll::Pending
            }
            Next::Sleep(until_ns) => {
                if !self.shared.announce_sleep() {
                    poll_events(cx);
                    return Poll::Pending;
                }
                self.awake.set(false);
                clock_read(0);
                timer.arm(until_ns);
                Poll::Pending
            }
            Next::SleepCoalesced(until_ns) => {
                clock_read(0);
                self.shared.sleep_coalesced(until_ns);
                poll_events(cx);
                Poll::Pending
            }
        }
    }

    fn iterate(&self, cx: &mut Context<'_>, slept: bool) -> Next {
        let began_ns = sys::monotonic_ns();
        clock_read(began_ns);
        let mut core_poll = self.charge_outside(began_ns, slept);
        self.charge_workers(began_ns);
        self.run_disk(Some(cx));
        let mut now_ns = began_ns;
        loop {
            if self.shared.stop.load(Relaxed) {
                break Next::Stop;
            }
            self.take_messages();
            let choice = self.groups.borrow_mut().pick(now_ns);
            if self.ran_deferred_before(&choice) {
                now_ns = sys::monotonic_ns();
                continue; // the deferred work may have made tasks ready
            }
            match choice {
                Choice::Idle => {
                    if self.run_disk(None) {
                        continue;
                    }
                    self.heavy_control.borrow_mut().revoke(&self.shared, now_ns);
                    self.pay(core_poll, None);
                    break Next::Sleep(self.next_event_ns(None));
                }
                Choice::Fast(slot, slice_ns) => {
                    self.pay(core_poll.take(), Some(slot));
                    now_ns = self.run_slice(slot, slice_ns, now_ns);
                }
                Choice::Heavy(slot, budget_ns) => {
                    if self.run_disk(None) {
                        continue; // a completion may have woken a group that comes first
                    }
                    self.pay(core_poll.take(), None);
                    let mut groups = self.groups.borrow_mut();
                    let mut heavy_control = self.heavy_control.borrow_mut();
                    match heavy_control.yield_core(&self.shared, &mut groups, slot, budget_ns, now_ns) {
                        Some(core_yield) => {
                            self.core_yield.set(Some(core_yield));
                            let poll_ns = groups.scheduler.poll_after_ns(now_ns);
                            drop((groups, heavy_control));
                            let until_ns = self.next_event_ns(Some(core_yield.yielded.until_ns));
                            break match poll_ns {
                                Some(poll_ns) => Next::SleepCoalesced(
                                    until_ns.map_or(poll_ns, |until_ns| until_ns.min(poll_ns)),
                                ),
                                None => Next::Sleep(until_ns),
                            };
                        }
                        // All workers are stuck in slices of other groups: ask again a slice later.
                        None => groups.throttle(slot, now_ns, now_ns + sched::SLICE_NS),
                    }
                }
            }
            if now_ns.saturating_sub(began_ns) >= sched::LATENCY_SLICE_NS {
                self.run_disk(None);
                break Next::Poll;
            }
        }
    }

    /// Runs the deferred work of the last group before a slice of another group or a sleep. Returns
    /// true if there was any.
    fn ran_deferred_before(&self, choice: &Choice) -> bool {
        let Some(group) = self.deferred.group() else { return false };
        let slot = self.groups.borrow_mut().slot(group);
        if matches!(choice, Choice::Fast(next, _) if *next == slot) {
            return false;
        }
        let began_ns = sys::monotonic_ns();
        self.deferred.run();
        self.charge(slot, began_ns, sys::monotonic_ns());
        true
    }

    /// Charges the workers after the core came back to the fast lane.
    fn charge_workers(&self, now_ns: u64) {
        let mut groups = self.groups.borrow_mut();
        let mut heavy_control = self.heavy_control.borrow_mut();
        heavy_control.collect(&self.shared, &mut groups);
        // Without a yield, the time was that of the poller, which is work of `control`.
        let had_core_slot =
            self.core_yield.get().map_or_else(|| groups.slot(Group::CONTROL), |core_yield| core_yield.slot);
        groups.record_slice(had_core_slot, now_ns);
        if let Some(core_yield) = self.core_yield.take()
            && heavy_control.end_yield(&self.shared, &mut groups, core_yield, now_ns)
        {
            let group = Group(groups.id(core_yield.slot));
            drop((groups, heavy_control));
            self.starved(group, now_ns);
        }
    }

    /// Reports, at most once an interval, that heavy work of a group got nearly no CPU.
    #[cold]
    fn starved(&self, group: Group, now_ns: u64) {
        if now_ns < self.starved_next_report_ns.get() {
            return;
        }
        self.starved_next_report_ns.set(now_ns + STARVED_REPORT_EVERY_NS);
        self.lanes.report(&Report::Starved {
            core: self.shared.index,
            cpus: self.shared.cpus.clone(),
            group: self.lanes.group_name(group),
            times: self.shared.counts.starved.load(Relaxed),
        });
    }

    fn next_event_ns(&self, until_ns: Option<u64>) -> Option<u64> {
        let unthrottle_ns = self.groups.borrow().scheduler.next_unthrottle_ns();
        let disk_ns = self.disk.borrow().next_ns();
        [until_ns, unthrottle_ns, disk_ns].into_iter().flatten().min()
    }

    /// Charges CPU time since the last reading, as [`Groups::charge_poll`] does, or to the group
    /// that woke the core. After a yield the time may have been a poll. It is then returned, and
    /// charged once its events show the group.
    fn charge_outside(&self, now_ns: u64, slept: bool) -> Option<CorePoll> {
        let cpu_ns = sys::thread_cpu_ns();
        let cost_ns = cpu_ns.saturating_sub(self.charged_cpu_ns.get());
        if cost_ns == 0 {
            return None;
        }
        self.charged_cpu_ns.set(cpu_ns);
        let mut groups = self.groups.borrow_mut();
        let core_yield = self.core_yield.get();
        let payer =
            groups.wake_up_payer(core_yield.as_ref().map(|core_yield| &core_yield.yielded), slept, now_ns);
        let ran_last = self.ran_last.take();
        match (payer, core_yield) {
            (Some(payer), _) => groups.charge_fast(payer, cost_ns, false),
            (None, Some(core_yield)) => {
                return Some(CorePoll { at_ns: now_ns, had_core_slot: core_yield.slot, cost_ns });
            }
            (None, None) => groups.charge_poll(ran_last, cost_ns),
        }
        None
    }

    /// Charges a poll to the group whose event it found, or to `control` if it found none.
    fn pay(&self, core_poll: Option<CorePoll>, found: Option<usize>) {
        let Some(CorePoll { at_ns, had_core_slot, cost_ns }) = core_poll else { return };
        let mut groups = self.groups.borrow_mut();
        if let Some(slot) = found {
            let found = groups.local(slot).node;
            let had_core = groups.has(had_core_slot).then(|| groups.local(had_core_slot).node);
            groups.scheduler.polled(at_ns, cost_ns, found, had_core);
        }
        let payer = found.unwrap_or_else(|| groups.slot(Group::CONTROL));
        groups.charge_fast(payer, cost_ns, false);
    }

    /// Charges CPU that threads of the disk pool used for a group.
    pub(crate) fn charge_elsewhere(&self, group: Group, cpu_ns: u64) {
        let mut groups = self.groups.borrow_mut();
        let slot = groups.slot(group);
        groups.charge_fast(slot, cpu_ns, false);
    }

    /// Runs tasks of a group for a slice. Returns the time at its end, ns.
    fn run_slice(&self, slot: usize, slice_ns: u64, began_ns: u64) -> u64 {
        let mut now_ns = began_ns;
        let mut next = self.groups.borrow_mut().first_task(slot);
        loop {
            let Some(runnable) = next else {
                if !self.deferred.run() {
                    break;
                }
                now_ns = sys::monotonic_ns();
                next = self.groups.borrow_mut().first_task(slot);
                continue;
            };
            let header = runnable.metadata();
            let (group, flow, spawned_at) =
                (Group(header.group.load(Relaxed)), header.flow, header.spawned_at);
            poll_begins(now_ns);
            in_group(group, flow, || task::run(runnable));
            let after_ns = sys::monotonic_ns();
            let (spent, undivided) = units::of_poll();
            if spent > self.shared.counts.most_units_in_all.load(Relaxed) {
                self.shared.counts.most_units_in_all.store(spent, Relaxed);
            }
            if spent - undivided > self.shared.counts.most_units.load(Relaxed) {
                self.most_units(slot, spawned_at, spent - undivided);
            }
            let poll_ns = after_ns.saturating_sub(now_ns);
            if poll_ns > STALL_NS {
                self.maybe_stalled(slot, poll_ns, now_ns - began_ns, after_ns);
            }
            now_ns = after_ns;
            clock_read(now_ns);
            if self.deferred.is_due(now_ns) {
                self.deferred.run();
                now_ns = sys::monotonic_ns();
            }
            let is_over = now_ns.saturating_sub(began_ns) >= slice_ns;
            let found = self.groups.borrow_mut().next_task(slot, poll_ns, is_over);
            let Some(found) = found else { break };
            next = found;
        }
        self.charge(slot, began_ns, now_ns);
        self.ran_last.set(Some(slot));
        now_ns
    }

    /// Charges a group for the work of this thread since `began_ns`, by the CPU clock if it was
    /// long enough to be worth a reading.
    fn charge(&self, slot: usize, began_ns: u64, now_ns: u64) {
        let wall_ns = now_ns.saturating_sub(began_ns);
        let used_ns = if wall_ns < SHORT_NS {
            self.charged_cpu_ns.set(self.charged_cpu_ns.get() + wall_ns);
            wall_ns
        } else {
            let cpu_ns = sys::thread_cpu_ns();
            let used_ns = cpu_ns.saturating_sub(self.charged_cpu_ns.get());
            self.charged_cpu_ns.set(cpu_ns.max(self.charged_cpu_ns.get()));
            used_ns
        };
        let mut groups = self.groups.borrow_mut();
        if groups.has(slot) {
            groups.charge_fast(slot, used_ns, true);
            groups.record_slice(slot, now_ns);
            groups.idle_if_empty(slot);
        }
    }

    /// Records the most work units of a task poll, and reports a poll beyond the bound.
    #[cold]
    fn most_units(&self, slot: usize, spawned_at: &'static std::panic::Location<'static>, spent: u32) {
        self.shared.counts.most_units.store(spent, Relaxed);
        if spent > units::UNITS_MAX {
            let id = self.groups.borrow_mut().id(slot);
            self.lanes.report(&Report::LongPoll {
                core: self.shared.index,
                group: self.lanes.group_name(Group(id)),
                spawned_at,
                units: spent,
            });
        }
    }

    /// Counts and reports a task poll that was long by the wall clock, unless the thread was merely
    /// off its CPU.
    #[cold]
    fn maybe_stalled(&self, slot: usize, poll_ns: u64, before_ns: u64, now_ns: u64) {
        let slice_cpu_ns = sys::thread_cpu_ns().saturating_sub(self.charged_cpu_ns.get());
        if slice_cpu_ns.saturating_sub(before_ns) < STALL_NS {
            return;
        }
        count(&self.shared.counts.stalls, 1);
        let mut groups = self.groups.borrow_mut();
        let id = groups.id(slot);
        if groups.has(slot) {
            count(&groups.local(slot).counters().stalls, 1);
        }
        drop(groups);
        let (times, longest, group) = self.stalled.get();
        let (longest, group) = if poll_ns > longest { (poll_ns, id) } else { (longest, group) };
        self.stalled.set((times + 1, longest, group));
        if now_ns < self.stall_next_report_ns.get() {
            return;
        }
        self.stall_next_report_ns.set(now_ns + STALL_REPORT_EVERY_NS);
        self.stalled.take();
        self.lanes.report(&Report::Stalls {
            core: self.shared.index,
            times: times + 1,
            longest_us: longest / 1000,
            group: self.lanes.group_name(Group(group)),
        });
    }

    fn take_messages(&self) {
        for message in self.shared.take() {
            match message {
                Message::Run(runnable) => self.enqueue(runnable),
                Message::Start(group, flow, job) => in_group(group, flow, job),
                Message::CheckHeavy(group) => self.check_heavy(group),
                Message::Refresh(group) => {
                    self.groups.borrow_mut().refresh(group);
                    self.disk.borrow_mut().refresh(group);
                }
                Message::Drop(group) => {
                    let left = self.groups.borrow_mut().end_group(group);
                    left.into_iter().for_each(|slot| self.check_slot(slot));
                    self.disk.borrow_mut().drop_group(group);
                }
                Message::Disk(finished) => self.disk_finished(*finished),
                Message::DiskModel(model) => self.disk.borrow_mut().set_model(model),
                Message::DiskIdle => {}
            }
        }
    }

    /// Ends the lane: wakes and drops every task on this thread, where its future lives.
    pub(crate) fn end(&self) {
        self.disk.borrow_mut().end();
        self.deferred.clear();
        loop {
            let wakers: Vec<Waker> = self.listed.borrow().wakers.iter().flatten().cloned().collect();
            if wakers.is_empty() {
                break;
            }
            wakers.into_iter().for_each(Waker::wake);
            for message in self.shared.take() {
                match message {
                    Message::Run(runnable) => drop(runnable),
                    // Jobs may hold values that tasks wait for. Dropping them ends the wait.
                    other => drop(other),
                }
            }
            let queued = self.groups.borrow_mut().take_all();
            drop(queued);
        }
        self.shared.close().for_each(drop);
        let queued = self.groups.borrow_mut().take_all();
        drop(queued);
        self.waker.borrow_mut().take();
    }
}

/// Polls for events without sleeping, and has this task polled again.
#[expect(clippy::disallowed_methods, reason = "this is the loop, a tokio task itself")]
fn poll_events(cx: &mut Context<'_>) {
    let mut again = std::pin::pin!(tokio::task::yield_now());
    // The first poll of `yield_now` defers this task's waker until the poller has run.
    let polled = std::future::Future::poll(again.as_mut(), cx);
    debug_assert!(polled.is_pending());
}
