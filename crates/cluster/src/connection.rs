//! One connection to a node: sends requests, and matches answers to them by stream.
//!
//! Requests are written into one buffer, which is sent when the group pauses (`lanes::defer`), so
//! that many requests need one write. A task reads the answers.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use frontdoor::{ReadHalf, WriteHalf};
use lanes::sync::Notify;
use lanes::sync::oneshot::Receiver;
use lanes::{DeferredWork, Group};
use tokio::io::AsyncReadExt;
use wire::{Decoded, Decoder, Encoder, Envelope, Flags, Opcode, Request, ResultKind, Version};

use crate::Refusal;
use crate::memory::{AnswerCharge, AnswerMemory};
use crate::node::Place;
use crate::streams::{Answered, Streams};
use crate::tls::NodeTls;

/// Bytes of requests that wait for a node to read them. Beyond it, requests of clients wait with
/// their places until half of them were read, or the connection ends.
const UNSENT_BYTES_MAX: usize = 4 << 20;

/// Capacity of the input buffer, bytes.
const INPUT_BYTES: usize = 64 << 10;

/// Silence after which a node with requests in flight is asked for a sign of life, and time limit
/// of that sign. Then the connection is closed, and its requests are lost.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Silence after which a node without requests in flight is asked.
const IDLE_SILENCE_MAX: Duration = Duration::from_secs(30);

/// Bytes of an answer that is not charged: as much as one segment of protocol v5, so that none of
/// one segment is copied. A connection holds at most one such answer that is not complete.
pub(crate) const SMALL_BYTES_MAX: usize = 128 << 10;

/// Work units of one answer without its body: 0.5 µs.
const ANSWER_UNITS: u32 = 5;
/// Bytes of an answer that count as one work unit.
const BYTES_PER_UNIT: u32 = 1024;

/// Encryption of a connection, and place of its answers.
#[derive(Clone)]
pub(crate) struct Reading {
    /// Group in which they are read.
    pub(crate) group: Rc<Cell<Group>>,
    /// Memory for large ones.
    pub(crate) memory: Arc<AnswerMemory>,
    /// `None`: plain text.
    pub(crate) tls: Option<Arc<NodeTls>>,
}

/// Received bytes of a connection.
pub(crate) struct Incoming {
    pub(crate) reader: ReadHalf,
    pub(crate) decoder: Decoder,
    pub(crate) input: BytesMut,
    pub(crate) memory: Arc<AnswerMemory>,
    /// Charge of the large answer that is being received.
    pub(crate) charge: Option<AnswerCharge>,
}

/// A connection that has been opened and authenticated.
pub(crate) struct NodeConnection {
    pub(crate) node: SocketAddr,
    version: Version,
    encoder: RefCell<Encoder>,
    /// `None` once the connection is closed.
    socket: RefCell<Option<Rc<WriteHalf>>>,
    streams: RefCell<Streams>,
    /// True while the buffer waits to be sent.
    is_sending: Cell<bool>,
    is_closed: Cell<bool>,
    /// Wakes requests that wait for the node to read others: at most as many as the windows of a
    /// node have places.
    room: Notify,
    /// Time of the last request, ns of the monotonic clock.
    used_ns: Cell<u64>,
    /// Time of the last bytes from the node, ns of the monotonic clock.
    heard_ns: Cell<u64>,
    /// Time at which they woke the task that reads, ns of the monotonic clock. The wait for the
    /// CPU of the front comes after it, and is no time of the node.
    arrived_ns: Cell<u64>,
    /// True while a sign of life is expected.
    is_asked: Cell<bool>,
}

impl NodeConnection {
    /// Takes over an opened socket, and starts to read answers in a group that may change.
    pub(crate) fn start(
        node: SocketAddr,
        encoder: Encoder,
        socket: WriteHalf,
        incoming: Incoming,
        group: Rc<Cell<Group>>,
    ) -> Rc<NodeConnection> {
        let connection = Rc::new(NodeConnection {
            node,
            version: encoder.version(),
            encoder: RefCell::new(encoder),
            socket: RefCell::new(Some(Rc::new(socket))),
            streams: RefCell::default(),
            is_sending: Cell::new(false),
            is_closed: Cell::new(false),
            room: Notify::new(),
            used_ns: Cell::new(lanes::time::monotonic_ns()),
            heard_ns: Cell::new(lanes::time::monotonic_ns()),
            arrived_ns: Cell::new(0),
            is_asked: Cell::new(false),
        });
        let spawn_in = group.get();
        lanes::spawn(spawn_in, connection.clone().read(incoming, group)).detach();
        connection
    }

