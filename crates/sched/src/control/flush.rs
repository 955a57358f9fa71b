//! Controller of the pace of flushes. Each flush is spread until the next is due, whatever the
//! load.
//!
//! 1. *Rate.* Let `left` be the bytes to flush, and `room` the bytes to fill until the next flush
//!    is due. Flushing `left / (room − reserve)` bytes for each byte written ends the flush where
//!    the reserve begins. This is a straight line, drawn anew with every decision. So past errors
//!    (a load that changed, a busy core) are integrated in `left` and `room`, and corrected by the
//!    end. There is no gain to tune.
//! 2. *Weight.* The rate is an upper bound, and the weight makes the flush reach it. Rate times the
//!    measured cost of a byte is the part of the core (or of its part of the disk, whichever is
//!    more) that the flush needs. The weight gets that part of a saturated core. If this is not
//!    enough (another process, a byte that costs more), the line of 1 rises, and the weight with
//!    it. An exception is a flush that is a little late near its end. There the line is almost
//!    vertical, and the rest is small compared with the next memtable, so the weight ignores it.
//! 3. *Memory runs out.* `pressure` (see [`super::pressure_ppm`]) lifts the rate. It raises the
//!    weight with its square up to [`WEIGHT_MAX`], where the flush wins.
//! 4. *No writers.* The rate is lifted, as no writer has to be spared.

use super::{MILLI, PPM, SECOND_NS, UNLIMITED, WEIGHT_MAX, WEIGHT_MIN, scale, slew, smooth, weight_of_part};

/// Divisor of the reserve: a flush ends when one part in this many of the active memtable is free.
const RESERVE_OF_MEMTABLE: u64 = 10;
/// Divisor of the lateness that does not raise the weight: one memtable in this many, half of where
/// pressure begins.
const LATE_OF_MEMTABLE: u64 = 8;
/// Longest paced flush, s. The memtable's part of the commit log is kept as long.
const LONGEST_S: u64 = 30;
/// Time constant of the measured rate of writes, ns.
const FILL_TIME_CONSTANT_NS: u64 = 500_000_000;
/// Time constant of the measured rate of flushing, ns.
const FLUSHED_TIME_CONSTANT_NS: u64 = 100_000_000;
/// Time constant of the slew limit of the weight, ns, so that a flush that is late at its end does
/// not act as a step.
const SLEW_OVER_NS: u64 = 400_000_000;
/// Factor on the measured need for CPU, per mille. The surplus covers the flush's waits and its
/// end.
const NEEDED_PER_MILLE: u64 = 1125;
/// Time without a write after which there are no writers, ns.
const IDLE_NS: u64 = 250_000_000;
/// Initial weight, and the weight from which pressure raises it: a sixth of a saturated core.
const WEIGHT_START: u64 = 200;

/// Measurements since the last decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushInput {
    /// Time since then, ns.
    pub interval_ns: u64,
    /// Bytes written to memtables since then.
    pub filled_bytes: u64,
    /// Bytes of memtables flushed since then.
    pub flushed_bytes: u64,
    /// Bytes in frozen memtables still to be flushed.
    pub left_bytes: u64,
    /// Bytes that can be written until the next memtable is due.
    pub room_bytes: u64,
    /// Size at which a memtable is due, bytes.
    pub memtable_bytes: u64,
    /// Measured cost of flushing 1 MiB, in ns of a core, or of its part of the disk if that is
    /// more.
    pub cost_ns_per_mib: u64,
    /// Pressure, from [`super::pressure_ppm`].
    pub pressure_ppm: u32,
}

/// Rate and weight of the flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushDecision {
    /// Highest rate, bytes of memtable a second; [`UNLIMITED`] for no bound.
    pub rate: u64,
    /// Weight of the flush group.
    pub weight: u64,
}

/// State of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    fill_rate: u64,
    flushed_rate: u64,
    idle_ns: u64,
    weight_milli: u64,
}

impl Default for Flush {
    fn default() -> Flush {
        Flush { fill_rate: 0, flushed_rate: 0, idle_ns: 0, weight_milli: WEIGHT_START * MILLI }
    }
}

impl Flush {
    /// Returns the bytes written to memtables a second, smoothed.
    #[must_use]
    pub fn fill_rate(&self) -> u64 {
        self.fill_rate
    }

    /// Returns the bytes flushed a second, smoothed.
    #[must_use]
    pub fn flushed_rate(&self) -> u64 {
        self.flushed_rate
    }

