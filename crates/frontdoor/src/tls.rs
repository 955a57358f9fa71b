//! TLS certificate of the listeners, read from files and replaced while connections are open.
//!
//! Clients may authenticate with a certificate if an authority for them is configured. The common
//! name of its subject is then the name of the role.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use crate::certificate::end_point;

/// Certificate files, all in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Certificate of the server, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Private key of the server.
    pub key: PathBuf,
    /// Certificates of the authorities for client certificates. `None`: clients are not asked for
    /// certificates.
    pub client_ca: Option<PathBuf>,
    /// True if clients must present a certificate. No effect without `client_ca`.
    pub client_required: bool,
}

impl TlsFiles {
    /// Returns the paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).map(PathBuf::as_path)
    }
}

/// Certificate of the server with its key, for TLS 1.2 and 1.3. Clones are cheap, and all of them
/// change when the files are read again.
#[derive(Clone)]
pub struct Tls(Arc<SharedTls>);

/// A TLS handshake that failed.
#[derive(Debug)]
pub struct RefusedTls<'a> {
    /// Address of the client.
    pub client: SocketAddr,
    /// The reason, such as a certificate that has expired.
    pub reason: &'a str,
    /// Handshakes that have failed since the last report, without this one.
    pub unreported: u64,
}

type Report = dyn Fn(&RefusedTls<'_>) + Send + Sync;

struct SharedTls {
    files: TlsFiles,
    /// Receiver of failed handshakes.
    report: OnceLock<Box<Report>>,
    /// Second of the monotonic clock of the last report.
    reported_s: AtomicU64,
    /// Failed handshakes since the last report.
    unreported: AtomicU64,
    /// Certificate in use. Every connection reads it once.
    current: RwLock<Arc<Certificate>>,
}

/// Content of the files at one time.
pub(crate) struct Certificate {
    /// Configuration that requests client certificates, if an authority is configured.
    pub(crate) config: Arc<ServerConfig>,
    /// Configuration without client certificates.
    pub(crate) anonymous: Arc<ServerConfig>,
    pub(crate) end_point: Option<Arc<[u8]>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

impl Tls {
    /// Reads the files with blocking I/O. Do not call it on a lane.
    ///
    /// # Errors
    /// A text with the file and the problem, or a key that belongs to another certificate.
    pub fn from_files(files: TlsFiles) -> Result<Tls, String> {
        let current = RwLock::new(Arc::new(Certificate::read(&files)?));
        Ok(Tls(Arc::new(SharedTls {
            files,
            report: OnceLock::new(),
            reported_s: AtomicU64::new(u64::MAX),
            unreported: AtomicU64::new(0),
            current,
        })))
    }

    /// Reads the files again with blocking I/O. Do not call it on a lane. New connections use the
    /// new content, open ones keep the old.
    ///
    /// # Errors
    /// Those of [`Tls::from_files`]. The previous certificate stays in use.
    pub fn reload(&self) -> Result<(), String> {
        let read = Arc::new(Certificate::read(&self.0.files)?);
        let mut current = self.0.current.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let former = std::mem::replace(&mut *current, read);
        // Dropped after the lock is released, because connections wait for that lock.
        drop(current);
        drop(former);
        Ok(())
    }

    /// Returns the paths.
    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.0.files
    }

    /// Sets the receiver of failed handshakes. It gets at most one a second, since a client can
    /// fail as often as it likes. No effect if there is one.
    pub fn on_refused(&self, report: impl Fn(&RefusedTls<'_>) + Send + Sync + 'static) {
        let _ = self.0.report.set(Box::new(report));
    }

    /// Reports a handshake that failed.
    pub(crate) fn refused(&self, client: SocketAddr, reason: &rustls::Error) {
        let shared = &*self.0;
        let Some(report) = shared.report.get() else { return };
        let now_s = lanes::time::monotonic_ns() / 1_000_000_000;
        if shared.reported_s.swap(now_s, Relaxed) == now_s {
            shared.unreported.fetch_add(1, Relaxed);
            return;
        }
        let unreported = shared.unreported.swap(0, Relaxed);
        report(&RefusedTls { client, reason: &reason.to_string(), unreported });
    }

    pub(crate) fn current(&self) -> Arc<Certificate> {
        self.0.current.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

impl Certificate {
    fn read(files: &TlsFiles) -> Result<Certificate, String> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable(&files.key, "private key", error))?;
        let end_point = chain.first().and_then(|certificate| end_point(certificate)).map(Arc::from);
        let verifier = match &files.client_ca {
            Some(path) => Some(client_verifier(path, files.client_required)?),
            None => None,
        };
        let build = |verifier: Option<Arc<dyn ClientCertVerifier>>| {
            let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()?;
            let requests_certificates = verifier.is_some();
            let builder = match verifier {
                Some(verifier) => builder.with_client_cert_verifier(verifier),
                None => builder.with_no_client_auth(),
            };
            let mut config = builder.with_single_cert(chain.clone(), key.clone_key())?;
            if requests_certificates {
                // Session resumption would skip the verification of the client's certificate.
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
            Ok(config)
        };
        let refused = |error: rustls::Error| {
            let (key, certificate) = (files.key.display(), files.certificate.display());
            match error {
                rustls::Error::InconsistentKeys(_) => format!("{key} is not the key of {certificate}"),
                other => format!("cannot use {certificate} with {key}: {other}"),
            }
        };
        let anonymous = Arc::new(build(None).map_err(refused)?);
        let config = match verifier {
            Some(verifier) => Arc::new(build(Some(verifier)).map_err(refused)?),
            None => anonymous.clone(),
        };
        Ok(Certificate { config, anonymous, end_point })
    }
}

pub(crate) fn unreadable(path: &Path, what: &str, error: PemError) -> String {
    let why = match error {
        PemError::Io(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_owned(),
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => format!("it has no {what} in PEM"),
        other => other.to_string(),
    };
    format!("cannot use {} as {what}: {why}", path.display())
}

/// Reads a file with at least one certificate.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.and_then(|all| if all.is_empty() { Err(PemError::NoItemsFound) } else { Ok(all) });
    all.map_err(|error| unreadable(path, "certificate", error))
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| format!("cannot use {}: {error}", path.display()))?;
    }
    Ok(roots)
}

/// Creates the verifier of client certificates from a file of authorities.
fn client_verifier(path: &Path, is_required: bool) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let roots = authorities(path)?;
    let provider = Arc::new(ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| format!("cannot use {}: {error}", path.display()))
}
