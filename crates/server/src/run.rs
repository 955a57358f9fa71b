//! Runs one statement: chooses its level, takes its slot, applies its time limit, and answers it
//! now or later.

use std::rc::Rc;
use std::time::Duration;

use engine::{AnswerMemory, Error, Execution, Outcome, Warnings};
use wire::{Failure, Request};
use workload::{Effective, Refused};

use crate::answers::PendingResult;
use crate::describe;
use crate::logging::Level;
use crate::long::Frame;
use crate::reply;
use crate::request::{Admitted, Call, Done, Later, PendingAnswer, Times, Wait, detached, overloaded};
use crate::running::Running;
use crate::session::Session;
use crate::slots::{NoSlot, needs_slot};
use crate::statement::{Kind, Statement, Timeout, Work};
use crate::values::{bound_timeout, bound_values};

impl Session {
    /// Runs a statement, at once or as a task. Returns `None` if the answer comes later.
    pub(crate) fn run(self: &Rc<Self>, call: &Call<'_>, admitted: Admitted) -> Option<Done> {
        let Some(name) = &call.statement.level else { return self.run_here(call, admitted) };
        let login = self.login().expect("requests come after authentication");
        match self.core.access.effective_using(&login, name) {
            Ok(effective) if effective.group() == lanes::current_group() => self.run_here(call, admitted),
            Ok(effective) => {
                self.run_elsewhere(call, effective, admitted);
                None
            }
            Err(error) => {
                let failure = self.engine_failure(call, error);
                Some(self.answer_call(call, admitted, Err(failure)))
            }
        }
    }

    /// Runs a statement as a task, under the level that its text specifies.
    fn run_elsewhere(self: &Rc<Self>, call: &Call<'_>, effective: Rc<Effective>, admitted: Admitted) {
        let Admitted { charges, keyspace, .. } = admitted;
        let (session, envelope, statement) = (self.clone(), detached(call.envelope), call.statement.clone());
        let stream = envelope.stream;
        let (prepared, metadata, times) = (call.prepared, call.metadata, call.times);
        let group = effective.group();
        self.begin();
        let work = async move {
            let admission = &session.core.admission;
            let ticket = loop {
                match admission.admit(&effective) {
                    Err(Refused::Hold) => admission.request_ended().await,
                    other => break other,
                }
            };
            match ticket {
                Ok(ticket) => {
                    let params = match envelope.request() {
                        Ok(Request::Execute(execute)) => execute.params,
                        Ok(Request::Query(query)) => query.params,
                        _ => unreachable!("the envelope was read as one of these before"),
                    };
                    let times = Times { began_ns: lanes::time::monotonic_ns(), ..times };
                    let (envelope, statement, params) = (&envelope, &statement, &params);
                    let call = Call { envelope, statement, params, prepared, metadata, times };
                    let admitted =
                        Admitted { charges, keyspace, ..Admitted::new(effective, ticket, &session) };
                    if let Some(done) = session.run_here(&call, admitted) {
                        session.record(done, times, Some(statement), lanes::time::monotonic_ns());
                    }
                }
                Err(refused) => session.refuse(envelope.stream, &overloaded(refused)),
            }
        };
        let work = Warnings::within(Warnings::take(), work);
        lanes::spawn(group, self.clone().guarded(stream, work)).detach();
    }

