//! Tokens: Cassandra's Murmur3 hash of the partition key, and ScyllaDB's mapping of tokens to
//! shards. This module also serializes and splits partition keys, because a token is the hash of
//! exactly these bytes.

use std::fmt;

/// Token of a partition. No partition has `i64::MIN`: that hash is changed to `i64::MAX`, as in
/// Cassandra.
pub type Token = i64;

/// Most bytes of a component, and of a whole partition key. Cassandra writes both lengths as `u16`.
pub const PARTITION_KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Mapping of tokens to shards: "biased-token-round-robin" of ScyllaDB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    /// Number of shards, at least 1.
    pub shards: u32,
    /// Number of the token's most significant bits to ignore. A shard then owns many small ranges
    /// instead of one.
    pub ignore_msb: u32,
}

impl Sharding {
    /// Returns the shard that owns `token`, in `0..shards`.
    ///
    /// Maps the token to the unsigned range and shifts out the ignored bits. The rest, as a
    /// fraction of 2⁶⁴, is scaled to the number of shards.
    pub fn shard_of(self, token: Token) -> u32 {
        let biased = (token as u64) ^ (1 << 63);
        let fraction = biased.checked_shl(self.ignore_msb).unwrap_or(0);
        ((u128::from(fraction) * u128::from(self.shards)) >> 64) as u32
    }
}

/// Error in the bytes or components of a partition key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The key or a component has more than [`PARTITION_KEY_BYTES_MAX`] bytes. The field is its
    /// length.
    TooLong(usize),
    /// The bytes of a composite key do not contain the expected components.
    Malformed,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::TooLong(bytes) => {
                write!(f, "Key length of {bytes} is longer than maximum of {PARTITION_KEY_BYTES_MAX}")
            }
            KeyError::Malformed => f.write_str("Malformed composite partition key"),
        }
    }
}

impl std::error::Error for KeyError {}

/// Appends the serialized partition key to `out`. A single component is written as its raw bytes.
/// Each of several components is written as its length (`u16`), its bytes and a zero byte. On an
/// error, `out` is unchanged.
pub fn compose_partition_key<'a>(
    components: impl ExactSizeIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), KeyError> {
    let start = out.len();
    let single = components.len() == 1;
    for component in components {
        match u16::try_from(component.len()) {
            Ok(_) if single => out.extend_from_slice(component),
            Ok(length) => {
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(component);
                out.push(0);
            }
            Err(_) => {
                out.truncate(start);
                return Err(KeyError::TooLong(component.len()));
            }
        }
    }
    let bytes = out.len() - start;
    if bytes > PARTITION_KEY_BYTES_MAX {
        out.truncate(start);
        return Err(KeyError::TooLong(bytes));
    }
    Ok(())
}

/// Iterates over the `count` components of a serialized partition key in order, without allocating.
/// A malformed key yields an error, then ends.
pub fn partition_key_components(count: usize, key: &[u8]) -> PartitionKeyComponents<'_> {
    PartitionKeyComponents { left: count, single: count == 1, rest: key }
}

/// Returns the components of a serialized partition key in a `Vec`.
pub fn split_partition_key(count: usize, key: &[u8]) -> Result<Vec<&[u8]>, KeyError> {
    partition_key_components(count, key).collect()
}

/// Iterator of [`partition_key_components`].
#[derive(Clone, Debug)]
pub struct PartitionKeyComponents<'a> {
    left: usize,
    single: bool,
    rest: &'a [u8],
}

impl<'a> Iterator for PartitionKeyComponents<'a> {
    type Item = Result<&'a [u8], KeyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        if self.single {
            return Some(Ok(self.rest));
        }
        let component = self.rest.split_first_chunk::<2>().and_then(|(length, rest)| {
            let (component, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            let (&end, rest) = rest.split_first()?;
            let is_valid = end == 0 && (self.left > 0 || rest.is_empty());
            is_valid.then_some((component, rest))
        });
        let Some((component, rest)) = component else {
            self.left = 0;
            return Some(Err(KeyError::Malformed));
        };
        self.rest = rest;
        Some(Ok(component))
    }
}

