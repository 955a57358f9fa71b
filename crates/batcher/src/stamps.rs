//! Stamps: strictly increasing numbers for writes, near the wall clock.

/// Returns the wall clock, µs since 1970. Applications and simulations choose it.
pub type Clock = fn() -> u64;

/// Returns the system's wall clock.
#[expect(clippy::disallowed_methods, reason = "a client library runs in other programs, on no lane")]
pub(crate) fn system_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// Source of stamps.
#[derive(Debug)]
pub(crate) struct Stamps {
    clock: Clock,
    last: u64,
}

impl Stamps {
    pub(crate) fn new(clock: Clock) -> Stamps {
        Stamps { clock, last: 0 }
    }

    /// Returns a stamp larger than `seen` and all earlier ones, at least the wall clock.
    pub(crate) fn next(&mut self, seen: u64) -> u64 {
        self.last = (self.clock)().max(self.last.max(seen).saturating_add(1));
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_increase_while_the_clock_stands_still() {
        let mut stamps = Stamps::new(|| 10);
        assert_eq!([stamps.next(0), stamps.next(0), stamps.next(50), stamps.next(0)], [10, 11, 51, 52]);
    }
}
