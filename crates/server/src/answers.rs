//! Reply stage: encodes the answer into the session's output buffer.
//!
//! An answer larger than [`INLINE_ANSWER_BYTES`] is encoded and compressed on the heavy lane. Its
//! bytes then wait in the session's outbox, behind the answers that were encoded before it.
//!
//! A client that reads nothing holds at most about `ANSWER_BYTES_MAX` (`session.rs`), and a small
//! page for each request in flight:
//!
//! - Pending reads are not polled while the client does not read its answers (`PendingResult`).
//! - The pages of a connection shrink with its remaining answer memory ([`Session::page_bytes`]).
//!
//! An answer is charged to the connection's account as it grows. Every large answer is charged
//! until it is sent.

use std::rc::Rc;
use std::sync::Arc;

use engine::{AnswerGrant, AnswerMemory, Error, StatementOutcome, Warnings};
use frontdoor::{Charge, Full};
use wire::{Direction, Encoder, Failure, FailureKind, Prelude};

use crate::account::AnswerCharge;
use crate::audit;
use crate::failure;
use crate::record;
use crate::reply::{self, MetadataRequest};
use crate::request::CqlRequest;
use crate::session::{Session, Unsent};
use crate::statement::{INLINE_METADATA_BYTES, Statement, Work};

/// Maximum size of an answer encoded on the fast lane, bytes of cells. 64 KiB take about 10 µs, or
/// 100 µs with LZ4.
const INLINE_ANSWER_BYTES: usize = 64 << 10;

/// Bytes of columns, apart from those of the statement, that are counted for a charge.
const COUNTED_METADATA_BYTES: usize = 64 << 10;

/// Puts the answer of a request into the output buffer.
pub(crate) fn answer(
    session: &Rc<Session>,
    request: &mut CqlRequest,
    result: Result<StatementOutcome, Failure>,
) {
    request.note(|| describe(&result));
    request.failed = encode(session, request, result);
}

/// Returns the outcome of a request for its trace.
fn describe(result: &Result<StatementOutcome, Failure>) -> String {
    match result {
        Ok(StatementOutcome::Rows(rows)) => {
            let (count, bytes) = (rows.count, rows.cells.len());
            let more = if rows.paging_state.is_some() { ", more rows follow" } else { "" };
            format!("Answering with {count} rows of {bytes} bytes{more}")
        }
        Ok(_) => "Answering without rows".to_owned(),
        Err(failure) => format!("Answering with an error: {}", failure.message),
    }
}

/// Answers a request whose result came later, and records it.
pub(crate) fn answer_and_record(
    session: &Rc<Session>,
    mut request: CqlRequest,
    result: Result<StatementOutcome, Error>,
    now_ns: u64,
) {
    if let Some(statement) = &request.statement
        && matches!(statement.work, Work::Engine(_))
    {
        audit::outcome(session, &statement.tree, result.as_ref().err());
    }
    let result = result.map_err(|error| request.failure(error));
    answer(session, &mut request, result);
    record::record(session, &mut request, now_ns);
}

/// Encodes an answer. Returns true if it is an error. A large answer is encoded later, on the heavy
/// lane.
fn encode(session: &Rc<Session>, request: &CqlRequest, result: Result<StatementOutcome, Failure>) -> bool {
    session.warm_output();
    let (stream, metadata, core) = (request.stream, request.form.metadata, &session.core);
    let mut statement = request.statement.as_deref();
    let warnings = Warnings::take().texts(core.engine.registry().guardrails());
    let tracing_id = request.trace.as_ref().map(|trace| trace.id);
    let mut prelude = Prelude { tracing_id, ..Prelude::with_warnings(warnings) };
    if let Ok(StatementOutcome::Rows(rows)) = &result {
        statement = statement.filter(|statement| reply::is_result_of(statement, rows));
        if is_large(rows, statement, metadata) {
            let Ok(StatementOutcome::Rows(rows)) = result else { unreachable!("matched above") };
            let statement = request.statement.clone();
            let large = LargeAnswer { stream, rows, statement, metadata, prelude };
            let Err(full) = encode_large(session, large) else { return false };
            session.refuse(stream, &failure::out_of_memory(full));
            return true;
        }
    }
    if let Ok(StatementOutcome::SchemaChange(change)) = &result {
        prelude.warnings.extend(reply::definition_warning(change, &core.engine.schema()));
    }
    let mut encoder = session.outgoing.encoder.borrow_mut();
    let code = reply::answer(&mut encoder, stream, &result, statement, metadata, prelude);
    drop(encoder);
    if let Some(code) = code {
        core.counters.error(code);
    }
    if let Err(failure) = &result
        && failure.kind == FailureKind::Server
    {
        core.log_failure(failure);
    }
    code.is_some()
}

