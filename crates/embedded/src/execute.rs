//! Running plans: writes to the cores that own their partitions, reads gathered from them, page by page.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cql::ast::{CompareOp, Statement};
use engine::scan::{TableSnapshot, TableStatistics};
use engine::{
    Acks, BatchKind, Engine, Error, Execution, Measure, Outcome, Plan, Registry, Request, Schema,
    SchemaChange, Value,
};
use storage::{Mutation, TableId};

use crate::paging::Position;
use crate::plan::{EmbeddedPlan, Kind};
use crate::read::{Chunk, Slice};
use crate::restrict::TokenBound;
use crate::scan::Scan;
use crate::select::{SelectPlan, Want};
use crate::slice::{clustering_ranges, partition_keys};
use crate::write::{Times, WritePlan, is_lower, mutations};
use crate::{Embedded, storage_error, virtual_select};

/// A page ends early at this many bytes of cells, so that an answer always fits a frame.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// The most bytes of cells in an answer that the client asked for whole.
const WHOLE_BYTES_MAX: usize = 128 << 20;

/// How far one writer's writes to this core's shard have come.
struct OwnAcks(storage::Acks);

impl Acks for OwnAcks {
    fn poll_acked(&mut self, write: u64, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_acked(write, cx).map_err(storage_error)
    }
}

impl Engine for Embedded {
    fn prepare(&self, statement: Rc<Statement>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        Ok(Rc::new(self.plan(&statement, keyspace)?))
    }

    fn execute(&self, plan: &Rc<dyn Plan>, request: &Request<'_>) -> Execution {
        let plan = own(plan);
        if let Err(error) = check_values(plan, request.values) {
            return Execution::Ready(Err(error));
        }
        match &plan.kind {
            Kind::Select(select) => self.select(select, request),
            Kind::Write(writes) if writes.iter().any(WritePlan::reads_first) => {
                let parts: Vec<_> = (0..writes.len()).map(|at| (writes, at, request.values)).collect();
                self.modify(&parts, request)
            }
            Kind::Write(writes) => {
                if let [write] = &writes[..]
                    && let Some(execution) = self.write_one(write, request)
                {
                    return execution;
                }
                let parts = writes.iter().map(|write| (write, request.values));
                self.write(parts, request)
            }
            Kind::Truncate(def) => {
                let table = TableId(def.id.as_u128());
                Execution::Pending(Box::pin(async move {
                    for core in 0..lanes::cores() {
                        let cut = move || async move { Embedded::local().shard.truncate(table).await };
                        lanes::call(core, cut).await.map_err(storage_error)?;
                    }
                    Ok(Outcome::Void)
                }))
            }
            Kind::Define(statement, keyspace) => {
                Execution::Pending(Box::pin(Embedded::define(Statement::clone(statement), keyspace.clone())))
            }
        }
    }

    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Execution {
        let mut writes = Vec::with_capacity(parts.len());
        for (plan, values) in parts {
            let plan = own(plan);
            if let Err(error) = check_values(plan, values) {
                return Execution::Ready(Err(error));
            }
            match &plan.kind {
                Kind::Write(plans) => writes.extend((0..plans.len()).map(|at| (plans, at, *values))),
                _ => {
                    let text = "A batch can hold INSERT, UPDATE and DELETE statements only";
                    return Execution::Ready(Err(Error::Invalid(text.into())));
                }
            }
        }
        let plans = || writes.iter().map(|(plans, at, _)| &plans[*at]);
        let (counter, logged) = (kind == BatchKind::Counter, kind == BatchKind::Logged);
        if let Err(error) = crate::write::check_batch(counter, logged, plans()) {
            return Execution::Ready(Err(error));
        }
        if plans().any(WritePlan::reads_first) {
            return self.modify(&writes, request);
        }
        self.write(writes.iter().map(|(plans, at, values)| (&plans[*at], *values)), request)
    }

    fn acks(&self) -> Box<dyn Acks> {
        Box::new(OwnAcks(self.shard.acks()))
    }

    fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    fn on_schema_change(&self, listener: Rc<dyn Fn(&SchemaChange)>) {
        self.listeners.borrow_mut().push(listener);
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn table_snapshot(&self, keyspace: &str, table: &str) -> Result<Box<dyn TableSnapshot>, Error> {
        self.snapshot_of(keyspace, table)
    }

    fn statistics(&self, keyspace: &str, table: &str) -> Option<TableStatistics> {
        self.size_of(keyspace, table)
    }

    fn metrics(&self) -> Vec<Measure> {
        crate::metrics::of(&self.shard.stats())
    }
}

fn own(plan: &Rc<dyn Plan>) -> &EmbeddedPlan {
    plan.as_any().downcast_ref().expect("a plan goes back to the engine that made it")
}

fn check_values(plan: &EmbeddedPlan, values: &[Value<'_>]) -> Result<(), Error> {
    if !plan.is_current() {
        return Err(Error::Stale);
    }
    match (plan.binds().len(), values.len()) {
        (wanted, given) if wanted != given => {
            Err(Error::Invalid(format!("There were {wanted} markers(?) in CQL but {given} bound variables")))
        }
        _ => Ok(()),
    }
}

impl Embedded {
    fn write<'a>(
        &self,
        parts: impl Iterator<Item = (&'a WritePlan, &'a [Value<'a>])>,
        request: &Request<'_>,
    ) -> Execution {
        let now_us = self.next_us();
        let mut all = Vec::with_capacity(1);
        for (plan, values) in parts {
            let list_us = if plan.appends() { self.next_us() } else { now_us };
            if let Err(error) = mutations(plan, values, request, Times { now_us, list_us }, &mut all) {
                return Execution::Ready(Err(error));
            }
        }
        if all.is_empty() {
            return Execution::Ready(Ok(Outcome::Void));
        }
        let core = self.owner(all[0].token);
        let alone = all.iter().all(|mutation| self.owner(mutation.token) == core);
        if alone && core == lanes::current_core() {
            return match self.shard.apply(all) {
                Ok(commit) => Execution::Written(commit.number()),
                Err(error) => Execution::Ready(Err(storage_error(error))),
            };
        }
        let engine = self.rc();
        Execution::Pending(Box::pin(async move {
            engine.apply_everywhere(all).await?;
            Ok(Outcome::Void)
        }))
    }

    /// Applies mutations on the cores that own them.
    pub(crate) async fn apply_everywhere(&self, all: Vec<Mutation>) -> Result<(), Error> {
        let mut by_core: Vec<Vec<Mutation>> = vec![Vec::new(); self.sharding.shards as usize];
        for mutation in all {
            by_core[self.owner(mutation.token)].push(mutation);
        }
        for (core, part) in by_core.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let apply = move || async move { Embedded::local().shard.apply(part)?.await };
            lanes::call(core, apply).await.map_err(storage_error)?;
        }
        Ok(())
    }

    /// A write of one row that this core owns.
    fn write_one(&self, plan: &WritePlan, request: &Request<'_>) -> Option<Execution> {
        let key = match plan.one_key(request.values)? {
            Ok(key) => key,
            Err(error) => return Some(Execution::Ready(Err(error))),
        };
        let token = schema::token::token(&key);
        let table = TableId(plan.def.id.as_u128());
        let core = self.owner(token);
        if core == lanes::current_core() {
            self.shard.prefetch(table, token);
        }
        let row = match plan.one_row(&key, request.values, request, self.next_us()) {
            Ok(row) => row,
            Err(error) => return Some(Execution::Ready(Err(error))),
        };
        if core == lanes::current_core() {
            return Some(match self.shard.put(table, token, &key, &row) {
                Ok(commit) => Execution::Written(commit.number()),
                Err(error) => Execution::Ready(Err(storage_error(error))),
            });
        }
        let key = key.into_owned();
        let put = move || async move { Embedded::local().shard.put(table, token, &key, &row)?.await };
        Some(Execution::Pending(Box::pin(async move {
            lanes::call(core, put).await.map(|()| Outcome::Void).map_err(storage_error)
        })))
    }

    fn select(&self, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Execution {
        if plan.is_virtual {
            let table = self.registry.get(&plan.def.keyspace, &plan.def.name);
            return match table {
                Some(table) => virtual_select::run(&table, plan, request),
                None => Execution::Ready(Err(Error::Stale)),
            };
        }
        let now_s = request.now_s.unwrap_or_else(|| (lanes::time::unix_micros() / 1_000_000) as u32);
        if plan.point {
            return self.point_read(plan, request, now_s);
        }
        match self.reading(plan, request, now_s) {
            Ok(reading) => Execution::Pending(Box::pin(reading.run(self.rc()))),
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    fn reading(&self, plan: &Arc<SelectPlan>, request: &Request<'_>, now_s: u32) -> Result<Reading, Error> {
        let values = request.values;
        let whole = plan.restrictions.clustering.is_empty() && plan.restrictions.range.is_empty();
        let ranges = match plan.restrictions.partition.is_empty() {
            true => Arc::from([(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)]),
            false => clustering_ranges(&plan.def, &plan.restrictions, values)?.into(),
        };
        let limit = |bind: &Option<crate::term::Bind>, name: &str| match bind {
            None => Ok(u32::MAX),
            Some(bind) => match bind.number(values)? {
                None => Ok(u32::MAX),
                Some(n) if n > 0 => Ok(n as u32),
                Some(_) => Err(Error::Invalid(format!("{name} must be strictly positive"))),
            },
        };
        let per_partition = limit(&plan.per_partition, "PER PARTITION LIMIT")?;
        let rows_max = limit(&plan.limit, "LIMIT")?;
        let counting = matches!(*plan.want, Want::Count(_));
        let filters = plan.restrictions.filters.iter().map(|f| f.bound(values)).collect::<Result<_, _>>()?;
        let slice = Slice {
            def: plan.def.clone(),
            want: plan.wanted(values)?,
            ranges,
            filters,
            reversed: plan.reversed,
            distinct: plan.distinct,
            whole,
            per_partition,
            now_s,
            bypass_cache: plan.bypass_cache,
        };
        let keys = match plan.restrictions.partition.is_empty() {
            true => None,
            false => Some(partition_keys(&plan.def, &plan.restrictions.partition, values)?),
        };
        let position = match request.paging_state {
            Some(state) => Position::decode(state)?,
            None => Position { left: rows_max, ..Position::default() },
        };
        Ok(Reading {
            scan: Scan { slice, tokens: tokens(&plan.restrictions.tokens, values)? },
            plan: plan.clone(),
            keys,
            position,
            page: if counting { None } else { request.page_size },
            counting,
        })
    }
}

/// The tokens that bounds leave; an empty range where they leave none.
fn tokens(bounds: &[TokenBound], values: &[Value<'_>]) -> Result<RangeInclusive<i64>, Error> {
    let (mut start, mut end) = (i64::MIN, i64::MAX);
    for (op, bind) in bounds {
        let Some(token) = bind.number(values)? else { continue };
        let strict = matches!(op, CompareOp::Less | CompareOp::Greater);
        match op {
            CompareOp::NotEq => return Err(Error::Invalid("Unsupported \"!=\" relation on token".into())),
            CompareOp::Eq => (start, end) = (start.max(token), end.min(token)),
            _ if is_lower(*op) => match token.checked_add(i64::from(strict)) {
                Some(token) => start = start.max(token),
                None => (start, end) = (1, 0),
            },
            // As in Cassandra, the smallest token as an upper bound stands for the end of the ring.
            _ if token == i64::MIN => {}
            _ => end = end.min(token - i64::from(strict)),
        }
    }
    Ok(start..=end)
}

/// One page of a SELECT.
struct Reading {
    plan: Arc<SelectPlan>,
    scan: Scan,
    /// The partitions, where the statement names them; otherwise the scan finds them.
    keys: Option<Vec<(i64, Bytes)>>,
    position: Position,
    page: Option<u32>,
    counting: bool,
}

impl Reading {
    async fn run(mut self, engine: Rc<Embedded>) -> Result<Outcome, Error> {
        let page = self.page.unwrap_or(u32::MAX).min(self.position.left).max(1);
        let rows = self.plan.rows();
        let bytes_max = if self.page.is_some() { PAGE_BYTES_MAX } else { WHOLE_BYTES_MAX };
        let mut chunk = Chunk { rows, counted: 0, last: None, of_partition: 0, left: page, bytes_max };
        let next = match self.keys.take() {
            Some(keys) => self.by_keys(&engine, keys, &mut chunk).await?,
            None if self.scan.tokens.is_empty() => None,
            None => self.scan.run(&self.position, &mut chunk).await?,
        };
        if self.page.is_none() && chunk.rows.cells.len() >= WHOLE_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "The result is larger than {WHOLE_BYTES_MAX} bytes; ask for it in pages"
            )));
        }
        if self.counting {
            chunk.rows.push(Some(&(chunk.counted as i64).to_be_bytes()));
            chunk.rows.count = 1;
            return Ok(Outcome::Rows(chunk.rows));
        }
        self.plan.measure(&chunk.rows);
        let left = self.position.left.saturating_sub(chunk.rows.count);
        if let Some(mut next) = next.filter(|_| left > 0) {
            next.left = if self.position.left == u32::MAX { u32::MAX } else { left };
            chunk.rows.paging_state = Some(next.encode());
        }
        Ok(Outcome::Rows(chunk.rows))
    }

    /// Reads the named partitions in token order; gives where to go on, if there is more.
    async fn by_keys(
        &self,
        engine: &Rc<Embedded>,
        keys: Vec<(i64, Bytes)>,
        chunk: &mut Chunk,
    ) -> Result<Option<Position>, Error> {
        let position = &self.position;
        let mut done = None;
        for (token, key) in keys {
            let mut after = None;
            chunk.of_partition = 0;
            if let Some(reached) = &position.key {
                match (token, &key).cmp(&(position.token, reached)) {
                    std::cmp::Ordering::Less => continue,
                    std::cmp::Ordering::Equal if position.row.is_none() => continue,
                    std::cmp::Ordering::Equal => {
                        after.clone_from(&position.row);
                        chunk.of_partition = position.of_partition;
                    }
                    std::cmp::Ordering::Greater => {}
                }
            }
            let core = engine.owner(token);
            let finished = self.scan.slice.one_on(core, token, &key, after, chunk).await?;
            if !finished {
                return Ok(Some(stopped_at(chunk, token, key, done)));
            }
            done = Some((token, key));
        }
        Ok(None)
    }
}

fn stopped_at(chunk: &Chunk, token: i64, key: Bytes, done: Option<(i64, Bytes)>) -> Position {
    match done {
        _ if chunk.last.is_some() => chunk.inside(token, key),
        Some((token, key)) => Position::after(token, key),
        None => Position::default(),
    }
}
