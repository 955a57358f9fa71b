//! Running writes that read nothing: applying them on the cores that own their partitions.
//!
//! A write of one row, and a small batch for this core, are applied at once. A large one is bound
//! on a heavy lane, and applied in several task polls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{BatchKind, Error, Execution, Guardrail, Outcome, Plan, Request, Value};
use schema::TableDef;
use storage::{Commit, Mutation, Shard, StorageError, TableId};
use uuid::Uuid;

use crate::bind::choice::plus;
use crate::execute::own;
use crate::heavy_lane::heavy;
use crate::owned::{InTurn, OwnedRequest, OwnedValues};
use crate::plan::Kind;
use crate::system::own_tables::is_server_keyspace;
use crate::write::batch_log::{Spread, by_core};
use crate::write::mutations::{Times, WriteCost, WritePlan, mutations};
use crate::{Embedded, storage_error};

/// Statements and rows bound and applied in one task poll: about 30 µs, or 160 µs if each merges a
/// row of 4 KiB.
const ROWS_AT_ONCE: u64 = 64;

/// Bytes of values checked and copied in one task poll, at about 5 GB/s.
const BYTES_AT_ONCE: u64 = 256 << 10;

/// The same for values with elements: about 500 of eight bytes, at 100 ns each.
const ELEMENT_BYTES_AT_ONCE: u64 = 4 << 10;

/// Most bytes of keys and values that a statement or batch may write, with guardrails and without.
/// Four times the longest message: only values that are written to many rows have more. All of them
/// are copied before the first row is applied.
const WRITE_BYTES_MAX: u64 = 64 << 20;

/// Rows bound on a heavy lane between two yields.
const ROWS_PER_YIELD: u64 = 256;

/// Statement of a batch, with the positions of its values.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    plans: Arc<[WritePlan]>,
    at: usize,
    pub(crate) places: Range<usize>,
    /// Number of the statement within the batch. Later ones append behind earlier ones.
    pub(crate) number: usize,
}

impl Part {
    pub(crate) fn plan(&self) -> &WritePlan {
        &self.plans[self.at]
    }
}

/// Statement of a batch, borrowed from its request.
type BorrowedPart<'a> = (&'a Arc<[WritePlan]>, usize, &'a [Value<'a>]);

/// Statements to run together, with an owned request.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) parts: Vec<Part>,
    pub(crate) request: OwnedRequest,
    /// True if it must be applied whole or not at all, even across cores: see
    /// [`crate::write::batch_log`].
    pub(crate) is_atomic: bool,
}

impl Job {
    /// Returns the statements of a textual BATCH, which share the values of the request.
    fn of(writes: &Arc<[WritePlan]>, is_atomic: bool, request: OwnedRequest) -> Job {
        let places = 0..request.values.len();
        let part = |at| Part { plans: writes.clone(), at, places: places.clone(), number: at };
        Job { parts: (0..writes.len()).map(part).collect(), request, is_atomic }
    }
}

/// Merges mutations into one per partition, ordered by first occurrence. Readers then see all
/// changes of a batch to a partition, or none.
pub(crate) fn by_partition(all: Vec<Mutation>) -> Vec<Mutation> {
    let mut places: HashMap<(TableId, Bytes), usize> = HashMap::with_capacity(all.len());
    let mut merged: Vec<Mutation> = Vec::with_capacity(all.len());
    for mutation in all {
        match places.entry((mutation.table, mutation.key.clone())) {
            Entry::Occupied(place) => merged[*place.get()].changes.extend(mutation.changes),
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(mutation);
            }
        }
    }
    merged
}

/// Totals from checking a batch.
#[derive(Default)]
struct Counted {
    cost: WriteCost,
    reads_first: bool,
    has_elements: bool,
}