    /// Returns true if a request may be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.get()
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.streams.borrow().in_flight()
    }

    /// Asks a node that was silent for [`SILENCE_MAX`] for a sign of life, if requests wait for it,
    /// or it was silent for long. Returns false if it was asked before, and has not answered.
    fn is_alive(self: &Rc<Self>) -> bool {
        if self.is_asked.get() {
            return false;
        }
        let silence_ns = lanes::time::monotonic_ns().saturating_sub(self.heard_ns.get());
        if self.in_flight() == 0 && u128::from(silence_ns) < IDLE_SILENCE_MAX.as_nanos() {
            return true;
        }
        self.is_asked.set(true);
        // It is no use of the connection.
        let used_ns = self.used_ns.get();
        let asked = self.ask(&Request::Options);
        self.used_ns.set(used_ns);
        asked.is_ok()
    }

    /// Returns the time of the last request, ns of the monotonic clock.
    pub(crate) fn used_ns(&self) -> u64 {
        self.used_ns.get()
    }

    /// Sends a message whose body is copied, once the node has read enough of those before.
    /// `place` is kept until its answer comes.
    ///
    /// # Errors
    /// [`Refusal::Unsent`]: the connection is closed or has no free stream, or the body is too
    /// long.
    pub(crate) async fn send(
        self: &Rc<Self>,
        opcode: Opcode,
        flags: Flags,
        body: &[u8],
        place: Place,
    ) -> Result<Receiver<Answered>, Refusal> {
        while self.is_open() && self.encoder.borrow().pending() > UNSENT_BYTES_MAX {
            self.room.notified().await;
        }
        self.write(Some(place), |encoder, stream| encoder.relay(stream, opcode, flags, body))
    }

    /// Sends a message of the front itself, beside the window. Errors are those of
    /// [`NodeConnection::send`].
    pub(crate) fn ask(self: &Rc<Self>, request: &Request<'_>) -> Result<Receiver<Answered>, Refusal> {
        self.write(None, |encoder, stream| encoder.request(stream, request))
    }

    /// Sends a message that `write` encodes.
    fn write(
        self: &Rc<Self>,
        place: Option<Place>,
        write: impl FnOnce(&mut Encoder, i16) -> Result<(), wire::Error>,
    ) -> Result<Receiver<Answered>, Refusal> {
        if self.is_closed.get() {
            return Err(Refusal::Unsent(format!("the connection to the node {} was lost", self.node)));
        }
        let mut encoder = self.encoder.borrow_mut();
        let full = || Refusal::Unsent(format!("all streams to the node {} are in use", self.node));
        let (stream, receiver) = self.streams.borrow_mut().take(place).ok_or_else(full)?;
        if let Err(error) = write(&mut encoder, stream) {
            let unsent = self.streams.borrow_mut().answered(stream);
            unsent.iter().flat_map(|unsent| &unsent.place).for_each(|place| place.set_used(false));
            return Err(Refusal::Unsent(format!("the request cannot be passed on: {error}")));
        }
        drop(encoder);
        self.used_ns.set(lanes::time::monotonic_ns());
        if !self.is_sending.replace(true) {
            lanes::defer(self.clone());
        }
        Ok(receiver)
    }

    /// Sends the buffer as far as the socket takes it, at most what one task poll should write.
    /// Returns true if all was sent.
    fn send_now(&self) -> std::io::Result<bool> {
        let Some(socket) = self.socket.borrow().clone() else {
            return Err(std::io::ErrorKind::NotConnected.into());
        };
        self.streams.borrow_mut().written(lanes::time::monotonic_ns());
        let mut encoder = self.encoder.borrow_mut();
        let out = encoder.finish();
        let mut left = socket.round_bytes_max();
        while !out.is_empty() && left > 0 {
            let round = left.min(out.len());
            match socket.try_write(&out[..round]) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes::Buf::advance(out, n);
                    left -= n;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if out.len() <= UNSENT_BYTES_MAX / 2 {
            self.room.notify_waiters();
        }
        Ok(out.is_empty())
    }

    /// Sends the rest of the buffer, as the socket takes it.
    async fn send_rest(self: Rc<Self>) {
        loop {
            let socket = self.socket.borrow().clone();
            let Some(socket) = socket else { return };
            // Looks from time to time whether the connection was closed.
            match lanes::time::timeout(SILENCE_MAX, socket.writable()).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(_)) => return self.close(),
            }
            drop(socket);
            match self.send_now() {
                Ok(true) => return self.is_sending.set(false),
                Ok(false) => {}
                Err(_) => return self.close(),
            }
            lanes::yield_now().await;
        }
    }

    /// Reads answers until the connection ends, in a group that may change.
    async fn read(self: Rc<Self>, mut incoming: Incoming, group: Rc<Cell<Group>>) {
        while self.read_some(&mut incoming).await.is_some() {
            if group.get() != lanes::current_group() {
                lanes::switch_group(group.get()).await;
            }
        }
        self.close();
    }

    /// Passes on the answers that have arrived, then waits for more. `None`: the connection ended.
    async fn read_some(self: &Rc<Self>, incoming: &mut Incoming) -> Option<()> {
        loop {
            let envelope = match incoming.decoder.step(&mut incoming.input).ok()? {
                Decoded::Nothing => break,
                Decoded::Chunk => {
                    self.charge(incoming);
                    if lanes::spend(1) {
                        lanes::yield_now().await;
                    }
                    continue;
                }
                Decoded::Envelope(envelope) => envelope,
                Decoded::Large(large) => {
                    let assemble = async move { large.assemble() };
                    let mut envelope = lanes::heavy(lanes::current_group(), assemble).await.ok()?;
                    if let Some(charge) = incoming.charge.take() {
                        envelope.body = charge.attach(envelope.body);
                    }
                    envelope
                }
            };
            let units = ANSWER_UNITS + envelope.body.len() as u32 / BYTES_PER_UNIT;
            self.answered(envelope);
            if lanes::spend(units) {
                lanes::yield_now().await;
            }
        }
        if self.is_closed.get() {
            return None;
        }
        incoming.input.reserve(INPUT_BYTES);
        let reading = incoming.reader.read_buf(&mut incoming.input);
        match lanes::time::timeout(SILENCE_MAX, reading).await {
            Ok(Ok(n)) if n > 0 => {
                self.heard_ns.set(lanes::time::monotonic_ns());
                self.arrived_ns.set(lanes::ready_since_ns());
                self.is_asked.set(false);
                Some(())
            }
            Ok(_) => None,
            Err(_) => self.is_alive().then_some(()),
        }
    }

    /// Charges a large answer when its first part has arrived. If it does not fit, its request is
    /// refused, and the rest of the answer is dropped as it arrives.
    fn charge(&self, incoming: &mut Incoming) {
        let Incoming { decoder, memory, charge, .. } = incoming;
        let bytes = decoder.incoming_bytes();
        if bytes <= SMALL_BYTES_MAX || charge.is_some() || decoder.is_skipping() {
            return;
        }
        *charge = memory.charge(bytes as u64);
        if charge.is_none() {
            decoder.skip_incoming();
            let refusal = Refusal::NoMemory(format!(
                "an answer of {bytes} bytes does not fit the memory for large answers of nodes ({} bytes)",
                memory.bytes_max()
            ));
            let waiting = self.streams.borrow_mut().answered(decoder.last_stream());
            waiting.into_iter().for_each(|waiting| drop(waiting.sender.send(Err(refusal.clone()))));
        }
    }

    /// Passes an answer on to its request.
    fn answered(&self, answer: Envelope) {
        let waiting = self.streams.borrow_mut().answered(answer.stream);
        if answer.result_kind() == Some(ResultKind::SetKeyspace) {
            // Other clients share the connection: they must not use that keyspace.
            self.close();
        }
        if let Some(waiting) = waiting {
            waiting.place.iter().for_each(|place| place.count(&answer, self.arrived_ns.get()));
            // Ignore the answer of a request that was cancelled.
            let _ = waiting.sender.send(Ok(answer));
        }
    }

    /// Closes the connection. Requests in flight are lost.
    pub(crate) fn close(&self) {
        if self.is_closed.replace(true) {
            return;
        }
        // Taken out first: an answer wakes its request.
        let waiting = self.streams.borrow_mut().take_all();
        for request in waiting {
            let _ = request.sender.send(Err(Refusal::Lost(self.node)));
        }
        // The node then closes its side, which ends the task that reads.
        self.socket.take().into_iter().for_each(|socket| socket.close());
        if let Ok(mut encoder) = self.encoder.try_borrow_mut() {
            encoder.finish().clear();
        }
        self.room.notify_waiters();
    }

    /// Returns the version of the protocol.
    pub(crate) fn version(&self) -> Version {
        self.version
    }
}

impl DeferredWork for NodeConnection {
    fn run_deferred(self: Rc<Self>) {
        match self.send_now() {
            Ok(true) => self.is_sending.set(false),
            Ok(false) => lanes::spawn(lanes::current_group(), self.send_rest()).detach(),
            Err(_) => self.close(),
        }
    }
}
