//! TLS with real lanes and loopback sockets. The client runs outside of the lanes.
#![expect(clippy::disallowed_methods, reason = "the clients run outside of the lanes")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use frontdoor::{ClientCertificates, Stream, Tls, TlsFiles};
use lanes::{Group, Lanes};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sha2::{Digest, Sha256};
use testkit::Folder;
use tokio::io::{AsyncReadExt, AsyncWrite};

/// Time after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients/tls").join(name)
}

fn files() -> TlsFiles {
    TlsFiles {
        certificate: file("certificate.pem"),
        key: file("key.pem"),
        client_ca: None,
        client_required: false,
    }
}

fn with_clients(client_required: bool) -> Tls {
    let files = TlsFiles { client_ca: Some(file("client-ca.pem")), client_required, ..files() };
    Tls::from_files(files).expect("the files are valid")
}

/// Properties of a connection as seen by the server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Observed {
    is_encrypted: bool,
    client: Option<String>,
    end_point: Option<Vec<u8>>,
}

/// Echo server.
struct Echo {
    lanes: Lanes,
    at: SocketAddr,
    seen: mpsc::Receiver<Result<Observed, ErrorKind>>,
}

impl Echo {
    fn start(tls: &Tls, certificates: ClientCertificates) -> Echo {
        let lanes = testkit::start_lanes(1);
        let (see, seen) = mpsc::channel();
        let tls = tls.clone();
        let at = lanes.block_on(0, Group::CONTROL, move || async move {
            let listener =
                lanes::net::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), false).expect("listens");
            let at = listener.local_addr().expect("bound");
            let accepting = async move {
                loop {
                    let (tcp, _) = listener.accept().await.expect("accepts");
                    let (tls, see) = (tls.clone(), see.clone());
                    let work = async move {
                        let stream = Stream::accept(tcp, Some(&tls), certificates).await;
                        let _ = see.send(match &stream {
                            Ok(stream) => Ok(Observed {
                                is_encrypted: stream.is_encrypted(),
                                client: stream.client().map(|name| name.to_string()),
                                end_point: stream.end_point().map(|hash| hash.to_vec()),
                            }),
                            Err(error) => Err(error.kind()),
                        });
                        if let Ok(stream) = stream {
                            echo(stream).await;
                        }
                    };
                    lanes::spawn(Group::DRIVER, work).detach();
                }
            };
            lanes::spawn(Group::CONTROL, accepting).detach();
            at
        });
        Echo { lanes, at, seen }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).expect("connects");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        stream.set_write_timeout(Some(TIMEOUT)).expect("set");
        stream
    }

    fn seen(&self) -> Result<Observed, ErrorKind> {
        self.seen.recv_timeout(TIMEOUT).expect("the server took the connection")
    }

    /// Connects, with the certificate of this name if given, and exchanges one byte.
    fn greet(&self, client: Option<&str>) -> Result<(), std::io::Error> {
        let mut stream = StreamOwned::new(encrypted(client, "certificate.pem"), self.connect());
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])
    }

    fn end(self) {
        self.lanes.shutdown();
    }
}

async fn echo(stream: Stream) {
    let (mut read, mut write) = stream.into_split();
    let mut bytes = Vec::with_capacity(100_000);
    while let Ok(1..) = read.read_buf(&mut bytes).await {
        let mut sent = 0;
        // Waits for the socket when it is full, as listeners do.
        while sent < bytes.len() {
            sent += match write.try_write(&bytes[sent..]) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waited =
                        std::future::poll_fn(|cx| Pin::new(&mut write).poll_write(cx, &bytes[sent..])).await;
                    match waited {
                        Ok(written) => written,
                        Err(_) => return,
                    }
                }
                Err(_) => return,
            };
        }
        bytes.clear();
    }
}

fn encrypted(client: Option<&str>, trusted: &str) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file(trusted)).expect("a certificate")).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match client {
        Some(name) => {
            let chain =
                vec![CertificateDer::from_pem_file(file(&format!("{name}.pem"))).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}-key.pem"))).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("key and certificate match")
        }
        None => builder.with_no_client_auth(),
    };
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a session")
}

