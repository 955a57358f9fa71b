//! Running a SELECT: from a plan and values to one page of rows.
//!
//! Binds the values of a request. Many values, such as the keys of an `IN`, are bound on a heavy
//! lane.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{
    AnswerGrant, AnswerMemory, Error, Execution, Guardrail, PAGE_BYTES_MAX, Reads, Request, ResultRows,
    StatementOutcome, Value, Warnings,
};
use storage::SLICE_BYTES;

use crate::bind::choice::{Cost, plus, times};
use crate::bind::nearest::NearestSearch;
use crate::bind::select::SelectPlan;
use crate::bind::slice::{clustering_ranges, compare_keys, partition_keys};
use crate::bind::tokens::Tokens;
use crate::heavy_lane::heavy;
use crate::owned::{OwnedRequest, OwnedValues};
use crate::read::by_view::{Within, ranges_of_places};
use crate::read::chunk::{Chunk, Ends, GRANT_BYTES, Grants};
use crate::read::paging::Position;
use crate::read::partition::Slice;
use crate::read::scan::{PORTION_BYTES_MAX, Scan};
use crate::read::virtual_select;
use crate::system::own_tables::is_server_keyspace;
use crate::{Embedded, storage_error};

/// Work units of reading one partition on this core: a lookup in each memtable and in the filter of
/// each file.
const KEY_UNITS: u32 = 5;

/// Partitions and slices that the fast lane builds: 50 µs. A heavy lane builds more.
const COMBINATIONS_AT_ONCE: u64 = lanes::UNITS_PER_POLL as u64;

