//! The task of one connection: reads frames, passes requests to their stages, and sends the
//! answers. Each round does one read and one write. The task runs in the `driver` group until the
//! client has authenticated. Then it runs in the group of its role's level, which is checked again
//! for every request.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;
use std::time::Duration;

use engine::Warnings;
use frontdoor::ConnectionSlot;
use lanes::net::TcpStream;
use wire::{Decoded, Envelope, Limits};

use workload::{Effective, Entrance, HeldRequest, InFlight, Rejection};

use crate::connection::{BYTES_PER_UNIT, Connection, REQUEST_UNITS};
use crate::counters::{add, sub};
use crate::failure;
use crate::fast::{Fast, Rest, try_fast};
use crate::handshake::handshake;
use crate::output::Ended;
use crate::panics;
use crate::record::record;
use crate::request::{CqlRequest, Frame, INLINE_BYTES, Times};
use crate::session::Session;
use crate::sessions::Sessions;
use crate::slots::is_always_admitted;
use crate::slow::continue_slowly;

/// Work units of a segment, or a chunk of a large frame, apart from its bytes.
const CHUNK_UNITS: u32 = 1;

/// Bytes of a segment that are checked and copied, or inflated, in one work unit. The largest
/// segment, of 128 KiB, takes about 50 µs.
const SEGMENT_BYTES_PER_UNIT: u32 = 256;

/// Maximum length of a round of work on one connection, ns. It bounds the task poll on the fast
/// lane.
const ROUND_NS: u64 = 50_000;

/// Time limit of reading and dropping the peer's bytes after a fatal error. Without this the kernel
/// would reset the connection, and the peer would lose the error message.
const LINGER: Duration = Duration::from_secs(1);

/// Removes a session from its core's list when its task ends in any way.
struct Listed(Rc<Sessions>, Rc<Session>);

