//! The task of a request that memory could not answer at once.
//!
//! It does what the request waits for, then continues as far as memory suffices (`try_fast`), until
//! the request is answered:
//!
//! 1. *Opening*: the heavy lane assembles a large frame, and parses and binds a long text.
//! 2. *Other level*: the level that the statement names admits it.
//! 3. *Slot*: a level with `max_concurrency` has a place for it.
//! 4. *Result*: the engine has read from disk or from other cores, or has written there. If the
//!    schema has changed meanwhile, the text is bound anew and the request runs again.
//!
//! Every request has a time limit. Answers may overtake each other: each carries the stream number
//! of its request. The end of the connection cancels requests that are being opened or wait for a
//! slot, and reads.

use std::rc::Rc;

use engine::{Error, StatementOutcome, Warnings};
use wire::{Envelope, Failure, FailureKind, Request};
use workload::{Entrance, WaitingStatement};

use crate::answers::answer_and_record;
use crate::batch::execute_long_batch;
use crate::bind::{bind_envelope, renew_executed};
use crate::execute::execute;
use crate::failure;
use crate::fast::{Fast, Rest, try_fast};
use crate::logging::{FieldValue, Level};
use crate::long::{Limits, Opened, Texts, open};
use crate::panics;
use crate::pending::PendingResult;
use crate::record::record;
use crate::relay::{self, Relayable};
use crate::request::{CqlRequest, Frame, WAITING_BYTES, detached};
use crate::session::{Session, Unanswered};
use crate::statement::StatementKind;
use crate::tasks::Running;
use crate::watch::watched;

/// Continues a request of a connection. `envelope`: its message, unless the rest has it.
pub(crate) fn continue_slowly(
    session: &Rc<Session>,
    envelope: Option<&Envelope>,
    mut request: CqlRequest,
    mut rest: Rest,
) {
    if let Err(failure) = hold(session, envelope, &mut request, &rest) {
        return session.refuse(request.stream, &failure);
    }
    if let Rest::Acknowledged(write) = rest {
        return session.answer_when_acked(request, Warnings::take(), write);
    }
    // A frame that is being opened has its message, and a prepared read needs it no more.
    let is_read_again = match &rest {
        Rest::Opening(_) => false,
        Rest::Result(_) => !request.form.is_prepared,
        Rest::Relay(relayed) => relayed.is_read_again(),
        Rest::OtherLevel | Rest::Slot(..) | Rest::Acknowledged(_) => true,
    };
    let slow = Slow {
        session: session.clone(),
        stream: request.stream,
        key: session.requests.tasks.borrow_mut().reserve(),
        envelope: envelope.filter(|_| is_read_again).map(detached),
        unanswered: Some(session.begin()),
    };
    let (key, group) = (slow.key, request.effective.group());
    let running = running(&request, &mut rest);
    let task = match rest {
        Rest::Relay(relayed) if !relayed.is_read_again() => {
            lanes::spawn(group, slow.pass_on(request, relayed))
        }
        rest => lanes::spawn(group, Warnings::within(Warnings::take(), slow.run(request, rest))),
    };
    session.requests.tasks.borrow_mut().store(key, task, running);
}

/// Charges the memory of a request that waits.
fn hold(
    session: &Session,
    envelope: Option<&Envelope>,
    request: &mut CqlRequest,
    rest: &Rest,
) -> Result<(), Failure> {
    match (rest, envelope) {
        (Rest::Opening(Frame::Whole(envelope)), _) => {
            let bytes = (envelope.body.len() + WAITING_BYTES) as u64;
            let charged = session.account.borrow().charge(bytes);
            request.memory.charges.push(charged.map_err(failure::out_of_memory)?);
        }
        // Charged before.
        (Rest::Opening(Frame::Parts(_)) | Rest::Slot(..), _) => {}
        (_, Some(envelope)) if !request.memory.is_held() => request.hold(session, envelope),
        _ => {}
    }
    Ok(())
}

