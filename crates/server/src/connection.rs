//! One connection: a task that reads frames, passes requests to the session, and sends the answers.
//! Each round does one read and one write. The task runs in the `driver` group until the client has
//! authenticated. Then it runs in the group of its role's level, which is checked again for every
//! request.
//!
//! All memory that a peer can make the server hold is bounded: requests in flight, unread answers,
//! and the frame it is sending. At a bound the server stops reading the socket, so that the peer's
//! writes block (backpressure). An idle connection holds no buffers.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use engine::Warnings;
use frontdoor::{Charge, ClientCertificates, ReadHalf, Slot, Stream};
use lanes::net::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWrite};
use wire::{CHUNK_BYTES, Decoded, Decoder, Direction, Envelope, Failure, Limits, Version};

use workload::{Effective, Refused};

use crate::core::{BUFFER_BYTES, Core};
use crate::counters::{add, sub};
use crate::long::{self, Frame, INLINE_BYTES};
use crate::output::Sending;
use crate::panics;
use crate::request::{Admitted, Times, overloaded, protocol};
use crate::session::Session;

/// Maximum length of a round of work on one connection, ns. It bounds the task poll on the fast
/// lane.
const ROUND_NS: u64 = 50_000;

/// Minimum free space in the input buffer for one read, bytes.
const READ_BYTES_MIN: usize = 4096;

/// Work units of a small request without its body: 1 µs.
const REQUEST_UNITS: u32 = 10;
/// Bytes of a body that count as one work unit.
const BYTES_PER_UNIT: u32 = 64;

/// Maximum number of frames that a client may send before it has authenticated. Drivers send three
/// to six.
const HANDSHAKE_FRAMES_MAX: u32 = 32;

/// Time limit for a large frame, from its header to its last byte. It holds memory that others may
/// need.
const LARGE_FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a large frame waits for memory before it is refused.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits, in time and bytes, of reading and dropping the peer's bytes after a fatal error. Without
/// this the kernel would reset the connection, and the peer would lose the error message.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 4 << 20;

/// Reason for the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The peer closed, or the socket failed.
    Gone,
    /// The server sent an error and closes.
    Refused,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) session: Rc<Session>,
    pub(crate) decoder: Decoder,
    pub(crate) wrong_passwords: u32,
    /// Number of frames read before authentication.
    handshake_frames: u32,
    pub(crate) slot: Rc<Slot>,
    /// True once STARTUP has fixed the protocol version.
    pub(crate) started: bool,
    stream: ReadHalf,
    input: BytesMut,
    /// Time of the last read into `input`, ns of the monotonic clock.
    read_ns: u64,
    /// True if the last round ended at a bound: `input` may contain whole frames.
    blocked: bool,
    /// The large frame that is arriving.
    incoming: Option<IncomingFrame>,
}

/// A large frame of which some bytes have arrived.
struct IncomingFrame {
    /// Charge for the whole frame.
    charge: Charge,
    /// Time when its header was read, ns of the monotonic clock.
    since_ns: u64,
}

/// Removes a session from its core's list when its task ends in any way.
struct Listed(Rc<Session>);

impl Drop for Listed {
    fn drop(&mut self) {
        let core = &self.0.core;
        self.0.cancel_tasks();
        // Close the socket and free the answers now, even if other tasks still reference the
        // session.
        self.0.output.take();
        self.0.killed.set(true);
        self.0.outbox.take();
        self.0.wake_paused_reads();
        core.sessions.borrow_mut().remove(&self.0.id);
        sub(&core.counters.connections, 1);
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(core: Rc<Core>, stream: TcpStream, peer: std::net::SocketAddr, slot: Slot) {
    let slot = Rc::new(slot);
    let id = core.next_session.replace(core.next_session.get() + 1);
    // Ignore a failure: the socket has failed then, and the first read reports it.
    let _ = stream.set_nodelay(true);
    let session = Session::new(core.clone(), id, peer);
    // The server may have begun to stop while the connection was on its way from another core.
    session.draining.set(core.shared.stopping.load(SeqCst));
    core.sessions.borrow_mut().insert(id, session.clone());
    add(&core.counters.connections, 1);
    add(&core.counters.accepted, 1);
    let _listed = Listed(session.clone());
    let config = &core.shared.config;
    let opening = async {
        let mut connection = Connection::open(session, slot.clone(), stream).await?;
        let opened = connection.handshake().await;
        Ok::<_, Ended>((connection, opened))
    };
    // Close without a message a client that was too slow or was evicted in favour of others.
    let Some(Ok((mut connection, opened))) = slot.log_in(config.handshake_timeout, opening).await else {
        return;
    };
    let ended = match opened {
        Ok(()) => {
            connection.decoder.set_limits(Limits { body_bytes_max: config.frame_bytes_max });
            connection.decoder.set_inline_max(INLINE_BYTES);
            connection.serve_requests().await
        }
        Err(ended) => ended,
    };
    if ended == Ended::Refused {
        // Ignore a peer that does not take the message in time.
        let _ = lanes::time::timeout(LINGER, connection.linger()).await;
    }
}

impl Connection {
    /// Opens the stream to the client. The stream is encrypted if the client begins with a TLS
    /// handshake.
    async fn open(session: Rc<Session>, slot: Rc<Slot>, stream: TcpStream) -> Result<Connection, Ended> {
        let config = &session.core.shared.config;
        let mut accepting =
            std::pin::pin!(Stream::accept(stream, config.tls.as_ref(), ClientCertificates::Asked));
        let stream = poll_fn(|cx| {
            session.set_connection(cx.waker());
            if session.draining.get() || session.killed.get() {
                return Poll::Ready(Err(Ended::Gone));
            }
            accepting.as_mut().poll(cx).map_err(|_| Ended::Gone)
        })
        .await?;
        session.client.is_encrypted.set(stream.is_encrypted());
        *session.client.certificate_subject.borrow_mut() = stream.client();
        let (stream, output) = stream.into_split();
        *session.output.borrow_mut() = Some(output);
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
            read_ns: 0,
            blocked: false,
            incoming: None,
        })
    }

