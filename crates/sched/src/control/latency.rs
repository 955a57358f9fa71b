//! Shares of a level with the option `latency_target`, once a second.
//!
//! 1. *Bounds.* The administrator gives the lowest and highest shares. Nothing else moves. Shares
//!    divide only what minimums leave, so no other level loses its `cpu_min`.
//! 2. *Cause.* More shares shorten only the wait for a core that other levels use. The controller
//!    reports another cause, and keeps the shares: statements whose work alone exceeds the target,
//!    a wait for a slot of the level, or for the disk.
//! 3. *Step.* The shares grow or fall by a tenth of the relative distance from 90 % of the target,
//!    by 30 % at most. Under contention a level gives back what it does not need. A level without
//!    contention keeps its shares: low latency then proves nothing about them.
//!
//! The part is small because latency near saturation is steep. At an entitlement `f` and a load `ρ`
//! one percent of shares moves the wait by `f (1 − f) ÷ (f − ρ)` percent.
//!
//! Limits: a percentile of few statements is noise, so a window of fewer than [`STATEMENTS_MIN`]
//! changes nothing. The caller lengthens the window of a level with few statements. The target
//! itself bounds the queue through [`super::ConcurrencyInput::latency_target_ns`].

use std::fmt;

use super::{MILLI, PPM, scale};

/// Fewest statements of a window with a 99th percentile: two of them are slower.
const STATEMENTS_MIN: u64 = 200;
/// Part of the target at which the controller aims. The 99th percentile of ten seconds is above the
/// median of those of its seconds.
const AIM_PPM: u64 = 900_000;
/// No change within this part of the aim: less is noise of a second.
const MET_WITHIN_PPM: u64 = 50_000;
/// Part of the relative error by which a decision changes the shares. Stable while one percent of
/// shares moves the latency by less than twenty.
const GAIN_PPM: u64 = 100_000;
/// Largest relative error that counts. Latency beyond saturation tells no distance.
const ERROR_PPM_MAX: u64 = 3 * PPM;
/// Part of the core used by other levels from which on they contend.
const CONTENTION_PPM: u32 = 20_000;

/// Measurements of a level in a window of a second, or longer with few statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyInput {
    /// The option `latency_target`, for the 99th percentile, ns.
    pub target_ns: u64,
    /// Measured 99th percentile: age and service, ns.
    pub p99_ns: u64,
    /// Statements that ended in the window.
    pub ended: u64,
    /// Mean CPU and device time of a statement without any queue, ns.
    pub alone_ns: u64,
    /// Mean wait of a statement for the core, ns.
    pub cpu_wait_ns: u64,
    /// Mean wait of a statement for a slot of its level, ns.
    pub slot_wait_ns: u64,
    /// Mean wait of a statement for the disk, ns.
    pub disk_wait_ns: u64,
    /// Part of the core that other levels used, in millionths.
    pub others_ppm: u32,
    /// Lowest shares, at least 1.
    pub shares_min: u32,
    /// Highest shares.
    pub shares_max: u32,
}

/// Reason of a decision, with its text for `system.level_usage`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatencyReason {
    /// The latency is at the aim, or lower and no other level contends.
    Met,
    /// Latency was above the aim.
    Raised {
        /// Shares before.
        from: u32,
        /// Shares now.
        to: u32,
    },
    /// Latency was below the aim under contention.
    Lowered {
        /// Shares before.
        from: u32,
        /// Shares now.
        to: u32,
    },
    /// Latency is above the target, and the shares cannot grow.
    UpperBound,
    /// The work of a statement takes as long as the target.
    WorkAlone,
    /// Latency is above the target, and statements wait longer for slots of their own level than
    /// for the core.
    OwnSlots,
    /// Latency is above the target, and other levels do not cause it by their CPU time.
    NotCpu,
    /// Too few statements ended.
    FewStatements,
}

impl fmt::Display for LatencyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Raised { from, to } => write!(f, "raised shares from {from} to {to}"),
            Self::Lowered { from, to } => write!(f, "lowered shares from {from} to {to}"),
            Self::UpperBound => f.write_str("at its upper bound of shares: cannot be met"),
            Self::WorkAlone => f.write_str("a statement alone takes longer: cannot be met"),
            Self::OwnSlots => f.write_str("waits for its own slots (max_concurrency)"),
            Self::NotCpu => f.write_str("not limited by the CPU time of other levels"),
            Self::FewStatements => f.write_str("too few statements to measure"),
        }
    }
}

/// Controller of the shares of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// In thousandths, so that small steps add up.
    shares_milli: u64,
}

impl Latency {
    /// Starts with the configured shares of the level.
    #[must_use]
    pub fn new(shares: u32) -> Latency {
        Latency { shares_milli: u64::from(shares) * MILLI }
    }

    /// Takes the measurements of a window. Returns the shares from now on, within their bounds, and
    /// the reason.
    pub fn decide(&mut self, input: LatencyInput) -> (u32, LatencyReason) {
        let least = u64::from(input.shares_min.max(1)) * MILLI;
        let most = (u64::from(input.shares_max) * MILLI).max(least);
        self.shares_milli = self.shares_milli.clamp(least, most);
        let from = self.shares();
        let aim_ns = scale(input.target_ns, AIM_PPM, PPM).max(1);
        let error_ppm = scale(input.p99_ns.abs_diff(aim_ns), PPM, aim_ns);
        let step = scale(self.shares_milli, scale(error_ppm.min(ERROR_PPM_MAX), GAIN_PPM, PPM), PPM);
        let late = input.p99_ns > input.target_ns;
        let contended = input.others_ppm >= CONTENTION_PPM;
        let reason = match input.p99_ns > aim_ns {
            _ if input.ended < STATEMENTS_MIN => LatencyReason::FewStatements,
            _ if error_ppm <= MET_WITHIN_PPM => LatencyReason::Met,
            true if !late && (self.shares_milli == most || !contended) => LatencyReason::Met,
            true if input.alone_ns >= input.target_ns => LatencyReason::WorkAlone,
            true if input.slot_wait_ns > input.cpu_wait_ns => LatencyReason::OwnSlots,
            true if !contended || input.cpu_wait_ns < input.disk_wait_ns => LatencyReason::NotCpu,
            true if self.shares_milli == most => LatencyReason::UpperBound,
            true => {
                self.shares_milli = self.shares_milli.saturating_add(step).min(most);
                LatencyReason::Raised { from, to: self.shares() }
            }
            false if !contended || self.shares_milli == least => LatencyReason::Met,
            false => {
                self.shares_milli = self.shares_milli.saturating_sub(step).max(least);
                LatencyReason::Lowered { from, to: self.shares() }
            }
        };
        (self.shares(), reason)
    }

    fn shares(&self) -> u32 {
        u32::try_from(self.shares_milli / MILLI).unwrap_or(u32::MAX)
    }
}
