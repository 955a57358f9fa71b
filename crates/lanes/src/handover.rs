//! The fast lane's side of the heavy lane: granting, charging, and noticing that a turn overruns or
//! gets no CPU.

use std::sync::atomic::Ordering::*;

use sched::{Outcome, Policy, SLICE_NS, Starvation, Starving, WorkerKind, Yielded};

use crate::groups::Groups;
use crate::heavy::{Grant, RESCUER, WORKERS, Worker};
use crate::registry::{NOBODY, count};
use crate::shared::CoreShared;

/// A turn that goes on for this long after another group was granted the core gets a spare beside
/// it, ns.
const OVERRUN_NS: u64 = 10_000_000;

/// The core is handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) slot: usize,
    pub(crate) yielded: Yielded,
    to: WorkerKind,
}

/// Books on the workers.
pub(crate) struct Handover {
    /// The worker that grants go to.
    active: usize,
    /// When its turn was first ended by another grant that it has not taken up, ns.
    revoked_at_ns: u64,
    /// Slots whose heavy CPU may not be charged whole yet.
    open: Vec<usize>,
    /// Heavy CPU charged since the core was handed over, ns.
    progress_ns: u64,
    starvation: Starvation,
    /// The grant of a trial under way.
    trial: Option<Grant>,
}

impl Handover {
    /// No worker has the core.
    pub(crate) fn new(policy: Policy) -> Handover {
        Handover {
            active: 0,
            revoked_at_ns: 0,
            open: Vec::new(),
            progress_ns: 0,
            starvation: Starvation::new(policy),
            trial: None,
        }
    }

    /// Charges what the workers have used since the last time.
    pub(crate) fn collect(&mut self, shared: &CoreShared, groups: &mut Groups) {
        let mut at = 0;
        while at < self.open.len() {
            let slot = self.open[at];
            if !groups.has(slot) {
                self.open.swap_remove(at);
                continue;
            }
            let id = groups.id(slot);
            // Before the counter is read: a turn that ends in between is then counted, and seen
            // again next time.
            let referred = shared.heavy.workers.iter().any(|worker| {
                let grant = worker.grant();
                worker.turn_group() == id || (grant.group() == id && !worker.is_done(grant))
            });
            let closed = groups.local(slot).counters().heavy_closed_ns.load(Acquire);
            let open: u64 = shared.heavy.workers.iter().filter_map(|worker| worker.turn_cpu_ns(id)).sum();
            self.progress_ns += groups.charge_heavy(slot, closed + open);
            if referred {
                at += 1;
            } else {
                self.open.swap_remove(at);
            }
        }
    }

