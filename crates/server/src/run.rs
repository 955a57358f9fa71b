//! Runs requests of authenticated sessions through their stages: decode, authorize, slot, execute,
//! reply, record.
//!
//! A request is answered at once if this core can answer it from memory, before the connection
//! reads the next request. Local writes wait for the disk in the session's queue (`acks`). All
//! other requests continue as tasks in the level's group, which this file starts: a task answers,
//! or passes the request to the stages again. Every request has a time limit. Answers may overtake
//! each other: each carries the stream number of its request.

use std::rc::Rc;

use engine::{Error, Outcome, Warnings};
use wire::{Envelope, Failure, FailureKind, Request};
use workload::{Refused, Waiting};

use crate::acks::answer_when_acked;
use crate::answers::answer_and_record;
use crate::batch::{execute_batch, execute_long_batch};
use crate::bind::{bind_envelope, renew_executed};
use crate::decode::{Decoded, decode};
use crate::execute::{execute, execute_in_level};
use crate::failure;
use crate::logging::{FieldValue, Level};
use crate::long::{Limits, Opened, Texts, open};
use crate::options;
use crate::panics;
use crate::pending::{PendingResult, Step, Wait};
use crate::prepare::prepare;
use crate::record::{record, record_envelope};
use crate::request::{CqlRequest, Frame, PendingAnswer, WAITING_BYTES, detached};
use crate::session::Session;
use crate::statement::{Bound, Kind};
use crate::tasks::Running;
use crate::watch::watched;

/// Works on a request whose text the heavy lane may have bound already (`bound`). Returns it if it
/// is to be recorded now.
pub(crate) fn run(
    session: &Rc<Session>,
    envelope: &Envelope,
    request: CqlRequest,
    bound: Option<Bound>,
) -> Option<CqlRequest> {
    match stages(session, envelope, request, bound) {
        Ok(step) => proceed(session, envelope, step),
        Err(failure) => {
            session.refuse(envelope.stream, &failure);
            None
        }
    }
}

/// Decodes a request and passes it to the stages of its kind.
fn stages(
    session: &Rc<Session>,
    envelope: &Envelope,
    mut request: CqlRequest,
    bound: Option<Bound>,
) -> Result<Step, Failure> {
    match decode(session, envelope, &mut request, bound)? {
        Decoded::Statement(params) => return Ok(execute_in_level(session, envelope, &params, request)),
        Decoded::Batch(batch) => return Ok(execute_batch(session, envelope, &batch, request)),
        Decoded::Long => return Ok(Step::Long(request)),
        Decoded::Prepare(message, bound) => {
            let keyspace = request.keyspace_of(message.keyspace);
            prepare(session, envelope, &message, keyspace.as_ref(), bound)?;
        }
        Decoded::Register(types) => options::register(session, request.stream, &types)?,
        Decoded::Options => options::supported(session, request.stream),
    }
    Ok(Step::Unrecorded)
}

/// Continues a request after its stages on this task poll. Returns it if it is to be recorded now.
fn proceed(session: &Rc<Session>, envelope: &Envelope, step: Step) -> Option<CqlRequest> {
    match step {
        Step::Answered(request) => return Some(request),
        Step::Unrecorded => {}
        Step::Long(request) => run_long(session, Frame::Whole(detached(envelope)), request),
        Step::OtherLevel(mut request) => {
            request.hold(session, envelope);
            run_in_other_level(session, detached(envelope), request);
        }
        Step::Slot(waiting, request) => run_with_slot(session, waiting, detached(envelope), request),
        Step::Later(mut pending, wait) => {
            pending.request.hold(session, envelope);
            match wait {
                Wait::Ack(write) => answer_when_acked(session, pending, write),
                Wait::Result(later) => answer_later(session, pending, later),
            }
        }
    }
    None
}

