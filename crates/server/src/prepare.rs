//! PREPARE: stores a statement on all cores, so that every connection of the client may execute it.
//! As in Cassandra, only EXECUTE checks the permissions of the role.

use std::rc::Rc;
use std::sync::Arc;

use engine::{Error, ParsedTree, Warnings};
use wire::{Encoder, Envelope, Failure, FailureKind, Prelude, Prepare, PreparedHead};

use crate::answers::{Encoding, deliver};
use crate::bind::{self, store_prepared};
use crate::core::Core;
use crate::failure;
use crate::session::Session;
use crate::sessions;
use crate::statement::{self, Bound, INLINE_TEXT_BYTES, Id, PREPARED_TEXT_BYTES_MAX, Statement, Work};

/// Prepares a text on all cores and answers.
pub(crate) fn prepare(
    session: &Rc<Session>,
    envelope: &Envelope,
    prepare: &Prepare<'_>,
    keyspace: Option<&Rc<str>>,
    bound: Option<Bound>,
) -> Result<(), Failure> {
    let text = prepare.text;
    if text.len() > PREPARED_TEXT_BYTES_MAX {
        return Err(failure::unbound(failure::too_large(text, text.len(), PREPARED_TEXT_BYTES_MAX)));
    }
    let id = bound.as_ref().and_then(|bound| bound.id);
    let id = id.unwrap_or_else(|| statement::id(keyspace.map(|keyspace| &**keyspace), text));
    if let Some(statement) = prepared(&session.core, &id) {
        if statement.is_wide() {
            answer_when_elsewhere(session, envelope, statement);
            return Ok(());
        }
        return answer(session, envelope, &statement);
    }
    let bound = bound.map_or_else(|| bind::bind_prepared(session, text, keyspace), Ok)?;
    let stored = store_prepared(&session.core, id, text, keyspace, bound, session.role_number());
    let statement = stored.map_err(failure::unbound)?;
    if lanes::cores() == 1 && !statement.is_wide() {
        return answer(session, envelope, &statement);
    }
    answer_when_elsewhere(session, envelope, statement);
    Ok(())
}

/// Encodes the columns of a statement and prepares it on the other cores, then answers.
fn answer_when_elsewhere(session: &Rc<Session>, envelope: &Envelope, statement: Rc<Statement>) {
    let (session, owner, envelope) = (session.clone(), session, envelope.clone());
    let limit = session.core.shared.config.request_timeout;
    let stream = envelope.stream;
    let warnings = Warnings::take();
    let work = async move {
        let role = session.role_name().unwrap_or_else(|| "".into());
        // A core that does not answer in time learns of the statement when a client prepares it
        // there.
        let _ = lanes::time::timeout(limit, prepare_elsewhere(&session.core, &statement, &role)).await;
        Warnings::begin();
        warnings.give();
        let answered = match statement.is_wide() {
            true => answer_wide(&session, &envelope, &statement).await,
            false => answer(&session, &envelope, &statement),
        };
        if let Err(failure) = answered {
            session.refuse(envelope.stream, &failure);
        }
    };
    owner.spawn_answer(lanes::current_group(), stream, work);
}

/// Prepares a statement on the other cores, as far as they can.
async fn prepare_elsewhere(core: &Core, statement: &Statement, role: &Arc<str>) {
    for other in (0..lanes::cores()).filter(|other| *other != core.index) {
        let (shared, text, role) = (core.shared.clone(), statement.text.to_string(), role.clone());
        let (id, keyspace) = (statement.id, statement.keyspace.as_deref().map(str::to_owned));
        let prepare = move || async move {
            let (text, parsed) = bind::parse(text).await;
            let Some(sessions) = sessions::here(&shared) else { return };
            let core = &*sessions.core;
            let keyspace: Option<Rc<str>> = keyspace.map(Rc::from);
            if prepared(core, &id).is_some() {
                return;
            }
            // Ignore errors: the preparing core reports its own.
            if let Ok(parsed) = parsed
                && let Ok(bound) = bind_here(core, &text, keyspace.as_ref(), parsed).await
            {
                let role = core.role_number(&role);
                let _ = store_prepared(core, id, &text, keyspace.as_ref(), bound, role);
            }
        };
        // Ignore warnings: the preparing core returns its own.
        lanes::call(other, move || Warnings::collect(Warnings::NONE, prepare())).await;
    }
}

/// Returns a prepared statement that still fits the schema, or `None`.
fn prepared(core: &Core, id: &Id) -> Option<Rc<Statement>> {
    core.plans.prepared(id).filter(|statement| statement.is_current())
}

/// Binds a parsed text. Binds a long text on the heavy lane.
async fn bind_here(
    core: &Core,
    text: &str,
    keyspace: Option<&Rc<str>>,
    parsed: ParsedTree,
) -> Result<Bound, Error> {
    if text.len() <= INLINE_TEXT_BYTES {
        return Bound::of(parsed, keyspace, &*core.engine);
    }
    Bound::of_long(parsed, keyspace, &*core.engine).await
}

fn answer(session: &Session, envelope: &Envelope, statement: &Statement) -> Result<(), Failure> {
    let encoded = statement.encoded(envelope.version).map_err(|error| unencodable(&error))?;
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
    session.warm_output();
    let mut encoder = session.outgoing.encoder.borrow_mut();
    let warnings = Warnings::take().texts(session.core.engine.registry().guardrails());
    let written = encoder.prepared(envelope.stream, &head, &Prelude::with_warnings(warnings));
    written.map_err(|error| unencodable(&error))
}

/// Answers with columns that the heavy lane encodes and copies. Charges the answer until it is
/// sent.
async fn answer_wide(
    session: &Rc<Session>,
    envelope: &Envelope,
    statement: &Statement,
) -> Result<(), Failure> {
    let (version, stream) = (envelope.version, envelope.stream);
    let bytes = statement.metadata_bytes();
    let charge = session.account.borrow().charge(bytes as u64).map_err(failure::out_of_memory)?;
    let encoding = Encoding::begin(session, bytes);
    statement.encode_columns(version).await.map_err(|error| unencodable(&error))?;
    let encoded = statement.encoded(version).map_err(|error| unencodable(&error))?;
    let (id, result_id) = (statement.id, encoded.result_id);
    let (bind, result) = (encoded.bind.clone(), encoded.result.clone());
    let key_binds = match &statement.work {
        Work::Engine(plan) => plan.partition_key_binds().to_vec(),
        _ => Vec::new(),
    };
    let warnings = Warnings::take().texts(session.core.engine.registry().guardrails());
    let write = move |mut encoder: Encoder| async move {
        let head = PreparedHead {
            id: &id,
            result_metadata_id: &result_id,
            bind: &bind,
            partition_key_indexes: &key_binds,
            result: &result,
        };
        let written = encoder.prepared(stream, &head, &Prelude::with_warnings(warnings));
        (encoder, written)
    };
    deliver(session, stream, encoding, charge, write).await;
    Ok(())
}

fn unencodable(error: &wire::Error) -> Failure {
    Failure::new(FailureKind::Invalid, error.to_string())
}
