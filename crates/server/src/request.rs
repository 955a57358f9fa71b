//! Requests of an authenticated session: QUERY, PREPARE, EXECUTE, BATCH, REGISTER.
//!
//! The session answers a request at once if this core can answer it from memory, before it reads
//! the next request. Local writes wait for the disk in the session's queue (`acks`). All other
//! requests become tasks in the level's group. Every request has a time limit. Answers may overtake
//! each other: each carries the stream number of its request.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use engine::{Error, Guardrail, Latencies, Outcome, Warnings};
use frontdoor::Charge;
use wire::{
    Consistency, Envelope, Failure, FailureKind, Prelude, Prepare, PreparedHead, QueryParams, Request,
    Version,
};
use workload::{Effective, InFlight, Refused, Ticket, Watch};

use crate::answers::{INLINE_ANSWER_BYTES, PendingResult};
use crate::core::{PREPARED_TEXT_BYTES_MAX, too_large};
use crate::long::{self, Frame, INLINE_BYTES, INLINE_TEXT_BYTES, is_long, syntax};
use crate::reply::{self, MetadataRequest};
use crate::session::Session;
use crate::statement::{self, Bound, Kind, Parsed, ParsedTree, Statement, UNPREPARED, Work};

/// Times at which a request was read and its work began, ns of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) read_ns: u64,
    pub(crate) began_ns: u64,
}

/// A statement whose answer is in the output buffer. It is counted after the next clock reading.
pub(crate) struct Done {
    pub(crate) effective: Rc<Effective>,
    pub(crate) kind: Kind,
    pub(crate) failed: bool,
    /// Latencies of the statement's table.
    pub(crate) latencies: Option<Rc<Latencies>>,
}

/// An admitted request with the settings it runs under.
pub(crate) struct Admitted {
    pub(crate) effective: Rc<Effective>,
    /// Counts the request as in flight for the level until it is dropped.
    #[expect(dead_code, reason = "held until dropped, never read")]
    pub(crate) ticket: InFlight,
    /// Slot of the statement, for levels with `max_concurrency`. `None` until the statement has
    /// one.
    pub(crate) slot: Option<Ticket>,
    /// Charges for the request's memory, kept until it has been answered.
    pub(crate) charges: Vec<Charge>,
    /// The session's keyspace when the request was read. A later USE does not change the meaning of
    /// a request that waits.
    pub(crate) keyspace: Option<Rc<str>>,
}

impl Admitted {
    /// Creates the state of a request that `session` has just read.
    pub(crate) fn new(effective: Rc<Effective>, ticket: InFlight, session: &Session) -> Admitted {
        let keyspace = session.keyspace.borrow().clone();
        Admitted { effective, ticket, slot: None, charges: Vec::new(), keyspace }
    }

    /// Returns the keyspace specified with a statement, or else the session's.
    pub(crate) fn keyspace_of(&self, specified: Option<&str>) -> Option<Rc<str>> {
        match specified {
            Some(keyspace) => Some(keyspace.into()),
            None => self.keyspace.clone(),
        }
    }

    /// Returns a watch for a statement of the level, or `None` without a `query_limit`.
    pub(crate) fn watch(&self) -> Option<Watch> {
        let limit = self.effective.spec.query_limit.clone()?;
        Some(Watch::new(self.effective.level.name().clone(), limit))
    }
}

/// A statement that is being run for a request.
pub(crate) struct Call<'a> {
    pub(crate) envelope: &'a Envelope,
    pub(crate) statement: &'a Rc<Statement>,
    pub(crate) params: &'a QueryParams<'a>,
    /// True if the client sent an id, false if it sent a text.
    pub(crate) prepared: bool,
    pub(crate) metadata: MetadataRequest,
    pub(crate) times: Times,
}

/// Pending result of an engine call.
pub(crate) type Later = Pin<Box<dyn Future<Output = Result<Outcome, Error>>>>;

/// Event that a pending answer waits for.
pub(crate) enum Wait {
    /// Acknowledgement of a write of this core, by its number.
    Ack(u64),
    Result(PendingResult),
}

/// State needed to give an answer later.
pub(crate) struct PendingAnswer {
    pub(crate) stream: i16,
    pub(crate) statement: Option<Rc<Statement>>,
    pub(crate) kind: Kind,
    pub(crate) consistency: Consistency,
    pub(crate) prepared: bool,
    pub(crate) metadata: MetadataRequest,
    pub(crate) times: Times,
    pub(crate) admitted: Admitted,
    /// Guardrail warnings so far.
    pub(crate) warnings: Warnings,
    pub(crate) limit: Duration,
    /// The request, to be run again if the schema changes while it waits. `None` for EXECUTE and
    /// for writes that only wait for the disk.
    pub(crate) rerun: Option<Envelope>,
}

