//! A Bloom filter over partitions: ten bits and seven probes for each key, 0.8 % false positives.
//!
//! Tokens are already Murmur3 hashes of the keys, so the filter hashes tokens with one more mixing
//! step. Probes use double hashing (Kirsch and Mitzenmacher).

use bytes::Bytes;

const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 7; // ln 2 × 10 bits

/// The splitmix64 finaliser.
fn mix(token: i64) -> u64 {
    let mut x = (token as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn probes(token: i64, bits: u64) -> impl Iterator<Item = usize> {
    let hash = mix(token);
    let step = (hash >> 32) | 1;
    (0..PROBES).map(move |i| (hash.wrapping_add(step.wrapping_mul(i)) % bits) as usize)
}

/// Builds the filter of these tokens.
pub(crate) fn build(tokens: &[i64]) -> Vec<u8> {
    let mut bytes = vec![0u8; (tokens.len() * BITS_PER_KEY).div_ceil(8).max(8)];
    let bits = bytes.len() as u64 * 8;
    for token in tokens {
        probes(*token, bits).for_each(|bit| bytes[bit / 8] |= 1 << (bit % 8));
    }
    bytes
}

/// Returns false only if no key with this token was added.
#[inline]
pub(crate) fn may_contain(filter: &Bytes, token: i64) -> bool {
    let bits = filter.len() as u64 * 8;
    bits == 0 || probes(token, bits).all(|bit| filter[bit / 8] & (1 << (bit % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_false_negatives_and_few_false_positives() {
        let tokens: Vec<i64> = (0..10_000).map(|i: i64| i.wrapping_mul(0x5851_f42d_4c95_7f2d)).collect();
        let filter = Bytes::from(build(&tokens));
        assert!(tokens.iter().all(|token| may_contain(&filter, *token)));
        let wrong = tokens.iter().filter(|token| may_contain(&filter, token.wrapping_add(1))).count();
        assert!(wrong < 150, "{wrong} of 10,000, expected about 82");
    }
}
