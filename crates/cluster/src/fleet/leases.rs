//! Leases of this front in the levels with a `max_concurrency`: `sched::cluster::Lease` decides,
//! and the slots of the levels obey (`workload::SlotLease`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lanes::time::boot_ns;
use sched::cluster::{FrontDemand, FrontId, Holder, Lease, LeaseInput, LeaseRow, Presence};
use workload::{LevelEntry, Levels, SlotLease};

use super::Fleet;
use super::tables::{FrontRow, Tables};

/// Time for writes in one round. Others come in the next one.
const WRITES_WITHIN: Duration = Duration::from_secs(1);

/// Length of a turn, in which fronts that cannot have equal parts keep theirs.
const TURN_US: i64 = 10_000_000;

/// Leases of a front.
pub(super) struct Leases {
    levels: Arc<Levels>,
    front: FrontId,
    presence: Presence,
    of_level: HashMap<Arc<str>, Held>,
    /// Number of the level that the next round begins with.
    first: usize,
}

struct Held {
    lease: Lease,
    /// Slots of the last lease that the level got.
    slots: u32,
}

impl Leases {
    pub(super) fn new(fleet: &Fleet, levels: Arc<Levels>) -> Leases {
        levels.lease_slots();
        let front = fleet.front().as_u128();
        Leases { levels, front, presence: Presence::default(), of_level: HashMap::new(), first: 0 }
    }

    /// Notes that the row of this front was written by a request that was sent at `sent_ns`.
    pub(super) fn renewed(&mut self, sent_ns: u64) {
        self.presence.renewed(sent_ns, boot_ns());
    }

    /// Returns the levels whose slots are leased.
    fn leased(&self) -> Vec<Arc<LevelEntry>> {
        let catalog = self.levels.catalog();
        catalog.entries().filter(|entry| entry.spec.slots.max_concurrency.is_some()).cloned().collect()
    }

    /// Returns the statements of each level that have or want a slot here.
    pub(super) fn demands(&self) -> std::collections::BTreeMap<String, u32> {
        let demand = |entry: &Arc<LevelEntry>| {
            let used = entry.level.slot_use().occupancy;
            (entry.spec.name.to_string(), used.running.saturating_add(used.waiting))
        };
        self.leased().iter().map(demand).filter(|(_, demand)| *demand > 0).collect()
    }

    /// Reads the leases and then all fronts, in this order, and changes the leases that should
    /// change. Returns the fronts.
    ///
    /// # Errors
    /// One sentence: the tables cannot be read.
    pub(super) async fn round(&mut self, tables: &Tables) -> Result<Vec<FrontRow>, String> {
        let mut leased = self.leased();
        let names: Vec<Arc<str>> = leased.iter().map(|entry| entry.spec.name.clone()).collect();
        let rows = tables.leases(&names).await?;
        let mut fronts = tables.fronts().await?;
        fronts.sort_by_key(|row| row.peer.front.as_u128());
        let known: HashSet<&Arc<str>> = names.iter().collect();
        self.of_level.retain(|name, _| known.contains(name));
        let began_ns = boot_ns();
        let first = self.first.min(leased.len());
        leased.rotate_left(first);
        for (at, entry) in leased.iter().enumerate() {
            let name = &entry.spec.name;
            let row = rows.get(&**name);
            let holders: &[Holder] = row.map_or(&[], |row| &row.holders);
            let row = LeaseRow { version: row.map_or(0, |row| row.version), holders };
            let demand = |row: &FrontRow| FrontDemand {
                front: row.peer.front.as_u128(),
                demand: row.report.slots.get(&**name).copied().unwrap_or(0),
            };
            let demands: Vec<FrontDemand> = fronts.iter().map(demand).collect();
            self.step(tables, entry, row, &demands).await;
            if boot_ns().saturating_sub(began_ns) > WRITES_WITHIN.as_nanos() as u64 {
                self.first = (first + at + 1) % leased.len();
                break;
            }
        }
        Ok(fronts)
    }

    /// Decides on one level.
    async fn step(&mut self, tables: &Tables, entry: &LevelEntry, row: LeaseRow<'_>, fronts: &[FrontDemand]) {
        let (level, name) = (&entry.level, &entry.spec.name);
        let Some(limit) = entry.spec.slots.max_concurrency else { return };
        let front = self.front;
        let held =
            self.of_level.entry(name.clone()).or_insert_with(|| Held { lease: Lease::new(front), slots: 0 });
        let used = level.slot_use().occupancy;
        let input = LeaseInput {
            limit,
            // A level admits up to its last lease until it has a lower one.
            running: used.running.max(held.slots),
            demand: used.running.saturating_add(used.waiting),
            turn: u64::try_from(lanes::time::unix_micros() / TURN_US).unwrap_or(0),
        };
        let write = held.lease.step(boot_ns(), &self.presence, input, row, fronts);
        let set = |held: &mut Held| {
            held.slots = held.lease.may_run(boot_ns(), &self.presence);
            let until_ns = self.presence.until_ns();
            let lease = SlotLease { slots: held.slots, until_ns, holders: fronts.len() as u32 };
            self.levels.set_lease(level, lease);
        };
        set(held);
        if let Some(write) = write {
            let outcome = tables.write_lease(name, &write).await;
            held.lease.outcome(outcome);
            set(held);
        }
    }
}