impl Embedded {
    /// Runs an INSERT, UPDATE, DELETE, or a textual BATCH.
    pub(crate) fn write_all(
        &self,
        writes: &Arc<[WritePlan]>,
        is_atomic: bool,
        request: &Request<'_>,
    ) -> Execution {
        if writes.len() as u64 > ROWS_AT_ONCE {
            let (engine, writes) = (self.rc(), writes.clone());
            let request = OwnedRequest::of(request, OwnedValues::of(request));
            return Execution::Pending(Box::pin(async move {
                let (mut counted, values) = (Counted::default(), request.values.all());
                for write in writes.iter() {
                    engine.count(write, &values, writes.len(), &mut counted)?;
                    if lanes::spend(1) {
                        lanes::yield_now().await;
                    }
                }
                drop(values);
                engine
                    .run_job(Job::of(&writes, is_atomic, request), counted.reads_first)
                    .outcome(&*engine)
                    .await
            }));
        }
        if let [write] = &writes[..]
            && !write.reads_first()
            && let Some(execution) = self.write_one(write, request)
        {
            return execution;
        }
        let mut counted = Counted::default();
        for write in writes.iter() {
            if let Err(error) = self.count(write, request.values, writes.len(), &mut counted) {
                return Execution::Ready(Err(error));
            }
        }
        if !counted.reads_first && counted.is_small() {
            let parts = writes.iter().map(|write| (write, request.values));
            return self.write(parts, is_atomic, request);
        }
        let request = OwnedRequest::of(request, OwnedValues::of(request));
        self.run_job(Job::of(writes, is_atomic, request), counted.reads_first)
    }

    /// Runs a batch of prepared statements; see [`engine::Engine::execute_batch`].
    pub(crate) fn write_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution {
        let of_server = |(plan, _): &(Rc<dyn Plan>, &[Value<'_>])| {
            plan.targets().iter().all(|target| is_server_keyspace(&target.keyspace))
        };
        // The server's own batches are exempt. Clients cannot write to its tables, so their batches
        // never begin with such a statement.
        if !parts.first().is_some_and(of_server)
            && let Err(error) =
                self.registry.guardrails().check(Guardrail::BatchStatements, parts.len() as u64)
        {
            return Execution::Ready(Err(error));
        }
        if parts.len() as u64 > ROWS_AT_ONCE {
            // Copied now, because plans and values are borrowed for this call only. Later task
            // polls check them.
            let (mut owned, mut given) = (OwnedValues::within(request), Vec::with_capacity(parts.len()));
            for (plan, values) in parts {
                given.push((plan.clone(), owned.add(values)));
            }
            let (engine, request) = (self.rc(), OwnedRequest::of(request, owned));
            return Execution::Pending(Box::pin(async move {
                let (job, reads_first) = engine.job(kind, given, request).await?;
                engine.run_job(job, reads_first).outcome(&*engine).await
            }));
        }
        let mut writes: Vec<BorrowedPart<'_>> = Vec::with_capacity(parts.len());
        let mut counted = Counted::default();
        for (plan, values) in parts {
            let plans = match self.batched(plan, values) {
                Ok(plans) => plans,
                Err(error) => return Execution::Ready(Err(error)),
            };
            for (at, write) in plans.iter().enumerate() {
                if let Err(error) = self.count(write, values, parts.len(), &mut counted) {
                    return Execution::Ready(Err(error));
                }
                writes.push((plans, at, *values));
            }
        }
        if let Err(error) = check_kind(kind, writes.iter().map(|(plans, at, _)| &plans[*at])) {
            return Execution::Ready(Err(error));
        }
        if !counted.reads_first && counted.is_small() {
            let parts = writes.iter().map(|(plans, at, values)| (&plans[*at], *values));
            return self.write(parts, kind == BatchKind::Logged, request);
        }
        let mut owned = OwnedValues::within(request);
        let part = |(number, (plans, at, values)): (usize, BorrowedPart<'_>)| Part {
            plans: plans.clone(),
            at,
            places: owned.add(values),
            number,
        };
        let parts = writes.into_iter().enumerate().map(part).collect();
        let request = OwnedRequest::of(request, owned);
        let is_atomic = kind == BatchKind::Logged;
        self.run_job(Job { parts, request, is_atomic }, counted.reads_first)
    }

    /// Checks the statements of a large batch. Returns them, and true if some read before they
    /// write.
    async fn job(
        &self,
        kind: BatchKind,
        given: Vec<(Rc<dyn Plan>, Range<usize>)>,
        request: OwnedRequest,
    ) -> Result<(Job, bool), Error> {
        let mut parts = Vec::with_capacity(given.len());
        let mut counted = Counted::default();
        let mut kinds = Kinds::default();
        let statements = given.len();
        for (plan, places) in given {
            let values = request.values.borrowed(places.clone());
            let plans = self.batched(&plan, &values)?;
            for (at, write) in plans.iter().enumerate() {
                self.count(write, &values, statements, &mut counted)?;
                kinds.add(write);
                let number = parts.len();
                parts.push(Part { plans: plans.clone(), at, places: places.clone(), number });
            }
            if lanes::spend(2) {
                lanes::yield_now().await;
            }
        }
        kinds.check(kind)?;
        Ok((Job { parts, request, is_atomic: kind == BatchKind::Logged }, counted.reads_first))
    }

    /// Returns the writes of a statement in a batch.
    fn batched<'p>(
        &self,
        plan: &'p Rc<dyn Plan>,
        values: &[Value<'_>],
    ) -> Result<&'p Arc<[WritePlan]>, Error> {
        let plan = own(plan);
        self.check_values(plan, values)?;
        match &plan.kind {
            Kind::Write { plans, .. } => Ok(plans),
            _ => Err(Error::Invalid("A batch can hold INSERT, UPDATE and DELETE statements only".into())),
        }
    }

