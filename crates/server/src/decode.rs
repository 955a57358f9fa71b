//! Decode stage: reads the message of an authenticated client and finds the statement that it runs.
//! A message with a long text that is not bound yet continues on the heavy lane.

use engine::Guardrail;
use wire::{
    Batch, BatchEntry, Envelope, Failure, Opcode, Prepare, QueryParams, Request, Statement as BatchStatement,
    Version,
};

use crate::bind::{count_text, current, has_plan, has_stale_long, long_statement, statement};
use crate::core::Core;
use crate::failure;
use crate::reply::MetadataRequest;
use crate::request::{CqlRequest, MessageForm, own_body};
use crate::session::Session;
use crate::statement::{Bound, INLINE_TEXT_BYTES, Statement, StatementKind};

/// Maximum number of statements of a batch that is run without a yield. Its texts must not exceed
/// [`INLINE_TEXT_BYTES`] in total.
const INLINE_STATEMENTS: usize = 50;

/// A decoded message.
pub(crate) enum Decoded<'a> {
    /// The request has its statement. These are the parameters.
    Statement(QueryParams<'a>),
    Batch(Batch<'a>),
    /// PREPARE, with the text if the heavy lane has bound it.
    Prepare(Prepare<'a>, Option<Bound>),
    Options,
    Register(Vec<&'a str>),
    /// The heavy lane has to parse or bind the texts first.
    Long,
}

/// Decodes a message whose text the heavy lane may have bound already (`bound`).
pub(crate) fn decode<'a>(
    session: &Session,
    envelope: &'a Envelope,
    request: &mut CqlRequest,
    bound: Option<Bound>,
) -> Result<Decoded<'a>, Failure> {
    let bound = match (bound, envelope.opcode) {
        (Some(bound), Opcode::Query) if own_body(envelope).is_some() => {
            let (text, params) = envelope.checked_query().map_err(|error| Failure::from(&error))?;
            let keyspace = request.keyspace_of(params.keyspace);
            let statement = long_statement(text, keyspace.as_ref(), bound)?;
            request.decoded(statement, MessageForm::of_text(params.consistency));
            return Ok(Decoded::Statement(params));
        }
        (bound, _) => bound,
    };
    match envelope.request().map_err(|error| Failure::from(&error))? {
        Request::Execute(execute) => {
            let plans = &session.core.plans;
            let found = plans.prepared(execute.id).ok_or_else(|| failure::unprepared(execute.id))?;
            if found.is_stale_long() {
                return Ok(Decoded::Long);
            }
            let consistency = execute.params.consistency;
            let statement = current(&session.core, found)
                .map_err(|error| failure::of(error, StatementKind::Other, consistency, Some(execute.id)))?;
            let metadata = metadata_request(&statement, envelope.version, &execute);
            request.decoded(
                statement,
                MessageForm { is_prepared: true, metadata, ..MessageForm::of_text(consistency) },
            );
            Ok(Decoded::Statement(execute.params))
        }
        Request::Query(query) => {
            let keyspace = request.keyspace_of(query.params.keyspace);
            if bound.is_none()
                && query.text.len() > INLINE_TEXT_BYTES
                && !has_plan(&session.core, query.text, keyspace.as_ref())
            {
                return Ok(Decoded::Long);
            }
            let statement = statement(session, query.text, keyspace.as_ref(), bound)?;
            request.decoded(statement, MessageForm::of_text(query.params.consistency));
            Ok(Decoded::Statement(query.params))
        }
        Request::Batch(batch) if is_long(&batch) || has_stale_long(&session.core, &batch) => {
            check_batch(&session.core, &batch)?;
            Ok(Decoded::Long)
        }
        Request::Batch(batch) => Ok(Decoded::Batch(batch)),
        Request::Prepare(prepare) if bound.is_none() && prepare.text.len() > INLINE_TEXT_BYTES => {
            Ok(Decoded::Long)
        }
        Request::Prepare(prepare) => {
            count_text(prepare.text.as_bytes());
            Ok(Decoded::Prepare(prepare, bound))
        }
        Request::Register(types) => Ok(Decoded::Register(types)),
        Request::Options => Ok(Decoded::Options),
        Request::Startup(_) => {
            Err(failure::protocol("Unexpected message STARTUP, this connection is open already"))
        }
        Request::AuthResponse(_) => {
            Err(failure::protocol("Unexpected message AUTH_RESPONSE after authentication"))
        }
    }
}

/// Returns the result columns that an EXECUTE requests.
fn metadata_request(statement: &Statement, version: Version, execute: &wire::Execute<'_>) -> MetadataRequest {
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

/// Returns true if a batch must run as a long request.
fn is_long(batch: &Batch<'_>) -> bool {
    let text_bytes = |entry: BatchEntry<'_>| match entry.statement {
        BatchStatement::Text(text) => text.len(),
        BatchStatement::Prepared(_) => 0,
    };
    batch.len() > INLINE_STATEMENTS || batch.iter().map(text_bytes).sum::<usize>() > INLINE_TEXT_BYTES
}

/// Checks a long batch against the guardrails, before any work on it.
fn check_batch(core: &Core, batch: &Batch<'_>) -> Result<(), Failure> {
    let guardrails = core.engine.registry().guardrails();
    // The engine checks the bytes of values. The body has those of texts as well, and is bounded.
    guardrails
        .check(Guardrail::BatchStatements, batch.len() as u64)
        .map_err(|error| failure::of(error, StatementKind::Batch, batch.params.consistency, None))
}