    /// Works on requests until the connection ends.
    async fn serve_requests(&mut self) -> Ended {
        let mut group = lanes::current_group();
        loop {
            let round_ns = lanes::time::monotonic_ns();
            let mut now_ns = round_ns;
            let mut starved = false;
            while !self.is_blocked() {
                let decoded = match self.decoder.step(&mut self.input) {
                    Ok(decoded) => decoded,
                    Err(error) => return self.refuse_frame(&error),
                };
                let frame = match decoded {
                    Decoded::Envelope(envelope) => {
                        // A small frame that its client sent in several segments.
                        self.incoming = None;
                        Frame::Whole(envelope)
                    }
                    Decoded::Large(large) => Frame::Parts(large),
                    Decoded::Nothing => {
                        starved = true;
                        break;
                    }
                    Decoded::Chunk => {
                        if self.incoming.is_none()
                            && self.decoder.coming_bytes() > 0
                            && let Err(ended) = self.charge_incoming().await
                        {
                            return ended;
                        }
                        if lanes::spend_bytes(CHUNK_BYTES) {
                            break;
                        }
                        continue;
                    }
                };
                let stream = frame.stream();
                let effective = self.session.effective();
                if effective.group() != group {
                    group = effective.group();
                    lanes::switch_group(group).await;
                    now_ns = lanes::time::monotonic_ns();
                }
                let admitted = match self.session.core.admission.admit(&effective) {
                    Ok(ticket) => Admitted::new(effective, ticket, &self.session),
                    Err(Refused::Hold) => match self.wait_for_admission(effective).await {
                        Ok(admitted) => admitted,
                        Err(ended) => return ended,
                    },
                    Err(refused) => {
                        self.incoming = None;
                        self.session.refuse(stream, &overloaded(refused));
                        if lanes::spend(REQUEST_UNITS) {
                            break;
                        }
                        continue;
                    }
                };
                match frame {
                    Frame::Whole(envelope) => {
                        now_ns = self.work_on(&envelope, now_ns, admitted);
                        let spent = lanes::spend(REQUEST_UNITS + envelope.body.len() as u32 / BYTES_PER_UNIT);
                        if spent || now_ns - round_ns >= ROUND_NS {
                            break;
                        }
                    }
                    Frame::Parts(large) => {
                        self.work_on_large(large, now_ns, admitted);
                        if lanes::spend(REQUEST_UNITS) {
                            break;
                        }
                    }
                }
            }
            if starved || self.is_blocked() {
                if let Err(ended) = self.wait_for_news().await {
                    return ended;
                }
                // The socket may have bytes at every poll, so that this wait returns at once each
                // time.
                if !lanes::should_yield() {
                    continue;
                }
            }
            if let Err(ended) = poll_fn(|cx| Poll::Ready(self.answer_and_send(cx))).await {
                return ended;
            }
            lanes::yield_now().await;
        }
    }

