//! One core's groups: their run queues, their accounting, and the leases of their CPU caps. Made
//! when first needed on this core. `sched::CoreScheduler` decides; this file keeps what the
//! decisions are about.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use sched::{
    CoreScheduler, Decision, Lane, LeafSpec, NodeId, Parent, Policy, Queued, Starving, Yielded, cap,
};

use crate::Group;
use crate::registry::{Counters, NOBODY, Registry, Slot, count, slot_of};
use crate::task::Runnable;
use crate::waits::{Timeline, Waits, weighted};

/// The scheduler's view of a group.
fn leaf_spec(found: &Slot) -> LeafSpec {
    LeafSpec { node: found.cpu_spec(), cpu_limit_ppm: found.cpu_limit_ppm() }
}

/// One group on this core.
pub(crate) struct Local {
    pub(crate) id: u32,
    pub(crate) node: NodeId,
    pub(crate) queue: VecDeque<Runnable>,
    /// There was heavy work when last looked.
    pub(crate) heavy: bool,
    /// Since when it has waited for its turn, if it is ready, ns.
    ready_since_ns: u64,
    cpu_limit_ppm: u32,
    throttled_since_ns: u64,
    /// Heavy CPU charged so far, on the scale of the workers' counter, ns.
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

    /// Checks what it has to run.
    fn queued(&mut self) -> Queued {
        self.heavy = self.counters().heavy_pending.load(Acquire) > 0;
        Queued { fast: !self.queue.is_empty(), heavy: self.heavy }
    }
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Nothing is ready, or may run.
    Idle,
    /// Run fast-lane tasks of the group in this slot, for at most so long.
    Fast(usize, u64),
    /// Hand the core to the heavy lane for the group in this slot, which may use so much of it.
    Heavy(usize, u64),
}

pub(crate) struct Groups {
    pub(crate) scheduler: CoreScheduler,
    /// By slot.
    locals: Vec<Option<Local>>,
    /// By node: slot.
    by_node: Vec<usize>,
    timeline: Timeline,
    registry: Arc<Registry>,
    core: usize,
    cores: u32,
}