#[test]
fn first_byte_selects_tls_or_plain_text() {
    let echo = Echo::start(&Tls::from_files(files()).expect("read"), ClientCertificates::Asked);
    let mut plain = echo.connect();
    plain.write_all(b"GET /").expect("sent");
    let mut back = [0; 5];
    plain.read_exact(&mut back).expect("sent back");
    assert_eq!(&back, b"GET /");
    assert_eq!(echo.seen(), Ok(Observed { is_encrypted: false, client: None, end_point: None }));
    echo.greet(None).expect("sent back");
    let certificate = CertificateDer::from_pem_file(file("certificate.pem")).expect("a certificate");
    let hash = Sha256::digest(&certificate).to_vec();
    assert_eq!(echo.seen(), Ok(Observed { is_encrypted: true, client: None, end_point: Some(hash) }));
    echo.end();
}

#[test]
fn slow_reader_receives_all_bytes() {
    const BYTES: usize = 8 << 20;
    let echo = Echo::start(&Tls::from_files(files()).expect("read"), ClientCertificates::Asked);
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let mut socket = echo.connect();
    let mut session = encrypted(None, "certificate.pem");
    while session.is_handshaking() {
        session.complete_io(&mut socket).expect("a handshake");
    }
    // Write until neither side accepts more, then read a little, and repeat.
    socket.set_nonblocking(true).expect("set");
    let (mut written, mut back) = (0, Vec::new());
    let begun = std::time::Instant::now();
    while back.len() < BYTES {
        assert!(begun.elapsed() < TIMEOUT, "{written} were sent and {} came back", back.len());
        let mut has_waited = false;
        while written < BYTES && !has_waited {
            written += session.writer().write(&sent[written..]).expect("written, or the buffer is full");
            match session.write_tls(&mut socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => has_waited = true,
                other => drop(other.expect("sent")),
            }
        }
        while session.wants_write() && session.write_tls(&mut socket).is_ok() {}
        match session.read_tls(&mut socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            read => {
                assert!(read.expect("read") > 0, "closed early");
                let state = session.process_new_packets().expect("valid records");
                let mut bytes = vec![0; state.plaintext_bytes_to_read()];
                session.reader().read_exact(&mut bytes).expect("as many as announced");
                back.extend_from_slice(&bytes);
            }
        }
    }
    assert!(back == sent, "the bytes differ");
    // A poll is counted when it has ended. One more poll makes sure of that.
    echo.lanes.block_on(0, Group::CONTROL, || async {});
    let most = echo.lanes.most_units(0);
    assert!((1..=lanes::UNITS_MAX).contains(&most), "{most} work units without a yield");
    echo.end();
}

#[test]
fn client_certificate_sets_the_client_name() {
    let echo = Echo::start(&with_clients(false), ClientCertificates::Asked);
    echo.greet(Some("client")).expect("sent back");
    assert_eq!(echo.seen().expect("encrypted").client.as_deref(), Some("tls_app"));
    echo.greet(None).expect("sent back");
    assert_eq!(echo.seen().expect("encrypted").client, None);
    // The same name, signed by another authority.
    assert!(echo.greet(Some("stranger")).is_err());
    assert_eq!(echo.seen(), Err(ErrorKind::InvalidData));
    echo.end();
}

#[test]
fn client_certificates_are_required_or_ignored() {
    let required = Echo::start(&with_clients(true), ClientCertificates::Asked);
    assert!(required.greet(None).is_err());
    assert_eq!(required.seen(), Err(ErrorKind::InvalidData));
    required.greet(Some("client")).expect("sent back");
    assert_eq!(required.seen().expect("encrypted").client.as_deref(), Some("tls_app"));
    required.end();
    let ignored = Echo::start(&with_clients(true), ClientCertificates::Ignored);
    ignored.greet(None).expect("sent back");
    assert_eq!(ignored.seen().expect("encrypted").client, None);
    ignored.end();
}

