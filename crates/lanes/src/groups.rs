//! One core's groups: their place in the scheduler's tree, their queues, their piece of the CPU budget. Made when first
//! needed on this core. Decisions are `sched`'s; this file keeps its books.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use sched::{Cap, Class, NodeId, TICK_NS, Tree, cap};

use crate::Group;
use crate::handover::Handed;
use crate::registry::{Counters, NOBODY, Registry, Slot, count, slot_of};
use crate::task::Runnable;
use crate::waits::{Timeline, Waits, weighted};

/// Fast-lane time of a group, while it has heavy work too, after which the heavy work gets its turn: so neither starves.
const FAST_BEFORE_HEAVY_NS: u64 = 4 * TICK_NS;

/// Shortest slice a capped group gets, ns: one cut to the rest of its budget would be spent on switching to it.
const BUDGET_SLICE_MIN_NS: i64 = 125_000;

/// When no group woke for so long, ns, those that are ready have more to do than the core can: each turn then lasts a whole
/// tick, however often events are looked for meanwhile.
const STEADY_NS: u64 = 10_000_000;

/// A level of a latency class counts as active for so long after it woke, ns: one that is asked once a second is.
const PROMPT_NS: u64 = 1_000_000_000;

/// Whether it is a level of a latency class. (The log and control are latency classes too, but for their slices only.)
fn is_prompt(found: &Slot) -> bool {
    found.parent() == Group::USERS && found.cpu_spec().class == Class::Latency
}

/// One group on this core.
pub(crate) struct Local {
    pub(crate) id: u32,
    pub(crate) node: NodeId,
    pub(crate) queue: VecDeque<Runnable>,
    /// There was heavy work when last looked.
    pub(crate) heavy: bool,
    /// Fast-lane time since the last heavy turn, ns.
    pub(crate) fast_since_heavy_ns: u64,
    /// Since when it has waited for its turn, if it is ready, ns.
    ready_since_ns: u64,
    /// One of the users' groups.
    is_level: bool,
    /// A level of a latency class: what it waits for is looked for at once.
    is_prompt: bool,
    cpu_limit_ppm: u32,
    cap: Cap,
    throttled_since_ns: u64,
    /// Heavy CPU charged so far, on the scale of the workers' counter, ns.
    heavy_charged_ns: u64,
    /// Owed the core on the heavy lane, without getting it, since; 0 if not.
    pub(crate) starving_since_ns: u64,
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
    pub(crate) tree: Tree,
    /// By slot.
    locals: Vec<Option<Local>>,
    /// By node: slot.
    by_node: Vec<usize>,
    throttled: Vec<(usize, u64)>,
    /// Whose turn it is, and since when, ns.
    turn: Option<(NodeId, u64)>,
    /// When a group other than control woke last, ns.
    woke_ns: u64,
    /// Until when, after a prompt group woke, the next event counts as its own, ns.
    prompt_until_ns: u64,
    timeline: Timeline,
    registry: Arc<Registry>,
    core: usize,
    cores: u32,
    parents: [NodeId; 2],
}

impl Groups {
    pub(crate) fn new(registry: Arc<Registry>, core: usize, cores: usize) -> Groups {
        let mut tree = Tree::new();
        let spec = |group: Group| registry.get(group).expect("built in").cpu_spec();
        let parents = [Group::USERS, Group::SYSTEM].map(|group| tree.add(Tree::ROOT, spec(group)));
        let mut groups = Groups {
            tree,
            locals: Vec::new(),
            by_node: Vec::new(),
            throttled: Vec::new(),
            turn: None,
            woke_ns: 0,
            prompt_until_ns: 0,
            timeline: Timeline::new(),
            registry,
            core,
            cores: cores as u32,
            parents,
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
            Group::USERS => self.parents[0],
            Group::SYSTEM => self.parents[1],
            _ => return default, // one of the two parents themselves
        };
        self.place(group, found, parent)
    }

