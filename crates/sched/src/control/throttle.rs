//! Delay of writes as memory for memtables runs out. The delay of each write grows smoothly, and no
//! write is rejected.
//!
//! *Pressure* is how far memory has run out. The memory held is the active memtable and the part of
//! frozen ones that is not flushed yet. Alongside a flush that keeps its pace this is always about
//! one memtable: one fills as the other drains.
//!
//! ```text
//!   held    1         1¼ memtables                       2
//!   ────────┼──────────┼────────────────────────────────┼───▶        r(p) = flush rate × (1 − p) ÷ p
//!   pressure           0                                1
//!   admitted        all of it     flush rate at ½      nothing
//! ```
//!
//! Acknowledgements flow at `r(p)`, counted in bytes by clocks like that of [`crate::gcra`]. So the
//! number of writers, and of writes that each has in flight, does not matter. If writers want more
//! than is flushed, pressure rises until `r(p)` equals the rate of the flush, and stays. The loop
//! is of first order, without a step to nothing.
//!
//! Each group of writers has a clock of its own. The groups that wait divide `r(p)` by their
//! shares, so that one that writes less than its part does not wait for one that pours. What it
//! leaves is not lost: pressure falls, and `r(p)` rises, until all of the flush is used.

use super::{PPM, SECOND_NS, scale};

/// Start of pressure, in quarters of a memtable.
const SOFT_QUARTERS: u64 = 5;
/// Full pressure, in quarters of a memtable: one full memtable, and a frozen one of which nothing
/// is flushed.
const HARD_QUARTERS: u64 = 8;

/// Lowest rate of flushing that the delay assumes, bytes a second. It is used until a rate was
/// measured, and while a disk stalls.
const FLUSH_RATE_MIN: u64 = 1 << 20;

/// Longest delay of one acknowledgement, ns. A client that waits this long should limit itself.
const DELAY_MAX_NS: u64 = SECOND_NS;

/// Returns the pressure in millionths, with `held_bytes` written and not flushed yet.
#[must_use]
pub fn pressure_ppm(held_bytes: u64, memtable_bytes: u64) -> u32 {
    let quarter = (memtable_bytes / 4).max(1);
    let over = held_bytes.saturating_sub(SOFT_QUARTERS.saturating_mul(quarter));
    let range = (HARD_QUARTERS - SOFT_QUARTERS).saturating_mul(quarter);
    scale(over, PPM, range).min(PPM) as u32
}

/// Clocks that delay acknowledgements, for each shard: one for each group `G` of writers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Throttle<G> {
    /// The groups that wait, and some whose wait is over.
    clocks: Vec<WriterClock<G>>,
}

impl<G> Default for Throttle<G> {
    fn default() -> Throttle<G> {
        Throttle { clocks: Vec::new() }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct WriterClock<G> {
    group: G,
    shares: u32,
    paid_until_ns: u64,
}

/// State of the memory that writes fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// Pressure, millionths.
    pub ppm: u32,
    /// Current rate of the flush, bytes a second.
    pub flush_rate: u64,
}

impl<G: Copy + PartialEq> Throttle<G> {
    /// Counts a write of `bytes` by a group with `shares`.
    pub fn write(&mut self, now_ns: u64, group: G, shares: u32, bytes: u64, pressure: Pressure) {
        if pressure.ppm == 0 {
            return;
        }
        self.clocks.retain(|clock| clock.group == group || clock.paid_until_ns > now_ns);
        let at = self.clocks.iter().position(|clock| clock.group == group).unwrap_or_else(|| {
            self.clocks.push(WriterClock { group, shares, paid_until_ns: 0 });
            self.clocks.len() - 1
        });
        self.clocks[at].shares = shares.max(1);
        let of_all: u64 = self.clocks.iter().map(|clock| u64::from(clock.shares)).sum();
        let ppm = u64::from(pressure.ppm).min(PPM);
        let rate = scale(pressure.flush_rate.max(FLUSH_RATE_MIN), PPM - ppm, ppm);
        let own_rate = scale(rate, u64::from(shares.max(1)), of_all);
        let cost_ns = scale(bytes, SECOND_NS, own_rate).min(DELAY_MAX_NS);
        let latest = now_ns.saturating_add(DELAY_MAX_NS);
        let paid_until_ns = &mut self.clocks[at].paid_until_ns;
        *paid_until_ns = (*paid_until_ns).max(now_ns).saturating_add(cost_ns).min(latest);
    }