/// Returns the request's entry in the list of running statements. The end of the connection cancels
/// what is listed.
fn running(request: &CqlRequest, rest: &mut Rest) -> Option<Running> {
    let (statement, since_ns) = (request.statement.clone(), request.times.arrived_ns);
    let (stream, effective) = (request.stream, request.effective.clone());
    let waiting = Running { stream, statement, relayed: None, effective, since_ns, waits: true, reads: None };
    match rest {
        Rest::Opening(_) => Some(Running { statement: None, waits: false, ..waiting }),
        Rest::Slot(_, text) => Some(Running { relayed: text.take(), ..waiting }),
        Rest::Result(later) if request.kind().is_cancellable() => {
            let (since_ns, reads) = (request.times.began_ns, later.reads().cloned());
            Some(Running { since_ns, waits: false, reads, ..waiting })
        }
        Rest::Relay(relayed) if request.kind().is_cancellable() => {
            Some(Running { relayed: relayed.take_text(), waits: false, ..waiting })
        }
        Rest::OtherLevel | Rest::Acknowledged(_) | Rest::Result(_) | Rest::Relay(_) => None,
    }
}

struct Slow {
    session: Rc<Session>,
    stream: i16,
    /// Key of the task in the session's list.
    key: usize,
    /// The message, to be read again. `None` before it is assembled, and for an EXECUTE that waits
    /// for its result.
    envelope: Option<Envelope>,
    /// `None` once the request is answered, while its work goes on.
    unanswered: Option<Unanswered>,
}

// Each read that waits for another core or the disk holds one.
const _: () =
    assert!(size_of::<CqlRequest>() + size_of::<Slow>() <= 320, "more bytes for each request in flight");

impl Slow {
    async fn run(mut self, request: CqlRequest, rest: Rest) {
        let (session, stream, key) = (self.session.clone(), self.stream, self.key);
        let work = async move {
            let mut fast = Some(Fast::Slow(request, rest));
            while let Some(Fast::Slow(request, rest)) = fast {
                fast = match rest {
                    Rest::Opening(frame) => Box::pin(self.open(frame, request)).await,
                    Rest::OtherLevel => Box::pin(self.enter_level(request)).await,
                    Rest::Slot(waiting, _) => Box::pin(self.take_slot(waiting, request)).await,
                    Rest::Result(later) => self.result(later, request).await,
                    Rest::Relay(relayed) => {
                        match Box::pin(relay::ask(&self.session, *relayed, request.limit)).await {
                            Relayable::Own => {
                                let envelope = self.envelope.as_ref().expect("kept to be read again");
                                Some(try_fast(&self.session, envelope, request, None))
                            }
                            result => Some(Fast::Answered(relay::answer(&self.session, request, result))),
                        }
                    }
                    Rest::Acknowledged(write) => {
                        self.session.answer_when_acked(request, Warnings::take(), write);
                        None
                    }
                };
                fast = fast.and_then(|fast| self.wait_again(fast));
            }
            if let Some(Fast::Answered(mut request)) = fast {
                record(&self.session, &mut request, lanes::time::monotonic_ns());
            }
        };
        if let Err(panicked) = lanes::catch_panic(work).await {
            session.refuse(stream, &panics::failure(panicked));
        }
        session.requests.tasks.borrow_mut().done(key);
    }

    /// Passes a request on to a node. Its future has half of the size of that of [`Slow::run`], and
    /// is copied for each request.
    async fn pass_on(self, request: CqlRequest, relayed: Box<relay::Relayed>) {
        let (session, stream) = (&self.session, self.stream);
        let work = async move {
            let result = relay::ask(session, *relayed, request.limit).await;
            let mut request = relay::answer(session, request, result);
            record(session, &mut request, lanes::time::monotonic_ns());
        };
        if let Err(panicked) = lanes::catch_panic(work).await {
            session.refuse(stream, &panics::failure(panicked));
        }
        session.requests.tasks.borrow_mut().done(self.key);
    }