impl Drop for Listed {
    fn drop(&mut self) {
        let Listed(sessions, session) = self;
        session.cancel_tasks();
        // Close the socket and free the answers now, even if other tasks still reference the
        // session.
        session.outgoing.socket.take();
        session.life.killed.set(true);
        session.outgoing.outbox.take();
        session.outgoing.charge.take();
        session.outgoing.answered.take();
        session.wake_paused_reads();
        sessions.by_id.borrow_mut().remove(&session.id);
        sub(&session.core.counters.connections, 1);
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(sessions: Rc<Sessions>, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
    let slot = Rc::new(slot);
    let id = sessions.next_id.replace(sessions.next_id.get() + 1);
    // Ignore a failure: the socket has failed then, and the first read reports it.
    let _ = stream.set_nodelay(true);
    let session = Session::new(sessions.core.clone(), id, peer);
    // The server may have begun to stop while the connection was on its way from another core.
    session.life.draining.set(session.core.shared.stopping.load(SeqCst));
    sessions.by_id.borrow_mut().insert(id, session.clone());
    add(&session.core.counters.connections, 1);
    add(&session.core.counters.accepted, 1);
    let login_timeout = session.core.shared.config.handshake_timeout;
    let _listed = Listed(sessions, session.clone());
    let opening = async {
        let mut connection = Connection::open(session, slot.clone(), stream).await?;
        let opened = handshake(&mut connection).await;
        Ok::<_, Ended>((connection, opened))
    };
    // Close without a message a client that was too slow or was evicted in favour of others.
    let Some(Ok((mut connection, opened))) = slot.log_in(login_timeout, opening).await else {
        return;
    };
    let ended = match opened {
        Ok(()) => {
            let body_bytes_max = connection.session.core.shared.config.frame_bytes_max;
            connection.decoder.set_limits(Limits { body_bytes_max });
            connection.decoder.set_inline_max(INLINE_BYTES);
            let Err(ended) = serve_requests(&mut connection).await;
            ended
        }
        Err(ended) => ended,
    };
    if ended == Ended::Refused {
        // Ignore a peer that does not take the message in time.
        let _ = lanes::time::timeout(LINGER, connection.linger()).await;
    }
}

/// Works on requests until the connection ends.
async fn serve_requests(connection: &mut Connection) -> Result<Infallible, Ended> {
    let mut group = lanes::current_group();
    let mut round_ns = lanes::time::monotonic_ns();
    loop {
        let mut now_ns = round_ns;
        let mut starved = false;
        while !connection.is_blocked() {
            let frame = match connection.step() {
                Ok(Decoded::Envelope(envelope)) => {
                    // A small frame that its client sent in several segments.
                    connection.incoming = None;
                    Frame::Whole(envelope)
                }
                Ok(Decoded::Large(large)) => Frame::Parts(large),
                Ok(Decoded::Nothing) => {
                    starved = true;
                    break;
                }
                Ok(Decoded::Chunk) if take_part(connection).await? => break,
                Ok(Decoded::Chunk) => continue,
                Err(error) => return Err(connection.refuse_frame(&error)),
            };
            let effective = connection.session.effective();
            if effective.group() != group {
                group = effective.group();
                lanes::switch_group(group).await;
                now_ns = lanes::time::monotonic_ns();
            }
            let arrived = connection.session.arrived(&effective, connection.since_ns);
            let is_exempt = || is_always_admitted(&connection.session, &frame);
            let admission = &connection.session.core.admission;
            let admitted = match admission.enter(&effective, arrived, now_ns, is_exempt) {
                Entrance::In(admitted) => Ok(admitted),
                Entrance::Refused(rejected) => Err(rejected),
                Entrance::Held(held) => {
                    let admitted = wait_for_admission(connection, held).await?;
                    now_ns = lanes::time::monotonic_ns();
                    admitted
                }
            };
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(rejected) => {
                    refuse(connection, &frame, &effective, rejected, &mut now_ns);
                    if lanes::spend(REQUEST_UNITS) {
                        break;
                    }
                    continue;
                }
            };
            let times = Times { arrived_ns: connection.since_ns, began_ns: now_ns };
            let keyspace = connection.session.keyspace.borrow().clone();
            let request = CqlRequest::new(frame.stream(), times, effective, admitted, keyspace);
            if work_on(connection, frame, request, round_ns, &mut now_ns) {
                break;
            }
        }
        if starved || connection.is_blocked() {
            if connection.session.life.paused_until_ns.get() > 0 {
                connection.pause().await?;
            }
            connection.wait_for_news().await?;
            // The socket may have bytes at every poll, so that this wait returns at once each time.
            round_ns = connection.news_ns;
            if !lanes::should_yield_at(round_ns) {
                continue;
            }
        }
        poll_fn(|cx| Poll::Ready(connection.answer_and_send(cx))).await?;
        lanes::yield_now().await;
        round_ns = lanes::time::monotonic_ns();
    }
}

/// Begins the trace of a request that has been admitted.
#[cold]
fn trace(frame: &Frame, request: &mut CqlRequest) {
    let Times { arrived_ns, began_ns } = request.times;
    request.trace = Some(frame.trace(arrived_ns));
    let (waited_us, level) =
        (began_ns.saturating_sub(arrived_ns) / 1000, request.effective.level.name().clone());
    let core = lanes::current_core();
    request
        .note(|| format!("Admitted by service level {level} on core {core} after a wait of {waited_us} µs"));
}

/// Charges and counts a part of a frame. Returns true if the round is over.
async fn take_part(connection: &mut Connection) -> Result<bool, Ended> {
    if connection.incoming.is_none() && connection.decoder.incoming_bytes() > 0 {
        connection.charge_incoming().await?;
    }
    // A segment may have a single byte: count the bytes that it took.
    Ok(lanes::spend(CHUNK_UNITS + connection.taken_bytes / SEGMENT_BYTES_PER_UNIT))
}

/// Works on a frame and sets the time after it, ns. Returns true if the round that began at
/// `round_ns` is over.
fn work_on(
    connection: &mut Connection,
    frame: Frame,
    mut request: CqlRequest,
    round_ns: u64,
    now_ns: &mut u64,
) -> bool {
    // In front of a cluster, its nodes trace.
    if frame.is_traced() && connection.session.core.front.is_none() {
        trace(&frame, &mut request);
    }
    match frame {
        Frame::Whole(envelope) => {
            *now_ns = work_on_small(&connection.session, &envelope, request);
            let spent = lanes::spend(REQUEST_UNITS + envelope.body.len() as u32 / BYTES_PER_UNIT);
            spent || *now_ns - round_ns >= ROUND_NS
        }
        Frame::Parts(large) => {
            work_on_large(connection, large, request);
            lanes::spend(REQUEST_UNITS)
        }
    }
}

/// Works on one request. Returns the time after it, ns.
fn work_on_small(session: &Rc<Session>, envelope: &Envelope, request: CqlRequest) -> u64 {
    session.core.counters.request(envelope.opcode);
    session.client.count();
    session.warm_output();
    Warnings::begin();
    let fast = lanes::catch_panic_in(|| try_fast(session, envelope, request, None));
    let fast = fast.unwrap_or_else(|panicked| {
        session.refuse(envelope.stream, &panics::failure(panicked));
        Fast::Unrecorded
    });
    match fast {
        Fast::Unrecorded => lanes::time::monotonic_ns(),
        Fast::Answered(mut request) => {
            let ended_ns = lanes::time::monotonic_ns();
            record(session, &mut request, ended_ns);
            ended_ns
        }
        Fast::Slow(request, rest) => {
            continue_slowly(session, Some(envelope), request, rest);
            lanes::time::monotonic_ns()
        }
    }
}

/// Starts a task for a large frame.
fn work_on_large(connection: &mut Connection, large: wire::LargeEnvelope, mut request: CqlRequest) {
    let session = &connection.session;
    session.core.counters.request(large.opcode());
    Warnings::begin();
    session.client.count();
    let incoming = connection.incoming.take();
    // Charge an inflated body with the compressed one: both exist while it is inflated.
    let charged = session.account.borrow().charge(large.bytes() as u64);
    match charged {
        Ok(charge) => {
            request.memory.charges =
                [charge].into_iter().chain(incoming.map(|incoming| incoming.charge)).collect();
            continue_slowly(session, None, request, Rest::Opening(Frame::Parts(large)));
        }
        Err(full) => session.refuse(large.stream(), &failure::out_of_memory(full)),
    }
}

/// Refuses a request, and pauses its connection. Charges the CPU time of the refusal, which began
/// at `now_ns`, to the refusals of the level, and sets `now_ns` to its end.
#[cold]
fn refuse(
    connection: &mut Connection,
    frame: &Frame,
    effective: &Effective,
    rejected: Rejection,
    now_ns: &mut u64,
) {
    connection.incoming = None;
    *now_ns = connection.session.refuse_admission(frame.stream(), effective, rejected, *now_ns);
}

/// Waits until the level admits or refuses the next request. Nothing is read meanwhile, so that the
/// client's writes block.
async fn wait_for_admission(
    connection: &Connection,
    mut held: HeldRequest,
) -> Result<Result<InFlight, Rejection>, Ended> {
    let session = &connection.session;
    poll_fn(|cx| {
        session.set_connection(cx.waker());
        // Poll this first: an answer given below may free capacity.
        let admitted = held.as_mut().poll(cx);
        connection.answer_and_send(cx)?;
        if session.life.killed.get() {
            return Poll::Ready(Err(Ended::Gone));
        }
        admitted.map(Ok)
    })
    .await
}
