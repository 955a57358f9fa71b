//! What the server counts about itself: relaxed atomics, one set for all cores but the hot ones, which each core adds
//! up for itself and hands over once a round.

use std::cell::Cell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The requests told apart in `/metrics`, by the opcode's place in this list.
const OPCODES: [&str; 8] =
    ["startup", "options", "auth_response", "query", "prepare", "execute", "batch", "register"];

/// The error codes told apart; any other counts as the last.
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

/// Counts of one core. Written by that core alone, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: [AtomicU64; OPCODES.len()],
    pub(crate) errors: [AtomicU64; CODES.len()],
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) prepared: AtomicU64,
    pub(crate) prepared_evicted: AtomicU64,
    pub(crate) slow: AtomicU64,
}

/// Adds to a count that only this core writes: no locked instruction.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Takes from a count that only this core writes.
pub(crate) fn sub(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_sub(n), Relaxed);
}

impl Counters {
    pub(crate) fn request(&self, opcode: wire::Opcode) {
        use wire::Opcode;
        let place = match opcode {
            Opcode::Startup => 0,
            Opcode::Options => 1,
            Opcode::AuthResponse => 2,
            Opcode::Query => 3,
            Opcode::Prepare => 4,
            Opcode::Execute => 5,
            Opcode::Batch => 6,
            _ => 7,
        };
        add(&self.requests[place], 1);
    }

    pub(crate) fn error(&self, code: i32) {
        let place = CODES.iter().position(|(known, _)| *known == code).unwrap_or(CODES.len() - 1);
        add(&self.errors[place], 1);
    }
}

/// Sums over cores, as Prometheus text.
pub(crate) fn text(cores: &[&Counters], out: &mut String) {
    let sum = |of: fn(&Counters) -> &AtomicU64| cores.iter().map(|c| of(c).load(Relaxed)).sum::<u64>();
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = writeln!(
            out,
            "# HELP fairlane_{name} {help}\n# TYPE fairlane_{name} {kind}\nfairlane_{name} {value}"
        );
    };
    one("connections", "gauge", "CQL connections now.", sum(|c| &c.connections));
    one("connections_accepted_total", "counter", "CQL connections accepted.", sum(|c| &c.accepted));
    one("connections_refused_total", "counter", "CQL connections beyond the maximum.", sum(|c| &c.refused));
    one("auth_failures_total", "counter", "Refused credentials.", sum(|c| &c.auth_failures));
    one("bytes_received_total", "counter", "Bytes read from CQL clients.", sum(|c| &c.bytes_in));
    one("bytes_sent_total", "counter", "Bytes written to CQL clients.", sum(|c| &c.bytes_out));
    one("prepared_statements", "gauge", "Prepared statements kept, over all cores.", sum(|c| &c.prepared));
    one("prepared_evicted_total", "counter", "Prepared statements let go.", sum(|c| &c.prepared_evicted));
    one("slow_statements_total", "counter", "Statements over the slow threshold.", sum(|c| &c.slow));
    let _ =
        writeln!(out, "# HELP fairlane_requests_total CQL requests.\n# TYPE fairlane_requests_total counter");
    for (i, opcode) in OPCODES.iter().enumerate() {
        let n: u64 = cores.iter().map(|c| c.requests[i].load(Relaxed)).sum();
        let _ = writeln!(out, "fairlane_requests_total{{opcode=\"{opcode}\"}} {n}");
    }
    let _ = writeln!(out, "# HELP fairlane_errors_total CQL errors.\n# TYPE fairlane_errors_total counter");
    for (i, (_, kind)) in CODES.iter().enumerate() {
        let n: u64 = cores.iter().map(|c| c.errors[i].load(Relaxed)).sum();
        let _ = writeln!(out, "fairlane_errors_total{{kind=\"{kind}\"}} {n}");
    }
}

/// A number that changes without a borrow.
pub(crate) fn bump(cell: &Cell<usize>, by: isize) {
    cell.set(cell.get().checked_add_signed(by).expect("what is counted down was counted up"));
}
