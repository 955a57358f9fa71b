//! Groups of one core: their run queues, their accounting, and the leases of their CPU caps. A
//! group is added when first needed on this core. `sched::CoreScheduler` decides. This file keeps
//! the state that the decisions are about.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use sched::{
    CoreScheduler, Decision, LATENCY_SLICE_NS, Lane, LeafSpec, NodeId, Parent, Queued, Rounds, Starving,
    Yielded, cap,
};

use crate::counters::{Counters, count};
use crate::group::NO_GROUP;
use crate::registry::{GroupSlot, Registry, slot_of};
use crate::task::Runnable;
use crate::waits::{Timeline, Waits, weighted};
use crate::{Flow, Group};

/// CPU time of one turn of a flow, ns: a task poll of the longest permitted length. A connection
/// with one request at a time waits for at most about this for each other busy connection of its
/// level.
const TURN_NS: u32 = LATENCY_SLICE_NS as u32;

/// Returns the scheduler's view of a group.
fn leaf_spec(found: &GroupSlot) -> LeafSpec {
    LeafSpec { node: found.cpu_spec(), cpu_limit_ppm: found.cpu_limit_ppm() }
}

/// One group on this core.
pub(crate) struct Local {
    pub(crate) id: u32,
    pub(crate) node: NodeId,
    /// Tasks that are ready. Turn goes round their flows.
    pub(crate) queue: Rounds<Runnable>,
    /// There was heavy work when last checked.
    pub(crate) heavy: bool,
    /// Start of its wait for the core, if it is ready, ns.
    ready_since_ns: u64,
    cpu_limit_ppm: u32,
    throttled_since_ns: u64,
    /// Heavy CPU charged so far, as a reading of the workers' counter, ns.
    heavy_charged_ns: u64,
    pub(crate) starving: Starving,
    /// To be removed once its heavy work is done.
    dropped: bool,
    counters: Arc<[Counters]>,
    waits: Arc<[Waits]>,
    core: usize,
}

impl Local {
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters[self.core]
    }

    /// Checks and returns its work.
    fn queued(&mut self) -> Queued {
        self.heavy = self.counters().heavy_pending.load(Acquire) > 0;
        Queued { fast: !self.queue.is_empty(), heavy: self.heavy }
    }
}

/// Next thing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Nothing is ready and may run.
    Idle,
    /// Run fast-lane tasks of the group in this slot for at most this long, ns.
    Fast(usize, u64),
    /// Yield the core to the heavy lane for the group in this slot, for at most this long, ns.
    Heavy(usize, u64),
}

pub(crate) struct Groups {
    pub(crate) scheduler: CoreScheduler,
    /// Indexed by slot.
    locals: Vec<Option<Local>>,
    /// Slot of each node.
    by_node: Vec<usize>,
    timeline: Timeline,
    registry: Arc<Registry>,
    core: usize,
    cores: u32,
}

impl Groups {
    pub(crate) fn new(registry: Arc<Registry>, core: usize, cores: usize) -> Groups {
        let spec = |group: Group| registry.get(group).expect("built in").cpu_spec();
        let scheduler = CoreScheduler::new(spec(Group::USERS), spec(Group::SYSTEM));
        let mut groups = Groups {
            scheduler,
            locals: Vec::new(),
            by_node: Vec::new(),
            timeline: Timeline::new(),
            registry,
            core,
            cores: cores as u32,
        };
        (Group::CONTROL.0..Group::BUILT_IN).for_each(|id| {
            groups.slot(Group(id));
        });
        groups
    }

    /// Returns the slot of a group, or that of [`Group::DEFAULT`] if there is no such group.
    pub(crate) fn slot(&mut self, group: Group) -> usize {
        let slot = slot_of(group.0);
        match self.locals.get(slot) {
            Some(Some(local)) if local.id == group.0 => slot,
            _ => self.make(group),
        }
    }

    #[cold]
    fn make(&mut self, group: Group) -> usize {
        let default = slot_of(Group::DEFAULT.0);
        let registry = self.registry.clone();
        let Some(found) = registry.get(group) else { return default };
        let parent = match found.parent() {
            Group::USERS => Parent::Users,
            Group::SYSTEM => Parent::System,
            _ => return default, // one of the two parents themselves
        };
        self.place(group, found, parent)
    }

