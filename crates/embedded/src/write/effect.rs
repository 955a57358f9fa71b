//! What a write does: from a plan and the values of an execution to the changes of each partition.

use std::borrow::Cow;
use std::ops::Bound;

use bytes::Bytes;
use engine::{Error, Request, Value};
use storage::{Change, Deletion, Draft, Expiry, Liveness, Mutation, RowBuilder, TableId};

use super::{Act, WritePlan};
use crate::change::{self, Before, ColumnOp, Moment};
use crate::choice::single;
use crate::conditions::Conditions;
use crate::elements::ListPaths;
use crate::show::Source;
use crate::slice::{check_key, clustering_ranges, partition_keys};

/// The longest TTL, seconds: 20 years, Cassandra's.
const TTL_S_MAX: i64 = 630_720_000;

/// The server's times for one statement, microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// When it takes place.
    pub(crate) now_us: i64,
    /// A time that no other statement has.
    pub(crate) list_us: i64,
    /// The wall clock's time, seconds: what expires, and what deletions are old, is counted by it.
    pub(crate) now_s: u32,
}

fn moment(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    times: Times,
) -> Result<Moment, Error> {
    let timestamp = match &plan.timestamp {
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let timestamp = timestamp.or(request.timestamp_us).unwrap_or(times.now_us);
    if timestamp == i64::MIN {
        return Err(Error::Invalid("The timestamp is out of bounds: it must be above -2^63".into()));
    }
    let now_s = request.now_s.unwrap_or(times.now_s);
    let lists = match plan.appends() {
        // Times of two cores may be equal, and a clock may have gone back while the server was down.
        true => ListPaths::new(
            times.list_us,
            (lanes::current_core() as u32) << 20 | lanes::random::u64() as u32 >> 12,
        ),
        false => ListPaths::new(0, 0),
    };
    // A deletion is as old as the server says: a client's word would keep its tombstone for ever, or not at all.
    Ok(Moment { timestamp, now_s: times.now_s, expiry: expiry(plan, values, now_s)?, lists })
}

impl WritePlan {
    /// For a write that sets columns of one row whose key is given whole, the key: most writes are such, and [`WritePlan::one_row`] is
    /// their way, with one allocation.
    pub(crate) fn one_key<'a>(&'a self, values: &[Value<'a>]) -> Option<Result<Cow<'a, [u8]>, Error>> {
        let (Act::Columns { statics, .. }, [key]) = (&self.act, &self.restrictions.partition[..]) else {
            return None;
        };
        if !statics.is_empty()
            || self.reads_first()
            || !self.restrictions.clustering.is_empty()
            || self.def.clustering().next().is_some()
        {
            return None;
        }
        Some(single(key, values)?.and_then(|key| check_key(&self.def, &key).map(|()| key)))
    }

    /// The row of a write that has [`WritePlan::one_key`].
    pub(crate) fn one_row(
        &self,
        key: &[u8],
        values: &[Value<'_>],
        request: &Request<'_>,
        times: Times,
    ) -> Result<Draft, Error> {
        let Act::Columns { marker, regulars, .. } = &self.act else {
            unreachable!("a write with one key sets columns")
        };
        let at = moment(self, values, request, times)?;
        Ok(row_of(key, &[], *marker, regulars, values, &at, &Before::new())?.draft())
    }
}

/// A plan's effect for one execution, as mutations, where it does not depend on what is there.
pub(crate) fn mutations(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    times: Times,
    out: &mut Vec<Mutation>,
) -> Result<(), Error> {
    for (token, key) in plan.keys(values)? {
        let changes = plan.changes(values, request, times, &key, &|_| Before::new())?;
        out.push(Mutation { table: TableId(plan.def.data_id().as_u128()), token, key, changes });
    }
    Ok(())
}

impl WritePlan {
    /// The partitions that it names.
    pub(crate) fn keys(&self, values: &[Value<'_>]) -> Result<Vec<(i64, Bytes)>, Error> {
        partition_keys(&self.def, &self.restrictions.partition, values)
    }

    /// The effect on one partition; `before` gives what was there of a row, or of the static columns (`None`).
    pub(crate) fn changes(
        &self,
        values: &[Value<'_>],
        request: &Request<'_>,
        times: Times,
        key: &Bytes,
        before: &dyn Fn(Option<&[u8]>) -> Before,
    ) -> Result<Vec<Change>, Error> {
        let at = moment(self, values, request, times)?;
        let mut changes = Vec::with_capacity(1);
        // Where there is no clustering, the row is its partition's only one.
        let own = |row: &[u8]| if row.is_empty() { key.clone() } else { Bytes::new() };
        match &self.act {
            Act::Columns { marker, statics, regulars } => {
                if !statics.is_empty() {
                    let seen = before(None);
                    changes
                        .push(Change::Static(row_of(&[], &[], false, statics, values, &at, &seen)?.finish()));
                }
                if *marker || !regulars.is_empty() {
                    for_each_row(self, values, |row| {
                        let (key, seen) = (own(row), before(Some(row)));
                        changes.push(Change::Row(
                            row_of(&key, row, *marker, regulars, values, &at, &seen)?.finish(),
                        ));
                        Ok(())
                    })?;
                }
            }
            Act::Delete => {
                let deletion = Deletion { timestamp: at.timestamp, deleted_at_s: at.now_s };
                deletions(self, values, deletion, key, &mut changes)?;
            }
        }
        Ok(changes)
    }

    /// Whether it gives elements of lists their places, for which it needs a time of its own.
    pub(crate) fn appends(&self) -> bool {
        self.facts.appends
    }

    /// Whether its effect depends on what is there.
    pub(crate) fn reads_first(&self) -> bool {
        self.facts.reads_first
    }

    /// Whether it has values with elements or fields.
    pub(crate) fn has_elements(&self) -> bool {
        self.facts.has_elements
    }

    /// Whether its table holds counters.
    pub(crate) fn counts(&self) -> bool {
        self.facts.counts
    }

    /// Whether it has an IF.
    pub(crate) fn is_conditional(&self) -> bool {
        self.conditions.is_some()
    }

    pub(crate) fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
    }

    /// Whether it changes static columns and nothing else.
    pub(crate) fn is_static_only(&self) -> bool {
        matches!(&self.act, Act::Columns { regulars, statics, .. } if regulars.is_empty() && !statics.is_empty())
    }

    /// Whether it looks at static columns before it writes.
    pub(crate) fn reads_statics(&self) -> bool {
        self.facts.reads_statics
    }

    /// The rows it looks at before it writes, by their whole clustering key; with `every`, all that it
    /// names so.
    pub(crate) fn rows(&self, values: &[Value<'_>], every: bool) -> Result<Vec<Vec<u8>>, Error> {
        let of_ops = match &self.act {
            Act::Columns { regulars, .. } => regulars.iter().any(ColumnOp::reads_first),
            Act::Delete => false,
        };
        let mut rows = Vec::new();
        let named = self.restrictions.clustering.len() == self.def.clustering().count();
        if named && (of_ops || every || self.conditions.is_some()) {
            for_each_row(self, values, |row| {
                rows.push(row.to_vec());
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// The row that its conditions are about; the empty key for the partition's static columns.
    pub(crate) fn row(&self, values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
        Ok(self.rows(values, false)?.pop().unwrap_or_default())
    }

    /// What was there of the columns that it reads before it writes.
    pub(crate) fn before(&self, source: &Source<'_>, is_static: bool) -> Before {
        let Act::Columns { statics, regulars, .. } = &self.act else { return Before::new() };
        let ops = if is_static { statics } else { regulars };
        let reading = ops.iter().filter(|op| op.reads_first());
        reading.map(|op| (op.column, source.seen(op.column, is_static))).collect()
    }

    pub(super) fn ops(&self) -> impl Iterator<Item = &ColumnOp> {
        let (statics, regulars) = match &self.act {
            Act::Columns { statics, regulars, .. } => (&statics[..], &regulars[..]),
            Act::Delete => (&[][..], &[][..]),
        };
        statics.iter().chain(regulars)
    }
}

fn deletions(
    plan: &WritePlan,
    values: &[Value<'_>],
    deletion: Deletion,
    key: &Bytes,
    out: &mut Vec<Change>,
) -> Result<(), Error> {
    let restrictions = &plan.restrictions;
    let clustered = plan.def.clustering().count();
    if restrictions.clustering.is_empty() && restrictions.range.is_empty() {
        out.push(Change::DeletePartition(deletion));
    } else if restrictions.clustering.len() == clustered {
        for_each_row(plan, values, |row| {
            let mut deleted =
                RowBuilder::new(if row.is_empty() { key } else { &[] }, row, deletion.timestamp);
            deleted.deletion(Some(deletion));
            out.push(Change::Row(deleted.finish()));
            Ok(())
        })?;
    } else {
        for (start, end) in clustering_ranges(&plan.def, restrictions, values)? {
            out.push(Change::DeleteRange { start, end, deletion });
        }
    }
    Ok(())
}

/// Calls `f` with each row that a write names by its whole clustering key; without clustering, with the empty key.
fn for_each_row(
    plan: &WritePlan,
    values: &[Value<'_>],
    mut f: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if plan.restrictions.clustering.is_empty() {
        return f(&[]);
    }
    for (start, _) in clustering_ranges(&plan.def, &plan.restrictions, values)? {
        match start {
            Bound::Included(row) => f(&row)?,
            _ => f(&[])?,
        }
    }
    Ok(())
}

fn expiry(plan: &WritePlan, values: &[Value<'_>], now_s: u32) -> Result<Option<Expiry>, Error> {
    let given = match &plan.ttl {
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let ttl = given.unwrap_or_else(|| plan.def.options.default_time_to_live.into());
    if !(0..=TTL_S_MAX).contains(&ttl) {
        return Err(Error::Invalid(format!("A TTL must be from 0 to {TTL_S_MAX} seconds (given {ttl})")));
    }
    let ttl_s = ttl as u32;
    Ok((ttl_s > 0).then(|| Expiry { ttl_s, at_s: now_s.saturating_add(ttl_s) }))
}

/// A row of the columns that a statement changes.
fn row_of(
    key: &[u8],
    row: &[u8],
    marker: bool,
    ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
    before: &Before,
) -> Result<RowBuilder, Error> {
    let mut cells = RowBuilder::new(key, row, at.timestamp);
    cells.marker(marker.then_some(Liveness { timestamp: at.timestamp, expiry: at.expiry }));
    change::push_all(ops, values, at, before, &mut cells)?;
    Ok(cells)
}
