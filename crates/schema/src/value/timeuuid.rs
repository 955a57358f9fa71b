//! Version 1 uuids: an instant in ticks of 100 ns, then a clock sequence and a node that keep them apart.

/// Ticks from 1582-10-15, where version 1 uuids begin, to 1970-01-01.
const TICKS_TO_EPOCH: i64 = 0x01b2_1dd2_1381_4000;
/// A uuid has 60 bits of ticks.
const TICKS_MAX: i64 = (1 << 60) - 1;
const TICKS_PER_MS: i64 = 10_000;

/// The least and the most of the low half, in the order of `timeuuid`: its bytes compare as signed.
const LOW_MIN: u64 = 0x8080_8080_8080_8080;
const LOW_MAX: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// A fresh `timeuuid`: `unix_ticks` are 100 ns each since 1970, which the caller never uses twice with one
/// `clock_and_node` (its top two bits are overwritten). Instants that a uuid cannot hold are moved to the nearest.
pub fn timeuuid(unix_ticks: i64, clock_and_node: u64) -> [u8; 16] {
    compose(unix_ticks, clock_and_node & (u64::MAX >> 2) | (1 << 63))
}

/// The least `timeuuid` of a millisecond since 1970, as CQL's `minTimeuuid`.
pub fn min_timeuuid(unix_ms: i64) -> [u8; 16] {
    compose(unix_ms.saturating_mul(TICKS_PER_MS), LOW_MIN)
}

/// The greatest `timeuuid` of a millisecond since 1970, as CQL's `maxTimeuuid`.
pub fn max_timeuuid(unix_ms: i64) -> [u8; 16] {
    compose(unix_ms.saturating_mul(TICKS_PER_MS).saturating_add(TICKS_PER_MS - 1), LOW_MAX)
}

/// Milliseconds since 1970 of a version 1 uuid, rounded down; `None` for other bytes.
pub fn unix_ms_of_timeuuid(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let high = (u128::from_be_bytes(bytes) >> 64) as u64;
    if (high >> 12) & 0xf != 1 {
        return None;
    }
    let ticks = ((high & 0xfff) << 48) | ((high & 0xffff_0000) << 16) | (high >> 32);
    Some((ticks as i64 - TICKS_TO_EPOCH).div_euclid(TICKS_PER_MS))
}

fn compose(unix_ticks: i64, low: u64) -> [u8; 16] {
    let ticks = unix_ticks.saturating_add(TICKS_TO_EPOCH).clamp(0, TICKS_MAX) as u64;
    let high = (ticks << 32) | ((ticks >> 16) & 0xffff_0000) | 0x1000 | (ticks >> 48);
    ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
}