    /// Waits for new input or for free capacity. A large frame must be complete within
    /// [`LARGE_FRAME_TIMEOUT`].
    async fn wait_for_news(&mut self) -> Result<(), Ended> {
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
                self.session.refuse(self.decoder.last_stream(), &protocol(&text));
                Err(Ended::Refused)
            }
        }
    }

    /// Charges the large frame that is arriving. Without free memory it stops reading for at most
    /// [`MEMORY_TIMEOUT`]. Then it refuses the frame and closes the connection, because it would
    /// otherwise have to read the rest of the frame.
    async fn charge_incoming(&mut self) -> Result<(), Ended> {
        let bytes = self.decoder.coming_bytes() as u64;
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
                        self.session.refuse(self.decoder.last_stream(), &long::overloaded(full));
                        return Err(Ended::Refused);
                    }
                }
            }
            let mut sleep = std::pin::pin!(lanes::time::sleep(pause));
            poll_fn(|cx| {
                self.session.set_connection(cx.waker());
                self.answer_and_send(cx)?;
                if self.session.killed.get() {
                    return Poll::Ready(Err(Ended::Gone));
                }
                sleep.as_mut().poll(cx).map(Ok)
            })
            .await?;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Starts a task for a large frame.
    fn work_on_large(&mut self, large: wire::Large, began_ns: u64, admitted: Admitted) {
        let session = &self.session;
        session.core.counters.request(large.opcode());
        Warnings::begin();
        session.client.count();
        let incoming = self.incoming.take();
        let times = Times { read_ns: self.read_ns, began_ns };
        let inflated = large.bytes() as u64;
        // Charge an inflated body beside the compressed one: both exist while it is inflated.
        let charged = session.account.borrow().charge(inflated);
        match charged {
            Ok(charge) => {
                let charges = [charge].into_iter().chain(incoming.map(|incoming| incoming.charge)).collect();
                session.begin_long(Frame::Parts(large), charges, times, admitted);
            }
            Err(full) => session.refuse(large.stream(), &long::overloaded(full)),
        }
    }

    /// Works on one request. Returns the time after it, ns.
    fn work_on(&mut self, envelope: &Envelope, began_ns: u64, admitted: Admitted) -> u64 {
        let session = &self.session;
        session.core.counters.request(envelope.opcode);
        session.client.count();
        session.warm_output();
        let times = Times { read_ns: self.read_ns, began_ns };
        Warnings::begin();
        let done = lanes::catch_panic_in(|| session.request(envelope, times, admitted));
        let done = done.unwrap_or_else(|panicked| {
            session.refuse(envelope.stream, &panics::failure(panicked));
            None
        });
        let ended_ns = lanes::time::monotonic_ns();
        if let Some(done) = done {
            session.record_envelope(done, times, envelope, ended_ns);
        }
        ended_ns
    }

    /// Waits until the level admits the next request. Nothing is read meanwhile, so that the
    /// client's writes block.
    async fn wait_for_admission(&mut self, effective: Rc<Effective>) -> Result<Admitted, Ended> {
        let core = self.session.core.clone();
        loop {
            let mut request_ended = std::pin::pin!(core.admission.request_ended());
            poll_fn(|cx| {
                self.session.set_connection(cx.waker());
                // Poll this first: an answer given below may free capacity.
                let request_ended = request_ended.as_mut().poll(cx);
                self.answer_and_send(cx)?;
                if self.session.killed.get() {
                    return Poll::Ready(Err(Ended::Gone));
                }
                request_ended.map(Ok)
            })
            .await?;
            if let Ok(ticket) = core.admission.admit(&effective) {
                return Ok(Admitted::new(effective, ticket, &self.session));
            }
        }
    }

    /// Returns true if no further request may begin.
    fn is_blocked(&self) -> bool {
        let session = &self.session;
        let config = &session.core.shared.config;
        session.in_flight.get() >= config.in_flight_max
            || session.is_output_full()
            || session.draining.get()
            || session.killed.get()
    }

    /// Answers a malformed frame with an error.
    pub(crate) fn refuse_frame(&mut self, error: &wire::Error) -> Ended {
        if let wire::Error::UnsupportedVersion(version) = error
            && !self.started
        {
            // Answer in the supported version that is nearest to the peer's.
            let nearest = if *version < Version::V4.number() { Version::V4 } else { Version::V5 };
            self.session.encoder.borrow_mut().set_version(nearest);
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
                        self.session.refuse(envelope.stream, &protocol(&text));
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
        }
        self.answer_and_send(cx)?;
        let session = &self.session;
        if session.killed.get() {
            return Poll::Ready(Err(Ended::Gone));
        }
        if session.draining.get() {
            let finished = session.in_flight.get() == 0 && session.unsent_bytes() == 0;
            return if finished { Poll::Ready(Err(Ended::Gone)) } else { Poll::Pending };
        }
        if self.is_blocked() {
            return Poll::Pending;
        }
        if std::mem::take(&mut self.blocked) {
            return Poll::Ready(Ok(()));
        }
        self.poll_read(cx)
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
        let read = {
            let future = std::pin::pin!(self.stream.read_buf(&mut self.input));
            future.poll(cx)
        };
        match read {
            Poll::Ready(Ok(0)) => {
                // The peer may have closed only its sending side: finish and answer its writes.
                self.session.draining.set(true);
                self.session.cancel_known_tasks();
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Ok(n)) => {
                add(&self.session.core.counters.bytes_in, n as u64);
                self.read_ns = lanes::time::monotonic_ns();
                self.session.active_ns.set(self.read_ns);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Ended::Gone)),
            Poll::Pending => {
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
    fn answer_and_send(&self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let session = &self.session;
        session.answer_acked(cx);
        if session.sending.get() == Sending::Connection || session.draining.get() || session.is_output_full()
        {
            return session.send_now(cx);
        }
        session.send_soon();
        Ok(())
    }

    /// Sends all answers.
    pub(crate) async fn flush(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| {
            self.session.answer_acked(cx);
            self.session.send_now(cx)?;
            if self.session.unsent_bytes() == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Sends the last message, then waits until the peer closes or has sent [`LINGER_BYTES_MAX`]
    /// bytes.
    async fn linger(&mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let session = self.session.clone();
        let shut = poll_fn(|cx| match session.output.borrow_mut().as_mut() {
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
