//! Memory held by the CQL listener and its engine, as rows of `system.memory`.

use std::rc::{Rc, Weak};

use engine::{MemoryUsage, VirtualTable};

use crate::sessions::Sessions;

/// Purposes of engine memory, each with the engine's metric.
const OF_ENGINE: [(&str, &str); 5] = [
    ("memtables", "fairlane_memtable_bytes"),
    ("memtables being flushed", "fairlane_flush_backlog_bytes"),
    ("block cache", "fairlane_cache_bytes"),
    ("cache of scans", "fairlane_scan_cache_bytes"),
    ("graphs of vectors", "fairlane_vector_graph_bytes"),
];

/// Returns the table for a core's registry.
pub(crate) fn table(sessions: &Rc<Sessions>) -> VirtualTable {
    let (index, sessions) = (sessions.core.index, Rc::downgrade(sessions));
    MemoryUsage::table(index, move || held(&sessions))
}

fn held(sessions: &Weak<Sessions>) -> Vec<MemoryUsage> {
    let Some(sessions) = sessions.upgrade() else { return Vec::new() };
    let core = &sessions.core;
    let measures = core.engine.metrics();
    let measured = |name: &str| {
        measures.iter().find(|measure| measure.metric.name == name).map_or(0, |measure| measure.value as u64)
    };
    let of_engine =
        OF_ENGINE.into_iter().map(|(purpose, metric)| MemoryUsage { purpose, bytes: measured(metric) });
    let mut held: Vec<MemoryUsage> = of_engine.collect();
    let pending = sessions.by_id.borrow().values().map(|session| session.answer_bytes() as u64).sum();
    held.push(MemoryUsage { purpose: "answers that CQL clients have not read", bytes: pending });
    held.push(MemoryUsage {
        purpose: "prepared and recent CQL statements",
        bytes: core.plans.bytes() as u64,
    });
    if core.index == 0 {
        let bytes = core.shared.config.accounts.all().used_bytes();
        held.push(MemoryUsage {
            purpose: "requests that are large or wait, and what SQL sessions keep",
            bytes,
        });
    }
    // One account covers all cores, so only core 0 reports it.
    if core.index == 0 {
        let bytes = core.access.levels().usage().iter().map(|level| level.memory.used).sum();
        held.push(MemoryUsage { purpose: "queries", bytes });
    }
    held
}