    /// Takes the measurements and returns the decision.
    pub fn decide(&mut self, input: FlushInput) -> FlushDecision {
        let interval_ns = input.interval_ns.clamp(1, 3600 * SECOND_NS);
        let a_second = |bytes: u64| scale(bytes, SECOND_NS, interval_ns);
        self.fill_rate =
            smooth(self.fill_rate, a_second(input.filled_bytes), interval_ns, FILL_TIME_CONSTANT_NS);
        self.idle_ns = if input.filled_bytes > 0 { 0 } else { self.idle_ns.saturating_add(interval_ns) };
        let flushed = a_second(input.flushed_bytes);
        self.flushed_rate = match input.left_bytes > 0 || input.flushed_bytes > 0 {
            true => smooth(self.flushed_rate, flushed, interval_ns, FLUSHED_TIME_CONSTANT_NS),
            // With nothing to flush no writer waits for it. The next flush starts as if it had kept
            // its rate.
            false => self.flushed_rate.max(self.needed(&input, 0)),
        };
        let needed = self.needed(&input, 0);
        let spared = self.idle_ns < IDLE_NS && input.pressure_ppm == 0;
        let rate = if spared { needed } else { UNLIMITED };
        if input.left_bytes > 0 {
            let relaxed = self.needed(&input, input.memtable_bytes / LATE_OF_MEMTABLE);
            let steady = scale(self.fill_rate, RESERVE_OF_MEMTABLE, RESERVE_OF_MEMTABLE - 1);
            let rate_for_weight = needed.min(relaxed.max(steady));
            let cost_ns = scale(rate_for_weight, input.cost_ns_per_mib.max(1), 1 << 20);
            let part_ppm = scale(cost_ns, PPM * NEEDED_PER_MILLE, SECOND_NS * 1000);
            let target = weight_of_part(part_ppm).clamp(WEIGHT_MIN * MILLI, WEIGHT_MAX * MILLI);
            self.weight_milli = slew(self.weight_milli, target, interval_ns, SLEW_OVER_NS);
        }
        let pressure = u64::from(input.pressure_ppm).min(PPM);
        let pushed = WEIGHT_START + scale((WEIGHT_MAX - WEIGHT_START) * pressure, pressure, PPM * PPM);
        let floor = if pressure > 0 { pushed } else { WEIGHT_MIN };
        let weight = (self.weight_milli / MILLI).clamp(floor, WEIGHT_MAX);
        FlushDecision { rate, weight }
    }

