//! Point reads, the hot path with 100,000 calls per second: from values to the cells of a row, with
//! as few allocations as possible. The result is immediate if this core has the row in memory.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use engine::{AnswerMemory, Error, Execution, Request, ResultRows, StatementOutcome};
use storage::{Read, RowView, TableId};

use crate::bind::choice::{Choice, single};
use crate::bind::projection::Projection;
use crate::bind::select::SelectPlan;
use crate::bind::show::RowSource;
use crate::bind::slice::{check_key, encode};
use crate::heavy_lane::heavy;
use crate::read::chunk::{Chunk, Ends, Grants};
use crate::read::row_answer;
use crate::read::run::now_s;
use crate::{Embedded, storage_error};

impl Embedded {
    /// Runs a plan whose `point` is true, with values that may be bound in this task poll.
    pub(crate) fn point_read(&self, plan: &Arc<SelectPlan>, request: &Request<'_>) -> Execution {
        let now_s = now_s(request);
        let (key, row) = match keys(plan, request) {
            Ok(keys) => keys,
            Err(error) => return Execution::Ready(Err(error)),
        };
        if let Some(limit) = &plan.limits.all
            && let Err(error) = at_least_one(limit.number(request.values))
        {
            return Execution::Ready(Err(error));
        }
        let bound;
        let projection = match plan.is_open() {
            false => &plan.projection,
            true => match plan.bound_projection(request.values) {
                Ok(projection) => {
                    bound = projection;
                    &bound
                }
                Err(error) => return Execution::Ready(Err(error)),
            },
        };
        let token = schema::token::token(&key);
        let table = TableId(plan.def.data_id().as_u128());
        let core = self.owner(token);
        if core == lanes::current_core() && !request.serial {
            let read = self.shard.read_row(table, token, &key, &row, plan.pick(), now_s);
            if let Read::Ready(found) = &read
                && let Some(answer) = answer_small(plan, projection, token, &key, found.as_ref(), now_s)
            {
                return Execution::Ready(answer);
            }
            let (plan, projection) = (plan.clone(), projection.clone());
            let (key, grants) = (key.into_owned().into(), grants_of(request));
            Execution::Pending(Box::pin(async move {
                let row = read.wait().await.map_err(storage_error)?;
                answer(plan, projection, token, key, row, now_s, grants).await
            }))
        } else {
            let (plan, key, row) = (plan.clone(), Bytes::from(key.into_owned()), Bytes::from(row));
            let projection = projection.clone();
            let serial = request.serial;
            engine::note(|| format!("Reading one row on core {core}"));
            let grants = if plan.may_be_large { grants_of(request) } else { Grants::of(None) };
            Execution::Pending(Box::pin(lanes::call(core, move || async move {
                let shard = &Embedded::local().shard;
                let read = shard.read_row(table, token, &key, &row, plan.pick(), now_s);
                let row = read.wait().await.map_err(storage_error)?;
                if serial {
                    shard.settled().await.map_err(storage_error)?;
                }
                answer(plan, projection, token, key, row, now_s, grants).await
            })))
        }
    }
}

/// Checks the LIMIT, which has no effect on a single row.
fn at_least_one(limit: Result<Option<i64>, Error>) -> Result<(), Error> {
    match limit? {
        Some(..=0) => Err(Error::Invalid("LIMIT must be strictly positive".into())),
        _ => Ok(()),
    }
}

/// Returns the partition key and the clustering key of the row.
fn keys<'a>(plan: &'a SelectPlan, request: &Request<'a>) -> Result<(Cow<'a, [u8]>, Vec<u8>), Error> {
    let one =
        |choice: &'a Choice| single(choice, request.values).expect("a point read names each key column once");
    let partition = &plan.restrictions.partition;
    let key = match partition.as_slice() {
        [only] => one(only)?,
        several => {
            let parts = several.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            let mut key = Vec::new();
            schema::token::compose_partition_key(parts.iter().map(|p| &p[..]), &mut key)
                .map_err(|e| Error::Invalid(e.to_string()))?;
            Cow::Owned(key)
        }
    };
    check_key(&key)?;
    let mut row = Vec::new();
    for (column, choice) in plan.def.clustering().zip(&plan.restrictions.clustering) {
        encode(column, &one(choice)?, &mut row)?;
    }
    Ok((key, row))
}

/// Returns the grants for the answer of a request.
fn grants_of(request: &Request<'_>) -> Grants {
    Grants::of(request.room.map(AnswerMemory::open))
}

fn source_of<'v>(
    plan: &'v SelectPlan,
    token: i64,
    key: &'v [u8],
    row: Option<&'v RowView>,
    now_s: u32,
) -> Option<RowSource<'v>> {
    let source = RowSource { def: &plan.def, token, key, row: Some(row?), place: None, view: None, now_s };
    source.exists().then_some(source)
}

/// Columns that are shown at once, at about 20 ns each.
const COLUMNS_AT_ONCE: usize = 2_000;

/// Returns the answer, if its row may be shown within a task poll. It needs neither a chunk nor
/// grants, unlike a large one.
#[inline]
fn answer_small(
    plan: &SelectPlan,
    projection: &Projection,
    token: i64,
    key: &[u8],
    row: Option<&RowView>,
    now_s: u32,
) -> Option<Result<StatementOutcome, Error>> {
    if row.is_some_and(|row| !row.is_small() || plan.columns.len() > COLUMNS_AT_ONCE) {
        return None;
    }
    let Some(source) = source_of(plan, token, key, row, now_s) else {
        return Some(Ok(StatementOutcome::Rows(ResultRows::new(plan.columns.clone()))));
    };
    if !row_answer::is_small(projection, &source) {
        return None;
    }
    let mut rows = plan.rows();
    rows.count = 1;
    let pushed = match projection {
        Projection::Rows(shows) => row_answer::push_small(shows, &source, &mut rows),
        Projection::Computed(computed) => {
            computed.row(&source).map(|row| row.iter().for_each(|value| rows.push(value.as_deref())))
        }
        Projection::Groups(_) => unreachable!("a point read has no groups"),
    };
    if let Err(error) = pushed {
        return Some(Err(error));
    }
    lanes::count_copied(rows.cells.len());
    plan.measure(&rows);
    Some(Ok(StatementOutcome::Rows(rows)))
}

/// Returns the answer with a row of any size. A heavy lane shows a large one.
async fn answer(
    plan: Arc<SelectPlan>,
    projection: Arc<Projection>,
    token: i64,
    key: Bytes,
    row: Option<RowView>,
    now_s: u32,
    grants: Grants,
) -> Result<StatementOutcome, Error> {
    if let Some(answer) = answer_small(&plan, &projection, token, &key, row.as_ref(), now_s) {
        return answer;
    }
    heavy(async move {
        let mut chunk = Chunk::new(plan.rows(), 1, usize::MAX, Ends::Page);
        chunk.grants = grants;
        if let Some(source) = source_of(&plan, token, &key, row.as_ref(), now_s) {
            row_answer::add(&projection, &source, &mut chunk)?;
        }
        plan.measure(&chunk.rows);
        Ok(StatementOutcome::Rows(chunk.rows))
    })
    .await
}
