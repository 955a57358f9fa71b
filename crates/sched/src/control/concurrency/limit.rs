//! The limit of a level on a core until the next decision, and the cause of its change.

use super::super::{PPM, scale};

/// Least time for which the limit lets statements wait after their admission, ns: an order of
/// magnitude above a lane switch and a poll (200 µs).
pub(super) const QUEUE_NS_MIN: u64 = 1_000_000;
/// Highest target as a divisor of the time limit: the statement also needs time to run.
pub(super) const TARGET_OF_TIME_LIMIT: u64 = 4;

/// Decision for a level on a core, valid until the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConcurrencyLimit {
    /// Statements that may be in flight; at least 1.
    pub statements: u32,
    /// Target of queue delay, ns.
    pub target_ns: u64,
    /// Measured work of a statement, ns; at least 1.
    pub work_ns: u64,
    /// Measured time of a statement at the device, ns.
    pub device_ns: u64,
    /// Part of the level's CPU time that refusals cost, in millionths.
    pub refusal_ppm: u64,
    /// Time in which the level gets the work of one statement done on its busiest core, ns: that
    /// work ÷ entitlement.
    pub drain_ns: u64,
    /// Part of the work of a statement that the busiest core does, in millionths.
    pub busiest_ppm: u32,
    /// Statements in flight on other cores at the decision.
    pub elsewhere: u32,
    /// True with a `latency_target`.
    pub has_target: bool,
    /// Longest time limit of the level's recent statements, ns. It bounds the target and the
    /// pauses.
    pub time_limit_ns: u64,
}

/// The measurement that changed a limit most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitChange {
    /// Work of a statement.
    Work,
    /// Entitlement of the level.
    Entitlement,
    /// Time at the device.
    Device,
    /// None of these: the target or the highest limit changed.
    Target,
}

impl LimitChange {
    /// Every cause, in the order of their numbers.
    pub const ALL: [LimitChange; 4] =
        [LimitChange::Work, LimitChange::Entitlement, LimitChange::Device, LimitChange::Target];

    /// Returns the name of the cause in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LimitChange::Work => "work",
            LimitChange::Entitlement => "entitlement",
            LimitChange::Device => "device",
            LimitChange::Target => "target",
        }
    }
}

/// Returns the work of a statement on the busiest core, ns; at least 1.
pub(super) fn work_of_busiest_ns(work_ns: u64, busiest_ppm: u32) -> u64 {
    scale(work_ns, busiest_ppm.into(), PPM).max(1)
}

impl ConcurrencyLimit {
    /// Returns the wait for the statements in flight, ns: for `level_in_flight` on this core, and
    /// for those on other cores. The wait is at least for the busiest core.
    #[must_use]
    pub fn wait_ns(&self, level_in_flight: u32) -> u64 {
        self.drain_ns.saturating_mul(u64::from(level_in_flight) + u64::from(self.elsewhere))
    }

    /// Returns the longest useful queue delay, and the longest pause, ns.
    pub(super) fn longest_ns(&self) -> u64 {
        self.time_limit_ns / TARGET_OF_TIME_LIMIT
    }

    /// Returns the cause of the change from `before`. `None`: the limit is the same.
    #[must_use]
    pub fn change_from(&self, before: &ConcurrencyLimit) -> Option<LimitChange> {
        if self.statements == before.statements {
            return None;
        }
        // In millionths of the smaller value. A device time of less than 1 ms hardly counts.
        let change = |a: u64, b: u64| scale(a.max(b), PPM, a.min(b).max(1)).saturating_sub(PPM);
        let part = |limit: &ConcurrencyLimit| {
            scale(work_of_busiest_ns(limit.work_ns, limit.busiest_ppm), PPM, limit.drain_ns.max(1))
        };
        let device = |limit: &ConcurrencyLimit| limit.device_ns.saturating_add(QUEUE_NS_MIN);
        let changes = [
            (change(self.work_ns, before.work_ns), LimitChange::Work),
            (change(part(self), part(before)), LimitChange::Entitlement),
            (change(device(self), device(before)), LimitChange::Device),
        ];
        let (most, cause) = changes.into_iter().max_by_key(|(change, _)| *change)?;
        Some(if most == 0 { LimitChange::Target } else { cause })
    }
}
