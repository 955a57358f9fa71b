//! One connection: a task that reads frames, hands requests to the session, and writes what was answered, with one
//! read and one write a round. It runs in the `driver` group until the client has authenticated, then in the group of
//! its role's level, which is looked up again for every request.
//!
//! Everything a peer can make wait is bounded: requests in flight, answers it does not read, the frame it is sending.
//! At a bound the socket is not read, so that the peer's own writes wait. An idle connection holds no buffers.

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

/// A round of work on one connection ends after this long, ns: the longest piece of the fast lane.
const ROUND_NS: u64 = 50_000;

/// Room for one read at least, bytes.
const READ_BYTES_MIN: usize = 4096;

/// Work units of a small request, whatever its body: 1 µs.
const REQUEST_UNITS: u32 = 10;
/// Bytes of a body that count as one work unit.
const BYTES_PER_UNIT: u32 = 64;

/// Frames that a client may send before it has authenticated. Drivers send three to six.
const HANDSHAKE_FRAMES_MAX: u32 = 32;

/// Time for a large frame from its header to its last byte. Until then it holds memory that others may need.
const LARGE_FRAME_TIMEOUT: Duration = Duration::from_secs(60);
/// Time that a large frame waits for memory before it is refused.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// After a fatal error the peer's bytes are read and dropped for so long and so many, or the kernel would reset the
/// connection and the peer would lose the message that says why.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 4 << 20;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The peer went away, or the socket failed.
    Gone,
    /// We said why, and close.
    Refused,
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) session: Rc<Session>,
    pub(crate) decoder: Decoder,
    pub(crate) wrong_passwords: u32,
    /// Frames read before authentication.
    handshake_frames: u32,
    pub(crate) slot: Rc<Slot>,
    /// STARTUP has settled the version.
    pub(crate) started: bool,
    stream: ReadHalf,
    input: BytesMut,
    /// When the bytes in `input` were read, ns.
    read_ns: u64,
    /// The last round ended at a bound: whole frames may lie in the input.
    blocked: bool,
    /// The large frame that is coming in.
    coming: Option<Coming>,
}

/// A large frame of which some bytes have arrived.
struct Coming {
    /// The charge for all of them.
    held: Charge,
    /// When its header was read, ns.
    since_ns: u64,
}

/// Takes a session off its core's list, however its task ends.
struct Listed(Rc<Session>);

impl Drop for Listed {
    fn drop(&mut self) {
        let core = &self.0.core;
        self.0.give_up_reads();
        // The socket closes now, and its answers go, whatever still holds the session.
        self.0.output.take();
        self.0.killed.set(true);
        self.0.outbox.take();
        self.0.wake_gated();
        core.sessions.borrow_mut().remove(&self.0.id);
        sub(&core.counters.connections, 1);
    }
}

/// Serves a connection to its end.
pub(crate) async fn serve(core: Rc<Core>, stream: TcpStream, peer: std::net::SocketAddr, slot: Slot) {
    let slot = Rc::new(slot);
    let id = core.next_session.replace(core.next_session.get() + 1);
    // A socket whose options cannot be set is a socket that has failed: the first read says so.
    let _ = stream.set_nodelay(true);
    let session = Session::new(core.clone(), id, peer);
    // One that was on its way from another core while the server began to stop.
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
    // A client that was too slow, or made room for others, is closed without a word.
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
        // A peer that does not take the message in time has had its chance.
        let _ = lanes::time::timeout(LINGER, connection.linger()).await;
    }
}

