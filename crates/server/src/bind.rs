//! Decode stage, second part: finds the statement of a text or of an id in the plan cache. Parses
//! and binds the text if the cache has no plan that fits the schema.

use std::rc::Rc;

use engine::{Error, Guardrail, ParsedTree};
use wire::{BatchEntry, Consistency, Envelope, Failure, Request, Statement as BatchStatement};

use crate::authorize::authorize_tree;
use crate::core::Core;
use crate::failure;
use crate::request::CqlRequest;
use crate::session::Session;
use crate::statement::{Bound, INLINE_TEXT_BYTES, Id, Parsed, Statement, StatementKind, UNPREPARED, Work};

/// Bytes of text that count as one work unit when a statement is bound again. A term takes about
/// 0.2 µs.
const REBIND_BYTES_PER_UNIT: usize = 2;

/// Bytes of a text that is checked to be UTF-8 and copied in one work unit.
const CHECKED_BYTES_PER_UNIT: usize = 128;

/// Bytes of a long text that its statement keeps, for logs and lists of running statements.
const KEPT_BYTES: usize = 8 << 10;

const _: () = assert!(KEPT_BYTES > INLINE_TEXT_BYTES, "a statement with a part of its text is long too");

/// Counts the work of checking a text that a message contains, and of copying it.
pub(crate) fn count_text(text: &[u8]) {
    lanes::count((text.len() / CHECKED_BYTES_PER_UNIT) as u32);
}

/// Returns the statement of a long text that the heavy lane has checked and bound. It keeps the
/// beginning of the text only: copying 16 MiB takes several milliseconds.
pub(crate) fn long_statement(
    text: &[u8],
    keyspace: Option<&Rc<str>>,
    bound: Bound,
) -> Result<Rc<Statement>, Failure> {
    let kept = &text[..text.len().min(KEPT_BYTES)];
    count_text(kept);
    // The last character may be cut.
    let kept = std::str::from_utf8(kept).unwrap_or_else(|error| {
        std::str::from_utf8(&kept[..error.valid_up_to()]).expect("checked up to here")
    });
    Statement::of(UNPREPARED, kept, keyspace, bound).map(Rc::new).map_err(failure::unbound)
}

/// Returns true if the plan cache has the text.
pub(crate) fn has_plan(core: &Core, text: &str, keyspace: Option<&Rc<str>>) -> bool {
    core.plans.text(keyspace.map(|k| &**k), text).is_some()
}

/// Returns the statement of a text: from the plan cache, or else parsed, authorized and bound.
pub(crate) fn statement(
    session: &Session,
    text: &str,
    keyspace: Option<&Rc<str>>,
    bound: Option<Bound>,
) -> Result<Rc<Statement>, Failure> {
    let plans = &session.core.plans;
    if let Some(found) = plans.text(keyspace.map(|k| &**k), text) {
        return Ok(found);
    }
    count_text(text.as_bytes());
    let bound = bound.map_or_else(|| bind(session, text, keyspace), Ok)?;
    let statement = Rc::new(Statement::of(UNPREPARED, text, keyspace, bound).map_err(failure::unbound)?);
    if matches!(statement.work, Work::Engine(_)) && statement.kind != StatementKind::Other {
        plans.add_text(statement.clone(), session.role_number());
    }
    Ok(statement)
}

/// Parses a text, checks the rights on the tables that it names, and binds it.
pub(crate) fn bind(session: &Session, text: &str, keyspace: Option<&Rc<str>>) -> Result<Bound, Failure> {
    let _ = lanes::spend_bytes(text.len());
    let guardrails = session.core.engine.registry().guardrails();
    guardrails.check(Guardrail::StatementBytes, text.len() as u64).map_err(failure::unbound)?;
    bind_parsed(session, keyspace, ParsedTree::parse(text))
}

/// Parses the text of a PREPARE and binds it. EXECUTE checks the rights.
pub(crate) fn bind_prepared(
    session: &Session,
    text: &str,
    keyspace: Option<&Rc<str>>,
) -> Result<Bound, Failure> {
    let _ = lanes::spend_bytes(text.len());
    let guardrails = session.core.engine.registry().guardrails();
    guardrails.check(Guardrail::StatementBytes, text.len() as u64).map_err(failure::unbound)?;
    let parsed = ParsedTree::parse(text).map_err(failure::syntax)?;
    Bound::of(parsed, keyspace, &*session.core.engine).map_err(failure::unbound)
}

/// Checks the rights on the tables that a parsed text names.
fn authorized(session: &Session, keyspace: Option<&Rc<str>>, parsed: Parsed) -> Result<ParsedTree, Failure> {
    let parsed = parsed.map_err(failure::syntax)?;
    authorize_tree(session, &parsed, keyspace.map(|keyspace| &**keyspace)).map_err(failure::unbound)?;
    Ok(parsed)
}

/// Checks the rights of a parsed short text and binds it.
pub(crate) fn bind_parsed(
    session: &Session,
    keyspace: Option<&Rc<str>>,
    parsed: Parsed,
) -> Result<Bound, Failure> {
    let parsed = authorized(session, keyspace, parsed)?;
    Bound::of(parsed, keyspace, &*session.core.engine).map_err(failure::unbound)
}

/// Checks the rights of a parsed long text and binds it on the heavy lane.
pub(crate) async fn bind_long(
    session: &Session,
    keyspace: Option<&Rc<str>>,
    parsed: Parsed,
) -> Result<Bound, Failure> {
    let parsed = authorized(session, keyspace, parsed)?;
    Bound::of_long(parsed, keyspace, &*session.core.engine).await.map_err(failure::unbound)
}

