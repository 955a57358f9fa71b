//! Resource use and waits of each level as numbers, for virtual tables and consoles. Counters of
//! all cores are summed on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use lanes::Usage;

use crate::waits::GroupNames;
use crate::{LatencyUse, Levels, LimitUse, MemoryUse, SlotUse};

/// Use of a level at one time.
#[derive(Clone, Debug)]
pub struct LevelUsage {
    /// Name of the level.
    pub name: Arc<str>,
    /// Weight of the level.
    pub shares: u16,
    /// Counters of the lanes: CPU in each lane, waits, disk.
    pub lanes: Usage,
    /// Time in ns for which the level was ready while another group had the core, by that group.
    /// Groups are other levels, the server's own work (`$log`, `$control` and so on), and
    /// `$others`, a sum of groups that are not distinguished.
    pub waited_for: BTreeMap<String, u64>,
    /// Admitted requests that have not ended, including those that wait for a slot.
    pub in_flight: u64,
    /// Finished requests.
    pub ended: u64,
    /// Requests refused because too many were in flight.
    pub shed: u64,
    /// Limit of the level, with `max_concurrency = 'auto'`.
    pub limit: Option<LimitUse>,
    /// The last decision for its latency target.
    pub latency: Option<LatencyUse>,
    /// Use of slots. Only levels with a `max_concurrency` use them.
    pub slots: SlotUse,
    /// Query memory.
    pub memory: MemoryUse,
}

impl LevelUsage {
    /// Returns the number of requests in execution.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.in_flight.saturating_sub(self.slots.occupancy.waiting.into())
    }
}

impl Levels {
    /// Returns the use of every level, by name.
    #[must_use]
    pub fn usage(&self) -> Vec<LevelUsage> {
        let catalog = self.catalog();
        let names = GroupNames::new(&catalog);
        let of = |entry: &Arc<crate::LevelEntry>| {
            let level = &entry.level;
            let totals = entry.level.totals();
            LevelUsage {
                name: entry.spec.name.clone(),
                shares: entry.spec.shares,
                lanes: self.lanes.usage(level.group()),
                waited_for: names.waited_for(&self.lanes, level.group()),
                in_flight: totals.in_flight,
                ended: totals.service.iter().map(|service| service.count).sum(),
                shed: totals.shed,
                limit: level.limit_use(),
                latency: level.latency_use(),
                slots: level.slot_use(),
                memory: level.memory().usage(),
            }
        };
        catalog.entries().map(of).collect()
    }
}