impl Embedded {
    pub(crate) fn select(&self, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Execution {
        if let Some(note) = plan.note {
            Warnings::add_note(note);
        }
        if plan.is_virtual {
            let table = self.registry.get(&plan.def.keyspace, &plan.def.name);
            return match table {
                Some(table) => virtual_select::run(&table, plan, request),
                None => Execution::Ready(Err(Error::Stale)),
            };
        }
        if plan.point && !plan.is_large(request.values) {
            return self.point_read(plan, request);
        }
        let now_s = now_s(request);
        let combinations = match self.check_product(plan, request.values) {
            Ok(combinations) => combinations,
            Err(error) => return Execution::Ready(Err(error)),
        };
        let start = match request.paging_state.map(Position::decode).transpose() {
            Ok(start) => start,
            Err(error) => return Execution::Ready(Err(error)),
        };
        let (rows, bytes) = start.as_ref().map_or((0, 0), |start| (start.rows_read, start.bytes_read));
        let reads = Arc::new(Reads::after(rows, bytes));
        if combinations > COMBINATIONS_AT_ONCE || plan.is_large(request.values) {
            let (engine, plan, counted) = (self.rc(), plan.clone(), reads.clone());
            let request = OwnedRequest::of(request, OwnedValues::of(request));
            let bytes = bytes_in_hand(&plan);
            let later = Box::pin(async move {
                let bind = async move {
                    Reading::of(&plan, &request.borrowed(&request.values.all()), now_s, start, counted)
                };
                heavy(bind).await?.run(engine).await
            });
            return Execution::Reading { later, bytes, reads };
        }
        match Reading::of(plan, request, now_s, start, reads.clone()) {
            Ok(reading) => {
                let bytes = bytes_in_hand(plan);
                Execution::Reading { later: Box::pin(reading.run(self.rc())), bytes, reads }
            }
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    /// Checks the number of rows and slices that the INs of a SELECT name, before any value is
    /// copied. Returns how many of both are to be built.
    fn check_product(&self, plan: &SelectPlan, values: &[Value<'_>]) -> Result<u64, Error> {
        if !plan.has_in {
            return Ok(0);
        }
        let partitions = Cost::of(&plan.restrictions.partition, values)?;
        let slices = plan.restrictions.slices(&plan.def, values)?;
        let guardrails = self.registry.guardrails();
        guardrails.check(Guardrail::InProduct, times(partitions.count, slices.count)?)?;
        guardrails.check(Guardrail::InProductBytes, plus(partitions.bytes, slices.bytes)?)?;
        plus(partitions.count, slices.count)
    }
}

/// Returns the time by which TTLs have ended, seconds.
#[inline]
pub(super) fn now_s(request: &Request<'_>) -> u32 {
    request.now_s.unwrap_or_else(|| (lanes::time::unix_micros() / 1_000_000) as u32)
}

/// Returns the bytes of rows that a read may hold at a time: a chunk of a partition, the part of
/// the answer that needs no grant, and for a scan a portion of each core.
fn bytes_in_hand(plan: &SelectPlan) -> usize {
    let is_of_all = plan.restrictions.partition.is_empty() || plan.view.is_some();
    let portions = if is_of_all { lanes::cores() } else { 0 };
    SLICE_BYTES + GRANT_BYTES + portions * PORTION_BYTES_MAX
}

/// Cassandra's text for a result that must be sorted and might not fit a page.
const CANNOT_PAGE: &str = "Cannot page queries with both ORDER BY and a IN restriction on the partition key; \
                           you must either remove the ORDER BY or the IN and sort client side, or disable paging \
                           for this query";

/// State of one page of a SELECT.
struct Reading {
    plan: Arc<SelectPlan>,
    scan: Scan,
    /// Partitions that the statement names. `None`: a scan finds them.
    keys: Option<Vec<(i64, Bytes)>>,
    /// Vector whose nearest rows are read.
    nearest: Option<NearestSearch>,
    /// True if the partitions are merged into one order.
    merged: bool,
    position: Position,
    page: Option<u32>,
    /// Bytes of cells at which a page ends early.
    page_bytes_max: usize,
    /// Memory for the result.
    grant: Option<Arc<dyn AnswerGrant>>,
    /// Rows must be durable before the client gets them.
    serial: bool,
}

impl Reading {
    /// Binds the values of a request, to read on from `start`.
    fn of(
        plan: &Arc<SelectPlan>,
        request: &Request<'_>,
        now_s: u32,
        start: Option<Position>,
        reads: Arc<Reads>,
    ) -> Result<Reading, Error> {
        let values = request.values;
        let whole = !plan.restrictions.names_rows() && plan.view.is_none();
        let mut ranges = clustering_ranges(&plan.def, &plan.restrictions, values)?;
        if plan.view.is_some() {
            ranges = ranges_of_places(ranges);
        }
        let limit = |bind: &Option<crate::bind::term::Bind>| match bind {
            None => Ok(u32::MAX),
            Some(bind) => match bind.number(values)? {
                None => Ok(u32::MAX),
                Some(n) if n > 0 => Ok(n as u32),
                Some(_) => Err(Error::Invalid("LIMIT must be strictly positive".into())),
            },
        };
        let per_partition = limit(&plan.limits.per_partition)?;
        let rows_max = limit(&plan.limits.all)?;
        let is_one_group = plan.projection.group_of_all().is_some();
        let filters =
            plan.restrictions.filters.iter().map(|f| f.bound(&plan.def, values)).collect::<Result<_, _>>()?;
        let restrictions = &plan.restrictions;
        let index = plan.index.as_ref();
        let probe = index.map(|index| index.probe(&plan.def, restrictions, values)).transpose()?;
        // Entries that name rows find no partition without rows.
        let whole = whole && probe.as_ref().is_none_or(|probe| !probe.names_rows);
        let slice = Slice {
            def: plan.def.clone(),
            projection: plan.bound_projection(values)?,
            ranges: ranges.into(),
            filters,
            reversed: plan.order.is_reversed,
            distinct: plan.distinct,
            whole,
            per_partition,
            now_s,
            bypass_cache: plan.bypass_cache,
            reads,
            probe: probe.map(Arc::new),
            view: plan.view.clone(),
            nearest: None,
        };
        let nearest = plan.nearest.as_ref().map(|nearest| nearest.bound(&plan.def, request, rows_max));
        let nearest = nearest.transpose()?;
        let tokens = Tokens::of(&plan.restrictions.tokens, values)?;
        let keys = match plan.restrictions.partition.is_empty() {
            true => None,
            false => {
                let mut keys = partition_keys(&plan.restrictions.partition, values)?;
                keys.retain(|(token, _)| tokens.admits(*token));
                keys.sort_by(|a, b| compare_keys(&plan.def, &a.1, &b.1));
                Some(keys)
            }
        };
        let merged =
            plan.order.columns > 0 && !is_one_group && keys.as_ref().is_some_and(|keys| keys.len() > 1);
        if merged && (request.paging_state.is_some() || request.page_size.is_some_and(|page| page < rows_max))
        {
            return Err(Error::Invalid(CANNOT_PAGE.into()));
        }
        let position = start.unwrap_or_else(|| Position { left: rows_max, ..Position::default() });
        Ok(Reading {
            scan: Scan { slice, tokens: tokens.range() },
            merged,
            plan: plan.clone(),
            keys,
            position,
            page: if is_one_group || merged || nearest.is_some() { None } else { request.page_size },
            nearest,
            page_bytes_max: request.page_bytes_max.min(PAGE_BYTES_MAX),
            grant: request.room.map(AnswerMemory::open),
            serial: request.serial,
        })
    }

    async fn run(mut self, engine: Rc<Embedded>) -> Result<StatementOutcome, Error> {
        if self.position.is_end {
            return Ok(StatementOutcome::Rows(ResultRows::new(self.plan.columns.clone())));
        }
        let page = self.page.unwrap_or(u32::MAX).min(self.position.left).max(1);
        let guardrails = engine.guardrails();
        let of_server = is_server_keyspace(&self.plan.def.keyspace);
        let whole_max = match guardrails.fail_threshold(Guardrail::UnpagedBytes) {
            _ if of_server => usize::MAX,
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(1),
        };
        let bytes_max = if self.page.is_some() { self.page_bytes_max } else { whole_max };
        guardrails.check(Guardrail::PageRows, self.page.unwrap_or(0).into())?;
        let ends = if self.page.is_some() { Ends::Page } else { Ends::Whole };
        let mut chunk = Chunk::new(ResultRows::new(self.plan.columns.clone()), page, bytes_max, ends);
        chunk.room = self.plan.room();
        chunk.grants = Grants::of(self.grant.take());
        chunk.guardrails = Some(guardrails.clone());
        let read_cores: Option<BTreeSet<usize>> = match &self.keys {
            Some(keys) if self.serial && self.plan.view.is_none() => {
                Some(keys.iter().map(|(token, _)| engine.owner(*token)).collect())
            }
            _ if self.serial => Some((0..lanes::cores()).collect()),
            _ => None,
        };
        let next = match (self.nearest.take(), self.keys.take()) {
            (Some(search), keys) => {
                self.scan.nearest(keys, &search, &mut chunk).await?;
                None
            }
            (None, Some(keys)) if self.merged => {
                self.scan.slice.in_order(&engine, keys, self.plan.order.columns, &mut chunk).await?;
                None
            }
            (None, Some(keys)) => self.by_keys(&engine, keys, &mut chunk).await?,
            (None, None) if self.scan.tokens.is_empty() => None,
            (None, None) if self.plan.view.is_some() => {
                let within = Within::Tokens(self.scan.tokens.clone());
                self.scan.slice.rows_of_view(within, self.position.clone(), &mut chunk).await?
            }
            (None, None) => self.scan.run(&self.position, &mut chunk).await?,
        };
        for core in read_cores.into_iter().flatten() {
            let settled = || async { Embedded::local().shard.settled().await };
            lanes::call(core, settled).await.map_err(storage_error)?;
        }
        guardrails.note(Guardrail::Tombstones, chunk.dead);
        if self.page.is_none() && !of_server {
            guardrails.check(Guardrail::UnpagedBytes, chunk.rows.cells.len() as u64)?;
        }
        if let Some(groups) = self.scan.slice.projection.group_of_all() {
            for value in groups.close_all(chunk.group.take())? {
                chunk.rows.push(value.as_deref());
            }
            chunk.rows.count = 1;
            return Ok(StatementOutcome::Rows(chunk.rows));
        }
        self.plan.measure(&chunk.rows);
        let left = self.position.left.saturating_sub(chunk.rows.count);
        let is_full = self.page.is_some_and(|page| page > 0 && chunk.rows.count >= page);
        let next = next.or_else(|| is_full.then(|| Position { is_end: true, ..Position::default() }));
        if let Some(mut next) = next.filter(|_| left > 0) {
            next.left = if self.position.left == u32::MAX { u32::MAX } else { left };
            let reads = &self.scan.slice.reads;
            (next.rows_read, next.bytes_read) = (reads.rows(), reads.bytes());
            chunk.rows.paging_state = Some(next.encode());
        }
        Ok(StatementOutcome::Rows(chunk.rows))
    }

    /// Reads the named partitions in the order of their keys. Returns the position to continue
    /// from, if there are more rows.
    async fn by_keys(
        &self,
        engine: &Rc<Embedded>,
        keys: Vec<(i64, Bytes)>,
        chunk: &mut Chunk,
    ) -> Result<Option<Position>, Error> {
        let position = &self.position;
        let mut done = None;
        let first = match &position.key {
            // Keys are sorted: skip the partitions that were read before.
            Some(reached) => keys.partition_point(|(_, key)| {
                let order = compare_keys(&self.plan.def, key, reached);
                if position.row.is_some() { order.is_lt() } else { order.is_le() }
            }),
            None => 0,
        };
        for (token, key) in keys.into_iter().skip(first) {
            // A partition that does not exist costs its lookup too.
            if lanes::spend(KEY_UNITS) {
                lanes::yield_now().await;
            }
            let mut after = None;
            chunk.of_partition = 0;
            if position.row.is_some() && position.key.as_ref() == Some(&key) {
                after.clone_from(&position.row);
                chunk.of_partition = position.of_partition;
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