impl Connection {
    /// Opens the way to the client, encrypted if it begins with a TLS handshake.
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
            coming: None,
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
                        // One that came in several segments without need.
                        self.coming = None;
                        Frame::Whole(envelope)
                    }
                    Decoded::Large(large) => Frame::Parts(large),
                    Decoded::Nothing => {
                        starved = true;
                        break;
                    }
                    Decoded::Chunk => {
                        if self.coming.is_none()
                            && self.decoder.coming_bytes() > 0
                            && let Err(ended) = self.charge_coming().await
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
                    Err(Refused::Hold) => match self.hold(effective).await {
                        Ok(admitted) => admitted,
                        Err(ended) => return ended,
                    },
                    Err(refused) => {
                        self.coming = None;
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
                // The socket may have bytes each time it is asked, so that the wait never waits.
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

    /// Waits until there is something new to work on. A large frame must have come in within [`LARGE_FRAME_TIMEOUT`].
    async fn wait_for_news(&mut self) -> Result<(), Ended> {
        if self.is_blocked() {
            // The server does not read: the frame is not late.
            let news = poll_fn(|cx| self.poll_turn(cx)).await;
            self.coming.iter_mut().for_each(|coming| coming.since_ns = lanes::time::monotonic_ns());
            return news;
        }
        let Some(coming) = &self.coming else { return poll_fn(|cx| self.poll_turn(cx)).await };
        let waited = lanes::time::monotonic_ns().saturating_sub(coming.since_ns);
        let left = LARGE_FRAME_TIMEOUT.saturating_sub(Duration::from_nanos(waited));
        let news = poll_fn(|cx| self.poll_turn(cx));
        match lanes::time::timeout(left, news).await {
            Ok(news) => news,
            Err(_) => {
                let text = format!("A frame did not arrive within {} s", LARGE_FRAME_TIMEOUT.as_secs());
                self.session.refuse(self.decoder.last_stream(), &protocol(&text));
                Err(Ended::Refused)
            }
        }
    }

    /// Charges the large frame that is coming in. Where there is no room, nothing is read for a while, then the frame is
    /// refused, and the connection closed, as the rest of the frame would have to be read.
    async fn charge_coming(&mut self) -> Result<(), Ended> {
        let bytes = self.decoder.coming_bytes() as u64;
        let since_ns = lanes::time::monotonic_ns();
        let mut pause = Duration::from_millis(1);
        loop {
            let charged = self.session.account.borrow().charge(bytes);
            match charged {
                Ok(held) => {
                    self.coming = Some(Coming { held, since_ns });
                    return Ok(());
                }
                Err(full) => {
                    let waited = Duration::from_nanos(lanes::time::monotonic_ns() - since_ns);
                    if waited >= ROOM_TIMEOUT {
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

    /// Begins to work on a large frame, as a task.
    fn work_on_large(&mut self, large: wire::Large, began_ns: u64, admitted: Admitted) {
        let session = &self.session;
        session.core.counters.request(large.opcode());
        Warnings::begin();
        session.client.count();
        let coming = self.coming.take();
        let times = Times { read_ns: self.read_ns, began_ns };
        let inflated = large.bytes() as u64;
        // An inflated body is charged beside the compressed one, which is there until then.
        let charged = session.account.borrow().charge(inflated);
        match charged {
            Ok(held) => {
                let held = [held].into_iter().chain(coming.map(|coming| coming.held)).collect();
                session.begin_long(Frame::Parts(large), held, times, admitted);
            }
            Err(full) => session.refuse(large.stream(), &long::overloaded(full)),
        }
    }

    /// Works on one request; the time after it.
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

    /// Waits until the level's next request may come in. Nothing is read meanwhile: the client's own writes wait.
    async fn hold(&mut self, effective: Rc<Effective>) -> Result<Admitted, Ended> {
        let core = self.session.core.clone();
        loop {
            let mut room = std::pin::pin!(core.admission.request_ended());
            poll_fn(|cx| {
                self.session.set_connection(cx.waker());
                // Asked first: what is answered here may be what makes room.
                let room = room.as_mut().poll(cx);
                self.answer_and_send(cx)?;
                if self.session.killed.get() {
                    return Poll::Ready(Err(Ended::Gone));
                }
                room.map(Ok)
            })
            .await?;
            if let Ok(ticket) = core.admission.admit(&effective) {
                return Ok(Admitted::new(effective, ticket, &self.session));
            }
        }
    }

    /// Whether no further request may begin.
    fn is_blocked(&self) -> bool {
        let session = &self.session;
        let config = &session.core.shared.config;
        session.in_flight.get() >= config.in_flight_max
            || session.is_output_full()
            || session.draining.get()
            || session.killed.get()
    }

    /// Answers a frame that cannot be made sense of.
    pub(crate) fn refuse_frame(&mut self, error: &wire::Error) -> Ended {
        if let wire::Error::UnsupportedVersion(version) = error
            && !self.started
        {
            // In a version that we have, and the nearer one to the peer's.
            let nearest = if *version < Version::V4.number() { Version::V4 } else { Version::V5 };
            self.session.encoder.borrow_mut().set_version(nearest);
        }
        self.session.refuse(self.decoder.last_stream(), &Failure::from(error));
        Ended::Refused
    }

    /// The next frame before authentication. There may be [`HANDSHAKE_FRAMES_MAX`] of them, and the task yields before each.
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
                Ok(None) => poll_fn(|cx| self.poll_turn(cx)).await?,
                Err(error) => return Err(self.refuse_frame(&error)),
            }
        }
    }

    /// Has sent what there is to send, and reads, until there is something new to work on.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
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
            // What decoding left of the last buffer goes back, and may come out again whole.
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
                // What changes something is finished, and answered, should the peer have closed only its own side.
                self.session.draining.set(true);
                self.session.give_up_known_reads();
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
                self.rest_input();
                Poll::Pending
            }
        }
    }

    /// Before a wait: an empty buffer goes back, and a large one with a few bytes is changed for a small one.
    fn rest_input(&mut self) {
        if self.input.is_empty() {
            self.session.core.buffers.give(std::mem::take(&mut self.input));
        } else if self.input.len() < READ_BYTES_MIN / 8 && self.input.capacity() >= BUFFER_BYTES {
            let small = BytesMut::from(&self.input[..]);
            self.session.core.buffers.give(std::mem::replace(&mut self.input, small));
        }
    }

    /// Answers what may be answered by now, and sees to it that it is sent: in a moment, or as the socket takes it where it has
    /// taken too little so far, or where nothing more is to come.
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

    /// Sends everything, or fails.
    pub(crate) async fn flush(&mut self) -> Result<(), Ended> {
        poll_fn(|cx| {
            self.session.answer_acked(cx);
            self.session.send_now(cx)?;
            if self.session.unsent_bytes() == 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Sends the last message and waits until the peer has closed, or has sent enough.
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
        let mut waste = self.session.core.buffers.take();
        while shut.is_ok() && dropped < LINGER_BYTES_MAX {
            waste.clear();
            match self.stream.read_buf(&mut waste).await {
                Ok(n) if n > 0 => dropped += n,
                _ => break,
            }
        }
        self.session.core.buffers.give(waste);
    }
}