    /// Adds the state of a new group. Its slot is free, because it is reused only after this core
    /// has released it.
    fn place(&mut self, group: Group, found: &GroupSlot, parent: Parent) -> usize {
        let slot = slot_of(group.0);
        if slot >= self.locals.len() {
            self.locals.resize_with(slot + 1, || None);
        }
        assert!(self.locals[slot].is_none(), "a slot holds one group at a time");
        let default = slot_of(Group::DEFAULT.0);
        let node = self.scheduler.add(parent, leaf_spec(found));
        let at = node.0 as usize;
        if at >= self.by_node.len() {
            self.by_node.resize(at + 1, default);
        }
        self.by_node[at] = slot;
        let counters = found.counters.clone();
        let heavy_charged_ns = counters[self.core].heavy_closed_ns.load(Acquire);
        self.locals[slot] = Some(Local {
            id: group.0,
            node,
            queue: Rounds::new(TURN_NS),
            heavy: false,
            ready_since_ns: 0,
            cpu_limit_ppm: found.cpu_limit_ppm(),
            throttled_since_ns: 0,
            heavy_charged_ns,
            starving: Starving::default(),
            dropped: false,
            counters,
            waits: found.waits.clone(),
            core: self.core,
        });
        slot
    }

    pub(crate) fn local(&mut self, slot: usize) -> &mut Local {
        self.locals[slot].as_mut().expect("slots in use are filled")
    }

    pub(crate) fn has(&self, slot: usize) -> bool {
        self.locals.get(slot).is_some_and(Option::is_some)
    }

    /// Applies a changed specification.
    pub(crate) fn refresh(&mut self, group: Group) {
        let registry = self.registry.clone();
        let Some(found) = registry.get(group) else { return };
        match group {
            Group::USERS => self.scheduler.set_parent(Parent::Users, found.cpu_spec()),
            Group::SYSTEM => self.scheduler.set_parent(Parent::System, found.cpu_spec()),
            _ => {
                let slot = self.slot(group);
                let local = self.local(slot);
                local.cpu_limit_ppm = found.cpu_limit_ppm();
                let node = local.node;
                self.scheduler.set(node, leaf_spec(found));
            }
        }
    }

    /// Releases a dropped group and reports this to the registry, which reuses the slot once all
    /// cores have done so. Ready tasks of the group go on in [`Group::DEFAULT`]. A group with heavy
    /// work left stays: returns its slot, to be checked again.
    ///
    /// Call it once on each core when the group is dropped; it makes later calls itself.
    pub(crate) fn end_group(&mut self, group: Group) -> Option<usize> {
        let slot = slot_of(group.0);
        let registry = self.registry.clone();
        let here = matches!(self.locals.get(slot), Some(Some(local)) if local.id == group.0);
        if registry.counters(slot)[self.core].heavy_pending.load(SeqCst) > 0 {
            if !here {
                // The first work of the group on this core arrives just now. The parent is not
                // known any more, but only groups of users are dropped.
                self.place(group, registry.dropped_slot(group), Parent::Users);
            }
            self.local(slot).dropped = true;
            return Some(slot);
        }
        if here {
            let mut gone = self.locals[slot].take().expect("checked above");
            self.scheduler.remove(gone.node);
            for runnable in gone.queue.take_all() {
                let slot = self.queue_task(runnable);
                self.wake(slot, self.timeline.now_ns());
            }
        }
        registry.release_from_core(group);
        None
    }

    /// Queues a task without waking its group. Returns the slot of the group.
    pub(crate) fn queue_task(&mut self, runnable: Runnable) -> usize {
        let header = runnable.metadata();
        let slot = self.slot(Group(header.group.load(Relaxed)));
        let queue = &mut self.local(slot).queue;
        if header.flow == Flow::NONE {
            queue.push(header.flow.0, runnable);
        } else {
            let place = queue.place_of(header.flow.0, header.place.load(Relaxed));
            header.place.store(place, Relaxed);
            queue.push_to(place, runnable);
        }
        slot
    }

    /// Charges the task poll that has ended to the turn of its flow. Returns the next task, or
    /// `None` if the slice `is_over` or the poll has ended the group.
    pub(crate) fn next_task(&mut self, slot: usize, poll_ns: u64, is_over: bool) -> Option<Option<Runnable>> {
        let local = self.locals.get_mut(slot)?.as_mut()?;
        local.queue.charge(poll_ns);
        (!is_over).then(|| local.queue.pop())
    }

