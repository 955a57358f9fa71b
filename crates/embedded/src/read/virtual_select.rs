//! SELECT over virtual tables: rows are built, sorted by key, filtered by every relation, and split
//! into pages. Tables as large as the schema stream their rows in the order of the key: a read
//! holds a few rows in addition to its page.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use engine::{
    ANSWER_BYTES_MAX, AnswerGrant, AnswerMemory, Error, Execution, ROW_BYTES_MAX, Request, ResultRows,
    RowChunks, StatementOutcome, Subject, Viewer, VirtualRow, VirtualTable, Warnings,
};
use schema::{TableDef, value};

use crate::Embedded;
use crate::bind::expression::groups::{Groups, OpenGroup};
use crate::bind::expression::{Leaf, Row};
use crate::bind::filter::BoundFilter;
use crate::bind::projection::Projection;
use crate::bind::select::SelectPlan;
use crate::bind::show::{self, Show};
use crate::heavy_lane::heavy;
use crate::owned::{OwnedRequest, OwnedValues};
use crate::read::chunk::{Grants, answer_too_large};
use crate::read::paging::Position;
use crate::read::row_answer;

/// Rows filtered, sorted and shown in one task poll.
const ROWS_AT_ONCE: usize = 200;

/// Bytes of cells shown in one task poll.
const BYTES_AT_ONCE: usize = 128 << 10;

/// Streamed rows created on the fast lane. A heavy lane creates the rest.
const ROWS_INLINE: usize = 100;

/// Work units of creating a row: eight cells, each with an allocation.
const ROW_UNITS: u32 = 5;

/// Bytes of a computed value that is not a part of the row.
const COMPUTED_BYTES: usize = 64;

/// A page ends before a row of more bytes that does not fit.
const LARGE_ROW_BYTES: usize = 64 << 10;

/// SELECT with its values, waiting for rows.
struct PendingSelect {
    subject: Subject,
    viewer: Option<Arc<dyn Viewer>>,
    plan: Arc<SelectPlan>,
    projection: Arc<Projection>,
    filters: Vec<BoundFilter>,
    limit: usize,
    start: usize,
    page: usize,
    /// Bytes of cells at which a page ends.
    bytes_max: usize,
    /// Memory for the result.
    grant: Option<Arc<dyn AnswerGrant>>,
}

