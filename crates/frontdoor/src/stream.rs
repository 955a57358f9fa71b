//! A client's connection, encrypted or not.
//!
//! Handshakes run on the heavy lane: a signature takes a millisecond of CPU time. Records are
//! encrypted and decrypted on the fast lane, at most [`RECORDS_BYTES_MAX`] at once.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lanes::Group;
use lanes::net::{Interest, OwnedReadHalf, OwnedWriteHalf, TcpStream};
use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::certificate::common_name;
use crate::tls::Tls;

/// Bytes that are encrypted at once: two records. Takes about 30 µs.
const RECORDS_BYTES_MAX: usize = 32 << 10;

/// The first byte of a TLS connection: a record with a handshake message. No other protocol of this
/// server begins with it.
const HANDSHAKE_RECORD: u8 = 0x16;

/// Interval at which an encrypted connection with unread bytes is checked for its end.
const CLOSED_CHECK: Duration = Duration::from_secs(1);

/// Treatment of client certificates by a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientCertificates {
    /// As the files' settings say.
    Asked,
    /// Never: for health checks and metrics.
    Ignored,
}

/// A connection.
pub enum Stream {
    /// In plain text.
    Plain(TcpStream),
    /// Over TLS, after the handshake.
    Encrypted(Box<Encrypted>),
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_encrypted() { "Stream(TLS)" } else { "Stream(plain)" })
    }
}

impl Stream {
    /// Takes a connection whose client decides about encryption by its first byte. Without `tls` it
    /// stays as it is.
    ///
    /// # Errors
    /// As [`Stream::encrypted`].
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

    /// Takes a connection whose client is about to begin a handshake. What needs CPU time runs on
    /// the heavy lane in group `driver`. May be dropped, which ends the connection.
    ///
    /// # Errors
    /// The client went away, or the handshake failed; the client has been told why.
    pub async fn encrypted(
        tcp: TcpStream,
        tls: &Tls,
        certificates: ClientCertificates,
    ) -> io::Result<Stream> {
        let certificate = tls.current();
        let config = match certificates {
            ClientCertificates::Asked => certificate.config.clone(),
            ClientCertificates::Ignored => certificate.anonymous.clone(),
        };
        let mut session = Box::new(ServerConnection::new(config).map_err(io::Error::other)?);
        session.set_buffer_limit(Some(RECORDS_BYTES_MAX));
        while session.is_handshaking() || session.wants_write() {
            if session.wants_write() {
                tcp.writable().await?;
                match session.write_tls(&mut Socket(&tcp)) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    _ => continue,
                }
            }
            tcp.readable().await?;
            match session.read_tls(&mut Socket(&tcp)) {
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
                // A message that says why, if the socket takes it.
                let _ = session.write_tls(&mut Socket(&tcp));
                return Err(io::Error::new(ErrorKind::InvalidData, error));
            }
        }
        let proof = session.peer_certificates().and_then(|chain| chain.first()).cloned();
        let client = match proof {
            Some(proof) => {
                lanes::heavy_urgent(Group::DRIVER, async move { common_name(&proof) }).await.map(Arc::from)
            }
            None => None,
        };
        let end_point = certificate.end_point.clone();
        Ok(Stream::Encrypted(Box::new(Encrypted {
            tcp,
            session,
            accepted: 0,
            rests: false,
            client,
            end_point,
        })))
    }

    /// Returns true for an encrypted connection.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Encrypted(_))
    }

    /// The common name in the client's certificate, where it has given one.
    #[must_use]
    pub fn client(&self) -> Option<Arc<str>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Encrypted(encrypted) => encrypted.client.clone(),
        }
    }

    /// The hash of the server's certificate that channel binding of type `tls-server-end-point`
    /// takes. `None` without encryption, and for certificates that have no such hash.
    #[must_use]
    pub fn end_point(&self) -> Option<Arc<[u8]>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Encrypted(encrypted) => encrypted.end_point.clone(),
        }
    }

    /// Returns when the client has closed its side. In plain text never if it has sent something
    /// meanwhile.
    pub async fn closed(&self) {
        match self {
            Stream::Plain(tcp) => match tcp.peek(&mut [0]).await {
                Ok(0) | Err(_) => {}
                Ok(_) => std::future::pending().await,
            },
            // Ahead of the end comes a record that says so, and looks like any other.
            Stream::Encrypted(encrypted) => loop {
                match encrypted.tcp.ready(Interest::READABLE).await {
                    Ok(ready) if !ready.is_read_closed() => lanes::time::sleep(CLOSED_CHECK).await,
                    _ => return,
                }
            },
        }
    }

    /// Makes two of it, for one task of one core.
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

/// The side of a connection that is read.
pub enum ReadHalf {
    /// In plain text.
    Plain(OwnedReadHalf),
    /// Over TLS.
    Encrypted(Rc<RefCell<Encrypted>>),
}

/// The side of a connection that is written to. Whoever had to wait in a write calls again with the
/// same bytes, or more.
pub enum WriteHalf {
    /// In plain text.
    Plain(OwnedWriteHalf),
    /// Over TLS.
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

impl WriteHalf {
    /// Writes what the socket takes now.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] where it takes nothing; what the socket says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            WriteHalf::Plain(write) => write.try_write(bytes),
            WriteHalf::Encrypted(encrypted) => match encrypted.borrow_mut().write(bytes, |_| Poll::Pending) {
                Poll::Ready(written) => written,
                Poll::Pending => Err(ErrorKind::WouldBlock.into()),
            },
        }
    }

    /// The most bytes that one round of writing should take: copying or encrypting them takes about
    /// 50 µs.
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
    session: Box<ServerConnection>,
    /// Bytes that were encrypted, and that the caller does not know of yet: it was told to wait,
    /// as the socket did not take them all.
    accepted: usize,
    /// The next write waits for the task's next poll: this one has worked enough.
    rests: bool,
    client: Option<Arc<str>>,
    end_point: Option<Arc<[u8]>>,
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

impl Encrypted {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut reader = self.session.reader();
            match reader.fill_buf() {
                Ok(decrypted) => {
                    let bytes = decrypted.len().min(buf.remaining());
                    buf.put_slice(&decrypted[..bytes]);
                    reader.consume(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client closed the socket without a word. Messages of all protocols here have a
                // length, so that nothing passes for whole.
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
                // Such as the answer to a change of keys. What does not fit goes with the next write.
                let _ = self.push(|_| Poll::Pending);
            }
            if let Err(error) = processed {
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, error)));
            }
            // Records may come without end, and without content.
            if lanes::spend_bytes(read) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Gives the socket what was encrypted. `blocked` is asked where it takes no more.
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

    /// Encrypts bytes and gives them to the socket. They count as written when it has taken them all.
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
        // A socket that takes everything would never wait.
        if std::mem::take(&mut self.rests) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let written = ready!(self.write(bytes, |tcp| tcp.poll_write_ready(cx)))?;
        self.rests = lanes::spend_bytes(written);
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
        // Says that nothing follows, if the socket takes it.
        self.session.send_close_notify();
        let _ = self.push(|_| Poll::Pending);
    }
}

/// A socket as the TLS library reads and writes it, without waiting.
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
