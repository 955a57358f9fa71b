//! The server's side of a SCRAM-SHA-256 exchange (RFC 5802), for a front door that speaks SASL in two steps: the client never
//! sends its password, the server never has it. Nothing here is slow: deriving keys is the client's work.
//!
//! ```text
//!   client first   n,,n=user,r=<nonce>               server first   r=<nonce + ours>,s=<salt>,i=<iterations>
//!   client final   c=biws,r=<both>,p=<proof>         server final   v=<signature>
//! ```
//!
//! A name that is not there is answered like one that is, with a salt of its own that is always the same, and fails at the end.
//! Channel binding is not offered.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::access::{Access, AuthError, refused};
use crate::login::Login;
use crate::plan::Actor;
use crate::scram::Verifier;

/// Bytes of our part of the nonce.
const NONCE_BYTES: usize = 18;
/// Longest message of a client, bytes; real ones have some two hundred.
const MESSAGE_BYTES_MAX: usize = 4096;

/// An exchange that has been begun.
pub struct Exchange {
    user: String,
    verifier: Arc<Verifier>,
    known: bool,
    /// The client's flags about channel binding, which it repeats at the end.
    header: String,
    nonce: String,
    /// What has been said so far, as both sides sign it.
    said: String,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.user)
    }
}

impl Access {
    /// Begins an exchange for a role, whatever name the client's first message may give, as Postgres does. With it, the answer.
    ///
    /// # Errors
    /// The message is none, or asks for channel binding.
    pub fn begin_scram(&self, user: &str, client_first: &[u8]) -> Result<(Exchange, String), AuthError> {
        let Some((header, bare, client_nonce)) = read_first(client_first) else {
            return Err(AuthError::Refused("malformed SCRAM message".to_owned()));
        };
        let mut ours = [0; NONCE_BYTES];
        lanes::random::fill(&mut ours);
        let nonce = format!("{client_nonce}{}", BASE64.encode(ours));
        let verifier = self.snapshot().roles.get(user).and_then(|role| role.verifier.clone());
        let known = verifier.is_some();
        let verifier = verifier.unwrap_or_else(|| Arc::new(self.shared.decoy.for_name(user)));
        let server_first = format!("r={nonce},{}", verifier.challenge());
        let said = format!("{bare},{server_first}");
        Ok((Exchange { user: user.to_owned(), verifier, known, header, nonce, said }, server_first))
    }

    /// Ends an exchange with the client's second message: the session and the answer.
    ///
    /// # Errors
    /// [`AuthError::Refused`]: the proof is wrong, or the role may not log in.
    pub fn end_scram(&self, exchange: Exchange, client_final: &[u8]) -> Result<(Login, String), AuthError> {
        let Exchange { user, verifier, known, header, nonce, said } = exchange;
        let Some((unproven, proof)) = read_final(client_final, &header, &nonce) else {
            return Err(refused(&user));
        };
        let signature = verifier.check_proof(&format!("{said},{unproven}"), &proof);
        let snapshot = self.snapshot();
        let role = snapshot.roles.get_key_value(&user).filter(|_| known);
        let (Some((name, role)), Some(signature)) = (role, signature) else { return Err(refused(&user)) };
        if !role.can_login {
            return Err(AuthError::Refused(format!("{user} is not permitted to log in")));
        }
        let login = self.log_in(Actor { role: name.clone(), anonymous: false });
        Ok((login, format!("v={}", BASE64.encode(signature))))
    }
}

/// The header, the rest, and the nonce of a client's first message.
fn read_first(message: &[u8]) -> Option<(String, &str, &str)> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX)?;
    let mut parts = text.splitn(3, ',');
    let (flag, name, bare) = (parts.next()?, parts.next()?, parts.next()?);
    if !matches!(flag, "n" | "y") {
        return None;
    }
    let nonce = bare.split(',').nth(1)?.strip_prefix("r=").filter(|nonce| !nonce.is_empty())?;
    Some((format!("{flag},{name},"), bare, nonce))
}

/// What is signed and the proof of a client's final message, if it belongs to what was said.
fn read_final<'a>(message: &'a [u8], header: &str, nonce: &str) -> Option<(&'a str, Vec<u8>)> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX)?;
    let (unproven, proof) = text.rsplit_once(",p=")?;
    let mut parts = unproven.split(',');
    let bound = BASE64.decode(parts.next()?.strip_prefix("c=")?).ok()?;
    let same = bound == header.as_bytes() && parts.next()?.strip_prefix("r=")? == nonce;
    same.then_some(())?;
    Some((unproven, BASE64.decode(proof).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_or_refused() {
        let first = read_first(b"n,,n=user,r=abc").unwrap();
        assert_eq!(first, ("n,,".to_owned(), "n=user,r=abc", "abc"));
        for bad in ["", "n,,", "p=tls-unique,,n=,r=abc", "n,,n=user,r=", "n,,n=user"] {
            assert!(read_first(bad.as_bytes()).is_none(), "{bad}");
        }
        let (unproven, proof) = read_final(b"c=biws,r=abcdef,p=AQI=", "n,,", "abcdef").unwrap();
        assert_eq!((unproven, &proof[..]), ("c=biws,r=abcdef", &[1, 2][..]));
        for bad in ["c=biws,r=abc,p=AQI=", "c=eSws,r=abcdef,p=AQI=", "c=biws,r=abcdef", "c=biws,r=abcdef,p=*"]
        {
            assert!(read_final(bad.as_bytes(), "n,,", "abcdef").is_none(), "{bad}");
        }
    }
}