    /// Returns the rate that ends the flush in time, or late by at most `late_bytes` of writes.
    fn needed(&self, input: &FlushInput, late_bytes: u64) -> u64 {
        let floor = (input.memtable_bytes / LONGEST_S).max(1);
        let reserve = input.memtable_bytes / RESERVE_OF_MEMTABLE;
        let room = input.room_bytes.saturating_sub(reserve).max(late_bytes);
        let line = if input.left_bytes == 0 { 0 } else { scale(input.left_bytes, self.fill_rate, room) };
        line.max(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{INTERVAL_NS, USERS_WEIGHT, pressure_ppm};
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMTABLE: u64 = 64 * MIB;

    /// Simulated memtables that fill at `fill` bytes a second, and a core that flushes `speed`
    /// bytes a second when it does nothing else. With `busy`, users use their whole entitlement of
    /// the core, else nothing.
    struct Plant {
        control: Flush,
        /// Measured cost, per mille of the true one.
        measured: u64,
        /// Most random deviation of the speed of a step, per mille. One step in ten also stands
        /// still.
        noise: u64,
        random: testkit::Random,
        active: u64,
        left: u64,
        frozen: u64,
        decision: FlushDecision,
        flushed: u64,
        filled: u64,
        /// Fill of the active memtable at the end of each flush, per mille.
        ended_at: Vec<u64>,
        highest_pressure: u32,
    }

    impl Plant {
        fn new() -> Plant {
            let control = Flush::default();
            let decision = FlushDecision { rate: UNLIMITED, weight: WEIGHT_START };
            let active = 0;
            let left = 0;
            let frozen = 0;
            let flushed = 0;
            let filled = 0;
            Plant {
                measured: 1000,
                noise: 0,
                random: testkit::Random::new(1),
                control,
                active,
                left,
                frozen,
                decision,
                flushed,
                filled,
                ended_at: vec![],
                highest_pressure: 0,
            }
        }

        fn step(&mut self, fill: u64, speed: u64, busy: bool) -> u64 {
            let a_step = |rate: u64| scale(rate, INTERVAL_NS, SECOND_NS);
            let filled = a_step(fill);
            self.active += filled;
            if self.active >= MEMTABLE {
                self.left += self.active;
                self.active = 0;
                self.frozen += 1;
            }
            let share = if busy {
                scale(speed, self.decision.weight, self.decision.weight + USERS_WEIGHT)
            } else {
                speed
            };
            let flushed = a_step(self.disturbed(share).min(self.decision.rate)).min(self.left);
            self.left -= flushed;
            while self.left <= (self.frozen.max(1) - 1) * MEMTABLE && self.frozen > 0 {
                self.frozen -= 1;
                self.ended_at.push(self.active * 1000 / MEMTABLE);
            }
            let pressure_ppm = pressure_ppm(self.active + self.left, MEMTABLE);
            self.highest_pressure = self.highest_pressure.max(pressure_ppm);
            self.flushed += flushed;
            self.filled += filled;
            self.decision = self.control.decide(FlushInput {
                interval_ns: INTERVAL_NS,
                filled_bytes: filled,
                flushed_bytes: flushed,
                left_bytes: self.left,
                room_bytes: MEMTABLE.saturating_sub(self.active),
                memtable_bytes: MEMTABLE,
                cost_ns_per_mib: scale(MIB * SECOND_NS / 1000, self.measured, speed),
                pressure_ppm,
            });
            flushed
        }

        /// Runs a step alongside busy users.
        fn weight_after_a_step(&mut self, fill: u64, speed: u64) -> u64 {
            self.step(fill, speed, true);
            self.decision.weight
        }

        fn disturbed(&mut self, speed: u64) -> u64 {
            if self.noise == 0 {
                return speed;
            }
            match self.random.below(10) {
                0 => 0,
                _ => scale(speed, 1000 - self.noise + self.random.below(2 * self.noise + 1), 900),
            }
        }

        fn run(&mut self, seconds: u64, fill: u64, speed: u64, busy: bool) -> Vec<u64> {
            (0..seconds * SECOND_NS / INTERVAL_NS).map(|_| self.step(fill, speed, busy)).collect()
        }
    }

    /// Checks that every flush takes most of the time that it has, ends in time, and runs evenly.
    fn check_spread(fill: u64, speed: u64, busy: bool) {
        let case = format!("fill {fill}, speed {speed}, busy {busy}");
        let mut plant = Plant::new();
        plant.run(40, fill, speed, busy);
        plant.ended_at.clear();
        let flushed = plant.run(60, fill, speed, busy);
        assert!(!plant.ended_at.is_empty(), "{case}");
        assert!(plant.ended_at.iter().all(|at| (750..=960).contains(at)), "{case}: {:?}", plant.ended_at);
        assert_eq!(plant.highest_pressure, 0, "{case}");
        let mean = flushed.iter().sum::<u64>() / flushed.len() as u64;
        let most = *flushed.iter().max().expect("steps");
        assert!(most <= mean * 14 / 10, "{case}: at most {most} a step, {mean} on average");
    }

    #[test]
    fn flush_ends_just_before_the_next_is_due() {
        for fill_mib in [4, 20, 60] {
            check_spread(fill_mib * MIB, 300 * MIB, false);
            check_spread(fill_mib * MIB, 300 * MIB, true);
        }
        check_spread(30 * MIB, 60 * MIB, true);
    }

    #[test]
    fn load_steps_do_not_exhaust_memory() {
        let mut plant = Plant::new();
        for fill_mib in [5, 50, 10, 80, 1, 60] {
            plant.run(20, fill_mib * MIB, 300 * MIB, true);
            // At a fifth of full pressure, acknowledgements still flow at four times the rate of
            // the flush.
            assert!(plant.highest_pressure < 200_000, "{fill_mib} MiB/s: {} ppm", plant.highest_pressure);
        }
        assert!(plant.filled - plant.flushed < 2 * MEMTABLE);
    }

    #[test]
    fn weight_settles_on_a_saturated_core() {
        let mut plant = Plant::new();
        plant.run(120, 30 * MIB, 200 * MIB, true);
        let weights: Vec<u64> = (0..2000).map(|_| plant.weight_after_a_step(30 * MIB, 200 * MIB)).collect();
        let (least, most) = (weights.iter().min().expect("steps"), weights.iter().max().expect("steps"));
        // 30 of 200 MiB/s is 15 % of the core: a weight of 176.
        assert!(*least >= 150 && *most <= 320, "{least} to {most}");
    }

    #[test]
    fn varying_speed_and_wrong_cost_delay_no_writer() {
        // 30 of 200 MiB/s.
        let needed = 176;
        for (noise, measured) in [(0, 600), (500, 1000), (500, 700), (500, 1400)] {
            let mut plant = Plant::new();
            (plant.noise, plant.measured) = (noise, measured);
            let steps = 200 * SECOND_NS / INTERVAL_NS;
            let weights: u64 = (0..steps).map(|_| plant.weight_after_a_step(30 * MIB, 200 * MIB)).sum();
            let mean = weights / steps;
            let case = format!("noise {noise}, measured {measured}");
            assert_eq!(plant.highest_pressure, 0, "{case}");
            assert!(mean <= needed * measured.max(1000) * 2 / 1000, "{case}: {mean}");
        }
    }

    /// Stops the disk for 160 ms at a point of a flush. Returns the highest weight in the two
    /// seconds after.
    fn highest_weight_after_a_stall(at_per_mille: u64) -> u64 {
        let (fill, speed) = (20 * MIB, 200 * MIB);
        let mut plant = Plant::new();
        plant.run(60, fill, speed, true);
        while !(at_per_mille..at_per_mille + 10).contains(&(plant.active * 1000 / MEMTABLE)) {
            plant.step(fill, speed, true);
        }
        for _ in 0..8 {
            plant.step(fill, 0, true);
        }
        let weights = (0..100).map(|_| plant.weight_after_a_step(fill, speed));
        let highest = weights.max().expect("steps");
        assert_eq!(plant.highest_pressure, 0);
        highest
    }

    #[test]
    fn disk_stall_at_any_point_of_a_flush_hardly_raises_the_weight() {
        // 20 of 200 MiB/s take a weight of 111, and 143 with reserve and surplus.
        for at_per_mille in [100, 500, 700, 800, 850] {
            let highest = highest_weight_after_a_stall(at_per_mille);
            assert!(highest <= 220, "at {at_per_mille} per mille: {highest}");
        }
    }

    #[test]
    fn flush_wins_as_memory_runs_out() {
        let mut plant = Plant::new();
        // Writes come as fast as half the core can flush. Only a weight of at least 1000 keeps up.
        plant.run(60, 100 * MIB, 190 * MIB, true);
        assert!(plant.decision.weight >= 1000, "{:?}", plant.decision);
        let mut control = Flush::default();
        let out =
            FlushInput { pressure_ppm: 1_000_000, left_bytes: 1, filled_bytes: 1, ..FlushInput::default() };
        assert_eq!(control.decide(out), FlushDecision { rate: UNLIMITED, weight: WEIGHT_MAX });
    }

    #[test]
    fn flush_is_unlimited_without_writers() {
        let mut plant = Plant::new();
        plant.run(20, 60 * MIB, 100 * MIB, true);
        plant.run(1, 0, 300 * MIB, false);
        assert_eq!(plant.decision.rate, UNLIMITED);
        plant.run(100, 0, 300 * MIB, false);
        assert_eq!(plant.left, 0);
    }

    /// Otherwise writers would be delayed at the start of the next flush, as by a slow one.
    #[test]
    fn flush_keeps_its_rate_while_nothing_is_left_to_flush() {
        let mut plant = Plant::new();
        plant.run(60, 20 * MIB, 300 * MIB, true);
        plant.run(60, 0, 300 * MIB, true);
        assert_eq!(plant.left, 0);
        let before = plant.control.flushed_rate();
        plant.run(60, 0, 300 * MIB, true);
        assert!(before > 2 * MEMTABLE / LONGEST_S, "{before}");
        assert_eq!(plant.control.flushed_rate(), before);
    }

    #[test]
    fn extreme_inputs_give_a_decision_in_range() {
        let mut control = Flush::default();
        let most = FlushInput {
            interval_ns: u64::MAX,
            filled_bytes: u64::MAX,
            flushed_bytes: u64::MAX,
            left_bytes: u64::MAX,
            room_bytes: u64::MAX,
            memtable_bytes: u64::MAX,
            cost_ns_per_mib: u64::MAX,
            pressure_ppm: u32::MAX,
        };
        for input in [most, FlushInput::default(), FlushInput { room_bytes: 0, ..most }] {
            let decision = control.decide(input);
            assert!(
                (WEIGHT_MIN..=WEIGHT_MAX).contains(&decision.weight) && decision.rate > 0,
                "{decision:?}"
            );
        }
    }
}
