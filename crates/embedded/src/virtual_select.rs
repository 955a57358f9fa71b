//! SELECT over virtual tables: rows are built, sorted by key, filtered by every relation, and split
//! into pages.

use std::sync::Arc;

use engine::{
    ANSWER_BYTES_MAX, AnswerGrant, AnswerMemory, Error, Execution, Outcome, ROW_BYTES_MAX, Request, Rows,
    Subject, Viewer, VirtualRow, VirtualTable, Warnings,
};
use schema::value;

use crate::Embedded;
use crate::filter::BoundFilter;
use crate::heavy_lane::heavy;
use crate::owned::{OwnedRequest, OwnedValues};
use crate::paging::Position;
use crate::read::{Grants, answer_too_large};
use crate::row_answer;
use crate::select::{Projection, SelectPlan};
use crate::show::{self, Show};

/// Rows filtered, sorted and shown in one task poll.
const ROWS_AT_ONCE: usize = 200;

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
        let request = OwnedRequest::of(request, OwnedValues::of(request.values));
        return Execution::Pending(Box::pin(async move {
            let subject = table.subject;
            let bind =
                async move { PendingSelect::new(subject, &plan, &request.borrowed(&request.values.all())) };
            let pending = heavy(bind).await?;
            pending.run(table).await
        }));
    }
    let pending = match PendingSelect::new(table.subject, plan, request) {
        Ok(pending) => pending,
        Err(error) => return Execution::Ready(Err(error)),
    };
    if (!table.of_every_core || lanes::cores() == 1)
        && let Some(rows) = table.rows_at_once()
    {
        return match rows.len() <= ROWS_AT_ONCE {
            true => Execution::Ready(pending.answer(rows)),
            false => Execution::Pending(Box::pin(pending.answer_on_heavy_lane(rows))),
        };
    }
    let table = table.clone();
    Execution::Pending(Box::pin(pending.run(table)))
}

impl PendingSelect {
    /// Reads the rows of every core that has some, and returns the result. Reads of one group run
    /// one after the other, because each holds all rows of the table meanwhile. This is a task of
    /// its own, so that a client that does not read its result blocks no other.
    async fn run(self, table: VirtualTable) -> Result<Outcome, Error> {
        let group = lanes::current_group();
        let work = async move {
            let _guard = Embedded::local().virtual_locks.lock(group).await;
            self.make(&table).await
        };
        let (outcome, warnings) = lanes::spawn(group, Warnings::collect(Warnings::NONE, work)).await;
        warnings.give();
        outcome
    }

    async fn make(self, table: &VirtualTable) -> Result<Outcome, Error> {
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

    async fn answer_some(self, rows: Vec<VirtualRow>) -> Result<Outcome, Error> {
        match rows.len() <= ROWS_AT_ONCE {
            true => self.answer(rows),
            false => self.answer_on_heavy_lane(rows).await,
        }
    }

    fn new(subject: Subject, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Result<PendingSelect, Error> {
        let filters = plan.restrictions.filters.iter().map(|f| f.bound(&plan.def, request.values));
        let limit = match &plan.limit {
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
    async fn answer_on_heavy_lane(self, rows: Vec<VirtualRow>) -> Result<Outcome, Error> {
        lanes::heavy(lanes::current_group(), async move { self.answer(rows) }).await
    }

    fn answer(&self, mut rows: Vec<VirtualRow>) -> Result<Outcome, Error> {
        let (plan, def) = (&self.plan, &self.plan.def);
        self.subject.show(self.viewer.as_deref(), &mut rows);
        let passes = |row: &VirtualRow| {
            self.filters.iter().all(|f| f.passes(&def.columns[f.column].ty, row[f.column].as_deref()))
        };
        let _ = lanes::spend(rows.len() as u32);
        rows.retain(passes);
        let keys = def.partition_key().count() + def.clustering().count();
        rows.sort_by(|a, b| {
            let mut order = std::cmp::Ordering::Equal;
            for at in 0..keys {
                let (a, b) = (a[at].as_deref().unwrap_or_default(), b[at].as_deref().unwrap_or_default());
                order = order.then_with(|| value::compare(&def.columns[at].ty, a, b));
            }
            order
        });
        let mut out = Rows::new(plan.columns.clone());
        let shows = match &*self.projection {
            Projection::Rows(shows) => shows,
            Projection::Count(_) => {
                out.push(Some(&(rows.len() as i64).to_be_bytes()));
                out.count = 1;
                return Ok(Outcome::Rows(out));
            }
        };
        rows.truncate(self.limit);
        let start = self.start.min(rows.len());
        let mut grants = Grants::of(self.grant.clone());
        let mut end = start.saturating_add(self.page).min(rows.len());
        for (at, row) in rows.iter().enumerate().take(end).skip(start) {
            let mut bytes = 0;
            for show in shows.iter() {
                bytes += 4 + self.value(show, row)?.map_or(0, <[u8]>::len);
                if bytes > ROW_BYTES_MAX {
                    return Err(row_answer::too_large(bytes));
                }
            }
            let after = out.cells.len() + bytes;
            if after > ANSWER_BYTES_MAX {
                return Err(answer_too_large(after));
            }
            if after > self.bytes_max && out.count > 0 {
                end = at;
                break;
            }
            grants.cover(after)?;
            for show in shows.iter() {
                out.push(self.value(show, row)?);
            }
            out.count += 1;
            if after >= self.bytes_max {
                end = at + 1;
                break;
            }
        }
        if end < rows.len() {
            out.paging_state = Some(Position { token: end as i64, ..Position::default() }.encode());
        }
        Ok(Outcome::Rows(out))
    }

    /// Returns the value of a column of the result in a row.
    fn value<'r>(&self, show: &Show, row: &'r VirtualRow) -> Result<Option<&'r [u8]>, Error> {
        let def = &self.plan.def;
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
}
