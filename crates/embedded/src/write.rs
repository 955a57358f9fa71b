//! INSERT, UPDATE, DELETE and BATCH: from a plan and values to mutations, and mutations to the cores that own them.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cql::ast::{self, CompareOp};
use engine::{Error, Request, Value};
use schema::{ColumnKind, CqlType, TableDef};
use storage::{Change, Deletion, Expiry, Liveness, Mutation, Row, RowBuilder, TableId};

use crate::change::{self, ColumnOp, Moment};
use crate::elements::ListPaths;
use crate::restrict::{Choice, KEYS_MAX, Restrictions, find, restrict};
use crate::slice::{check_key, clustering_ranges, partition_keys};
use crate::term::{Bind, Binder};

/// The longest TTL, seconds: 20 years, Cassandra's.
const TTL_S_MAX: i64 = 630_720_000;

/// What a write does where it points.
#[derive(Debug)]
enum Act {
    /// Changes columns, in the order of their numbers; with `marker`, the row exists from then on even without cells (INSERT).
    Columns { marker: bool, statics: Vec<ColumnOp>, regulars: Vec<ColumnOp> },
    /// Deletes rows, slices or the partition.
    Delete,
}

/// A write, made ready.
#[derive(Debug)]
pub(crate) struct WritePlan {
    pub(crate) def: Arc<TableDef>,
    restrictions: Restrictions,
    act: Act,
    timestamp: Option<Bind>,
    ttl: Option<Bind>,
}

impl WritePlan {
    /// The bind markers that give the partition key, if markers alone give it.
    pub(crate) fn key_markers(&self) -> Vec<u16> {
        key_markers(&self.restrictions)
    }

    /// Whether it gives elements of lists their places, for which it needs a time of its own.
    pub(crate) fn appends(&self) -> bool {
        match &self.act {
            Act::Columns { statics, regulars, .. } => statics.iter().chain(regulars).any(ColumnOp::appends),
            Act::Delete => false,
        }
    }
}

/// See [`WritePlan::key_markers`].
pub(crate) fn key_markers(restrictions: &Restrictions) -> Vec<u16> {
    let marker = |choice: &Choice| match choice {
        Choice::One(bind) => bind.marker().map(|m| m as u16),
        _ => None,
    };
    restrictions.partition.iter().map(marker).collect::<Option<_>>().unwrap_or_default()
}

fn using(binder: &mut Binder, using: &ast::Using) -> Result<(Option<Bind>, Option<Bind>), Error> {
    let mut one = |name, ty, term: &Option<ast::Term>| {
        term.as_ref().map(|term| binder.bind(name, &ty, term)).transpose()
    };
    Ok((one("[timestamp]", CqlType::BigInt, &using.timestamp)?, one("[ttl]", CqlType::Int, &using.ttl)?))
}

/// Gives the writes of a batch the timestamp that the batch has.
pub(crate) fn timestamp_of_all(
    plans: &mut [WritePlan],
    of_batch: &ast::Using,
    binder: &mut Binder,
) -> Result<(), Error> {
    let (Some(timestamp), _) = using(binder, of_batch)? else { return Ok(()) };
    if plans.iter().any(|plan| plan.timestamp.is_some()) {
        return Err(Error::Invalid("Timestamp must be set either on BATCH or individual statements".into()));
    }
    plans.iter_mut().for_each(|plan| plan.timestamp = Some(timestamp.clone()));
    Ok(())
}

const NO_LWT: &str = "Conditional writes (IF …) are not supported yet";

/// Prepares an INSERT.
pub(crate) fn insert(
    def: &Arc<TableDef>,
    insert: &ast::Insert,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    if insert.if_not_exists {
        return Err(Error::Invalid(NO_LWT.into()));
    }
    if insert.json.is_some() {
        return Err(Error::Invalid("INSERT JSON is not supported yet".into()));
    }
    if insert.columns.len() != insert.values.len() {
        return Err(Error::Invalid("Unmatched column names/values".into()));
    }
    let mut keys = vec![None; def.partition_key().count() + def.clustering().count()];
    let (mut statics, mut regulars) = (Vec::new(), Vec::new());
    for (name, term) in insert.columns.iter().zip(&insert.values) {
        let (at, column) = find(def, name)?;
        match column.kind {
            ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..) => {
                keys[at] = Some(Choice::One(binder.bind(name, &column.ty, term)?));
            }
            ColumnKind::Static => statics.push(change::set(column, term, binder)?),
            ColumnKind::Regular => regulars.push(change::set(column, term, binder)?),
        }
    }
    for ops in [&mut statics, &mut regulars] {
        change::in_order(def, ops)
            .map_err(|_| Error::Invalid("The column names contains duplicates".into()))?;
    }
    let only_static = regulars.is_empty() && !statics.is_empty();
    let partition = def.partition_key().count();
    let missing =
        keys.iter().enumerate().filter(|(_, key)| key.is_none()).map(|(at, _)| at).collect::<Vec<_>>();
    let no_row = missing.len() == keys.len() - partition && missing.iter().all(|at| *at >= partition);
    if let Some(at) = missing.first().filter(|_| !(only_static && no_row && !missing.is_empty())) {
        return Err(Error::Invalid(format!("Some primary key parts are missing: {}", def.columns[*at].name)));
    }
    let mut keys = keys.into_iter().flatten();
    let restrictions = Restrictions {
        partition: keys.by_ref().take(partition).collect(),
        clustering: keys.collect(),
        ..Restrictions::default()
    };
    let marker = restrictions.clustering.len() == def.clustering().count();
    let (timestamp, ttl) = using(binder, &insert.using)?;
    Ok(WritePlan {
        def: def.clone(),
        restrictions,
        act: Act::Columns { marker, statics, regulars },
        timestamp,
        ttl,
    })
}

