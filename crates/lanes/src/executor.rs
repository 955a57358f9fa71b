//! The fast lane of a core: its run loop inside a tokio current-thread runtime. The loop is one
//! tokio task, which returns to tokio to look at the poller, or to sleep there; and since it is a
//! task and not the root future, local events wake it without a system call. The root future only
//! passes on wake-ups from other threads.
//!
//! One turn:
//! 1. charge what passed outside (tokio's poller) to `control`, and heavy workers' CPU to their
//!    groups;
//! 2. take messages, reap the disk;
//! 3. choose: run a group's tasks for a slice, charge it, choose again, until it is time to look at
//!    the poller; or hand the core to the heavy lane, or nothing: sleep in the poller.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll, Waker};

use crate::context::{in_group, piece_begins};
use crate::disk::Service;
use crate::groups::{Choice, Groups};
use crate::handover::{Handed, Handover};
use crate::lanes::Lanes;
use crate::pause::PutOff;
use crate::registry::{count, slot_of};
use crate::shared::{CoreShared, Message};
use crate::sys;
use crate::task::{self, Runnable};
use crate::timer::Timer;
use crate::{Group, Report};

/// A fast-lane piece longer than this is a stall, ns.
const STALL_NS: u64 = 200_000;
/// Of many stalls in this time one is reported, ns; all are counted.
const STALL_REPORT_EVERY_NS: u64 = 1_000_000_000;
/// The same of a starved heavy lane.
const STARVED_REPORT_EVERY_NS: u64 = 10_000_000_000;
/// Dispatches shorter than this are charged by the monotonic clock, and the CPU clock makes up for
/// the difference at its next reading: a reading is a system call, and would cost a tenth of so
/// short a dispatch.
const SHORT_NS: u64 = 10_000;

/// A core's fast lane; reached from its own thread only.
pub(crate) struct Core {
    pub(crate) shared: Arc<CoreShared>,
    pub(crate) lanes: Lanes,
    /// Never borrowed while foreign code (a task, a waker, a drop) runs.
    groups: RefCell<Groups>,
    handover: RefCell<Handover>,
    handed: Cell<Option<Handed>>,
    pub(crate) disk: RefCell<Service>,
    pub(crate) put_off: PutOff,
    /// Wakers of all tasks that are not done, by key.
    listed: RefCell<Listed>,
    /// Wakes the loop.
    waker: RefCell<Option<Waker>>,
    /// The loop runs, or will.
    awake: Cell<bool>,
    in_turn: Cell<bool>,
    /// Reading of this thread's CPU clock up to which all is charged, ns.
    charged_cpu_ns: Cell<u64>,
    /// When the next stall and the next starved heavy lane may be reported, ns.
    stall_next_report_ns: Cell<u64>,
    starved_next_report_ns: Cell<u64>,
}

#[derive(Default)]
struct Listed {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// A core that was handed over was taken back.
#[derive(Clone, Copy)]
struct Look {
    at_ns: u64,
    /// The slot of the group whose heavy work had the core.
    had_it: usize,
    cost_ns: u64,
}

/// How a turn ends.
enum Next {
    /// Look at the poller, and come back.
    Look,
    /// Sleep in the poller until something happens, or until then (ns).
    Sleep(Option<u64>),
    /// Leave the core to the heavy lane until then (ns) without looking at the poller, unless that
    /// lane has nothing to do before.
    LetRun(u64),
    Stop,
}

impl Core {
    pub(crate) fn new(lanes: Lanes, shared: Arc<CoreShared>, disk: Service) -> Core {
        let policy = lanes.config().policy;
        let groups = Groups::new(shared.registry.clone(), shared.index, lanes.cores(), policy);
        Core {
            shared,
            lanes,
            groups: RefCell::new(groups),
            handover: RefCell::new(Handover::new(policy)),
            handed: Cell::new(None),
            disk: RefCell::new(disk),
            put_off: PutOff::default(),
            listed: RefCell::default(),
            waker: RefCell::new(None),
            awake: Cell::new(true),
            in_turn: Cell::new(false),
            charged_cpu_ns: Cell::new(sys::thread_cpu_ns()),
            stall_next_report_ns: Cell::new(0),
            starved_next_report_ns: Cell::new(0),
        }
    }