    /// Prepares for the next wait of a request.
    fn wait_again(&self, fast: Fast) -> Option<Fast> {
        let Fast::Slow(mut request, mut rest) = fast else { return Some(fast) };
        if let Err(failure) = hold(&self.session, self.envelope.as_ref(), &mut request, &rest) {
            self.session.refuse(self.stream, &failure);
            return None;
        }
        self.session.requests.tasks.borrow_mut().set(self.key, running(&request, &mut rest));
        Some(Fast::Slow(request, rest))
    }

    /// From here on the end of the connection does not cancel the request.
    fn end_waiting(&self) {
        self.session.requests.tasks.borrow_mut().set(self.key, None);
    }

    fn refuse(&self, failure: &Failure) -> Option<Fast> {
        self.session.refuse(self.stream, failure);
        None
    }

    /// Opens a long request on the heavy lane, binds its texts and runs it.
    async fn open(&mut self, frame: Frame, mut request: CqlRequest) -> Option<Fast> {
        let session = self.session.clone();
        if session.core.front.is_some() {
            return self.assemble(frame, request).await;
        }
        let opening = Warnings::collect(Warnings::NONE, open(frame, Limits::of(&session, &request)));
        let opened = lanes::catch_panic(lanes::heavy(request.effective.group(), opening)).await;
        self.end_waiting();
        let opened = opened.map_err(panics::failure).and_then(|(opened, warnings)| {
            warnings.give();
            opened
        });
        let Opened { envelope, texts, trees, id, batch } = match opened {
            Ok(opened) => opened,
            Err(failure) => return self.refuse(&failure),
        };
        let envelope = self.envelope.insert(envelope);
        request.memory.charges.extend(trees);
        session.warm_output();
        request.times.began_ns = lanes::time::monotonic_ns();
        let bound = match texts {
            Texts::Batch(texts) => {
                let place = batch.expect("a BATCH has its place");
                return Some(execute_long_batch(&session, envelope, &place, texts, request).await);
            }
            Texts::None => renew_executed(&session.core, envelope).await.map(|()| None),
            Texts::One(parsed) => {
                bind_envelope(&session, envelope, &request, *parsed).await.map(|mut bound| {
                    bound.id = id;
                    Some(bound)
                })
            }
        };
        match bound {
            Ok(bound) => Some(try_fast(&session, envelope, request, bound)),
            Err(failure) => self.refuse(&failure),
        }
    }

    /// Assembles a large request for a node on the heavy lane.
    async fn assemble(&mut self, frame: Frame, mut request: CqlRequest) -> Option<Fast> {
        let assembled = match frame {
            Frame::Whole(envelope) => Ok(envelope),
            Frame::Parts(large) => {
                lanes::heavy(request.effective.group(), async move { large.assemble() }).await
            }
        };
        self.end_waiting();
        let envelope = match assembled {
            Ok(envelope) => self.envelope.insert(envelope),
            Err(error) => return self.refuse(&Failure::from(&error)),
        };
        request.times.began_ns = lanes::time::monotonic_ns();
        Some(try_fast(&self.session, envelope, request, None))
    }