    /// A new group's books. Its slot is free: it was given away only after this core had let go of it.
    fn place(&mut self, group: Group, found: &Slot, parent: NodeId) -> usize {
        let slot = slot_of(group.0);
        if slot >= self.locals.len() {
            self.locals.resize_with(slot + 1, || None);
        }
        assert!(self.locals[slot].is_none(), "a slot holds one group at a time");
        let default = slot_of(Group::DEFAULT.0);
        let node = self.tree.add(parent, found.cpu_spec());
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
            fast_since_heavy_ns: 0,
            ready_since_ns: 0,
            is_level: parent == self.parents[0],
            is_prompt: is_prompt(found),
            cpu_limit_ppm: found.cpu_limit_ppm(),
            cap: Cap::new(),
            throttled_since_ns: 0,
            heavy_charged_ns,
            starving_since_ns: 0,
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
        let parent = match group {
            Group::USERS => Some(self.parents[0]),
            Group::SYSTEM => Some(self.parents[1]),
            _ => None,
        };
        let node = match parent {
            Some(node) => node,
            None => {
                let slot = self.slot(group);
                let local = self.local(slot);
                local.is_prompt = is_prompt(found);
                local.cpu_limit_ppm = found.cpu_limit_ppm();
                let node = local.node;
                if let Some(at) = self.throttled.iter().position(|&(throttled, _)| throttled == slot) {
                    self.throttled[at].1 = 0; // the new limit is asked at the next turn
                }
                node
            }
        };
        self.tree.set(node, found.cpu_spec());
    }