/// Binds the parsed long text of a QUERY, like [`bind_long`], or of a PREPARE, whose rights EXECUTE
/// checks.
pub(crate) async fn bind_envelope(
    session: &Session,
    envelope: &Envelope,
    request: &CqlRequest,
    parsed: Parsed,
) -> Result<Bound, Failure> {
    if let Ok((_, params)) = envelope.checked_query() {
        return bind_long(session, request.keyspace_of(params.keyspace).as_ref(), parsed).await;
    }
    let Ok(Request::Prepare(prepare)) = envelope.request() else {
        unreachable!("the envelope was read as one of these before");
    };
    count_text(prepare.text.as_bytes());
    let (keyspace, parsed) = (request.keyspace_of(prepare.keyspace), parsed.map_err(failure::syntax)?);
    Bound::of_long(parsed, keyspace.as_ref(), &*session.core.engine).await.map_err(failure::unbound)
}

/// Returns true if a batch contains prepared statements whose plans no longer fit the schema, with
/// texts too long in total to be bound on the fast lane.
pub(crate) fn has_stale_long(core: &Core, batch: &wire::Batch<'_>) -> bool {
    let stale_bytes = |entry: BatchEntry<'_>| match entry.statement {
        BatchStatement::Prepared(id) => {
            let stale = core.plans.prepared(id).filter(|statement| !statement.is_current());
            stale.map_or(0, |statement| statement.text.len())
        }
        BatchStatement::Text(_) => 0,
    };
    batch.iter().map(stale_bytes).sum::<usize>() > INLINE_TEXT_BYTES
}

/// Binds the statement of an EXECUTE again, like [`renew`].
pub(crate) async fn renew_executed(core: &Core, envelope: &Envelope) -> Result<(), Failure> {
    match envelope.request() {
        Ok(Request::Execute(execute)) => renew(core, execute.id, execute.params.consistency).await,
        _ => Ok(()),
    }
}

/// Binds a prepared statement again on the heavy lane, if it is long and no longer fits the schema.
pub(crate) async fn renew(core: &Core, id: &[u8], consistency: Consistency) -> Result<(), Failure> {
    let Some(statement) = core.plans.prepared(id).filter(|statement| statement.is_stale_long()) else {
        return Ok(());
    };
    let renewed = rebind_long(core, &statement).await;
    renewed.map_err(|error| failure::of(error, StatementKind::Other, consistency, Some(id)))
}

/// Returns the statement if its plan fits the schema, otherwise binds it again.
///
/// # Errors
/// The statement no longer fits the schema. Its client has to prepare it again.
pub(crate) fn current(core: &Core, statement: Rc<Statement>) -> Result<Rc<Statement>, Error> {
    if statement.is_current() { Ok(statement) } else { rebind(core, &statement) }
}

/// Binds a prepared statement again and stores it.
///
/// # Errors
/// Same as [`current`].
#[cold]
pub(crate) fn rebind(core: &Core, statement: &Statement) -> Result<Rc<Statement>, Error> {
    let _ = lanes::spend((statement.text.len() / REBIND_BYTES_PER_UNIT) as u32);
    let rebound = Rc::new(statement.rebound(&*core.engine)?);
    core.plans.replace_prepared(rebound.clone());
    Ok(rebound)
}

/// Binds a long prepared statement again, on the heavy lane, and stores it.
///
/// # Errors
/// Same as [`current`].
async fn rebind_long(core: &Core, statement: &Statement) -> Result<(), Error> {
    let (_, parsed) = parse(statement.text.to_string()).await;
    let parsed = parsed.map_err(|error| Error::Server(format!("a prepared text is no CQL: {error}")))?;
    let bound = Bound::of_long(parsed, statement.keyspace.as_ref(), &*core.engine).await?;
    core.plans.replace_prepared(Rc::new(statement.renewed(bound)?));
    Ok(())
}

/// Parses a text. Parses a long text on the heavy lane.
pub(crate) async fn parse(text: String) -> (String, Parsed) {
    if text.len() <= INLINE_TEXT_BYTES {
        let parsed = ParsedTree::parse(&text);
        return (text, parsed);
    }
    let parse = async move {
        let parsed = ParsedTree::parse(&text);
        (text, parsed)
    };
    lanes::heavy(lanes::current_group(), parse).await
}

/// Stores a bound text as a prepared statement.
///
/// # Errors
/// An encoding error, or [`Error::Invalid`] if the statement takes too much memory.
pub(crate) fn store_prepared(
    core: &Core,
    id: Id,
    text: &str,
    keyspace: Option<&Rc<str>>,
    bound: Bound,
    role: u32,
) -> Result<Rc<Statement>, Error> {
    let mut statement = Statement::of(id, text, keyspace, bound)?;
    if let Some(old) = core.plans.prepared(&statement.id) {
        // The statement's plan is stale. Clients that have not prepared it again know the old
        // columns.
        statement.result_changed = old.result_changed || old.result() != statement.result();
    }
    let statement = Rc::new(statement);
    let (bytes, bytes_max) = (statement.bytes(), core.shared.config.prepared_statement_bytes_max());
    if bytes > bytes_max {
        return Err(failure::too_large(text, bytes, bytes_max));
    }
    core.plans.add_prepared(statement.clone(), role);
    Ok(statement)
}
