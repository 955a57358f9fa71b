//! Point reads, the hot path with 100,000 calls per second: from values to the cells of a row, with
//! as few allocations as possible. The result is immediate if this core has the row in memory.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Execution, Outcome, Request};
use storage::{Read, RowView, TableId};

use crate::choice::{Choice, single};
use crate::read::{Chunk, take};
use crate::select::SelectPlan;
use crate::show::Source;
use crate::slice::encode;
use crate::{Embedded, storage_error};

impl Embedded {
    /// Runs a plan whose `point` is true.
    pub(crate) fn point_read(&self, plan: &Arc<SelectPlan>, request: &Request<'_>, now_s: u32) -> Execution {
        let (key, row) = match keys(plan, request) {
            Ok(keys) => keys,
            Err(error) => return Execution::Ready(Err(error)),
        };
        if let Some(limit) = &plan.limit
            && let Err(error) = at_least_one(limit.number(request.values))
        {
            return Execution::Ready(Err(error));
        }
        let token = schema::token::token(&key);
        let table = TableId(plan.def.data_id().as_u128());
        let core = self.owner(token);
        if core == lanes::current_core() && !request.serial {
            match self.shard.read_row(table, token, &key, &row, plan.pick(), now_s) {
                Read::Ready(found) => Execution::Ready(answer(plan, token, &key, found.as_ref(), now_s)),
                Read::Pending(read) => {
                    let (plan, key) = (plan.clone(), key.into_owned());
                    Execution::Pending(Box::pin(async move {
                        answer(&plan, token, &key, read.await.map_err(storage_error)?.as_ref(), now_s)
                    }))
                }
            }
        } else {
            let (plan, key, row) = (plan.clone(), Bytes::from(key.into_owned()), Bytes::from(row));
            let serial = request.serial;
            Execution::Pending(Box::pin(lanes::call(core, move || async move {
                let shard = &Embedded::local().shard;
                let read = shard.read_row(table, token, &key, &row, plan.pick(), now_s);
                let row = read.wait().await.map_err(storage_error)?;
                if serial {
                    shard.settled().await.map_err(storage_error)?;
                }
                answer(&plan, token, &key, row.as_ref(), now_s)
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
    if key.is_empty() {
        return Err(Error::Invalid("Key may not be empty".into()));
    }
    let mut row = Vec::new();
    for (column, choice) in plan.def.clustering().zip(&plan.restrictions.clustering) {
        encode(column, &one(choice)?, &mut row);
    }
    Ok((key, row))
}

fn answer(
    plan: &SelectPlan,
    token: i64,
    key: &[u8],
    row: Option<&RowView>,
    now_s: u32,
) -> Result<Outcome, Error> {
    let mut chunk = Chunk::new(plan.rows(), 1, usize::MAX);
    if let Some(row) = row {
        let source = Source { def: &plan.def, token, key, row: Some(row), view: None, now_s };
        if source.exists() {
            take(&plan.projection, &source, &mut chunk)?;
        }
        plan.measure(&chunk.rows);
    }
    Ok(Outcome::Rows(chunk.rows))
}
