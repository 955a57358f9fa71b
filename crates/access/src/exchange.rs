//! Server side of a SCRAM-SHA-256 exchange (RFC 5802), for listeners that speak SASL in two steps.
//! The client does not send its password, and the server does not have it. The client derives the
//! keys, so that no step is slow here.
//!
//! ```text
//!   client first   n,,n=user,r=<nonce>               server first   r=<nonce + ours>,s=<salt>,i=<iterations>
//!   client final   c=biws,r=<both>,p=<proof>         server final   v=<signature>
//! ```
//!
//! A name without a verifier gets a decoy with a constant salt. Its exchange looks the same and
//! fails at the end.
//!
//! Channel binding (`SCRAM-SHA-256-PLUS`, `tls-server-end-point` of RFC 5929) ties an exchange to
//! its TLS connection, so that a man in the middle cannot relay it. The listener supplies the hash
//! of its certificate.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::access::Access;
use crate::attempts::Attempt;
use crate::authenticate::{AuthError, Checked, refused};
use crate::login::Login;
use crate::scram::ScramVerifier;

/// Length of the server's part of the nonce, in bytes.
const NONCE_BYTES: usize = 18;
/// Longest message of a client, in bytes. Real messages have about 200.
const MESSAGE_BYTES_MAX: usize = 4096;

/// GS2 header flag of a client that uses channel binding.
const BINDING_FLAG: &str = "p=tls-server-end-point";

/// Input of the first step.
#[derive(Clone, Copy, Debug)]
pub struct ScramStart<'a> {
    /// The client's address, for the limits on failures. `None` inside the server.
    pub address: Option<IpAddr>,
    /// The role. As in Postgres, the name in the client's message is ignored.
    pub user: &'a str,
    /// The client's first message.
    pub client_first: &'a [u8],
    /// True if the client chose `SCRAM-SHA-256-PLUS`.
    pub is_bound: bool,
    /// Hash of the listener's certificate. `None` if the listener did not offer
    /// `SCRAM-SHA-256-PLUS` on this connection.
    pub end_point: Option<&'a [u8]>,
}

/// An exchange in progress.
pub struct Exchange {
    user: String,
    attempt: Attempt,
    checked: Checked,
    /// The client's header, followed by the hash of the certificate with channel binding. The
    /// client repeats both at the end.
    binding: Vec<u8>,
    nonce: String,
    /// AuthMessage of RFC 5802 so far. Both sides sign it.
    auth_message: String,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.user)
    }
}

impl Access {
    /// Starts an exchange without channel binding. Returns it with the server's first message.
    ///
    /// # Errors
    /// Returns the errors of [`Access::start_scram`].
    pub fn begin_scram(&self, user: &str, client_first: &[u8]) -> Result<(Exchange, String), AuthError> {
        self.start_scram(ScramStart { address: None, user, client_first, is_bound: false, end_point: None })
    }

    /// Starts an exchange. Returns it with the server's first message.
    ///
    /// # Errors
    /// Returns an error if the message is malformed, its channel binding does not match the offer,
    /// or the name failed too often at its address.
    pub fn start_scram(&self, start: ScramStart<'_>) -> Result<(Exchange, String), AuthError> {
        let user = start.user;
        let Some((header, bare, client_nonce)) = parse_first(start.client_first) else {
            return Err(AuthError::Refused("malformed SCRAM message".to_owned()));
        };
        let binding = binding_of(&header, start.is_bound, start.end_point)?;
        let attempt = self.begin_login(start.address, user)?;
        let mut ours = [0; NONCE_BYTES];
        lanes::random::fill(&mut ours);
        let nonce = format!("{client_nonce}{}", BASE64.encode(ours));
        let checked = self.verifier_of(user);
        // A password that SCRAM cannot check looks like a name without a verifier, and fails.
        let checked = if checked.verifier.scram().is_some() { checked } else { self.decoy_of(user) };
        let challenge = checked.verifier.scram().map(ScramVerifier::challenge).unwrap_or_default();
        let server_first = format!("r={nonce},{challenge}");
        let auth_message = format!("{bare},{server_first}");
        Ok((Exchange { user: user.to_owned(), attempt, checked, binding, nonce, auth_message }, server_first))
    }

