//! The present limits of a level, which the limiter and the latency controller decide: numbers that
//! core 0 writes and all cores read.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sched::control::{ConcurrencyLimit, LatencyReason};

/// The server's option `concurrency_limit`: the limit of levels without `max_concurrency`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DefaultLimit {
    /// Only the bounds that protect the process.
    #[default]
    Off,
    /// As with `max_concurrency = 'auto'`.
    Auto,
    /// This number of statements in flight on each core.
    Statements(u32),
}

/// The limit of a level on one core, as numbers that core 0 writes and that core reads. A mixture
/// of two decisions does no harm.
#[derive(Default)]
pub(crate) struct LimitCell {
    /// 0: no decision yet.
    statements: AtomicU64,
    target_ns: AtomicU64,
    work_ns: AtomicU64,
    device_ns: AtomicU64,
    refusal_ppm: AtomicU64,
    drain_ns: AtomicU64,
    /// 1 with a `latency_target`, the part of the busiest core in millionths, and the statements on
    /// other cores: 1, 31 and 32 bits.
    others: AtomicU64,
    time_limit_ns: AtomicU64,
}

/// The present limit of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitUse {
    /// Statements that may be in flight, over all cores.
    pub statements: u64,
    /// Target of queue delay, ns: that of the core with the highest one.
    pub target_ns: u64,
    /// Work of a statement, CPU or disk time, ns.
    pub work_ns: u64,
    /// Mean queue delay of the statements that ended between the last two decisions, ns.
    pub queue_delay_ns: u64,
}

impl LimitCell {
    pub(crate) fn set(&self, limit: &ConcurrencyLimit) {
        self.statements.store(limit.statements.into(), Relaxed);
        self.target_ns.store(limit.target_ns, Relaxed);
        self.work_ns.store(limit.work_ns, Relaxed);
        self.device_ns.store(limit.device_ns, Relaxed);
        self.refusal_ppm.store(limit.refusal_ppm, Relaxed);
        self.drain_ns.store(limit.drain_ns, Relaxed);
        let others = u64::from(limit.has_target) << 63 | u64::from(limit.busiest_ppm) << 32;
        self.others.store(others | u64::from(limit.elsewhere), Relaxed);
        self.time_limit_ns.store(limit.time_limit_ns, Relaxed);
    }

    /// Returns the limit. `None`: there is no decision yet.
    pub(crate) fn get(&self) -> Option<ConcurrencyLimit> {
        let statements = self.statements.load(Relaxed);
        let others = self.others.load(Relaxed);
        (statements > 0).then(|| ConcurrencyLimit {
            statements: u32::try_from(statements).unwrap_or(u32::MAX),
            target_ns: self.target_ns.load(Relaxed),
            work_ns: self.work_ns.load(Relaxed),
            device_ns: self.device_ns.load(Relaxed),
            refusal_ppm: self.refusal_ppm.load(Relaxed),
            drain_ns: self.drain_ns.load(Relaxed),
            busiest_ppm: (others >> 32) as u32 & (u32::MAX >> 1),
            elsewhere: others as u32,
            has_target: others >> 63 == 1,
            time_limit_ns: self.time_limit_ns.load(Relaxed),
        })
    }

    /// Ends the limit.
    pub(crate) fn clear(&self) {
        self.statements.store(0, Relaxed);
    }
}

/// Result of the last decision on a level with a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatencyUse {
    /// Target, ns.
    pub target_ns: u64,
    /// 99th percentile of the last window, ns.
    pub p99_ns: u64,
    /// Shares now.
    pub shares: u32,
    pub(crate) reason: LatencyReason,
}

impl fmt::Display for LatencyUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}