    /// Waits until the level that the statement names admits it, and runs it there.
    async fn enter_level(&self, mut request: CqlRequest) -> Option<Fast> {
        let (session, effective) = (&self.session, request.effective.clone());
        if effective.group() != lanes::current_group() {
            lanes::switch_group(effective.group()).await;
        }
        let began_ns = lanes::time::monotonic_ns();
        let arrived = session.arrived(&effective, request.times.arrived_ns);
        let (entered, began_ns) = match session.core.admission.enter(&effective, arrived, began_ns, || false)
        {
            Entrance::In(admitted) => (Ok(admitted), began_ns),
            Entrance::Refused(rejected) => (Err(rejected), began_ns),
            Entrance::Held(held) => (held.await, lanes::time::monotonic_ns()),
        };
        match entered {
            Ok(admitted) => {
                request.admitted = Some(admitted);
                request.note(|| format!("Admitted by service level {}", effective.level.name()));
            }
            Err(rejected) => {
                session.refuse_admission(self.stream, &effective, rejected, began_ns);
                return None;
            }
        }
        let envelope = self.envelope.as_ref().expect("kept to be read again");
        if session.core.front.is_some() {
            request.times.began_ns = lanes::time::monotonic_ns();
            return Some(try_fast(session, envelope, request, None));
        }
        let params = match envelope.request() {
            Ok(Request::Execute(execute)) => execute.params,
            Ok(Request::Query(query)) => query.params,
            _ => unreachable!("the envelope was read as one of these before"),
        };
        request.times.began_ns = lanes::time::monotonic_ns();
        Some(execute(session, envelope, &params, request))
    }

    /// Waits for a slot, and runs the request.
    async fn take_slot(&self, waiting: WaitingStatement, mut request: CqlRequest) -> Option<Fast> {
        let slot = waiting.await;
        self.end_waiting();
        request.times.began_ns = lanes::time::monotonic_ns();
        match slot {
            Ok(slot) => {
                self.session.warm_output();
                request.slot = Some(slot);
                request.note(|| "Took a slot of its service level".to_owned());
                let envelope = self.envelope.as_ref().expect("kept to be read again");
                Some(try_fast(&self.session, envelope, request, None))
            }
            Err(refused) => self.refuse(&Failure::new(FailureKind::Overloaded, refused.0)),
        }
    }

    /// Answers when the result is there or the time limit is over. Runs the request again if the
    /// schema has changed meanwhile.
    async fn result(&mut self, mut later: PendingResult, mut request: CqlRequest) -> Option<Fast> {
        let (session, kind) = (self.session.clone(), request.kind());
        let watch = request.watch().filter(|_| kind == StatementKind::Read);
        let waited = match watch {
            Some(watch) => watched(&session, watch, &mut request, self.key, &mut later).await,
            None => lanes::time::timeout(request.limit, &mut later).await,
        };
        let Ok(result) = waited else {
            let error = failure::timed_out(kind, request.limit);
            // Work that continues after the answer keeps its slot and its memory.
            let _slot = request.slot.take();
            let _charges = std::mem::take(&mut request.memory.charges);
            answer_and_record(&session, request, Err(error), lanes::time::monotonic_ns());
            self.unanswered = None;
            if !kind.is_cancellable() {
                // A panic must not answer a second time.
                let updated = lanes::catch_panic(async { update_grants(&session, &later.await).await });
                let _ = updated.await;
            }
            return None;
        };
        if let Some(trace) = &mut request.trace {
            trace.extend(later.take_notes());
            let reads = later.reads().map(|reads| (reads.rows(), reads.bytes()));
            request.note(|| match reads {
                Some((rows, bytes)) => format!("Read {rows} rows of {bytes} bytes"),
                None => "The engine has finished".to_owned(),
            });
        }
        // Free the memory charged for the answer: the answer is charged again when it is encoded.
        drop(later);
        update_grants(&session, &result).await;
        // The client of a prepared statement gets the error, and prepares it again.
        let runs_again = matches!(result, Err(Error::Stale)) && !request.form.is_prepared;
        if let Some(envelope) = self.envelope.as_ref().filter(|_| runs_again) {
            return Some(try_fast(&session, envelope, request, None));
        }
        answer_and_record(&session, request, result, lanes::time::monotonic_ns());
        None
    }
}

/// Updates the grants after a schema change, even if the client has disconnected.
async fn update_grants(session: &Session, result: &Result<StatementOutcome, Error>) {
    let (Ok(StatementOutcome::SchemaChange(change)), Some(login)) = (result, session.login()) else { return };
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
