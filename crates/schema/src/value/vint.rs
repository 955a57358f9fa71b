//! Integers of variable length, as Cassandra writes them: 1 to 9 bytes. The leading ones of the
//! first byte are the number of further bytes.

/// Appends an unsigned integer in its shortest form.
pub(super) fn push_unsigned_vint(value: u64, out: &mut Vec<u8>) {
    let bits = 64 - (value | 1).leading_zeros();
    // Each byte has 7 bits for the value, because one is used for the length. Nine bytes hold all
    // 64.
    let others = if bits > 56 { 8 } else { (bits - 1) / 7 };
    let bytes = u128::from(value).to_be_bytes();
    let start = out.len();
    out.extend_from_slice(&bytes[15 - others as usize..]);
    out[start] |= !(0xff_u32 >> others) as u8;
}

/// Removes an unsigned integer from the front of the input. `None`: bytes are missing.
pub(super) fn take_unsigned_vint(input: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = input.split_first()?;
    let others = first.leading_ones() as usize;
    let (bytes, rest) = rest.split_at_checked(others)?;
    let top = u64::from(first) & (0xff_u64 >> others);
    let value = bytes.iter().fold(top, |value, &byte| (value << 8) | u64::from(byte));
    *input = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_in_their_shortest_form() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1] {
                let mut out = Vec::new();
                push_unsigned_vint(value, &mut out);
                assert_eq!(
                    out.len(),
                    (64 - (value | 1).leading_zeros() as usize).div_ceil(7).min(9),
                    "{value}"
                );
                let mut input = out.as_slice();
                assert_eq!(take_unsigned_vint(&mut input), Some(value));
                assert!(input.is_empty());
                assert_eq!(take_unsigned_vint(&mut &out[..out.len() - 1]), None);
            }
        }
    }
}
