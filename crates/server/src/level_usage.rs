//! `system.level_usage`: a row for each service level, with what it has had since the server started, what it has now, and what it
//! waits for. Times are in microseconds.

use std::rc::Rc;

use bytes::Bytes;
use engine::VirtualTable;
use schema::CqlType;
use workload::LevelUsage;

use crate::core::Core;

/// A column of numbers.
type Column = (&'static str, fn(&LevelUsage) -> u64);

/// In the order of the table; the name of the level comes before them.
const COLUMNS: [Column; 22] = [
    ("shares", |u| u.shares.into()),
    ("cpu_fast_us", |u| u.lanes.cpu_fast_ns / 1000),
    ("cpu_heavy_us", |u| u.lanes.cpu_heavy_ns / 1000),
    ("wait_us", |u| u.lanes.wait_ns / 1000),
    ("throttled_us", |u| u.lanes.throttled_ns / 1000),
    ("disk_read_bytes", |u| u.lanes.disk_read_bytes),
    ("disk_write_bytes", |u| u.lanes.disk_write_bytes),
    ("disk_operations", |u| u.lanes.disk_read_ops + u.lanes.disk_write_ops),
    ("disk_wait_us", |u| u.lanes.disk_wait_ns / 1000),
    ("memory_bytes", |u| u.memory.used),
    ("memory_min_bytes", |u| u.memory.min),
    ("memory_most_bytes", |u| u.memory.most),
    ("memory_refused", |u| u.memory.refused),
    ("memory_owed", |u| u.memory.is_owed.into()),
    ("statements", |u| u.ended),
    ("running", LevelUsage::running),
    ("queued", |u| u.slots.crowd.waiting.into()),
    ("shed", |u| u.shed),
    ("queue_full", |u| u.slots.full),
    ("queue_late", |u| u.slots.late),
    ("queue_waited", |u| u.slots.waited),
    ("queue_wait_us", |u| u.slots.waited_ns / 1000),
];

/// The table, for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    let levels = core.access.levels().clone();
    let numbers = COLUMNS.iter().map(|(name, _)| (*name, CqlType::BigInt));
    let columns: Vec<(&str, CqlType)> =
        [("service_level", CqlType::Text)].into_iter().chain(numbers).collect();
    VirtualTable::new("system", "level_usage", 1, 0, &columns, move || {
        let row = |usage: LevelUsage| {
            let number = |(_, of): &Column| {
                let number = i64::try_from(of(&usage)).unwrap_or(i64::MAX);
                Some(Bytes::copy_from_slice(&number.to_be_bytes()))
            };
            let name = Some(Bytes::copy_from_slice(usage.name.as_bytes()));
            [name].into_iter().chain(COLUMNS.iter().map(number)).collect()
        };
        levels.usage().into_iter().map(row).collect()
    })
}