/// Returns true if encoding an answer takes too long for the fast lane. `statement` is the one that
/// has the columns of the rows.
fn is_large(rows: &engine::ResultRows, statement: Option<&Statement>, metadata: MetadataRequest) -> bool {
    if rows.cells.len() > INLINE_ANSWER_BYTES {
        return true;
    }
    match statement {
        Some(statement) => statement.is_wide() && (!metadata.skip_metadata || metadata.metadata_is_old),
        None => reply::metadata_bytes(rows, INLINE_METADATA_BYTES) > INLINE_METADATA_BYTES,
    }
}

/// An answer that is encoded on the heavy lane.
struct LargeAnswer {
    stream: i16,
    rows: engine::ResultRows,
    statement: Option<Rc<Statement>>,
    metadata: MetadataRequest,
    prelude: Prelude,
}

/// Encodes an answer of many rows on the heavy lane, and puts it into the outbox. Charges it to the
/// connection's account until it is sent. While it is encoded, a part of it is in memory twice: all
/// such parts together have at most the bytes of the charges.
///
/// # Errors
/// The account has not enough free memory.
fn encode_large(session: &Rc<Session>, large: LargeAnswer) -> Result<(), Full> {
    let LargeAnswer { stream, rows, statement, metadata, prelude } = large;
    let version = session.outgoing.encoder.borrow().version();
    let of_statement = statement.as_deref().filter(|statement| reply::is_result_of(statement, &rows));
    let metadata_bytes = match of_statement {
        Some(statement) => statement.metadata_bytes(),
        None => reply::metadata_bytes(&rows, COUNTED_METADATA_BYTES),
    };
    let bytes = rows.cells.len() + metadata_bytes;
    let charge = session.account.borrow().charge(bytes as u64)?;
    let (session, owner) = (session.clone(), session);
    let encoding = Encoding::begin(&session, bytes);
    let work = async move {
        let encoded = match &statement {
            Some(statement) if reply::is_result_of(statement, &rows) => {
                statement.encode_columns(version).await
            }
            _ => Ok(()),
        };
        let plan =
            encoded.and_then(|()| reply::plan_rows(version, &rows, statement.as_deref(), metadata, prelude));
        let write = move |mut encoder: Encoder| async move {
            let written = match plan {
                Ok(plan) => reply::write_rows(&mut encoder, stream, rows, plan).await,
                Err(error) => Err(error),
            };
            (encoder, written)
        };
        deliver(&session, stream, encoding, charge, write).await;
    };
    owner.spawn_answer(lanes::current_group(), stream, work);
    Ok(())
}

/// Encodes an answer on the heavy lane, and puts it into the outbox.
pub(crate) async fn deliver<F>(
    session: &Rc<Session>,
    stream: i16,
    encoding: Encoding,
    charge: Charge,
    write: impl FnOnce(Encoder) -> F + Send + 'static,
) where
    F: Future<Output = (Encoder, Result<(), wire::Error>)> + Send,
{
    let (version, framing) = {
        let encoder = session.outgoing.encoder.borrow();
        (encoder.version(), encoder.framing())
    };
    let bytes = encoding.bytes;
    let encode = async move {
        let mut encoder = Encoder::new(Direction::Response, version);
        encoder.set_framing(framing);
        encoder.reserve(bytes);
        let (mut encoder, written) = write(encoder).await;
        if let Err(error) = written {
            reply::unencodable(&mut encoder, stream, &error);
        }
        encoder.finish().split().freeze()
    };
    let bytes = lanes::heavy(lanes::current_group(), encode).await;
    drop(encoding);
    let before = session.outgoing.encoder.borrow_mut().finish().split().freeze();
    let mut outbox = session.outgoing.outbox.borrow_mut();
    let unsent = [Unsent { bytes: before, charge: None }, Unsent { bytes, charge: Some(charge) }];
    outbox.extend(unsent.into_iter().filter(|unsent| !unsent.bytes.is_empty()));
}

impl AnswerMemory for Session {
    fn open(&self) -> Arc<dyn AnswerGrant> {
        Arc::new(AnswerCharge::new(&self.account.borrow()))
    }
}

/// An answer that is being encoded. Its bytes are counted until it is in the outbox.
pub(crate) struct Encoding {
    session: Rc<Session>,
    bytes: usize,
}

impl Encoding {
    pub(crate) fn begin(session: &Rc<Session>, bytes: usize) -> Encoding {
        session.outgoing.encoding_bytes.set(session.outgoing.encoding_bytes.get() + bytes);
        Encoding { session: session.clone(), bytes }
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        self.session.outgoing.encoding_bytes.set(self.session.outgoing.encoding_bytes.get() - self.bytes);
    }
}
