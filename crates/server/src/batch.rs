//! Execute stage of a BATCH: several writes, prepared or as text, run as one.

use std::rc::Rc;

use engine::{AnswerMemory, BatchKind, Error, Execution, Plan, Value};
use wire::{Batch, BatchPlace, CheckedStatement, Envelope, Failure, Values};
use workload::WaitingStatement;

use crate::answers::answer;
use crate::audit;
use crate::authorize::authorize;
use crate::bind;
use crate::execute::{trace_execution, viewer};
use crate::failure;
use crate::fast::{Fast, Rest};
use crate::pending::PendingResult;
use crate::request::{CqlRequest, own_body};
use crate::session::Session;
use crate::slots::take_slot;
use crate::statement::{INLINE_TEXT_BYTES, Parsed, RunsIn, Statement, StatementKind, Timeout, Work};
use crate::values::{BoundValues, check_count, value};

/// Work units of one statement of a batch: the cache lookup, its rights and its values.
const STATEMENT_UNITS: u32 = 5;

/// Memory of a bound value of a batch, here and in the engine, bytes.
const VALUE_BYTES: usize = 48;

/// Error for a statement within a batch that specifies its own timeout or level.
const PER_STATEMENT_OPTION: &str = "USING TIMEOUT and USING SERVICE LEVEL apply to a whole batch: \
     write them after BEGIN BATCH, not in a statement of the batch";

/// Runs a batch under the session's level.
pub(crate) fn execute_batch(
    session: &Rc<Session>,
    envelope: &Envelope,
    batch: &Batch<'_>,
    mut request: CqlRequest,
) -> Fast {
    match begin(session, envelope, batch, &mut request) {
        Ok(None) => {}
        Ok(Some(waiting)) => return Fast::Slow(request, Rest::Slot(waiting, None)),
        Err(failure) => return refused(session, request, &failure),
    }
    let keyspace = request.keyspace_of(batch.params.keyspace);
    let mut parts = Parts::default();
    for entry in batch.iter() {
        lanes::spend(STATEMENT_UNITS);
        let added = part(session, batch, entry.statement, keyspace.as_ref())
            .and_then(|statement| add_part(session, &mut parts, &request, entry.values, &statement));
        if let Err(failure) = added {
            return refused(session, request, &failure);
        }
    }
    run(session, envelope, batch, parts, request)
}

/// Runs a batch of many statements, or of long texts that the heavy lane has parsed. Yields between
/// statements.
pub(crate) async fn execute_long_batch(
    session: &Rc<Session>,
    envelope: &Envelope,
    place: &BatchPlace,
    mut texts: Vec<Option<Parsed>>,
    mut request: CqlRequest,
) -> Fast {
    let batch = envelope.checked_batch(place).expect("the envelope was read as a batch before");
    match begin(session, envelope, &batch, &mut request) {
        Ok(None) => {}
        Ok(Some(waiting)) => return Fast::Slow(request, Rest::Slot(waiting, None)),
        Err(failure) => return refused(session, request, &failure),
    }
    let keyspace = request.keyspace_of(batch.params.keyspace);
    let mut parts = Parts::default();
    texts.resize_with(batch.len(), || None);
    for ((statement, values), parsed) in batch.iter_checked().zip(texts) {
        let statement = long_part(session, &batch, statement, keyspace.as_ref(), parsed).await;
        let added =
            statement.and_then(|statement| add_part(session, &mut parts, &request, values, &statement));
        if let Err(failure) = added {
            return refused(session, request, &failure);
        }
        if lanes::spend(STATEMENT_UNITS) {
            lanes::yield_now().await;
        }
    }
    // Charge the bound values: they take more memory than the encoded ones.
    let charged = session.account.borrow().charge((parts.values.len() * VALUE_BYTES) as u64);
    match charged {
        Ok(charge) => request.memory.charges.push(charge),
        Err(full) => return refused(session, request, &failure::out_of_memory(full)),
    }
    run(session, envelope, &batch, parts, request)
}

/// Sets the parameters of a batch and takes its slot, like [`take_slot`].
fn begin(
    session: &Session,
    envelope: &Envelope,
    batch: &Batch<'_>,
    request: &mut CqlRequest,
) -> Result<Option<WaitingStatement>, Failure> {
    let limit = session.time_limit(&request.effective);
    request.decoded_batch(batch.params.consistency, limit);
    request.check_age().map_err(|error| request.failure(error))?;
    take_slot(session, envelope, request)
}

fn refused(session: &Session, mut request: CqlRequest, failure: &Failure) -> Fast {
    session.refuse(request.stream, failure);
    request.failed = true;
    Fast::Answered(request)
}

/// Returns the statement of an entry of a batch.
fn part(
    session: &Session,
    batch: &Batch<'_>,
    statement: wire::Statement<'_>,
    keyspace: Option<&Rc<str>>,
) -> Result<Rc<Statement>, Failure> {
    match statement {
        wire::Statement::Text(text) => bind::statement(session, text, keyspace, None),
        wire::Statement::Prepared(id) => {
            let core = &session.core;
            let found = core.plans.prepared(id).ok_or_else(|| failure::unprepared(id))?;
            let consistency = batch.params.consistency;
            bind::current(core, found)
                .map_err(|error| failure::of(error, StatementKind::Batch, consistency, Some(id)))
        }
    }
}

