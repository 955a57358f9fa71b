//! BATCH: several writes, prepared or as text, run as one.

use std::rc::Rc;
use std::time::Duration;

use engine::{BatchKind, Error, Execution, Guardrail, Plan, Value, Warnings};
use wire::{Batch, BatchEntry, Envelope, Failure, Request};

use crate::answers::PendingResult;
use crate::long::{self, INLINE_TEXT_BYTES};
use crate::reply::{self, MetadataRequest};
use crate::request::{Admitted, Done, PendingAnswer, Times, Wait, detached, unprepared};
use crate::session::Session;
use crate::slots::NoSlot;
use crate::statement::{Bound, Kind, Parsed, Statement, Timeout, Work};
use crate::values::{BoundValues, check_count, value};

/// Work units of one statement of a batch: the cache lookup, its rights and its values.
const STATEMENT_UNITS: u32 = 5;

/// Memory of a bound value of a batch, here and in the engine, bytes.
const VALUE_BYTES: usize = 48;

/// Error for a statement within a batch that specifies its own timeout or level.
const PER_STATEMENT_OPTION: &str = "USING TIMEOUT and USING SERVICE LEVEL apply to a whole batch: \
     write them after BEGIN BATCH, not in a statement of the batch";

impl Session {
    /// Runs a batch under the session's level.
    pub(crate) fn batch(
        self: &Rc<Self>,
        envelope: &Envelope,
        batch: &Batch<'_>,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        let limit = admitted.effective.spec.timeout.unwrap_or(self.core.shared.config.request_timeout);
        let admitted = match self.take_slot(envelope, None, times, admitted, limit) {
            Ok(admitted) => admitted,
            Err(NoSlot::Waits) => return None,
            Err(NoSlot::Refused(refused)) => {
                let (admitted, failure) = *refused;
                return Some(self.refuse_batch(envelope, admitted, &failure));
            }
        };
        let keyspace = admitted.keyspace_of(batch.params.keyspace);
        let mut parts = Parts::default();
        for entry in batch.iter() {
            lanes::spend(STATEMENT_UNITS);
            let statement = self.part(batch, entry.statement, keyspace.as_ref(), None);
            if let Err(failure) = statement.and_then(|part| self.add_part(&mut parts, batch, entry, &part)) {
                return Some(self.refuse_batch(envelope, admitted, &failure));
            }
        }
        self.run_batch(envelope, batch, parts, times, admitted, limit)
    }

