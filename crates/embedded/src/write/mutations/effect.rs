//! Effects of a write: from a plan and the values of an execution to the changes of each partition.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Request, Value, Viewer};
use storage::{Change, Deletion, Draft, EncodedRow, Expiry, Liveness, Mutation, RowBuilder, TableId};

use super::{Act, WritePlan};
use crate::bind::change::{self, Before, ColumnOp, Moment};
use crate::bind::choice::single;
use crate::bind::elements::ListPaths;
use crate::bind::mask::{check_conditions, masked_among, sees_stored};
use crate::bind::show::RowSource;
use crate::bind::slice::{check_bounds, check_key, clustering_keys, clustering_ranges, partition_keys};
use crate::bind::term::Given;
use crate::bind::tokens::Tokens;
use crate::index::entry::Place;
use crate::index::size::check_indexed;
use crate::index::view::ViewKeys;
use crate::write::conditions::{Conditions, ReadColumns};
use crate::write::times::Times;

/// Longest TTL in seconds.
const TTL_S_MAX: i64 = schema::TTL_SECONDS_MAX as i64;

fn moment(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    times: Times,
) -> Result<Moment, Error> {
    let timestamp = match &plan.timestamp {
        _ if times.is_decided => Some(times.now_us),
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let timestamp = timestamp.or(request.timestamp_us).unwrap_or(times.now_us);
    if timestamp == i64::MIN {
        return Err(Error::Invalid("The timestamp is out of bounds: it must be above -2^63".into()));
    }
    let now_s = request.now_s.unwrap_or(times.now_s);
    let lists = match plan.appends() {
        // Random bits as well: the timestamps of two cores may be equal, or the clock may have gone
        // back while the server was down.
        true => ListPaths::new(
            times.list_us,
            (lanes::current_core() as u32) << 20 | lanes::random::u64() as u32 >> 12,
        ),
        false => ListPaths::new(0, 0),
    };
    // Deletions are dated by the server. With a client's timestamp their tombstones would stay for
    // ever, or be dropped at once.
    Ok(Moment { timestamp, now_s: times.now_s, expiry: expiry(plan, values, now_s)?, lists })
}

impl WritePlan {
    /// Returns the partition key if the write sets columns of one row whose key is fully given.
    /// Most writes are of this kind; [`WritePlan::one_row`] builds their row with one allocation.
    pub(crate) fn one_key<'a>(&'a self, values: &[Value<'a>]) -> Option<Result<Cow<'a, [u8]>, Error>> {
        let (Act::Columns { statics, .. }, [key]) = (&self.act, &self.restrictions.partition[..]) else {
            return None;
        };
        if !statics.is_empty()
            || self.reads_first()
            || !self.restrictions.clustering.is_empty()
            || !self.restrictions.tokens.is_empty()
            || self.def.clustering().next().is_some()
        {
            return None;
        }
        Some(single(key, values)?.and_then(|key| check_key(&key).map(|()| key)))
    }

    /// Returns the row of a write that has a [`WritePlan::one_key`].
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
        let row = row_of(key, &[], *marker, regulars, values, &at, &Before::new())?.draft();
        if !self.views.is_empty() {
            self.check_view_keys(key, &row.row())?;
        }
        Ok(row)
    }

    /// Checks that values of a row can be in the keys of the table's views.
    fn check_view_keys(&self, key: &[u8], row: &EncodedRow) -> Result<(), Error> {
        let place = Place { token: 0, key, row: Some(row.clustering()) };
        let check = |view: &ViewKeys, value| view.checked_entry(&self.def, place, value);
        let mut is_live = row.marker().is_some();
        for cell in row.cells() {
            let Some(value) = cell.value() else { continue };
            is_live = true;
            for view in self.views.iter().filter(|view| view.is_keyed_by(&cell)) {
                check(view, Some(value)).map_err(|text| {
                    let column = self.def.columns.iter().find(|column| column.id == cell.column);
                    let column = column.map_or("", |column| column.name.as_str());
                    Error::Invalid(format!("{text} (column {column}, which is in the key of a view)"))
                })?;
            }
        }
        let mut of_keys = self.views.iter().filter(|view| view.value.is_none()).peekable();
        if is_live && of_keys.peek().is_some() && ViewKeys::may_refuse(&self.def, place) {
            for view in of_keys {
                check(view, None).map_err(|text| Error::Invalid(format!("{text} (of the key of a view)")))?;
            }
        }
        Ok(())
    }
}

/// Appends the mutations of one execution, for a plan that does not depend on stored data.
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
    /// Returns the partitions that it names.
    pub(crate) fn keys(&self, values: &[Value<'_>]) -> Result<Vec<(i64, Bytes)>, Error> {
        let mut keys = partition_keys(&self.restrictions.partition, values)?;
        if !self.restrictions.tokens.is_empty() {
            let tokens = Tokens::of(&self.restrictions.tokens, values)?;
            keys.retain(|(token, _)| tokens.admits(*token));
        }
        Ok(keys)
    }

    /// Returns its changes to one partition. `before` returns the stored cells of a row, or those
    /// of the static columns for `None`.
    pub(crate) fn changes<'v>(
        &self,
        values: &[Value<'_>],
        request: &Request<'_>,
        times: Times,
        key: &Bytes,
        before: &dyn Fn(Option<&[u8]>) -> Before<'v>,
    ) -> Result<Vec<Change>, Error> {
        let at = moment(self, values, request, times)?;
        let mut changes = Vec::with_capacity(1);
        let partition = &key[..];
        // Without clustering columns the row is the only one of its partition.
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
                        let new = row_of(&key, row, *marker, regulars, values, &at, &seen)?.finish();
                        if !self.views.is_empty() {
                            self.check_view_keys(partition, &new)?;
                        }
                        changes.push(Change::Row(new));
                        Ok(())
                    })?;
                }
            }
            Act::Delete => {
                let deletion = Deletion { timestamp: at.timestamp, deleted_at_s: at.now_s };
                deletions(self, values, deletion, key, &mut changes)?;
            }
        }
        if !self.def.indexes.is_empty() {
            check_indexed(&self.def, partition, &changes)?;
        }
        Ok(changes)
    }

    /// Returns true if it creates list elements, whose paths need a unique timestamp.
    pub(crate) fn appends(&self) -> bool {
        self.facts.appends
    }

    /// Returns true if its values come from the client, and it reads nothing before it writes.
    pub(crate) fn is_plain(&self) -> bool {
        self.json.is_none() && !self.reads_first()
    }

    /// Returns true if its effect depends on stored data.
    pub(crate) fn reads_first(&self) -> bool {
        self.facts.reads_first
    }

    /// Returns true if it has values with elements or fields.
    pub(crate) fn has_elements(&self) -> bool {
        self.facts.has_elements
    }

    /// Returns the bytes of constants that each execution copies.
    pub(crate) fn constant_bytes(&self) -> u64 {
        self.facts.constant_bytes
    }

    /// Returns true if its table holds counters.
    pub(crate) fn counts(&self) -> bool {
        self.facts.counts
    }

    /// Returns true if it has an IF.
    pub(crate) fn is_conditional(&self) -> bool {
        self.conditions.is_some()
    }

    pub(crate) fn conditions(&self) -> Option<&Conditions> {
        self.conditions.as_ref()
    }

    /// Returns true if its conditions may be on masked columns.
    pub(crate) fn may_test_masked(&self) -> bool {
        self.is_conditional() && !self.def.masks.is_empty()
    }

    /// Checks that a viewer may have its conditions. Without the check, guesses would reveal masked
    /// values one by one.
    ///
    /// # Errors
    /// Returns [`Error::Unauthorized`].
    pub(crate) fn check_viewer(&self, viewer: Option<&Arc<dyn Viewer>>) -> Result<(), Error> {
        match &self.conditions {
            Some(conditions) if self.may_test_masked() && !sees_stored(&self.def, viewer) => {
                let masked = masked_among(&self.def, conditions.columns(&self.def));
                check_conditions(&self.def, &self.def, &masked, viewer)
            }
            _ => Ok(()),
        }
    }

    /// Returns true if it changes only static columns.
    pub(crate) fn is_static_only(&self) -> bool {
        matches!(&self.act, Act::Columns { regulars, statics, .. } if regulars.is_empty() && !statics.is_empty())
    }

    /// Adds the columns that Cassandra reads before it runs a step with this statement.
    pub(crate) fn add_read_columns(&self, read: &mut ReadColumns) {
        read.all_regulars |= self.restrictions.names_rows() || self.def.clustering().next().is_none();
        let Some(conditions) = &self.conditions else { return };
        read.all_statics |= matches!(&self.act, Act::Columns { statics, .. } if !statics.is_empty());
        read.others.extend(conditions.columns(&self.def));
    }

    /// Returns true if it reads static columns before it writes.
    pub(crate) fn reads_statics(&self) -> bool {
        self.facts.reads_statics
    }

    /// Returns the rows that it reads before it writes, by their full clustering key. With `every`,
    /// returns all rows that it names by their full clustering key.
    pub(crate) fn rows(&self, values: &[Value<'_>], every: bool) -> Result<Vec<Vec<u8>>, Error> {
        let of_ops = match &self.act {
            Act::Columns { regulars, .. } => regulars.iter().any(ColumnOp::reads_first),
            Act::Delete => false,
        };
        let mut rows = Vec::new();
        let named = self.restrictions.chosen() == self.def.clustering().count();
        if named && (of_ops || every || self.conditions.is_some()) {
            for_each_row(self, values, |row| {
                rows.push(row.to_vec());
                Ok(())
            })?;
        }
        Ok(rows)
    }

    /// Returns the row that its conditions check; the empty key for the partition's static columns.
    pub(crate) fn row(&self, values: &[Value<'_>]) -> Result<Vec<u8>, Error> {
        Ok(self.rows(values, false)?.pop().unwrap_or_default())
    }

    /// Returns the stored cells of the columns that it reads before it writes.
    pub(crate) fn before<'v>(&self, source: &RowSource<'v>, is_static: bool) -> Before<'v> {
        let mut before = Before::new();
        let Act::Columns { statics, regulars, .. } = &self.act else { return before };
        let ops = if is_static { statics } else { regulars };
        for op in ops.iter().filter(|op| op.reads_first()) {
            // Thousands of elements of one list may be set.
            before.entry(op.column).or_insert_with(|| source.seen(op.column, is_static));
        }
        before
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
    if !restrictions.names_rows() {
        out.push(Change::DeletePartition(deletion));
    } else if restrictions.chosen() == clustered {
        for_each_row(plan, values, |row| {
            let mut deleted =
                RowBuilder::new(if row.is_empty() { key } else { &[] }, row, deletion.timestamp);
            deleted.deletion(Some(deletion));
            out.push(Change::Row(deleted.finish()));
            Ok(())
        })?;
    } else {
        check_bounds(restrictions, values)?;
        for (start, end) in clustering_ranges(&plan.def, restrictions, values)? {
            out.push(Change::DeleteRange { start, end, deletion });
        }
    }
    Ok(())
}