/// Runs a SELECT over a virtual table.
pub(crate) fn run(table: &VirtualTable, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Execution {
    if plan.is_large(request.values) {
        let (table, plan) = (table.clone(), plan.clone());
        let request = OwnedRequest::of(request, OwnedValues::of(request));
        return Execution::Pending(Box::pin(async move {
            let subject = table.subject;
            let bind =
                async move { PendingSelect::new(subject, &plan, &request.borrowed(&request.values.all())) };
            let pending = heavy(bind).await?;
            match table.stream() {
                Some(rows) => pending.answer_stream(rows()).await,
                None => pending.run(table).await,
            }
        }));
    }
    let pending = match PendingSelect::new(table.subject, plan, request) {
        Ok(pending) => pending,
        Err(error) => return Execution::Ready(Err(error)),
    };
    if (!table.of_every_core || lanes::cores() == 1)
        && let Some(rows) = table.rows_at_once()
    {
        return match pending.is_small(&rows) {
            true => Execution::Ready(pending.answer(rows)),
            false => Execution::Pending(Box::pin(pending.answer_on_heavy_lane(rows))),
        };
    }
    if let Some(rows) = table.stream() {
        return Execution::Pending(Box::pin(pending.answer_stream(rows())));
    }
    let table = table.clone();
    Execution::Pending(Box::pin(pending.run(table)))
}

impl PendingSelect {
    /// Reads the rows of every core that has some, and returns the result. Reads of one group run
    /// one after the other, because each holds all rows of the table meanwhile. This is a task of
    /// its own, so that a client that does not read its result blocks no other.
    async fn run(self, table: VirtualTable) -> Result<StatementOutcome, Error> {
        let group = lanes::current_group();
        let work = async move {
            let _guard = Embedded::local().locks.virtual_reads.lock(group).await;
            self.make(&table).await
        };
        let (outcome, warnings) = lanes::spawn(group, Warnings::collect(Warnings::NONE, work)).await;
        warnings.give();
        outcome
    }

    async fn make(self, table: &VirtualTable) -> Result<StatementOutcome, Error> {
        if !table.of_every_core || lanes::cores() == 1 {
            let rows = table.rows(self.viewer.clone()).await;
            return self.answer_some(rows).await;
        }
        let mut rows = Vec::new();
        for core in 0..lanes::cores() {
            let (def, viewer) = (self.plan.def.clone(), self.viewer.clone());
            let own = move || async move {
                match Embedded::local().registry.get(&def.keyspace, &def.name) {
                    Some(table) => table.rows(viewer).await,
                    None => Vec::new(),
                }
            };
            rows.extend(lanes::call(core, own).await);
        }
        self.answer_some(rows).await
    }

    /// Returns true if filtering, sorting and showing the rows takes a short time.
    fn is_small(&self, rows: &[VirtualRow]) -> bool {
        if rows.len() > ROWS_AT_ONCE {
            return false;
        }
        let bytes: usize = rows.iter().flatten().flatten().map(Bytes::len).sum();
        let shown = match &*self.projection {
            Projection::Rows(shows) => bytes.saturating_mul(shows.repeats()) + 4 * rows.len() * shows.len(),
            Projection::Computed(computed) => {
                bytes.saturating_mul(computed.leaves) + COMPUTED_BYTES * rows.len() * computed.weight
            }
            Projection::Groups(groups) => {
                bytes.saturating_mul(groups.leaves) + COMPUTED_BYTES * rows.len() * groups.weight
            }
        };
        shown <= BYTES_AT_ONCE
    }

    async fn answer_some(self, rows: Vec<VirtualRow>) -> Result<StatementOutcome, Error> {
        match self.is_small(&rows) {
            true => self.answer(rows),
            false => self.answer_on_heavy_lane(rows).await,
        }
    }

    fn new(subject: Subject, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Result<PendingSelect, Error> {
        let filters = plan.restrictions.filters.iter().map(|f| f.bound(&plan.def, request.values));
        let limit = match &plan.limits.all {
            Some(bind) => match bind.number(request.values)? {
                Some(n) if n > 0 => n as usize,
                Some(_) => return Err(Error::Invalid("LIMIT must be strictly positive".into())),
                None => usize::MAX,
            },
            None => usize::MAX,
        };
        let start = match request.paging_state {
            Some(state) => usize::try_from(Position::decode(state)?.token).unwrap_or(usize::MAX),
            None => 0,
        };
        Ok(PendingSelect {
            subject,
            viewer: request.viewer.cloned(),
            plan: plan.clone(),
            projection: plan.bound_projection(request.values)?,
            filters: filters.collect::<Result<_, _>>()?,
            limit,
            start,
            page: request.page_size.map_or(usize::MAX, |n| n as usize),
            bytes_max: if request.page_size.is_some() { request.page_bytes_max } else { usize::MAX },
            grant: request.room.map(AnswerMemory::open),
        })
    }

    /// Builds the result on a heavy lane: sorting thousands of rows takes milliseconds.
    async fn answer_on_heavy_lane(self, rows: Vec<VirtualRow>) -> Result<StatementOutcome, Error> {
        lanes::heavy(lanes::current_group(), async move { self.answer(rows) }).await
    }

    /// Builds the result of rows in the order of the key. Reads no more of them than the page
    /// needs. A client thus reads a small schema without a lane switch.
    async fn answer_stream(self, mut chunks: RowChunks) -> Result<StatementOutcome, Error> {
        let mut answer = VirtualAnswer::new(self);
        let (mut made, mut next) = (0, Vec::new());
        while made < ROWS_INLINE {
            let Some(chunk) = chunks.next() else { return answer.finish() };
            if chunk.is_empty() || !answer.select.is_small(&chunk) {
                next = chunk;
                break;
            }
            made += chunk.len();
            let _ = lanes::spend(ROW_UNITS.saturating_mul(chunk.len() as u32));
            if !answer.add(chunk)? {
                return answer.finish();
            }
        }
        heavy(async move {
            for chunk in std::iter::once(next).chain(chunks) {
                if !answer.add(chunk)? {
                    break;
                }
                lanes::heavy_yield().await;
            }
            answer.finish()
        })
        .await
    }

    fn answer(self, mut rows: Vec<VirtualRow>) -> Result<StatementOutcome, Error> {
        let def = self.plan.def.clone();
        let _ = lanes::spend(rows.len() as u32);
        let keys = def.partition_key().count() + def.clustering().count();
        rows.sort_by(|a, b| {
            let mut order = std::cmp::Ordering::Equal;
            for at in 0..keys {
                let (a, b) = (a[at].as_deref().unwrap_or_default(), b[at].as_deref().unwrap_or_default());
                order = order.then_with(|| value::compare(&def.columns[at].ty, a, b));
            }
            order
        });
        let mut answer = VirtualAnswer::new(self);
        answer.add(rows)?;
        answer.finish()
    }
}

/// Row of a virtual table.
struct VirtualSource<'r> {
    def: &'r TableDef,
    row: &'r VirtualRow,
}

impl<'r> VirtualSource<'r> {
    /// Returns the value of a column of the result.
    fn value(&self, show: &Show) -> Result<Option<&'r [u8]>, Error> {
        let VirtualSource { def, row } = self;
        Ok(match show {
            Show::Key(at) => row[*at].as_deref(),
            Show::Clustering(at) => row[def.partition_key().count() + at].as_deref(),
            Show::Static(id) | Show::Regular(id) => row[*id as usize].as_deref(),
            Show::Elements(at) => row[*at].as_deref(),
            Show::Inside(part) => {
                let whole = row[part.column].as_deref();
                whole.map(|value| show::inside(&part.steps, value)).transpose()?.flatten()
            }
            Show::Ttl(..) | Show::WriteTime(..) | Show::Token => None,
        })
    }

    /// Returns the bytes of the key columns by which rows are grouped.
    fn identity(&self, groups: &Groups) -> Result<Vec<u8>, Error> {
        let Some(by) = &groups.by else { return Ok(Vec::new()) };
        let keys = &self.row[..self.def.partition_key().count() + by.columns];
        let keys = value::encode_tuple(keys.iter().map(Option::as_deref));
        groups.identity_behind(keys, self)
    }
}

