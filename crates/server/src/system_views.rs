//! Tables of Cassandra's `system_views` that tools read, with the figures of this server:
//! `settings`, `caches`, `cql_metrics`, `thread_pools` and `queries`. They are sums over all cores.
//! `clients` is in `clients.rs`, sizes of tables are the engine's.
//!
//! Figures without a counterpart, such as blocked tasks, are zero or null. Tables of what this
//! server does not have (hints, repairs, connections between nodes) do not exist.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use engine::{Measure, RunningStatement, StatementState, Subject, VirtualRow, VirtualTable};
use schema::CqlType::{self, BigInt, Double, Int, Text};

use crate::cells::{bigint, int, text};
use crate::core::{Core, ServerShared};
use crate::counters::{Counters, executed, prepared, queried};
use crate::running::statements;
use crate::sessions::{self, Sessions};

/// Adds the tables to a core's registry.
pub(crate) fn register(sessions: &Rc<Sessions>) {
    let core = &sessions.core;
    let registry = core.engine.registry();
    registry.add(settings(core));
    registry.add(cql_metrics(core));
    registry.add(gathered(core, "caches", &CACHE_COLUMNS, caches));
    registry.add(gathered(core, "thread_pools", &POOL_COLUMNS, thread_pools));
    registry.add(queries(Rc::downgrade(sessions)));
}

fn double(value: f64) -> Option<bytes::Bytes> {
    Some(bytes::Bytes::copy_from_slice(&value.to_be_bytes()))
}

fn settings(core: &Rc<Core>) -> VirtualTable {
    let shared = core.shared.clone();
    VirtualTable::new("system_views", "settings", 1, 0, &[("name", Text), ("value", Text)], move || {
        shared.config.settings.iter().map(|(name, value)| vec![text(name), text(value)]).collect()
    })
}

fn cql_metrics(core: &Rc<Core>) -> VirtualTable {
    let shared = core.shared.clone();
    VirtualTable::new("system_views", "cql_metrics", 1, 0, &[("name", Text), ("value", Double)], move || {
        let sum = |of: fn(&Counters) -> u64| shared.counters.iter().map(|core| of(core)).sum::<u64>() as f64;
        let (executed, queried) = (sum(executed), sum(queried));
        let ratio = if executed > 0.0 { executed / (executed + queried) } else { 0.0 };
        let rows = [
            ("prepared_statements_count", sum(|core| prepared(core).0)),
            ("prepared_statements_evicted", sum(|core| prepared(core).1)),
            ("prepared_statements_executed", executed),
            ("prepared_statements_ratio", ratio),
            ("regular_statements_executed", queried),
        ];
        rows.map(|(name, value)| vec![text(name), double(value)]).into()
    })
}

/// Figures of one core.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Hits, misses and bytes of the block cache.
    blocks: [f64; 3],
    /// Hits and misses of the row cache.
    rows: [f64; 2],
    /// Running and completed compactions.
    compactions: [f64; 2],
    /// Waiting and completed flushes.
    flushes: [f64; 2],
    /// Running and waiting statements that take more than a task poll.
    statements: [f64; 2],
    /// Statements that were read.
    requests: f64,
}

impl Figures {
    fn of(core: &Core, statements: &[RunningStatement]) -> Figures {
        let measures = core.engine.metrics();
        let value = |name: &str| {
            let found = measures.iter().find(|measure: &&Measure| measure.metric.name == name);
            found.map_or(0.0, |measure| measure.value)
        };
        let waiting = statements.iter().filter(|it| it.state == StatementState::Queued).count();
        Figures {
            blocks: [
                value("fairlane_cache_hits_total"),
                value("fairlane_cache_misses_total"),
                value("fairlane_cache_bytes"),
            ],
            rows: [value("fairlane_row_cache_hits_total"), value("fairlane_row_cache_misses_total")],
            compactions: [value("fairlane_compactions_running"), value("fairlane_compactions_total")],
            flushes: [value("fairlane_memtables_frozen"), value("fairlane_flushes_total")],
            statements: [(statements.len() - waiting) as f64, waiting as f64],
            requests: (executed(&core.counters) + queried(&core.counters)) as f64,
        }
    }

    fn add(&mut self, other: &Figures) {
        let add =
            |sum: &mut [f64], more: &[f64]| sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        add(&mut self.blocks, &other.blocks);
        add(&mut self.rows, &other.rows);
        add(&mut self.compactions, &other.compactions);
        add(&mut self.flushes, &other.flushes);
        add(&mut self.statements, &other.statements);
        self.requests += other.requests;
    }
}

