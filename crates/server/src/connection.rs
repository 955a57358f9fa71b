//! One connection: reads frames from its socket and sends answers, for the handshake and for the
//! requests after it.
//!
//! All memory that a peer can make the server hold is bounded: requests in flight, unread answers,
//! and the frame it is sending. At a bound the server stops reading the socket, so that the peer's
//! writes block (backpressure). An idle connection holds no buffers.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use frontdoor::{Charge, ClientCertificates, ConnectionSlot, ReadHalf, Stream};
use lanes::net::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWrite};
use wire::{Decoded, Decoder, Direction, Envelope, Failure, Limits, Version};

use crate::acks::answer_acked;
use crate::arrivals::{Arrivals, Read};
use crate::core::BUFFER_BYTES;
use crate::counters::add;
use crate::failure;
use crate::output::Ended;
use crate::session::{Sending, Session};

/// Minimum free space in the input buffer for one read, bytes.
const READ_BYTES_MIN: usize = 4096;

/// Work units of a small request without its body: 1 µs.
pub(crate) const REQUEST_UNITS: u32 = 10;
/// Bytes of a body that count as one work unit.
pub(crate) const BYTES_PER_UNIT: u32 = 64;

/// Maximum number of frames that a client may send before it has authenticated. Drivers send three
/// to six.
const HANDSHAKE_FRAMES_MAX: u32 = 32;

/// Time limit for a large frame, from its header to its last byte. It holds memory that others may
/// need.
const LARGE_FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a large frame waits for memory before it is refused.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes that are read and dropped after a fatal error.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// A connection.
pub(crate) struct Connection {
    pub(crate) session: Rc<Session>,
    pub(crate) decoder: Decoder,
    pub(crate) wrong_passwords: u32,
    /// Number of frames read before authentication.
    handshake_frames: u32,
    pub(crate) slot: Rc<ConnectionSlot>,
    /// True once STARTUP has fixed the protocol version.
    pub(crate) started: bool,
    stream: ReadHalf,
    pub(crate) input: BytesMut,
    /// Times at which the bytes of `input`, and those in the socket, arrived.
    arrivals: Arrivals,
    /// Time since which the last decoded request waits, ns of the monotonic clock.
    pub(crate) since_ns: u64,
    /// Time at which [`Connection::wait_for_news`] ended, ns of the monotonic clock.
    pub(crate) news_ns: u64,
    /// Bytes of input that the last step of the decoder took.
    pub(crate) taken_bytes: u32,
    /// True if no bytes were left in the socket when the last read was tried.
    waits_for_socket: bool,
    /// True if bytes were left in the socket after the last read.
    has_more: bool,
    /// True if the last round ended at a bound: `input` may contain whole frames.
    blocked: bool,
    /// The large frame that is arriving.
    pub(crate) incoming: Option<IncomingFrame>,
}

/// A large frame of which some bytes have arrived.
pub(crate) struct IncomingFrame {
    /// Charge for the whole frame.
    pub(crate) charge: Charge,
    /// Time when its header was read, ns of the monotonic clock.
    since_ns: u64,
}

impl Connection {
    /// Opens the stream to the client. The stream is encrypted if the client begins with a TLS
    /// handshake.
    pub(crate) async fn open(
        session: Rc<Session>,
        slot: Rc<ConnectionSlot>,
        stream: TcpStream,
    ) -> Result<Connection, Ended> {
        let config = &session.core.shared.config;
        let mut accepting =
            std::pin::pin!(Stream::accept(stream, config.tls.as_ref(), ClientCertificates::Asked));
        let stream = poll_fn(|cx| {
            session.set_connection(cx.waker());
            if session.life.draining.get() || session.life.killed.get() {
                return Poll::Ready(Err(Ended::Gone));
            }
            accepting.as_mut().poll(cx).map_err(|_| Ended::Gone)
        })
        .await?;
        session.client.is_encrypted.set(stream.is_encrypted());
        *session.client.certificate_subject.borrow_mut() = stream.client();
        let (stream, output) = stream.into_split();
        *session.outgoing.socket.borrow_mut() = Some(output);
        let limits = Limits { body_bytes_max: config.handshake_frame_bytes_max };
        Ok(Connection {
            decoder: Decoder::new(Direction::Request, limits),
            session: session.clone(),
            wrong_passwords: 0,
            handshake_frames: 0,
            slot,
            started: false,
            stream,
            input: BytesMut::new(),
            arrivals: Arrivals::new(lanes::time::monotonic_ns()),
            since_ns: 0,
            news_ns: 0,
            taken_bytes: 0,
            waits_for_socket: false,
            has_more: false,
            blocked: false,
            incoming: None,
        })
    }

