//! Relay stage, for a server in front of a cluster: a request goes to a node as it is, and the
//! node's answer goes to the client as it is.
//!
//! This server answers itself:
//!
//! - the tables by which drivers find nodes (`system.local`, `system.peers` and
//!   `system.peers_v2`) and those that show its own work: they show this server,
//! - statements on service levels: the cluster knows nothing of them,
//! - an EXECUTE with an id that no client has prepared here: drivers then prepare it again.
//!
//! A request of a client that gives one of the levels of its role with the custom payload key
//! `service_level` runs in that level. The payload goes on to the node as it is.
//!
//! USE opens a connection with that keyspace, so that a node judges it. It is never passed on:
//! clients share connections to nodes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cluster::{
    Front, OWN_TABLES, Outgoing, Refusal, RemotePlan, ReplicaOrder, Role, Route, StatementClass,
    WORD_WITHIN_BYTES,
};
use cql::ast::Statement as Tree;
use sched::control::ClassId;
use wire::{
    Batch, Consistency, Encoder, Envelope, Failure, FailureKind, Flags, Opcode, Prelude, Request,
    Statement as BatchStatement, Version,
};
use workload::{Effective, WaitingStatement};

use crate::answers::{Encoding, deliver};
use crate::failure;
use crate::request::{CqlRequest, INLINE_BYTES, detached};
use crate::running::TEXT_BYTES_MAX;
use crate::session::Session;
use crate::slots::take_slot;
use crate::statement::{INLINE_TEXT_BYTES, PREPARED_TEXT_BYTES_MAX, StatementKind};
use crate::tag;
use crate::tasks::RelayedText;

/// Key of the custom payload whose value is the name of a level.
const LEVEL_KEY: &str = "service_level";

/// Bytes of a text that are searched for a condition, at most. Longer texts count as unconditional.
/// 32 KiB take about 30 µs.
const SEARCHED_BYTES_MAX: usize = 32 << 10;

/// Bytes of a name of a level that an error repeats, at most.
const NAME_BYTES_MAX: usize = 255;

/// Statements of a BATCH that are searched for a condition, at most.
const SEARCHED_STATEMENTS_MAX: usize = 100;

/// A request for a node.
pub(crate) struct Relayed {
    outgoing: Outgoing,
    work: RelayWork,
    /// True for a conditional write.
    is_conditional: bool,
    /// Text for the list of running statements, until it is in there.
    text: Option<RelayedText>,
}

/// Work on a request besides passing it on.
enum RelayWork {
    /// Nothing.
    Pass,
    /// The statement is remembered.
    Prepare { text: Box<str>, given_keyspace: Option<Box<str>>, is_conditional: bool },
    /// The session uses this keyspace from now on.
    Use(Box<str>),
    /// The cluster is asked for this role, then this server runs the statement.
    Role(Box<str>),
}

impl Relayed {
    /// Takes its text out.
    pub(crate) fn take_text(&mut self) -> Option<RelayedText> {
        self.text.take()
    }

    /// Returns true if this server reads the message again after the answer of the node.
    pub(crate) fn is_read_again(&self) -> bool {
        matches!(self.work, RelayWork::Role(_))
    }
}

/// Next step of a request for a node.
pub(crate) enum Relay {
    /// Its level has no slot for it now.
    Waits(WaitingStatement, Option<RelayedText>),
    /// It gives another level, whose settings the request has now. That level has not admitted it.
    OtherLevel,
    /// It may be sent.
    Ready(Box<Relayed>),
}