    /// Lets go of a group that was dropped, and tells the registry, which gives the slot away once all cores have; its
    /// ready tasks go on in [`Group::DEFAULT`]. While heavy work of it is left, it stays: its slot, to be looked at.
    ///
    /// To be called once a core when the group is dropped; later calls are its own.
    pub(crate) fn end_group(&mut self, group: Group) -> Option<usize> {
        let slot = slot_of(group.0);
        let registry = self.registry.clone();
        let here = matches!(self.locals.get(slot), Some(Some(local)) if local.id == group.0);
        if registry.counters(slot)[self.core].heavy_pending.load(SeqCst) > 0 {
            if !here {
                // Its first work on this core was just coming. Whose child it was is forgotten: only users' groups end.
                self.place(group, registry.gone(group), self.parents[0]);
            }
            self.local(slot).dropped = true;
            return Some(slot);
        }
        if here {
            let gone = self.locals[slot].take().expect("seen above");
            self.throttled.retain(|&(throttled, _)| throttled != slot);
            self.turn = None;
            self.tree.remove(gone.node);
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

    /// Whether it was idle.
    pub(crate) fn wake(&mut self, slot: usize, now_ns: u64) -> bool {
        let node = self.local(slot).node;
        if self.tree.is_awake(node) {
            return false;
        }
        let local = self.local(slot);
        local.ready_since_ns = now_ns;
        let (id, is_prompt) = (local.id, local.is_prompt);
        if id != Group::CONTROL.0 {
            self.woke_ns = now_ns;
        }
        if is_prompt {
            self.prompt_until_ns = now_ns + PROMPT_NS;
        }
        self.tree.wake(node);
        true
    }

    /// Whether events are not to wait at all while this group's heavy work has the core: a prompt group woke within the last second, and it
    /// is a level's work. (Flushes and merges must keep up.)
    pub(crate) fn sees_each_event(&self, had_by: usize, now_ns: u64) -> bool {
        self.prompt_until_ns > now_ns && self.level(had_by).is_some()
    }

    /// The group in this slot, if it is a level.
    fn level(&self, slot: usize) -> Option<&Local> {
        self.locals.get(slot)?.as_ref().filter(|local| local.is_level)
    }

    /// Whether a level has CPU to catch up on beside another one, which had the core: its events are then seen sooner. Not
    /// beside flushes and merges, which must keep up; nor if it has a hard limit, and so may not have what it missed.
    pub(crate) fn is_owed_beside(&self, slot: usize, had_it: usize) -> bool {
        let owed = |local: &Local| local.cpu_limit_ppm == 0 && self.tree.missed_ns(local.node) > 0;
        slot != had_it && self.level(had_it).is_some() && self.level(slot).is_some_and(owed)
    }

    /// Looks whether there is heavy work of a group.
    pub(crate) fn look(&mut self, slot: usize) {
        let local = self.local(slot);
        local.heavy = local.counters().heavy_pending.load(Acquire) > 0;
    }

    /// Makes a group idle that has nothing to do.
    pub(crate) fn settle(&mut self, slot: usize) {
        self.look(slot);
        let cores = self.cores;
        let local = self.local(slot);
        if local.heavy || !local.queue.is_empty() {
            return;
        }
        local.starving_since_ns = 0;
        let (node, ppm) = (local.node, local.cpu_limit_ppm);
        let unused_ns = if ppm > 0 { local.cap.release() } else { 0 };
        if unused_ns > 0 {
            let back = |paid| Some(cap::give_back(paid, unused_ns, ppm, cores));
            let id = Group(self.local(slot).id);
            self.registry.get(id).into_iter().for_each(|found| {
                let _ = found.budget.fetch_update(Relaxed, Relaxed, back);
            });
        }
        self.tree.idle(node);
        let (dropped, id) = (self.local(slot).dropped, Group(self.local(slot).id));
        if dropped && self.end_group(id).is_some() {
            // Somebody came too late and is about to see it: settled again when it is chosen.
            self.wake(slot, self.timeline.now_ns());
        }
    }

    /// Who runs next, and for how long.
    pub(crate) fn choose(&mut self, now_ns: u64) -> Choice {
        self.unthrottle_due(now_ns);
        while let Some(node) = self.whose_turn(now_ns) {
            let slot = self.by_node[node.0 as usize];
            if !self.may_run(slot, now_ns) {
                continue;
            }
            self.look(slot);
            let tick_ns = self.tree.slice_ns().min(self.tree.poll_ns(node));
            let local = self.local(slot);
            let budget_ns = match local.cpu_limit_ppm {
                0 => u64::MAX,
                // Not less than is worth a hand-over: what it is too much is debt.
                _ => local.cap.remaining_ns().max(BUDGET_SLICE_MIN_NS) as u64,
            };
            let fast = !local.queue.is_empty();
            let choice = if fast && (!local.heavy || local.fast_since_heavy_ns < FAST_BEFORE_HEAVY_NS) {
                count(&local.counters().dispatches, 1);
                Choice::Fast(slot, tick_ns.min(budget_ns))
            } else if local.heavy {
                Choice::Heavy(slot, budget_ns)
            } else {
                self.settle(slot);
                continue;
            };
            self.waited(slot, now_ns);
            return choice;
        }
        Choice::Idle
    }

    /// The leaf that had the core last for the rest of its tick, if all that is ready has been so for long: going from one
    /// to the other costs as much as a request. Else the tree's pick, whose turn begins.
    fn whose_turn(&mut self, now_ns: u64) -> Option<NodeId> {
        if self.tree.slice_ns() < TICK_NS {
            return self.tree.pick(); // control's, say: whose turn it was goes on behind it
        }
        if now_ns.saturating_sub(self.woke_ns) >= STEADY_NS
            && let Some((node, since_ns)) = self.turn
            && now_ns.saturating_sub(since_ns) < TICK_NS
            && self.tree.is_eligible(node)
        {
            return Some(node);
        }
        let picked = self.tree.pick();
        self.turn = picked.map(|node| (node, now_ns));
        picked
    }

    /// The group's wait ends: it is counted, and looked up whose turns it was for.
    fn waited(&mut self, slot: usize, now_ns: u64) {
        let local = self.locals[slot].as_mut().expect("slots in use are filled");
        let since_ns = std::mem::replace(&mut local.ready_since_ns, now_ns);
        if since_ns >= now_ns {
            return;
        }
        count(&local.counters().wait_ns, now_ns - since_ns);
        let Some(weight) = self.timeline.weight(self.tree.eligible(), since_ns, now_ns) else { return };
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

    /// Whether the group's budget lets it run; else it is throttled.
    fn may_run(&mut self, slot: usize, now_ns: u64) -> bool {
        let cores = self.cores;
        let local = self.local(slot);
        if local.cpu_limit_ppm == 0 || !local.cap.exhausted() {
            return true;
        }
        let (ppm, id) = (local.cpu_limit_ppm, Group(local.id));
        // With nothing queued on the fast lane it is heavy work that waits.
        let piece_ns = if local.queue.is_empty() { cap::long_piece_ns(ppm) } else { cap::PIECE_NS };
        let want_ns = local.cap.want_ns(piece_ns);
        let mut until_ns = 0;
        let registry = self.registry.clone();
        let Some(found) = registry.get(id) else { return true };
        let granted = found.budget.fetch_update(Relaxed, Relaxed, |paid| {
            cap::take(paid, now_ns, want_ns, ppm, cores, cap::BURST_NS).map_err(|until| until_ns = until).ok()
        });
        if granted.is_ok() {
            self.local(slot).cap.grant(want_ns);
            return true;
        }
        self.throttle(slot, now_ns, until_ns);
        false
    }

    /// Keeps a group from being chosen until then.
    pub(crate) fn throttle(&mut self, slot: usize, now_ns: u64, until_ns: u64) {
        self.waited(slot, now_ns);
        let local = self.local(slot);
        local.throttled_since_ns = now_ns;
        let node = local.node;
        self.tree.throttle(node, true);
        self.throttled.push((slot, until_ns));
    }

    fn unthrottle_due(&mut self, now_ns: u64) {
        let mut at = 0;
        while at < self.throttled.len() {
            let (slot, until_ns) = self.throttled[at];
            if until_ns > now_ns {
                at += 1;
                continue;
            }
            self.throttled.swap_remove(at);
            let local = self.local(slot);
            count(&local.counters().throttled_ns, now_ns.saturating_sub(local.throttled_since_ns));
            local.ready_since_ns = now_ns;
            let node = local.node;
            self.tree.throttle(node, false);
        }
    }

    /// The group with a hard limit on whose account the core woke now: it was alone with it and its piece has ended, or it slept and the
    /// group may go on.
    pub(crate) fn wakes_core(&self, handed: Option<Handed>, slept: bool, now_ns: u64) -> Option<usize> {
        let slot = match handed {
            Some(handed) => (handed.alone && now_ns >= handed.until_ns).then_some(handed.slot),
            None if slept => {
                self.throttled.iter().find(|(_, until_ns)| *until_ns <= now_ns).map(|(slot, _)| *slot)
            }
            None => None,
        };
        slot.filter(|slot| matches!(self.locals.get(*slot), Some(Some(local)) if local.cpu_limit_ppm > 0))
    }

    /// When the first throttled group may run again, ns.
    pub(crate) fn next_unthrottle_ns(&self) -> Option<u64> {
        self.throttled.iter().map(|&(_, until_ns)| until_ns).min()
    }

    /// Charges fast-lane CPU.
    pub(crate) fn charge_fast(&mut self, slot: usize, cpu_ns: u64, dispatch: bool) {
        let local = self.local(slot);
        count(&local.counters().cpu_fast_ns, cpu_ns);
        local.fast_since_heavy_ns = if local.heavy { local.fast_since_heavy_ns + cpu_ns } else { 0 };
        if local.cpu_limit_ppm > 0 {
            local.cap.charge(cpu_ns);
        }
        let node = local.node;
        if dispatch { self.tree.charge(node, cpu_ns) } else { self.tree.charge_exact(node, cpu_ns) }
    }

    /// Charges heavy CPU up to a total on the scale of the workers' counter: what was charged, ns.
    pub(crate) fn charge_heavy(&mut self, slot: usize, total_ns: u64) -> u64 {
        let local = self.local(slot);
        let cpu_ns = total_ns.saturating_sub(local.heavy_charged_ns);
        if cpu_ns == 0 {
            return 0;
        }
        local.heavy_charged_ns = total_ns;
        local.fast_since_heavy_ns = 0;
        count(&local.counters().cpu_heavy_ns, cpu_ns);
        if local.cpu_limit_ppm > 0 {
            local.cap.charge(cpu_ns);
        }
        let node = local.node;
        self.tree.charge_exact(node, cpu_ns);
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