    /// Takes the next task of a group. There is none if the group has ended.
    pub(crate) fn first_task(&mut self, slot: usize) -> Option<Runnable> {
        self.locals.get_mut(slot)?.as_mut()?.queue.pop()
    }

    /// Marks a group as having work. Returns true if it was idle.
    pub(crate) fn wake(&mut self, slot: usize, now_ns: u64) -> bool {
        let node = self.local(slot).node;
        let woke = self.scheduler.woke(node);
        if woke {
            self.local(slot).ready_since_ns = now_ns;
        }
        woke
    }

    /// Checks whether a group has heavy work.
    pub(crate) fn check_heavy(&mut self, slot: usize) {
        self.local(slot).queued();
    }

    /// Marks a group as idle if it has nothing to run.
    pub(crate) fn idle_if_empty(&mut self, slot: usize) {
        self.check_heavy(slot);
        let cores = self.cores;
        let local = self.local(slot);
        if local.heavy || !local.queue.is_empty() {
            return;
        }
        local.starving = Starving::default();
        let id = Group(local.id);
        let node = local.node;
        let ppm = local.cpu_limit_ppm;
        let unused_ns = self.scheduler.mark_idle(node);
        if unused_ns > 0 {
            let back = |paid| Some(cap::give_back(paid, unused_ns, ppm, cores));
            self.registry.get(id).into_iter().for_each(|found| {
                let _ = found.budget.fetch_update(Relaxed, Relaxed, back);
            });
        }
        let (dropped, id) = (self.local(slot).dropped, Group(self.local(slot).id));
        if dropped && self.end_group(id).is_some() {
            // A late task is about to see that the group was dropped. The group is checked again
            // when it is picked.
            self.wake(slot, self.timeline.now_ns());
        }
    }

    /// Decides what runs next, and for how long.
    pub(crate) fn pick(&mut self, now_ns: u64) -> Choice {
        while let Some(leaf) = self.scheduler.unthrottle(now_ns) {
            let local = self.local(self.by_node[leaf.0 as usize]);
            count(&local.counters().throttled_ns, now_ns.saturating_sub(local.throttled_since_ns));
            local.ready_since_ns = now_ns;
        }
        loop {
            let Groups { scheduler, locals, by_node, .. } = self;
            let decision = scheduler.next(now_ns, |leaf| {
                let local = locals[by_node[leaf.0 as usize]].as_mut().expect("slots in use are filled");
                local.queued()
            });
            let slot_of = |leaf: NodeId| self.by_node[leaf.0 as usize];
            let (slot, choice) = match decision {
                Decision::Sleep => return Choice::Idle,
                Decision::Lease(leaf, cpu_ns) => {
                    self.take_lease(slot_of(leaf), cpu_ns, now_ns);
                    continue;
                }
                Decision::Empty(leaf) => {
                    self.idle_if_empty(slot_of(leaf));
                    continue;
                }
                Decision::Run(leaf, slice_ns) => {
                    let slot = slot_of(leaf);
                    count(&self.local(slot).counters().dispatches, 1);
                    (slot, Choice::Fast(slot, slice_ns))
                }
                Decision::Yield(leaf, budget_ns) => (slot_of(leaf), Choice::Heavy(slot_of(leaf), budget_ns)),
            };
            self.end_wait(slot, now_ns);
            return choice;
        }
    }

    /// Ends and counts the wait of a group, and attributes it to the groups that had the core
    /// meanwhile.
    fn end_wait(&mut self, slot: usize, now_ns: u64) {
        let local = self.locals[slot].as_mut().expect("slots in use are filled");
        let since_ns = std::mem::replace(&mut local.ready_since_ns, now_ns);
        if since_ns >= now_ns {
            return;
        }
        count(&local.counters().wait_ns, now_ns - since_ns);
        let Some(weight) = self.timeline.weight(self.scheduler.eligible(), since_ns, now_ns) else { return };
        let waits = &local.waits[self.core];
        self.timeline.walk_back(since_ns, |group, ns| {
            if group != local.id {
                waits.add(group, weighted(ns, weight));
            }
        });
    }

