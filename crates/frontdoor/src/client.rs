//! The client side of TLS, for connections to a server.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::tls::{authorities, certificates, unreadable};

/// Authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug)]
pub struct TlsClient(Arc<ClientConfig>);

/// Files of a client certificate, in PEM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientFiles<'a> {
    /// The certificate, followed by the intermediate certificates.
    pub certificate: &'a Path,
    /// Its private key.
    pub key: &'a Path,
}

impl TlsClient {
    /// Reads the certificates of the authorities that the client trusts, and its own certificate,
    /// if it has one. Blocks on I/O.
    ///
    /// # Errors
    /// A text with the file and the problem.
    pub fn from_files(authority: &Path, own: Option<ClientFiles<'_>>) -> Result<TlsClient, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities(authority)?);
        let Some(own) = own else { return Ok(TlsClient(Arc::new(builder.with_no_client_auth()))) };
        let chain = certificates(own.certificate)?;
        let key = PrivateKeyDer::from_pem_file(own.key);
        let key = key.map_err(|error| unreadable(own.key, "private key", error))?;
        let config = builder.with_client_auth_cert(chain, key);
        let config = config.map_err(|error| format!("cannot use {}: {error}", own.certificate.display()))?;
        Ok(TlsClient(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.0
    }

    /// Returns the configuration for another library over the same TLS library.
    #[must_use]
    pub fn into_config(self) -> Arc<ClientConfig> {
        self.0
    }

    /// Encrypts a connection to the server with this host name or IP address, and completes the
    /// handshake. Blocks as long as `stream` does.
    ///
    /// # Errors
    /// A text with the reason, such as a certificate for another name.
    pub fn connect<S: Read + Write>(
        &self,
        host: &str,
        mut stream: S,
    ) -> Result<StreamOwned<ClientConnection, S>, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        let mut session =
            ClientConnection::new(self.0.clone(), name).map_err(|error| format!("{host}: {error}"))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).map_err(|error| format!("the TLS handshake failed: {error}"))?;
        }
        Ok(StreamOwned::new(session, stream))
    }
}

/// Returns the reason for which a TLS handshake failed, such as a certificate for another name.
/// `None`: the error has another cause.
#[must_use]
pub fn handshake_failure(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(ToString::to_string)
}
