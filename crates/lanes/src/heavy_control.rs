//! Control of the heavy lane by the fast lane: grants, charges, and detection of slices that
//! overrun or get no CPU.

use std::sync::atomic::Ordering::*;

use sched::{HeavyOutcome, SLICE_NS, Starvation, Starving, WorkerKind, Yielded};

use crate::counters::count;
use crate::group::NO_GROUP;
use crate::groups::Groups;
use crate::heavy::{Grant, NORMAL_WORKER, WORKERS, Worker};
use crate::shared::CoreShared;

/// Time by which a slice may overrun the grant of another group before a spare worker is started
/// beside it, ns.
const OVERRUN_NS: u64 = 10_000_000;

/// The core was yielded to a group's heavy work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreYield {
    pub(crate) slot: usize,
    pub(crate) yielded: Yielded,
    to: WorkerKind,
}

/// State of the workers, as the fast lane keeps it.
pub(crate) struct HeavyControl {
    /// Worker that gets the grants.
    active: usize,
    /// Time at which its slice was first ended by another grant that it has not taken up, ns.
    revoked_at_ns: u64,
    /// Slots whose heavy CPU may not be fully charged yet.
    open: Vec<usize>,
    /// Heavy CPU charged since the core was yielded, ns.
    progress_ns: u64,
    starvation: Starvation,
    /// Grant of the running trial.
    trial: Option<Grant>,
}

impl HeavyControl {
    /// Creates the state in which no worker has the core.
    pub(crate) fn new() -> HeavyControl {
        HeavyControl {
            active: 0,
            revoked_at_ns: 0,
            open: Vec::new(),
            progress_ns: 0,
            starvation: Starvation::default(),
            trial: None,
        }
    }

    /// Charges the CPU that the workers have used since the last call.
    pub(crate) fn collect(&mut self, shared: &CoreShared, groups: &mut Groups) {
        let mut at = 0;
        while at < self.open.len() {
            let slot = self.open[at];
            if !groups.has(slot) {
                self.open.swap_remove(at);
                continue;
            }
            let id = groups.id(slot);
            // Checked before the counter is read. A slice that ends in between is then in the
            // counter, and the slot is checked again next time.
            let referred = shared.heavy.workers.iter().any(|worker| {
                let grant = worker.grant();
                worker.slice_group() == id || (grant.group() == id && !worker.is_done(grant))
            });
            let closed = groups.local(slot).counters().heavy_closed_ns.load(Acquire);
            let open: u64 = shared.heavy.workers.iter().filter_map(|worker| worker.slice_cpu_ns(id)).sum();
            self.progress_ns += groups.charge_heavy(slot, closed + open);
            if referred {
                at += 1;
            } else {
                self.open.swap_remove(at);
            }
        }
    }

    /// Yields the core to a group's heavy work. `None`: all workers are stuck.
    pub(crate) fn yield_core(
        &mut self,
        shared: &CoreShared,
        groups: &mut Groups,
        slot: usize,
        budget_ns: u64,
        now_ns: u64,
    ) -> Option<CoreYield> {
        let id = groups.id(slot);
        // A task that the normal-priority worker is running counts too: no worker of the idle class
        // could take it up.
        let urgent = shared.heavy.workers[NORMAL_WORKER].slice_group() == id
            || groups.local(slot).counters().urgent_queued.load(SeqCst) > 0;
        let to = match self.starvation.worker(urgent, now_ns) {
            WorkerKind::IdleClass if self.grant(shared, id, now_ns) => WorkerKind::IdleClass,
            WorkerKind::IdleClass if urgent => WorkerKind::Normal, // all other workers are stuck
            WorkerKind::IdleClass => return None,
            other => other,
        };
        match to {
            WorkerKind::IdleClass => {}
            WorkerKind::Normal => {
                let worker = &shared.heavy.workers[NORMAL_WORKER];
                worker.give(worker.grant().next(id));
                count(&shared.counts.promotions, 1);
            }
            WorkerKind::Trial => self.start_trial(shared, id, now_ns),
        }
        if !self.open.contains(&slot) {
            self.open.push(slot);
        }
        self.progress_ns = 0;
        let local = groups.local(slot);
        count(&local.counters().heavy_dispatches, 1);
        let (node, fast) = (local.node, !local.queue.is_empty());
        let in_reach = to == WorkerKind::IdleClass;
        let yielded = groups.scheduler.yield_core(node, budget_ns, fast, in_reach, now_ns);
        Some(CoreYield { slot, yielded, to })
    }