    /// Records that the group had the core until now. Its ready tasks wait from now on.
    pub(crate) fn record_slice(&mut self, slot: usize, now_ns: u64) {
        let id = self.id(slot);
        self.timeline.record_slice(id, now_ns);
        if id != NO_GROUP {
            self.local(slot).ready_since_ns = now_ns;
        }
    }

    /// Takes CPU time from the budget of a group's cap, which all cores share, or throttles the
    /// group.
    fn take_lease(&mut self, slot: usize, cpu_ns: u64, now_ns: u64) {
        let cores = self.cores;
        let local = self.local(slot);
        let id = Group(local.id);
        let node = local.node;
        let ppm = local.cpu_limit_ppm;
        let mut until_ns = 0;
        // A dropped group runs its remaining tasks without a limit.
        let granted = self.registry.get(id).is_none_or(|found| {
            let take = |paid| {
                let taken = cap::take(paid, now_ns, cpu_ns, ppm, cores, cap::BURST_NS);
                taken.map_err(|until| until_ns = until).ok()
            };
            found.budget.fetch_update(Relaxed, Relaxed, take).is_ok()
        });
        if granted {
            self.scheduler.granted(node, cpu_ns);
        } else {
            self.throttle(slot, now_ns, until_ns);
        }
    }

    /// Keeps a group from being picked until `until_ns`.
    pub(crate) fn throttle(&mut self, slot: usize, now_ns: u64, until_ns: u64) {
        self.end_wait(slot, now_ns);
        let local = self.local(slot);
        local.throttled_since_ns = now_ns;
        let node = local.node;
        self.scheduler.throttle(node, until_ns);
    }

    /// Returns the slot of the capped group to charge for this wake-up of the core, if there is
    /// one.
    pub(crate) fn wake_up_payer(&self, yielded: Option<&Yielded>, slept: bool, now_ns: u64) -> Option<usize> {
        let leaf = self.scheduler.wake_up_payer(yielded, slept, now_ns)?;
        Some(self.by_node[leaf.0 as usize])
    }

    /// Charges fast-lane CPU.
    pub(crate) fn charge_fast(&mut self, slot: usize, cpu_ns: u64, is_slice: bool) {
        let local = self.local(slot);
        count(&local.counters().cpu_fast_ns, cpu_ns);
        let node = local.node;
        if is_slice {
            self.scheduler.ran(node, cpu_ns)
        } else {
            self.scheduler.used(node, Lane::Fast, cpu_ns)
        }
    }

    /// Charges a poll for events to the group that ran before it, or to `control` if the core
    /// slept. Over many polls each group pays by its CPU. `control` would not do for all: polls
    /// cost a sixth of a core that reads from disk, which is all that `system` has beside a level,
    /// so that the log would get nothing.
    pub(crate) fn charge_poll(&mut self, ran_last: Option<usize>, cpu_ns: u64) {
        let payer = ran_last.filter(|slot| self.has(*slot)).unwrap_or_else(|| self.slot(Group::CONTROL));
        self.charge_fast(payer, cpu_ns, false);
    }

    /// Charges heavy CPU up to a reading of the workers' counter. Returns the CPU charged, ns.
    pub(crate) fn charge_heavy(&mut self, slot: usize, total_ns: u64) -> u64 {
        let local = self.local(slot);
        let cpu_ns = total_ns.saturating_sub(local.heavy_charged_ns);
        if cpu_ns == 0 {
            return 0;
        }
        local.heavy_charged_ns = total_ns;
        count(&local.counters().cpu_heavy_ns, cpu_ns);
        let node = local.node;
        self.scheduler.used(node, Lane::Heavy, cpu_ns);
        cpu_ns
    }

    /// Takes all queued tasks, at the end of the lane.
    pub(crate) fn take_all(&mut self) -> Vec<Runnable> {
        self.locals.iter_mut().flatten().flat_map(|local| local.queue.take_all()).collect()
    }

    /// Returns the id of the group in a slot, or `NO_GROUP`.
    pub(crate) fn id(&mut self, slot: usize) -> u32 {
        self.locals.get(slot).and_then(Option::as_ref).map_or(NO_GROUP, |local| local.id)
    }
}

#[cfg(test)]
mod tests;
