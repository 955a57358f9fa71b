//! Counters of the SQL listener on one core, for `/metrics`, and the memory that it occupies, for
//! `system.memory`. The core's fast lane updates them.

use std::cell::Cell;

use engine::{Measure, MemoryUsage, Metric};

use crate::engine::plan_cache::PlanCacheCounts;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct SqlCounters {
    pub(crate) connections: Cell<u64>,
    pub(crate) accepted: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    pub(crate) auth_failures: Cell<u64>,
    pub(crate) statements: Cell<u64>,
    pub(crate) errors: Cell<u64>,
    /// Statements over the threshold of slow statements.
    pub(crate) slow: Cell<u64>,
    /// Failures of statements over Postgres' catalog only.
    pub(crate) catalog_failures: Cell<u64>,
    pub(crate) received_bytes: Cell<u64>,
    pub(crate) sent_bytes: Cell<u64>,
    /// Capacity of the connections' input and output buffers.
    pub(crate) buffer_bytes: Cell<u64>,
}

/// Adds to a count.
pub(crate) fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get() + more);
}

type MetricReader = (Metric, fn(&SqlCounters, &PlanCacheCounts) -> u64);

static ROWS: [MetricReader; 12] = [
    (
        Metric::gauge("fairlane_sql_connections", "SQL connections now, those that log in among them."),
        |c, _| c.connections.get(),
    ),
    (Metric::counter("fairlane_sql_connections_accepted_total", "SQL connections accepted."), |c, _| {
        c.accepted.get()
    }),
    (
        Metric::counter(
            "fairlane_sql_connections_refused_total",
            "SQL connections refused at a limit of sessions.",
        ),
        |c, _| c.refused.get(),
    ),
    (Metric::counter("fairlane_sql_auth_failures_total", "Refused credentials of SQL clients."), |c, _| {
        c.auth_failures.get()
    }),
    (Metric::counter("fairlane_sql_statements_total", "SQL statements begun."), |c, _| c.statements.get()),
    (Metric::counter("fairlane_sql_errors_total", "Errors sent to SQL clients."), |c, _| c.errors.get()),
    (
        Metric::counter(
            "fairlane_sql_slow_statements_total",
            "SQL statements over the threshold of slow statements.",
        ),
        |c, _| c.slow.get(),
    ),
    (
        Metric::counter(
            "fairlane_sql_catalog_failures_total",
            "Failures of SQL statements that read only pg_catalog or information_schema.",
        ),
        |c, _| c.catalog_failures.get(),
    ),
    (
        Metric::counter(
            "fairlane_sql_bytes_received_total",
            "Bytes read from SQL clients, after decryption.",
        ),
        |c, _| c.received_bytes.get(),
    ),
    (
        Metric::counter("fairlane_sql_bytes_sent_total", "Bytes written to SQL clients, before encryption."),
        |c, _| c.sent_bytes.get(),
    ),
    (
        Metric::gauge(
            "fairlane_sql_plans_kept",
            "Plans in the cache, for sessions that send the same text again.",
        ),
        |_, p| p.plans,
    ),
    (
        Metric::counter("fairlane_sql_plans_found_total", "SQL statements whose plan was in the cache."),
        |_, p| p.hits,
    ),
];

impl SqlCounters {
    pub(crate) fn measures(&self, plans: PlanCacheCounts) -> Vec<Measure> {
        let measure =
            |(metric, of): &'static MetricReader| Measure { metric, value: of(self, &plans) as f64 };
        ROWS.iter().map(measure).collect()
    }

    /// Returns the rows of `system.memory`. Memory of sessions between statements is not included:
    /// the accounts of all listeners count it.
    pub(crate) fn held(&self, plans: PlanCacheCounts) -> Vec<MemoryUsage> {
        let mut held =
            vec![MemoryUsage { purpose: "buffers of SQL connections", bytes: self.buffer_bytes.get() }];
        if plans.plans > 0 {
            held.push(MemoryUsage { purpose: "plan cache of SQL, about", bytes: plans.bytes });
        }
        held
    }
}
