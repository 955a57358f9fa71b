//! Execute stage: runs one statement, after its rights, its time limit and its slot. Answers it now
//! or later.

use std::rc::Rc;
use std::sync::Arc;

use engine::{AnswerMemory, Error, Execution, Later, Plan, StatementOutcome, Viewer};
use wire::{Envelope, Failure, QueryParams};

use crate::answers::answer;
use crate::audit;
use crate::authorize::authorize;
use crate::bind::rebind;
use crate::describe;
use crate::fast::{Fast, Rest};
use crate::options::use_keyspace;
use crate::pending::PendingResult;
use crate::request::{CqlRequest, Frame, detached, own_body};
use crate::session::Session;
use crate::slots::{needs_slot, take_slot};
use crate::statement::{RunsIn, Statement, StatementKind, Timeout, Work};
use crate::trace::Trace;
use crate::values::{bound_timeout, bound_values};

/// Runs a decoded statement. It may be for another level than the session's.
pub(crate) fn execute_in_level(
    session: &Rc<Session>,
    envelope: &Envelope,
    params: &QueryParams<'_>,
    mut request: CqlRequest,
) -> Fast {
    let effective = match &request.statement().level {
        RunsIn::Session => return execute(session, envelope, params, request),
        RunsIn::Driver => Ok(session.core.access.handshake()),
        RunsIn::Named(name) => {
            let login = session.login().expect("requests come after authentication");
            session.core.access.effective_using(&login, name)
        }
    };
    match effective {
        Ok(effective) => match request.move_to(effective) {
            true => Fast::Slow(request, Rest::OtherLevel),
            false => execute(session, envelope, params, request),
        },
        Err(error) => {
            let failure = request.failure(error);
            answered(session, request, Err(failure))
        }
    }
}

/// Runs a decoded statement in the group of its level.
pub(crate) fn execute(
    session: &Rc<Session>,
    envelope: &Envelope,
    params: &QueryParams<'_>,
    mut request: CqlRequest,
) -> Fast {
    if let Err(error) = begin(session, params, &mut request) {
        let failure = request.failure(error);
        return answered(session, request, Err(failure));
    }
    request.note(|| "Authorized".to_owned());
    if needs_slot(request.statement()) {
        match take_slot(session, envelope, &mut request) {
            Ok(None) => {}
            Ok(Some(waiting)) => return Fast::Slow(request, Rest::Slot(waiting, None)),
            Err(failure) => return answered(session, request, Err(failure)),
        }
    }
    let rest = match &request.statement().work {
        Work::Use(keyspace) => {
            let failed = !use_keyspace(session, request.stream, keyspace);
            request.failed = failed;
            return Fast::Answered(request);
        }
        Work::Describe => {
            let login = session.login().expect("requests come after authentication");
            let statement = request.statement();
            let keyspace = statement.keyspace.as_deref();
            let part = describe::Page {
                page_rows: page_rows(params),
                page_bytes: session.page_bytes(),
                paging_state: params.paging_state.map(<[u8]>::to_vec),
                grant: session.open(),
            };
            match describe::describe(&session.core, &login, &statement.tree, keyspace, part) {
                describe::DescribeAnswer::Now(result) => {
                    let result = result.map_err(|error| request.failure(error));
                    return answered(session, request, result);
                }
                describe::DescribeAnswer::Later(later) => Rest::Result(PendingResult::of(later)),
            }
        }
        Work::Access => Rest::Result(PendingResult::of(execute_access(session, request.statement()))),
        Work::Engine(_) => {
            let page_bytes = session.page_bytes();
            let execution = match request.trace.take() {
                None => call_engine(session, envelope, params, &request, page_bytes),
                Some(trace) => {
                    let call =
                        |request: &CqlRequest| call_engine(session, envelope, params, request, page_bytes);
                    trace_execution(&mut request, trace, call)
                }
            };
            match execution {
                Execution::Ready(Ok(StatementOutcome::SchemaChange(change))) => {
                    let ready = std::future::ready(Ok(StatementOutcome::SchemaChange(change)));
                    Rest::Result(PendingResult::of(Box::pin(ready)))
                }
                // Bind it again on the heavy lane, then run it from the beginning.
                Execution::Ready(Err(Error::Stale)) if request.statement().is_stale_long() => {
                    return Fast::Slow(request, Rest::Opening(Frame::Whole(detached(envelope))));
                }
                Execution::Ready(result) => {
                    let result = result.map_err(|error| request.failure(error));
                    return answered(session, request, result);
                }
                Execution::Written(write) => Rest::Acknowledged(write),
                Execution::Reading { later, bytes, reads } => {
                    Rest::Result(PendingResult::of_read(session, later, bytes, page_bytes).counted(reads))
                }
                Execution::Pending(later) if request.kind() == StatementKind::Read => {
                    Rest::Result(PendingResult::of_read(session, later, 0, page_bytes))
                }
                Execution::Pending(later) => Rest::Result(PendingResult::of(later)),
            }
        }
    };
    let rest = match rest {
        Rest::Result(later) => Rest::Result(later.traced(request.trace.is_some())),
        rest => rest,
    };
    Fast::Slow(request, rest)
}

