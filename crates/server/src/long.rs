//! Long requests. Assembling and inflating a large body, and parsing and binding a long text, would
//! block a fast lane for too long. They run on the heavy lane, in the group of the session's level.
//! After that the request continues like any other.
//!
//! 1. The connection passes on a frame larger than [`INLINE_BYTES`], or a request finds that it has
//!    a long text.
//! 2. A task of the session assembles the frame on the heavy lane, charges the syntax tree and
//!    parses the text there.
//! 3. The session checks the rights on the tables that the text names. Then the text is bound on
//!    the heavy lane.
//! 4. The fast lane runs the request with its bound text. A batch yields between its statements.
//!
//! The end of its connection cancels a long request up to step 2. A half-closed connection does
//! not: the client may still read the answer.

use std::rc::Rc;
use std::sync::Arc;

use engine::{Guardrail, Guardrails, Warnings};
use frontdoor::{Account, Charge, Full};
use wire::{Consistency, Envelope, Failure, FailureKind, Large, Request, Statement as BatchStatement};

use crate::account;
use crate::core::{PREPARED_TEXT_BYTES_MAX, too_large};
use crate::panics;
use crate::reply;
use crate::request::{Admitted, Times, unprepared_failure};
use crate::running::Running;
use crate::session::Session;
use crate::slots::WAITING_BYTES;
use crate::statement::{self, Bound, Id, Kind, Parsed, parse, tree_bytes};

/// Maximum size of a body decoded on the fast lane, bytes. Inflating 32 KiB takes about 15 µs.
pub(crate) const INLINE_BYTES: usize = 32 << 10;

/// Maximum length of a text parsed and bound on the fast lane, bytes. The worst text, an `IN` of
/// empty strings, takes 0.3 µs a byte: 0.6 ms. A usual one takes 10 µs.
pub(crate) const INLINE_TEXT_BYTES: usize = 2 << 10;

/// Maximum number of statements of a batch that is run without a yield. Its texts must not exceed
/// [`INLINE_TEXT_BYTES`] in total.
const INLINE_STATEMENTS: usize = 50;

/// A request that is too long for the fast lane.
pub(crate) enum Frame {
    /// A request whose body is complete but has a long text.
    Whole(Envelope),
    /// A request whose body is still in chunks or compressed.
    Parts(Large),
}

impl Frame {
    /// Returns the stream number, which pairs the answer with the request.
    pub(crate) fn stream(&self) -> i16 {
        match self {
            Frame::Whole(envelope) => envelope.stream,
            Frame::Parts(large) => large.stream(),
        }
    }
}

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
struct Opened {
    envelope: Envelope,
    texts: Texts,
    trees: Option<Charge>,
    /// Id of the statement, for PREPARE only.
    id: Option<Id>,
}

/// Returns true if a batch must run as a long request.
pub(crate) fn is_long(batch: &wire::Batch<'_>) -> bool {
    let text_bytes = || {
        let texts = batch.iter().map(|entry| match entry.statement {
            BatchStatement::Text(text) => text.len(),
            BatchStatement::Prepared(_) => 0,
        });
        texts.sum::<usize>()
    };
    batch.len() > INLINE_STATEMENTS || text_bytes() > INLINE_TEXT_BYTES
}

impl Session {
    /// Starts a task for a long request. `charges` are those for its body.
    pub(crate) fn begin_long(
        self: &Rc<Self>,
        frame: Frame,
        charges: Vec<Charge>,
        times: Times,
        mut admitted: Admitted,
    ) {
        let session = self.clone();
        let group = admitted.effective.group();
        let stream = frame.stream();
        if let Frame::Whole(envelope) = &frame {
            let charged = self.account.borrow().charge((envelope.body.len() + WAITING_BYTES) as u64);
            match charged {
                Ok(charge) => admitted.charges.push(charge),
                Err(full) => return self.refuse(stream, &overloaded(full)),
            }
        }
        let running = Running {
            stream,
            statement: None,
            effective: admitted.effective.clone(),
            since_ns: times.read_ns,
            waits: false,
        };
        let key = self.cancellable_tasks.borrow_mut().reserve();
        self.begin();
        admitted.charges.extend(charges);
        let guard = self.clone();
        let work = async move {
            let account = session.account.borrow().clone();
            let limits = Limits {
                account,
                guardrails: session.core.engine.registry().guardrails().clone(),
                keyspace: admitted.keyspace.as_deref().map(str::to_owned),
            };
            let opening = Warnings::collect(Warnings::NONE, open(frame, limits));
            let opened = lanes::catch_panic(lanes::heavy(group, opening)).await;
            let opened = opened.map_err(panics::failure).and_then(|(opened, warnings)| {
                warnings.give();
                opened
            });
            // From here on the kind of the request decides if the end of the connection cancels it.
            session.cancellable_tasks.borrow_mut().done(key);
            match opened {
                Ok(Opened { envelope, texts, trees, id }) => {
                    admitted.charges.extend(trees);
                    session.warm_output();
                    let began_ns = lanes::time::monotonic_ns();
                    let times = Times { began_ns, ..times };
                    let done = match texts {
                        Texts::Batch(texts) => session.long_batch(&envelope, texts, times, admitted).await,
                        Texts::None => match session.renew_executed(&envelope).await {
                            Ok(()) => session.request_bound(&envelope, times, admitted, None),
                            Err(failure) => {
                                session.refuse(stream, &failure);
                                None
                            }
                        },
                        Texts::One(parsed) => match session.bind_text(&envelope, &admitted, *parsed).await {
                            Ok(mut bound) => {
                                bound.id = id;
                                session.request_bound(&envelope, times, admitted, Some(bound))
                            }
                            Err(failure) => {
                                session.refuse(stream, &failure);
                                None
                            }
                        },
                    };
                    if let Some(done) = done {
                        session.record_envelope(done, times, &envelope, lanes::time::monotonic_ns());
                    }
                }
                Err(failure) => session.refuse(stream, &failure),
            }
        };
        let work = Warnings::within(Warnings::take(), work);
        let task = lanes::spawn(group, guard.guarded(stream, work));
        self.cancellable_tasks.borrow_mut().store(key, task, running);
    }
}