impl Row for VirtualSource<'_> {
    fn leaf(&self, leaf: &Leaf) -> Result<Option<Cow<'_, [u8]>>, Error> {
        match leaf {
            Leaf::Show(show) => Ok(self.value(show)?.map(Cow::Borrowed)),
            Leaf::Times(_) => Ok(None),
            Leaf::First(_) | Leaf::Total(_) => Err(Error::Server("a row has no group".into())),
        }
    }
}

/// Result that is being built.
struct VirtualAnswer {
    select: PendingSelect,
    out: ResultRows,
    grants: Grants,
    /// Group whose rows are being read.
    group: Option<OpenGroup>,
    /// Rows that passed the filters so far, or groups of them.
    at: usize,
    /// True if there are more rows than the page has.
    has_more: bool,
}

impl VirtualAnswer {
    fn new(select: PendingSelect) -> VirtualAnswer {
        let (out, grants) = (ResultRows::new(select.plan.columns.clone()), Grants::of(select.grant.clone()));
        VirtualAnswer { select, out, grants, group: None, at: 0, has_more: false }
    }

    /// Adds the rows that are visible and pass the filters, in their order. Returns false if no
    /// more rows are needed.
    fn add(&mut self, mut rows: Vec<VirtualRow>) -> Result<bool, Error> {
        let PendingSelect { subject, viewer, plan, projection, filters, limit, start, .. } = &self.select;
        subject.show(viewer.as_deref(), &mut rows);
        let columns = &plan.def.columns;
        rows.retain(|row| filters.iter().all(|f| f.passes(&columns[f.column].ty, row[f.column].as_deref())));
        let (limit, start) = (*limit, *start);
        let projection = projection.clone();
        let def = plan.def.clone();
        for row in &rows {
            let source = VirtualSource { def: &def, row };
            let (shows, computed) = match &*projection {
                Projection::Groups(groups) => {
                    if !self.add_to_group(groups, &source)? {
                        return Ok(false);
                    }
                    continue;
                }
                Projection::Rows(shows) => (Some(shows), None),
                Projection::Computed(computed) => (None, Some(computed)),
            };
            if self.at >= limit {
                return Ok(false);
            }
            if self.at >= start {
                let row = match (shows, computed) {
                    (Some(shows), _) => {
                        let value = |show: &Show| Ok(source.value(show)?.map(Cow::Borrowed));
                        shows.iter().map(value).collect::<Result<Vec<_>, Error>>()?
                    }
                    (_, computed) => {
                        computed.map_or_else(|| Ok(Vec::new()), |computed| computed.row(&source))?
                    }
                };
                if !self.add_row(&row)? {
                    self.has_more = true;
                    return Ok(false);
                }
            }
            self.at += 1;
        }
        Ok(true)
    }

