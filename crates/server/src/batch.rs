//! BATCH: several writes, prepared or as text, run as one.

use std::rc::Rc;

use engine::{BatchKind, Error, Execution, Plan, Value};
use wire::{Batch, Envelope, Failure};

use crate::reply::{self, Wish};
use crate::request::{Admitted, Done, Due, Times, Wait, unprepared};
use crate::session::Session;
use crate::slots::NoSlot;
use crate::statement::{Kind, Statement, Timeout, Work};
use crate::values::{BoundValues, check_count, value};

/// What a part of a batch cannot have.
const OF_THE_WHOLE: &str = "USING TIMEOUT and USING SERVICE LEVEL are said of a whole batch: write them behind BEGIN BATCH, \
     not in a statement within the batch";

impl Session {
    /// Runs a batch under the session's level.
    pub(crate) fn batch(
        self: &Rc<Self>,
        envelope: &Envelope,
        batch: &Batch<'_>,
        times: Times,
        admitted: Admitted,
    ) -> Option<Done> {
        let consistency = batch.params.consistency;
        let limit = admitted.effective.spec.timeout.unwrap_or(self.core.shared.config.request_timeout);
        let admitted = match self.take_slot(envelope, None, times, admitted, limit) {
            Ok(admitted) => admitted,
            Err(NoSlot::Waits) => return None,
            Err(NoSlot::Refused(refused)) => {
                let (admitted, failure) = *refused;
                self.refuse(envelope.stream, &failure);
                return Some(Done { effective: admitted.effective, kind: Kind::Batch, failed: true });
            }
        };
        let execution = match self.begin_batch(batch) {
            Ok(execution) => execution,
            Err(failure) => {
                self.refuse(envelope.stream, &failure);
                return Some(Done { effective: admitted.effective, kind: Kind::Batch, failed: true });
            }
        };
        let wait = match execution {
            Execution::Ready(result) => {
                let result = result.map_err(|error| reply::failure(error, Kind::Batch, consistency, None));
                let failed = self.answer(envelope.stream, &result, None, Wish::default());
                return Some(Done { effective: admitted.effective, kind: Kind::Batch, failed });
            }
            Execution::Written(write) => Wait::Ack(write),
            Execution::Pending(later) => Wait::For(later),
        };
        let due = Due {
            stream: envelope.stream,
            statement: None,
            kind: Kind::Batch,
            consistency,
            prepared: false,
            wish: Wish::default(),
            times,
            limit,
            admitted,
            again: matches!(wait, Wait::For(_)).then(|| envelope.clone()),
        };
        self.wait(due, wait);
        None
    }

    fn begin_batch(&self, batch: &Batch<'_>) -> Result<Execution, Failure> {
        let consistency = batch.params.consistency;
        let refused = |error: Error| reply::failure(error, Kind::Batch, consistency, None);
        let keyspace = self.keyspace_of(batch.params.keyspace);
        let mut plans: Vec<Rc<dyn Plan>> = Vec::with_capacity(batch.len().min(1024));
        let mut values = BoundValues::new();
        let mut ends: Vec<usize> = Vec::with_capacity(batch.len().min(1024));
        for entry in batch.iter() {
            let statement = match entry.statement {
                wire::Statement::Text(text) => {
                    self.core.text(text, keyspace.as_ref()).map_err(|error| self.unprepared_failure(error))?
                }
                wire::Statement::Prepared(id) => {
                    let found = self.core.plans.prepared(id).ok_or_else(|| unprepared(id))?;
                    let current = self.core.current(found);
                    current.map_err(|error| reply::failure(error, Kind::Batch, consistency, Some(id)))?
                }
            };
            if statement.timeout != Timeout::Unsaid || statement.level.is_some() {
                return Err(refused(Error::Invalid(OF_THE_WHOLE.to_owned())));
            }
            self.authorize(&statement).map_err(refused)?;
            plans.push(write_plan(&statement).map_err(refused)?);
            check_count(statement.binds().len(), entry.values.len()).map_err(refused)?;
            values.extend(entry.values.iter().map(value));
            ends.push(values.len());
        }
        let mut from = 0;
        let parts: Vec<(Rc<dyn Plan>, &[Value<'_>])> = plans
            .into_iter()
            .zip(ends)
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
        Ok(self.core.engine.execute_batch(kind, &parts, &request))
    }
}

/// The plan of a part of a batch.
fn write_plan(statement: &Statement) -> Result<Rc<dyn Plan>, Error> {
    match &statement.work {
        Work::Engine(plan) if statement.kind == Kind::Write => Ok(plan.clone()),
        _ => Err(Error::Invalid(
            "Only UPDATE, INSERT and DELETE statements are allowed in BATCH statements".to_owned(),
        )),
    }
}