    /// Grants the core to a group's heavy work: how the fast lane is to sleep; none if all workers
    /// are stuck.
    pub(crate) fn hand_over(
        &mut self,
        shared: &CoreShared,
        groups: &mut Groups,
        slot: usize,
        budget_ns: u64,
        now_ns: u64,
    ) -> Option<Handed> {
        let id = groups.id(slot);
        // Also what the rescuer has in hand: no worker of the idle class could take that up.
        let urgent = shared.heavy.workers[RESCUER].turn_group() == id
            || groups.local(slot).counters().urgent_queued.load(SeqCst) > 0;
        let to = match self.starvation.worker(urgent, now_ns) {
            WorkerKind::IdleClass if self.grant(shared, id, now_ns) => WorkerKind::IdleClass,
            WorkerKind::IdleClass if urgent => WorkerKind::Normal, // all others are stuck
            WorkerKind::IdleClass => return None,
            other => other,
        };
        match to {
            WorkerKind::IdleClass => {}
            WorkerKind::Normal => {
                let rescuer = &shared.heavy.workers[RESCUER];
                rescuer.give(rescuer.grant().next(id));
                count(&shared.rescues, 1);
            }
            WorkerKind::Trial => self.try_out(shared, id, now_ns),
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
        Some(Handed { slot, yielded, to })
    }

    /// A worker of the idle class is to show whether it gets any CPU. While the lane counts as
    /// starved it takes up nothing urgent, so nothing gets stuck with it.
    fn try_out(&mut self, shared: &CoreShared, group: u32, now_ns: u64) {
        let worker = &shared.heavy.workers[self.active];
        let grant = worker.grant();
        if worker.has_taken(grant) && !worker.is_done(grant) {
            self.revoked_at_ns = now_ns;
        }
        let trial = grant.next(group);
        worker.give(trial);
        self.trial = Some(trial);
    }

    /// After such a trial.
    fn tried_out(&mut self, shared: &CoreShared, asleep_ns: u64, now_ns: u64) {
        let Some(trial) = self.trial.take() else { return };
        let ran = shared.heavy.workers[self.active].has_taken(trial);
        if !self.starvation.tried(ran, asleep_ns, now_ns) {
            shared.heavy.starved.store(false, SeqCst);
        }
    }

    /// Makes some worker run the group: false if all are stuck.
    fn grant(&mut self, shared: &CoreShared, group: u32, now_ns: u64) -> bool {
        let workers = &shared.heavy.workers;
        let grant = workers[self.active].grant();
        if grant.group() == group && !workers[self.active].is_done(grant) {
            let turn = workers[self.active].turn_group();
            let stuck =
                turn != group && turn != NOBODY && now_ns.saturating_sub(self.revoked_at_ns) >= OVERRUN_NS;
            if !stuck {
                return true; // already, and at most preempted
            }
        }
        let stuck_elsewhere =
            |(at, worker): (usize, &Worker)| at != self.active && worker.turn_group() == group;
        if workers[..WORKERS].iter().enumerate().any(stuck_elsewhere) {
            return true; // its overrunning turn is under way on a spare's seat
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
                && workers[at].turn_group() == crate::registry::NOBODY
        });
        let Some(spare) = spare else { return false };
        let nobody = Grant::NONE.group();
        worker.give(grant.next(nobody));
        count(&shared.overruns, 1);
        self.active = spare;
        self.revoked_at_ns = now_ns;
        let grant = workers[spare].grant();
        workers[spare].give(grant.next(group));
        true
    }

    /// Ends the turn under way: nobody may run. (While the fast lane itself runs, no worker of its
    /// core does.)
    pub(crate) fn revoke(&mut self, shared: &CoreShared, now_ns: u64) {
        let worker = &shared.heavy.workers[self.active];
        let grant = worker.grant();
        if !worker.is_done(grant) {
            self.revoked_at_ns = now_ns;
            worker.give(grant.next(Grant::NONE.group()));
        }
    }

