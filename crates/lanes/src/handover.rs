//! The fast lane's side of the heavy lane: granting, charging, and noticing that a turn overruns or gets no CPU.

use std::sync::atomic::Ordering::*;

use sched::{NodeId, TICK_NS};

use crate::groups::Groups;
use crate::heavy::{Grant, RESCUER, WORKERS, Worker};
use crate::registry::{NOBODY, count};
use crate::shared::CoreShared;

/// A turn that goes on for this long after another group was granted the core gets a spare beside it, ns.
const OVERRUN_NS: u64 = 10_000_000;
/// A group that is owed the core for this long and gets nearly none of it is starved by somebody outside, ns.
const STARVED_NS: u64 = 50_000_000;
/// A lane found to be starved is taken for starved this long, ns; then it is tried out, for a slice, whether it gets CPU
/// again. (That it ran for a moment is no sign: a busy program leaves the idle class a slice of a few ms in each second.)
const STARVED_FOR_NS: u64 = 1_000_000_000;
/// How long the fast lane sleeps if nobody else is waiting, ns: whoever wakes, wakes it.
const ALONE_NS: u64 = 10_000_000;

/// The core is handed over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) slot: usize,
    pub(crate) node: NodeId,
    pub(crate) began_ns: u64,
    pub(crate) until_ns: u64,
    /// Any group that wakes ends it, since it was to last as long as nobody else is there.
    pub(crate) alone: bool,
    /// The group's own fast-lane work ends it.
    pub(crate) own_ends_it: bool,
    to: To,
}

/// Whom the core is handed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum To {
    /// The active worker of the idle class.
    IdleClass,
    /// The same, to see whether it gets any CPU again.
    Trial,
    /// The worker of normal priority, for the group's urgent work.
    Rescuer,
}

/// Books on the workers.
#[derive(Default)]
pub(crate) struct Handover {
    /// The worker that grants go to.
    active: usize,
    /// When its turn was first ended by another grant that it has not taken up, ns.
    revoked_at_ns: u64,
    /// Slots whose heavy CPU may not be charged whole yet.
    open: Vec<usize>,
    /// Heavy CPU charged since the core was handed over, ns.
    progress_ns: u64,
    /// Until when the lane is taken for starved, ns; 0 if it is not.
    starved_until_ns: u64,
    /// The grant of a trial under way.
    trial: Option<Grant>,
}

impl Handover {
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
            // Before the counter is read: a turn that ends in between is then counted, and seen again next time.
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

