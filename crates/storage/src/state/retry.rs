//! Delays before retries: a second, doubling up to about a minute. A disk that failed once often
//! fails again at once, and endless retries must be rare.

use std::time::Duration;

/// The delay before the first retry.
const FIRST: Duration = Duration::from_secs(1);
/// 1 s × 2⁶ is 64 s.
const DOUBLINGS_MAX: u32 = 6;

/// Returns the delay after this number of failures in a row, at least one.
pub(crate) fn backoff(failures: u32) -> Duration {
    FIRST * (1 << failures.saturating_sub(1).min(DOUBLINGS_MAX))
}

/// Failed compactions of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) in_a_row: u32,
    /// True until the delay is over.
    pub(crate) waits: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_64_seconds() {
        let waits = [1, 2, 3, 6, 7, 8, u32::MAX].map(|failures| backoff(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 64, 64, 64]);
    }
}
