//! Binding of a listener's address.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use lanes::net::TcpListener;

/// Reason why a listener could not open.
#[derive(Debug)]
pub enum ListenError {
    /// Plain text on an address beyond loopback, without a certificate or permission for it.
    Plaintext(SocketAddr),
    /// The port cannot be listened on.
    Bind(SocketAddr, io::Error),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::Plaintext(address) => write!(
                f,
                "refusing to speak plain text on {address}, which is beyond this machine: give a certificate and its \
                 key, listen on 127.0.0.1, or allow plain text explicitly"
            ),
            ListenError::Bind(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                let (port, ip) = (address.port(), address.ip());
                write!(f, "port {port} of {ip} is taken: stop what listens there, or choose another")
            }
            ListenError::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for ListenError {}

/// Listens on an address, on core 0's fast lane. Returns the listener and its address, with the
/// real port if that of `address` is 0.
///
/// # Errors
/// The port cannot be listened on.
pub fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let failed = |error| ListenError::Bind(address, error);
    let listener = lanes::net::listen(address, false).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Checks that an address can be listened on, before anything is started for it. `may_be_plain`: a
/// certificate is configured, or plain text is permitted.
///
/// # Errors
/// As [`listen`], and plain text beyond loopback.
#[expect(clippy::disallowed_methods, reason = "no lane runs yet, and nothing is accepted")]
pub fn check_address(address: SocketAddr, may_be_plain: bool) -> Result<(), ListenError> {
    if !may_be_plain && !address.ip().is_loopback() {
        return Err(ListenError::Plaintext(address));
    }
    std::net::TcpListener::bind(address).map(drop).map_err(|error| ListenError::Bind(address, error))
}
