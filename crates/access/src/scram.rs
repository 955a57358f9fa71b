//! Passwords as SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677), in the text form that Postgres uses:
//!
//! ```text
//!   SCRAM-SHA-256$4096:<salt>$<stored key>:<server key>          salt and keys in base64
//!
//!   salted password = PBKDF2-HMAC-SHA-256(prepared password, salt, iterations)
//!   stored key      = SHA-256(HMAC(salted password, "Client Key"))
//!   server key      = HMAC(salted password, "Server Key")
//! ```
//!
//! One verifier serves SCRAM exchanges, and also passwords sent in full (SASL PLAIN), for which the
//! server derives the keys. Deriving takes about 1 ms. It runs on the heavy lane and yields
//! regularly.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

type HmacSha256 = Hmac<Sha256>;
pub(crate) type Key = [u8; 32];

/// Iterations of new verifiers: the default of Postgres and the minimum of RFC 7677. One check
/// costs about 1 ms of a core.
pub(crate) const ITERATIONS: u32 = 4096;
/// Bounds on the iterations of a verifier. The upper bound is 16 times the default, so that one
/// check costs at most about 16 ms of a core.
pub(crate) const ITERATIONS_ACCEPTED: std::ops::RangeInclusive<u32> = ITERATIONS..=65_536;
const SALT_BYTES: usize = 16;
const SALT_BYTES_MAX: usize = 64;
/// Longest password, in bytes.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;
/// Iterations per task poll. An iteration has two SHA-256 compressions of about 100 ns, so that a
/// poll takes about 0.1 ms.
const ITERATIONS_PER_POLL: u32 = 512;
const METHOD: &str = "SCRAM-SHA-256";

/// Stored form of a password. `Debug` hides it, and comparisons take constant time.
#[derive(Clone)]
pub(crate) struct ScramVerifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(*****)")
    }
}

impl ScramVerifier {
    /// Derives the verifier of a password with a new salt.
    pub(crate) async fn of(password: &str) -> ScramVerifier {
        let mut salt = vec![0; SALT_BYTES];
        lanes::random::fill(&mut salt);
        let (stored_key, server_key) = keys(password, &salt, ITERATIONS).await;
        ScramVerifier { iterations: ITERATIONS, salt, stored_key, server_key }
    }

    /// Returns the decoy of a name without a verifier. No password matches it, and a check takes
    /// the same time. Salt and keys are derived from the secret and the name. They are therefore
    /// the same at every attempt and after a restart.
    pub(crate) fn decoy(secret: &Key, name: &str, iterations: u32) -> ScramVerifier {
        let derived = |label: &[u8]| hmac(secret, &[label, &[0], name.as_bytes()]);
        let salt = derived(b"salt")[..SALT_BYTES].to_vec();
        ScramVerifier {
            iterations,
            salt,
            stored_key: derived(b"stored key"),
            server_key: derived(b"server key"),
        }
    }

    /// Returns the iterations of one check.
    pub(crate) fn iterations(&self) -> u32 {
        self.iterations
    }

    /// True if both have the same salt, iterations and keys. Compares the keys in constant time.
    pub(crate) fn is_same(&self, other: &ScramVerifier) -> bool {
        let keys = self.stored_key.ct_eq(&other.stored_key) & self.server_key.ct_eq(&other.server_key);
        bool::from(keys) && self.salt == other.salt && self.iterations == other.iterations
    }

    /// True if `password` matches.
    pub(crate) async fn accepts(&self, password: &str) -> bool {
        let (stored_key, server_key) = keys(password, &self.salt, self.iterations).await;
        (stored_key.ct_eq(&self.stored_key) & server_key.ct_eq(&self.server_key)).into()
    }

    /// Returns the salt and iterations for the client, in the format of a SCRAM exchange.
    pub(crate) fn challenge(&self) -> String {
        format!("s={},i={}", BASE64.encode(&self.salt), self.iterations)
    }

    /// Returns the server's signature of `auth_message` if the client's proof is valid.
    pub(crate) fn check_proof(&self, auth_message: &str, proof: &[u8]) -> Option<Key> {
        let mut client_key: Key = proof.try_into().ok()?;
        let signature = hmac(&self.stored_key, &[auth_message.as_bytes()]);
        client_key.iter_mut().zip(signature).for_each(|(key, byte)| *key ^= byte);
        let right: bool = Sha256::digest(client_key).as_slice().ct_eq(&self.stored_key).into();
        right.then(|| hmac(&self.server_key, &[auth_message.as_bytes()]))
    }

    /// Returns the text form, for storage and for `HASHED PASSWORD`. It is a secret.
    pub(crate) fn to_text(&self) -> String {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| BASE64.encode(bytes));
        format!("{METHOD}${}:{salt}${stored}:{server}", self.iterations)
    }

    /// Parses the text form in a statement or in the tables. Returns `None` if it is malformed, or
    /// its iterations or salt are out of bounds.
    pub(crate) fn parse(text: &str) -> Option<ScramVerifier> {
        let mut parts = text.split('$');
        let method = parts.next()?;
        let salting = parts.next()?;
        let keys = parts.next()?;
        if method != METHOD || parts.next().is_some() {
            return None;
        }
        let (iterations, salt) = salting.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|n| ITERATIONS_ACCEPTED.contains(n))?;
        let salt = BASE64.decode(salt).ok().filter(|salt| (1..=SALT_BYTES_MAX).contains(&salt.len()))?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(ScramVerifier { iterations, salt, stored_key: key(stored)?, server_key: key(server)? })
    }
}