/// Passes a request on to the relay stage. `None`: this server answers it itself.
///
/// # Errors
/// The id of an EXECUTE is unknown, the request is too old, its level has no place for it, or is
/// none of the client's.
pub(crate) fn relay(
    session: &Session,
    envelope: &Envelope,
    request: &mut CqlRequest,
) -> Result<Option<Relay>, Failure> {
    let Some(front) = &session.core.front else { return Ok(None) };
    let remote = session.remote();
    if remote.as_ref().is_some_and(|remote| remote.is_ended()) {
        return Err(ended(session));
    }
    if given_level(session, envelope)?.is_some_and(|effective| request.move_to(effective)) {
        return Ok(Some(Relay::OtherLevel));
    }
    let plans = Plans { front, remote, version: envelope.version };
    let Some(target) = target(&plans, session, envelope, request)? else { return Ok(None) };
    tag::check(front, envelope, request, &target)?;
    let Target { work, class, consistency, is_conditional, route, text, .. } = target;
    request.form.consistency = consistency;
    request.form.kind = match class {
        StatementClass::Read => StatementKind::Read,
        StatementClass::Write if envelope.opcode == Opcode::Batch => StatementKind::Batch,
        StatementClass::Write => StatementKind::Write,
        StatementClass::Use | StatementClass::Other => StatementKind::Other,
    };
    let limit_max = session.core.shared.config.statement_timeout_max;
    request.limit = session.time_limit(&request.effective).min(limit_max);
    request.check_age().map_err(|error| request.failure(error))?;
    let is_of_server = matches!(work, RelayWork::Role(_));
    if !is_of_server && let Some(waiting) = take_slot(session, envelope, request)? {
        return Ok(Some(Relay::Waits(waiting, text)));
    }
    let limit_ns = u64::try_from(request.limit.as_nanos()).unwrap_or(u64::MAX);
    let outgoing = Outgoing {
        effective: request.effective.clone(),
        class: similar_to(envelope.opcode, route.as_ref()),
        order: order_of(consistency, is_conditional),
        route,
        was_sent: Cell::new(false),
        until_ns: request.times.began_ns.saturating_add(limit_ns),
        is_read: class == StatementClass::Read,
        version: envelope.version,
        keyspace: request.keyspace.clone(),
        opcode: envelope.opcode,
        flags: envelope.flags,
        body: detached(envelope).body,
    };
    Ok(Some(Relay::Ready(Box::new(Relayed { outgoing, work, is_conditional, text }))))
}

/// Ends a session whose password a node has refused. Returns the error.
fn ended(session: &Session) -> Failure {
    session.life.draining.set(true);
    let role = session.role_name().unwrap_or_default();
    failure::unbound(access::ended(&role))
}

/// Returns the level that a client gives with the payload of a request.
///
/// # Errors
/// The client's role has no such level.
fn given_level(session: &Session, envelope: &Envelope) -> Result<Option<Rc<Effective>>, Failure> {
    let is_statement =
        matches!(envelope.opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch);
    if !envelope.flags.has(Flags::CUSTOM_PAYLOAD) || !is_statement {
        return Ok(None);
    }
    let Prelude { payload, .. } = envelope.prelude().map_err(|error| Failure::from(&error))?;
    let Some((_, name)) = payload.iter().find(|(key, _)| key == LEVEL_KEY) else { return Ok(None) };
    let name = name.as_deref().unwrap_or_default();
    let login = session.login().expect("requests come after authentication");
    let effective = std::str::from_utf8(name).ok().and_then(|name| {
        // Its error names a permission that cannot be granted in front of a cluster.
        session.core.access.effective_using(&login, name).ok()
    });
    let refused = || {
        let (role, name) = (login.role(), String::from_utf8_lossy(name));
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        let text = format!(
            "expected a service level of role {role} in the custom payload key {LEVEL_KEY}, got '{name}'"
        );
        Failure::new(FailureKind::Invalid, text)
    };
    effective.map(Some).ok_or_else(refused)
}

/// Work on a request for a node, and what is known of it.
pub(crate) struct Target {
    work: RelayWork,
    pub(crate) class: StatementClass,
    pub(crate) consistency: Consistency,
    /// Consistency of its condition. `None`: nodes take SERIAL.
    pub(crate) serial: Option<Consistency>,
    /// True for a conditional write.
    pub(crate) is_conditional: bool,
    route: Option<Route>,
    /// Text of its statement, for the list of those that run.
    text: Option<RelayedText>,
}

impl Target {
    fn new(work: RelayWork, class: StatementClass, consistency: Consistency) -> Target {
        Target { work, class, consistency, is_conditional: false, serial: None, route: None, text: None }
    }
}

/// Prepared statements, as a client uses them.
struct Plans<'a> {
    front: &'a Front,
    remote: Option<Rc<Role>>,
    version: Version,
}

impl Plans<'_> {
    /// Returns a statement, and counts its use.
    fn used(&self, id: &[u8]) -> Option<Rc<RemotePlan>> {
        self.front.plan(id, self.remote.as_ref(), self.version)
    }
}

