//! Running writes that read nothing: applying them on the cores that own their partitions.
//!
//! A write of one row, and a small batch for this core, are applied at once. A large one is bound
//! on a heavy lane, and applied in several task polls.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{BatchKind, Error, Execution, Guardrail, Later, Plan, Request, StatementOutcome, Value};
use schema::TableDef;
use storage::{Change, Commit, Mutation, Shard, StorageError, TableId};
use uuid::Uuid;

use crate::heavy_lane::heavy;
use crate::index::apply::Limits;
use crate::index::size::check_indexed;
use crate::owned::InTurn;
use crate::system::own_tables::is_server_keyspace;
use crate::write::batch::{Unchecked, WriteBatch, by_partition, bytes_at_once};
use crate::write::batch_log::{Spread, by_core};
use crate::write::mutations::{WritePlan, mutations};
use crate::{Embedded, storage_error};

/// Rows bound on a heavy lane between two yields.
const ROWS_PER_YIELD: u64 = 256;

impl Embedded {
    /// Runs an INSERT, UPDATE, DELETE, or a textual BATCH, whose writes are `writes`.
    #[inline]
    pub(crate) fn write(
        &self,
        plan: &Rc<dyn Plan>,
        writes: &[WritePlan],
        is_atomic: bool,
        request: &Request<'_>,
    ) -> Execution {
        if let [write] = writes
            && write.is_plain()
            && let Some(execution) = self.write_one(write, request)
        {
            return execution;
        }
        self.write_together(Unchecked::of_text(plan, writes.len(), is_atomic, request))
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
            && let Err(error) = self.guardrails().check(Guardrail::BatchStatements, parts.len() as u64)
        {
            return Execution::Ready(Err(error));
        }
        match Unchecked::of_batch(kind, parts, request) {
            Ok(batch) => self.write_together(batch),
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    fn write_together(&self, batch: Unchecked) -> Execution {
        if !batch.has_json() {
            return self.write_unchecked(batch);
        }
        if let Err(error) = batch.check_json_counts() {
            return Execution::Ready(Err(error));
        }
        if batch.has_short_json() {
            return match batch.with_json() {
                Ok(batch) => self.write_unchecked(batch),
                Err(error) => Execution::Ready(Err(error)),
            };
        }
        let engine = self.rc();
        Execution::Pending(Box::pin(async move {
            let batch = batch.with_long_json().await?.check_yielding(&engine).await?;
            engine.run_large(batch).await
        }))
    }

    fn write_unchecked(&self, batch: Unchecked) -> Execution {
        if !batch.is_short() {
            let engine = self.rc();
            return Execution::Pending(Box::pin(async move {
                let batch = batch.check_yielding(&engine).await?;
                engine.run_large(batch).await
            }));
        }
        match batch.check(self) {
            Ok(batch) if !batch.reads_first && batch.is_small() => self.apply_small(&batch),
            Ok(batch) => Execution::Pending(self.rc().run_large(batch)),
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    /// Runs a batch that is too large for one task poll, or that reads before it writes.
    fn run_large(self: Rc<Self>, batch: WriteBatch) -> Later {
        // Take the timestamps now: they must be lower than those of the session's next statement.
        let times = self.timestamps.next_for(batch.parts.len());
        Box::pin(async move {
            if batch.reads_first {
                return self.modify(batch, times).await;
            }
            let shards = self.sharding;
            let bind = async move {
                let mut by_core = vec![Vec::new(); shards.shards as usize];
                let mut all = Vec::new();
                let mut left = ROWS_PER_YIELD;
                let mut in_turn = InTurn::of(&batch.request.values);
                for part in &batch.parts {
                    let values = in_turn.at(&part.places);
                    let times = times.of_statement(part.number);
                    mutations(part.plan(), values, &batch.request.borrowed(values), times, &mut all)?;
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
                for part in &batch.parts {
                    tables.entry(part.plan().def.id).or_insert_with(|| part.plan().def.clone());
                }
                let by_core = by_core.into_iter().map(by_partition).collect();
                Ok::<_, Error>((Spread::of(by_core, batch.is_atomic), tables))
            };
            let (spread, tables) = heavy(bind).await?;
            // Tables may have been changed or dropped meanwhile.
            let schema = self.current.schema();
            let stands = |def: &Arc<TableDef>| {
                schema.table(&def.keyspace, &def.name).is_some_and(|now| Arc::ptr_eq(now, def))
            };
            if !tables.values().all(stands) {
                return Err(Error::Stale);
            }
            self.apply_spread(spread).await?;
            Ok(StatementOutcome::Void)
        })
    }

    /// Applies a batch in this task poll, if all of it is for this core.
    fn apply_small(&self, batch: &WriteBatch) -> Execution {
        let times = self.timestamps.next_for(if batch.appends { batch.parts.len() } else { 1 });
        let mut all = Vec::with_capacity(batch.parts.len());
        let mut in_turn = InTurn::of(&batch.request.values);
        for part in &batch.parts {
            let values = in_turn.at(&part.places);
            let request = batch.request.borrowed(values);
            let times = times.of_statement(part.number);
            if let Err(error) = mutations(part.plan(), values, &request, times, &mut all) {
                return Execution::Ready(Err(error));
            }
        }
        if all.is_empty() {
            return Execution::Ready(Ok(StatementOutcome::Void));
        }
        let core = self.owner(all[0].token);
        let alone = all.iter().all(|mutation| self.owner(mutation.token) == core);
        if alone && core == lanes::current_core() {
            let all = self.with_entries(all);
            let applied = self.timestamps.keep_floor(&self.shard).and_then(|()| self.shard.apply(all.all()));
            return self
                .written(applied, move |shard| async move { shard.apply_in_turn(all.all()).await?.await });
        }
        let engine = self.rc();
        let spread =
            Spread::of(by_core(all, self.sharding).into_iter().map(by_partition).collect(), batch.is_atomic);
        Execution::Pending(Box::pin(async move {
            engine.apply_spread(spread).await?;
            Ok(StatementOutcome::Void)
        }))
    }

    /// Returns the result of a write to this core. If the log had no room, calls `again`, which
    /// waits for it.
    #[inline(always)]
    fn written<F: Future<Output = Result<(), StorageError>> + 'static>(
        &self,
        applied: Result<Commit, StorageError>,
        again: impl FnOnce(Rc<Shard>) -> F,
    ) -> Execution {
        match applied {
            Ok(commit) => Execution::Written(commit.number()),
            Err(error) => self.not_written(error, again),
        }
    }

    #[cold]
    fn not_written<F: Future<Output = Result<(), StorageError>> + 'static>(
        &self,
        error: StorageError,
        again: impl FnOnce(Rc<Shard>) -> F,
    ) -> Execution {
        if !matches!(error, StorageError::Overloaded { .. }) {
            return Execution::Ready(Err(storage_error(error)));
        }
        let again = again(self.shard.clone());
        let waiting = self.begin_write();
        Execution::Pending(Box::pin(async move {
            let _waiting = waiting;
            again.await.map(|()| StatementOutcome::Void).map_err(storage_error)
        }))
    }

    /// Applies mutations on the cores that own them, one core after the other.
    pub(crate) async fn apply_by_core(&self, by_core: Vec<Vec<Mutation>>) -> Result<(), Error> {
        for (core, part) in by_core.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            engine::note(|| format!("Writing on core {core}, and waiting for its log"));
            let apply = move || async move { Embedded::local().apply_here(part, Limits::Plain).await?.await };
            lanes::call(core, apply).await.map_err(storage_error)?;
        }
        Ok(())
    }

    /// Applies a write of one row of an indexed table.
    fn write_indexed(&self, core: usize, mutation: Mutation) -> Execution {
        if core == lanes::current_core() {
            let all = self.with_entries(vec![mutation]);
            let applied = self.timestamps.keep_floor(&self.shard).and_then(|()| self.shard.apply(all.all()));
            return self
                .written(applied, move |shard| async move { shard.apply_in_turn(all.all()).await?.await });
        }
        let apply =
            move || async move { Embedded::local().apply_here(vec![mutation], Limits::Plain).await?.await };
        Execution::Pending(Box::pin(async move {
            lanes::call(core, apply).await.map(|()| StatementOutcome::Void).map_err(storage_error)
        }))
    }

    /// Applies a write of one row. Returns `None` for one that is too large for this task poll.
    fn write_one(&self, plan: &WritePlan, request: &Request<'_>) -> Option<Execution> {
        if bytes_of(request.values) + plan.constant_bytes() > bytes_at_once(plan.has_elements()) {
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
        let row = match plan.one_row(&key, request.values, request, self.timestamps.next()) {
            Ok(row) => row,
            Err(error) => return Some(Execution::Ready(Err(error))),
        };
        if plan.def.has_entries() || self.indexes.has(table) {
            let key = Bytes::from(key.into_owned());
            let changes = vec![Change::Row(row.row())];
            if let Err(error) = check_indexed(&plan.def, &key, &changes) {
                return Some(Execution::Ready(Err(error)));
            }
            return Some(self.write_indexed(core, Mutation { table, token, key, changes }));
        }
        if core == lanes::current_core() {
            let put = match self.timestamps.keep_floor(&self.shard) {
                Ok(()) => self.shard.put(table, token, &key, &row),
                Err(error) => Err(error),
            };
            return Some(self.written(put, |shard| {
                let key = key.into_owned();
                async move { shard.put_in_turn(table, token, &key, &row).await?.await }
            }));
        }
        engine::note(|| format!("Writing on core {core}, and waiting for its log"));
        let key = key.into_owned();
        let put = move || async move {
            let engine = Embedded::local();
            if engine.indexes.has(table) {
                // This core has an index that the other one did not know yet.
                let (key, changes) = (Bytes::from(key), vec![Change::Row(row.row())]);
                let mutation = Mutation { table, token, key, changes };
                return engine.apply_here(vec![mutation], Limits::Plain).await?.await;
            }
            engine.timestamps.keep_floor(&engine.shard)?;
            match engine.shard.put(table, token, &key, &row) {
                Err(StorageError::Overloaded { .. }) => {}
                put => return put?.await,
            }
            let waiting = engine.begin_write();
            let put = engine.shard.put_in_turn(table, token, &key, &row).await?;
            drop(waiting);
            put.await
        };
        Some(Execution::Pending(Box::pin(async move {
            lanes::call(core, put).await.map(|()| StatementOutcome::Void).map_err(storage_error)
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