/// Calls the engine, with the notes of its work in a trace.
#[cold]
pub(crate) fn trace_execution(
    request: &mut CqlRequest,
    mut trace: Box<Trace>,
    call: impl FnOnce(&CqlRequest) -> Execution,
) -> Execution {
    let execution = trace.collect(|| call(request));
    trace.note(|| executed(&execution));
    request.trace = Some(trace);
    execution
}

/// Returns the first step of an execution for a trace.
fn executed(execution: &Execution) -> String {
    let core = lanes::current_core();
    match execution {
        Execution::Ready(_) => format!("Executed in memory on core {core}"),
        Execution::Written(_) => {
            format!("Applied to the memtable and the log of core {core}; waiting for the disk")
        }
        Execution::Pending(_) => format!("Executing from core {core}: disk, other cores or the heavy lane"),
        Execution::Reading { .. } => format!("Reading rows from core {core}"),
    }
}

/// Returns the rows per page, or `None` for all rows without pages.
fn page_rows(params: &QueryParams<'_>) -> Option<u32> {
    params.page_size.and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows > 0)
}

fn answered(
    session: &Rc<Session>,
    mut request: CqlRequest,
    result: Result<StatementOutcome, Failure>,
) -> Fast {
    answer(session, &mut request, result);
    Fast::Answered(request)
}

/// Checks the rights of a statement and sets its time limit.
fn begin(session: &Session, params: &QueryParams<'_>, request: &mut CqlRequest) -> Result<(), Error> {
    let statement = request.statement();
    authorize(session, statement)?;
    audit::begin(session, statement);
    let effective = &request.effective.spec;
    // Work on files takes as long as there are files. Only a limit of its level or the loss of its
    // client ends it.
    if statement.kind == StatementKind::Maintenance {
        request.limit = effective.timeout.unwrap_or(std::time::Duration::MAX);
        return Ok(());
    }
    let specified = match statement.timeout {
        Timeout::Unspecified => None,
        Timeout::Fixed(limit) => Some(limit),
        Timeout::Bound(marker) => bound_timeout(params, statement, marker)?,
    };
    let config = &session.core.shared.config;
    let limit = match (specified, &statement.work) {
        (Some(limit), _) => limit,
        // Drivers choose the keyspace when they connect.
        (None, Work::Use(_)) => config.request_timeout,
        (None, _) => session.time_limit(&request.effective),
    };
    request.limit = limit.min(config.statement_timeout_max);
    request.check_age()
}

/// Runs a statement about roles, grants or levels.
fn execute_access(session: &Rc<Session>, statement: &Statement) -> Later {
    let login = session.login().expect("requests come after authentication");
    let (session, tree, keyspace) = (session.clone(), statement.tree.clone(), statement.keyspace.clone());
    Box::pin(async move {
        let result = session.core.access.execute(&login, &tree, keyspace.as_deref(), &*session).await;
        audit::outcome(&session, &tree, result.as_ref().err());
        result
    })
}

/// Returns the rights of the session's role, if a plan needs them.
#[inline]
pub(crate) fn viewer(session: &Session, is_needed: bool) -> Option<Arc<dyn Viewer>> {
    let login = is_needed.then(|| session.login().expect("requests come after authentication"))?;
    Some(session.core.access.viewer(&login))
}

/// Returns the plan of a statement for the engine, as it is before and after it is bound anew.
fn plan_of(statement: &Statement) -> &Rc<dyn Plan> {
    match &statement.work {
        Work::Engine(plan) => plan,
        _ => unreachable!("the engine is called for its own statements"),
    }
}

/// Starts the engine call. If the plan has just become stale, binds it again, once, unless its text
/// is long.
#[inline(always)]
fn call_engine(
    session: &Session,
    envelope: &Envelope,
    params: &QueryParams<'_>,
    request: &CqlRequest,
    page_bytes_max: usize,
) -> Execution {
    let statement = request.statement();
    let values = match bound_values(statement, params) {
        Ok(values) => values,
        Err(error) => return Execution::Ready(Err(error)),
    };
    let plan = plan_of(statement);
    let own = viewer(session, plan.needs_viewer());
    let room = |plan: &Rc<dyn Plan>| plan.shows_rows().then_some(session as &dyn AnswerMemory);
    let call = engine::Request {
        values: &values,
        body: own_body(envelope),
        page_size: page_rows(params),
        page_bytes_max,
        room: room(plan),
        paging_state: params.paging_state,
        timestamp_us: params.timestamp,
        now_s: params.now_in_seconds.and_then(|now| u32::try_from(now).ok()),
        serial: params.consistency.is_serial(),
        consistency: params.consistency.name(),
        viewer: own.as_ref(),
    };
    let mut execution = session.core.engine.execute(plan, &call);
    if matches!(execution, Execution::Ready(Err(Error::Stale))) && !statement.is_stale_long() {
        let rebound = rebind(&session.core, statement)
            .and_then(|rebound| authorize(session, &rebound).map(|()| rebound));
        execution = match rebound {
            Ok(rebound) => {
                // It may depend on rights on which the earlier plan did not.
                let plan = plan_of(&rebound);
                let own = viewer(session, plan.needs_viewer());
                let call = engine::Request { viewer: own.as_ref(), room: room(plan), ..call };
                session.core.engine.execute(plan, &call)
            }
            Err(error) => Execution::Ready(Err(error)),
        };
    }
    if let Execution::Ready(Err(error @ Error::Unauthorized(_))) = &execution {
        audit::denied(session, &statement.tree, error);
    }
    execution
}
