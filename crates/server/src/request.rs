//! Requests of an authenticated session: QUERY, PREPARE, EXECUTE, BATCH, REGISTER.
//!
//! What can be answered from memory on this core is answered before the next request is looked at. Writes of this core
//! wait for the disk in the session's queue (`acks`). The rest becomes a task in the level's group. All have a time limit, and
//! answers overtake each other: streams tell them apart.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use engine::{Error, Execution, Outcome};
use wire::{
    Consistency, Envelope, Failure, FailureKind, Prelude, Prepare, PreparedHead, QueryParams, Request,
    Version,
};
use workload::{Effective, InFlight, Refused};

use crate::describe;
use crate::logging::Level;
use crate::reply::{self, Wish};
use crate::session::Session;
use crate::statement::{Kind, PrepareError, Statement, Timeout, Work};
use crate::values::{bound_timeout, bound_values};

/// When a request came and when its work began, ns of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) read_ns: u64,
    pub(crate) began_ns: u64,
}

/// A statement whose answer is in the output buffer, to be counted once the clock has been read.
pub(crate) struct Done {
    pub(crate) effective: Rc<Effective>,
    pub(crate) kind: Kind,
    pub(crate) failed: bool,
}

/// A request that was let in, and under what.
pub(crate) struct Admitted {
    pub(crate) effective: Rc<Effective>,
    /// Counts for the level until it is dropped.
    #[expect(dead_code, reason = "held, never looked at")]
    pub(crate) ticket: InFlight,
}

/// A statement that is being run for a request.
pub(crate) struct Call<'a> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) statement: &'a Rc<Statement>,
    pub(crate) params: &'a QueryParams<'a>,
    /// Whether the client sent an id rather than a text.
    pub(crate) prepared: bool,
    pub(crate) wish: Wish,
    pub(crate) times: Times,
}

/// What an engine says that it will say.
pub(crate) type Later = Pin<Box<dyn Future<Output = Result<Outcome, Error>>>>;

/// What an answer that comes later waits for.
pub(crate) enum Wait {
    /// A write of this core to be acknowledged.
    Ack(u64),
    For(Later),
}

/// An answer that comes later: all that is needed to give it.
pub(crate) struct Due {
    pub(crate) stream: i16,
    pub(crate) statement: Option<Rc<Statement>>,
    pub(crate) kind: Kind,
    pub(crate) consistency: Consistency,
    pub(crate) prepared: bool,
    pub(crate) wish: Wish,
    pub(crate) times: Times,
    pub(crate) admitted: Admitted,
    pub(crate) limit: Duration,
    /// The request itself, to be run again if the schema changed while it waited.
    pub(crate) again: Option<Envelope>,
}

impl Session {
    /// Works on a request. `None` where there is nothing to count yet.
    pub(crate) fn request(
        self: &Rc<Self>,
        envelope: &Envelope,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        let stream = envelope.stream;
        match envelope.request() {
            Ok(Request::Execute(execute)) => self.execute_prepared(envelope, &execute, times, admitted),
            Ok(Request::Query(query)) => {
                let keyspace = self.keyspace_of(query.params.keyspace);
                let statement = match self.core.text(query.text, keyspace.as_ref()) {
                    Ok(statement) => statement,
                    Err(error) => {
                        self.refuse(stream, &self.unprepared_failure(error));
                        return None;
                    }
                };
                let (params, wish) = (&query.params, Wish::default());
                let call = Call { envelope, statement: &statement, params, prepared: false, wish, times };
                self.run(&call, admitted)
            }
            Ok(Request::Batch(batch)) => self.batch(envelope, &batch, times, admitted),
            Ok(Request::Prepare(prepare)) => {
                if let Err(failure) = self.prepare(envelope, &prepare) {
                    self.refuse(stream, &failure);
                }
                None
            }
            Ok(Request::Register(types)) => {
                self.register(stream, &types);
                None
            }
            Ok(Request::Options) => {
                self.supported(stream);
                None
            }
            Ok(Request::Startup(_)) => {
                self.refuse(stream, &protocol("Unexpected message STARTUP, this connection is open already"));
                None
            }
            Ok(Request::AuthResponse(_)) => {
                self.refuse(stream, &protocol("Unexpected message AUTH_RESPONSE after authentication"));
                None
            }
            Err(error) => {
                self.refuse(stream, &Failure::from(&error));
                None
            }
        }
    }

