//! UUIDs of version 1: a time in ticks of 100 ns, and a clock sequence and node that make it
//! unique.

/// Ticks from 1582-10-15, the epoch of version 1 UUIDs, to 1970-01-01.
const TICKS_TO_EPOCH: i64 = 0x01b2_1dd2_1381_4000;
/// Highest time in ticks: a UUID has 60 bits for it.
const TICKS_MAX: i64 = (1 << 60) - 1;
const TICKS_PER_MS: i64 = 10_000;

/// Lowest and highest low half in the order of `timeuuid`, which compares its bytes as signed.
const LOW_MIN: u64 = 0x8080_8080_8080_8080;
const LOW_MAX: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// Creates a `timeuuid`. `unix_ticks` are units of 100 ns since 1970. The caller uses each value
/// once per `clock_and_node`, whose top two bits are overwritten. Times that a UUID cannot
/// represent are clamped.
pub fn timeuuid(unix_ticks: i64, clock_and_node: u64) -> [u8; 16] {
    compose(unix_ticks, clock_and_node & (u64::MAX >> 2) | (1 << 63))
}

/// Returns the lowest `timeuuid` of a millisecond since 1970: `minTimeuuid` of CQL.
pub fn min_timeuuid(unix_ms: i64) -> [u8; 16] {
    compose(unix_ms.saturating_mul(TICKS_PER_MS), LOW_MIN)
}

/// Returns the highest `timeuuid` of a millisecond since 1970: `maxTimeuuid` of CQL.
pub fn max_timeuuid(unix_ms: i64) -> [u8; 16] {
    compose(unix_ms.saturating_mul(TICKS_PER_MS).saturating_add(TICKS_PER_MS - 1), LOW_MAX)
}

/// Returns the milliseconds since 1970 of a version 1 UUID, rounded down. `None`: other bytes.
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
