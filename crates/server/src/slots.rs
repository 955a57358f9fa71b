//! Slot stage, for levels with `max_concurrency`.

use wire::{Envelope, Failure, FailureKind, Request};
use workload::{SlotRequest, WaitingStatement};

use crate::failure;
use crate::request::{CqlRequest, Frame, WAITING_BYTES};
use crate::session::Session;
use crate::statement::{INLINE_TEXT_BYTES, Statement, Work};

/// Returns true if a statement takes a slot: any statement on data does. A statement on the
/// server's own keyspaces, which drivers read when they connect, or one that changes levels, never
/// waits for a full level.
pub(crate) fn needs_slot(statement: &Statement) -> bool {
    let of_server = |target: &engine::StatementTarget| engine::is_of_server(&target.keyspace);
    matches!(&statement.work, Work::Engine(plan) if !plan.targets().iter().all(of_server))
}

/// Returns true if a request is admitted even by a level that is overloaded: one on the server's
/// own keyspaces, and messages without a statement. Otherwise drivers could not connect, and
/// operators could not see the cause.
#[cold]
pub(crate) fn is_always_admitted(session: &Session, frame: &Frame) -> bool {
    let Frame::Whole(envelope) = frame else { return false };
    let plans = &session.core.plans;
    match envelope.request() {
        Ok(Request::Options | Request::Register(_)) => true,
        Ok(Request::Execute(execute)) => {
            plans.prepared(execute.id).is_some_and(|statement| is_of_server(&statement))
        }
        Ok(Request::Query(query)) => {
            let known = plans.text(session.keyspace.borrow().as_deref(), query.text);
            known.map_or_else(|| reads_server(query.text), |statement| is_of_server(&statement))
        }
        _ => false,
    }
}

fn is_of_server(statement: &Statement) -> bool {
    matches!(&statement.work, Work::Engine(_)) && !needs_slot(statement)
}

/// Returns true if a short text reads a table of the server. Most other texts are not parsed.
fn reads_server(text: &str) -> bool {
    text.len() <= INLINE_TEXT_BYTES
        && text.contains("system")
        && matches!(cql::parse(text), Ok(cql::ast::Statement::Select(select))
            if select.from.keyspace.as_deref().is_some_and(engine::is_of_server))
}

/// Takes the slot that the level requires for a request that is about to run. The request waits
/// for at most its limit, unless the level configures a time. Returns `None` if the request may run
/// now. Charges the memory of a request that waits.
///
/// # Errors
/// The wait queue is full, or the account has not enough free memory.
pub(crate) fn take_slot(
    session: &Session,
    envelope: &Envelope,
    request: &mut CqlRequest,
) -> Result<Option<WaitingStatement>, Failure> {
    if request.effective.spec.slots.max_concurrency.is_none() || request.slot.is_some() {
        return Ok(None);
    }
    match workload::enter(&request.effective, request.limit) {
        SlotRequest::In(slot) => {
            request.slot = Some(slot);
            Ok(None)
        }
        SlotRequest::Waits(waiting) => {
            let charged = session.account.borrow().charge((envelope.body.len() + WAITING_BYTES) as u64);
            request.memory.charges.push(charged.map_err(failure::out_of_memory)?);
            Ok(Some(waiting))
        }
        SlotRequest::Full(refused) => Err(Failure::new(FailureKind::Overloaded, refused.0)),
    }
}