impl Session {
    /// Works on a request. Returns `None` if there is nothing to count yet.
    pub(crate) fn request(
        self: &Rc<Self>,
        envelope: &Envelope,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        self.request_bound(envelope, times, admitted, None)
    }

    /// Works on a request whose text the heavy lane may have bound already (`bound`). Starts a long
    /// request as a task if its text is not bound.
    pub(crate) fn request_bound(
        self: &Rc<Self>,
        envelope: &Envelope,
        times: Times,
        admitted: Admitted,
        bound: Option<Bound>,
    ) -> Option<Done> {
        let stream = envelope.stream;
        match envelope.request() {
            Ok(Request::Execute(execute)) => self.execute_prepared(envelope, &execute, times, admitted),
            Ok(Request::Query(query)) => {
                let keyspace = admitted.keyspace_of(query.params.keyspace);
                if bound.is_none()
                    && query.text.len() > INLINE_TEXT_BYTES
                    && !self.has_plan(query.text, keyspace.as_ref())
                {
                    self.begin_long(Frame::Whole(detached(envelope)), Vec::new(), times, admitted);
                    return None;
                }
                let statement = match self.statement(query.text, keyspace.as_ref(), bound) {
                    Ok(statement) => statement,
                    Err(failure) => {
                        self.refuse(stream, &failure);
                        return None;
                    }
                };
                let (params, metadata) = (&query.params, MetadataRequest::default());
                let call = Call { envelope, statement: &statement, params, prepared: false, metadata, times };
                self.run(&call, admitted)
            }
            Ok(Request::Batch(batch)) if is_long(&batch) || self.has_stale_long(&batch) => {
                match self.check_batch(envelope, &batch) {
                    Ok(()) => self.begin_long(Frame::Whole(detached(envelope)), Vec::new(), times, admitted),
                    Err(failure) => self.refuse(stream, &failure),
                }
                None
            }
            Ok(Request::Batch(batch)) => self.batch(envelope, &batch, times, admitted),
            Ok(Request::Prepare(prepare)) if bound.is_none() && prepare.text.len() > INLINE_TEXT_BYTES => {
                self.begin_long(Frame::Whole(detached(envelope)), Vec::new(), times, admitted);
                None
            }
            Ok(Request::Prepare(prepare)) => {
                let keyspace = admitted.keyspace_of(prepare.keyspace);
                if let Err(failure) = self.prepare(envelope, &prepare, keyspace.as_ref(), bound) {
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
        if statement.is_stale_long() {
            self.begin_long(Frame::Whole(detached(envelope)), Vec::new(), times, admitted);
            return None;
        }
        match self.core.current(statement) {
            Ok(statement) => {
                let metadata = self.metadata_request(&statement, envelope.version, execute);
                let (statement, params) = (&statement, &execute.params);
                self.run(&Call { envelope, statement, params, prepared: true, metadata, times }, admitted)
            }
            Err(error) => {
                let consistency = execute.params.consistency;
                let failure = reply::failure(error, Kind::Other, consistency, Some(execute.id));
                self.refuse(envelope.stream, &failure);
                None
            }
        }
    }

    fn metadata_request(
        &self,
        statement: &Statement,
        version: Version,
        execute: &wire::Execute<'_>,
    ) -> MetadataRequest {
        let skip = execute.params.skip_metadata;
        match version {
            Version::V4 => {
                MetadataRequest { skip_metadata: skip && !statement.result_changed, metadata_is_old: false }
            }
            Version::V5 => {
                let known =
                    statement.encoded(version).is_ok_and(|e| e.result_id[..] == *execute.result_metadata_id);
                MetadataRequest { skip_metadata: skip, metadata_is_old: !known }
            }
        }
    }

    /// Puts an answer into the output buffer and returns true if it is an error. A large answer is
    /// encoded later, on the heavy lane.
    pub(crate) fn answer(
        self: &Rc<Self>,
        stream: i16,
        result: Result<Outcome, Failure>,
        statement: Option<&Statement>,
        metadata: MetadataRequest,
    ) -> bool {
        self.warm_output();
        let mut warnings = Warnings::take().texts(self.core.engine.registry().guardrails());
        if let Ok(Outcome::Rows(rows)) = &result
            && rows.cells.len() > INLINE_ANSWER_BYTES
        {
            let plan = reply::plan_rows(self.encoder.borrow().version(), rows, statement, metadata, warnings);
            let failure = match (result, plan) {
                (Ok(Outcome::Rows(rows)), Ok(plan)) => match self.answer_large(stream, rows, plan) {
                    Ok(()) => return false,
                    Err(full) => long::overloaded(full),
                },
                _ => Failure::new(FailureKind::Server, "The answer's columns do not fit the protocol"),
            };
            self.refuse(stream, &failure);
            return true;
        }
        if let Ok(Outcome::SchemaChange(change)) = &result {
            warnings.extend(reply::copies_warning(change, &self.core.engine.schema()));
        }
        let code =
            reply::answer(&mut self.encoder.borrow_mut(), stream, &result, statement, metadata, warnings);
        if let Some(code) = code {
            self.core.counters.error(code);
        }
        if let Err(failure) = &result
            && failure.kind == FailureKind::Server
        {
            self.core.log_failure(failure);
        }
        code.is_some()
    }

    /// Returns true if the plan cache has the text.
    fn has_plan(&self, text: &str, keyspace: Option<&Rc<str>>) -> bool {
        self.core.plans.text(keyspace.map(|k| &**k), text).is_some()
    }

    /// Returns the statement of a text: from the plan cache, or else parsed, authorized and bound.
    pub(crate) fn statement(
        &self,
        text: &str,
        keyspace: Option<&Rc<str>>,
        bound: Option<Bound>,
    ) -> Result<Rc<Statement>, Failure> {
        if let Some(found) = self.core.plans.text(keyspace.map(|k| &**k), text) {
            return Ok(found);
        }
        let bound = bound.map_or_else(|| self.bind(text, keyspace), Ok)?;
        let statement = Statement::of(UNPREPARED, text, keyspace, bound).map_err(unprepared_failure)?;
        let statement = Rc::new(statement);
        if matches!(statement.work, Work::Engine(_)) && statement.kind != Kind::Other {
            self.core.plans.add_text(statement.clone(), self.role_number());
        }
        Ok(statement)
    }

    /// Parses a text, checks the rights on the tables that it names, and binds it.
    fn bind(&self, text: &str, keyspace: Option<&Rc<str>>) -> Result<Bound, Failure> {
        let _ = lanes::spend_bytes(text.len());
        let guardrails = self.core.engine.registry().guardrails();
        guardrails.check(Guardrail::StatementBytes, text.len() as u64).map_err(unprepared_failure)?;
        self.bind_parsed(keyspace, statement::parse(text))
    }

    /// Checks the rights on the tables that a parsed text names.
    fn authorized(&self, keyspace: Option<&Rc<str>>, parsed: Parsed) -> Result<ParsedTree, Failure> {
        let parsed = parsed.map_err(syntax)?;
        self.authorize_tree(parsed.tree(), keyspace.map(|keyspace| &**keyspace))
            .map_err(unprepared_failure)?;
        Ok(parsed)
    }

    /// Checks the rights of a parsed short text and binds it.
    pub(crate) fn bind_parsed(&self, keyspace: Option<&Rc<str>>, parsed: Parsed) -> Result<Bound, Failure> {
        let parsed = self.authorized(keyspace, parsed)?;
        Bound::of(parsed, keyspace, &*self.core.engine).map_err(unprepared_failure)
    }

    /// Checks the rights of a parsed long text and binds it on the heavy lane.
    pub(crate) async fn bind_long(
        &self,
        keyspace: Option<&Rc<str>>,
        parsed: Parsed,
    ) -> Result<Bound, Failure> {
        let parsed = self.authorized(keyspace, parsed)?;
        Bound::of_long(parsed, keyspace, &*self.core.engine).await.map_err(unprepared_failure)
    }

    /// Prepares a text on all cores and answers. Every connection of the client then knows its id.
    fn prepare(
        self: &Rc<Self>,
        envelope: &Envelope,
        prepare: &Prepare<'_>,
        keyspace: Option<&Rc<str>>,
        bound: Option<Bound>,
    ) -> Result<(), Failure> {
        if prepare.text.len() > PREPARED_TEXT_BYTES_MAX {
            return Err(unprepared_failure(too_large(
                prepare.text,
                prepare.text.len(),
                PREPARED_TEXT_BYTES_MAX,
            )));
        }
        let id = bound.as_ref().and_then(|bound| bound.id);
        let id = id.unwrap_or_else(|| statement::id(keyspace.map(|keyspace| &**keyspace), prepare.text));
        if let Some(statement) = self.core.prepared(&id) {
            self.authorize(&statement).map_err(unprepared_failure)?;
            return self.answer_prepared(envelope, &statement);
        }
        let bound = bound.map_or_else(|| self.bind(prepare.text, keyspace), Ok)?;
        let stored = self.core.store_prepared(id, prepare.text, keyspace, bound, self.role_number());
        let statement = stored.map_err(unprepared_failure)?;
        self.authorize(&statement).map_err(unprepared_failure)?;
        if lanes::cores() == 1 {
            return self.answer_prepared(envelope, &statement);
        }
        let (session, envelope) = (self.clone(), envelope.clone());
        let limit = self.core.shared.config.request_timeout;
        session.begin();
        let stream = envelope.stream;
        let guard = self.clone();
        let warnings = Warnings::take();
        let work = async move {
            let role = session.login().map_or_else(|| "".into(), |login| login.role().clone());
            // A core that does not answer in time learns of the statement when a client prepares it
            // there.
            let _ = lanes::time::timeout(limit, session.core.prepare_elsewhere(&statement, &role)).await;
            Warnings::begin();
            warnings.give();
            if let Err(failure) = session.answer_prepared(&envelope, &statement) {
                session.refuse(envelope.stream, &failure);
            }
        };
        lanes::spawn(lanes::current_group(), guard.guarded(stream, work)).detach();
        Ok(())
    }

    fn answer_prepared(&self, envelope: &Envelope, statement: &Statement) -> Result<(), Failure> {
        let unencodable = |error: wire::Error| Failure::new(FailureKind::Invalid, error.to_string());
        let encoded = statement.encoded(envelope.version).map_err(unencodable)?;
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
        let warnings = Warnings::take().texts(self.core.engine.registry().guardrails());
        encoder.prepared(envelope.stream, &head, &Prelude::with_warnings(warnings)).map_err(unencodable)
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

    pub(crate) fn use_keyspace(&self, stream: i16, keyspace: &str) -> bool {
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

    /// Checks the role's rights on a statement. Remembers the result until roles or rights change.
    pub(crate) fn authorize(&self, statement: &Statement) -> Result<(), Error> {
        let Work::Engine(plan) = &statement.work else { return Ok(()) };
        let role = self.role.borrow();
        let Some(role) = &*role else { return Err(Error::Unauthorized("You have not logged in".to_owned())) };
        let now = (role.number, self.core.access.rights(&role.login));
        if statement.allowed.get() != now {
            let allowed = self.core.access.authorize(&role.login, plan.targets());
            allowed.inspect_err(|error| self.audit_denied(&statement.tree, error))?;
            statement.allowed.set(now);
        }
        Ok(())
    }

    pub(crate) fn engine_failure(&self, call: &Call<'_>, error: Error) -> Failure {
        let id = call.prepared.then_some(&call.statement.id[..]);
        reply::failure(error, call.statement.kind, call.params.consistency, id)
    }
}

/// Copies a request that is stored for long, so that it does not keep a whole read buffer alive.
pub(crate) fn detached(envelope: &Envelope) -> Envelope {
    if envelope.body.len() > INLINE_BYTES {
        // A body of this size was assembled in its own memory.
        return envelope.clone();
    }
    Envelope { body: bytes::Bytes::copy_from_slice(&envelope.body), ..*envelope }
}

/// Returns the error for a text that cannot be prepared or bound.
pub(crate) fn unprepared_failure(error: Error) -> Failure {
    reply::failure(error, Kind::Other, Consistency::One, None)
}

/// Returns the error for a violation of the protocol.
pub(crate) fn protocol(text: &str) -> Failure {
    Failure::new(FailureKind::Protocol, text)
}

/// Returns the error for a request that was not admitted.
pub(crate) fn overloaded(refused: Refused) -> Failure {
    let text = match refused {
        Refused::Overloaded(text) => text,
        Refused::Hold => unreachable!("a held request waits"),
    };
    Failure::new(FailureKind::Overloaded, text)
}

/// Returns the error for an id that this core does not know. The driver then prepares the statement
/// again.
pub(crate) fn unprepared(id: &[u8]) -> Failure {
    let hex: String = id.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "Prepared query with ID {hex} not found (either the query was not prepared on this host \
         (maybe the host has been restarted?) or you have prepared too many queries and it has been evicted)"
    );
    Failure::new(FailureKind::Unprepared(id.to_vec()), text)
}