    /// Adds a row to its group, or opens one. Returns false if no more rows are needed.
    fn add_to_group(&mut self, groups: &Groups, source: &VirtualSource<'_>) -> Result<bool, Error> {
        let identity = source.identity(groups)?;
        if let Some(group) = self.group.as_mut().filter(|group| group.is(&identity)) {
            return groups.add(group, source).map(|()| true);
        }
        if !self.close_group(groups)? {
            return Ok(false);
        }
        self.group = Some(groups.open((0, Bytes::new()), Bytes::new(), identity, source)?);
        Ok(true)
    }

    /// Closes the group, and adds its row. Returns false if no more rows are needed.
    fn close_group(&mut self, groups: &Groups) -> Result<bool, Error> {
        let Some(group) = self.group.take() else { return Ok(true) };
        if self.at >= self.select.limit {
            return Ok(false);
        }
        if self.at >= self.select.start {
            let row = groups.close(group)?;
            let row: Vec<_> = row.iter().map(|value| value.as_deref().map(Cow::Borrowed)).collect();
            if !self.add_row(&row)? {
                self.has_more = true;
                return Ok(false);
            }
        }
        self.at += 1;
        Ok(true)
    }

    /// Adds a row. Returns false if the page ends before it.
    fn add_row(&mut self, row: &[Option<Cow<'_, [u8]>>]) -> Result<bool, Error> {
        let (before, bytes_max) = (self.out.cells.len(), self.select.bytes_max);
        if self.out.count as usize >= self.select.page || self.out.count > 0 && before >= bytes_max {
            return Ok(false);
        }
        let mut bytes = 0;
        for value in row {
            bytes += 4 + value.as_ref().map_or(0, |value| value.len());
            if bytes > ROW_BYTES_MAX {
                return Err(row_answer::too_large(bytes));
            }
        }
        let after = before + bytes;
        if after > ANSWER_BYTES_MAX {
            return Err(answer_too_large(after));
        }
        if bytes > LARGE_ROW_BYTES && after > bytes_max && self.out.count > 0 {
            return Ok(false);
        }
        self.grants.cover(after)?;
        lanes::count(1);
        lanes::count_copied(bytes);
        row.iter().for_each(|value| self.out.push(value.as_deref()));
        self.out.count += 1;
        Ok(true)
    }

    fn finish(mut self) -> Result<StatementOutcome, Error> {
        let projection = self.select.projection.clone();
        match projection.groups() {
            Some(groups) if groups.by.is_none() => {
                let row = groups.close_all(self.group.take())?;
                row.iter().for_each(|value| self.out.push(value.as_deref()));
                self.out.count = 1;
            }
            Some(groups) if !self.has_more => _ = self.close_group(groups)?,
            _ => {}
        }
        if self.has_more {
            let next = Position { token: self.at as i64, ..Position::default() };
            self.out.paging_state = Some(next.encode());
        }
        Ok(StatementOutcome::Rows(self.out))
    }
}