    fn run_here(self: &Rc<Self>, call: &Call<'_>, mut admitted: Admitted) -> Option<Done> {
        let (stream, statement) = (call.envelope.stream, call.statement);
        if let Err(error) = self.authorize(statement) {
            return Some(self.answer_call(call, admitted, Err(self.engine_failure(call, error))));
        }
        self.audit_begin(statement);
        let limit = match self.limit_of(call, &admitted.effective) {
            Ok(limit) => limit,
            Err(error) => {
                return Some(self.answer_call(call, admitted, Err(self.engine_failure(call, error))));
            }
        };
        if needs_slot(statement) {
            match self.take_slot(call.envelope, Some(statement), call.times, admitted, limit) {
                Ok(with_slot) => admitted = with_slot,
                Err(NoSlot::Waits) => return None,
                Err(NoSlot::Refused(refused)) => {
                    let (admitted, failure) = *refused;
                    return Some(self.answer_call(call, admitted, Err(failure)));
                }
            }
        }
        let page_bytes = self.page_bytes();
        let is_whole_read =
            statement.kind == Kind::Read && call.params.page_size.is_none_or(|rows| rows <= 0);
        let wait = match &statement.work {
            Work::Use(keyspace) => {
                let failed = !self.use_keyspace(stream, keyspace);
                return Some(Done {
                    effective: admitted.effective,
                    kind: Kind::Other,
                    failed,
                    latencies: None,
                });
            }
            Work::Describe => {
                let login = self.login().expect("requests come after authentication");
                let keyspace = statement.keyspace.as_deref();
                match describe::describe(&self.core, &login, &statement.tree, keyspace) {
                    describe::Answer::Now(outcome) => {
                        let result = outcome.map_err(|error| self.engine_failure(call, error));
                        return Some(self.answer_call(call, admitted, result));
                    }
                    describe::Answer::Later(later) => Wait::Result(PendingResult::of(later)),
                }
            }
            Work::Access => {
                let keyspace = statement.keyspace.clone();
                Wait::Result(PendingResult::of(self.execute_access(statement.tree.tree(), keyspace)))
            }
            Work::Engine(_) => match self.execute(call, page_bytes, is_whole_read.then_some(&**self)) {
                Ok(Execution::Ready(Ok(Outcome::SchemaChange(change)))) => {
                    let ready = std::future::ready(Ok(Outcome::SchemaChange(change)));
                    Wait::Result(PendingResult::of(Box::pin(ready)))
                }
                Ok(Execution::Ready(Err(Error::Stale))) if statement.is_stale_long() => {
                    // Bind it again on the heavy lane, then run it from the beginning.
                    self.begin_long(Frame::Whole(detached(call.envelope)), Vec::new(), call.times, admitted);
                    return None;
                }
                Ok(Execution::Ready(result)) => {
                    let result = result.map_err(|error| self.engine_failure(call, error));
                    return Some(self.answer_call(call, admitted, result));
                }
                Ok(Execution::Written(write)) => Wait::Ack(write),
                Ok(Execution::Pending(later)) if statement.kind == Kind::Read => {
                    Wait::Result(PendingResult::of_read(self, later, page_bytes))
                }
                Ok(Execution::Pending(later)) => Wait::Result(PendingResult::of(later)),
                Err(failure) => return Some(self.answer_call(call, admitted, Err(failure))),
            },
        };
        let pending = PendingAnswer {
            stream,
            statement: Some(statement.clone()),
            kind: statement.kind,
            consistency: call.params.consistency,
            prepared: call.prepared,
            metadata: call.metadata,
            times: call.times,
            admitted,
            warnings: Warnings::take(),
            limit,
            rerun: (!call.prepared && matches!(wait, Wait::Result(_))).then(|| detached(call.envelope)),
        };
        self.wait(pending, wait);
        None
    }

    /// Runs a statement about roles, grants or levels.
    fn execute_access(self: &Rc<Self>, tree: Rc<cql::Statement>, keyspace: Option<Rc<str>>) -> Later {
        let login = self.login().expect("requests come after authentication");
        let session = self.clone();
        Box::pin(async move {
            let result = session.core.access.execute(&login, &tree, keyspace.as_deref()).await;
            session.audit_outcome(&tree, result.as_ref().err());
            result
        })
    }

