//! The part of a request that memory of this core allows: decode, authorize, slot, engine, answer.
//!
//! ```text
//!  connection ─ try_fast ─┬─ Answered ──────────────────────────────► record
//!                         ├─ Slow(Acknowledged) ─► session's queue ──► answer, record     (acks.rs)
//!                         └─ Slow(…) ────────────► a task, which calls try_fast again    (slow.rs)
//! ```
//!
//! It runs in the poll of its connection or of the request's task, without a wait.

use std::rc::Rc;

use wire::{Envelope, Failure};
use workload::WaitingStatement;

use crate::batch::execute_batch;
use crate::decode::{Decoded, decode};
use crate::execute::execute_in_level;
use crate::options;
use crate::pending::PendingResult;
use crate::prepare::prepare;
use crate::relay::{Relay, Relayed, relay};
use crate::request::{CqlRequest, Frame, detached};
use crate::session::Session;
use crate::statement::Bound;
use crate::tasks::RelayedText;

/// State of a request after [`try_fast`].
pub(crate) enum Fast {
    /// The answer is in the output buffer. The request is to be recorded.
    Answered(CqlRequest),
    /// The message is answered, and is no statement to be recorded.
    Unrecorded,
    /// Memory does not suffice.
    Slow(CqlRequest, Rest),
}

/// Event that a request waits for.
pub(crate) enum Rest {
    /// The heavy lane has to assemble it, or to parse or bind its texts.
    Opening(Frame),
    /// The statement specifies another level, whose settings the request has now. In front of a
    /// cluster its payload does. That level has not admitted it.
    OtherLevel,
    /// A slot, with the text if the statement is for a node.
    Slot(WaitingStatement, Option<RelayedText>),
    /// The acknowledgement of a write of this core, by its number.
    Acknowledged(u64),
    /// The result of the engine.
    Result(PendingResult),
    /// The answer of a node of the cluster.
    Relay(Box<Relayed>),
}

/// Works on a request whose text the heavy lane may have bound already (`bound`).
pub(crate) fn try_fast(
    session: &Rc<Session>,
    envelope: &Envelope,
    request: CqlRequest,
    bound: Option<Bound>,
) -> Fast {
    stages(session, envelope, request, bound).unwrap_or_else(|failure| {
        session.refuse(envelope.stream, &failure);
        Fast::Unrecorded
    })
}

/// Decodes a request and passes it to the stages of its kind.
fn stages(
    session: &Rc<Session>,
    envelope: &Envelope,
    mut request: CqlRequest,
    bound: Option<Bound>,
) -> Result<Fast, Failure> {
    if let Some(relay) = relay(session, envelope, &mut request)? {
        let rest = match relay {
            Relay::OtherLevel => Rest::OtherLevel,
            Relay::Waits(waiting, text) => Rest::Slot(waiting, text),
            Relay::Ready(relayed) => Rest::Relay(relayed),
        };
        return Ok(Fast::Slow(request, rest));
    }
    match decode(session, envelope, &mut request, bound)? {
        Decoded::Statement(params) => {
            let is_prepared = request.form.is_prepared;
            request.note(|| match is_prepared {
                true => "Found the prepared statement".to_owned(),
                false => "Parsed and bound the statement, or found its plan".to_owned(),
            });
            return Ok(execute_in_level(session, envelope, &params, request));
        }
        Decoded::Batch(batch) => return Ok(execute_batch(session, envelope, &batch, request)),
        Decoded::Long => return Ok(Fast::Slow(request, Rest::Opening(Frame::Whole(detached(envelope))))),
        Decoded::Prepare(message, bound) => {
            let keyspace = request.keyspace_of(message.keyspace);
            prepare(session, envelope, &message, keyspace.as_ref(), bound)?;
        }
        Decoded::Register(types) => options::register(session, request.stream, &types)?,
        Decoded::Options => options::supported(session, request.stream),
    }
    Ok(Fast::Unrecorded)
}