/// Returns a number below `count`, derived from the secret and the name. Returns 0 if `count` is 0.
pub(crate) fn spread(secret: &Key, name: &str, count: usize) -> usize {
    let [a, b, c, d, e, f, g, h, ..] = hmac(secret, &[b"iterations", &[0], name.as_bytes()]);
    let fraction = u128::from(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    ((fraction * count as u128) >> 64) as usize
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Derives the stored key and the server key.
async fn keys(password: &str, salt: &[u8], iterations: u32) -> (Key, Key) {
    // Use a password unmodified if SASLprep rejects it, like Postgres.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let salted = salted_password(prepared.as_bytes(), salt, iterations).await;
    let client_key = hmac(&salted, &[b"Client Key"]);
    (Sha256::digest(client_key).into(), hmac(&salted, &[b"Server Key"]))
}

/// Computes one block of PBKDF2. No more is needed. Implemented here because it must yield
/// regularly.
async fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> Key {
    let keyed = HmacSha256::new_from_slice(password).expect("HMAC takes keys of any length");
    let next = |input: &[u8]| -> Key {
        let mut mac = keyed.clone();
        mac.update(input);
        mac.finalize().into_bytes().into()
    };
    let mut block = next(&[salt, &1_u32.to_be_bytes()].concat());
    let mut sum = block;
    for iteration in 1..iterations {
        if iteration % ITERATIONS_PER_POLL == 0 {
            lanes::heavy_yield().await;
        }
        block = next(&block);
        sum.iter_mut().zip(block).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    /// Runs a future to its end. Outside of lanes only `heavy_yield` is ever pending, and it wakes
    /// itself.
    pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
        }
    }

    #[test]
    fn exchange_of_rfc_7677_is_reproduced() {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let (stored_key, server_key) = block_on(keys("pencil", &salt, 4096));
        let message: &[u8] =
            b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = BASE64.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let mut client_key = hmac(&stored_key, &[message]);
        client_key.iter_mut().zip(proof).for_each(|(key, proof)| *key ^= proof);
        assert_eq!(Key::from(Sha256::digest(client_key)), stored_key, "the client's proof");
        let signature = BASE64.encode(hmac(&server_key, &[message]));
        assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "the server's signature");
        let verifier = ScramVerifier { iterations: 4096, salt, stored_key, server_key };
        let auth_message = std::str::from_utf8(message).unwrap();
        let proof = BASE64.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        assert_eq!(verifier.check_proof(auth_message, &proof).map(|key| BASE64.encode(key)), Some(signature));
        assert_eq!(verifier.challenge(), "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        assert!(verifier.check_proof(auth_message, &proof[1..]).is_none());
        assert!(verifier.check_proof(&format!("{auth_message} "), &proof).is_none());
        assert!(ScramVerifier::decoy(&[7; 32], "user", 4096).check_proof(auth_message, &proof).is_none());
    }

    #[test]
    fn verifier_accepts_its_password_after_a_round_trip() {
        let verifier = block_on(ScramVerifier::of("päss\u{ad}word"));
        assert!(block_on(verifier.accepts("päss\u{ad}word")));
        assert!(block_on(verifier.accepts("pa\u{308}ssword")), "the same password, prepared");
        assert!(!block_on(verifier.accepts("password")) && !block_on(verifier.accepts("")));
        let again = ScramVerifier::parse(&verifier.to_text()).unwrap();
        assert!(block_on(again.accepts("pässword")));
        assert_eq!(again.to_text(), verifier.to_text());
        assert_ne!(
            block_on(ScramVerifier::of("x")).to_text(),
            block_on(ScramVerifier::of("x")).to_text(),
            "salts differ"
        );
        assert!(
            verifier.is_same(&again) && !verifier.is_same(&block_on(ScramVerifier::of("päss\u{ad}word")))
        );
        assert_eq!(format!("{verifier:?}"), "Verifier(*****)");
    }

    #[test]
    fn decoy_depends_on_secret_and_name_only() {
        let text = |secret, name| ScramVerifier::decoy(secret, name, 4096).to_text();
        assert_eq!(text(&[7; 32], "ann"), text(&[7; 32], "ann"));
        assert_ne!(text(&[7; 32], "ann"), text(&[7; 32], "bob"));
        assert_ne!(text(&[7; 32], "ann"), text(&[8; 32], "ann"));
        assert!(!block_on(ScramVerifier::decoy(&[7; 32], "ann", 4096).accepts("")));
    }

    #[test]
    fn verifiers_have_at_most_65536_iterations() {
        let key = BASE64.encode([7; 32]);
        let text = |iterations: u32| format!("SCRAM-SHA-256${iterations}:AAAA${key}:{key}");
        let is_accepted = |iterations| ScramVerifier::parse(&text(iterations)).is_some();
        assert_eq!([4095, 4096, 65_536, 65_537].map(is_accepted), [false, true, true, false]);
    }

    #[test]
    fn malformed_verifiers_are_rejected() {
        let key = BASE64.encode([7; 32]);
        let good = format!("SCRAM-SHA-256$4096:AAAA${key}:{key}");
        assert!(ScramVerifier::parse(&good).is_some());
        let short = BASE64.encode([7; 31]);
        for bad in [
            "",
            "secret",
            "$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG",
            &good.replace("4096", "4095"),
            &good.replace("4096", "1000001"),
            &good.replace("4096", "-1"),
            &good.replace("SHA-256$", "SHA-1$"),
            &good.replace("AAAA", ""),
            &good.replace("AAAA", "A*AA"),
            &good.replace(&key, &short),
            &format!("{good}$"),
            &good[..good.len() - 1],
        ] {
            assert!(ScramVerifier::parse(bad).is_none(), "{bad}");
        }
    }
}