    /// Adds the cost of one of `statements` statements, and checks it before any of its values is
    /// copied.
    fn count(
        &self,
        write: &WritePlan,
        values: &[Value<'_>],
        statements: usize,
        counted: &mut Counted,
    ) -> Result<(), Error> {
        let cost = write.cost(values)?;
        counted.reads_first |= write.reads_first();
        counted.has_elements |= write.has_elements();
        counted.cost.rows = plus(counted.cost.rows, cost.rows)?;
        counted.cost.bytes = plus(counted.cost.bytes, cost.bytes)?;
        if is_server_keyspace(&write.def.keyspace) {
            // System tables are exempt: a guardrail must not block changes of roles and levels.
            return Ok(());
        }
        let guardrails = self.registry.guardrails();
        if write.has_in {
            guardrails.check(Guardrail::InProduct, cost.rows)?;
        }
        guardrails.check(Guardrail::WriteBytes, cost.bytes)?;
        if counted.cost.bytes > WRITE_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "expected at most {WRITE_BYTES_MAX} bytes written by one statement or batch, got {}: \
                 send several statements",
                counted.cost.bytes
            )));
        }
        if statements > 1 {
            guardrails.check(Guardrail::BatchBytes, counted.cost.bytes)?;
        }
        Ok(())
    }

    /// Runs statements with an owned request.
    fn run_job(&self, job: Job, reads_first: bool) -> Execution {
        let engine = self.rc();
        // Take the timestamps now: they must be lower than those of the session's next statement.
        let times = self.times_of(job.parts.len());
        Execution::Pending(Box::pin(async move {
            if reads_first {
                return engine.modify(job, times).await;
            }
            let shards = engine.sharding;
            let bind = async move {
                let mut by_core = vec![Vec::new(); shards.shards as usize];
                let mut all = Vec::new();
                let mut left = ROWS_PER_YIELD;
                let mut in_turn = InTurn::of(&job.request.values);
                for part in &job.parts {
                    let values = in_turn.at(&part.places);
                    let times = times.of_statement(part.number);
                    mutations(part.plan(), values, &job.request.borrowed(values), times, &mut all)?;
                    left = left.saturating_sub(all.len().max(1) as u64);
                    for mutation in all.drain(..) {
                        by_core[shards.shard_of(mutation.token) as usize].push(mutation);
                    }
                    if left == 0 {
                        left = ROWS_PER_YIELD;
                        lanes::heavy_yield().await;
                    }
                }
                let mut tables: HashMap<Uuid, Arc<TableDef>> = HashMap::new();
                for part in &job.parts {
                    tables.entry(part.plan().def.id).or_insert_with(|| part.plan().def.clone());
                }
                let by_core = by_core.into_iter().map(by_partition).collect();
                Ok::<_, Error>((Spread::of(by_core, job.is_atomic), tables))
            };
            let (spread, tables) = heavy(bind).await?;
            // Tables may have been changed or dropped meanwhile.
            let schema = engine.current.schema();
            let stands = |def: &Arc<TableDef>| {
                schema.table(&def.keyspace, &def.name).is_some_and(|now| Arc::ptr_eq(now, def))
            };
            if !tables.values().all(stands) {
                return Err(Error::Stale);
            }
            engine.apply_spread(spread).await?;
            Ok(Outcome::Void)
        }))
    }

    /// Applies a small write at once.
    fn write<'a>(
        &self,
        parts: impl Iterator<Item = (&'a WritePlan, &'a [Value<'a>])>,
        is_atomic: bool,
        request: &Request<'_>,
    ) -> Execution {
        let times = self.times();
        let mut all = Vec::with_capacity(1);
        for (plan, values) in parts {
            let list_us = if plan.appends() { self.times().list_us } else { times.list_us };
            if let Err(error) = mutations(plan, values, request, Times { list_us, ..times }, &mut all) {
                return Execution::Ready(Err(error));
            }
        }
        if all.is_empty() {
            return Execution::Ready(Ok(Outcome::Void));
        }
        let core = self.owner(all[0].token);
        let alone = all.iter().all(|mutation| self.owner(mutation.token) == core);
        if alone && core == lanes::current_core() {
            let applied = self.keep_floor().and_then(|()| self.shard.apply(&all));
            return self.written(applied, move |shard| async move { shard.apply_in_turn(&all).await?.await });
        }
        let engine = self.rc();
        let spread =
            Spread::of(by_core(all, self.sharding).into_iter().map(by_partition).collect(), is_atomic);
        Execution::Pending(Box::pin(async move {
            engine.apply_spread(spread).await?;
            Ok(Outcome::Void)
        }))
    }

    /// Returns the result of a write to this core. If the log had no room, calls `again`, which
    /// waits for it.
    fn written<F: Future<Output = Result<(), StorageError>> + 'static>(
        &self,
        applied: Result<Commit, StorageError>,
        again: impl FnOnce(Rc<Shard>) -> F,
    ) -> Execution {
        match applied {
            Ok(commit) => Execution::Written(commit.number()),
            Err(StorageError::Overloaded { .. }) => {
                let again = again(self.shard.clone());
                Execution::Pending(Box::pin(async move {
                    again.await.map(|()| Outcome::Void).map_err(storage_error)
                }))
            }
            Err(error) => Execution::Ready(Err(storage_error(error))),
        }
    }

    /// Applies mutations on the cores that own them, one core after the other.
    pub(crate) async fn apply_by_core(&self, by_core: Vec<Vec<Mutation>>) -> Result<(), Error> {
        for (core, part) in by_core.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let apply = move || async move {
                let engine = Embedded::local();
                engine.keep_floor()?;
                engine.shard.apply_yielding(part).await?.await
            };
            lanes::call(core, apply).await.map_err(storage_error)?;
        }
        Ok(())
    }

    /// Applies a write of one row that this core owns.
    fn write_one(&self, plan: &WritePlan, request: &Request<'_>) -> Option<Execution> {
        let bytes_max = if plan.has_elements() { ELEMENT_BYTES_AT_ONCE } else { BYTES_AT_ONCE };
        if bytes_of(request.values) + plan.constant_bytes() > bytes_max {
            return None;
        }
        let key = match plan.one_key(request.values)? {
            Ok(key) => key,
            Err(error) => return Some(Execution::Ready(Err(error))),
        };
        let token = schema::token::token(&key);
        let table = TableId(plan.def.data_id().as_u128());
        let core = self.owner(token);
        if core == lanes::current_core() {
            self.shard.prefetch(table, token);
        }
        let row = match plan.one_row(&key, request.values, request, self.times()) {
            Ok(row) => row,
            Err(error) => return Some(Execution::Ready(Err(error))),
        };
        if core == lanes::current_core() {
            let put = self.keep_floor().and_then(|()| self.shard.put(table, token, &key, &row));
            return Some(self.written(put, |shard| {
                let key = key.into_owned();
                async move { shard.put_in_turn(table, token, &key, &row).await?.await }
            }));
        }
        let key = key.into_owned();
        let put = move || async move {
            let engine = Embedded::local();
            engine.keep_floor()?;
            engine.shard.put_in_turn(table, token, &key, &row).await?.await
        };
        Some(Execution::Pending(Box::pin(async move {
            lanes::call(core, put).await.map(|()| Outcome::Void).map_err(storage_error)
        })))
    }
}

