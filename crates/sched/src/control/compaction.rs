//! The weight of compaction follows its backlog.
//!
//! The backlog is work: bytes still to be merged, times what a byte was measured to cost. If it is
//! to be cleared within [`HORIZON_NS`], it needs the fraction `f = cost ÷ horizon` of a core (or of
//! the disk, whichever is more), which is what a weight of `1000 f ÷ (1 − f)` gets beside users who
//! want everything. With work arriving steadily, the backlog settles where `f` is the rate at which
//! it arrives, and does so without swinging: the loop is of first order, as what is decided is a
//! rate, and what is measured is its integral. Cap and floor bound the weight, and a slew limit
//! keeps a single large merge from being felt as a step.

use super::{MILLI, PPM, SECOND_NS, scale, slew, weight_of_part};

/// The backlog is to be gone in this time, ns: short enough that reads do not suffer for long, and
/// long beside a merge's own swings.
const HORIZON_NS: u64 = 60 * SECOND_NS;
/// The least weight: 5 % of a saturated core, so that it always makes progress.
const FLOOR: u64 = 50;
/// The highest: half a saturated core.
const CAP: u64 = 1000;
const _: () = assert!(FLOOR < CAP && CAP <= super::WEIGHT_MAX);
/// Time constant at which the weight follows at most, ns.
const SLEW_OVER_NS: u64 = 2 * SECOND_NS;

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactionInput {
    /// The time since the last decision, ns.
    pub interval_ns: u64,
    /// Bytes to be merged until every table is as its strategy wants it.
    pub backlog_bytes: u64,
    /// What merging 1 MiB was measured to take of a core, or of its part of the disk if that is
    /// more, ns.
    pub cost_ns_per_mib: u64,
}

/// The controller's state.
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
    /// Takes in what was measured: the weight of the compaction group.
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

    /// 4 ms of CPU for each MiB: 250 MiB/s.
    const COST_NS_PER_MIB: u64 = 4_000_000;
    const MIB: u64 = 1 << 20;

    /// Work arrives at so many MiB a second at a saturated core: backlog and weight after so many
    /// seconds.
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
    fn the_weight_settles_where_work_is_done_as_fast_as_it_arrives() {
        for (arriving, expected) in [(20, 87), (50, 250), (100, 666)] {
            let (mut control, mut backlog) = (Compaction::default(), 0);
            let rising = run(&mut control, &mut backlog, arriving, 400);
            let over = |weight: &u64| *weight > expected + expected / 20 + 1;
            assert!(!rising.iter().any(over), "{arriving} MiB/s: it does not swing beyond");
            let settled = run(&mut control, &mut backlog, arriving, 100);
            let near = |weight: &u64| weight.abs_diff(expected) <= expected / 50 + 1;
            assert!(settled.iter().all(near), "{arriving} MiB/s: {:?} {:?}", settled[0], settled.last());
        }
    }

    #[test]
    fn steps_of_the_load_are_followed_within_slew_floor_and_cap() {
        let (mut control, mut backlog) = (Compaction::default(), 0);
        let mut last = FLOOR;
        for arriving in [0, 400, 0, 60, 0] {
            for weight in run(&mut control, &mut backlog, arriving, 200) {
                assert!((FLOOR..=CAP).contains(&weight));
                let most = last * INTERVAL_NS / SLEW_OVER_NS + 1;
                assert!(weight.abs_diff(last) <= most, "from {last} to {weight}");
                last = weight;
            }
        }
        run(&mut control, &mut backlog, 0, 600);
        assert_eq!((control.decide(CompactionInput::default()), backlog), (FLOOR, 0));
    }
}
