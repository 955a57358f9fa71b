//! `system.memory`: what each core holds memory for, in bytes. What queries compute with is by service level too, in
//! `system.level_usage`.

use std::rc::{Rc, Weak};

use bytes::Bytes;
use engine::VirtualTable;
use schema::CqlType;

use crate::core::Core;

/// What for, and the metric of the engine that says how much.
const OF_ENGINE: [(&str, &str); 4] = [
    ("memtables", "fairlane_memtable_bytes"),
    ("memtables being flushed", "fairlane_flush_backlog_bytes"),
    ("block cache", "fairlane_cache_bytes"),
    ("cache of scans", "fairlane_scan_cache_bytes"),
];

/// The table, for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    let columns = [("purpose", CqlType::Text), ("core", CqlType::Int), ("bytes", CqlType::BigInt)];
    let core = Rc::downgrade(core);
    VirtualTable::new("system", "memory", 1, 1, &columns, move || rows(&core)).of_every_core()
}

fn rows(core: &Weak<Core>) -> Vec<Vec<Option<Bytes>>> {
    let Some(core) = core.upgrade() else { return Vec::new() };
    let measures = core.engine.metrics();
    let measured = |name: &str| {
        measures.iter().find(|measure| measure.metric.name == name).map_or(0, |measure| measure.value as u64)
    };
    let mut held: Vec<(&str, u64)> =
        OF_ENGINE.into_iter().map(|(purpose, metric)| (purpose, measured(metric))).collect();
    let pending =
        core.sessions.borrow().values().map(|session| session.encoder.borrow().pending() as u64).sum();
    held.push(("answers that clients have not read", pending));
    // The levels' account is one for all cores.
    if core.index == 0 {
        held.push(("queries", core.access.levels().usage().iter().map(|level| level.memory.used).sum()));
    }
    let index = core.index as i32;
    let row = |(purpose, bytes): (&str, u64)| {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX).to_be_bytes();
        let cells = [purpose.as_bytes(), &index.to_be_bytes(), &bytes];
        cells.into_iter().map(|cell| Some(Bytes::copy_from_slice(cell))).collect()
    };
    held.into_iter().map(row).collect()
}
