//! Running one statement: under which level, with which slot and time limit, and giving its answer now or later.

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
use crate::request::{Admitted, Call, Done, Due, Later, Times, Wait, detached, overloaded};
use crate::running::Running;
use crate::session::Session;
use crate::slots::{NoSlot, needs_slot};
use crate::statement::{Kind, Statement, Timeout, Work};
use crate::values::{bound_timeout, bound_values};

impl Session {
    /// Runs a statement: at once, or as a task.
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

    /// Runs a statement under a level of its own choosing, as a task.
    fn run_elsewhere(self: &Rc<Self>, call: &Call<'_>, effective: Rc<Effective>, admitted: Admitted) {
        let Admitted { held, keyspace, .. } = admitted;
        let (session, envelope, statement) = (self.clone(), detached(call.envelope), call.statement.clone());
        let stream = envelope.stream;
        let (prepared, wish, times) = (call.prepared, call.wish, call.times);
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
                    let call = Call { envelope, statement, params, prepared, wish, times };
                    let admitted = Admitted { held, keyspace, ..Admitted::new(effective, ticket, &session) };
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
                    describe::Answer::Later(later) => Wait::For(PendingResult::of(later)),
                }
            }
            Work::Access => {
                let keyspace = statement.keyspace.clone();
                Wait::For(PendingResult::of(self.execute_access(statement.tree.tree(), keyspace)))
            }
            Work::Engine(_) => match self.execute(call, page_bytes, is_whole_read.then_some(&**self)) {
                Ok(Execution::Ready(Ok(Outcome::SchemaChange(change)))) => {
                    let ready = std::future::ready(Ok(Outcome::SchemaChange(change)));
                    Wait::For(PendingResult::of(Box::pin(ready)))
                }
                Ok(Execution::Ready(Err(Error::Stale))) if statement.is_stale_long() => {
                    // It is bound anew on the heavy lane, and begins again.
                    self.begin_long(Frame::Whole(detached(call.envelope)), Vec::new(), call.times, admitted);
                    return None;
                }
                Ok(Execution::Ready(result)) => {
                    let result = result.map_err(|error| self.engine_failure(call, error));
                    return Some(self.answer_call(call, admitted, result));
                }
                Ok(Execution::Written(write)) => Wait::Ack(write),
                Ok(Execution::Pending(later)) if statement.kind == Kind::Read => {
                    Wait::For(PendingResult::of_read(self, later, page_bytes))
                }
                Ok(Execution::Pending(later)) => Wait::For(PendingResult::of(later)),
                Err(failure) => return Some(self.answer_call(call, admitted, Err(failure))),
            },
        };
        let due = Due {
            stream,
            statement: Some(statement.clone()),
            kind: statement.kind,
            consistency: call.params.consistency,
            prepared: call.prepared,
            wish: call.wish,
            times: call.times,
            admitted,
            warnings: Warnings::take(),
            limit,
            again: (!call.prepared && matches!(wait, Wait::For(_))).then(|| detached(call.envelope)),
        };
        self.wait(due, wait);
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

    /// Lets the engine begin. A plan that went stale just now is bound anew, once.
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
                Ok(fresh) => Ok(run(&fresh)),
                Err(error) => Err(self.engine_failure(call, error)),
            },
            execution => Ok(execution),
        }
    }

    /// Returns the time a statement may take. Work on files takes as long as there are files: only a
    /// limit of its level ends it, or its client.
    fn limit_of(&self, call: &Call<'_>, effective: &Effective) -> Result<Duration, Error> {
        if call.statement.kind == Kind::Maintenance {
            return Ok(effective.spec.timeout.unwrap_or(Duration::MAX));
        }
        let said = match call.statement.timeout {
            Timeout::Unsaid => None,
            Timeout::Fixed(limit) => Some(limit),
            Timeout::Bound(marker) => bound_timeout(call.params, call.statement, marker)?,
        };
        let config = &self.core.shared.config;
        Ok(said
            .or(effective.spec.timeout)
            .unwrap_or(config.request_timeout)
            .min(config.statement_timeout_max))
    }

    /// Gives an answer when it is there or its time is over.
    pub(crate) fn wait(self: &Rc<Self>, due: Due, wait: Wait) {
        match wait {
            Wait::Ack(write) => self.answer_when_acked(due, write),
            Wait::For(later) => self.answer_later(due, later),
        }
    }

    fn answer_later(self: &Rc<Self>, mut due: Due, mut later: PendingResult) {
        let warnings = due.warnings;
        let session = self.clone();
        session.begin();
        let (group, is_read) = (due.admitted.effective.group(), due.kind == Kind::Read);
        let may_be_given_up = due.kind.may_be_given_up();
        let key = may_be_given_up.then(|| self.reads.borrow_mut().reserve());
        let running = Running {
            stream: due.stream,
            statement: due.statement.clone(),
            effective: due.admitted.effective.clone(),
            since_ns: due.times.began_ns,
            waits: false,
        };
        let work = async move {
            let watch = due.admitted.watch().filter(|_| is_read);
            let waited = match watch {
                Some(watch) => session.watched(watch, due.limit, &mut later).await,
                None => lanes::time::timeout(due.limit, &mut later).await,
            };
            match waited {
                Ok(result) => {
                    // What it held for the answer is charged again with the answer.
                    drop(later);
                    session.follow(&result).await;
                    session.give(due, result, lanes::time::monotonic_ns());
                    session.end();
                }
                Err(_) => {
                    let error = reply::too_late(due.kind, due.limit);
                    // What goes on after the answer still takes its slot.
                    let _slot = due.admitted.slot.take();
                    let _held = std::mem::take(&mut due.admitted.held);
                    session.give(due, Err(error), lanes::time::monotonic_ns());
                    session.end();
                    if !may_be_given_up {
                        session.follow(&later.await).await;
                    }
                }
            }
            key.inspect(|key| session.reads.borrow_mut().done(*key));
        };
        let task = lanes::spawn(group, Warnings::within(warnings, work));
        match key {
            Some(key) => self.reads.borrow_mut().keep(key, task, running),
            None => task.detach(),
        }
    }

    /// Has the grants follow a change of the schema, whatever becomes of the client.
    async fn follow(&self, result: &Result<Outcome, Error>) {
        let (Ok(Outcome::SchemaChange(change)), Some(login)) = (result, self.login()) else { return };
        // The schema is changed whatever becomes of the grants: the client is told that, the log the rest.
        if let Err(error) = self.core.access.schema_changed(&login, change).await {
            let (logger, what) = (&self.core.shared.logger, "grants do not follow the schema");
            logger.log(Level::Error, what, &[("keyspace", &change.keyspace), ("error", &error)]);
        }
    }

    /// Puts an answer that was due into the output buffer.
    pub(crate) fn give(self: &Rc<Self>, mut due: Due, result: Result<Outcome, Error>, now_ns: u64) {
        if let (Err(Error::Stale), Some(envelope)) = (&result, due.again.take()) {
            // The text is bound to the new schema; if that waits too, it is for the last time.
            if let Some(done) = self.request(&envelope, due.times, due.admitted) {
                self.record(done, due.times, due.statement.as_deref(), lanes::time::monotonic_ns());
            }
            return;
        }
        let id = due.statement.as_ref().filter(|_| due.prepared).map(|statement| &statement.id[..]);
        if let Some(statement) = &due.statement
            && matches!(statement.work, Work::Engine(_))
        {
            self.audit_outcome(&statement.tree, result.as_ref().err());
        }
        let result = result.map_err(|error| reply::failure(error, due.kind, due.consistency, id));
        let failed = self.answer(due.stream, result, due.statement.as_deref(), due.wish);
        let latencies = due.statement.as_ref().and_then(|statement| statement.latencies());
        let done = Done { effective: due.admitted.effective, kind: due.kind, failed, latencies };
        self.record(done, due.times, due.statement.as_deref(), now_ns);
    }

    /// Answers a statement at once.
    pub(crate) fn answer_call(
        self: &Rc<Self>,
        call: &Call<'_>,
        admitted: Admitted,
        result: Result<Outcome, Failure>,
    ) -> Done {
        let failed = self.answer(call.envelope.stream, result, Some(call.statement), call.wish);
        let latencies = call.statement.latencies();
        Done { effective: admitted.effective, kind: call.statement.kind, failed, latencies }
    }
}
