//! The client side of TLS, for connections to a server.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

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
        TlsClient::new(authority, own, None)
    }

    /// Does the same for servers whose certificates must be valid for `name`, in place of the name
    /// or address that a connection is opened to.
    ///
    /// # Errors
    /// Those of [`TlsClient::from_files`], or `name` is no host name.
    pub fn from_files_for(
        name: &str,
        authority: &Path,
        own: Option<ClientFiles<'_>>,
    ) -> Result<TlsClient, String> {
        let dns_name = ServerName::try_from(name.to_owned()).ok();
        let dns_name = dns_name.filter(|name| matches!(name, ServerName::DnsName(_)));
        let dns_name = dns_name.ok_or_else(|| format!("expected a host name, got `{name}`"))?;
        TlsClient::new(authority, own, Some(dns_name))
    }

    fn new(
        authority: &Path,
        own: Option<ClientFiles<'_>>,
        name: Option<ServerName<'static>>,
    ) -> Result<TlsClient, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let roots = authorities(authority)?;
        let builder = match name {
            None => builder.with_root_certificates(roots),
            Some(name) => {
                let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let chain = chain.map_err(|error| format!("cannot use {}: {error}", authority.display()))?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(FixedName { name, chain }))
            }
        };
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

/// Verifier of certificates of several servers for one name. All other checks are those of TLS.
#[derive(Debug)]
struct FixedName {
    name: ServerName<'static>,
    chain: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for FixedName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _address: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.chain.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Returns the reason for which a TLS handshake failed, such as a certificate for another name.
/// `None`: the error has another cause.
#[must_use]
pub fn handshake_failure(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(ToString::to_string)
}