    /// Starts a trial of whether a worker of the idle class gets any CPU. While the lane counts as
    /// starved the worker takes no urgent tasks, so none gets stuck with it.
    fn start_trial(&mut self, shared: &CoreShared, group: u32, now_ns: u64) {
        let worker = &shared.heavy.workers[self.active];
        let grant = worker.grant();
        if worker.has_taken(grant) && !worker.is_done(grant) {
            self.revoked_at_ns = now_ns;
        }
        let trial = grant.next(group);
        worker.give(trial);
        self.trial = Some(trial);
    }

    /// Evaluates a trial.
    fn end_trial(&mut self, shared: &CoreShared, asleep_ns: u64, now_ns: u64) {
        let Some(trial) = self.trial.take() else { return };
        let ran = shared.heavy.workers[self.active].has_taken(trial);
        if !self.starvation.tried(ran, asleep_ns, now_ns) {
            shared.heavy.starved.store(false, SeqCst);
        }
    }

    /// Makes a worker run the group. Returns false if all are stuck.
    fn grant(&mut self, shared: &CoreShared, group: u32, now_ns: u64) -> bool {
        let workers = &shared.heavy.workers;
        let grant = workers[self.active].grant();
        if grant.group() == group && !workers[self.active].is_done(grant) {
            let running = workers[self.active].slice_group();
            let stuck = running != group
                && running != NO_GROUP
                && now_ns.saturating_sub(self.revoked_at_ns) >= OVERRUN_NS;
            if !stuck {
                return true; // it runs the group already, or is preempted
            }
        }
        let stuck_elsewhere =
            |(at, worker): (usize, &Worker)| at != self.active && worker.slice_group() == group;
        if workers[..WORKERS].iter().enumerate().any(stuck_elsewhere) {
            return true; // the group's overrunning slice continues on another worker
        }
        let worker = &workers[self.active];
        if worker.is_done(grant) {
            worker.give(grant.next(group));
            return true;
        }
        if worker.has_taken(grant) {
            self.revoked_at_ns = now_ns;
            worker.give(grant.next(group));
            return true;
        }
        if now_ns.saturating_sub(self.revoked_at_ns) < OVERRUN_NS {
            worker.give(grant.next(group));
            return true;
        }
        let spare = (0..WORKERS).find(|&at| {
            at != self.active
                && workers[at].is_done(workers[at].grant())
                && workers[at].slice_group() == NO_GROUP
        });
        let Some(spare) = spare else { return false };
        let none = Grant::NONE.group();
        worker.give(grant.next(none));
        count(&shared.counts.overruns, 1);
        self.active = spare;
        self.revoked_at_ns = now_ns;
        let grant = workers[spare].grant();
        workers[spare].give(grant.next(group));
        true
    }

    /// Ends the running slice: no worker may run. (While the fast lane itself runs, no worker of
    /// its core does.)
    pub(crate) fn revoke(&mut self, shared: &CoreShared, now_ns: u64) {
        let worker = &shared.heavy.workers[self.active];
        let grant = worker.grant();
        if !worker.is_done(grant) {
            self.revoked_at_ns = now_ns;
            worker.give(grant.next(Grant::NONE.group()));
        }
    }