/// Prepares an UPDATE.
pub(crate) fn update(
    def: &Arc<TableDef>,
    update: &ast::Update,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    if update.condition != ast::IfClause::None {
        return Err(Error::Invalid(NO_LWT.into()));
    }
    let (timestamp, ttl) = using(binder, &update.using)?;
    let (mut statics, mut regulars) = (Vec::new(), Vec::new());
    for assignment in &update.assignments {
        let name = assignment.target.column();
        let (_, column) = find(def, name)?;
        match column.kind {
            ColumnKind::Static => statics.push(change::assignment(column, assignment, binder)?),
            ColumnKind::Regular => regulars.push(change::assignment(column, assignment, binder)?),
            _ => return Err(Error::Invalid(format!("PRIMARY KEY part {name} found in SET part"))),
        }
    }
    change::in_order(def, &mut statics)?;
    change::in_order(def, &mut regulars)?;
    let restrictions = restrict(def, &update.relations, binder, false)?;
    let whole_row = restrictions.clustering.len() == def.clustering().count();
    check_where(def, &restrictions, whole_row || regulars.is_empty())?;
    if whole_row && regulars.is_empty() && !restrictions.clustering.is_empty() {
        let name = &def.clustering().next().expect("there are clustering columns").name;
        return Err(Error::Invalid(format!(
            "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns: {name}"
        )));
    }
    Ok(WritePlan {
        def: def.clone(),
        restrictions,
        act: Act::Columns { marker: false, statics, regulars },
        timestamp,
        ttl,
    })
}

/// Prepares a DELETE.
pub(crate) fn delete(
    def: &Arc<TableDef>,
    delete: &ast::Delete,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    if delete.condition != ast::IfClause::None {
        return Err(Error::Invalid(NO_LWT.into()));
    }
    let (mut regulars, mut statics) = (Vec::new(), Vec::new());
    for target in &delete.targets {
        let name = target.column();
        let (_, column) = find(def, name)?;
        match column.kind {
            ColumnKind::Static => statics.push(change::deletion(column, target, binder)?),
            ColumnKind::Regular => regulars.push(change::deletion(column, target, binder)?),
            _ => {
                return Err(Error::Invalid(format!(
                    "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
                )));
            }
        }
    }
    change::in_order(def, &mut statics)?;
    change::in_order(def, &mut regulars)?;
    let (timestamp, ttl) = using(binder, &delete.using)?;
    if ttl.is_some() {
        return Err(Error::Invalid("TTL is meaningless in a DELETE; leave it out".into()));
    }
    let restrictions = restrict(def, &delete.relations, binder, false)?;
    let whole_row = restrictions.clustering.len() == def.clustering().count();
    check_where(def, &restrictions, whole_row || regulars.is_empty())?;
    let act = match delete.targets.is_empty() {
        true => Act::Delete,
        false => Act::Columns { marker: false, statics, regulars },
    };
    Ok(WritePlan { def: def.clone(), restrictions, act, timestamp, ttl })
}

fn check_where(def: &TableDef, restrictions: &Restrictions, row_named: bool) -> Result<(), Error> {
    if let Some(filter) = restrictions.filters.first().filter(|_| !restrictions.partition.is_empty()) {
        let name = &def.columns[filter.column].name;
        return Err(Error::Invalid(format!(
            "Non PRIMARY KEY columns found in where clause, or a gap in its key columns: {name}"
        )));
    }
    if restrictions.partition.is_empty() || !restrictions.tokens.is_empty() {
        let names: Vec<&str> = def.partition_key().map(|c| c.name.as_str()).collect();
        return Err(Error::Invalid(format!("Some partition key parts are missing: {}", names.join(", "))));
    }
    if !row_named {
        let names: Vec<&str> =
            def.clustering().skip(restrictions.clustering.len()).map(|c| c.name.as_str()).collect();
        return Err(Error::Invalid(format!("Some clustering keys are missing: {}", names.join(", "))));
    }
    Ok(())
}