/// Returns the statement of an entry of a long batch, whose text the heavy lane has parsed.
async fn long_part(
    session: &Session,
    batch: &Batch<'_>,
    statement: CheckedStatement<'_>,
    keyspace: Option<&Rc<str>>,
    parsed: Option<Parsed>,
) -> Result<Rc<Statement>, Failure> {
    match (statement, parsed) {
        (CheckedStatement::Text(text), Some(parsed)) if text.len() > INLINE_TEXT_BYTES => {
            let bound = bind::bind_long(session, keyspace, parsed).await?;
            bind::long_statement(text, keyspace, bound)
        }
        (CheckedStatement::Text(text), parsed) => {
            let text = std::str::from_utf8(text).expect("checked before");
            let bound = parsed.map(|parsed| bind::bind_parsed(session, keyspace, parsed)).transpose()?;
            bind::statement(session, text, keyspace, bound)
        }
        (CheckedStatement::Prepared(id), _) => {
            bind::renew(&session.core, id, batch.params.consistency).await?;
            part(session, batch, wire::Statement::Prepared(id), keyspace)
        }
    }
}

/// Adds a statement and its values to the batch.
fn add_part<'a>(
    session: &Session,
    parts: &mut Parts<'a>,
    request: &CqlRequest,
    values: Values<'a>,
    statement: &Statement,
) -> Result<(), Failure> {
    let refused = |error: Error| request.failure(error);
    if statement.timeout != Timeout::Unspecified || matches!(statement.level, RunsIn::Named(_)) {
        return Err(refused(Error::Invalid(PER_STATEMENT_OPTION.to_owned())));
    }
    authorize(session, statement).map_err(refused)?;
    audit::begin(session, statement);
    check_count(statement.binds().len(), values.len()).map_err(refused)?;
    parts.plans.push(write_plan(statement).map_err(refused)?);
    parts.values.extend(values.iter().map(value));
    parts.ends.push(parts.values.len());
    Ok(())
}

/// Starts the engine call of a batch, and answers it now or later.
fn run(
    session: &Rc<Session>,
    envelope: &Envelope,
    batch: &Batch<'_>,
    parts: Parts<'_>,
    mut request: CqlRequest,
) -> Fast {
    let statements = parts.plans.len();
    request.note(|| format!("Parsed, bound and authorized {statements} statements"));
    let call = |_: &CqlRequest| call_engine(session, envelope, batch, parts);
    let execution = match request.trace.take() {
        None => call(&request),
        Some(trace) => trace_execution(&mut request, trace, call),
    };
    let rest = match execution {
        Execution::Ready(result) => {
            let result = result.map_err(|error| request.failure(error));
            answer(session, &mut request, result);
            return Fast::Answered(request);
        }
        Execution::Written(write) => Rest::Acknowledged(write),
        Execution::Pending(later) | Execution::Reading { later, .. } => {
            Rest::Result(PendingResult::of(later).traced(request.trace.is_some()))
        }
    };
    Fast::Slow(request, rest)
}

fn call_engine(session: &Session, envelope: &Envelope, batch: &Batch<'_>, parts: Parts<'_>) -> Execution {
    let mut from = 0;
    let values = &parts.values;
    let parts: Vec<(Rc<dyn Plan>, &[Value<'_>])> = parts
        .plans
        .into_iter()
        .zip(parts.ends)
        .map(|(plan, end)| {
            let own = &values[from..end];
            from = end;
            (plan, own)
        })
        .collect();
    let shows_rows = parts.iter().any(|(plan, _)| plan.shows_rows());
    let viewer = viewer(session, shows_rows && parts.iter().any(|(plan, _)| plan.needs_viewer()));
    let call = engine::Request {
        viewer: viewer.as_ref(),
        room: shows_rows.then_some(session as &dyn AnswerMemory),
        body: own_body(envelope),
        timestamp_us: batch.params.timestamp,
        now_s: batch.params.now_in_seconds.and_then(|now| u32::try_from(now).ok()),
        ..engine::Request::EMPTY
    };
    let kind = match batch.kind {
        wire::BatchKind::Logged => BatchKind::Logged,
        wire::BatchKind::Unlogged => BatchKind::Unlogged,
        wire::BatchKind::Counter => BatchKind::Counter,
    };
    session.core.engine.execute_batch(kind, &parts, &call)
}

/// Bound statements of a batch, with the values of all of them in one list.
#[derive(Default)]
struct Parts<'a> {
    plans: Vec<Rc<dyn Plan>>,
    values: BoundValues<'a>,
    /// End of each statement's values in `values`.
    ends: Vec<usize>,
}

/// Returns the plan of a statement within a batch.
fn write_plan(statement: &Statement) -> Result<Rc<dyn Plan>, Error> {
    match &statement.work {
        Work::Engine(plan) if statement.kind == StatementKind::Write => Ok(plan.clone()),
        _ => Err(Error::Invalid(
            "Only UPDATE, INSERT and DELETE statements are allowed in BATCH statements".to_owned(),
        )),
    }
}
