//! When what failed is tried again: after a second, then after twice as long each time, up to about a minute. A disk that failed once
//! often fails a moment later, and what is tried forever must not be tried often.

use std::time::Duration;

/// Before the first new attempt.
const FIRST: Duration = Duration::from_secs(1);
/// 1 s × 2⁶ is 64 s.
const DOUBLINGS_MAX: u32 = 6;

/// How long to wait after so many failures in a row, one at least.
pub(crate) fn backoff(failures: u32) -> Duration {
    FIRST * (1 << failures.saturating_sub(1).min(DOUBLINGS_MAX))
}

/// A merge of a table that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) in_a_row: u32,
    /// It is too early to try again.
    pub(crate) waits: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_about_a_minute() {
        let waits = [1, 2, 3, 6, 7, 8, u32::MAX].map(|failures| backoff(failures).as_secs());
        assert_eq!(waits, [1, 2, 4, 32, 64, 64, 64]);
    }
}
