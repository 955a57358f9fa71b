//! INSERT, UPDATE, DELETE and BATCH: from a plan and values to mutations, and from mutations to the
//! cores that own them.

mod effect;

use std::sync::Arc;

use cql::ast;
use engine::{Error, Value};
use schema::{ColumnKind, CqlType, TableDef};

use crate::bind::change::{self, ColumnOp};
use crate::bind::choice::{Choice, Cost, plus, times};
use crate::bind::json::{self, JsonText};
use crate::bind::names::TableNames;
use crate::bind::restrict::{Purpose, Restrictions, restrict};
use crate::bind::term::{Bind, Binder};
use crate::index::view::ViewKeys;
use crate::write::conditions::{Conditions, tests_rows};

pub(crate) use effect::mutations;

/// Effect of a write on the rows that it names.
#[derive(Debug)]
enum Act {
    /// Changes columns, in the order of their numbers. With `marker` (INSERT) the row exists even
    /// without cells.
    Columns { marker: bool, statics: Vec<ColumnOp>, regulars: Vec<ColumnOp> },
    /// Deletes rows, slices or the partition.
    Delete,
}

/// Prepared write.
#[derive(Debug)]
pub(crate) struct WritePlan {
    pub(crate) def: Arc<TableDef>,
    restrictions: Restrictions,
    act: Act,
    timestamp: Option<Bind>,
    ttl: Option<Bind>,
    conditions: Option<Conditions>,
    /// Text from which the values of its columns are read.
    pub(crate) json: Option<JsonText>,
    /// True if its keys have an IN.
    pub(crate) has_in: bool,
    /// Views of which it may write a row with a new key.
    views: Box<[ViewKeys]>,
    facts: Facts,
}

/// Properties of a write, computed once: a batch needs them tens of thousands of times.
#[derive(Clone, Copy, Default, Debug)]
struct Facts {
    /// True if the table holds counters.
    counts: bool,
    /// True if it creates list elements, whose paths need a unique timestamp.
    appends: bool,
    /// True if its effect depends on stored data.
    reads_first: bool,
    /// True if it reads static columns before it writes.
    reads_statics: bool,
    /// True if it has values with elements or fields, each of which is checked.
    has_elements: bool,
    /// Bytes of constants that each execution copies.
    constant_bytes: u64,
}

/// Cost of one execution of a write, computed from the lengths of its values alone.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct WriteCost {
    /// Number of rows, slices and partitions.
    pub(crate) rows: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
}

/// Bytes of values that are checked and copied in one work unit.
const BYTES_PER_UNIT: u64 = 128;

/// The same for values with elements, of about eight bytes each.
const ELEMENT_BYTES_PER_UNIT: u64 = 16;

/// Bytes of a row or partition in the log without its values: lengths, timestamps and the table.
/// They charge for rows of empty values.
const ROW_BYTES: u64 = 16;

impl WritePlan {
    /// Returns the bind markers of the partition key if it consists of markers alone.
    pub(crate) fn key_markers(&self) -> Vec<u16> {
        key_markers(&self.restrictions)
    }

