//! A connection, encrypted or not: of a client to this server, or of this server to a node.
//!
//! Handshakes run on the heavy lane, because a signature takes 1 ms of CPU time. Records are
//! encrypted and decrypted on the fast lane, at most [`RECORDS_BYTES_MAX`] at a time.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use lanes::Group;
use lanes::net::{Interest, OwnedReadHalf, OwnedWriteHalf, TcpStream};
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::certificate::common_name;
use crate::client::TlsClient;
use crate::tls::Tls;

/// Bytes encrypted at a time: two records, about 30 µs.
const RECORDS_BYTES_MAX: usize = 32 << 10;

/// First byte of a TLS connection: the type of a record with a handshake message. No other protocol
/// of this server begins with it.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Interval of the check for the end of an encrypted connection with unread bytes.
const CLOSED_CHECK: Duration = Duration::from_secs(1);

/// Client certificates at a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// Requested, if the configured files contain an authority.
    Asked,
    /// Never requested, for health checks and metrics.
    Ignored,
}

/// A connection.
pub enum Stream {
    /// Plain text.
    Plain(TcpStream),
    /// TLS, after the handshake.
    Encrypted(Box<Encrypted>),
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted() { "Stream(TLS)" } else { "Stream(plain)" })
    }
}

impl Stream {
    /// Accepts a connection that begins with TLS or not, by its first byte. Without `tls` it stays
    /// in plain text.
    ///
    /// # Errors
    /// Those of [`Stream::encrypted`].
    pub async fn accept(
        tcp: TcpStream,
        tls: Option<&Tls>,
        certificates: ClientCertificates,
    ) -> io::Result<Stream> {
        let Some(tls) = tls else { return Ok(Stream::Plain(tcp)) };
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if first[0] == HANDSHAKE_RECORD {
            Stream::encrypted(tcp, tls, certificates).await
        } else {
            Ok(Stream::Plain(tcp))
        }
    }

    /// Accepts a connection that begins with a TLS handshake. Expensive steps run on the heavy lane
    /// in group `driver`. Dropping the future closes the connection.
    ///
    /// # Errors
    /// The client disconnected, or the handshake failed. The client has received an alert with the
    /// reason.
    pub async fn encrypted(
        tcp: TcpStream,
        tls: &Tls,
        certificates: ClientCertificates,
    ) -> io::Result<Stream> {
        let server = tls.current();
        let config = match certificates {
            ClientCertificates::Asked => server.config.clone(),
            ClientCertificates::Ignored => server.anonymous.clone(),
        };
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        let session = match handshake(&tcp, session.into()).await {
            Ok(session) => session,
            Err(error) => {
                let reason = error.get_ref().and_then(|reason| reason.downcast_ref());
                if let (Some(reason), Ok(client)) = (reason, tcp.peer_addr()) {
                    tls.refused(client, reason);
                }
                return Err(error);
            }
        };
        let certificate = session.peer_certificates().and_then(|chain| chain.first()).cloned();
        let client = match certificate {
            Some(certificate) => lanes::heavy_urgent(Group::DRIVER, async move { common_name(&certificate) })
                .await
                .map(Arc::from),
            None => None,
        };
        let end_point = server.end_point.clone();
        Ok(Stream::Encrypted(Box::new(Encrypted::new(tcp, session, client, end_point))))
    }

    /// Encrypts a connection to the server at an address, for which its certificate must be valid.
    /// Expensive steps run on the heavy lane in group `driver`. The time is not bounded here.
    ///
    /// # Errors
    /// The server disconnected, or the handshake failed: [`handshake_failure`] returns the reason.
    pub async fn connect(tcp: TcpStream, tls: &TlsClient, server: IpAddr) -> io::Result<Stream> {
        let session = ClientConnection::new(tls.config().clone(), server.into()).map_err(io::Error::other)?;
        let session = handshake(&tcp, session.into()).await?;
        Ok(Stream::Encrypted(Box::new(Encrypted::new(tcp, session, None, None))))
    }