/// Starts a task for a long request. It opens the request on the heavy lane.
pub(crate) fn run_long(session: &Rc<Session>, frame: Frame, mut request: CqlRequest) {
    let (session, owner) = (session.clone(), session);
    let (group, stream) = (request.effective.group(), frame.stream());
    if let Frame::Whole(envelope) = &frame {
        let charged = session.account.borrow().charge((envelope.body.len() + WAITING_BYTES) as u64);
        match charged {
            Ok(charge) => request.charges.push(charge),
            Err(full) => return session.refuse(stream, &failure::out_of_memory(full)),
        }
    }
    let running = Running {
        stream,
        statement: None,
        effective: request.effective.clone(),
        since_ns: request.times.arrived_ns,
        waits: false,
        reads: None,
    };
    let key = session.cancellable_tasks.borrow_mut().reserve();
    session.begin();
    let work = async move {
        let limits = Limits::of(&session, &request);
        let opening = Warnings::collect(Warnings::NONE, open(frame, limits));
        let opened = lanes::catch_panic(lanes::heavy(group, opening)).await;
        let opened = opened.map_err(panics::failure).and_then(|(opened, warnings)| {
            warnings.give();
            opened
        });
        // From here on the kind of the request decides if the end of the connection cancels it.
        session.cancellable_tasks.borrow_mut().done(key);
        match opened {
            Ok(opened) => run_opened(&session, opened, request).await,
            Err(failure) => session.refuse(stream, &failure),
        }
    };
    let work = Warnings::within(Warnings::take(), work);
    let task = lanes::spawn(group, owner.clone().guarded(stream, work));
    owner.cancellable_tasks.borrow_mut().store(key, task, running);
}

/// Runs a long request that the heavy lane has opened, and records it.
async fn run_opened(session: &Rc<Session>, opened: Opened, mut request: CqlRequest) {
    let Opened { envelope, texts, trees, id, batch } = opened;
    request.charges.extend(trees);
    session.warm_output();
    request.times.began_ns = lanes::time::monotonic_ns();
    let bound = match texts {
        Texts::Batch(texts) => {
            let place = batch.expect("a BATCH has its place");
            let step = execute_long_batch(session, (&envelope, &place), texts, request).await;
            if let Some(request) = proceed(session, &envelope, step) {
                record_envelope(session, request, &envelope, lanes::time::monotonic_ns());
            }
            return;
        }
        Texts::None => renew_executed(&session.core, &envelope).await.map(|()| None),
        Texts::One(parsed) => bind_envelope(session, &envelope, &request, *parsed).await.map(|mut bound| {
            bound.id = id;
            Some(bound)
        }),
    };
    match bound {
        Ok(bound) => run_and_record(session, &envelope, request, bound),
        Err(failure) => session.refuse(envelope.stream, &failure),
    }
}

fn run_and_record(session: &Rc<Session>, envelope: &Envelope, request: CqlRequest, bound: Option<Bound>) {
    if let Some(request) = run(session, envelope, request, bound) {
        record_envelope(session, request, envelope, lanes::time::monotonic_ns());
    }
}

/// Starts a task for a statement that specifies another level. It waits until that level admits it.
fn run_in_other_level(session: &Rc<Session>, envelope: Envelope, mut request: CqlRequest) {
    let (session, owner) = (session.clone(), session);
    let (group, stream) = (request.effective.group(), envelope.stream);
    session.begin();
    let work = async move {
        let admission = &session.core.admission;
        let mut began_ns = lanes::time::monotonic_ns();
        let arrived = session.arrived(&request.effective, request.times.arrived_ns);
        let admitted = match admission.admit(&request.effective, arrived, began_ns) {
            Ok(admitted) => Ok(admitted),
            Err(Refused::Hold) => {
                let admitted = admission.hold(&request.effective, arrived).await;
                began_ns = lanes::time::monotonic_ns();
                admitted
            }
            Err(Refused::Overloaded(rejected)) => Err(rejected),
        };
        request.admitted = match admitted {
            Ok(admitted) => Some(admitted),
            Err(rejected) => {
                session.refuse_admission(stream, &request.effective, rejected, began_ns);
                return;
            }
        };
        let params = match envelope.request() {
            Ok(Request::Execute(execute)) => execute.params,
            Ok(Request::Query(query)) => query.params,
            _ => unreachable!("the envelope was read as one of these before"),
        };
        request.times.began_ns = lanes::time::monotonic_ns();
        let step = execute(&session, &envelope, &params, request);
        if let Some(request) = proceed(&session, &envelope, step) {
            record(&session, request, lanes::time::monotonic_ns());
        }
    };
    let work = Warnings::within(Warnings::take(), work);
    lanes::spawn(group, owner.clone().guarded(stream, work)).detach();
}