    /// Starts the engine call. If the plan has just become stale, binds it again, once.
    fn execute(
        &self,
        call: &Call<'_>,
        page_bytes_max: usize,
        room: Option<&dyn AnswerMemory>,
    ) -> Result<Execution, Failure> {
        let params = call.params;
        let values =
            bound_values(call.statement, params).map_err(|error| self.engine_failure(call, error))?;
        let needs_viewer = call.statement.kind == Kind::Read
            && matches!(&call.statement.work, Work::Engine(plan) if plan.needs_viewer());
        let viewer = self.login().filter(|_| needs_viewer).map(|login| self.core.access.viewer(&login));
        let request = engine::Request {
            viewer: viewer.as_ref(),
            values: &values,
            page_size: params.page_size.and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows > 0),
            page_bytes_max,
            room,
            paging_state: params.paging_state,
            timestamp_us: params.timestamp,
            now_s: params.now_in_seconds.and_then(|now| u32::try_from(now).ok()),
            serial: params.consistency.is_serial(),
        };
        let run = |statement: &Statement| match &statement.work {
            Work::Engine(plan) => self.core.engine.execute(plan, &request),
            _ => unreachable!("a statement is for the engine before and after it is bound anew"),
        };
        match run(call.statement) {
            Execution::Ready(Err(Error::Stale)) if call.statement.is_stale_long() => {
                Ok(Execution::Ready(Err(Error::Stale)))
            }
            Execution::Ready(Err(Error::Stale)) => match self.core.rebind(call.statement) {
                Ok(rebound) => Ok(run(&rebound)),
                Err(error) => Err(self.engine_failure(call, error)),
            },
            execution => Ok(execution),
        }
    }

    /// Returns the time limit of a statement. Work on files takes as long as there are files. Only
    /// a limit of its level or the loss of its client ends it.
    fn limit_of(&self, call: &Call<'_>, effective: &Effective) -> Result<Duration, Error> {
        if call.statement.kind == Kind::Maintenance {
            return Ok(effective.spec.timeout.unwrap_or(Duration::MAX));
        }
        let specified = match call.statement.timeout {
            Timeout::Unspecified => None,
            Timeout::Fixed(limit) => Some(limit),
            Timeout::Bound(marker) => bound_timeout(call.params, call.statement, marker)?,
        };
        let config = &self.core.shared.config;
        Ok(specified
            .or(effective.spec.timeout)
            .unwrap_or(config.request_timeout)
            .min(config.statement_timeout_max))
    }

    /// Gives an answer when its result is available or its time limit is over.
    pub(crate) fn wait(self: &Rc<Self>, pending: PendingAnswer, wait: Wait) {
        match wait {
            Wait::Ack(write) => self.answer_when_acked(pending, write),
            Wait::Result(later) => self.answer_later(pending, later),
        }
    }

    fn answer_later(self: &Rc<Self>, mut pending: PendingAnswer, mut later: PendingResult) {
        let warnings = pending.warnings;
        let session = self.clone();
        session.begin();
        let (group, is_read) = (pending.admitted.effective.group(), pending.kind == Kind::Read);
        let is_cancellable = pending.kind.is_cancellable();
        let key = is_cancellable.then(|| self.cancellable_tasks.borrow_mut().reserve());
        let running = Running {
            stream: pending.stream,
            statement: pending.statement.clone(),
            effective: pending.admitted.effective.clone(),
            since_ns: pending.times.began_ns,
            waits: false,
        };
        let work = async move {
            let watch = pending.admitted.watch().filter(|_| is_read);
            let waited = match watch {
                Some(watch) => session.watched(watch, pending.limit, &mut later).await,
                None => lanes::time::timeout(pending.limit, &mut later).await,
            };
            match waited {
                Ok(result) => {
                    // Free the memory charged for the answer: the answer is charged again when it
                    // is encoded.
                    drop(later);
                    session.update_grants(&result).await;
                    session.deliver(pending, result, lanes::time::monotonic_ns());
                    session.end();
                }
                Err(_) => {
                    let error = reply::timed_out(pending.kind, pending.limit);
                    // Work that continues after the answer keeps its slot and its memory.
                    let _slot = pending.admitted.slot.take();
                    let _charges = std::mem::take(&mut pending.admitted.charges);
                    session.deliver(pending, Err(error), lanes::time::monotonic_ns());
                    session.end();
                    if !is_cancellable {
                        session.update_grants(&later.await).await;
                    }
                }
            }
            key.inspect(|key| session.cancellable_tasks.borrow_mut().done(*key));
        };
        let task = lanes::spawn(group, Warnings::within(warnings, work));
        match key {
            Some(key) => self.cancellable_tasks.borrow_mut().store(key, task, running),
            None => task.detach(),
        }
    }

    /// Updates the grants after a schema change, even if the client has disconnected.
    async fn update_grants(&self, result: &Result<Outcome, Error>) {
        let (Ok(Outcome::SchemaChange(change)), Some(login)) = (result, self.login()) else { return };
        // The schema change stands even if the grants fail. The client is answered with success,
        // and the failure is logged.
        if let Err(error) = self.core.access.schema_changed(&login, change).await {
            let (logger, what) = (&self.core.shared.logger, "grants do not follow the schema");
            logger.log(Level::Error, what, &[("keyspace", &change.keyspace), ("error", &error)]);
        }
    }

    /// Puts the answer of a pending statement into the output buffer.
    pub(crate) fn deliver(
        self: &Rc<Self>,
        mut pending: PendingAnswer,
        result: Result<Outcome, Error>,
        now_ns: u64,
    ) {
        if let (Err(Error::Stale), Some(envelope)) = (&result, pending.rerun.take()) {
            // Bind the text to the new schema and run it again. That run is the last one if it
            // waits too.
            if let Some(done) = self.request(&envelope, pending.times, pending.admitted) {
                self.record(done, pending.times, pending.statement.as_deref(), lanes::time::monotonic_ns());
            }
            return;
        }
        let id = pending.statement.as_ref().filter(|_| pending.prepared).map(|statement| &statement.id[..]);
        if let Some(statement) = &pending.statement
            && matches!(statement.work, Work::Engine(_))
        {
            self.audit_outcome(&statement.tree, result.as_ref().err());
        }
        let result = result.map_err(|error| reply::failure(error, pending.kind, pending.consistency, id));
        let failed = self.answer(pending.stream, result, pending.statement.as_deref(), pending.metadata);
        let latencies = pending.statement.as_ref().and_then(|statement| statement.latencies());
        let done = Done { effective: pending.admitted.effective, kind: pending.kind, failed, latencies };
        self.record(done, pending.times, pending.statement.as_deref(), now_ns);
    }

    /// Answers a statement at once.
    pub(crate) fn answer_call(
        self: &Rc<Self>,
        call: &Call<'_>,
        admitted: Admitted,
        result: Result<Outcome, Failure>,
    ) -> Done {
        let failed = self.answer(call.envelope.stream, result, Some(call.statement), call.metadata);
        let latencies = call.statement.latencies();
        Done { effective: admitted.effective, kind: call.statement.kind, failed, latencies }
    }
}
