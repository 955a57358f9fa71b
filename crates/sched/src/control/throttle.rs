//! Delay of writes as memory for memtables runs out. The delay of each write grows smoothly, and no
//! write is rejected.
//!
//! *Pressure* is how far memory has run out. The memory held is the active memtable and the part of
//! frozen ones that is not flushed yet. Beside a flush that keeps its pace this is always about one
//! memtable: one fills as the other drains.
//!
//! ```text
//!   held    1         1¼ memtables                       2
//!   ────────┼──────────┼────────────────────────────────┼───▶        r(p) = flush rate × (1 − p) ÷ p
//!   pressure           0                                1
//!   admitted        all of it     flush rate at ½      nothing
//! ```
//!
//! Acknowledgements flow at `r(p)`, counted in bytes over all writers by the one clock of
//! [`crate::gcra`]. So the number of writers, and of writes that each has in flight, does not
//! matter. If writers want more than is flushed, pressure rises until `r(p)` equals the rate of the
//! flush, and stays. The loop is of first order, without a step to nothing.

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

/// Clock that delays acknowledgements, one for each shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Throttle {
    paid_until_ns: u64,
}

impl Throttle {
    /// Counts a write of `bytes`. `flush_rate` is the current rate of the flush, bytes a second.
    pub fn write(&mut self, now_ns: u64, bytes: u64, pressure_ppm: u32, flush_rate: u64) {
        if pressure_ppm == 0 {
            return;
        }
        let pressure = u64::from(pressure_ppm).min(PPM);
        let rate = scale(flush_rate.max(FLUSH_RATE_MIN), PPM - pressure, pressure);
        let cost_ns = scale(bytes, SECOND_NS, rate).min(DELAY_MAX_NS);
        let latest = now_ns.saturating_add(DELAY_MAX_NS);
        self.paid_until_ns = self.paid_until_ns.max(now_ns).saturating_add(cost_ns).min(latest);
    }

    /// Returns the delay of an acknowledgement that could be sent now, ns; at most a second.
    #[must_use]
    pub fn delay_ns(&self, now_ns: u64) -> u64 {
        self.paid_until_ns.saturating_sub(now_ns).min(DELAY_MAX_NS)
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

    /// Runs writers, each with one write in flight, beside a flush slower than they want. Returns
    /// their rate in MiB a second and the least and highest pressure, once settled.
    fn run(writers: usize, write_bytes: u64, flush_rate: u64) -> (u64, u32, u32) {
        let mut throttle = Throttle::default();
        let mut held = MEMTABLE;
        let mut deadlines_ns = vec![0_u64; writers];
        let (mut written, mut least, mut most) = (0, u32::MAX, 0);
        const STEP_NS: u64 = 100_000;
        for now_ns in (0..40 * SECOND_NS).step_by(STEP_NS as usize) {
            let pressure = pressure_ppm(held, MEMTABLE);
            for deadline_ns in deadlines_ns.iter_mut().filter(|deadline_ns| **deadline_ns <= now_ns) {
                throttle.write(now_ns, write_bytes, pressure, flush_rate);
                held += write_bytes;
                *deadline_ns = now_ns + 100_000 + throttle.delay_ns(now_ns);
                if now_ns >= 20 * SECOND_NS {
                    written += write_bytes;
                    (least, most) = (least.min(pressure), most.max(pressure));
                }
            }
            held = held.saturating_sub(scale(flush_rate, STEP_NS, SECOND_NS));
        }
        (written / 20 / MIB, least, most)
    }

    #[test]
    fn any_number_of_writers_settles_at_the_flush_rate() {
        for writers in [4, 64, 1000] {
            let (rate, least, most) = run(writers, 4096, 50 * MIB);
            assert!((49..=51).contains(&rate), "{writers} writers: {rate} MiB/s");
            assert!(least > 450_000 && most < 550_000, "{writers} writers: pressure {least} to {most}");
        }
    }

    #[test]
    fn delays_grow_smoothly_up_to_the_longest() {
        let delay = |pressure| {
            let mut throttle = Throttle::default();
            throttle.write(7, 1000, pressure, 50 * MIB);
            throttle.delay_ns(7)
        };
        assert_eq!(delay(0), 0);
        let delays: Vec<u64> = (0..=1000).map(|p| delay(p * 1000)).collect();
        assert!(delays.is_sorted());
        // Up to nine tenths of full pressure, a thousandth more pressure adds at most a fifth of
        // the time that flushing the write takes.
        let flush_ns = scale(1000, SECOND_NS, 50 * MIB);
        assert!(delays[..900].windows(2).all(|pair| pair[1] - pair[0] <= flush_ns / 5));
        assert_eq!(delays[1000], DELAY_MAX_NS);
        let mut throttle = Throttle::default();
        (0..1000).for_each(|_| throttle.write(7, u64::MAX, u32::MAX, 0));
        assert_eq!(throttle.delay_ns(7), DELAY_MAX_NS);
    }
}
