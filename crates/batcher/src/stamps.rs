//! Clocks, and stamps: strictly increasing numbers for writes, near the wall clock.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clocks of a batcher. Simulations replace them.
#[derive(Clone, Copy, Debug)]
pub struct BatcherClock {
    /// Returns the wall clock, µs since 1970. Stamps follow it.
    pub wall_us: fn() -> u64,
    /// Returns µs since any fixed moment. Response times are measured with it.
    pub steady_us: fn() -> u64,
}

impl BatcherClock {
    /// The clocks of the operating system.
    #[expect(clippy::disallowed_methods, reason = "a client library runs in other programs, on no lane")]
    pub const SYSTEM: BatcherClock = BatcherClock {
        wall_us: || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
        },
        steady_us: || {
            static START: OnceLock<Instant> = OnceLock::new();
            let elapsed = START.get_or_init(Instant::now).elapsed();
            u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
        },
    };
}

/// Source of stamps.
#[derive(Debug)]
pub(crate) struct Stamps {
    wall_us: fn() -> u64,
    last: u64,
}

impl Stamps {
    pub(crate) fn new(clock: BatcherClock) -> Stamps {
        Stamps { wall_us: clock.wall_us, last: 0 }
    }

    /// Returns a stamp larger than `seen` and all earlier ones, at least the wall clock.
    pub(crate) fn next(&mut self, seen: u64) -> u64 {
        self.last = (self.wall_us)().max(self.last.max(seen).saturating_add(1));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_increase_while_the_clock_stands_still() {
        let mut stamps = Stamps::new(BatcherClock { wall_us: || 10, ..BatcherClock::SYSTEM });
        assert_eq!([stamps.next(0), stamps.next(0), stamps.next(50), stamps.next(0)], [10, 11, 51, 52]);
    }
}