    /// Waits for new input or for free capacity. A large frame must be complete within
    /// [`LARGE_FRAME_TIMEOUT`].
    pub(crate) async fn wait_for_news(&mut self) -> Result<(), Ended> {
        if self.is_blocked() {
            // The server is not reading, so the frame is not late. Restart its time.
            let news = poll_fn(|cx| self.poll_news(cx)).await;
            self.incoming.iter_mut().for_each(|incoming| incoming.since_ns = lanes::time::monotonic_ns());
            return news;
        }
        let Some(incoming) = &self.incoming else { return poll_fn(|cx| self.poll_news(cx)).await };
        let waited = lanes::time::monotonic_ns().saturating_sub(incoming.since_ns);
        let left = LARGE_FRAME_TIMEOUT.saturating_sub(Duration::from_nanos(waited));
        let news = poll_fn(|cx| self.poll_news(cx));
        match lanes::time::timeout(left, news).await {
            Ok(news) => news,
            Err(_) => {
                let text = format!("A frame did not arrive within {} s", LARGE_FRAME_TIMEOUT.as_secs());
                self.session.refuse(self.decoder.last_stream(), &failure::protocol(&text));
                Err(Ended::Refused)
            }
        }
    }

    /// Charges the large frame that is arriving. Without free memory it stops reading for at most
    /// [`MEMORY_TIMEOUT`]. Then it refuses the frame and closes the connection, because it would
    /// otherwise have to read the rest of the frame.
    pub(crate) async fn charge_incoming(&mut self) -> Result<(), Ended> {
        let bytes = self.decoder.incoming_bytes() as u64;
        let since_ns = lanes::time::monotonic_ns();
        let mut pause = Duration::from_millis(1);
        loop {
            let charged = self.session.account.borrow().charge(bytes);
            match charged {
                Ok(charge) => {
                    self.incoming = Some(IncomingFrame { charge, since_ns });
                    return Ok(());
                }
                Err(full) => {
                    let waited = Duration::from_nanos(lanes::time::monotonic_ns() - since_ns);
                    if waited >= MEMORY_TIMEOUT {
                        self.session.refuse(self.decoder.last_stream(), &failure::out_of_memory(full));
                        return Err(Ended::Refused);
                    }
                }
            }
            let mut sleep = std::pin::pin!(lanes::time::sleep(pause));
            poll_fn(|cx| {
                self.session.set_connection(cx.waker());
                self.answer_and_send(cx)?;
                if self.session.life.killed.get() {
                    return Poll::Ready(Err(Ended::Gone));
                }
                sleep.as_mut().poll(cx).map(Ok)
            })
            .await?;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Waits until the socket may be read again, if a request was refused. Answers are sent
    /// meanwhile. Checks the socket in the middle, see [`Arrivals`]. Does not wait before the
    /// socket is empty: a pause would make old requests older, and all would be refused after it.
    pub(crate) async fn pause(&mut self) -> Result<(), Ended> {
        if self.has_more {
            return Ok(());
        }
        let until_ns = self.session.life.paused_until_ns.take();
        let left_ns = until_ns.saturating_sub(lanes::time::monotonic_ns());
        if left_ns == 0 {
            return Ok(());
        }
        self.send_for(left_ns / 2).await?;
        self.arrivals.check(self.stream.waiting_bytes(), lanes::time::monotonic_ns());
        self.send_for(left_ns - left_ns / 2).await?;
        self.arrivals.nothing_until(lanes::time::monotonic_ns());
        Ok(())
    }

    /// Sends answers for a time, ns, or until the session ends.
    async fn send_for(&self, ns: u64) -> Result<(), Ended> {
        let mut sleep = std::pin::pin!(lanes::time::sleep(Duration::from_nanos(ns)));
        poll_fn(|cx| {
            self.session.set_connection(cx.waker());
            self.answer_and_send(cx)?;
            if self.session.life.killed.get() || self.session.life.draining.get() {
                return Poll::Ready(Ok(()));
            }
            sleep.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Decodes the next step of the input, and notes since when its request waits.
    pub(crate) fn step(&mut self) -> Result<Decoded, wire::Error> {
        let unread = self.input.len();
        let decoded = self.decoder.step(&mut self.input);
        let left = self.input.len();
        self.taken_bytes = unread.saturating_sub(left) as u32;
        // Later messages of a segment of protocol v5 take no input. They have the segment's time.
        if left < unread && matches!(decoded, Ok(Decoded::Envelope(_) | Decoded::Large(_))) {
            self.since_ns = self.arrivals.since_ns(unread, left);
        }
        decoded
    }

    /// Returns true if no further request may begin.
    #[inline(always)]
    pub(crate) fn is_blocked(&self) -> bool {
        let session = &self.session;
        let config = &session.core.shared.config;
        session.requests.in_flight.get() >= config.in_flight_max
            || session.requests.held.is_full(&session.account)
            || session.is_output_full()
            || session.life.draining.get()
            || session.life.killed.get()
    }

    /// Answers a malformed frame with an error.
    pub(crate) fn refuse_frame(&mut self, error: &wire::Error) -> Ended {
        if let wire::Error::UnsupportedVersion(version) = error
            && !self.started
        {
            // Answer in the supported version that is nearest to the peer's.
            let highest =
                self.session.core.front.as_ref().map_or(Version::V5, |front| front.shared().version());
            let nearest = if *version < Version::V4.number() { Version::V4 } else { highest };
            self.session.outgoing.encoder.borrow_mut().set_version(nearest);
        }
        self.session.refuse(self.decoder.last_stream(), &Failure::from(error));
        Ended::Refused
    }

    /// Returns the next frame before authentication. The task yields before each. The connection
    /// ends after [`HANDSHAKE_FRAMES_MAX`] frames.
    pub(crate) async fn next(&mut self) -> Result<Envelope, Ended> {
        lanes::yield_now().await;
        loop {
            match self.decoder.decode(&mut self.input) {
                Ok(Some(envelope)) => {
                    self.session.core.counters.request(envelope.opcode);
                    lanes::spend(REQUEST_UNITS + envelope.body.len() as u32 / BYTES_PER_UNIT);
                    self.handshake_frames += 1;
                    if self.handshake_frames > HANDSHAKE_FRAMES_MAX {
                        let text = format!("More than {HANDSHAKE_FRAMES_MAX} messages before authentication");
                        self.session.refuse(envelope.stream, &failure::protocol(&text));
                        return Err(Ended::Refused);
                    }
                    return Ok(envelope);
                }
                Ok(None) => poll_fn(|cx| self.poll_news(cx)).await?,
                Err(error) => return Err(self.refuse_frame(&error)),
            }
        }
    }

    /// Sends pending answers, then reads until there is new input or free capacity.
    fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        self.session.set_connection(cx.waker());
        if self.is_blocked() {
            self.blocked = true;
            self.end_wait();
        }
        self.answer_and_send(cx)?;
        let session = &self.session;
        if session.life.killed.get() {
            return Poll::Ready(Err(Ended::Gone));
        }
        if session.life.draining.get() {
            let finished = session.requests.in_flight.get() == 0 && session.unsent_bytes() == 0;
            return if finished { Poll::Ready(Err(Ended::Gone)) } else { Poll::Pending };
        }
        if self.is_blocked() {
            return Poll::Pending;
        }
        if std::mem::take(&mut self.blocked) {
            self.news_ns = lanes::time::monotonic_ns();
            return Poll::Ready(Ok(()));
        }
        self.poll_read(cx)
    }

    /// Records that nothing arrived before the task was woken, if it waited for the socket.
    fn end_wait(&mut self) {
        if std::mem::take(&mut self.waits_for_socket) {
            self.arrivals.nothing_until(lanes::ready_since_ns());
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let buffers = &self.session.core.buffers;
        if self.input.is_empty() {
            // Return the rest of the decoded buffer to the pool, which may reclaim its full
            // capacity.
            let rest = std::mem::take(&mut self.input);
            if rest.capacity() > 0 {
                buffers.give(rest);
            }
            self.input = buffers.take();
        } else if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(BUFFER_BYTES);
        }
        let unread = self.input.len();
        let read = {
            let future = std::pin::pin!(self.stream.read_buf(&mut self.input));
            future.poll(cx)
        };
        match read {
            Poll::Ready(Ok(0)) => {
                // The peer may have closed only its sending side: finish and answer its writes.
                self.session.life.draining.set(true);
                self.session.cancel_known_tasks();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Ok(n)) => {
                add(&self.session.core.counters.bytes_in, n as u64);
                let now_ns = lanes::time::monotonic_ns();
                let is_filled = self.input.len() == self.input.capacity();
                // A read of an encrypted connection ends with a record.
                let may_wait = is_filled || self.session.client.is_encrypted.get();
                let waiting = if may_wait { self.stream.waiting_bytes() } else { 0 };
                self.has_more = waiting > 0;
                self.end_wait();
                self.arrivals.read(Read { bytes: n, waiting, unread }, now_ns);
                self.session.life.active_ns.set(now_ns);
                self.news_ns = now_ns;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Ended::Gone)),
            Poll::Pending => {
                // An encrypted connection also yields with bytes that it has decrypted.
                let is_encrypted = self.session.client.is_encrypted.get();
                self.waits_for_socket = !is_encrypted || self.stream.waiting_bytes() == 0;
                self.shrink_input();
                Poll::Pending
            }
        }
    }

    /// Frees buffer memory before a wait. An empty buffer goes back to the pool, and a large buffer
    /// with a few bytes is replaced by a small one.
    fn shrink_input(&mut self) {
        if self.input.is_empty() {
            self.session.core.buffers.give(std::mem::take(&mut self.input));
        } else if self.input.len() < READ_BYTES_MIN / 8 && self.input.capacity() >= BUFFER_BYTES {
            let small = BytesMut::from(&self.input[..]);
            self.session.core.buffers.give(std::mem::replace(&mut self.input, small));
        }
    }

    /// Encodes the answers that are ready and schedules their sending. Sends at once if the socket
    /// has not taken everything so far, if the session drains, or if too much is unsent.
    pub(crate) fn answer_and_send(&self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let session = &self.session;
        answer_acked(session, cx);
        if session.outgoing.sending.get() == Sending::Connection
            || session.life.draining.get()
            || session.is_output_full()
        {
            return session.send_now(cx);
        }
        session.send_soon();
        Ok(())
    }

    /// Sends all answers.
    pub(crate) async fn flush(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| {
            answer_acked(&self.session, cx);
            self.session.send_now(cx)?;
            if self.session.unsent_bytes() == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Sends the last message, then waits until the peer closes or has sent [`LINGER_BYTES_MAX`]
    /// bytes.
    pub(crate) async fn linger(&mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let session = self.session.clone();
        let shut = poll_fn(|cx| match session.outgoing.socket.borrow_mut().as_mut() {
            Some(output) => Pin::new(output).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        })
        .await;
        let mut dropped = 0;
        let mut dropped_bytes = self.session.core.buffers.take();
        while shut.is_ok() && dropped < LINGER_BYTES_MAX {
            dropped_bytes.clear();
            match self.stream.read_buf(&mut dropped_bytes).await {
                Ok(n) if n > 0 => dropped += n,
                _ => break,
            }
        }
        self.session.core.buffers.give(dropped_bytes);
    }
}
