//! Counters of the server. Each core updates its own relaxed atomics, and `/metrics` sums them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::Metric;

use crate::exposition::Page;

/// Names of the requests distinguished in `/metrics`. The index is the position in
/// `Counters::requests`.
const OPCODES: [&str; 8] =
    ["startup", "options", "auth_response", "query", "prepare", "execute", "batch", "register"];

/// Error codes distinguished in `/metrics`. Any other code counts as the last.
const CODES: [(i32, &str); 16] = [
    (0x0000, "server"),
    (0x000A, "protocol"),
    (0x0100, "authentication"),
    (0x1000, "unavailable"),
    (0x1001, "overloaded"),
    (0x1100, "write_timeout"),
    (0x1200, "read_timeout"),
    (0x1300, "read_failure"),
    (0x1500, "write_failure"),
    (0x2000, "syntax"),
    (0x2100, "unauthorized"),
    (0x2200, "invalid"),
    (0x2300, "config"),
    (0x2400, "already_exists"),
    (0x2500, "unprepared"),
    (-1, "other"),
];

/// Declares the counters of one core, and the metrics that are their sums over cores.
macro_rules! counters {
    ($($name:ident: $kind:ident($metric:literal, $help:literal),)*) => {
        /// Counters of one core. Only that core writes them, any thread may read them.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            pub(crate) requests: [AtomicU64; OPCODES.len()],
            pub(crate) errors: [AtomicU64; CODES.len()],
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Metrics that are summed over cores, each with its counter.
        const SUMS: &[(Metric, fn(&Counters) -> &AtomicU64)] =
            &[$((Metric::$kind($metric, $help), |c| &c.$name),)*];
    };
}

counters! {
    connections: gauge("fairlane_connections", "Open CQL connections."),
    accepted: counter("fairlane_connections_accepted_total", "CQL connections accepted."),
    refused: counter("fairlane_connections_refused_total", "CQL connections refused at a limit of sessions."),
    auth_failures: counter("fairlane_auth_failures_total", "CQL logins refused for their credentials."),
    bytes_in: counter("fairlane_bytes_received_total", "Bytes read from CQL clients."),
    bytes_out: counter("fairlane_bytes_sent_total", "Bytes written to CQL clients."),
    prepared: gauge("fairlane_prepared_statements", "Prepared statements in the caches of all cores."),
    prepared_evicted: counter("fairlane_prepared_evicted_total", "Prepared statements evicted from the caches."),
    slow: counter("fairlane_slow_statements_total", "Statements over the threshold of slow statements."),
}

/// Adds to a counter that only this core writes, without a locked instruction.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Subtracts from a counter that only this core writes.
pub(crate) fn sub(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_sub(n), Relaxed);
}

impl Counters {
    pub(crate) fn request(&self, opcode: wire::Opcode) {
        use wire::Opcode;
        let index = match opcode {
            Opcode::Startup => 0,
            Opcode::Options => 1,
            Opcode::AuthResponse => 2,
            Opcode::Query => 3,
            Opcode::Prepare => 4,
            Opcode::Execute => 5,
            Opcode::Batch => 6,
            _ => 7,
        };
        add(&self.requests[index], 1);
    }

    pub(crate) fn error(&self, code: i32) {
        let index = CODES.iter().position(|(known, _)| *known == code).unwrap_or(CODES.len() - 1);
        add(&self.errors[index], 1);
    }
}

/// Returns the number of EXECUTE messages that a core has read.
pub(crate) fn executed(core: &Counters) -> u64 {
    core.requests[5].load(Relaxed)
}

/// Returns the number of QUERY messages that a core has read.
pub(crate) fn queried(core: &Counters) -> u64 {
    core.requests[3].load(Relaxed)
}

/// Returns the number of prepared statements that a core has, and that it has evicted.
pub(crate) fn prepared(core: &Counters) -> (u64, u64) {
    (core.prepared.load(Relaxed), core.prepared_evicted.load(Relaxed))
}

/// The requests of levels have other metric names, since they count admitted requests.
const REQUESTS: Metric = Metric::counter("fairlane_cql_requests_total", "CQL requests read, by opcode.");
const ERRORS: Metric = Metric::counter("fairlane_cql_errors_total", "CQL errors sent, by kind.");

/// Appends the sums over cores.
pub(crate) fn page(cores: &[&Counters], page: &mut Page) {
    let sum = |of: &dyn Fn(&Counters) -> u64| cores.iter().map(|c| of(c)).sum::<u64>() as f64;
    for (metric, of) in SUMS {
        page.one(metric, sum(&|c| of(c).load(Relaxed)));
    }
    page.head(&REQUESTS);
    for (i, opcode) in OPCODES.iter().enumerate() {
        page.value(&REQUESTS, "opcode", opcode, sum(&|c| c.requests[i].load(Relaxed)));
    }
    page.head(&ERRORS);
    for (i, (_, kind)) in CODES.iter().enumerate() {
        page.value(&ERRORS, "kind", kind, sum(&|c| c.errors[i].load(Relaxed)));
    }
}

/// Adds `by` to a cell. Panics if the sum is negative.
pub(crate) fn bump(cell: &Cell<usize>, by: isize) {
    cell.set(cell.get().checked_add_signed(by).expect("the count is not negative"));
}
