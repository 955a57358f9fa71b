//! Long requests. Assembling and inflating a large body, and parsing and binding a long text, would
//! block a fast lane for too long. They run on the heavy lane, in the group of the session's level.
//! After that the request continues like any other.
//!
//! 1. The connection passes on a frame larger than [`INLINE_BYTES`](crate::request::INLINE_BYTES),
//!    or a request finds that it has a long text.
//! 2. A task of the session assembles the frame on the heavy lane, charges the syntax tree and
//!    parses the text there.
//! 3. The session checks the rights on the tables that the text names. Then the text is bound on
//!    the heavy lane.
//! 4. The fast lane runs the request with its bound text. A batch yields between its statements.
//!
//! The end of its connection cancels a long request up to step 2. A half-closed connection does
//! not: the client may still read the answer. This file is step 2.

use std::sync::Arc;

use engine::{Guardrail, Guardrails, ParsedTree};
use frontdoor::{Account, Charge};
use wire::{BatchPlace, Envelope, Failure, Request, Statement as BatchStatement};

use crate::failure;
use crate::request::{CqlRequest, Frame};
use crate::session::Session;
use crate::statement::{self, Id, PREPARED_TEXT_BYTES_MAX, Parsed, tree_bytes};

/// Parsed texts of a request.
pub(crate) enum Texts {
    /// Text of a QUERY or a PREPARE.
    One(Box<Parsed>),
    /// Texts of a BATCH, by statement. `None` for prepared statements.
    Batch(Vec<Option<Parsed>>),
    /// No text: an EXECUTE.
    None,
}

/// An assembled frame with its parsed texts and the charge for their trees.
pub(crate) struct Opened {
    pub(crate) envelope: Envelope,
    pub(crate) texts: Texts,
    pub(crate) trees: Option<Charge>,
    /// Id of the statement, for PREPARE only.
    pub(crate) id: Option<Id>,
    /// Place of a BATCH in the body.
    pub(crate) batch: Option<BatchPlace>,
}

/// Assembles a frame and parses its texts. Runs on the heavy lane.
pub(crate) async fn open(frame: Frame, limits: Limits) -> Result<Opened, Failure> {
    let envelope = match frame {
        Frame::Whole(envelope) => envelope,
        Frame::Parts(large) => large.assemble().map_err(|error| Failure::from(&error))?,
    };
    lanes::heavy_yield().await;
    let (mut id, mut place) = (None, None);
    let (texts, trees) = match envelope.request().map_err(|error| Failure::from(&error))? {
        Request::Query(query) => one(query.text, &limits)?,
        Request::Prepare(prepare) if prepare.text.len() > PREPARED_TEXT_BYTES_MAX => {
            let error = failure::too_large(prepare.text, prepare.text.len(), PREPARED_TEXT_BYTES_MAX);
            return Err(failure::unbound(error));
        }
        Request::Prepare(prepare) => {
            let keyspace = prepare.keyspace.or(limits.keyspace.as_deref());
            id = Some(statement::id(keyspace, prepare.text));
            one(prepare.text, &limits)?
        }
        Request::Batch(batch) => {
            place = Some(batch.place(&envelope.body));
            let mut texts = Vec::with_capacity(batch.len());
            // Grow the charge with each text: all trees of a batch exist before any of them is
            // bound.
            let trees = limits.account.charge(0).map_err(failure::out_of_memory)?;
            for entry in batch.iter() {
                texts.push(match entry.statement {
                    BatchStatement::Text(text) => {
                        trees.grow(limits.tree_bytes(text)?).map_err(failure::out_of_memory)?;
                        Some(ParsedTree::parse(text))
                    }
                    BatchStatement::Prepared(_) => None,
                });
                lanes::heavy_yield().await;
            }
            (Texts::Batch(texts), trees)
        }
        _ => return Ok(Opened { envelope, texts: Texts::None, trees: None, id, batch: None }),
    };
    Ok(Opened { envelope, texts, trees: Some(trees), id, batch: place })
}

fn one(text: &str, limits: &Limits) -> Result<(Texts, Charge), Failure> {
    let charge = limits.account.charge(limits.tree_bytes(text)?).map_err(failure::out_of_memory)?;
    Ok((Texts::One(Box::new(ParsedTree::parse(text))), charge))
}

/// Limits of a long request, for the heavy lane.
pub(crate) struct Limits {
    account: Arc<Account>,
    guardrails: Arc<Guardrails>,
    /// The session's keyspace when the request was read.
    keyspace: Option<String>,
}

impl Limits {
    /// Returns the limits of a request of `session`.
    pub(crate) fn of(session: &Session, request: &CqlRequest) -> Limits {
        Limits {
            account: session.account.borrow().clone(),
            guardrails: session.core.engine.registry().guardrails().clone(),
            keyspace: request.keyspace.as_deref().map(str::to_owned),
        }
    }

    /// Returns the estimated memory of a text's tree, bytes, before it is parsed.
    fn tree_bytes(&self, text: &str) -> Result<u64, Failure> {
        let checked = self.guardrails.check(Guardrail::StatementBytes, text.len() as u64);
        checked.map_err(failure::unbound)?;
        Ok(tree_bytes(text.len(), cql::count_tokens(text).map_err(failure::syntax)?) as u64)
    }
}