/// Returns the class of requests that cost about as much.
fn similar_to(opcode: Opcode, route: Option<&Route>) -> ClassId {
    match route {
        Some(route) => ClassId::of_statement(route.plan.number, opcode as u8),
        None => ClassId::of_opcode(opcode as u8),
    }
}

/// Returns the order in which replicas are tried. Conditional writes, and reads of them, meet at
/// one coordinator.
fn order_of(consistency: Consistency, is_conditional: bool) -> ReplicaOrder {
    match consistency.is_serial() || is_conditional {
        true => ReplicaOrder::Ring,
        false => ReplicaOrder::LeastLoaded,
    }
}

/// Finds what is to be done with a request. `None`: this server answers it itself.
///
/// # Errors
/// The body cannot be read. It is not passed on: a node that could read it might find a USE in it,
/// and change the keyspace of others.
fn target(
    plans: &Plans<'_>,
    session: &Session,
    envelope: &Envelope,
    request: &CqlRequest,
) -> Result<Option<Target>, Failure> {
    if !matches!(envelope.opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch) {
        return Ok(None);
    }
    Ok(match envelope.request().map_err(|error| Failure::from(&error))? {
        Request::Query(query) => {
            if let Some(own) = own(query.text, request.keyspace_of(query.params.keyspace)) {
                return Ok(own.on_levels.and_then(|tree| of_unknown_role(session, &tree)));
            }
            let class = class_of(query.text)?;
            let text = Some(sent(query.text));
            let target = Target::new(work_of(query.text, class)?, class, query.params.consistency);
            let is_conditional = class == StatementClass::Write && is_conditional(query.text);
            let serial = query.params.serial_consistency;
            Some(Target { text, is_conditional, serial, ..target })
        }
        Request::Prepare(prepare) if own(prepare.text, request.keyspace_of(prepare.keyspace)).is_some() => {
            None
        }
        Request::Prepare(prepare) if prepare.text.len() > PREPARED_TEXT_BYTES_MAX => {
            let (text, bytes) = (prepare.text, prepare.text.len());
            return Err(failure::unbound(failure::too_large(text, bytes, PREPARED_TEXT_BYTES_MAX)));
        }
        Request::Prepare(prepare) => {
            let class = class_of(prepare.text)?;
            let given_keyspace = prepare.keyspace.map(Into::into);
            let is_conditional = class == StatementClass::Write && is_conditional(prepare.text);
            let work = RelayWork::Prepare { text: prepare.text.into(), given_keyspace, is_conditional };
            let text = Some(sent(prepare.text));
            Some(Target { text, ..Target::new(work, StatementClass::Other, Consistency::One) })
        }
        Request::Execute(execute) => {
            if let Some(statement) = session.core.plans.prepared(execute.id) {
                return Ok(of_unknown_role(session, &statement.tree));
            }
            let plan = plans.used(execute.id).ok_or_else(|| failure::unprepared(execute.id))?;
            let route = Route::of(&plan, &execute.params.values);
            let target =
                Target::new(work_of(&plan.text, plan.class)?, plan.class, execute.params.consistency);
            let is_conditional = plan.is_conditional;
            let (serial, text) = (execute.params.serial_consistency, Some(RelayedText::Prepared(plan)));
            Some(Target { is_conditional, serial, route, text, ..target })
        }
        Request::Batch(batch) => {
            let consistency = batch.params.consistency;
            let (is_conditional, route) = condition_and_route(plans, &batch);
            let target = Target::new(RelayWork::Pass, StatementClass::Write, consistency);
            Some(Target { is_conditional, serial: batch.params.serial_consistency, route, ..target })
        }
        _ => None,
    })
}

/// Returns true if a text that changes data does so under a condition.
fn is_conditional(text: &str) -> bool {
    text.len() <= SEARCHED_BYTES_MAX && names(text, "if") && cql::has_if(text)
}

