//! INSERT, UPDATE, DELETE and BATCH: from a plan and values to mutations, and mutations to the cores that own them.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use cql::ast::{self, CompareOp};
use engine::{Error, Request, Value};
use schema::{ColumnKind, CqlType, TableDef};
use storage::{Cell, CellValue, Change, Deletion, Expiry, Liveness, Mutation, TableId};

use crate::restrict::{Choice, KEYS_MAX, Restrictions, find, restrict};
use crate::slice::{clustering_ranges, partition_keys};
use crate::term::{Bind, Binder, Given};

/// The longest TTL, seconds: 20 years, Cassandra's.
const TTL_S_MAX: i64 = 630_720_000;

/// What a write does where it points.
#[derive(Debug)]
enum Act {
    /// Sets columns; with `marker`, the row exists from then on even without cells (INSERT).
    Set { marker: bool, statics: Vec<(u32, Bind)>, regulars: Vec<(u32, Bind)> },
    /// Deletes columns; the second list holds static ones.
    DeleteCells(Vec<u32>, Vec<u32>),
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
        let bind = binder.bind(name, &column.ty, term)?;
        match column.kind {
            ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..) => keys[at] = Some(Choice::One(bind)),
            ColumnKind::Static => statics.push((column.id, bind)),
            ColumnKind::Regular => regulars.push((column.id, bind)),
        }
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
        act: Act::Set { marker, statics, regulars },
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
        let (ast::Target::Column(name), ast::Change::Set(term)) = (&assignment.target, &assignment.change)
        else {
            return Err(Error::Invalid(
                "Changing parts of a column (c[k] = v, c = c + v) is not supported yet".into(),
            ));
        };
        let (_, column) = find(def, name)?;
        let bind = binder.bind(name, &column.ty, term)?;
        match column.kind {
            ColumnKind::Static => statics.push((column.id, bind)),
            ColumnKind::Regular => regulars.push((column.id, bind)),
            _ => return Err(Error::Invalid(format!("PRIMARY KEY part {name} found in SET part"))),
        }
    }
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
        act: Act::Set { marker: false, statics, regulars },
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
        let ast::Target::Column(name) = target else {
            return Err(Error::Invalid(
                "Deleting parts of a column (DELETE c[k]) is not supported yet".into(),
            ));
        };
        let (_, column) = find(def, name)?;
        match column.kind {
            ColumnKind::Static => statics.push(column.id),
            ColumnKind::Regular => regulars.push(column.id),
            _ => {
                return Err(Error::Invalid(format!(
                    "Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)"
                )));
            }
        }
    }
    let (timestamp, ttl) = using(binder, &delete.using)?;
    if ttl.is_some() {
        return Err(Error::Invalid("TTL is meaningless in a DELETE; leave it out".into()));
    }
    let restrictions = restrict(def, &delete.relations, binder, false)?;
    let whole_row = restrictions.clustering.len() == def.clustering().count();
    check_where(def, &restrictions, whole_row || regulars.is_empty())?;
    let act = if delete.targets.is_empty() { Act::Delete } else { Act::DeleteCells(regulars, statics) };
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

