//! Pacer of work that has a rate limit. The worker reports its bytes, and asks between chunks how
//! long to sleep until they are paid for in time.

use super::{SECOND_NS, UNLIMITED, scale};

/// Shortest sleep, ns. Less lag than this is not worth a sleep.
const SLEEP_NS_MIN: u64 = 1_000_000;
/// Longest sleep without asking again, ns. A raised rate takes effect within it.
const SLEEP_NS_MAX: u64 = 20_000_000;

/// Lateness of a timer that costs no throughput, ns.
const LATENESS_NS: u64 = 4_000_000;

/// Pacer of one job with a rate limit, such as a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pacer {
    lag_bytes: u64,
    paid_at_ns: u64,
}

impl Pacer {
    /// Creates a pacer without lag.
    #[must_use]
    pub fn new(now_ns: u64) -> Pacer {
        Pacer { lag_bytes: 0, paid_at_ns: now_ns }
    }

    /// Counts bytes of finished work.
    pub fn worked(&mut self, bytes: u64) {
        self.lag_bytes = self.lag_bytes.saturating_add(bytes);
    }

    /// Returns the time to sleep before asking again, ns, at `rate` bytes a second. `None`: go on.
    /// A rate of 0 never lets the job go on. [`UNLIMITED`] always does, and clears the lag.
    pub fn sleep_ns(&mut self, now_ns: u64, rate: u64) -> Option<u64> {
        if rate == 0 {
            self.paid_at_ns = now_ns;
            return Some(SLEEP_NS_MAX);
        }
        let paid = scale(now_ns.saturating_sub(self.paid_at_ns), rate, SECOND_NS);
        if rate == UNLIMITED {
            *self = Pacer::new(now_ns);
            return None;
        }
        if paid >= self.lag_bytes {
            // Unused time is saved only as far as it makes up for a late timer.
            let paid_until_ns = self.paid_at_ns.saturating_add(scale(self.lag_bytes, SECOND_NS, rate));
            *self = Pacer::new(paid_until_ns.max(now_ns.saturating_sub(LATENESS_NS)));
            return None;
        }
        if paid > 0 {
            self.lag_bytes -= paid;
            self.paid_at_ns = now_ns;
        }
        let sleep_ns = scale(self.lag_bytes, SECOND_NS, rate);
        (sleep_ns >= SLEEP_NS_MIN).then_some(sleep_ns.min(SLEEP_NS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Runs chunks of 64 KiB that take `work_ns` each, at a rate. Returns the MiB done in ten
    /// seconds.
    fn run(work_ns: u64, rate: u64) -> u64 {
        let mut pacer = Pacer::new(5);
        let mut now_ns = 5;
        let mut done = 0;
        while now_ns < 10 * SECOND_NS {
            now_ns += work_ns;
            done += 64 << 10;
            pacer.worked(64 << 10);
            while let Some(sleep_ns) = pacer.sleep_ns(now_ns, rate) {
                assert!(sleep_ns <= SLEEP_NS_MAX);
                now_ns += sleep_ns + 700_000; // timers are late
            }
        }
        done / MIB
    }

    #[test]
    fn rate_holds_with_slow_work_and_late_timers() {
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
    fn paused_job_resumes_at_an_unlimited_rate() {
        let mut pacer = Pacer::new(0);
        pacer.worked(1);
        assert_eq!(pacer.sleep_ns(SECOND_NS, 0), Some(SLEEP_NS_MAX));
        assert_eq!(pacer.sleep_ns(2 * SECOND_NS, 0), Some(SLEEP_NS_MAX));
        assert_eq!(pacer.sleep_ns(2 * SECOND_NS, UNLIMITED), None);
    }
}
