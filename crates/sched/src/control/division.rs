//! Conversion of weights to shares. The tree has two nodes under its root, `users` and `system`.
//! Flush and compaction are children of `system`, like the log and other work of the server.
//! Shares end at 1000.
//!
//! ```text
//!                    root
//!           ┌─────────┴─────────┐
//!      users 1000      system = flush + compaction, 200 at least     above 1000: users sink instead
//!                     ┌────┬────┴────┬───────────┐
//!                   log  control   flush : compaction, as their weights
//! ```
//!
//! `system` does not sink below 200, because every write waits for the log, unless a lower quota is
//! configured. A quota is made of shares, so it binds on a saturated core only. Flushes exceed it
//! when memory runs out, because otherwise no client could write.

use super::{PPM, USERS_WEIGHT, scale};
use crate::{SHARES_MAX, SHARES_MIN};

/// Weight of `system` with no background work.
const SYSTEM_WEIGHT_MIN: u64 = 200;

/// Shares of the four groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    /// Shares of the node `users`.
    pub users: u32,
    /// Shares of the node `system`.
    pub system: u32,
    /// Shares of the flush group within `system`.
    pub flush: u32,
    /// Shares of the compaction group within `system`.
    pub compaction: u32,
}

/// Divides by weights. `quota_ppm` is the most of a saturated core that background work may have,
/// in millionths. With `urgent` the flush may exceed it.
#[must_use]
pub fn divide(flush: u64, compaction: u64, urgent: bool, quota_ppm: u32) -> Division {
    let quota_ppm = u64::from(quota_ppm).clamp(1, PPM - 1);
    let most = scale(USERS_WEIGHT, quota_ppm, PPM - quota_ppm).max(1);
    let most = if urgent { most.max(flush) } else { most };
    let system = (flush.saturating_add(compaction)).max(SYSTEM_WEIGHT_MIN).min(most);
    let (users, system) = match system {
        0..=USERS_WEIGHT => (USERS_WEIGHT, system),
        more => (scale(USERS_WEIGHT, USERS_WEIGHT, more), USERS_WEIGHT),
    };
    let larger = flush.max(compaction).max(1);
    let child = |weight: u64| scale(weight, u64::from(SHARES_MAX), larger);
    let shares = |share: u64| share.clamp(u64::from(SHARES_MIN), u64::from(SHARES_MAX)) as u32;
    Division {
        users: shares(users),
        system: shares(system),
        flush: shares(child(flush)),
        compaction: shares(child(compaction)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(weights: [u64; 2], urgent: bool, quota_percent: u32, expected: [u32; 4]) {
        let d = divide(weights[0], weights[1], urgent, quota_percent * 10_000);
        assert_eq!(
            [d.users, d.system, d.flush, d.compaction],
            expected,
            "{weights:?} {urgent} {quota_percent} %"
        );
    }

    #[test]
    fn weights_become_shares() {
        check([200, 50], false, 50, [1000, 250, 1000, 250]);
        check([20, 50], false, 50, [1000, 200, 400, 1000]);
        check([20, 50], false, 10, [1000, 111, 400, 1000]);
        check([800, 1000], false, 50, [1000, 1000, 800, 1000]);
    }

    #[test]
    fn urgent_flush_exceeds_the_quota() {
        check([9000, 50], true, 10, [111, 1000, 1000, 5]);
        check([9000, 50], false, 10, [1000, 111, 1000, 5]);
        check([0, 0], true, 0, [1000, 1, 1, 1]);
        check([u64::MAX, u64::MAX], false, 100, [1, 1000, 1000, 1000]);
    }

    #[test]
    fn quota_bounds_background_work_on_a_saturated_core() {
        for percent in 1..=90 {
            let d = divide(9000, 1000, false, percent * 10_000);
            let part = f64::from(d.system) / f64::from(d.system + d.users);
            assert!((part - f64::from(percent) / 100.0).abs() < 0.005, "{percent} %: {part}");
        }
    }
}