/// Calls `f` with each row that a write names by its full clustering key; with the empty key if
/// there are no clustering columns.
fn for_each_row(
    plan: &WritePlan,
    values: &[Value<'_>],
    mut f: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    if plan.restrictions.clustering.is_empty() {
        return f(&[]);
    }
    let rows = clustering_keys(&plan.def, &plan.restrictions.clustering, values)?;
    rows.iter().try_for_each(|row| f(row))
}

/// Returns the expiry of what a statement writes. `None` without a TTL.
///
/// # Errors
/// The TTL is out of range, or ends after the last second that files can hold.
fn expiry(plan: &WritePlan, values: &[Value<'_>], now_s: u32) -> Result<Option<Expiry>, Error> {
    let given = match &plan.ttl {
        // As in Cassandra: null is no TTL, and unset the default one.
        Some(bind) if bind.get(values)? == Given::Null => Some(0),
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let ttl = given.unwrap_or_else(|| plan.def.options.default_time_to_live.into());
    if ttl < 0 {
        return Err(Error::Invalid(format!("A TTL must be greater or equal to 0, but was {ttl}")));
    }
    if ttl > TTL_S_MAX {
        return Err(Error::Invalid(format!("ttl is too large. requested ({ttl}) maximum ({TTL_S_MAX})")));
    }
    let ttl_s = ttl as u32;
    if ttl_s == 0 {
        return Ok(None);
    }
    let at_s = now_s.checked_add(ttl_s).ok_or_else(|| {
        Error::Invalid(format!(
            "Request on table {}.{} with ttl of {ttl_s} seconds exceeds maximum supported expiration date of \
             2106-02-07T06:28:15+00:00. Use a lower TTL",
            plan.def.keyspace, plan.def.name
        ))
    })?;
    Ok(Some(Expiry { ttl_s, at_s }))
}

/// Builds a row of the columns that a statement changes.
fn row_of(
    key: &[u8],
    row: &[u8],
    marker: bool,
    ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
    before: &Before<'_>,
) -> Result<RowBuilder, Error> {
    let mut cells = RowBuilder::new(key, row, at.timestamp);
    cells.marker(marker.then_some(Liveness { timestamp: at.timestamp, expiry: at.expiry }));
    change::push_all(ops, values, at, before, &mut cells)?;
    Ok(cells)
}