impl Session {
    /// Binds the parsed text of a QUERY or a PREPARE.
    async fn bind_text(
        &self,
        envelope: &Envelope,
        admitted: &Admitted,
        parsed: Parsed,
    ) -> Result<Bound, Failure> {
        let keyspace = match envelope.request() {
            Ok(Request::Query(query)) => admitted.keyspace_of(query.params.keyspace),
            Ok(Request::Prepare(prepare)) => admitted.keyspace_of(prepare.keyspace),
            _ => unreachable!("the envelope was read as one of these before"),
        };
        self.bind_long(keyspace.as_ref(), parsed).await
    }

    /// Returns true if a batch contains prepared statements whose plans no longer fit the schema,
    /// with texts too long in total to be bound on the fast lane.
    pub(crate) fn has_stale_long(&self, batch: &wire::Batch<'_>) -> bool {
        let stale_bytes = |entry: wire::BatchEntry<'_>| match entry.statement {
            BatchStatement::Prepared(id) => {
                let stale = self.core.plans.prepared(id).filter(|statement| !statement.is_current());
                stale.map_or(0, |statement| statement.text.len())
            }
            BatchStatement::Text(_) => 0,
        };
        batch.iter().map(stale_bytes).sum::<usize>() > INLINE_TEXT_BYTES
    }

    /// Binds the statement of an EXECUTE again, like [`Session::renew`].
    async fn renew_executed(&self, envelope: &Envelope) -> Result<(), Failure> {
        match envelope.request() {
            Ok(Request::Execute(execute)) => self.renew(execute.id, execute.params.consistency).await,
            _ => Ok(()),
        }
    }

    /// Binds a prepared statement again on the heavy lane, if it is long and no longer fits the
    /// schema.
    pub(crate) async fn renew(&self, id: &[u8], consistency: Consistency) -> Result<(), Failure> {
        let Some(statement) = self.core.plans.prepared(id).filter(|statement| statement.is_stale_long())
        else {
            return Ok(());
        };
        let renewed = self.core.rebind_long(&statement).await;
        renewed.map_err(|error| reply::failure(error, Kind::Other, consistency, Some(id)))
    }
}

/// Assembles a frame and parses its texts. Runs on the heavy lane.
async fn open(frame: Frame, limits: Limits) -> Result<Opened, Failure> {
    let envelope = match frame {
        Frame::Whole(envelope) => envelope,
        Frame::Parts(large) => large.assemble().map_err(|error| Failure::from(&error))?,
    };
    lanes::heavy_yield().await;
    let mut id = None;
    let (texts, trees) = match envelope.request().map_err(|error| Failure::from(&error))? {
        Request::Query(query) => one(query.text, &limits)?,
        Request::Prepare(prepare) if prepare.text.len() > PREPARED_TEXT_BYTES_MAX => {
            let error = too_large(prepare.text, prepare.text.len(), PREPARED_TEXT_BYTES_MAX);
            return Err(unprepared_failure(error));
        }
        Request::Prepare(prepare) => {
            let keyspace = prepare.keyspace.or(limits.keyspace.as_deref());
            id = Some(statement::id(keyspace, prepare.text));
            one(prepare.text, &limits)?
        }
        Request::Batch(batch) => {
            let mut texts = Vec::with_capacity(batch.len());
            // Grow the charge with each text: all trees of a batch exist before any of them is
            // bound.
            let trees = limits.account.charge(0).map_err(overloaded)?;
            for entry in batch.iter() {
                texts.push(match entry.statement {
                    BatchStatement::Text(text) => {
                        trees.grow(limits.tree_bytes(text)?).map_err(overloaded)?;
                        Some(parse(text))
                    }
                    BatchStatement::Prepared(_) => None,
                });
                lanes::heavy_yield().await;
            }
            (Texts::Batch(texts), trees)
        }
        _ => return Ok(Opened { envelope, texts: Texts::None, trees: None, id }),
    };
    Ok(Opened { envelope, texts, trees: Some(trees), id })
}

fn one(text: &str, limits: &Limits) -> Result<(Texts, Charge), Failure> {
    let charge = limits.account.charge(limits.tree_bytes(text)?).map_err(overloaded)?;
    Ok((Texts::One(Box::new(parse(text))), charge))
}

/// Limits of a long request, for the heavy lane.
struct Limits {
    account: Arc<Account>,
    guardrails: Arc<Guardrails>,
    /// The session's keyspace when the request was read.
    keyspace: Option<String>,
}

impl Limits {
    /// Returns the estimated memory of a text's tree, bytes, before it is parsed.
    fn tree_bytes(&self, text: &str) -> Result<u64, Failure> {
        let checked = self.guardrails.check(Guardrail::StatementBytes, text.len() as u64);
        checked.map_err(unprepared_failure)?;
        Ok(tree_bytes(text.len(), cql::count_tokens(text).map_err(syntax)?) as u64)
    }
}

/// Returns the error for a text that is not valid CQL.
pub(crate) fn syntax(error: cql::SyntaxError) -> Failure {
    Failure::new(FailureKind::Syntax, error.to_string())
}

/// Returns the error for a request that exceeds the free memory of an account.
pub(crate) fn overloaded(full: Full) -> Failure {
    Failure::new(FailureKind::Overloaded, account::overloaded(full))
}
