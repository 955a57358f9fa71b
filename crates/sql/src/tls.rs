//! What the SQL door is encrypted with: a certificate and its key, read once. The library does the rest, on the fast lane of the
//! connection.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};

/// A certificate with its key; TLS 1.2 and 1.3.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls(*****)")
    }
}

impl Tls {
    /// From files in PEM: the server's certificate followed by those between it and the root, and its key. They are read here, so not
    /// on a lane.
    ///
    /// # Errors
    /// Which file is not what it should be, and why; or the key is another certificate's.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Tls, String> {
        let unreadable = |path: &Path, what: &str, error: PemError| {
            let why = match error {
                PemError::Io(error) => error.to_string(),
                PemError::NoItemsFound => format!("it has no {what} in PEM"),
                other => other.to_string(),
            };
            format!("cannot use {} as {what}: {why}", path.display())
        };
        let chain =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let chain =
            chain.and_then(|chain| if chain.is_empty() { Err(PemError::NoItemsFound) } else { Ok(chain) });
        let chain = chain.map_err(|error| unreadable(certificate, "certificate", error))?;
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "private key", error))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| match error {
                Error::InconsistentKeys(_) => {
                    format!("{} is not the key of {}", key.display(), certificate.display())
                }
                other => format!("cannot use {} with {}: {other}", certificate.display(), key.display()),
            })?;
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(certificate: &str, key: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls");
        Tls::from_files(&folder.join(certificate), &folder.join(key)).err().unwrap_or_default()
    }

    #[test]
    fn a_certificate_and_its_key_are_taken_and_anything_else_is_told_by_file() {
        assert_eq!(refusal("certificate.pem", "key.pem"), "");
        let wrong = refusal("certificate.pem", "other-key.pem");
        assert!(
            wrong.contains("other-key.pem is not the key of ") && wrong.ends_with("certificate.pem"),
            "{wrong}"
        );
        let missing = refusal("nothing.pem", "key.pem");
        assert!(missing.contains("nothing.pem as certificate: No such file"), "{missing}");
        let swapped = refusal("key.pem", "certificate.pem");
        assert!(swapped.ends_with("key.pem as certificate: it has no certificate in PEM"), "{swapped}");
        let keyless = refusal("certificate.pem", "certificate.pem");
        assert!(
            keyless.ends_with("certificate.pem as private key: it has no private key in PEM"),
            "{keyless}"
        );
    }
}