    fn execute_prepared(
        self: &Rc<Self>,
        envelope: &Envelope,
        execute: &wire::Execute<'_>,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        let Some(statement) = self.core.plans.prepared(execute.id) else {
            self.refuse(envelope.stream, &unprepared(execute.id));
            return None;
        };
        match self.core.current(statement) {
            Ok(statement) => {
                let wish = self.wish(&statement, envelope.version, execute);
                let (statement, params) = (&statement, &execute.params);
                self.run(&Call { envelope, statement, params, prepared: true, wish, times }, admitted)
            }
            Err(error) => {
                let consistency = execute.params.consistency;
                let failure = reply::failure(error, Kind::Other, consistency, Some(execute.id));
                self.refuse(envelope.stream, &failure);
                None
            }
        }
    }

    /// The keyspace of a statement: what came with it, or the session's.
    pub(crate) fn keyspace_of(&self, said: Option<&str>) -> Option<Rc<str>> {
        match said {
            Some(keyspace) => Some(keyspace.into()),
            None => self.keyspace.borrow().clone(),
        }
    }

    fn wish(&self, statement: &Statement, version: Version, execute: &wire::Execute<'_>) -> Wish {
        let skip = execute.params.skip_metadata;
        match version {
            Version::V4 => Wish { skip_metadata: skip && !statement.result_changed, metadata_is_old: false },
            Version::V5 => {
                let known =
                    statement.encoded(version).is_ok_and(|e| e.result_id[..] == *execute.result_metadata_id);
                Wish { skip_metadata: skip, metadata_is_old: !known }
            }
        }
    }

    /// Runs a statement: at once, or as a task.
    fn run(self: &Rc<Self>, call: &Call<'_>, admitted: Admitted) -> Option<Done> {
        let Some(name) = &call.statement.level else { return self.run_here(call, admitted) };
        let login = self.login().expect("requests come after authentication");
        match self.core.access.effective_using(&login, name) {
            Ok(effective) if effective.group() == lanes::current_group() => self.run_here(call, admitted),
            Ok(effective) => {
                self.run_elsewhere(call, effective);
                None
            }
            Err(error) => {
                let failure = self.engine_failure(call, error);
                Some(self.answer_call(call, admitted, Err(failure)))
            }
        }
    }

    /// Runs a statement under a level of its own choosing, as a task.
    fn run_elsewhere(self: &Rc<Self>, call: &Call<'_>, effective: Rc<Effective>) {
        let (session, envelope, statement) = (self.clone(), call.envelope.clone(), call.statement.clone());
        let (prepared, wish, times) = (call.prepared, call.wish, call.times);
        let group = effective.group();
        self.begin();
        let work = async move {
            let admission = &session.core.admission;
            let ticket = loop {
                match admission.admit(&effective) {
                    Err(Refused::Hold) => admission.room().await,
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
                    if let Some(done) = session.run_here(&call, Admitted { effective, ticket }) {
                        session.record(done, times, Some(statement), lanes::time::monotonic_ns());
                    }
                }
                Err(refused) => session.refuse(envelope.stream, &overloaded(refused)),
            }
            session.end();
        };
        lanes::spawn(group, work).detach();
    }

    fn run_here(self: &Rc<Self>, call: &Call<'_>, admitted: Admitted) -> Option<Done> {
        let (stream, statement) = (call.envelope.stream, call.statement);
        if let Err(error) = self.authorize(statement) {
            return Some(self.answer_call(call, admitted, Err(self.engine_failure(call, error))));
        }
        let limit = match self.limit_of(call, &admitted.effective) {
            Ok(limit) => limit,
            Err(error) => {
                return Some(self.answer_call(call, admitted, Err(self.engine_failure(call, error))));
            }
        };
        let wait = match &statement.work {
            Work::Use(keyspace) => {
                let failed = !self.use_keyspace(stream, keyspace);
                return Some(Done { effective: admitted.effective, kind: Kind::Other, failed });
            }
            Work::Describe => {
                let (core, keyspace) = (&self.core, statement.keyspace.as_deref());
                let outcome = describe::describe(&*core.engine, &statement.tree, &core.shared, keyspace);
                let result = outcome.map_err(|error| self.engine_failure(call, error));
                return Some(self.answer_call(call, admitted, result));
            }
            Work::Access => Wait::For(self.execute_access(statement.tree.clone())),
            Work::Engine(_) => match self.execute(call) {
                Ok(Execution::Ready(Ok(Outcome::SchemaChange(change)))) => {
                    Wait::For(Box::pin(std::future::ready(Ok(Outcome::SchemaChange(change)))))
                }
                Ok(Execution::Ready(result)) => {
                    let result = result.map_err(|error| self.engine_failure(call, error));
                    return Some(self.answer_call(call, admitted, result));
                }
                Ok(Execution::Written(write)) => Wait::Ack(write),
                Ok(Execution::Pending(later)) => Wait::For(later),
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
            limit,
            again: (!call.prepared && matches!(wait, Wait::For(_))).then(|| call.envelope.clone()),
        };
        self.wait(due, wait);
        None
    }

    /// Runs a statement about roles, grants or levels.
    fn execute_access(&self, tree: Rc<cql::Statement>) -> Later {
        let login = self.login().expect("requests come after authentication");
        let (core, keyspace) = (self.core.clone(), self.keyspace.borrow().clone());
        Box::pin(async move { core.access.execute(&login, &tree, keyspace.as_deref()).await })
    }

    /// Lets the engine begin. A plan that went stale just now is bound anew, once.
    fn execute(&self, call: &Call<'_>) -> Result<Execution, Failure> {
        let params = call.params;
        let values =
            bound_values(call.statement, params).map_err(|error| self.engine_failure(call, error))?;
        let request = engine::Request {
            values: &values,
            page_size: params.page_size.and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows > 0),
            paging_state: params.paging_state,
            timestamp_us: params.timestamp,
            now_s: params.now_in_seconds.and_then(|now| u32::try_from(now).ok()),
        };
        let run = |statement: &Statement| match &statement.work {
            Work::Engine(plan) => self.core.engine.execute(plan, &request),
            _ => unreachable!("a statement is for the engine before and after it is bound anew"),
        };
        match run(call.statement) {
            Execution::Ready(Err(Error::Stale)) => match self.core.rebind(call.statement) {
                Ok(fresh) => Ok(run(&fresh)),
                Err(error) => Err(self.engine_failure(call, error)),
            },
            execution => Ok(execution),
        }
    }

    /// The time a statement may take.
    fn limit_of(&self, call: &Call<'_>, effective: &Effective) -> Result<Duration, Error> {
        let said = match call.statement.timeout {
            Timeout::Unsaid => None,
            Timeout::Fixed(limit) => Some(limit),
            Timeout::Bound(marker) => bound_timeout(call.params, call.statement, marker)?,
        };
        Ok(said.or(effective.timeout).unwrap_or(self.core.shared.config.request_timeout))
    }

    /// Gives an answer when it is there or its time is over.
    pub(crate) fn wait(self: &Rc<Self>, due: Due, wait: Wait) {
        match wait {
            Wait::Ack(write) => self.answer_when_acked(due, write),
            Wait::For(later) => self.answer_later(due, later),
        }
    }

    fn answer_later(self: &Rc<Self>, due: Due, mut later: Later) {
        let session = self.clone();
        session.begin();
        let (group, is_read) = (due.admitted.effective.group(), due.kind == Kind::Read);
        let key = is_read.then(|| self.reads.borrow_mut().reserve());
        let work = async move {
            match lanes::time::timeout(due.limit, &mut later).await {
                Ok(result) => {
                    session.follow(&result).await;
                    session.give(due, result, lanes::time::monotonic_ns());
                    session.end();
                }
                Err(_) => {
                    let error = reply::too_late(due.kind, due.limit);
                    session.give(due, Err(error), lanes::time::monotonic_ns());
                    session.end();
                    // A read is given up. What changes something is not left half done.
                    if !is_read {
                        session.follow(&later.await).await;
                    }
                }
            }
            key.inspect(|key| session.reads.borrow_mut().done(*key));
        };
        let task = lanes::spawn(group, work);
        match key {
            Some(key) => self.reads.borrow_mut().keep(key, task),
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
        let result = result.map_err(|error| reply::failure(error, due.kind, due.consistency, id));
        let failed = self.answer(due.stream, &result, due.statement.as_deref(), due.wish);
        let done = Done { effective: due.admitted.effective, kind: due.kind, failed };
        self.record(done, due.times, due.statement.as_deref(), now_ns);
    }

    fn answer_call(&self, call: &Call<'_>, admitted: Admitted, result: Result<Outcome, Failure>) -> Done {
        let failed = self.answer(call.envelope.stream, &result, Some(call.statement), call.wish);
        Done { effective: admitted.effective, kind: call.statement.kind, failed }
    }

    /// Puts an answer into the output buffer; whether it is an error.
    pub(crate) fn answer(
        &self,
        stream: i16,
        result: &Result<Outcome, Failure>,
        statement: Option<&Statement>,
        wish: Wish,
    ) -> bool {
        self.warm_output();
        let warning = match result {
            Ok(Outcome::SchemaChange(change)) => reply::copies_warning(change, &self.core.engine.schema()),
            _ => None,
        };
        let code = reply::answer(&mut self.encoder.borrow_mut(), stream, result, statement, wish, warning);
        if let Some(code) = code {
            self.core.counters.error(code);
        }
        if let Err(failure) = result
            && failure.kind == FailureKind::Server
        {
            self.core.tell_trouble(failure);
        }
        code.is_some()
    }

    /// Makes a text ready here and on the other cores, so that its id is known on every connection of the client, and answers.
    fn prepare(self: &Rc<Self>, envelope: &Envelope, prepare: &Prepare<'_>) -> Result<(), Failure> {
        let keyspace = self.keyspace_of(prepare.keyspace);
        let prepared = self.core.prepare(prepare.text, keyspace.as_ref());
        let (statement, known) = prepared.map_err(|error| self.unprepared_failure(error))?;
        self.authorize(&statement)
            .map_err(|error| reply::failure(error, Kind::Other, Consistency::One, None))?;
        if known || lanes::cores() == 1 {
            return self.answer_prepared(envelope, &statement);
        }
        let (session, envelope) = (self.clone(), envelope.clone());
        let limit = self.core.shared.config.request_timeout;
        session.begin();
        let work = async move {
            // Another core that is late learns of the statement when it is prepared there.
            let _ = lanes::time::timeout(limit, session.core.prepare_elsewhere(&statement)).await;
            if let Err(failure) = session.answer_prepared(&envelope, &statement) {
                session.refuse(envelope.stream, &failure);
            }
            session.end();
        };
        lanes::spawn(lanes::current_group(), work).detach();
        Ok(())
    }

    fn answer_prepared(&self, envelope: &Envelope, statement: &Statement) -> Result<(), Failure> {
        let unsayable = |error: wire::Error| Failure::new(FailureKind::Invalid, error.to_string());
        let encoded = statement.encoded(envelope.version).map_err(unsayable)?;
        let head = PreparedHead {
            id: &statement.id,
            result_metadata_id: &encoded.result_id,
            bind: &encoded.bind,
            partition_key_indexes: match &statement.work {
                Work::Engine(plan) => plan.partition_key_binds(),
                _ => &[],
            },
            result: &encoded.result,
        };
        self.warm_output();
        let mut encoder = self.encoder.borrow_mut();
        encoder.prepared(envelope.stream, &head, &Prelude::default()).map_err(unsayable)
    }

    fn register(&self, stream: i16, types: &[&str]) {
        if let Some(unknown) = types.iter().find(|name| !wire::EVENT_TYPES.contains(name)) {
            return self.refuse(stream, &protocol(&format!("Invalid value '{unknown}' for event type")));
        }
        if types.contains(&"SCHEMA_CHANGE") {
            self.wants_schema.set(true);
        }
        self.encoder.borrow_mut().ready(stream);
    }

    fn use_keyspace(&self, stream: i16, keyspace: &str) -> bool {
        let known = self.core.engine.schema().keyspaces.contains_key(keyspace)
            || self.core.engine.registry().all().iter().any(|table| table.def.keyspace == keyspace);
        if !known {
            self.refuse(
                stream,
                &Failure::new(FailureKind::Invalid, format!("Keyspace '{keyspace}' does not exist")),
            );
            return false;
        }
        *self.keyspace.borrow_mut() = Some(keyspace.into());
        let mut encoder = self.encoder.borrow_mut();
        encoder.set_keyspace(stream, keyspace, &Prelude::default()).is_ok()
    }

    /// Whether the session's role may run a statement. Asked once for as long as nothing changes in roles and rights.
    pub(crate) fn authorize(&self, statement: &Statement) -> Result<(), Error> {
        let Work::Engine(plan) = &statement.work else { return Ok(()) };
        let role = self.role.borrow();
        let Some(role) = &*role else { return Err(Error::Unauthorized("You have not logged in".to_owned())) };
        let now = (role.number, self.core.access.version());
        if statement.allowed.get() != now {
            self.core.access.authorize(&role.login, plan.targets())?;
            statement.allowed.set(now);
        }
        Ok(())
    }

    fn engine_failure(&self, call: &Call<'_>, error: Error) -> Failure {
        let id = call.prepared.then_some(&call.statement.id[..]);
        reply::failure(error, call.statement.kind, call.params.consistency, id)
    }

    pub(crate) fn unprepared_failure(&self, error: PrepareError) -> Failure {
        match error {
            PrepareError::Syntax(error) => Failure::new(FailureKind::Syntax, error.to_string()),
            PrepareError::Engine(error) => reply::failure(error, Kind::Other, Consistency::One, None),
        }
    }
}

/// A violation of the protocol.
pub(crate) fn protocol(text: &str) -> Failure {
    Failure::new(FailureKind::Protocol, text)
}

/// A request that was not let in.
pub(crate) fn overloaded(refused: Refused) -> Failure {
    let text = match refused {
        Refused::Overloaded(text) => text,
        Refused::Hold => unreachable!("who is held waits"),
    };
    Failure::new(FailureKind::Overloaded, text)
}

/// No statement of this id here: the client prepares it again by itself.
pub(crate) fn unprepared(id: &[u8]) -> Failure {
    let hex: String = id.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "Prepared query with ID {hex} not found (either the query was not prepared on this host \
         (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted)"
    );
    Failure::new(FailureKind::Unprepared(id.to_vec()), text)
}