    /// Grants the core to a group's heavy work: how the fast lane is to sleep; none if all workers are stuck.
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
        let to = match urgent {
            true if self.starved_until_ns > now_ns => To::Rescuer,
            true if self.starved_until_ns > 0 => To::Trial,
            _ if self.grant(shared, id, now_ns) => To::IdleClass,
            true => To::Rescuer, // all others are stuck
            false => return None,
        };
        match to {
            To::IdleClass => {}
            To::Rescuer => {
                let rescuer = &shared.heavy.workers[RESCUER];
                rescuer.give(rescuer.grant().next(id));
                count(&shared.rescues, 1);
            }
            To::Trial => self.try_out(shared, id, now_ns),
        }
        if !self.open.contains(&slot) {
            self.open.push(slot);
        }
        self.progress_ns = 0;
        let local = groups.local(slot);
        let own_ends_it = local.queue.is_empty();
        count(&local.counters().heavy_dispatches, 1);
        let node = local.node;
        let alone = to == To::IdleClass && !groups.tree.backlogged_beside(node) && own_ends_it;
        let until_ns = now_ns + budget_ns.min(if alone { ALONE_NS } else { TICK_NS });
        Some(Handed { slot, node, began_ns: now_ns, until_ns, alone, own_ends_it, to })
    }

    /// A worker of the idle class is to show whether it gets any CPU. While the lane counts as starved it takes up nothing
    /// urgent, so nothing gets stuck with it.
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
        if shared.heavy.workers[self.active].has_taken(trial) {
            self.starved_until_ns = 0;
            shared.heavy.starved.store(false, SeqCst);
        } else if asleep_ns < TICK_NS / 2 {
            self.starved_until_ns = now_ns + 10 * TICK_NS; // too short to tell: again soon, but urgent work first
        } else {
            self.starved_until_ns = now_ns + STARVED_FOR_NS;
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

    /// Ends the turn under way: nobody may run. (While the fast lane itself runs, no worker of its core does.)
    pub(crate) fn revoke(&mut self, shared: &CoreShared, now_ns: u64) {
        let worker = &shared.heavy.workers[self.active];
        let grant = worker.grant();
        if !worker.is_done(grant) {
            self.revoked_at_ns = now_ns;
            worker.give(grant.next(Grant::NONE.group()));
        }
    }

    /// After the core came back: a group that was owed it and hardly got any is kept out for as long as it was handed the
    /// core in vain, so that others are not starved with it; after a while it is counted, and said here.
    pub(crate) fn came_back(
        &mut self,
        shared: &CoreShared,
        groups: &mut Groups,
        handed: Handed,
        now_ns: u64,
    ) -> bool {
        let asleep_ns = now_ns.saturating_sub(handed.began_ns);
        match handed.to {
            To::IdleClass => {}
            To::Trial => self.tried_out(shared, asleep_ns, now_ns),
            // It would not give way to the fast lane by itself.
            To::Rescuer => {
                let rescuer = &shared.heavy.workers[RESCUER];
                rescuer.give(rescuer.grant().next(Grant::NONE.group()));
            }
        }
        if !groups.has(handed.slot) {
            return false;
        }
        if handed.to != To::IdleClass {
            groups.local(handed.slot).starving_since_ns = 0;
            return false;
        }
        groups.look(handed.slot);
        let local = groups.local(handed.slot);
        if !local.heavy || self.progress_ns * 10 >= asleep_ns || local.node != handed.node {
            local.starving_since_ns = 0;
            return false;
        }
        if asleep_ns < TICK_NS / 2 {
            return false; // too short to tell
        }
        let mut starved = false;
        if local.starving_since_ns == 0 {
            local.starving_since_ns = handed.began_ns;
        } else if now_ns - local.starving_since_ns >= STARVED_NS {
            local.starving_since_ns = now_ns;
            starved = true;
            count(&shared.starved, 1);
            self.starved_until_ns = now_ns + STARVED_FOR_NS;
            shared.heavy.starved.store(true, SeqCst);
        }
        let (node, beside) = (local.node, groups.tree.backlogged_beside(handed.node));
        if beside && !groups.tree.is_throttled(node) {
            groups.throttle(handed.slot, now_ns, now_ns + TICK_NS);
        }
        starved
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
            Lane { shared, groups: Groups::new(registry, 0, 1), handover: Handover::default() }
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
            self.handover.hand_over(&self.shared, &mut self.groups, slot, TICK_NS, now_ns)
        }

        /// A slice in which nobody got any CPU: whom it was for, and whether the lane is said to be starved.
        fn slice_in_vain(&mut self, slot: usize, now_ns: u64) -> (To, bool) {
            let handed = self.hand_over(slot, now_ns).expect("somebody is free");
            let back_ns = now_ns + TICK_NS;
            (handed.to, self.handover.came_back(&self.shared, &mut self.groups, handed, back_ns))
        }
    }

    #[test]
    fn a_starved_lanes_urgent_work_is_the_rescuers_until_a_trial_shows_that_there_is_cpu_again() {
        let mut lane = Lane::new();
        let slot = lane.queue(Group::DRIVER, true);
        let in_vain =
            (0..200).map(|n| lane.slice_in_vain(slot, n * TICK_NS)).position(|(_, starved)| starved);
        let noticed_ns = in_vain.expect("noticed") as u64 * TICK_NS;
        assert!((50 * MS..60 * MS).contains(&noticed_ns), "after {noticed_ns} ns");
        assert_eq!(lane.slice_in_vain(slot, noticed_ns + 500 * MS).0, To::Rescuer);
        let rescuer = &lane.shared.heavy.workers[RESCUER];
        assert!(rescuer.is_done(rescuer.grant()), "it does not go on beside the fast lane");
        // Another program still has the CPU at the first trial, and not at the second.
        let late_ns = noticed_ns + 1100 * MS;
        assert_eq!(lane.slice_in_vain(slot, late_ns).0, To::Trial);
        assert_eq!(lane.slice_in_vain(slot, late_ns + 500 * MS).0, To::Rescuer);
        let handed = lane.hand_over(slot, late_ns + 1100 * MS).expect("somebody is free");
        lane.shared.heavy.workers[lane.handover.active].take();
        lane.handover.came_back(&lane.shared, &mut lane.groups, handed, late_ns + 1101 * MS);
        assert_eq!(lane.slice_in_vain(slot, late_ns + 1102 * MS).0, To::IdleClass);
        assert!(!lane.shared.heavy.starved.load(SeqCst));
    }

    #[test]
    fn urgent_work_does_not_wait_for_workers_that_are_all_stuck() {
        let mut lane = Lane::new();
        let groups = [Group::DEFAULT, Group::COMPACTION, Group::LOG, Group::CONTROL];
        for (n, group) in groups.into_iter().enumerate() {
            let slot = lane.queue(group, false);
            // Revoked from the one before; after 10 ms a spare is started; which takes it up, and then hangs.
            for now_ns in [n as u64 * 20 * MS, n as u64 * 20 * MS + 11 * MS] {
                assert!(lane.hand_over(slot, now_ns).is_some());
            }
            lane.shared.heavy.workers[lane.handover.active].take();
        }
        let slot = lane.queue(Group::FLUSH, false);
        assert!(lane.hand_over(slot, 100 * MS).is_some(), "the last one may yet give way");
        assert!(lane.hand_over(slot, 120 * MS).is_none());
        lane.shared.registry.counters(slot_of(Group::FLUSH.0))[0].urgent_queued.fetch_add(1, SeqCst);
        assert_eq!(lane.hand_over(slot, 121 * MS).map(|handed| handed.to), Some(To::Rescuer));
    }
}