/// Returns true for a BATCH with a condition, and the partition of its first prepared statement
/// with a known one. All statements of a conditional BATCH are for one partition.
fn condition_and_route(plans: &Plans<'_>, batch: &Batch<'_>) -> (bool, Option<Route>) {
    let (mut has_condition, mut route, mut bytes_left) = (false, None, SEARCHED_BYTES_MAX);
    for entry in batch.iter().take(SEARCHED_STATEMENTS_MAX) {
        match entry.statement {
            BatchStatement::Text(text) if !has_condition && text.len() <= bytes_left => {
                bytes_left -= text.len();
                has_condition = is_conditional(text);
            }
            BatchStatement::Text(_) => {}
            BatchStatement::Prepared(id) => {
                let Some(plan) = plans.used(id) else { continue };
                has_condition |= plan.is_conditional;
                route = route.or_else(|| Route::of(&plan, &entry.values));
            }
        }
        if has_condition && route.is_some() {
            break;
        }
    }
    (has_condition, route)
}

/// Returns the part of a text that lists of statements show.
fn sent(text: &str) -> RelayedText {
    RelayedText::Sent(text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into())
}

/// Returns the kind of a text.
///
/// # Errors
/// Too much stands before its first word.
fn class_of(text: &str) -> Result<StatementClass, Failure> {
    StatementClass::of(text).ok_or_else(|| {
        let text = format!("expected the first word of a statement within {WORD_WITHIN_BYTES} bytes");
        Failure::new(FailureKind::Invalid, text)
    })
}

/// Returns the work of a statement that is run.
///
/// # Errors
/// The text of a USE is not valid. It is not passed on: it might change the keyspace of others.
fn work_of(text: &str, class: StatementClass) -> Result<RelayWork, Failure> {
    if class != StatementClass::Use {
        return Ok(RelayWork::Pass);
    }
    if text.len() > INLINE_TEXT_BYTES {
        let text = format!("expected a USE of at most {INLINE_TEXT_BYTES} bytes");
        return Err(Failure::new(FailureKind::Invalid, text));
    }
    match cql::parse(text) {
        Ok(Tree::Use(keyspace)) => Ok(RelayWork::Use(keyspace.into())),
        Ok(_) => Err(failure::protocol("expected a USE statement")),
        Err(error) => Err(failure::syntax(error)),
    }
}

/// A statement that this server runs itself.
struct Own {
    /// Its tree, if it is a valid statement on service levels.
    on_levels: Option<Tree>,
}

/// Returns a SELECT on a table that shows this server, or a statement on service levels. Most texts
/// are not parsed.
fn own(text: &str, keyspace: Option<Rc<str>>) -> Option<Own> {
    if text.len() > INLINE_TEXT_BYTES {
        return None;
    }
    match StatementClass::of(text) {
        Some(StatementClass::Read) => reads_own(text, keyspace.as_deref()).then_some(Own { on_levels: None }),
        Some(StatementClass::Other) => {
            let on_levels = of_levels(text);
            (on_levels.is_some() || begins_as_of_levels(text)).then_some(Own { on_levels })
        }
        _ => None,
    }
}

