//! Writes are slowed as memory for memtables runs out: a little each, growing smoothly, never
//! refused.
//!
//! *Pressure* is how far memory has run out: what is held is the active memtable and what of frozen
//! ones is not flushed yet, which in a flush that keeps its pace is always about one memtable, one
//! filling as the other drains.
//!
//! ```text
//!   held    1         1¼ memtables                       2
//!   ────────┼──────────┼────────────────────────────────┼───▶        r(p) = flush rate × (1 − p) ÷ p
//!   pressure           0                                1
//!   admitted        all of it     flush rate at ½      nothing
//! ```
//!
//! Acknowledgements flow at `r(p)`, counted in bytes over all writers by the one clock of
//! [`crate::gcra`]: so it does not matter how many there are, or how many writes each has in
//! flight. Wherever writers want more than is flushed, pressure rises until `r(p)` is what is
//! flushed, and stays: a loop of first order, with no cliff to fall off.

use super::{PPM, SECOND_NS, scale};

/// Pressure begins at this many quarters of a memtable.
const SOFT_QUARTERS: u64 = 5;
/// And is full at this many: with one memtable frozen and nothing flushed of it, and a full one.
const HARD_QUARTERS: u64 = 8;

/// The least rate of flushing that is believed, bytes a second: until one was measured, and beside
/// a disk that stalls.
const FLUSH_RATE_MIN: u64 = 1 << 20;

/// The longest delay of one acknowledgement, ns: a client that waits this long is better off with
/// its own limits.
const DELAY_MAX_NS: u64 = SECOND_NS;

/// How far memory has run out, in millionths, with so many bytes written and not flushed yet.
#[must_use]
pub fn pressure_ppm(held_bytes: u64, memtable_bytes: u64) -> u32 {
    let quarter = (memtable_bytes / 4).max(1);
    let over = held_bytes.saturating_sub(SOFT_QUARTERS.saturating_mul(quarter));
    let room = (HARD_QUARTERS - SOFT_QUARTERS).saturating_mul(quarter);
    scale(over, PPM, room).min(PPM) as u32
}

/// The clock that acknowledgements wait for. One for each shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Throttle {
    paid_until_ns: u64,
}

impl Throttle {
    /// Counts a write. `flush_rate` is what is being flushed, bytes a second.
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

    /// How long an acknowledgement that could go now is to wait, ns; a second at most.
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
    fn pressure_rises_from_a_memtable_and_a_quarter_to_two() {
        let at = |quarters: u64| pressure_ppm(quarters * MEMTABLE / 4, MEMTABLE);
        assert_eq!([4, 5, 6, 7, 8, 100].map(at), [0, 0, 333_333, 666_666, 1_000_000, 1_000_000]);
        assert_eq!((pressure_ppm(0, 0), pressure_ppm(u64::MAX, u64::MAX)), (0, 0));
    }

    /// Writers, each with one write in flight, beside a flush that does less than they want: what
    /// they get in MiB a second, and between which pressures it went, once settled.
    fn run(writers: usize, write_bytes: u64, flush_rate: u64) -> (u64, u32, u32) {
        let mut throttle = Throttle::default();
        let mut held = MEMTABLE;
        let mut due_ns = vec![0_u64; writers];
        let (mut written, mut least, mut most) = (0, u32::MAX, 0);
        const STEP_NS: u64 = 100_000;
        for now_ns in (0..40 * SECOND_NS).step_by(STEP_NS as usize) {
            let pressure = pressure_ppm(held, MEMTABLE);
            for due in due_ns.iter_mut().filter(|due| **due <= now_ns) {
                throttle.write(now_ns, write_bytes, pressure, flush_rate);
                held += write_bytes;
                *due = now_ns + 100_000 + throttle.delay_ns(now_ns);
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
    fn writers_settle_at_the_rate_of_the_flush_however_many_they_are() {
        for writers in [4, 64, 1000] {
            let (rate, least, most) = run(writers, 4096, 50 * MIB);
            assert!((49..=51).contains(&rate), "{writers} writers: {rate} MiB/s");
            assert!(least > 450_000 && most < 550_000, "{writers} writers: pressure {least} to {most}");
        }
    }

    #[test]
    fn delays_grow_smoothly_and_end_somewhere() {
        let delay = |pressure| {
            let mut throttle = Throttle::default();
            throttle.write(7, 1000, pressure, 50 * MIB);
            throttle.delay_ns(7)
        };
        assert_eq!(delay(0), 0);
        let delays: Vec<u64> = (0..=1000).map(|p| delay(p * 1000)).collect();
        assert!(delays.is_sorted());
        // Up to nine tenths of the way, a thousandth more pressure never adds more than a thirtieth
        // of what the flush takes.
        let a_flush_takes = scale(1000, SECOND_NS, 50 * MIB);
        assert!(delays[..900].windows(2).all(|pair| pair[1] - pair[0] <= a_flush_takes / 5));
        assert_eq!(delays[1000], DELAY_MAX_NS);
        let mut throttle = Throttle::default();
        (0..1000).for_each(|_| throttle.write(7, u64::MAX, u32::MAX, 0));
        assert_eq!(throttle.delay_ns(7), DELAY_MAX_NS);
    }
}