/// Returns the size of a request's values in bytes.
fn bytes_of(values: &[Value<'_>]) -> u64 {
    let bytes = values.iter().map(|value| match value {
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::Null | Value::Unset => 0,
    });
    bytes.sum()
}

impl Counted {
    fn is_small(&self) -> bool {
        let bytes_max = if self.has_elements { ELEMENT_BYTES_AT_ONCE } else { BYTES_AT_ONCE };
        self.cost.rows <= ROWS_AT_ONCE && self.cost.bytes <= bytes_max
    }
}

/// Kinds of tables that a batch writes to.
#[derive(Default)]
struct Kinds {
    counters: bool,
    others: bool,
}

impl Kinds {
    fn add(&mut self, write: &WritePlan) {
        match write.counts() {
            true => self.counters = true,
            false => self.others = true,
        }
    }

    /// Checks that these tables may be in one batch of this kind.
    fn check(&self, kind: BatchKind) -> Result<(), Error> {
        let (counter, logged) = (kind == BatchKind::Counter, kind == BatchKind::Logged);
        let text = match () {
            () if counter && self.others => "Cannot include non-counter statement in a counter batch",
            () if logged && self.counters => "Cannot include a counter statement in a logged batch",
            () if self.counters && self.others => {
                "Counter and non-counter mutations cannot exist in the same batch"
            }
            () => return Ok(()),
        };
        Err(Error::Invalid(text.into()))
    }
}

/// Checks that the statements may be in one batch of this kind.
pub(crate) fn check_kind<'p>(
    kind: BatchKind,
    writes: impl Iterator<Item = &'p WritePlan>,
) -> Result<(), Error> {
    let mut kinds = Kinds::default();
    writes.for_each(|write| kinds.add(write));
    kinds.check(kind)
}

#[cfg(test)]
mod tests {
    use storage::{Change, Deletion};

    use super::*;

    #[test]
    fn changes_of_one_partition_become_one_mutation_in_their_order() {
        let change = |timestamp| Change::DeletePartition(Deletion { timestamp, deleted_at_s: 0 });
        let one = |table, key: &'static str, timestamp| Mutation {
            table: TableId(table),
            token: 0,
            key: Bytes::from_static(key.as_bytes()),
            changes: vec![change(timestamp)],
        };
        let all = vec![one(1, "a", 1), one(1, "b", 2), one(2, "a", 3), one(1, "a", 4)];
        let merged = by_partition(all);
        let shown: Vec<(u128, &[u8], usize)> =
            merged.iter().map(|m| (m.table.0, &m.key[..], m.changes.len())).collect();
        assert_eq!(shown, [(1, &b"a"[..], 2), (1, b"b", 1), (2, b"a", 1)]);
        assert!(matches!(
            &merged[0].changes[..],
            [
                Change::DeletePartition(Deletion { timestamp: 1, .. }),
                Change::DeletePartition(Deletion { timestamp: 4, .. })
            ]
        ));
    }
}
