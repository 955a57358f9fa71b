//! What each level has, had and waits for, as numbers: for tables and consoles that show it. Counts of all cores are summed when
//! asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use lanes::Usage;

use crate::waits::Names;
use crate::{Levels, MemoryUse, SlotUse};

/// A level as it is now.
#[derive(Clone, Debug)]
pub struct LevelUsage {
    /// Its name.
    pub name: Arc<str>,
    /// Its shares.
    pub shares: u16,
    /// What the lanes count: CPU in each lane, waiting, disk.
    pub lanes: Usage,
    /// Who had a core while the level was ready there and did not have it, and how long, ns: other levels, the server's own work (`$log`,
    /// `$control` and so on), and `$others`, who are not told apart.
    pub waited_for: BTreeMap<String, u64>,
    /// Requests that were admitted and have not ended, those that wait for a slot included.
    pub in_flight: u64,
    /// Requests that ended.
    pub ended: u64,
    /// Requests refused because too many were in flight.
    pub shed: u64,
    /// Slots, where it has a `max_concurrency`.
    pub slots: SlotUse,
    /// Query memory.
    pub memory: MemoryUse,
}

impl LevelUsage {
    /// Requests that are being worked on.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.in_flight.saturating_sub(self.slots.crowd.waiting.into())
    }
}

impl Levels {
    /// Every level, by name.
    #[must_use]
    pub fn usage(&self) -> Vec<LevelUsage> {
        let catalogue = self.catalogue();
        let names = Names::new(&catalogue);
        let of = |entry: &Arc<crate::Entry>| {
            let (level, totals) = (&entry.level, entry.level.totals());
            LevelUsage {
                name: entry.spec.name.clone(),
                shares: entry.spec.shares,
                lanes: self.lanes.usage(level.group()),
                waited_for: names.waited_for(&self.lanes, level.group()),
                in_flight: totals.in_flight,
                ended: totals.service.iter().map(|service| service.count).sum(),
                shed: totals.shed,
                slots: level.slot_use(),
                memory: level.memory().usage(),
            }
        };
        catalogue.entries().map(of).collect()
    }
}