    /// Returns true for an encrypted connection.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Encrypted(_))
    }

    /// Returns the common name of the client's certificate. `None`: there is no certificate.
    #[must_use]
    pub fn client(&self) -> Option<Arc<str>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Encrypted(encrypted) => encrypted.client.clone(),
        }
    }

    /// Returns the hash of the server's certificate for channel binding of type
    /// `tls-server-end-point`. `None`: the connection is not encrypted, or the certificate has no
    /// such hash.
    #[must_use]
    pub fn end_point(&self) -> Option<Arc<[u8]>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Encrypted(encrypted) => encrypted.end_point.clone(),
        }
    }

    /// Waits until the client closes its side. In plain text, this never returns if the client has
    /// sent unread bytes.
    pub async fn closed(&self) {
        match self {
            Stream::Plain(tcp) => match tcp.peek(&mut [0]).await {
                Ok(0) | Err(_) => {}
                Ok(_) => std::future::pending().await,
            },
            // A close_notify record comes before the end, and is indistinguishable from data while
            // encrypted.
            Stream::Encrypted(encrypted) => loop {
                match encrypted.tcp.ready(Interest::READABLE).await {
                    Ok(ready) if !ready.is_read_closed() => lanes::time::sleep(CLOSED_CHECK).await,
                    _ => return,
                }
            },
        }
    }

    /// Splits the connection into two halves for one task of one core.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Stream::Plain(tcp) => {
                let (read, write) = tcp.into_split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Stream::Encrypted(encrypted) => {
                let shared = Rc::new(RefCell::new(*encrypted));
                (ReadHalf::Encrypted(shared.clone()), WriteHalf::Encrypted(shared))
            }
        }
    }
}

/// Completes a handshake.
///
/// # Errors
/// The peer disconnected. Or the handshake failed: the error contains that of the TLS library, and
/// the peer has received an alert with the reason.
async fn handshake(tcp: &TcpStream, session: Connection) -> io::Result<Box<Connection>> {
    let mut session = Box::new(session);
    session.set_buffer_limit(Some(RECORDS_BYTES_MAX));
    while session.is_handshaking() || session.wants_write() {
        if session.wants_write() {
            tcp.writable().await?;
            match session.write_tls(&mut Socket(tcp)) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => continue,
            }
        }
        tcp.readable().await?;
        match session.read_tls(&mut Socket(tcp)) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        let work = async move {
            let processed = session.process_new_packets().map(drop);
            (session, processed)
        };
        let processed;
        (session, processed) = lanes::heavy_urgent(Group::DRIVER, work).await;
        if let Err(error) = processed {
            // Send the alert, if the socket accepts it.
            let _ = session.write_tls(&mut Socket(tcp));
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
    }
    Ok(session)
}

/// Readable half of a connection.
pub enum ReadHalf {
    /// Plain text.
    Plain(OwnedReadHalf),
    /// TLS.
    Encrypted(Rc<RefCell<Encrypted>>),
}

/// Writable half of a connection. After `WouldBlock`, call again with the same bytes or more.
pub enum WriteHalf {
    /// Plain text.
    Plain(OwnedWriteHalf),
    /// TLS.
    Encrypted(Rc<RefCell<Encrypted>>),
}

impl fmt::Debug for ReadHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadHalf")
    }
}

impl fmt::Debug for WriteHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteHalf")
    }
}

impl ReadHalf {
    /// Returns the number of bytes that have arrived and were not read; 0 if the kernel returns an
    /// error. Encrypted bytes count with the overhead of their records.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let (decrypted, waiting) = match self {
            ReadHalf::Plain(read) => (0, rustix::io::ioctl_fionread(read.as_ref())),
            ReadHalf::Encrypted(encrypted) => {
                let encrypted = encrypted.borrow();
                (encrypted.decrypted, rustix::io::ioctl_fionread(&encrypted.tcp))
            }
        };
        decrypted + waiting.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0))
    }
}

impl WriteHalf {
    /// Writes as many bytes as the socket accepts now.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it accepts none, and other errors of the socket.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WriteHalf::Plain(write) => write.try_write(bytes),
            WriteHalf::Encrypted(encrypted) => match encrypted.borrow_mut().write(bytes, |_| Poll::Pending) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// Waits until the socket accepts more bytes. One task at a time may wait.
    ///
    /// # Errors
    /// Those of the socket.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            WriteHalf::Plain(write) => write.writable().await,
            WriteHalf::Encrypted(encrypted) => {
                std::future::poll_fn(|cx| encrypted.borrow().tcp.poll_write_ready(cx)).await
            }
        }
    }

    /// Closes the writable side, before it is dropped. The peer then closes its own, which ends the
    /// readable half.
    pub fn close(&self) {
        match self {
            // Dropping it closes that side.
            WriteHalf::Plain(_) => {}
            WriteHalf::Encrypted(encrypted) => {
                let mut encrypted = encrypted.borrow_mut();
                encrypted.session.send_close_notify();
                // Send close_notify, if the socket accepts it.
                let _ = encrypted.push(|_| Poll::Pending);
                let mut cx = Context::from_waker(Waker::noop());
                let _ = Pin::new(&mut encrypted.tcp).poll_shutdown(&mut cx);
            }
        }
    }

    /// Returns the most bytes that one task poll should write. Copying or encrypting them takes
    /// about 50 µs.
    #[must_use]
    pub fn round_bytes_max(&self) -> usize {
        match self {
            WriteHalf::Plain(_) => 256 << 10,
            WriteHalf::Encrypted(_) => RECORDS_BYTES_MAX,
        }
    }
}

