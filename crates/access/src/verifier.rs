//! Stored form of a password: a SCRAM verifier, or a bcrypt hash of a role that came from a
//! cluster. SCRAM exchanges need the former. A role with a bcrypt hash logs in with its password in
//! full.

use std::fmt;

use crate::bcrypt::BcryptHash;
use crate::scram::{Key, ScramVerifier};

/// Stored form of a password. `Debug` hides it, and comparisons take constant time.
#[derive(Clone)]
pub(crate) enum Verifier {
    Scram(ScramVerifier),
    Bcrypt(Box<BcryptHash>),
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(*****)")
    }
}

impl Verifier {
    /// Derives the verifier of a new password.
    pub(crate) async fn of(password: &str) -> Verifier {
        Verifier::Scram(ScramVerifier::of(password).await)
    }

    /// Returns the decoy of a name without a verifier; see [`ScramVerifier::decoy`].
    pub(crate) fn decoy(secret: &Key, name: &str, iterations: u32) -> Verifier {
        Verifier::Scram(ScramVerifier::decoy(secret, name, iterations))
    }

    /// Returns the cost of one check as iterations of PBKDF2.
    pub(crate) fn iterations(&self) -> u32 {
        match self {
            Verifier::Scram(verifier) => verifier.iterations(),
            Verifier::Bcrypt(hash) => hash.pbkdf2_iterations(),
        }
    }

    /// True if both are the same stored form.
    pub(crate) fn is_same(&self, other: &Verifier) -> bool {
        match (self, other) {
            (Verifier::Scram(a), Verifier::Scram(b)) => a.is_same(b),
            (Verifier::Bcrypt(a), Verifier::Bcrypt(b)) => a.is_same(b),
            _ => false,
        }
    }

    /// True if `password` matches.
    pub(crate) async fn accepts(&self, password: &str) -> bool {
        match self {
            Verifier::Scram(verifier) => verifier.accepts(password).await,
            Verifier::Bcrypt(hash) => hash.accepts(password).await,
        }
    }

    /// Returns the verifier for a SCRAM exchange. `None`: the password cannot be checked that way.
    pub(crate) fn scram(&self) -> Option<&ScramVerifier> {
        match self {
            Verifier::Scram(verifier) => Some(verifier),
            Verifier::Bcrypt(_) => None,
        }
    }

    /// Returns the text form, for storage and for `HASHED PASSWORD`. It is a secret.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Verifier::Scram(verifier) => verifier.to_text(),
            Verifier::Bcrypt(hash) => hash.text().to_owned(),
        }
    }

    /// Parses the text form in a statement or in the tables. Returns `None` if it is malformed, or
    /// out of bounds.
    pub(crate) fn parse(text: &str) -> Option<Verifier> {
        let bcrypt = || BcryptHash::parse(text).map(|hash| Verifier::Bcrypt(Box::new(hash)));
        ScramVerifier::parse(text).map(Verifier::Scram).or_else(bcrypt)
    }
}