    /// Ends an exchange with the client's final message. Returns the session and the server's final
    /// message.
    ///
    /// # Errors
    /// Returns an error if the proof is wrong, the role may not log in, or the name has failed too
    /// often at its address since the first step.
    pub fn end_scram(&self, exchange: Exchange, client_final: &[u8]) -> Result<(Login, String), AuthError> {
        let Exchange { user, attempt, checked, binding, nonce, auth_message } = exchange;
        // Check again: a client may have started many exchanges at once.
        self.check_failures(attempt, &user)?;
        let signature = parse_final(client_final, &binding, &nonce).and_then(|(unproven, proof)| {
            checked.verifier.scram()?.check_proof(&format!("{auth_message},{unproven}"), &proof)
        });
        let login = self.admit(attempt, &user, &checked, signature.is_some())?;
        let signature = signature.ok_or_else(|| refused(&user))?;
        Ok((login, format!("v={}", BASE64.encode(signature))))
    }
}

/// Returns the bytes that the client repeats at the end: its header, and the hash of the
/// certificate with channel binding.
fn binding_of(header: &str, is_bound: bool, end_point: Option<&[u8]>) -> Result<Vec<u8>, AuthError> {
    let refused = |text: &str| Err(AuthError::Refused(text.to_owned()));
    let flag = header.split(',').next().unwrap_or_default();
    match (flag, is_bound, end_point) {
        (BINDING_FLAG, true, Some(end_point)) => Ok([header.as_bytes(), end_point].concat()),
        (BINDING_FLAG, ..) => refused("channel binding was not offered on this connection"),
        (_, true, _) => refused("SCRAM-SHA-256-PLUS needs channel binding of type tls-server-end-point"),
        // The client supports binding and saw no offer: a man in the middle removed it.
        ("y", false, Some(_)) => refused("the offer of channel binding did not reach the client"),
        _ => Ok(header.as_bytes().to_vec()),
    }
}

/// Returns the header, the rest, and the nonce of a client's first message.
fn parse_first(message: &[u8]) -> Option<(String, &str, &str)> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX)?;
    let mut parts = text.splitn(3, ',');
    let flag = parts.next()?;
    let name = parts.next()?;
    let bare = parts.next()?;
    if !matches!(flag, "n" | "y" | BINDING_FLAG) {
        return None;
    }
    let nonce = bare.split(',').nth(1)?.strip_prefix("r=").filter(|nonce| !nonce.is_empty())?;
    Some((format!("{flag},{name},"), bare, nonce))
}

/// Returns the signed part and the proof of a client's final message, if binding and nonce match.
fn parse_final<'a>(message: &'a [u8], binding: &[u8], nonce: &str) -> Option<(&'a str, Vec<u8>)> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX)?;
    let (unproven, proof) = text.rsplit_once(",p=")?;
    let mut parts = unproven.split(',');
    let bound = BASE64.decode(parts.next()?.strip_prefix("c=")?).ok()?;
    let same = bound == binding && parts.next()?.strip_prefix("r=")? == nonce;
    same.then_some(())?;
    Some((unproven, BASE64.decode(proof).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_binding_without_an_offer_is_rejected() {
        let bound =
            |header: &str, is_bound, end_point: Option<&[u8]>| binding_of(header, is_bound, end_point).ok();
        let header = "p=tls-server-end-point,,";
        assert_eq!(bound(header, true, Some(b"hash")), Some(b"p=tls-server-end-point,,hash".to_vec()));
        assert_eq!(bound(header, true, None), None);
        assert_eq!(bound(header, false, Some(b"hash")), None);
        assert_eq!(bound("n,,", true, Some(b"hash")), None);
        assert_eq!(bound("n,,", false, Some(b"hash")), Some(b"n,,".to_vec()));
        assert_eq!(bound("y,,", false, None), Some(b"y,,".to_vec()));
        assert_eq!(bound("y,,", false, Some(b"hash")), None, "the offer was removed in transit");
    }

    #[test]
    fn malformed_messages_are_rejected() {
        let first = parse_first(b"n,,n=user,r=abc").unwrap();
        assert_eq!(first, ("n,,".to_owned(), "n=user,r=abc", "abc"));
        for bad in ["", "n,,", "p=tls-unique,,n=,r=abc", "n,,n=user,r=", "n,,n=user"] {
            assert!(parse_first(bad.as_bytes()).is_none(), "{bad}");
        }
        let (unproven, proof) = parse_final(b"c=biws,r=abcdef,p=AQI=", b"n,,", "abcdef").unwrap();
        assert_eq!((unproven, &proof[..]), ("c=biws,r=abcdef", &[1, 2][..]));
        for bad in ["c=biws,r=abc,p=AQI=", "c=eSws,r=abcdef,p=AQI=", "c=biws,r=abcdef", "c=biws,r=abcdef,p=*"]
        {
            assert!(parse_final(bad.as_bytes(), b"n,,", "abcdef").is_none(), "{bad}");
        }
    }
}