/// Starts a task for a request in the wait queue, so that the connection's other requests continue.
/// It runs the request once it has its slot. The end of the connection cancels it.
fn run_with_slot(session: &Rc<Session>, waiting: Waiting, envelope: Envelope, mut request: CqlRequest) {
    let (session, owner) = (session.clone(), session);
    let (group, stream) = (request.effective.group(), envelope.stream);
    let running = Running {
        stream,
        statement: request.statement.clone(),
        effective: request.effective.clone(),
        since_ns: request.times.arrived_ns,
        waits: true,
        reads: None,
    };
    let key = session.cancellable_tasks.borrow_mut().reserve();
    session.begin();
    let work = async move {
        let slot = waiting.await;
        // From here on the kind of the request decides if the end of the connection cancels it.
        session.cancellable_tasks.borrow_mut().done(key);
        request.times.began_ns = lanes::time::monotonic_ns();
        match slot {
            Ok(slot) => {
                session.warm_output();
                request.slot = Some(slot);
                run_and_record(&session, &envelope, request, None);
            }
            Err(refused) => session.refuse(stream, &Failure::new(FailureKind::Overloaded, refused.0)),
        }
    };
    let work = Warnings::within(Warnings::take(), work);
    let task = lanes::spawn(group, owner.clone().guarded(stream, work));
    owner.cancellable_tasks.borrow_mut().store(key, task, running);
}

/// Starts a task that gives an answer when its result is available or its time limit is over.
fn answer_later(session: &Rc<Session>, mut pending: PendingAnswer, mut later: PendingResult) {
    let (session, owner) = (session.clone(), session);
    session.begin();
    let warnings = pending.warnings;
    let request = &pending.request;
    let (group, kind) = (request.effective.group(), request.kind());
    let (is_read, is_cancellable) = (kind == Kind::Read, kind.is_cancellable());
    let key = is_cancellable.then(|| session.cancellable_tasks.borrow_mut().reserve());
    let running = Running {
        stream: request.stream,
        statement: request.statement.clone(),
        effective: request.effective.clone(),
        since_ns: request.times.began_ns,
        waits: false,
        reads: later.reads().cloned(),
    };
    let work = async move {
        let watch = pending.request.watch().filter(|_| is_read);
        let waited = match watch {
            Some(watch) => watched(&session, watch, (&mut pending.request, key), &mut later).await,
            None => lanes::time::timeout(pending.request.limit, &mut later).await,
        };
        match waited {
            Ok(result) => {
                // Free the memory charged for the answer: the answer is charged again when it is
                // encoded.
                drop(later);
                update_grants(&session, &result).await;
                answer_or_rerun(&session, pending, result);
                session.end();
            }
            Err(_) => {
                let error = failure::timed_out(pending.request.kind(), pending.request.limit);
                // Work that continues after the answer keeps its slot and its memory.
                let _slot = pending.request.slot.take();
                let _charges = std::mem::take(&mut pending.request.charges);
                answer_or_rerun(&session, pending, Err(error));
                session.end();
                if !is_cancellable {
                    update_grants(&session, &later.await).await;
                }
            }
        }
        key.inspect(|key| session.cancellable_tasks.borrow_mut().done(*key));
    };
    let task = lanes::spawn(group, Warnings::within(warnings, work));
    match key {
        Some(key) => owner.cancellable_tasks.borrow_mut().store(key, task, running),
        None => task.detach(),
    }
}

/// Answers a pending request. If the schema has changed while it waited, binds its text to the new
/// schema and runs it again. That run is the last one if it waits too.
fn answer_or_rerun(session: &Rc<Session>, mut pending: PendingAnswer, result: Result<Outcome, Error>) {
    if let (Err(Error::Stale), Some(envelope)) = (&result, pending.rerun.take()) {
        if let Some(request) = run(session, &envelope, pending.request, None) {
            record(session, request, lanes::time::monotonic_ns());
        }
        return;
    }
    answer_and_record(session, pending.request, result, lanes::time::monotonic_ns());
}

/// Updates the grants after a schema change, even if the client has disconnected.
async fn update_grants(session: &Session, result: &Result<Outcome, Error>) {
    let (Ok(Outcome::SchemaChange(change)), Some(login)) = (result, session.login()) else { return };
    // The schema change stands even if the grants fail. The client is answered with success, and
    // the failure is logged.
    if let Err(error) = session.core.access.schema_changed(&login, change).await {
        let (logger, what) = (&session.core.shared.logger, "grants do not follow the schema");
        logger.log(
            Level::Error,
            what,
            &[("keyspace", FieldValue::text(&change.keyspace)), ("error", FieldValue::text(&error))],
        );
    }
}
