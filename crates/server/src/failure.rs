//! Errors of requests, as ERROR messages. Texts that clients know from Cassandra keep its wording.

use std::net::Ipv4Addr;
use std::time::Duration;

use engine::Error;
use frontdoor::Full;
use wire::{Consistency, Failure, FailureKind, Failures};
use workload::Rejection;

use crate::account;
use crate::statement::StatementKind;

/// Cassandra's code for a replica whose index is not built.
const INDEX_NOT_AVAILABLE: u16 = 6;

/// Converts an engine's error to an ERROR message. `id` belongs to a prepared statement.
pub(crate) fn of(error: Error, kind: StatementKind, consistency: Consistency, id: Option<&[u8]>) -> Failure {
    let message = error.to_string();
    let kind = match error {
        Error::Invalid(_) => FailureKind::Invalid,
        Error::Config(_) => FailureKind::Config,
        Error::Syntax(_) => FailureKind::Syntax,
        Error::AlreadyExists { keyspace, table } => FailureKind::AlreadyExists { keyspace, table },
        Error::Function { function, arguments, .. } => {
            FailureKind::FunctionFailure { keyspace: "system".to_owned(), function, arg_types: arguments }
        }
        Error::Unauthorized(_) => FailureKind::Unauthorized,
        Error::Overloaded(_) => FailureKind::Overloaded,
        Error::ReadTimeout(_) => {
            FailureKind::ReadTimeout { consistency, received: 0, block_for: 1, data_present: false }
        }
        Error::IndexNotAvailable => {
            // Clients of protocol v5 get Cassandra's code for the reason.
            let reasons = vec![(Ipv4Addr::LOCALHOST.into(), INDEX_NOT_AVAILABLE)];
            let failures = Failures { count: 1, reasons };
            FailureKind::ReadFailure { consistency, received: 0, block_for: 1, failures, data_present: false }
        }
        Error::WriteTimeout(_) => {
            let write_type = if kind == StatementKind::Batch { "BATCH" } else { "SIMPLE" };
            FailureKind::WriteTimeout {
                consistency,
                received: 0,
                block_for: 1,
                write_type: write_type.to_owned(),
                contentions: None,
            }
        }
        Error::Stale => match id {
            Some(id) => FailureKind::Unprepared(id.to_vec()),
            None => FailureKind::Server,
        },
        Error::Server(_) => FailureKind::Server,
    };
    Failure::new(kind, message)
}

/// Returns the error for a text that cannot be prepared or bound.
pub(crate) fn unbound(error: Error) -> Failure {
    of(error, StatementKind::Other, Consistency::One, None)
}

/// Returns the error for a text that is not valid CQL.
pub(crate) fn syntax(error: cql::SyntaxError) -> Failure {
    let kind = if error.is_invalid { FailureKind::Invalid } else { FailureKind::Syntax };
    Failure::new(kind, error.to_string())
}

/// Returns the error for a violation of the protocol.
pub(crate) fn protocol(text: &str) -> Failure {
    Failure::new(FailureKind::Protocol, text)
}

/// Returns the error for a request that was not admitted.
pub(crate) fn not_admitted(rejected: Rejection) -> Failure {
    Failure::new(FailureKind::Overloaded, rejected.text)
}

/// Returns the error for a request that exceeds the free memory of an account.
pub(crate) fn out_of_memory(full: Full) -> Failure {
    Failure::new(FailureKind::Overloaded, account::overloaded(full))
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

/// Returns Cassandra's error for a statement that takes too much memory to be stored.
pub(crate) fn too_large(text: &str, bytes: usize, bytes_max: usize) -> Error {
    let begin: String = text.chars().take(200).collect();
    Error::Invalid(format!(
        "Prepared statement of size {bytes} bytes is larger than allowed maximum of {bytes_max} bytes: {begin}..."
    ))
}

/// Returns the error of a statement that exceeded its time limit.
pub(crate) fn timed_out(kind: StatementKind, limit: Duration) -> Error {
    unanswered(kind, timed_out_text(limit))
}

/// Returns the text for a statement that exceeded its time limit.
pub(crate) fn timed_out_text(limit: Duration) -> String {
    format!("Operation timed out after {} ms", limit.as_millis())
}

/// Returns the error of a statement that may have been executed, by its kind.
pub(crate) fn unanswered(kind: StatementKind, text: String) -> Error {
    match kind {
        StatementKind::Write | StatementKind::Batch => Error::WriteTimeout(text),
        StatementKind::Read => Error::ReadTimeout(text),
        StatementKind::Maintenance | StatementKind::Other => Error::Server(text),
    }
}
