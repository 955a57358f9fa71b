//! `system.level_usage`: a row for each service level, with its usage since the server started, its
//! current usage, and its waits. Times are in microseconds. A role sees its own levels. It sees
//! `waited_for` only if it may DESCRIBE ALL SERVICE LEVELS.
//!
//! `latency_decision` is what was changed for the level's `latency_target`, and why.
//!
//! `waited_for` maps the levels that used a core while this level was ready there to the time of
//! those slices. The server's own work has names that begin with `$`. `crates/lanes/src/waits.rs`
//! documents which times are exact and which are sampled.

use std::rc::Rc;

use bytes::Bytes;
use engine::{Subject, VirtualTable};
use schema::CqlType;
use workload::LevelUsage;

use crate::core::Core;

/// A column of numbers.
type Column = (&'static str, fn(&LevelUsage) -> u64);

/// Columns in the order of the table, behind the name of the level.
const COLUMNS: [Column; 33] = [
    ("shares", |u| u.shares.into()),
    ("cpu_fast_us", |u| u.lanes.cpu_fast_ns / 1000),
    ("cpu_heavy_us", |u| u.lanes.cpu_heavy_ns / 1000),
    ("wait_us", |u| u.lanes.wait_ns / 1000),
    ("throttled_us", |u| u.lanes.throttled_ns / 1000),
    ("disk_read_bytes", |u| u.lanes.disk_read_bytes),
    ("disk_write_bytes", |u| u.lanes.disk_write_bytes),
    ("disk_operations", |u| u.lanes.disk_read_ops + u.lanes.disk_write_ops),
    ("disk_wait_us", |u| u.lanes.disk_wait_ns / 1000),
    ("cache_hits", |u| u.lanes.cache_hits),
    ("cache_misses", |u| u.lanes.cache_misses),
    ("row_cache_hits", |u| u.lanes.row_cache_hits),
    ("row_cache_misses", |u| u.lanes.row_cache_misses),
    ("memory_bytes", |u| u.memory.used),
    ("memory_min_bytes", |u| u.memory.min),
    ("memory_most_bytes", |u| u.memory.peak),
    ("memory_refused", |u| u.memory.refused),
    ("memory_lagging", |u| u.memory.is_lagging.into()),
    ("statements", |u| u.ended),
    ("running", LevelUsage::running),
    ("queued", |u| u.slots.occupancy.waiting.into()),
    ("shed", |u| u.shed),
    ("queue_full", |u| u.slots.full),
    ("queue_late", |u| u.slots.timed_out + u.slots.predicted),
    ("queue_waited", |u| u.slots.waited),
    ("queue_wait_us", |u| u.slots.waited_ns / 1000),
    ("concurrency_limit", |u| u.limit.map_or(0, |limit| limit.statements)),
    ("statement_work_us", |u| u.limit.map_or(0, |limit| limit.work_ns / 1000)),
    ("queue_delay_us", |u| u.limit.map_or(0, |limit| limit.queue_delay_ns / 1000)),
    ("queue_delay_target_us", |u| u.limit.map_or(0, |limit| limit.target_ns / 1000)),
    ("shares_now", |u| u.latency.map_or(u.shares.into(), |latency| latency.shares.into())),
    ("latency_target_us", |u| u.latency.map_or(0, |latency| latency.target_ns / 1000)),
    ("latency_p99_us", |u| u.latency.map_or(0, |latency| latency.p99_ns / 1000)),
];

/// Returns the table for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    let levels = core.access.levels().clone();
    let numbers = COLUMNS.iter().map(|(name, _)| (*name, CqlType::BigInt));
    let waits = ("waited_for", CqlType::Map(Box::new(CqlType::Text), Box::new(CqlType::BigInt)));
    let decision = ("latency_decision", CqlType::Text);
    let columns: Vec<(&str, CqlType)> =
        [("service_level", CqlType::Text)].into_iter().chain(numbers).chain([decision, waits]).collect();
    VirtualTable::new("system", "level_usage", 1, 0, &columns, move || {
        let row = |usage: LevelUsage| {
            let number = |(_, of): &Column| {
                let number = i64::try_from(of(&usage)).unwrap_or(i64::MAX);
                Some(Bytes::copy_from_slice(&number.to_be_bytes()))
            };
            let name = Some(Bytes::copy_from_slice(usage.name.as_bytes()));
            let numbers = COLUMNS.iter().map(number);
            let decision = usage.latency.map(|latency| Bytes::from(latency.to_string()));
            [name].into_iter().chain(numbers).chain([decision, waited_for(&usage)]).collect()
        };
        levels.usage().into_iter().map(row).collect()
    })
    .about(Subject::Level { name: 0, others: COLUMNS.len() + 2 })
}

/// Returns the groups that the level waited for, each with the time in microseconds. Null if it
/// never waited, because an empty map is null in CQL.
fn waited_for(usage: &LevelUsage) -> Option<Bytes> {
    let all = usage.waited_for.iter();
    let cells: Vec<(&[u8], [u8; 8])> = all
        .map(|(other, ns)| (other.as_bytes(), i64::try_from(ns / 1000).unwrap_or(i64::MAX).to_be_bytes()))
        .collect();
    let pairs = cells.iter().map(|(other, us)| (*other, &us[..]));
    (!cells.is_empty()).then(|| schema::value::encode_map(pairs).into())
}