fn moment(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    now_us: i64,
    list_us: i64,
) -> Result<Moment, Error> {
    let timestamp = match &plan.timestamp {
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let timestamp = timestamp.or(request.timestamp_us).unwrap_or(now_us);
    if timestamp == i64::MIN {
        return Err(Error::Invalid("The timestamp is out of bounds: it must be above -2^63".into()));
    }
    let now_s = request.now_s.unwrap_or((now_us / 1_000_000) as u32);
    let lists = match plan.appends() {
        // Times of two cores may be equal, and a clock may have gone back while the server was down.
        true => {
            ListPaths::new(list_us, (lanes::current_core() as u32) << 20 | lanes::random::u64() as u32 >> 12)
        }
        false => ListPaths::new(0, 0),
    };
    Ok(Moment { timestamp, now_s, expiry: expiry(plan, values, now_s)?, lists })
}

/// The key of a partition, and its row.
type KeyAndRow<'a> = (Cow<'a, [u8]>, Row);

impl WritePlan {
    /// For a write that sets columns of one row whose key is given whole: the partition, and the row. Most writes are such, and this
    /// is their way, with one allocation.
    pub(crate) fn one_row<'a>(
        &'a self,
        values: &[Value<'a>],
        request: &Request<'_>,
        now_us: i64,
    ) -> Option<Result<KeyAndRow<'a>, Error>> {
        let (Act::Columns { marker, statics, regulars }, [key]) =
            (&self.act, &self.restrictions.partition[..])
        else {
            return None;
        };
        if !statics.is_empty()
            || !self.restrictions.clustering.is_empty()
            || self.def.clustering().next().is_some()
        {
            return None;
        }
        let key = single(key, values)?;
        Some((|| {
            let key = key?;
            check_key(&self.def, &key)?;
            let at = moment(self, values, request, now_us, now_us)?;
            Ok((key.clone(), cells(&key, &[], *marker, regulars, values, &at)?))
        })())
    }
}

/// A plan's effect for one execution, as mutations. `now_us` is the server's time, `list_us` one that no other statement has.
pub(crate) fn mutations(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    now_us: i64,
    list_us: i64,
    out: &mut Vec<Mutation>,
) -> Result<(), Error> {
    let at = moment(plan, values, request, now_us, list_us)?;
    let (timestamp, now_s) = (at.timestamp, at.now_s);
    let deletion = Deletion { timestamp, deleted_at_s: now_s };
    for (token, key) in partition_keys(&plan.def, &plan.restrictions.partition, values)? {
        let mut changes = Vec::with_capacity(1);
        // Where there is no clustering, the row is its partition's only one.
        let own = |row: &[u8]| if row.is_empty() { key.clone() } else { Bytes::new() };
        match &plan.act {
            Act::Columns { marker, statics, regulars } => {
                if !statics.is_empty() {
                    changes.push(Change::Static(cells(&[], &[], false, statics, values, &at)?));
                }
                if *marker || !regulars.is_empty() {
                    for_each_row(plan, values, |row| {
                        changes.push(Change::Row(cells(&own(row), row, *marker, regulars, values, &at)?));
                        Ok(())
                    })?;
                }
            }
            Act::Delete => deletions(plan, values, deletion, &key, &mut changes)?,
        }
        out.push(Mutation { table: TableId(plan.def.id.as_u128()), token, key, changes });
    }
    Ok(())
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
fn cells(
    key: &[u8],
    row: &[u8],
    marker: bool,
    ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
) -> Result<Row, Error> {
    let mut cells = RowBuilder::new(key, row, at.timestamp);
    cells.marker(marker.then_some(Liveness { timestamp: at.timestamp, expiry: at.expiry }));
    change::push_all(ops, values, at, &mut cells)?;
    Ok(cells.finish())
}

/// The product of several choices, bounded by [`KEYS_MAX`].
pub(crate) fn product(choices: &[Choice], values: &[Value<'_>]) -> Result<Vec<Vec<Vec<u8>>>, Error> {
    let mut rows: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
    for choice in choices {
        let options = choice.values(values)?;
        if rows.len() * options.len() > KEYS_MAX {
            return Err(Error::Invalid(format!(
                "The IN relations name more than {KEYS_MAX} keys; ask for fewer at a time"
            )));
        }
        rows = rows
            .iter()
            .flat_map(|row| {
                options.iter().map(move |option| row.iter().cloned().chain([option.clone()]).collect())
            })
            .collect();
    }
    Ok(rows)
}

/// Whether a comparison bounds from below.
pub(crate) fn is_lower(op: CompareOp) -> bool {
    matches!(op, CompareOp::Greater | CompareOp::GreaterEq)
}

/// A required value, borrowed where it can be.
pub(crate) fn single<'a>(choice: &'a Choice, values: &[Value<'a>]) -> Option<Result<Cow<'a, [u8]>, Error>> {
    match choice {
        Choice::One(bind) => Some(bind.required(values)),
        _ => None,
    }
}
