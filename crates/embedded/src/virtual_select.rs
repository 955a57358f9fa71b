//! SELECT over virtual tables: rows are made, sorted by key, filtered by every relation, and cut into pages.

use engine::{Error, Outcome, Request, Rows, VirtualTable};
use schema::value;

use crate::paging::Position;
use crate::select::{SelectPlan, Show, Want};

/// Runs a SELECT over a virtual table.
pub(crate) fn run(table: &VirtualTable, plan: &SelectPlan, request: &Request<'_>) -> Result<Outcome, Error> {
    let def = &plan.def;
    let filters =
        plan.restrictions.filters.iter().map(|f| f.bound(request.values)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = (table.rows)();
    rows.retain(|row| filters.iter().all(|f| f.passes(&def.columns[f.column].ty, row[f.column].as_deref())));
    let keys = def.partition_key().count() + def.clustering().count();
    rows.sort_by(|a, b| {
        let mut order = std::cmp::Ordering::Equal;
        for at in 0..keys {
            let (a, b) = (a[at].as_deref().unwrap_or_default(), b[at].as_deref().unwrap_or_default());
            order = order.then_with(|| value::compare(&def.columns[at].ty, a, b));
        }
        order
    });
    let limit = match &plan.limit {
        Some(bind) => bind.number(request.values)?.unwrap_or(i64::MAX).max(0) as usize,
        None => usize::MAX,
    };
    rows.truncate(limit);
    let shows = match &*plan.want {
        Want::Rows(shows) => shows,
        Want::Count(_) => {
            let mut out = Rows::new(plan.columns.clone());
            out.push(Some(&(rows.len() as i64).to_be_bytes()));
            out.count = 1;
            return Ok(Outcome::Rows(out));
        }
    };
    let start = match request.paging_state {
        Some(state) => usize::try_from(Position::decode(state)?.token).unwrap_or(usize::MAX).min(rows.len()),
        None => 0,
    };
    let end = start.saturating_add(request.page_size.map_or(usize::MAX, |n| n as usize)).min(rows.len());
    let mut out = Rows::new(plan.columns.clone());
    for row in &rows[start..end] {
        for show in shows {
            match show {
                Show::Key(at) => out.push(row[*at].as_deref()),
                Show::Clustering(at) => out.push(row[def.partition_key().count() + at].as_deref()),
                Show::Static(id) | Show::Regular(id) => out.push(row[*id as usize].as_deref()),
                Show::Ttl(..) | Show::WriteTime(..) | Show::Token => out.push(None),
            }
        }
        out.count += 1;
    }
    if end < rows.len() {
        out.paging_state = Some(Position { token: end as i64, ..Position::default() }.encode());
    }
    Ok(Outcome::Rows(out))
}