    /// Returns the delay of an acknowledgement to the group that could be sent now, ns; at most a
    /// second.
    #[must_use]
    pub fn delay_ns(&self, now_ns: u64, group: G) -> u64 {
        let clock = self.clocks.iter().find(|clock| clock.group == group);
        clock.map_or(0, |clock| clock.paid_until_ns.saturating_sub(now_ns).min(DELAY_MAX_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMTABLE: u64 = 64 * MIB;

    #[test]
    fn pressure_rises_from_one_and_a_quarter_memtables_to_two() {
        let at = |quarters: u64| pressure_ppm(quarters * MEMTABLE / 4, MEMTABLE);
        assert_eq!([4, 5, 6, 7, 8, 100].map(at), [0, 0, 333_333, 666_666, 1_000_000, 1_000_000]);
        assert_eq!((pressure_ppm(0, 0), pressure_ppm(u64::MAX, u64::MAX)), (0, 0));
    }

    /// Writers of a group, each with one write in flight, and a pause after each.
    struct Writers {
        count: usize,
        shares: u32,
        pause_ns: u64,
    }

    /// The result of writers, once settled.
    #[derive(Clone, Copy, Default, Debug)]
    struct Settled {
        /// MiB a second.
        rate: u64,
        longest_delay_ns: u64,
    }

    const FLUSH_RATE: u64 = 50 * MIB;

    /// Runs groups of writers of 4 KiB alongside a flush slower than they want. Returns the result
    /// of each group, and the least and highest pressure.
    fn run(groups: &[Writers]) -> (Vec<Settled>, u32, u32) {
        const BYTES: u64 = 4096;
        const STEP_NS: u64 = 100_000;
        let mut throttle = Throttle::default();
        let mut held = MEMTABLE;
        let mut deadlines_ns: Vec<Vec<u64>> = groups.iter().map(|group| vec![0; group.count]).collect();
        let mut settled = vec![Settled::default(); groups.len()];
        let (mut least, mut most) = (u32::MAX, 0);
        for now_ns in (0..40 * SECOND_NS).step_by(STEP_NS as usize) {
            let ppm = pressure_ppm(held, MEMTABLE);
            for (at, group) in groups.iter().enumerate() {
                for deadline_ns in deadlines_ns[at].iter_mut().filter(|deadline_ns| **deadline_ns <= now_ns) {
                    let pressure = Pressure { ppm, flush_rate: FLUSH_RATE };
                    throttle.write(now_ns, at, group.shares, BYTES, pressure);
                    held += BYTES;
                    let delay_ns = throttle.delay_ns(now_ns, at);
                    *deadline_ns = now_ns + 100_000 + group.pause_ns + delay_ns;
                    if now_ns >= 20 * SECOND_NS {
                        settled[at].rate += BYTES;
                        settled[at].longest_delay_ns = settled[at].longest_delay_ns.max(delay_ns);
                        (least, most) = (least.min(ppm), most.max(ppm));
                    }
                }
            }
            held = held.saturating_sub(scale(FLUSH_RATE, STEP_NS, SECOND_NS));
        }
        settled.iter_mut().for_each(|settled| settled.rate /= 20 * MIB);
        (settled, least, most)
    }

    #[test]
    fn any_number_of_writers_settles_at_the_flush_rate() {
        for count in [4, 64, 1000] {
            let (settled, least, most) = run(&[Writers { count, shares: 100, pause_ns: 0 }]);
            assert!((49..=51).contains(&settled[0].rate), "{count} writers: {settled:?}");
            assert!(least > 450_000 && most < 550_000, "{count} writers: pressure {least} to {most}");
        }
    }

    /// Writers that pour are those that wait. A neighbour that writes less than its part does not.
    #[test]
    fn group_below_its_part_does_not_wait_for_one_that_pours() {
        let pouring = || Writers { count: 1000, shares: 100, pause_ns: 0 };
        let (settled, ..) = run(&[pouring(), Writers { count: 8, shares: 100, pause_ns: 5_000_000 }]);
        assert!(settled[1].longest_delay_ns < 1_000_000, "{settled:?}");
        let sum = settled[0].rate + settled[1].rate;
        assert!((48..=51).contains(&sum) && settled[1].rate >= 5, "{settled:?}");
        assert!(settled[0].longest_delay_ns > 50_000_000, "{settled:?}");
    }

    #[test]
    fn groups_that_pour_get_the_flush_by_their_shares() {
        let pouring = |shares| Writers { count: 200, shares, pause_ns: 0 };
        let (settled, ..) = run(&[pouring(300), pouring(100)]);
        assert!((36..=38).contains(&settled[0].rate), "{settled:?}");
        assert!((12..=13).contains(&settled[1].rate), "{settled:?}");
    }

    #[test]
    fn delays_grow_smoothly_up_to_the_longest() {
        let delay = |ppm| {
            let mut throttle = Throttle::default();
            throttle.write(7, (), 1, 1000, Pressure { ppm, flush_rate: FLUSH_RATE });
            throttle.delay_ns(7, ())
        };
        assert_eq!(delay(0), 0);
        let delays: Vec<u64> = (0..=1000).map(|p| delay(p * 1000)).collect();
        assert!(delays.is_sorted());
        // Up to nine tenths of full pressure, a thousandth more pressure adds at most a fifth of
        // the time that flushing the write takes.
        let flush_ns = scale(1000, SECOND_NS, FLUSH_RATE);
        assert!(delays[..900].windows(2).all(|pair| pair[1] - pair[0] <= flush_ns / 5));
        assert_eq!(delays[1000], DELAY_MAX_NS);
        let mut throttle = Throttle::default();
        let most = Pressure { ppm: u32::MAX, flush_rate: 0 };
        (0..1000).for_each(|_| throttle.write(7, (), u32::MAX, u64::MAX, most));
        assert_eq!(throttle.delay_ns(7, ()), DELAY_MAX_NS);
    }
}