    /// Evaluates a yield after the core came back. A group that got nearly no CPU is throttled for
    /// a slice, so that others are not starved with it. Returns true if the lane is now counted as
    /// starved.
    pub(crate) fn end_yield(
        &mut self,
        shared: &CoreShared,
        groups: &mut Groups,
        core_yield: CoreYield,
        now_ns: u64,
    ) -> bool {
        let Yielded { leaf, began_ns, .. } = core_yield.yielded;
        let asleep_ns = now_ns.saturating_sub(began_ns);
        match core_yield.to {
            WorkerKind::IdleClass => {}
            WorkerKind::Trial => self.end_trial(shared, asleep_ns, now_ns),
            // It has the priority of the fast lane, so the kernel would not preempt it.
            WorkerKind::Normal => {
                let worker = &shared.heavy.workers[NORMAL_WORKER];
                worker.give(worker.grant().next(Grant::NONE.group()));
            }
        }
        if !groups.has(core_yield.slot) {
            return false;
        }
        groups.check_heavy(core_yield.slot);
        let local = groups.local(core_yield.slot);
        if core_yield.to != WorkerKind::IdleClass || !local.heavy || local.node != leaf {
            local.starving = Starving::default();
            return false;
        }
        let outcome = self.starvation.returned(&mut local.starving, began_ns, self.progress_ns, now_ns);
        if outcome == HeavyOutcome::Starved {
            count(&shared.counts.starved, 1);
            shared.heavy.starved.store(true, SeqCst);
        }
        if outcome != HeavyOutcome::Ran
            && groups.scheduler.backlogged_beside(leaf)
            && !groups.scheduler.is_throttled(leaf)
        {
            groups.throttle(core_yield.slot, now_ns, now_ns + SLICE_NS);
        }
        outcome == HeavyOutcome::Starved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Group;
    use crate::registry::{Registry, slot_of};

    const MS: u64 = 1_000_000;

    /// Lane without threads. The test acts for its workers.
    struct Lane {
        shared: CoreShared,
        groups: Groups,
        control: HeavyControl,
    }

    impl Lane {
        fn new() -> Lane {
            let registry = Arc::new(Registry::new(1));
            let shared = CoreShared::new(0, Vec::new(), registry.clone(), 1);
            let groups = Groups::new(registry, 0, 1);
            Lane { shared, groups, control: HeavyControl::new() }
        }

        /// Adds a waiting task of a group.
        fn queue(&mut self, group: Group, urgent: bool) -> usize {
            let slot = self.groups.slot(group);
            let counters = self.groups.local(slot).counters();
            counters.heavy_pending.fetch_add(1, SeqCst);
            counters.urgent_queued.fetch_add(u32::from(urgent), SeqCst);
            self.groups.check_heavy(slot);
            self.groups.wake(slot, 0);
            slot
        }

        fn yield_core(&mut self, slot: usize, now_ns: u64) -> Option<CoreYield> {
            self.control.yield_core(&self.shared, &mut self.groups, slot, SLICE_NS, now_ns)
        }

        /// Yields for a slice in which no worker gets any CPU. Returns the kind of the worker, and
        /// true if the lane is found to be starved.
        fn slice_without_cpu(&mut self, slot: usize, now_ns: u64) -> (WorkerKind, bool) {
            let core_yield = self.yield_core(slot, now_ns).expect("a worker is free");
            let back_ns = now_ns + SLICE_NS;
            (core_yield.to, self.control.end_yield(&self.shared, &mut self.groups, core_yield, back_ns))
        }
    }

    #[test]
    fn normal_worker_runs_urgent_work_until_a_trial_gets_cpu() {
        let mut lane = Lane::new();
        let slot = lane.queue(Group::DRIVER, true);
        let slices =
            (0..200).map(|n| lane.slice_without_cpu(slot, n * SLICE_NS)).position(|(_, starved)| starved);
        let detected_ns = slices.expect("detected") as u64 * SLICE_NS;
        assert!((50 * MS..60 * MS).contains(&detected_ns), "after {detected_ns} ns");
        assert_eq!(lane.slice_without_cpu(slot, detected_ns + 500 * MS).0, WorkerKind::Normal);
        let worker = &lane.shared.heavy.workers[NORMAL_WORKER];
        assert!(worker.is_done(worker.grant()), "it does not run beside the fast lane");
        // Another program has the CPU at the first trial, and not at the second.
        let late_ns = detected_ns + 1100 * MS;
        assert_eq!(lane.slice_without_cpu(slot, late_ns).0, WorkerKind::Trial);
        assert_eq!(lane.slice_without_cpu(slot, late_ns + 500 * MS).0, WorkerKind::Normal);
        let core_yield = lane.yield_core(slot, late_ns + 1100 * MS).expect("a worker is free");
        lane.shared.heavy.workers[lane.control.active].take();
        lane.control.end_yield(&lane.shared, &mut lane.groups, core_yield, late_ns + 1101 * MS);
        assert_eq!(lane.slice_without_cpu(slot, late_ns + 1102 * MS).0, WorkerKind::IdleClass);
        assert!(!lane.shared.heavy.starved.load(SeqCst));
    }

    #[test]
    fn urgent_work_does_not_wait_for_stuck_workers() {
        let mut lane = Lane::new();
        let groups = [Group::DEFAULT, Group::COMPACTION, Group::LOG, Group::CONTROL];
        for (n, group) in groups.into_iter().enumerate() {
            let slot = lane.queue(group, false);
            // The worker is revoked from the group before. After 10 ms a spare is started, takes
            // the grant up, and hangs.
            for now_ns in [n as u64 * 20 * MS, n as u64 * 20 * MS + 11 * MS] {
                assert!(lane.yield_core(slot, now_ns).is_some());
            }
            lane.shared.heavy.workers[lane.control.active].take();
        }
        let slot = lane.queue(Group::FLUSH, false);
        assert!(lane.yield_core(slot, 100 * MS).is_some(), "the last one may still yield");
        assert!(lane.yield_core(slot, 120 * MS).is_none());
        lane.shared.registry.counters(slot_of(Group::FLUSH.0))[0].urgent_queued.fetch_add(1, SeqCst);
        assert_eq!(lane.yield_core(slot, 121 * MS).map(|core_yield| core_yield.to), Some(WorkerKind::Normal));
    }
}
