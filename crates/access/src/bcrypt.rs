//! Passwords as bcrypt hashes (Provos and Mazières, 1999), which Cassandra and ScyllaDB store.
//! Roles move here from a cluster with them. Passwords set here are SCRAM verifiers.
//!
//! ```text
//!   $2a$10$<salt, 22 characters><hash, 31 characters>          2^10 iterations
//! ```
//!
//! The cipher is a library's. Its loop is here because it must yield regularly: a check with the
//! greatest cost takes about 1 s.

use base64::Engine as _;
use base64::alphabet::BCRYPT;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use blowfish::Blowfish;
use subtle::ConstantTimeEq;

/// Costs of a hash. The lower bound is that of the format. At the upper one, a check takes about 1
/// s of a core.
pub(crate) const COSTS: std::ops::RangeInclusive<u32> = 4..=14;
/// Iterations of PBKDF2 that take as long as one of bcrypt, which has two key schedules.
const PBKDF2_ITERATIONS: u32 = 256;
/// Most iterations of PBKDF2 that a check counts as: half of the slots of a core, so that it can
/// take them.
const PBKDF2_ITERATIONS_MAX: u32 = 128 * 4096;
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 23;
/// Bytes of a password that take part, with the zero byte behind it.
const KEY_BYTES_MAX: usize = 72;
/// Text that is encrypted, as big-endian words.
const PLAIN: &[u8; 24] = b"OrpheanBeholderScryDoubt";
/// Number of times that it is encrypted.
const ENCRYPTIONS: usize = 64;
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_allow_trailing_bits(true)
    .with_decode_padding_mode(DecodePaddingMode::RequireNone);
const BASE64: GeneralPurpose = GeneralPurpose::new(&BCRYPT, CONFIG);

/// Hash of a password.
#[derive(Clone)]
pub(crate) struct BcryptHash {
    /// Text form.
    text: String,
    cost: u32,
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

impl BcryptHash {
    /// Parses the text form. Returns `None` if it is malformed, or its cost is out of bounds.
    pub(crate) fn parse(text: &str) -> Option<BcryptHash> {
        let rest = ["$2a$", "$2b$", "$2y$"].iter().find_map(|version| text.strip_prefix(version))?;
        let (cost, rest) = rest.split_once('$').filter(|(cost, _)| cost.len() == 2)?;
        let cost = cost.parse().ok().filter(|cost| COSTS.contains(cost))?;
        let (salt, hash) = rest.split_at_checked(22)?;
        let salt = BASE64.decode(salt).ok()?.try_into().ok()?;
        let hash = BASE64.decode(hash).ok()?.try_into().ok()?;
        Some(BcryptHash { text: text.to_owned(), cost, salt, hash })
    }

    /// Returns the text form. It is a secret.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the iterations of PBKDF2 that take as long as a check, up to half of a core's slots.
    pub(crate) fn pbkdf2_iterations(&self) -> u32 {
        (PBKDF2_ITERATIONS << self.cost).min(PBKDF2_ITERATIONS_MAX)
    }

    /// True if both have the same text. Compares in constant time.
    pub(crate) fn is_same(&self, other: &BcryptHash) -> bool {
        self.text.as_bytes().ct_eq(other.text.as_bytes()).into()
    }

    /// True if `password` matches.
    pub(crate) async fn accepts(&self, password: &str) -> bool {
        hash(password, self.cost, &self.salt).await.ct_eq(&self.hash).into()
    }
}

/// Computes the hash of a password. Yields after each iteration, of about 60 µs.
async fn hash(password: &str, cost: u32, salt: &[u8; SALT_BYTES]) -> [u8; HASH_BYTES] {
    let mut key = [password.as_bytes(), &[0]].concat();
    key.truncate(KEY_BYTES_MAX);
    let mut cipher: Blowfish = Blowfish::bc_init_state();
    cipher.salted_expand_key(salt, &key);
    for _ in 0..1_u32 << cost {
        lanes::heavy_yield().await;
        cipher.bc_expand_key(&key);
        cipher.bc_expand_key(salt);
    }
    let mut out = [0; PLAIN.len()];
    for (plain, out) in PLAIN.chunks_exact(8).zip(out.chunks_exact_mut(8)) {
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let mut pair = [word(&plain[..4]), word(&plain[4..])];
        for _ in 0..ENCRYPTIONS {
            pair = cipher.bc_encrypt(pair);
        }
        out[..4].copy_from_slice(&pair[0].to_be_bytes());
        out[4..].copy_from_slice(&pair[1].to_be_bytes());
    }
    // The format has one byte less than the cipher's text.
    std::array::from_fn(|at| out[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::tests::block_on;

    /// Hashes of jBCrypt, which Cassandra uses.
    const KNOWN: [(&str, &str); 4] = [
        ("", "$2a$06$DCq7YPn5Rq63x1Lad4cll.TV4S6ytwfsfvkgY8jIucDrjc8deX1s."),
        ("a", "$2a$06$m0CrhHm10qJ3lXRY.5zDGO3rS2KdeeWLuGmsfGlMfOxih58VYVfxe"),
        ("abc", "$2a$06$If6bvum7DFjUnE9p2uDeDu0YHzrHM6tf.iqN8.yx.jNN1ILEf7h0i"),
        ("abcdefghijklmnopqrstuvwxyz", "$2a$06$.rCVZVOThsIa97pEDOxvGuRRgzG64bvtJ0938xuqzv18d3ZpQhstC"),
    ];

    #[test]
    fn known_hashes_are_reproduced() {
        for (password, text) in KNOWN {
            let hash = BcryptHash::parse(text).expect(text);
            assert_eq!(hash.text(), text);
            assert!(block_on(hash.accepts(password)), "{password}");
            assert!(!block_on(hash.accepts("abd")), "{password}");
        }
        let hashes = KNOWN.map(|(_, text)| BcryptHash::parse(text).expect(text));
        assert!(hashes[0].is_same(&hashes[0]) && !hashes[0].is_same(&hashes[1]));
    }

    #[test]
    fn malformed_and_costly_hashes_are_rejected() {
        let good = KNOWN[1].1;
        let with_cost = |cost: &str| good.replace("$06$", &format!("${cost}$"));
        for cost in ["04", "10", "14"] {
            assert!(BcryptHash::parse(&with_cost(cost)).is_some(), "{cost}");
        }
        for bad in [
            with_cost("03"),
            with_cost("15"),
            with_cost("31"),
            with_cost("6"),
            with_cost("-6"),
            good.replace("$2a$", "$2c$"),
            good[..good.len() - 1].to_owned(),
            format!("{good}a"),
            good.replace('m', "*"),
            String::new(),
        ] {
            assert!(BcryptHash::parse(&bad).is_none(), "{bad}");
        }
        let iterations = |cost| BcryptHash::parse(&with_cost(cost)).expect(cost).pbkdf2_iterations();
        assert_eq!([iterations("04"), iterations("10"), iterations("14")], [4096, 262_144, 524_288]);
    }
}
