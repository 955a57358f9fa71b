//! Controller of the weight of compaction, which follows the backlog.
//!
//! The backlog is work: bytes to be compacted, times the measured cost of a byte. To clear it
//! within [`HORIZON_NS`] takes the fraction `f = cost ÷ horizon` of a core (or of the disk,
//! whichever is more). A weight of `1000 f ÷ (1 − f)` gets that alongside users with endless work.
//! With work arriving steadily, the backlog settles where `f` is the rate of arrival. It does not
//! swing, because the loop is of first order: the decision is a rate, and the measurement is its
//! integral. A cap and a floor bound the weight. A slew limit keeps a single large compaction from
//! acting as a step.

use super::{MILLI, PPM, SECOND_NS, scale, slew, weight_of_part};

/// Time in which the backlog is to be cleared, ns. It is short enough that reads do not suffer for
/// long, and long compared with the variation within one compaction.
const HORIZON_NS: u64 = 60 * SECOND_NS;
/// Lowest weight: 5 % of a saturated core, so that compaction always makes progress.
const FLOOR: u64 = 50;
/// Highest weight: half a saturated core.
const CAP: u64 = 1000;
const _: () = assert!(FLOOR < CAP && CAP <= super::WEIGHT_MAX);
/// Time constant of the slew limit of the weight, ns.
const SLEW_OVER_NS: u64 = 2 * SECOND_NS;

/// Measurements since the last decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionInput {
    /// Time since the last decision, ns.
    pub interval_ns: u64,
    /// Bytes to be compacted until every table is as its strategy wants it.
    pub backlog_bytes: u64,
    /// Measured cost of compacting 1 MiB, in ns of a core, or of its part of the disk if that is
    /// more.
    pub cost_ns_per_mib: u64,
}

/// State of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compaction {
    weight_milli: u64,
}

impl Default for Compaction {
    fn default() -> Compaction {
        Compaction { weight_milli: FLOOR * MILLI }
    }
}

impl Compaction {
    /// Takes the measurements. Returns the weight of the compaction group.
    pub fn decide(&mut self, input: CompactionInput) -> u64 {
        let cost_ns = scale(input.backlog_bytes, input.cost_ns_per_mib, 1 << 20);
        let target = weight_of_part(scale(cost_ns, PPM, HORIZON_NS)).clamp(FLOOR * MILLI, CAP * MILLI);
        self.weight_milli = slew(self.weight_milli, target, input.interval_ns, SLEW_OVER_NS);
        self.weight_milli / MILLI
    }
}

#[cfg(test)]
mod tests {
    use super::super::{INTERVAL_NS, USERS_WEIGHT};
    use super::*;

    /// CPU of compacting one MiB, ns: 250 MiB/s.
    const COST_NS_PER_MIB: u64 = 4_000_000;
    const MIB: u64 = 1 << 20;

    /// Runs a saturated core for `seconds` with `arriving_mib` of new work a second. Returns the
    /// weights.
    fn run(control: &mut Compaction, backlog: &mut u64, arriving_mib: u64, seconds: u64) -> Vec<u64> {
        let mut weights = Vec::new();
        for _ in 0..seconds * SECOND_NS / INTERVAL_NS {
            let input = CompactionInput {
                interval_ns: INTERVAL_NS,
                backlog_bytes: *backlog,
                cost_ns_per_mib: COST_NS_PER_MIB,
            };
            let weight = control.decide(input);
            weights.push(weight);
            let cpu_ns = scale(INTERVAL_NS, weight, weight + USERS_WEIGHT);
            *backlog = (*backlog + scale(arriving_mib * MIB, INTERVAL_NS, SECOND_NS)).saturating_sub(scale(
                cpu_ns,
                MIB,
                COST_NS_PER_MIB,
            ));
        }
        weights
    }

    #[test]
    fn weight_settles_at_the_rate_of_arrival() {
        for (arriving, expected) in [(20, 87), (50, 250), (100, 666)] {
            let (mut control, mut backlog) = (Compaction::default(), 0);
            let rising = run(&mut control, &mut backlog, arriving, 400);
            let over = |weight: &u64| *weight > expected + expected / 20 + 1;
            assert!(!rising.iter().any(over), "{arriving} MiB/s: no overshoot");
            let settled = run(&mut control, &mut backlog, arriving, 100);
            let near = |weight: &u64| weight.abs_diff(expected) <= expected / 50 + 1;
            assert!(settled.iter().all(near), "{arriving} MiB/s: {:?} {:?}", settled[0], settled.last());
        }
    }

    #[test]
    fn weight_follows_load_steps_within_slew_floor_and_cap() {
        let (mut control, mut backlog) = (Compaction::default(), 0);
        let mut last = FLOOR;
        for arriving in [0, 400, 0, 60, 0] {
            for weight in run(&mut control, &mut backlog, arriving, 200) {
                assert!((FLOOR..=CAP).contains(&weight));
                let step_max = last * INTERVAL_NS / SLEW_OVER_NS + 1;
                assert!(weight.abs_diff(last) <= step_max, "from {last} to {weight}");
                last = weight;
            }
        }
        run(&mut control, &mut backlog, 0, 600);
        assert_eq!((control.decide(CompactionInput::default()), backlog), (FLOOR, 0));
    }
}