    /// Returns the cost of an execution with these values, without checking, copying or building
    /// anything.
    ///
    /// # Errors
    /// Returns an error if a count overflows.
    pub(crate) fn cost(&self, values: &[Value<'_>]) -> Result<WriteCost, Error> {
        let partitions = Cost::of(&self.restrictions.partition, values)?;
        let rows = self.restrictions.slices(&self.def, values)?;
        let (mut of_row, mut of_partition) = (ROW_BYTES, ROW_BYTES);
        if let Act::Columns { statics, regulars, .. } = &self.act {
            for op in regulars {
                of_row = plus(of_row, op.size(values))?;
            }
            for op in statics {
                of_partition = plus(of_partition, op.size(values))?;
            }
        }
        let of_rows = plus(rows.bytes, times(rows.count, of_row)?)?;
        let bytes = plus(partitions.bytes, times(partitions.count, plus(of_partition, of_rows)?)?)?;
        Ok(WriteCost { rows: times(partitions.count, rows.count)?, bytes })
    }

    /// Returns the estimated work units of computing its changes, with its conditions, on rows of
    /// at most `row_bytes`.
    ///
    /// # Errors
    /// Returns an error if a count overflows.
    pub(crate) fn units(&self, values: &[Value<'_>], row_bytes: usize) -> Result<u64, Error> {
        let cost = self.cost(values)?;
        let per_unit = if self.has_elements() { ELEMENT_BYTES_PER_UNIT } else { BYTES_PER_UNIT };
        let conditions = self.conditions.as_ref().map_or(0, |conditions| conditions.units(values, row_bytes));
        // Reading a list first compares its elements with the values.
        let of_row = if self.facts.reads_first { 1 + row_bytes as u64 / per_unit } else { 1 };
        Ok(plus(times(cost.rows, of_row)?, cost.bytes / per_unit)?.saturating_add(conditions))
    }

    fn facts(&self) -> Facts {
        let has_statics = self.def.columns.iter().any(|column| column.kind == ColumnKind::Static);
        let statics_read = match &self.act {
            Act::Columns { statics, .. } => statics.iter().any(ColumnOp::reads_first),
            Act::Delete => false,
        };
        Facts {
            counts: self.def.is_counter(),
            appends: self.ops().any(ColumnOp::appends),
            reads_first: self.conditions.is_some() || self.ops().any(ColumnOp::reads_first),
            has_elements: self.ops().any(ColumnOp::has_elements),
            constant_bytes: self.ops().map(ColumnOp::constant_bytes).sum(),
            reads_statics: has_statics && (self.conditions.is_some() || statics_read),
        }
    }
}

/// Returns the bind markers of the partition key; see [`WritePlan::key_markers`].
pub(crate) fn key_markers(restrictions: &Restrictions) -> Vec<u16> {
    let marker = |choice: &Choice| match choice {
        Choice::One(bind) => bind.marker().map(|m| m as u16),
        _ => None,
    };
    restrictions.partition.iter().map(marker).collect::<Option<_>>().unwrap_or_default()
}

fn using(binder: &mut Binder, using: &ast::Using) -> Result<(Option<Bind>, Option<Bind>), Error> {
    binder.bind_timeout(using)?;
    let mut one = |name, ty, term: &Option<ast::Term>| {
        term.as_ref().map(|term| binder.bind(name, &ty, term)).transpose()
    };
    Ok((one("[timestamp]", CqlType::BigInt, &using.timestamp)?, one("[ttl]", CqlType::Int, &using.ttl)?))
}

/// Applies the timestamp of a batch to its writes.
pub(crate) fn timestamp_of_all(
    plans: &mut [WritePlan],
    of_batch: &ast::Using,
    binder: &mut Binder,
) -> Result<(), Error> {
    let (Some(timestamp), _) = using(binder, of_batch)? else { return Ok(()) };
    if plans.iter().any(|plan| plan.timestamp.is_some()) {
        return Err(Error::Invalid("Timestamp must be set either on BATCH or individual statements".into()));
    }
    if plans.iter().any(WritePlan::is_conditional) {
        return Err(Error::Invalid("Cannot provide custom timestamp for conditional BATCH".into()));
    }
    if plans.iter().any(|plan| plan.facts.counts) {
        return Err(Error::Invalid("Cannot provide custom timestamp for counter BATCH".into()));
    }
    plans.iter_mut().for_each(|plan| plan.timestamp = Some(timestamp.clone()));
    Ok(())
}

/// Checks a write against the restrictions of counters and conditions. It is one of `writes`:
/// updates or deletions.
fn checked(mut plan: WritePlan, writes: &str) -> Result<WritePlan, Error> {
    plan.facts = plan.facts();
    plan.has_in = plan.restrictions.has_in();
    let views = plan.def.views.iter().map(|view| ViewKeys::of(&plan.def, view));
    let may_write = |view: &ViewKeys| view.value.is_none_or(|id| plan.ops().any(|op| op.column == id));
    plan.views = views.filter(may_write).collect();
    let what = match (&plan.conditions, plan.facts.counts) {
        (Some(_), true) => {
            return Err(Error::Invalid("Conditional updates are not supported on counter tables".into()));
        }
        (Some(_), false) => "conditional updates",
        (None, true) => "counter updates",
        (None, false) => return Ok(plan),
    };
    if plan.timestamp.is_some() {
        return Err(Error::Invalid(format!("Cannot provide custom timestamp for {what}")));
    }
    if plan.ttl.is_some() && plan.facts.counts {
        return Err(Error::Invalid(format!("Cannot provide custom TTL for {what}")));
    }
    let Some(conditions) = &plan.conditions else { return Ok(plan) };
    let Restrictions { partition, clustering, tokens, .. } = &plan.restrictions;
    if !tokens.is_empty() {
        return Err(Error::Invalid(format!(
            "The token function cannot be used in WHERE clauses of conditional {writes}"
        )));
    }
    for (choices, of) in [(partition, "partition key"), (clustering, "clustering key columns")] {
        if choices.iter().any(|choice| !choice.is_one()) {
            return Err(Error::Invalid(format!("IN on the {of} is not supported with conditional {writes}")));
        }
    }
    if let Some(missing) = plan.def.clustering().nth(plan.restrictions.chosen())
        && !(conditions.is_static(&plan.def) && plan.is_static_only())
    {
        return Err(Error::Invalid(format!(
            "Statements must restrict all PRIMARY KEY columns with equality relations in order to use IF condition \
             on non static columns, but column '{}' is not restricted",
            missing.name
        )));
    }
    Ok(plan)
}

/// Cassandra's text for an INSERT that names a column twice.
const DUPLICATES: &str = "The column names contains duplicates";

/// Prepares the named columns of an INSERT.
fn given(names: &TableNames, insert: &ast::Insert, binder: &mut Binder) -> Result<json::Given, Error> {
    if insert.columns.len() != insert.values.len() {
        return Err(Error::Invalid("Unmatched column names/values".into()));
    }
    let one = |(name, term): (&String, &ast::Term)| {
        let (at, column) = names.find(name)?;
        Ok((at, binder.bind(name, &column.ty, term)?))
    };
    insert.columns.iter().zip(&insert.values).map(one).collect()
}

/// Prepares an INSERT.
pub(crate) fn insert(
    names: &TableNames,
    insert: &ast::Insert,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    let def = &names.def;
    if def.is_counter() {
        return Err(Error::Invalid(
            "INSERT statements are not allowed on counter tables, use UPDATE instead".into(),
        ));
    }
    let (given, json) = match &insert.json {
        Some(text) => json::columns(def, text, binder)?,
        None => (given(names, insert, binder)?, None),
    };
    let mut keys = vec![None; def.partition_key().count() + def.clustering().count()];
    let (mut statics, mut regulars) = (Vec::new(), Vec::new());
    for (at, bind) in given {
        let column = &def.columns[at];
        match column.kind {
            ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..) => {
                if keys[at].replace(Choice::One(bind)).is_some() {
                    return Err(Error::Invalid(DUPLICATES.into()));
                }
            }
            ColumnKind::Static => statics.push(change::set_to(column, bind)),
            ColumnKind::Regular => regulars.push(change::set_to(column, bind)),
        }
    }
    for ops in [&mut statics, &mut regulars] {
        change::in_order(def, ops).map_err(|_| Error::Invalid(DUPLICATES.into()))?;
    }
    let only_static = regulars.is_empty() && !statics.is_empty();
    let partition = def.partition_key().count();
    let missing = |part: std::ops::Range<usize>| -> Vec<&str> {
        part.filter(|at| keys[*at].is_none()).map(|at| &*def.columns[at].name).collect()
    };
    let in_partition = missing(0..partition);
    if !in_partition.is_empty() {
        return Err(Error::Invalid(format!(
            "Some partition key parts are missing: {}",
            in_partition.join(", ")
        )));
    }
    let in_row = missing(partition..keys.len());
    let names_no_row = only_static && in_row.len() == keys.len() - partition;
    if !in_row.is_empty() && !names_no_row {
        return Err(Error::Invalid(format!("Some clustering keys are missing: {}", in_row.join(", "))));
    }
    let mut keys = keys.into_iter().flatten();
    let restrictions = Restrictions {
        partition: keys.by_ref().take(partition).collect(),
        clustering: keys.collect(),
        ..Restrictions::default()
    };
    let marker = restrictions.clustering.len() == def.clustering().count();
    let (timestamp, ttl) = using(binder, &insert.using)?;
    checked(
        WritePlan {
            def: def.clone(),
            restrictions,
            act: Act::Columns { marker, statics, regulars },
            timestamp,
            ttl,
            conditions: insert.if_not_exists.then(|| Conditions::not_exists(!marker)),
            json,
            has_in: false,
            views: Box::default(),
            facts: Facts::default(),
        },
        "updates",
    )
}

/// Prepares an UPDATE.
pub(crate) fn update(
    names: &TableNames,
    update: &ast::Update,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    let def = &names.def;
    let (timestamp, ttl) = using(binder, &update.using)?;
    let (mut statics, mut regulars) = (Vec::new(), Vec::new());
    for assignment in &update.assignments {
        let name = assignment.target.column();
        let (_, column) = names.find(name)?;
        match column.kind {
            ColumnKind::Static => statics.push(change::assignment(column, assignment, binder)?),
            ColumnKind::Regular => regulars.push(change::assignment(column, assignment, binder)?),
            _ => return Err(Error::Invalid(format!("PRIMARY KEY part {name} found in SET part"))),
        }
    }
    change::in_order(def, &mut statics)?;
    change::in_order(def, &mut regulars)?;
    let is_of_statics = regulars.is_empty() && !tests_rows(names, &update.condition)?;
    let purpose = Purpose::Update { statics: is_of_statics };
    let restrictions = restrict(names, &update.relations, binder, purpose)?;
    let conditions = Conditions::of(names, &update.condition, regulars.is_empty(), binder)?;
    checked(
        WritePlan {
            def: def.clone(),
            restrictions,
            act: Act::Columns { marker: false, statics, regulars },
            timestamp,
            ttl,
            conditions,
            json: None,
            has_in: false,
            views: Box::default(),
            facts: Facts::default(),
        },
        "updates",
    )
}

/// Returns Cassandra's error if a conditional DELETE that names no row deletes or tests one.
fn check_statics_alone(deletes_rows: bool, tests_rows: bool) -> Result<(), Error> {
    let to = match (deletes_rows, tests_rows) {
        (true, _) => "delete non static columns",
        (false, true) => "use IF condition on non static columns",
        (false, false) => return Ok(()),
    };
    Err(Error::Invalid(format!(
        "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to {to}"
    )))
}

/// Prepares a DELETE.
pub(crate) fn delete(
    names: &TableNames,
    delete: &ast::Delete,
    binder: &mut Binder,
) -> Result<WritePlan, Error> {
    let def = &names.def;
    let (mut regulars, mut statics) = (Vec::new(), Vec::new());
    for target in &delete.targets {
        let name = target.column();
        let (_, column) = names.find(name)?;
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
    let tests_rows = tests_rows(names, &delete.condition)?;
    let purpose = Purpose::Delete { statics: regulars.is_empty() && !statics.is_empty() && !tests_rows };
    let restrictions = restrict(names, &delete.relations, binder, purpose)?;
    let whole_row = restrictions.chosen() == def.clustering().count();
    match delete.condition {
        ast::IfClause::None if !whole_row && !regulars.is_empty() => {
            return Err(Error::Invalid("Range deletions are not supported for specific columns".into()));
        }
        ast::IfClause::None => {}
        _ if whole_row => {}
        _ => check_statics_alone(statics.is_empty() || !regulars.is_empty(), tests_rows)?,
    }
    let act = match delete.targets.is_empty() {
        true => Act::Delete,
        false => Act::Columns { marker: false, statics, regulars },
    };
    let static_only = matches!(&act, Act::Columns { regulars, .. } if regulars.is_empty());
    let conditions = Conditions::of(names, &delete.condition, static_only, binder)?;
    let facts = Facts::default();
    checked(
        WritePlan {
            def: def.clone(),
            restrictions,
            act,
            timestamp,
            ttl,
            conditions,
            json: None,
            has_in: false,
            views: Box::default(),
            facts,
        },
        "deletions",
    )
}