#[test]
fn refused_certificate_is_reported_once_a_second() {
    let tls = with_clients(true);
    let (report, reports) = mpsc::channel();
    tls.on_refused(move |refused| {
        let _ = report.send((refused.client.ip(), refused.reason.to_owned(), refused.unreported));
    });
    let echo = Echo::start(&tls, ClientCertificates::Asked);
    let began = std::time::Instant::now();
    for name in [Some("stranger"), None, Some("stranger")] {
        assert!(echo.greet(name).is_err());
        assert_eq!(echo.seen(), Err(ErrorKind::InvalidData));
    }
    let seconds = began.elapsed().as_secs() as usize;
    echo.end();
    let all: Vec<_> = reports.try_iter().collect();
    assert!((1..=2 + seconds).contains(&all.len()), "{all:?}");
    let (client, reason, unreported) = &all[0];
    assert_eq!((*client, *unreported), (Ipv4Addr::LOCALHOST.into(), 0));
    assert!(reason.contains("certificate"), "{reason}");
    drop(tls);
}

#[test]
fn invalid_handshake_closes_its_connection_only() {
    let echo = Echo::start(&Tls::from_files(files()).expect("read"), ClientCertificates::Asked);
    let nonsense: [&[u8]; 4] =
        [&[0x16; 5000], &[0x16, 3, 1, 0xff, 0xff], &[0x16, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff], &[0x16]];
    for bytes in nonsense {
        let mut socket = echo.connect();
        socket.write_all(bytes).expect("sent");
        // The server may have closed already.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        // An alert, or nothing.
        assert!(answer.first().is_none_or(|&kind| kind == 0x15), "{answer:?}");
        assert!(echo.seen().is_err(), "{bytes:?}");
    }
    echo.greet(None).expect("sent back");
    echo.end();
}

#[test]
fn reloaded_files_apply_to_new_connections() {
    let folder = Folder::empty("tls");
    let put = |from: &str, to: &str| assert!(fs::copy(file(from), folder.join(to)).expect("copied") > 0);
    put("certificate.pem", "now.pem");
    put("key.pem", "now-key.pem");
    let changing =
        TlsFiles { certificate: folder.join("now.pem"), key: folder.join("now-key.pem"), ..files() };
    let tls = Tls::from_files(changing).expect("read");
    let echo = Echo::start(&tls, ClientCertificates::Asked);
    let mut open = StreamOwned::new(encrypted(None, "certificate.pem"), echo.connect());
    open.write_all(b"a").expect("sent");
    open.read_exact(&mut [0]).expect("sent back");
    // Only the key has been replaced.
    put("other-key.pem", "now-key.pem");
    let error = tls.reload().expect_err("key and certificate do not match");
    assert!(error.contains("now-key.pem is not the key of ") && error.ends_with("now.pem"), "{error}");
    echo.greet(None).expect("the former certificate is in use");
    put("other.pem", "now.pem");
    tls.reload().expect("both are there");
    assert!(echo.greet(None).is_err(), "the new certificate is not trusted");
    let mut other = StreamOwned::new(encrypted(None, "other.pem"), echo.connect());
    other.write_all(b"b").expect("sent");
    other.read_exact(&mut [0]).expect("sent back");
    open.write_all(b"c").expect("the open connection continues");
    open.read_exact(&mut [0]).expect("sent back");
    echo.end();
}

#[test]
fn invalid_files_are_named_in_the_error() {
    let refusal = |certificate: &str, key: &str, client_ca: Option<&str>| {
        let client_ca = client_ca.map(file);
        let files = TlsFiles { certificate: file(certificate), key: file(key), client_ca, ..files() };
        Tls::from_files(files).err().unwrap_or_default()
    };
    assert_eq!(refusal("certificate.pem", "key.pem", Some("client-ca.pem")), "");
    let wrong = refusal("certificate.pem", "other-key.pem", None);
    assert!(
        wrong.contains("other-key.pem is not the key of ") && wrong.ends_with("certificate.pem"),
        "{wrong}"
    );
    let missing = refusal("nothing.pem", "key.pem", None);
    assert!(missing.ends_with("nothing.pem as certificate: there is no such file"), "{missing}");
    let swapped = refusal("key.pem", "certificate.pem", None);
    assert!(swapped.ends_with("key.pem as certificate: it has no certificate in PEM"), "{swapped}");
    let keyless = refusal("certificate.pem", "certificate.pem", None);
    assert!(keyless.ends_with("certificate.pem as private key: it has no private key in PEM"), "{keyless}");
    let authority = refusal("certificate.pem", "key.pem", Some("key.pem"));
    assert!(authority.ends_with("key.pem as certificate: it has no certificate in PEM"), "{authority}");
}
