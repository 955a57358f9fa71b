//! Decides whether a token range has tokens that several owners of a file all own.
//!
//! ```text
//!  ring     ┌ stripe ┬ stripe ┬ … ┬ stripe ┐     2^(ignored bits) stripes, all divided alike
//!  stripe   [ shard 0 ][ shard 1 ][ shard 2 ]   of a sharding over three
//! ```
//!
//! A shard owns an interval of each stripe, so the intersection of several owners is an interval
//! too.

use crate::manifest::Owner;

/// Returns the first and the last position that an owner has in every stripe. `None` if it has
/// none. Positions are fractions of 2^64, scaled down by the ignored bits.
fn part_of_stripe(owner: &Owner) -> Option<(u128, u128)> {
    let shards = u128::from(owner.sharding.shards.max(1));
    let edge =
        |shard: u32| (u128::from(shard) << 64).div_ceil(shards).div_ceil(1 << owner.sharding.ignore_msb);
    let (first, end) = (edge(owner.shard), edge(owner.shard + 1));
    (first < end).then(|| (first, end - 1))
}

impl Owner {
    /// Returns true if another owner also owns all tokens of this one.
    pub(crate) fn is_within(&self, outer: &Owner) -> bool {
        let ignored = self.sharding.ignore_msb;
        if ignored >= 64 || ignored != outer.sharding.ignore_msb {
            return false;
        }
        let Some((first, last)) = part_of_stripe(self) else { return true };
        part_of_stripe(outer).is_some_and(|(low, high)| low <= first && last <= high)
    }
}

/// Returns true if there is a token from `first` to `last` that all of these own.
pub(crate) fn may_own(owners: &[Owner], first: i64, last: i64) -> bool {
    let Some(one) = owners.first() else { return first <= last };
    let ignored = one.sharding.ignore_msb;
    if ignored >= 64 || owners.iter().any(|owner| owner.sharding.ignore_msb != ignored) {
        // No layout that was ever written has stripes of different lengths.
        return true;
    }
    let (mut low, mut high) = (0, u128::from(u64::MAX) >> ignored);
    for owner in owners {
        let Some((first, last)) = part_of_stripe(owner) else { return false };
        (low, high) = (low.max(first), high.min(last));
    }
    let stripe = 1_u128 << (64 - ignored);
    let place = |token: i64| u128::from((token as u64) ^ (1 << 63));
    let (first, last) = (place(first), place(last));
    if low > high || first > last {
        return false;
    }
    // The first owned position at or after `first` is in this stripe or in the next one.
    let here = first - first % stripe;
    let next = match first % stripe {
        at if at <= low => here + low,
        at if at <= high => first,
        _ => here + stripe + low,
    };
    next <= last && next <= u128::from(u64::MAX)
}

#[cfg(test)]
mod tests {
    use schema::Sharding;

    use super::*;
    use testkit::Random;

    fn owner(shards: u32, shard: u32) -> Owner {
        Owner { sharding: Sharding { shards, ignore_msb: 12 }, shard }
    }

    #[test]
    fn shards_of_2_and_16_overlap_by_their_tokens() {
        let all = |owners: &[Owner]| may_own(owners, i64::MIN, i64::MAX);
        for shard in 0..16 {
            assert_eq!(all(&[owner(2, 0), owner(16, shard)]), shard < 8);
            assert_eq!(all(&[owner(2, 1), owner(16, shard)]), shard >= 8);
        }
        assert!(all(&[owner(3, 1), owner(2, 0)]) && all(&[owner(3, 1), owner(2, 1)]));
        assert!(owner(4, 1).is_within(&owner(2, 0)) && !owner(4, 1).is_within(&owner(2, 1)));
        assert!(!owner(3, 1).is_within(&owner(2, 0)) && !owner(2, 0).is_within(&owner(4, 0)));
        assert!(!all(&[owner(3, 0), owner(2, 1)]) && !all(&[owner(2, 0), owner(2, 1)]));
    }

    #[test]
    fn ranges_agree_with_their_tokens() {
        let mut random = Random::new(3);
        for _ in 0..2000 {
            let owners: Vec<Owner> = (0..1 + random.below(3))
                .map(|_| {
                    let shards = 1 + random.below(7) as u32;
                    owner(shards, random.below(u64::from(shards)) as u32)
                })
                .collect();
            // A stripe has 2^52 tokens.
            let first = random.next_u64() as i64;
            let last = first.saturating_add((random.next_u64() >> (10 + random.below(8))) as i64);
            let step = (last.abs_diff(first) / 300).max(1);
            let tokens = (0..=300).map(|at| first.saturating_add_unsigned(at * step)).filter(|t| *t <= last);
            let found = tokens.into_iter().any(|token| owners.iter().all(|owner| owner.owns(token)));
            let may = may_own(&owners, first, last);
            assert!(may || !found, "{owners:?} own tokens from {first} to {last}");
            // A single owner has at least 1/100 of each stripe, so the samples hit it in a range of
            // 8 stripes.
            let width = last.abs_diff(first) >> 52;
            assert!(!may || found || width < 8 || owners.len() > 1, "{owners:?} {first} {last}");
        }
        assert!(may_own(&[owner(2, 1)], i64::MIN + (1 << 51), i64::MIN + (1 << 51)));
        assert!(!may_own(&[owner(2, 1)], i64::MIN, i64::MIN + (1 << 51) - 1));
        assert!(!may_own(&[owner(2, 0)], i64::MIN + (1 << 51), i64::MIN + (1 << 52) - 1));
        assert!(may_own(&[owner(2, 0)], i64::MIN + (1 << 51), i64::MIN + (1 << 52)));
        assert!(!may_own(&[owner(2, 0)], i64::MAX, i64::MAX));
    }
}