    /// See [`crate::disk::count_lookup`].
    pub(crate) fn count_lookup(&self, group: Group, found: bool) {
        let registry = &self.shared.registry;
        if registry.get(group).is_some() {
            let counters = &registry.counters(slot_of(group.0))[self.shared.index];
            count(if found { &counters.cache_hits } else { &counters.cache_misses }, 1);
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

    /// Wakes the loop, from this thread.
    pub(crate) fn wake(&self) {
        if !self.awake.replace(true) {
            self.waker.borrow().iter().for_each(Waker::wake_by_ref);
        }
    }

    /// A task of this core is ready.
    pub(crate) fn enqueue(&self, runnable: Runnable) {
        let slot_and_fresh = self.groups.borrow_mut().push_only(runnable);
        self.ready(slot_and_fresh);
    }

    /// A group's heavy work began or ended.
    pub(crate) fn look(&self, group: Group) {
        let slot = self.groups.borrow_mut().slot(group);
        self.look_at(slot);
    }

    fn look_at(&self, slot: usize) {
        let heavy = {
            let mut groups = self.groups.borrow_mut();
            groups.look(slot);
            groups.local(slot).heavy
        };
        if heavy {
            self.ready(slot);
        } else {
            self.groups.borrow_mut().settle(slot);
            if self.handed.get().is_some() {
                self.wake();
            }
        }
    }

    /// A group has something to do: it is put in its place; and the loop is woken, unless the core
    /// is handed over to a group that is owed more.
    fn ready(&self, slot: usize) {
        let mut groups = self.groups.borrow_mut();
        let node = groups.local(slot).node;
        let fresh = !groups.scheduler.is_awake(node);
        if fresh {
            if self.handed.get().is_some() {
                // Charged first, so that the newcomer is placed by where the core stands now.
                self.handover.borrow_mut().collect(&self.shared, &mut groups);
            }
            groups.wake(slot, sys::monotonic_ns());
        }
        if self.awake.get() {
            return;
        }
        let run = match self.handed.get() {
            None => true,
            Some(handed) => {
                let fast = !groups.local(slot).queue.is_empty();
                groups.scheduler.preempts(node, fresh, fast, &handed.yielded)
            }
        };
        drop(groups);
        if run {
            self.wake();
        }
    }

    /// The loop, as a tokio task.
    pub(crate) fn poll(&self, cx: &mut Context<'_>, timer: &mut Timer) -> Poll<()> {
        if self.waker.borrow().as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
        }
        self.shared.awake();
        let slept = !self.awake.replace(true);
        self.in_turn.set(true);
        timer.rest(cx);
        let next = self.turn(cx, slept);
        self.in_turn.set(false);
        match next {
            Next::Stop => Poll::Ready(()),
            Next::Look => {
                look_at_poller(cx);
                Poll::Pending
            }
            Next::Sleep(until_ns) => {
                if !self.shared.announce_sleep() {
                    look_at_poller(cx);
                    return Poll::Pending;
                }
                self.awake.set(false);
                timer.arm(until_ns);
                Poll::Pending
            }
            Next::LetRun(until_ns) => {
                self.shared.let_run(until_ns);
                look_at_poller(cx);
                Poll::Pending
            }
        }
    }

    fn turn(&self, cx: &mut Context<'_>, slept: bool) -> Next {
        let began_ns = sys::monotonic_ns();
        let mut look = self.charge_outside(began_ns, slept);
        self.take_back(began_ns);
        self.disk_turn(Some(cx));
        let mut now_ns = began_ns;
        loop {
            if self.shared.stop.load(Relaxed) {
                break Next::Stop;
            }
            self.take_messages();
            let choice = self.groups.borrow_mut().choose(now_ns);
            if self.paused_before(&choice) {
                now_ns = sys::monotonic_ns();
                continue; // what was done has been charged, and may have made tasks ready
            }
            match choice {
                Choice::Idle => {
                    if self.disk_turn(None) {
                        continue;
                    }
                    self.handover.borrow_mut().revoke(&self.shared, now_ns);
                    self.pay(look, None);
                    break Next::Sleep(self.next_event_ns(None));
                }
                Choice::Fast(slot, slice_ns) => {
                    self.pay(look.take(), Some(slot));
                    now_ns = self.run_slice(slot, slice_ns, now_ns);
                }
                Choice::Heavy(slot, budget_ns) => {
                    if self.disk_turn(None) {
                        continue; // who was answered may be owed more
                    }
                    self.pay(look.take(), None);
                    let mut groups = self.groups.borrow_mut();
                    let mut handover = self.handover.borrow_mut();
                    match handover.hand_over(&self.shared, &mut groups, slot, budget_ns, now_ns) {
                        Some(handed) => {
                            self.handed.set(Some(handed));
                            let poll_ns = groups.scheduler.poll_after_ns(now_ns);
                            drop((groups, handover));
                            let until_ns = self.next_event_ns(Some(handed.yielded.until_ns));
                            break match poll_ns {
                                Some(poll_ns) => {
                                    Next::LetRun(until_ns.map_or(poll_ns, |until_ns| until_ns.min(poll_ns)))
                                }
                                None => Next::Sleep(until_ns),
                            };
                        }
                        // All workers are stuck in others' turns: ask again a tick later.
                        None => groups.throttle(slot, now_ns, now_ns + sched::SLICE_NS),
                    }
                }
            }
            if now_ns.saturating_sub(began_ns) >= sched::LATENCY_SLICE_NS {
                self.disk_turn(None);
                break Next::Look;
            }
        }
    }

    /// Before a turn of another group, and before a sleep: does what the last group has put off.
    /// Whether there was anything.
    fn paused_before(&self, choice: &Choice) -> bool {
        let Some(group) = self.put_off.group() else { return false };
        let slot = self.groups.borrow_mut().slot(group);
        if matches!(choice, Choice::Fast(next, _) if *next == slot) {
            return false;
        }
        let began_ns = sys::monotonic_ns();
        self.pause();
        self.charge(slot, began_ns, sys::monotonic_ns());
        true
    }

    /// The core is the fast lane's again: charge the workers.
    fn take_back(&self, now_ns: u64) {
        let mut groups = self.groups.borrow_mut();
        let mut handover = self.handover.borrow_mut();
        handover.collect(&self.shared, &mut groups);
        // Nobody's turn is the poller's, which is control's work.
        let had_it = self.handed.get().map_or_else(|| groups.slot(Group::CONTROL), |handed| handed.slot);
        groups.passed(had_it, now_ns);
        if let Some(handed) = self.handed.take()
            && handover.came_back(&self.shared, &mut groups, handed, now_ns)
        {
            let group = Group(groups.id(handed.slot));
            drop((groups, handover));
            self.starved(group, now_ns);
        }
    }

    /// Heavy work of a group was owed the core for long and did not get it: said now and then.
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
            times: self.shared.starved.load(Relaxed),
        });
    }

    fn next_event_ns(&self, until_ns: Option<u64>) -> Option<u64> {
        let unthrottle_ns = self.groups.borrow().scheduler.next_unthrottle_ns();
        let disk_ns = self.disk.borrow().next_ns();
        [until_ns, unthrottle_ns, disk_ns].into_iter().flatten().min()
    }

    /// What passed since the last reading was tokio's: `control` pays, or who woke the core. If the
    /// core was handed over it may have been a look, which is to be paid once it shows whose event
    /// it was for.
    fn charge_outside(&self, now_ns: u64, slept: bool) -> Option<Look> {
        let cpu_ns = sys::thread_cpu_ns();
        let cost_ns = cpu_ns.saturating_sub(self.charged_cpu_ns.get());
        if cost_ns == 0 {
            return None;
        }
        self.charged_cpu_ns.set(cpu_ns);
        let mut groups = self.groups.borrow_mut();
        let handed = self.handed.get();
        let payer = groups.wake_up_payer(handed.as_ref().map(|handed| &handed.yielded), slept, now_ns);
        let payer = match (payer, handed) {
            (Some(payer), _) => payer,
            (None, Some(handed)) => return Some(Look { at_ns: now_ns, had_it: handed.slot, cost_ns }),
            (None, None) => groups.slot(Group::CONTROL),
        };
        groups.charge_fast(payer, cost_ns, false);
        None
    }

    /// A look is paid by the group that it found something to do for; if there was none, by
    /// `control`.
    fn pay(&self, look: Option<Look>, found: Option<usize>) {
        let Some(Look { at_ns, had_it, cost_ns }) = look else { return };
        let mut groups = self.groups.borrow_mut();
        if let Some(slot) = found {
            let found = groups.local(slot).node;
            let had_core = groups.has(had_it).then(|| groups.local(had_it).node);
            groups.scheduler.polled(at_ns, cost_ns, found, had_core);
        }
        let payer = found.unwrap_or_else(|| groups.slot(Group::CONTROL));
        groups.charge_fast(payer, cost_ns, false);
    }

    /// CPU used for a group by threads of the disk pool.
    pub(crate) fn charge_elsewhere(&self, group: Group, cpu_ns: u64) {
        let mut groups = self.groups.borrow_mut();
        let slot = groups.slot(group);
        groups.charge_fast(slot, cpu_ns, false);
    }

    /// Runs tasks of a group for a slice: the time then, ns.
    fn run_slice(&self, slot: usize, slice_ns: u64, began_ns: u64) -> u64 {
        let mut now_ns = began_ns;
        loop {
            let next = self.groups.borrow_mut().local(slot).queue.pop_front();
            let Some(runnable) = next else {
                if self.pause() {
                    now_ns = sys::monotonic_ns();
                    if self.groups.borrow().has(slot) {
                        continue;
                    }
                }
                break;
            };
            let header = runnable.metadata();
            let (group, spawned_at) = (Group(header.group.load(Relaxed)), header.spawned_at);
            piece_begins(now_ns);
            in_group(group, || task::run(runnable));
            let after_ns = sys::monotonic_ns();
            let spent = crate::units::take();
            if spent > self.shared.most_units.load(Relaxed) {
                self.most_units(slot, spawned_at, spent);
            }
            if after_ns.saturating_sub(now_ns) > STALL_NS {
                self.maybe_stalled(slot, spawned_at, after_ns - now_ns, now_ns - began_ns, after_ns);
            }
            now_ns = after_ns;
            if self.put_off.is_due(now_ns) {
                self.pause();
                now_ns = sys::monotonic_ns();
            }
            if now_ns.saturating_sub(began_ns) >= slice_ns || !self.groups.borrow().has(slot) {
                break;
            }
        }
        self.charge(slot, began_ns, now_ns);
        now_ns
    }

    /// Charges a group for this thread's work since then, by the CPU clock if that is long enough
    /// to be worth a reading.
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
            groups.passed(slot, now_ns);
            groups.settle(slot);
        }
    }

    /// Remembers the task poll that spent the most work units, and reports one beyond the bound.
    #[cold]
    fn most_units(&self, slot: usize, spawned_at: &'static std::panic::Location<'static>, spent: u32) {
        self.shared.most_units.store(spent, Relaxed);
        if spent > crate::UNITS_MAX {
            let id = self.groups.borrow_mut().id(slot);
            self.lanes.report(&Report::LongPoll {
                core: self.shared.index,
                group: self.lanes.group_name(Group(id)),
                spawned_at,
                units: spent,
            });
        }
    }

    /// A long piece by the wall clock: a stall, unless the thread was merely off its CPU.
    #[cold]
    fn maybe_stalled(
        &self,
        slot: usize,
        spawned_at: &'static std::panic::Location<'static>,
        piece_ns: u64,
        before_ns: u64,
        now_ns: u64,
    ) {
        let slice_cpu_ns = sys::thread_cpu_ns().saturating_sub(self.charged_cpu_ns.get());
        if slice_cpu_ns.saturating_sub(before_ns) < STALL_NS {
            return;
        }
        count(&self.shared.stalls, 1);
        let mut groups = self.groups.borrow_mut();
        let id = groups.id(slot);
        if groups.has(slot) {
            count(&groups.local(slot).counters().stalls, 1);
        }
        drop(groups);
        if now_ns < self.stall_next_report_ns.get() {
            return;
        }
        self.stall_next_report_ns.set(now_ns + STALL_REPORT_EVERY_NS);
        self.lanes.report(&Report::Stall {
            core: self.shared.index,
            group: self.lanes.group_name(Group(id)),
            spawned_at,
            piece_us: piece_ns / 1000,
        });
    }

    fn take_messages(&self) {
        for message in self.shared.take() {
            match message {
                Message::Run(runnable) => self.enqueue(runnable),
                Message::Start(group, job) => crate::call::start(group, job),
                Message::Look(group) => self.look(group),
                Message::Refresh(group) => {
                    self.groups.borrow_mut().refresh(group);
                    self.disk.borrow_mut().refresh(group);
                }
                Message::Drop(group) => {
                    let left = self.groups.borrow_mut().end_group(group);
                    left.into_iter().for_each(|slot| self.look_at(slot));
                    self.disk.borrow_mut().drop_group(group);
                }
                Message::Disk(finished) => self.disk_finished(*finished),
                Message::DiskModel(model) => self.disk.borrow_mut().set_model(model),
                Message::DiskIdle => {}
            }
        }
    }

    /// The lane ends: every task is woken and dropped, here, where its future lives.
    pub(crate) fn end(&self) {
        crate::disk::end(self);
        self.put_off.clear();
        loop {
            let wakers: Vec<Waker> = self.listed.borrow().wakers.iter().flatten().cloned().collect();
            if wakers.is_empty() {
                break;
            }
            wakers.into_iter().for_each(Waker::wake);
            for message in self.shared.take() {
                match message {
                    Message::Run(runnable) => drop(runnable),
                    // Jobs may hold what tasks wait for; dropped, they end the wait.
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

/// Has the poller looked at, without sleeping there, and this task polled again.
#[expect(clippy::disallowed_methods, reason = "this is the loop, a tokio task itself")]
fn look_at_poller(cx: &mut Context<'_>) {
    let mut again = std::pin::pin!(tokio::task::yield_now());
    // Its first poll defers this task's waker until the poller was looked at.
    let polled = std::future::Future::poll(again.as_mut(), cx);
    debug_assert!(polled.is_pending());
}