/// Returns the token of a serialized partition key. The empty key, which no partition has, gets
/// `i64::MIN`.
///
/// The token is the first half of MurmurHash3 x64-128 with seed 0, with one deviation. Cassandra
/// sign-extends the bytes of the last, incomplete block instead of zero-extending them.
pub fn token(key: &[u8]) -> Token {
    if key.is_empty() {
        return i64::MIN;
    }
    match murmur3(key) as i64 {
        i64::MIN => i64::MAX,
        token => token,
    }
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

fn murmur3(key: &[u8]) -> u64 {
    let mut h1 = 0_u64;
    let mut h2 = 0_u64;
    let (blocks, tail) = key.as_chunks::<16>();
    for block in blocks {
        let both = u128::from_le_bytes(*block);
        h1 = (h1 ^ mix_k1(both as u64)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ mix_k2((both >> 64) as u64)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }

    let (low, high) = tail.split_at(tail.len().min(8));
    h2 ^= mix_k2(signed_tail(high));
    h1 ^= mix_k1(signed_tail(low));

    h1 ^= key.len() as u64;
    h2 ^= key.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    final_mix(h1).wrapping_add(final_mix(h2))
}

/// Returns up to 8 bytes, little-endian, each sign-extended before it is mixed in: the deviation
/// that [`token`] describes.
fn signed_tail(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |k, (i, &byte)| k ^ ((i64::from(byte as i8) as u64) << (8 * i)))
}

fn mix_k1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn final_mix(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_match_cassandra() {
        let check = |key: &[u8], expected: Token| assert_eq!(token(key), expected, "{key:02x?}");
        check(&0_i32.to_be_bytes(), -3_485_513_579_396_041_028);
        check(&1_i32.to_be_bytes(), -4_069_959_284_402_364_209);
        check(&2_i32.to_be_bytes(), -3_248_873_570_005_575_792);
        check(b"", i64::MIN);
        // Test vectors of Cassandra's drivers: plain ASCII, and bytes above 0x7f in the tail.
        check(b"123", -7_468_325_962_851_647_638);
        check(&b"\x00\xff\x10\xfa\x99".repeat(10), 5_837_342_703_291_459_765);
        check(b"\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe", -8_927_430_733_708_461_935);
        check(b"\x10\x10\x10\x10\x10\x10\x10\x10", 1_446_172_840_243_228_796);
        check(b"9223372036854775807", 7_162_290_910_810_015_547);
    }

    #[test]
    fn tail_bytes_are_sign_extended_in_both_halves() {
        // Zero extension would give the plain hash. A sign-extended byte changes all bits above it.
        assert_eq!(signed_tail(&[0x80]), 0xffff_ffff_ffff_ff80);
        assert_eq!(signed_tail(&[0x00, 0x80, 0x01]), 0xffff_ffff_ffff_8000 ^ 0x01_0000);
        assert_eq!(signed_tail(&[0x7f, 0x01]), 0x017f);
    }

    #[test]
    fn shards_follow_the_biased_round_robin() {
        let check = |shards, ignore_msb, token, expected| {
            assert_eq!(
                Sharding { shards, ignore_msb }.shard_of(token),
                expected,
                "{shards} {ignore_msb} {token}"
            );
        };
        check(4, 12, -9_219_783_007_514_621_794, 3);
        check(4, 12, 9_222_582_454_147_032_830, 3);
        check(1, 12, i64::MAX, 0);
        check(4, 0, i64::MIN, 0);
        check(4, 0, -1, 1);
        check(4, 0, 0, 2);
        check(4, 0, i64::MAX, 3);
        check(3, 64, i64::MAX, 0);
    }

    #[test]
    fn partition_keys_split_into_their_components() {
        let check = |components: &[&[u8]], expected: &[u8]| {
            let mut key = Vec::new();
            compose_partition_key(components.iter().copied(), &mut key).unwrap();
            assert_eq!(key, expected);
            assert_eq!(split_partition_key(components.len(), &key).unwrap(), components);
        };
        check(&[b"abc"], b"abc");
        check(&[b"a", b"bc"], b"\0\x01a\0\0\x02bc\0");
        check(&[b"", b"", b"\0\0"], b"\0\0\0\0\0\0\0\x02\0\0\0");
    }

    #[test]
    fn malformed_partition_keys_are_rejected() {
        let whole = b"\0\x01a\0\0\x02bc\0";
        for cut in 0..whole.len() {
            assert_eq!(split_partition_key(2, &whole[..cut]), Err(KeyError::Malformed), "{cut}");
        }
        assert_eq!(split_partition_key(2, b"\0\x01a\0\0\x02bc\0x"), Err(KeyError::Malformed));
        assert_eq!(split_partition_key(2, b"\0\x01a\x01\0\x02bc\0"), Err(KeyError::Malformed));
        let mut out = b"kept".to_vec();
        let long = vec![0; 65_536];
        assert_eq!(
            compose_partition_key([&b"a"[..], &long].into_iter(), &mut out),
            Err(KeyError::TooLong(65_536))
        );
        let half = vec![0; 40_000];
        assert_eq!(
            compose_partition_key([&half[..], &half].into_iter(), &mut out),
            Err(KeyError::TooLong(80_006))
        );
        assert_eq!(out, b"kept");
    }
}