/// Returns the sums of the figures of all cores.
fn gather(shared: Arc<ServerShared>) -> Pin<Box<dyn Future<Output = Figures>>> {
    Box::pin(async move {
        let mut sum = Figures::default();
        for core in 0..lanes::cores() {
            let shared = shared.clone();
            let of_core = move || async move {
                let sessions = sessions::here(&shared);
                sessions
                    .map(|sessions| Figures::of(&sessions.core, &statements(&sessions)))
                    .unwrap_or_default()
            };
            sum.add(&lanes::call(core, of_core).await);
        }
        sum
    })
}

/// Returns a table whose rows are made of the figures of all cores.
fn gathered(
    core: &Rc<Core>,
    name: &str,
    columns: &[(&str, CqlType)],
    rows: fn(&Figures) -> Vec<VirtualRow>,
) -> VirtualTable {
    let shared = core.shared.clone();
    VirtualTable::new("system_views", name, 1, 0, columns, Vec::new).in_chunks(move |_| {
        let figures = gather(shared.clone());
        Box::pin(async move { rows(&figures.await) })
    })
}

const CACHE_COLUMNS: [(&str, CqlType); 9] = [
    ("name", Text),
    ("capacity_bytes", BigInt),
    ("entry_count", Int),
    ("hit_count", BigInt),
    ("hit_ratio", Double),
    ("recent_hit_rate_per_second", BigInt),
    ("recent_request_rate_per_second", BigInt),
    ("request_count", BigInt),
    ("size_bytes", BigInt),
];

/// Returns the caches by Cassandra's names: `chunks` is the block cache.
fn caches(figures: &Figures) -> Vec<VirtualRow> {
    let row = |name, hits: f64, misses: f64, bytes: Option<f64>| {
        let requests = hits + misses;
        let ratio = if requests > 0.0 { hits / requests } else { 0.0 };
        vec![
            text(name),
            None,
            None,
            bigint(hits as i64),
            double(ratio),
            None,
            None,
            bigint(requests as i64),
            bytes.and_then(|bytes| bigint(bytes as i64)),
        ]
    };
    let [hits, misses, bytes] = figures.blocks;
    let [row_hits, row_misses] = figures.rows;
    // Rows are cached in the memory of the block cache.
    vec![row("chunks", hits, misses, Some(bytes)), row("rows", row_hits, row_misses, None)]
}

const POOL_COLUMNS: [(&str, CqlType); 7] = [
    ("name", Text),
    ("active_tasks", Int),
    ("active_tasks_limit", Int),
    ("blocked_tasks", BigInt),
    ("blocked_tasks_all_time", BigInt),
    ("completed_tasks", BigInt),
    ("pending_tasks", Int),
];

/// Returns Cassandra's pools that have a counterpart. There are no threads behind them, and so no
/// limits.
fn thread_pools(figures: &Figures) -> Vec<VirtualRow> {
    let row = |name, active: f64, completed: f64, pending: f64| {
        vec![
            text(name),
            int(active as i32),
            None,
            bigint(0),
            bigint(0),
            bigint(completed as i64),
            int(pending as i32),
        ]
    };
    let [compacting, compacted] = figures.compactions;
    let [frozen, flushed] = figures.flushes;
    let [running, waiting] = figures.statements;
    vec![
        row("CompactionExecutor", compacting, compacted, 0.0),
        row("MemtableFlushWriter", 0.0, flushed, frozen),
        row("Native-Transport-Requests", running, figures.requests, waiting),
    ]
}

/// Returns the running statements in Cassandra's layout. Texts have no values.
fn queries(sessions: Weak<Sessions>) -> VirtualTable {
    let columns =
        [("thread_id", Text), ("queued_micros", BigInt), ("running_micros", BigInt), ("task", Text)];
    VirtualTable::new("system_views", "queries", 1, 0, &columns, Vec::new)
        .in_chunks(move |viewer| {
            let sees =
                |role: &str| viewer.as_ref().is_none_or(|viewer| viewer.sees(engine::About::Role(role)));
            let all = sessions.upgrade().map(|sessions| statements(&sessions)).unwrap_or_default();
            let row = |it: &RunningStatement| {
                let elapsed_us = i64::try_from(it.elapsed_us).unwrap_or(i64::MAX);
                let queued = it.state == StatementState::Queued;
                let (waits_us, runs_us) = if queued { (elapsed_us, 0) } else { (0, elapsed_us) };
                vec![text(&it.id), bigint(waits_us), bigint(runs_us), text(&it.statement)]
            };
            let rows: Vec<VirtualRow> = all.iter().filter(|it| sees(&it.role)).map(row).collect();
            Box::pin(std::future::ready(rows))
        })
        .of_every_core()
        .about(Subject::OwnRole)
}