/// A TLS connection after its handshake.
pub struct Encrypted {
    tcp: TcpStream,
    session: Box<Connection>,
    /// Bytes that are decrypted and were not read.
    decrypted: usize,
    /// Bytes that are encrypted but not reported as written, because the socket did not accept them
    /// all.
    accepted: usize,
    /// True if the next write waits for the next task poll, because this one has used its work
    /// units.
    yields_next: bool,
    client: Option<Arc<str>>,
    end_point: Option<Arc<[u8]>>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Encrypted {
    fn new(
        tcp: TcpStream,
        session: Box<Connection>,
        client: Option<Arc<str>>,
        end_point: Option<Arc<[u8]>>,
    ) -> Encrypted {
        Encrypted { tcp, session, decrypted: 0, accepted: 0, yields_next: false, client, end_point }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut reader = self.session.reader();
            match reader.fill_buf() {
                Ok(decrypted) => {
                    let bytes = decrypted.len().min(buf.remaining());
                    buf.put_slice(&decrypted[..bytes]);
                    reader.consume(bytes);
                    self.decrypted = self.decrypted.saturating_sub(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client closed the socket without close_notify. All protocols of this server
                // send lengths, so that a truncated message is detected.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.tcp.poll_read_ready(cx))?;
            let read = match self.session.read_tls(&mut Socket(&self.tcp)) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let processed = self.session.process_new_packets();
            if self.session.wants_write() {
                // For instance the answer to a key update. The rest is sent with the next write.
                let _ = self.push(|_| Poll::Pending);
            }
            match processed {
                Ok(state) => self.decrypted = state.plaintext_bytes_to_read(),
                Err(error) => return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error))),
            }
            // Records without content may arrive without end.
            if lanes::spend_bytes(read) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Writes encrypted bytes to the socket. Calls `blocked` when it accepts no more.
    fn push(&mut self, mut blocked: impl FnMut(&TcpStream) -> Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.tcp)) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(blocked(&self.tcp))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts bytes and writes them to the socket. They count as written once the socket has
    /// accepted them all.
    fn write(
        &mut self,
        bytes: &[u8],
        mut blocked: impl FnMut(&TcpStream) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.push(&mut blocked))?;
            if self.accepted > 0 || bytes.is_empty() {
                let written = self.accepted.min(bytes.len());
                self.accepted -= written;
                return Poll::Ready(Ok(written));
            }
            self.accepted = self.session.writer().write(&bytes[..bytes.len().min(RECORDS_BYTES_MAX)])?;
            if self.accepted == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A socket that accepts everything would never yield.
        if std::mem::take(&mut self.yields_next) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(self.write(bytes, |tcp| tcp.poll_write_ready(cx)))?;
        self.yields_next = lanes::spend_bytes(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.push(|tcp| tcp.poll_write_ready(cx))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.send_close_notify();
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        // Send close_notify, if the socket accepts it.
        self.session.send_close_notify();
        let _ = self.push(|_| Poll::Pending);
    }
}

/// Nonblocking socket for the TLS library.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buf)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Stream::Encrypted(encrypted) => encrypted.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Encrypted(encrypted) => encrypted.poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Encrypted(encrypted) => encrypted.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Encrypted(encrypted) => encrypted.poll_shutdown(cx),
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Plain(read) => Pin::new(read).poll_read(cx, buf),
            ReadHalf::Encrypted(encrypted) => encrypted.borrow_mut().poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            WriteHalf::Plain(write) => Pin::new(write).poll_write(cx, bytes),
            WriteHalf::Encrypted(encrypted) => encrypted.borrow_mut().poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WriteHalf::Plain(write) => Pin::new(write).poll_flush(cx),
            WriteHalf::Encrypted(encrypted) => encrypted.borrow_mut().poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WriteHalf::Plain(write) => Pin::new(write).poll_shutdown(cx),
            WriteHalf::Encrypted(encrypted) => encrypted.borrow_mut().poll_shutdown(cx),
        }
    }
}