/// Returns true if a word is part of the text, whatever its case.
fn names(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

fn reads_own(text: &str, keyspace: Option<&str>) -> bool {
    if keyspace != Some("system") && !names(text, "system") {
        return false;
    }
    let Ok(Tree::Select(select)) = cql::parse(text) else { return false };
    select.from.keyspace.as_deref().or(keyspace) == Some("system") && OWN_TABLES.contains(&&*select.from.name)
}

/// Returns true for a text that begins as a statement on service levels, valid or not: its errors
/// are this server's to tell.
fn begins_as_of_levels(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace().take(4);
    let is = |word: &str, expected: &[&str]| expected.iter().any(|one| word.eq_ignore_ascii_case(one));
    let verbs = ["CREATE", "ALTER", "DROP", "ATTACH", "DETACH", "LIST"];
    words.next().is_some_and(|verb| is(verb, &verbs))
        && words.any(|word| is(word, &["SERVICE", "SERVICE_LEVEL", "SERVICE_LEVELS"]))
        && !text.contains('(')
}

/// Returns a statement on service levels, or on the statements and sessions of this server. `None`:
/// it is another one.
fn of_levels(text: &str) -> Option<Tree> {
    if !names(text, "service") && !names(text, "cancel") {
        return None;
    }
    let tree = cql::parse(text).ok()?;
    let is_own = matches!(
        tree,
        Tree::CreateServiceLevel(_)
            | Tree::AlterServiceLevel(_)
            | Tree::DropServiceLevel(_)
            | Tree::AttachServiceLevel(_)
            | Tree::DetachServiceLevel(_)
            | Tree::ListServiceLevels(_)
            | Tree::CancelStatement(_)
            | Tree::CancelSession(_)
    );
    is_own.then_some(tree)
}

/// Returns a question for the role that a statement on levels names, if this server has not heard
/// of it, and the client may ask.
fn of_unknown_role(session: &Session, tree: &Tree) -> Option<Target> {
    let login = session.login()?;
    let role = session.core.access.unknown_role(&login, tree)?;
    Some(Target::new(RelayWork::Role(role.into()), StatementClass::Other, Consistency::One))
}

/// Answer of a node, or the reason why there is none.
pub(crate) enum Relayable {
    /// The node's answer.
    Answer(Envelope),
    /// The session uses this keyspace now.
    SetKeyspace(Box<str>),
    /// This server runs the statement now.
    Own,
    /// The request has no answer.
    Refused(Refusal),
    /// The request was sent, and has no answer. `is_conditional`: it is a conditional write.
    Unanswered { text: String, is_conditional: bool },
}

/// Passes a request on to a node and waits for its answer.
pub(crate) async fn ask(session: &Session, relayed: Relayed, limit: Duration) -> Relayable {
    let (front, remote) = (session.core.front.clone(), session.remote());
    let (Some(front), Some(role)) = (front, remote) else {
        return Relayable::Refused(Refusal::Unsent("the session has not logged in".to_owned()));
    };
    let Relayed { outgoing, work, is_conditional: has_condition, .. } = relayed;
    let asked = async {
        match work {
            RelayWork::Pass => front.send(&role, &outgoing).await.map(Relayable::Answer),
            RelayWork::Prepare { text, given_keyspace, is_conditional } => {
                let keyspace = given_keyspace.as_deref();
                let prepared = front.prepare(&role, &outgoing, &text, keyspace, is_conditional);
                Box::pin(prepared).await.map(Relayable::Answer)
            }
            RelayWork::Use(keyspace) => {
                let used = Box::pin(front.use_keyspace(&role, outgoing.version, &keyspace)).await;
                used.map(|()| Relayable::SetKeyspace(keyspace))
            }
            RelayWork::Role(name) => {
                let learned = session.core.access.learn_role(&front, &role, outgoing.version, &name);
                Box::pin(learned).await.map(|()| Relayable::Own)
            }
        }
    };
    let unanswered = |text| Relayable::Unanswered { text, is_conditional: has_condition };
    match lanes::time::timeout(limit, asked).await {
        Ok(Ok(result)) => result,
        Ok(Err(lost @ Refusal::Lost(_))) => unanswered(lost.to_string()),
        Ok(Err(refusal)) => Relayable::Refused(refusal),
        Err(_) if outgoing.was_sent.get() => unanswered(failure::timed_out_text(limit)),
        Err(_) => Relayable::Refused(Refusal::Unsent("its time limit ended while it waited".to_owned())),
    }
}

/// Puts the answer of a node into the output buffer.
pub(crate) fn answer(session: &Rc<Session>, mut request: CqlRequest, result: Relayable) -> CqlRequest {
    let stream = request.stream;
    let answered = match result {
        Relayable::Answer(answer)
        | Relayable::Refused(Refusal::Answered(answer) | Refusal::Credentials(answer)) => {
            request.failed = answer.opcode == Opcode::Error;
            put(session, stream, answer)
        }
        Relayable::SetKeyspace(keyspace) => {
            *session.keyspace.borrow_mut() = Some(Rc::from(&*keyspace));
            session.warm_output();
            let mut encoder = session.outgoing.encoder.borrow_mut();
            encoder
                .set_keyspace(stream, &keyspace, &Prelude::default())
                .expect("a client sent it in a short text");
            Ok(())
        }
        Relayable::Refused(Refusal::Unsent(text) | Refusal::Unreachable(text)) => {
            Err(Failure::new(FailureKind::Overloaded, format!("The request was not executed: {text}")))
        }
        Relayable::Refused(Refusal::Unavailable(text)) => {
            let consistency = request.form.consistency;
            let kind = FailureKind::Unavailable { consistency, required: 1, alive: 0 };
            Err(Failure::new(kind, text))
        }
        Relayable::Refused(lost @ Refusal::Lost(_)) => unreachable!("{lost} is unanswered"),
        Relayable::Unanswered { text, is_conditional } => {
            let mut failure = request.failure(failure::unanswered(request.kind(), text));
            if let FailureKind::WriteTimeout { write_type, .. } = &mut failure.kind
                && is_conditional
            {
                *write_type = "CAS".to_owned();
            }
            Err(failure)
        }
        Relayable::Own => unreachable!("the statement runs"),
        Relayable::Refused(Refusal::NoMemory(text)) => Err(Failure::new(FailureKind::Overloaded, text)),
        Relayable::Refused(Refusal::Ended) => Err(ended(session)),
    };
    if let Err(failure) = answered {
        request.failed = true;
        session.refuse(stream, &failure);
    }
    request
}

/// Copies an answer into the output buffer. A large one is charged to the account of the connection
/// until it is sent, and is copied on the heavy lane.
fn put(session: &Rc<Session>, stream: i16, answer: Envelope) -> Result<(), Failure> {
    let Envelope { opcode, flags, body, .. } = answer;
    let too_long = |error: wire::Error| Failure::from(&error);
    // A client that does not read has no more answers than others without a charge.
    let is_full = session.answer_bytes() + body.len() > session.core.shared.config.output_bytes_max;
    if body.len() <= INLINE_BYTES && !is_full {
        session.warm_output();
        return session.outgoing.encoder.borrow_mut().relay(stream, opcode, flags, &body).map_err(too_long);
    }
    let charge = session.account.borrow().charge(body.len() as u64).map_err(failure::out_of_memory)?;
    let encoding = Encoding::begin(session, body.len());
    let write = move |mut encoder: Encoder| async move {
        let written = encoder.relay(stream, opcode, flags, &body);
        (encoder, written)
    };
    let owner = session.clone();
    let work = async move { deliver(&owner, stream, encoding, charge, write).await };
    session.spawn_answer(lanes::current_group(), stream, work);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_the_word_if_outside_of_values_names_and_comments() {
        let check = |text: &str, expected| assert_eq!(is_conditional(text), expected, "{text}");
        check("INSERT INTO t (k) VALUES (1) IF NOT EXISTS", true);
        check("UPDATE t SET v = 1 WHERE k = 1\nif v = 2", true);
        check("BEGIN BATCH DELETE FROM t WHERE k = 1 IF EXISTS; APPLY BATCH", true);
        check("UPDATE t SET a.b.c @ 3 WHERE k = 1 IF v = 2", false);
        check("INSERT INTO t (k) VALUES ('what if')", false);
        check("UPDATE t SET \"if\" = 1 /* if */ WHERE k = 1 -- if", false);
        check("INSERT INTO t (iff) VALUES ($$ if $$)", false);
        let long = format!("INSERT INTO t (k) VALUES ('{}') IF NOT EXISTS", "x".repeat(SEARCHED_BYTES_MAX));
        check(&long, false);
    }

    #[test]
    fn reads_of_tables_that_show_this_server_and_statements_on_levels_are_its_own() {
        let check = |text, keyspace: Option<&str>, expected| {
            assert_eq!(own(text, keyspace.map(Rc::from)).is_some(), expected, "{text}");
        };
        check("SELECT * FROM system.local WHERE key='local'", None, true);
        check("select * from SYSTEM.peers_v2", None, true);
        check("SELECT * FROM \"system\".\"peers\"", None, true);
        check("SELECT * FROM local", Some("system"), true);
        check("SELECT * FROM local", Some("ks"), false);
        check("SELECT * FROM system_schema.tables", None, false);
        check("SELECT * FROM ks.local", None, false);
        check("INSERT INTO system.local (key) VALUES ('x')", None, false);
        check("SELECT * FROM system.", None, false);
        check("SELECT * FROM system.level_usage", None, true);
        check("SELECT * FROM system.size_estimates", None, false);
        check("CREATE SERVICE LEVEL a WITH shares = 1", None, true);
        check("attach service_level a TO b", None, true);
        check("LIST ALL SERVICE LEVELS", None, true);
        check("CREATE SERVICE LEVEL a WITH sharez", None, true);
        check("CREATE TABLE service (level int PRIMARY KEY)", None, false);
        check("INSERT INTO service (level) VALUES (1)", None, false);
    }
}