/// A plan's effect for one execution, as mutations. `now_us` is the server's time.
pub(crate) fn mutations(
    plan: &WritePlan,
    values: &[Value<'_>],
    request: &Request<'_>,
    now_us: i64,
    out: &mut Vec<Mutation>,
) -> Result<(), Error> {
    let timestamp = match &plan.timestamp {
        Some(bind) => bind.number(values)?,
        None => None,
    };
    let timestamp = timestamp.or(request.timestamp_us).unwrap_or(now_us);
    if timestamp == i64::MIN {
        return Err(Error::Invalid("The timestamp is out of bounds: it must be above -2^63".into()));
    }
    let now_s = request.now_s.unwrap_or((now_us / 1_000_000) as u32);
    let expiry = expiry(plan, values, now_s)?;
    let deletion = Deletion { timestamp, deleted_at_s: now_s };
    let cells = |binds: &[(u32, Bind)], row: &[u8]| cells(binds, values, timestamp, now_s, expiry, row);
    for (token, key) in partition_keys(&plan.def, &plan.restrictions.partition, values)? {
        let mut changes = Vec::with_capacity(1);
        match &plan.act {
            Act::Set { marker, statics, regulars } => {
                if !statics.is_empty() {
                    changes.push(Change::Static { cells: cells(statics, &[])?.1 });
                }
                if *marker || !regulars.is_empty() {
                    let liveness = marker.then_some(Liveness { timestamp, expiry });
                    for_each_row(plan, values, |row| {
                        let (clustering, cells) = cells(regulars, row)?;
                        changes.push(Change::Row { clustering, liveness, deletion: None, cells });
                        Ok(())
                    })?;
                }
            }
            Act::DeleteCells(regulars, statics) => {
                let dead = |ids: &[u32]| {
                    let mut cells: Vec<Cell> =
                        ids.iter().map(|id| Cell::dead(*id, timestamp, now_s)).collect();
                    cells.sort_by_key(|c| c.column);
                    cells.dedup_by_key(|c| c.column);
                    cells
                };
                if !statics.is_empty() {
                    changes.push(Change::Static { cells: dead(statics) });
                }
                if !regulars.is_empty() {
                    for_each_row(plan, values, |row| {
                        let clustering = Bytes::copy_from_slice(row);
                        let cells = dead(regulars);
                        changes.push(Change::Row { clustering, liveness: None, deletion: None, cells });
                        Ok(())
                    })?;
                }
            }
            Act::Delete => deletions(plan, values, deletion, &mut changes)?,
        }
        out.push(Mutation { table: TableId(plan.def.id.as_u128()), token, key, changes });
    }
    Ok(())
}

fn deletions(
    plan: &WritePlan,
    values: &[Value<'_>],
    deletion: Deletion,
    out: &mut Vec<Change>,
) -> Result<(), Error> {
    let restrictions = &plan.restrictions;
    let clustered = plan.def.clustering().count();
    if restrictions.clustering.is_empty() && restrictions.range.is_empty() {
        out.push(Change::DeletePartition(deletion));
    } else if restrictions.clustering.len() == clustered {
        for_each_row(plan, values, |row| {
            let clustering = Bytes::copy_from_slice(row);
            out.push(Change::Row { clustering, liveness: None, deletion: Some(deletion), cells: vec![] });
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

/// The clustering key and cells of one row, in one allocation.
fn cells(
    binds: &[(u32, Bind)],
    values: &[Value<'_>],
    timestamp: i64,
    now_s: u32,
    expiry: Option<Expiry>,
    row: &[u8],
) -> Result<(Bytes, Vec<Cell>), Error> {
    let mut given = Vec::with_capacity(binds.len());
    let mut total = row.len();
    for (column, bind) in binds {
        let value = bind.get(values)?;
        if let Given::Bytes(bytes) = &value {
            total += bytes.len();
        }
        given.push((*column, value));
    }
    if !given.is_sorted_by_key(|(column, _)| *column) {
        given.sort_by_key(|(column, _)| *column);
    }
    let mut packed = Vec::with_capacity(total);
    packed.extend_from_slice(row);
    for (_, value) in &given {
        if let Given::Bytes(bytes) = value {
            packed.extend_from_slice(bytes);
        }
    }
    let packed = Bytes::from(packed);
    let mut at = row.len();
    let mut cells: Vec<Cell> = Vec::with_capacity(given.len());
    for (column, value) in given {
        let value = match value {
            Given::Unset => continue,
            Given::Null => CellValue::Dead { deleted_at_s: now_s },
            Given::Bytes(bytes) => {
                let value = packed.slice(at..at + bytes.len());
                at += bytes.len();
                CellValue::Live { value, expiry }
            }
        };
        let cell = Cell { column, timestamp, value };
        match cells.last_mut().filter(|last| last.column == column) {
            // A column named twice in one statement: the last one counts.
            Some(last) => *last = cell,
            None => cells.push(cell),
        }
    }
    Ok((packed.slice(..row.len()), cells))
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