    /// After the core came back: a group that was owed it and hardly got any is kept out for as
    /// long as it was handed the core in vain, so that others are not starved with it; after a
    /// while it is counted, and said here.
    pub(crate) fn came_back(
        &mut self,
        shared: &CoreShared,
        groups: &mut Groups,
        handed: Handed,
        now_ns: u64,
    ) -> bool {
        let Yielded { leaf, began_ns, .. } = handed.yielded;
        let asleep_ns = now_ns.saturating_sub(began_ns);
        match handed.to {
            WorkerKind::IdleClass => {}
            WorkerKind::Trial => self.tried_out(shared, asleep_ns, now_ns),
            // It would not give way to the fast lane by itself.
            WorkerKind::Normal => {
                let rescuer = &shared.heavy.workers[RESCUER];
                rescuer.give(rescuer.grant().next(Grant::NONE.group()));
            }
        }
        if !groups.has(handed.slot) {
            return false;
        }
        groups.look(handed.slot);
        let local = groups.local(handed.slot);
        if handed.to != WorkerKind::IdleClass || !local.heavy || local.node != leaf {
            local.starving = Starving::default();
            return false;
        }
        let outcome = self.starvation.returned(&mut local.starving, began_ns, self.progress_ns, now_ns);
        if outcome == Outcome::Starved {
            count(&shared.starved, 1);
            shared.heavy.starved.store(true, SeqCst);
        }
        if outcome != Outcome::Ran
            && groups.scheduler.backlogged_beside(leaf)
            && !groups.scheduler.is_throttled(leaf)
        {
            groups.throttle(handed.slot, now_ns, now_ns + SLICE_NS);
        }
        outcome == Outcome::Starved
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Group;
    use crate::registry::{Registry, slot_of};

    const MS: u64 = 1_000_000;

    /// A lane without threads: what its workers do is up to the test.
    struct Lane {
        shared: CoreShared,
        groups: Groups,
        handover: Handover,
    }

    impl Lane {
        fn new() -> Lane {
            let registry = Arc::new(Registry::new(1));
            let shared = CoreShared::new(0, Vec::new(), registry.clone(), 1);
            let groups = Groups::new(registry, 0, 1, Policy::DEFAULT);
            Lane { shared, groups, handover: Handover::new(Policy::DEFAULT) }
        }

        /// One more task of a group waits.
        fn queue(&mut self, group: Group, urgent: bool) -> usize {
            let slot = self.groups.slot(group);
            let counters = self.groups.local(slot).counters();
            counters.heavy_pending.fetch_add(1, SeqCst);
            counters.urgent_queued.fetch_add(u32::from(urgent), SeqCst);
            self.groups.look(slot);
            self.groups.wake(slot, 0);
            slot
        }

        fn hand_over(&mut self, slot: usize, now_ns: u64) -> Option<Handed> {
            self.handover.hand_over(&self.shared, &mut self.groups, slot, SLICE_NS, now_ns)
        }

        /// A slice in which nobody got any CPU: whom it was for, and whether the lane is said to be
        /// starved.
        fn slice_in_vain(&mut self, slot: usize, now_ns: u64) -> (WorkerKind, bool) {
            let handed = self.hand_over(slot, now_ns).expect("somebody is free");
            let back_ns = now_ns + SLICE_NS;
            (handed.to, self.handover.came_back(&self.shared, &mut self.groups, handed, back_ns))
        }
    }

    #[test]
    fn a_starved_lanes_urgent_work_is_the_rescuers_until_a_trial_shows_that_there_is_cpu_again() {
        let mut lane = Lane::new();
        let slot = lane.queue(Group::DRIVER, true);
        let in_vain =
            (0..200).map(|n| lane.slice_in_vain(slot, n * SLICE_NS)).position(|(_, starved)| starved);
        let noticed_ns = in_vain.expect("noticed") as u64 * SLICE_NS;
        assert!((50 * MS..60 * MS).contains(&noticed_ns), "after {noticed_ns} ns");
        assert_eq!(lane.slice_in_vain(slot, noticed_ns + 500 * MS).0, WorkerKind::Normal);
        let rescuer = &lane.shared.heavy.workers[RESCUER];
        assert!(rescuer.is_done(rescuer.grant()), "it does not go on beside the fast lane");
        // Another program still has the CPU at the first trial, and not at the second.
        let late_ns = noticed_ns + 1100 * MS;
        assert_eq!(lane.slice_in_vain(slot, late_ns).0, WorkerKind::Trial);
        assert_eq!(lane.slice_in_vain(slot, late_ns + 500 * MS).0, WorkerKind::Normal);
        let handed = lane.hand_over(slot, late_ns + 1100 * MS).expect("somebody is free");
        lane.shared.heavy.workers[lane.handover.active].take();
        lane.handover.came_back(&lane.shared, &mut lane.groups, handed, late_ns + 1101 * MS);
        assert_eq!(lane.slice_in_vain(slot, late_ns + 1102 * MS).0, WorkerKind::IdleClass);
        assert!(!lane.shared.heavy.starved.load(SeqCst));
    }

    #[test]
    fn urgent_work_does_not_wait_for_workers_that_are_all_stuck() {
        let mut lane = Lane::new();
        let groups = [Group::DEFAULT, Group::COMPACTION, Group::LOG, Group::CONTROL];
        for (n, group) in groups.into_iter().enumerate() {
            let slot = lane.queue(group, false);
            // Revoked from the one before; after 10 ms a spare is started; which takes it up, and
            // then hangs.
            for now_ns in [n as u64 * 20 * MS, n as u64 * 20 * MS + 11 * MS] {
                assert!(lane.hand_over(slot, now_ns).is_some());
            }
            lane.shared.heavy.workers[lane.handover.active].take();
        }
        let slot = lane.queue(Group::FLUSH, false);
        assert!(lane.hand_over(slot, 100 * MS).is_some(), "the last one may yet give way");
        assert!(lane.hand_over(slot, 120 * MS).is_none());
        lane.shared.registry.counters(slot_of(Group::FLUSH.0))[0].urgent_queued.fetch_add(1, SeqCst);
        assert_eq!(lane.hand_over(slot, 121 * MS).map(|handed| handed.to), Some(WorkerKind::Normal));
    }
}
