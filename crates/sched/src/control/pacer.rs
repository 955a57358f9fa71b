//! Work kept to a rate: what was done is paid for in time, and whoever does it asks between pieces
//! how much is still owed.

use super::{SECOND_NS, UNLIMITED, scale};

/// Owed time under this is not worth a sleep, ns.
const WORTH_A_SLEEP_NS: u64 = 1_000_000;
/// The longest sleep without asking again, ns: a rate that was raised meanwhile takes effect within
/// it.
const SLEEP_MAX_NS: u64 = 20_000_000;

/// How late a timer may be at no loss, ns.
const LATENESS_NS: u64 = 4_000_000;

/// One piece of work that is kept to a rate, such as a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pacer {
    owed_bytes: u64,
    paid_at_ns: u64,
}

impl Pacer {
    /// A pacer that owes nothing.
    #[must_use]
    pub fn new(now_ns: u64) -> Pacer {
        Pacer { owed_bytes: 0, paid_at_ns: now_ns }
    }

    /// Counts what was done.
    pub fn worked(&mut self, bytes: u64) {
        self.owed_bytes = self.owed_bytes.saturating_add(bytes);
    }

    /// How long to sleep before asking again, at `rate` bytes a second; none to go on. With a rate
    /// of 0 never goes on; with [`UNLIMITED`] always does, and nothing is owed any more.
    pub fn owed_ns(&mut self, now_ns: u64, rate: u64) -> Option<u64> {
        if rate == 0 {
            self.paid_at_ns = now_ns;
            return Some(SLEEP_MAX_NS);
        }
        let paid = scale(now_ns.saturating_sub(self.paid_at_ns), rate, SECOND_NS);
        if rate == UNLIMITED {
            *self = Pacer::new(now_ns);
            return None;
        }
        if paid >= self.owed_bytes {
            // Of time that was not used no more is saved than makes up for a late timer.
            let paid_until_ns = self.paid_at_ns.saturating_add(scale(self.owed_bytes, SECOND_NS, rate));
            *self = Pacer::new(paid_until_ns.max(now_ns.saturating_sub(LATENESS_NS)));
            return None;
        }
        if paid > 0 {
            self.owed_bytes -= paid;
            self.paid_at_ns = now_ns;
        }
        let owed_ns = scale(self.owed_bytes, SECOND_NS, rate);
        (owed_ns >= WORTH_A_SLEEP_NS).then_some(owed_ns.min(SLEEP_MAX_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Pieces of 64 KiB that take `work_ns` each, at a rate: MiB done in ten seconds.
    fn run(work_ns: u64, rate: u64) -> u64 {
        let (mut pacer, mut now_ns, mut done) = (Pacer::new(5), 5, 0);
        while now_ns < 10 * SECOND_NS {
            now_ns += work_ns;
            done += 64 << 10;
            pacer.worked(64 << 10);
            while let Some(sleep_ns) = pacer.owed_ns(now_ns, rate) {
                assert!(sleep_ns <= SLEEP_MAX_NS);
                now_ns += sleep_ns + 700_000; // timers are late
            }
        }
        done / MIB
    }

    #[test]
    fn a_rate_is_kept_over_any_work_and_late_timers() {
        for rate_mib in [1, 20, 100] {
            let done = run(300_000, rate_mib * MIB);
            assert!(
                (rate_mib * 95 / 10..=rate_mib * 10 + 1).contains(&done),
                "{rate_mib} MiB/s: {done} MiB in 10 s"
            );
        }
        assert_eq!(run(300_000, UNLIMITED), 10_000_000 / 300 / 16, "nothing slows it down");
    }

    #[test]
    fn held_work_goes_on_when_let_go() {
        let mut pacer = Pacer::new(0);
        pacer.worked(1);
        assert_eq!(pacer.owed_ns(SECOND_NS, 0), Some(SLEEP_MAX_NS));
        assert_eq!(pacer.owed_ns(2 * SECOND_NS, 0), Some(SLEEP_MAX_NS));
        assert_eq!(pacer.owed_ns(2 * SECOND_NS, UNLIMITED), None);
    }
}
