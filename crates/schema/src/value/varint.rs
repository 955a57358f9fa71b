//! Integers of any size, in two's complement. A serialized decimal contains one too.

use std::cmp::Ordering;

/// Most bytes of the integer in a `varint` or `decimal`. Conversion to digits takes time quadratic
/// in the length. 1024 bytes, about 2,466 digits, take only microseconds.
pub const NUMBER_BYTES_MAX: usize = 1024;

/// Returns a two's-complement integer without redundant leading bytes. At least one byte remains if
/// there was one.
pub(super) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [first, second, ..] = bytes {
        let is_redundant = (*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80);
        if !is_redundant {
            break;
        }
        bytes = &bytes[1..];
    }
    bytes
}

/// Compares two integers by number.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let a = trimmed(a);
    let b = trimmed(b);
    let negative = |bytes: &[u8]| bytes.first().is_some_and(|&byte| byte >= 0x80);
    match (negative(a), negative(b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, true) => b.len().cmp(&a.len()).then_with(|| a.cmp(b)),
    }
}