impl Groups {
    pub(crate) fn new(registry: Arc<Registry>, core: usize, cores: usize, policy: Policy) -> Groups {
        let spec = |group: Group| registry.get(group).expect("built in").cpu_spec();
        let scheduler = CoreScheduler::new(policy, spec(Group::USERS), spec(Group::SYSTEM));
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

    /// The slot of a group that is there; of [`Group::DEFAULT`] for one that is not.
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

    /// A new group's books. Its slot is free: it was given away only after this core had let go of
    /// it.
    fn place(&mut self, group: Group, found: &Slot, parent: Parent) -> usize {
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
            queue: VecDeque::new(),
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

    /// Takes in a changed specification.
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

    /// Lets go of a group that was dropped, and tells the registry, which gives the slot away once
    /// all cores have; its ready tasks go on in [`Group::DEFAULT`]. While heavy work of it is left,
    /// it stays: its slot, to be looked at.
    ///
    /// To be called once a core when the group is dropped; later calls are its own.
    pub(crate) fn end_group(&mut self, group: Group) -> Option<usize> {
        let slot = slot_of(group.0);
        let registry = self.registry.clone();
        let here = matches!(self.locals.get(slot), Some(Some(local)) if local.id == group.0);
        if registry.counters(slot)[self.core].heavy_pending.load(SeqCst) > 0 {
            if !here {
                // Its first work on this core was just coming. Whose child it was is forgotten:
                // only users' groups end.
                self.place(group, registry.gone(group), Parent::Users);
            }
            self.local(slot).dropped = true;
            return Some(slot);
        }
        if here {
            let gone = self.locals[slot].take().expect("seen above");
            self.scheduler.remove(gone.node);
            for runnable in gone.queue {
                let slot = self.push_only(runnable);
                self.wake(slot, self.timeline.now_ns());
            }
        }
        registry.gone_from_a_core(group);
        None
    }

    /// Queues a task: its group's slot, which is then to be woken.
    pub(crate) fn push_only(&mut self, runnable: Runnable) -> usize {
        let slot = self.slot(Group(runnable.metadata().group.load(Relaxed)));
        self.local(slot).queue.push_back(runnable);
        slot
    }

    /// The group has something to run. Returns whether it was idle.
    pub(crate) fn wake(&mut self, slot: usize, now_ns: u64) -> bool {
        let node = self.local(slot).node;
        let woke = self.scheduler.woke(node);
        if woke {
            self.local(slot).ready_since_ns = now_ns;
        }
        woke
    }

    /// Looks whether there is heavy work of a group.
    pub(crate) fn look(&mut self, slot: usize) {
        self.local(slot).queued();
    }

    /// Makes a group idle that has nothing to do.
    pub(crate) fn settle(&mut self, slot: usize) {
        self.look(slot);
        let cores = self.cores;
        let local = self.local(slot);
        if local.heavy || !local.queue.is_empty() {
            return;
        }
        local.starving = Starving::default();
        let (id, node, ppm) = (Group(local.id), local.node, local.cpu_limit_ppm);
        let unused_ns = self.scheduler.mark_idle(node);
        if unused_ns > 0 {
            let back = |paid| Some(cap::give_back(paid, unused_ns, ppm, cores));
            self.registry.get(id).into_iter().for_each(|found| {
                let _ = found.budget.fetch_update(Relaxed, Relaxed, back);
            });
        }
        let (dropped, id) = (self.local(slot).dropped, Group(self.local(slot).id));
        if dropped && self.end_group(id).is_some() {
            // Somebody came too late and is about to see it: settled again when it is chosen.
            self.wake(slot, self.timeline.now_ns());
        }
    }

    /// Decides what runs next, and for how long.
    pub(crate) fn choose(&mut self, now_ns: u64) -> Choice {
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
                    self.settle(slot_of(leaf));
                    continue;
                }
                Decision::Run(leaf, slice_ns) => {
                    let slot = slot_of(leaf);
                    count(&self.local(slot).counters().dispatches, 1);
                    (slot, Choice::Fast(slot, slice_ns))
                }
                Decision::Yield(leaf, budget_ns) => (slot_of(leaf), Choice::Heavy(slot_of(leaf), budget_ns)),
            };
            self.waited(slot, now_ns);
            return choice;
        }
    }

    /// The group's wait ends: it is counted, and looked up whose turns it was for.
    fn waited(&mut self, slot: usize, now_ns: u64) {
        let local = self.locals[slot].as_mut().expect("slots in use are filled");
        let since_ns = std::mem::replace(&mut local.ready_since_ns, now_ns);
        if since_ns >= now_ns {
            return;
        }
        count(&local.counters().wait_ns, now_ns - since_ns);
        let Some(weight) = self.timeline.weight(self.scheduler.eligible(), since_ns, now_ns) else { return };
        let waits = &local.waits[self.core];
        self.timeline.look_back(since_ns, |group, ns| {
            if group != local.id {
                waits.add(group, weighted(ns, weight));
            }
        });
    }

    /// The core was the group's until now: what it has ready waits from now on.
    pub(crate) fn passed(&mut self, slot: usize, now_ns: u64) {
        let id = self.id(slot);
        self.timeline.passed(id, now_ns);
        if id != NOBODY {
            self.local(slot).ready_since_ns = now_ns;
        }
    }

    /// Takes CPU time from the budget of a group's cap, which all cores share; else throttles the
    /// group.
    fn take_lease(&mut self, slot: usize, cpu_ns: u64, now_ns: u64) {
        let cores = self.cores;
        let local = self.local(slot);
        let (id, node, ppm) = (Group(local.id), local.node, local.cpu_limit_ppm);
        let mut until_ns = 0;
        // A group that is gone runs what is left of it without a limit.
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

    /// Keeps a group from being chosen until then.
    pub(crate) fn throttle(&mut self, slot: usize, now_ns: u64, until_ns: u64) {
        self.waited(slot, now_ns);
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
    pub(crate) fn charge_fast(&mut self, slot: usize, cpu_ns: u64, dispatch: bool) {
        let local = self.local(slot);
        count(&local.counters().cpu_fast_ns, cpu_ns);
        let node = local.node;
        if dispatch {
            self.scheduler.ran(node, cpu_ns)
        } else {
            self.scheduler.used(node, Lane::Fast, cpu_ns)
        }
    }

    /// Charges heavy CPU up to a total on the scale of the workers' counter: what was charged, ns.
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

    /// All queued tasks, at the end of the lane.
    pub(crate) fn take_all(&mut self) -> Vec<Runnable> {
        self.locals.iter_mut().flatten().flat_map(|local| local.queue.drain(..)).collect()
    }

    /// Whether a slot holds a live group's id.
    pub(crate) fn id(&mut self, slot: usize) -> u32 {
        self.locals.get(slot).and_then(Option::as_ref).map_or(NOBODY, |local| local.id)
    }
}

#[cfg(test)]
mod tests;