    /// Runs a batch of many statements, or of long texts that the heavy lane has parsed. Yields
    /// between statements.
    pub(crate) async fn long_batch(
        self: &Rc<Self>,
        envelope: &Envelope,
        mut texts: Vec<Option<Parsed>>,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        let Ok(Request::Batch(batch)) = envelope.request() else {
            unreachable!("the envelope was read as a batch before")
        };
        let limit = admitted.effective.spec.timeout.unwrap_or(self.core.shared.config.request_timeout);
        let mut admitted = match self.take_slot(envelope, None, times, admitted, limit) {
            Ok(admitted) => admitted,
            Err(NoSlot::Waits) => return None,
            Err(NoSlot::Refused(refused)) => {
                let (admitted, failure) = *refused;
                return Some(self.refuse_batch(envelope, admitted, &failure));
            }
        };
        let keyspace = admitted.keyspace_of(batch.params.keyspace);
        let mut parts = Parts::default();
        texts.resize_with(batch.len(), || None);
        for (entry, parsed) in batch.iter().zip(texts) {
            let bound = match (entry.statement, parsed) {
                (wire::Statement::Text(text), Some(parsed)) => match text.len() > INLINE_TEXT_BYTES {
                    true => self.bind_long(keyspace.as_ref(), parsed).await.map(Some),
                    false => self.bind_parsed(keyspace.as_ref(), parsed).map(Some),
                },
                (wire::Statement::Prepared(id), _) => {
                    self.renew(id, batch.params.consistency).await.map(|()| None)
                }
                _ => Ok(None),
            };
            let statement =
                bound.and_then(|bound| self.part(&batch, entry.statement, keyspace.as_ref(), bound));
            if let Err(failure) = statement.and_then(|part| self.add_part(&mut parts, &batch, entry, &part)) {
                return Some(self.refuse_batch(envelope, admitted, &failure));
            }
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        // Charge the bound values: they take more memory than the encoded ones.
        let values = (parts.values.len() * VALUE_BYTES) as u64;
        let charged = self.account.borrow().charge(values);
        match charged {
            Ok(charge) => admitted.charges.push(charge),
            Err(full) => return Some(self.refuse_batch(envelope, admitted, &long::overloaded(full))),
        }
        self.run_batch(envelope, &batch, parts, times, admitted, limit)
    }

    /// Checks a batch against the guardrails, before any work on it.
    pub(crate) fn check_batch(&self, envelope: &Envelope, batch: &Batch<'_>) -> Result<(), Failure> {
        let guardrails = self.core.engine.registry().guardrails();
        let statements = guardrails.check(Guardrail::BatchStatements, batch.len() as u64);
        let bytes = guardrails.check(Guardrail::BatchBytes, envelope.body.len() as u64);
        statements
            .and(bytes)
            .map_err(|error| reply::failure(error, Kind::Batch, batch.params.consistency, None))
    }

    fn refuse_batch(&self, envelope: &Envelope, admitted: Admitted, failure: &Failure) -> Done {
        self.refuse(envelope.stream, failure);
        Done { effective: admitted.effective, kind: Kind::Batch, failed: true, latencies: None }
    }

    /// Returns the statement of an entry of a batch.
    fn part(
        &self,
        batch: &Batch<'_>,
        statement: wire::Statement<'_>,
        keyspace: Option<&Rc<str>>,
        bound: Option<Bound>,
    ) -> Result<Rc<Statement>, Failure> {
        match statement {
            wire::Statement::Text(text) => self.statement(text, keyspace, bound),
            wire::Statement::Prepared(id) => {
                let found = self.core.plans.prepared(id).ok_or_else(|| unprepared(id))?;
                let current = self.core.current(found);
                let consistency = batch.params.consistency;
                current.map_err(|error| reply::failure(error, Kind::Batch, consistency, Some(id)))
            }
        }
    }

    /// Adds a statement and its values to the batch.
    fn add_part<'a>(
        &self,
        parts: &mut Parts<'a>,
        batch: &Batch<'_>,
        entry: BatchEntry<'a>,
        statement: &Statement,
    ) -> Result<(), Failure> {
        let consistency = batch.params.consistency;
        let refused = |error: Error| reply::failure(error, Kind::Batch, consistency, None);
        if statement.timeout != Timeout::Unspecified || statement.level.is_some() {
            return Err(refused(Error::Invalid(PER_STATEMENT_OPTION.to_owned())));
        }
        self.authorize(statement).map_err(refused)?;
        self.audit_begin(statement);
        check_count(statement.binds().len(), entry.values.len()).map_err(refused)?;
        parts.plans.push(write_plan(statement).map_err(refused)?);
        parts.values.extend(entry.values.iter().map(value));
        parts.ends.push(parts.values.len());
        Ok(())
    }

    /// Starts the engine call of a batch, and answers it now or later.
    fn run_batch(
        self: &Rc<Self>,
        envelope: &Envelope,
        batch: &Batch<'_>,
        parts: Parts<'_>,
        times: Times,
        admitted: Admitted,
        limit: Duration,
    ) -> Option<Done> {
        let consistency = batch.params.consistency;
        let wait = match self.execute_batch(batch, parts) {
            Execution::Ready(result) => {
                let result = result.map_err(|error| reply::failure(error, Kind::Batch, consistency, None));
                let failed = self.answer(envelope.stream, result, None, MetadataRequest::default());
                return Some(Done {
                    effective: admitted.effective,
                    kind: Kind::Batch,
                    failed,
                    latencies: None,
                });
            }
            Execution::Written(write) => Wait::Ack(write),
            Execution::Pending(later) => Wait::Result(PendingResult::of(later)),
        };
        let pending = PendingAnswer {
            stream: envelope.stream,
            statement: None,
            kind: Kind::Batch,
            consistency,
            prepared: false,
            metadata: MetadataRequest::default(),
            times,
            warnings: Warnings::take(),
            limit,
            admitted,
            rerun: matches!(wait, Wait::Result(_)).then(|| detached(envelope)),
        };
        self.wait(pending, wait);
        None
    }

    fn execute_batch(&self, batch: &Batch<'_>, parts: Parts<'_>) -> Execution {
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
        let request = engine::Request {
            timestamp_us: batch.params.timestamp,
            now_s: batch.params.now_in_seconds.and_then(|now| u32::try_from(now).ok()),
            ..engine::Request::EMPTY
        };
        let kind = match batch.kind {
            wire::BatchKind::Logged => BatchKind::Logged,
            wire::BatchKind::Unlogged => BatchKind::Unlogged,
            wire::BatchKind::Counter => BatchKind::Counter,
        };
        self.core.engine.execute_batch(kind, &parts, &request)
    }
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
        Work::Engine(plan) if statement.kind == Kind::Write => Ok(plan.clone()),
        _ => Err(Error::Invalid(
            "Only UPDATE, INSERT and DELETE statements are allowed in BATCH statements".to_owned(),
        )),
    }
}
