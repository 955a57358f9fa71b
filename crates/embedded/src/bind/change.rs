//! Changes of a write to columns: set, add, remove. Preparing a statement checks Cassandra's rules
//! for each type here. Executing it turns the changes into cells.

mod list;

use std::collections::BTreeMap;

use cql::ast::{self, AssignmentTarget, Change, Term};
use engine::{Error, Value};
use schema::{ColumnDef, CqlType, TableDef, UdtType};
use storage::{CellRef, CellValue, Expiry, RowBuilder};

use crate::bind::elements::{self, Element, ListPaths};
use crate::bind::filter::{in_order as values_in_order, is_among};
use crate::bind::term::{Bind, Binder, Given};
use list::LiveList;

/// Operation on a column.
#[derive(Clone, Debug)]
enum Op {
    /// `c = v` for a column of one cell.
    Set(Bind),
    /// `DELETE c`: the cell, or all elements.
    Delete,
    /// `c = v` for a column of elements: replaces all of them.
    Replace(Bind),
    /// `c = c + v`.
    Add(Bind),
    /// `c = v + c`.
    Prepend(Bind),
    /// `c = c - v` for a set, or for the keys of a map.
    Discard(Bind),
    /// `c[k] = v` for a map.
    Put(Bind, Bind),
    /// `DELETE c[k]` for a set or a map.
    Remove(Bind),
    /// `c.f = v`, with the number of the field.
    SetField(u16, Bind),
    /// `DELETE c.f`.
    RemoveField(u16),
    /// `c = c - v` for a list: removes every element equal to one of the values.
    DiscardValues(Bind),
    /// `c[i] = v` for a list.
    PutAt(Bind, Bind),
    /// `DELETE c[i]` for a list.
    RemoveAt(Bind),
    /// `c = c + v` for a counter.
    Increment(Bind),
    /// `c = c - v` for a counter.
    Decrement(Bind),
}

/// Live cell read before the write: its path (empty for a cell without one), value and timestamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'v> {
    pub(crate) path: &'v [u8],
    pub(crate) value: &'v [u8],
    pub(crate) timestamp: i64,
}

/// Cells read before the write, by column number.
pub(crate) type Before<'v> = BTreeMap<u32, Vec<Seen<'v>>>;

/// Operation on one column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnOp {
    /// Column number.
    pub(crate) column: u32,
    ty: CqlType,
    op: Op,
}

/// Timestamp of a write, and the expiry of its cells.
pub(crate) struct Moment {
    pub(crate) timestamp: i64,
    /// Server time of deletions, in seconds.
    pub(crate) now_s: u32,
    pub(crate) expiry: Option<Expiry>,
    /// Paths of new list elements.
    pub(crate) lists: ListPaths,
}

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

impl ColumnOp {
    fn new(column: &ColumnDef, op: Op) -> ColumnOp {
        ColumnOp { column: column.id, ty: column.ty.clone(), op }
    }

    /// Returns true if it creates list elements, which need paths.
    pub(crate) fn appends(&self) -> bool {
        matches!(self.ty, CqlType::List(_)) && matches!(self.op, Op::Replace(_) | Op::Add(_) | Op::Prepend(_))
    }

    /// Returns true if its effect depends on stored data.
    pub(crate) fn reads_first(&self) -> bool {
        use Op as O;
        matches!(
            self.op,
            O::DiscardValues(_) | O::PutAt(..) | O::RemoveAt(_) | O::Increment(_) | O::Decrement(_)
        )
    }

    /// Returns the size of its values in one execution, in bytes as given by the client.
    pub(crate) fn size(&self, values: &[Value<'_>]) -> u64 {
        self.binds().map(|bind| bind.size(values)).sum()
    }

    /// Returns the bytes of constants in it.
    pub(crate) fn constant_bytes(&self) -> u64 {
        self.binds().map(Bind::constant_bytes).sum()
    }

    fn binds(&self) -> impl Iterator<Item = &Bind> {
        use Op as O;
        let (first, second) = match &self.op {
            O::Delete | O::RemoveField(_) => (None, None),
            O::Put(a, b) | O::PutAt(a, b) => (Some(a), Some(b)),
            O::Set(a) | O::Replace(a) | O::Add(a) | O::Prepend(a) | O::Discard(a) | O::Remove(a) => {
                (Some(a), None)
            }
            O::SetField(_, a) | O::DiscardValues(a) | O::RemoveAt(a) => (Some(a), None),
            O::Increment(a) | O::Decrement(a) => (Some(a), None),
        };
        first.into_iter().chain(second)
    }

    /// Returns true if its values have elements or fields.
    pub(crate) fn has_elements(&self) -> bool {
        !self.ty.inner().is_empty()
    }

    /// Returns true if it sets the whole column, so that no other operation of the statement may
    /// change the column.
    fn is_whole(&self) -> bool {
        matches!(self.op, Op::Set(_) | Op::Replace(_))
    }
}

/// Prepares `c = v` of an UPDATE.
pub(crate) fn set(column: &ColumnDef, term: &Term, binder: &mut Binder) -> Result<ColumnOp, Error> {
    let bind = binder.bind(&column.name, &column.ty, term)?;
    if column.ty == CqlType::Counter {
        return invalid(format!(
            "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
            column.name
        ));
    }
    Ok(set_to(column, bind))
}

/// Sets a column to a prepared value.
pub(crate) fn set_to(column: &ColumnDef, bind: Bind) -> ColumnOp {
    let op = if column.ty.is_multi_cell() { Op::Replace(bind) } else { Op::Set(bind) };
    ColumnOp::new(column, op)
}

/// Prepares one assignment of an UPDATE.
pub(crate) fn assignment(
    column: &ColumnDef,
    assignment: &ast::Assignment,
    binder: &mut Binder,
) -> Result<ColumnOp, Error> {
    let name = &column.name;
    let term = match (&assignment.target, &assignment.change) {
        (AssignmentTarget::Column(_), Change::Set(term)) => return set(column, term, binder),
        (AssignmentTarget::Column(_), change) => return added(column, change, binder),
        (_, Change::Set(term)) => term,
        _ => return invalid(format!("Only whole columns can be added to or subtracted from: {name}")),
    };
    let op = match &assignment.target {
        AssignmentTarget::Element(_, key) => {
            let shown = || format!("{name}[{key}] = {term}");
            match &column.ty {
                CqlType::Map(key_type, value) => Op::Put(
                    binder.bind(&format!("key({name})"), key_type, key)?,
                    binder.bind(&format!("value({name})"), value, term)?,
                ),
                CqlType::List(element) => Op::PutAt(
                    binder.bind(&format!("idx({name})"), &CqlType::Int, key)?,
                    binder.bind(&format!("value({name})"), element, term)?,
                ),
                CqlType::Set(_) => {
                    return invalid(format!("Invalid operation ({}) for set column {name}", shown()));
                }
                ty if ty.is_collection() => {
                    return invalid(format!(
                        "Invalid operation ({}) for frozen collection column {name}",
                        shown()
                    ));
                }
                _ => {
                    return invalid(format!(
                        "Invalid operation ({}) for non collection column {name}",
                        shown()
                    ));
                }
            }
        }
        AssignmentTarget::Field(_, field) => match &column.ty {
            CqlType::Udt(udt) => {
                let (at, ty) = field_of(udt, name, field)?;
                Op::SetField(at, binder.bind(&format!("{name}.{field}"), ty, term)?)
            }
            ty => {
                let what = if matches!(ty.thawed(), CqlType::Udt(_)) { "frozen UDT" } else { "non-UDT" };
                return invalid(format!(
                    "Invalid operation ({name}.{field} = {term}) for {what} column {name}"
                ));
            }
        },
        AssignmentTarget::Column(_) => unreachable!("whole columns are dealt with above"),
    };
    Ok(ColumnOp::new(column, op))
}

/// Prepares `c = c + v`, `c = c - v` or `c = v + c`.
fn added(column: &ColumnDef, change: &Change, binder: &mut Binder) -> Result<ColumnOp, Error> {
    let (name, ty) = (&column.name, &column.ty);
    let (shown, prepends) = match change {
        Change::Add(term) => (format!("{name} = {name} + {term}"), false),
        Change::Subtract(term) => (format!("{name} = {name} - {term}"), false),
        Change::Prepend(term) | Change::Set(term) => (format!("{name} = {term} - {name}"), true),
    };
    if *ty == CqlType::Counter && !prepends {
        let op = match change {
            Change::Subtract(term) => Op::Decrement(binder.bind(name, ty, term)?),
            Change::Add(term) | Change::Prepend(term) | Change::Set(term) => {
                Op::Increment(binder.bind(name, ty, term)?)
            }
        };
        return Ok(ColumnOp::new(column, op));
    }
    if !ty.is_multi_cell() || matches!(ty, CqlType::Udt(_)) {
        let what = match ty.thawed() {
            CqlType::List(_) if prepends => "frozen list",
            _ if prepends => "non list",
            frozen if frozen.is_collection() => "frozen collection",
            CqlType::Tuple(_) | CqlType::Udt(_) if matches!(change, Change::Add(_)) => "tuple",
            _ => "non counter",
        };
        return invalid(format!("Invalid operation ({shown}) for {what} column {name}"));
    }
    let wrong = |what: &'static str, term: &Term| {
        let message = format!("Value for a map {what}, but was: '{term}'");
        move |_| Error::Invalid(message)
    };
    let op = match (change, ty) {
        (Change::Add(term), CqlType::Map(..)) => {
            Op::Add(binder.bind(name, ty, term).map_err(wrong("addition has to be a map", term))?)
        }
        (Change::Add(term), ty) => Op::Add(binder.bind(name, ty, term)?),
        (Change::Prepend(term), CqlType::List(_)) => Op::Prepend(binder.bind(name, ty, term)?),
        (Change::Subtract(term), CqlType::Set(_)) => Op::Discard(binder.bind(name, ty, term)?),
        (Change::Subtract(term), CqlType::Map(key, _)) => {
            // Cassandra's text, letter by letter.
            let keys = binder.bind(name, &CqlType::Set(key.clone()), term);
            Op::Discard(keys.map_err(wrong("substraction has to be a set", term))?)
        }
        (Change::Subtract(term), _) => Op::DiscardValues(binder.bind(name, ty, term)?),
        _ => return invalid(format!("Invalid operation ({shown}) for non list column {name}")),
    };
    Ok(ColumnOp::new(column, op))
}

/// Prepares one target of a DELETE.
pub(crate) fn deletion(
    column: &ColumnDef,
    target: &AssignmentTarget,
    binder: &mut Binder,
) -> Result<ColumnOp, Error> {
    let name = &column.name;
    let op = match target {
        AssignmentTarget::Column(_) => Op::Delete,
        AssignmentTarget::Element(_, key) => match &column.ty {
            CqlType::Map(key_type, _) => Op::Remove(binder.bind(&format!("key({name})"), key_type, key)?),
            CqlType::Set(member) => Op::Remove(binder.bind(&format!("value({name})"), member, key)?),
            CqlType::List(_) => Op::RemoveAt(binder.bind(&format!("idx({name})"), &CqlType::Int, key)?),
            ty => {
                let what = if ty.is_collection() { "frozen" } else { "non" };
                return invalid(format!("Invalid deletion operation for {what} collection column {name}"));
            }
        },
        AssignmentTarget::Field(_, field) => match &column.ty {
            CqlType::Udt(udt) => Op::RemoveField(field_of(udt, name, field)?.0),
            ty if matches!(ty.thawed(), CqlType::Udt(_)) => {
                return invalid(format!("Frozen UDT column {name} does not support field deletions"));
            }
            _ => return invalid(format!("Invalid field deletion operation for non-UDT column {name}")),
        },
    };
    Ok(ColumnOp::new(column, op))
}

fn field_of<'t>(udt: &'t UdtType, column: &str, field: &str) -> Result<(u16, &'t CqlType), Error> {
    match udt.fields.iter().position(|(name, _)| name == field) {
        Some(at) => Ok((at as u16, &udt.fields[at].1)),
        None => invalid(format!("UDT column {column} does not have a field named {field}")),
    }
}

/// Sorts operations by their columns; those on one column keep their order.
///
/// # Errors
/// Returns an error if an operation that sets a whole column is not the only one on it.
pub(crate) fn in_order(def: &TableDef, ops: &mut [ColumnOp]) -> Result<(), Error> {
    ops.sort_by_key(|op| op.column);
    let clash = ops.windows(2).find(|pair| {
        pair[0].column == pair[1].column
            && match (&pair[0].op, &pair[1].op) {
                (Op::SetField(a, _), Op::SetField(b, _)) => a == b,
                _ => pair[0].is_whole() || pair[1].is_whole(),
            }
    });
    match clash {
        Some(pair) => {
            let column = def.columns.iter().find(|c| c.id == pair[0].column && !is_key(c));
            let name = column.map_or("", |c| c.name.as_str());
            Err(Error::Syntax(format!("Multiple incompatible setting of column {name}")))
        }
        None => Ok(()),
    }
}

fn is_key(column: &ColumnDef) -> bool {
    matches!(column.kind, schema::ColumnKind::PartitionKey(_) | schema::ColumnKind::Clustering(..))
}

/// Effect of several operations on a column of elements.
#[derive(Default)]
struct Effect {
    /// Deletes the elements with this timestamp or an earlier one.
    dead_at: Option<i64>,
    elements: Vec<Element>,
}

/// Pushes the cells of sorted operations. `before` has the columns of those that read first.
pub(crate) fn push_all(
    mut ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
    before: &Before<'_>,
    row: &mut RowBuilder,
) -> Result<(), Error> {
    while let [first, rest @ ..] = ops {
        match &first.op {
            Op::Set(bind) => {
                push_simple(first.column, bind.get(values)?, at, row);
                ops = rest;
            }
            Op::Delete if !first.ty.is_multi_cell() => {
                push_simple(first.column, Given::Null, at, row);
                // A column may be named twice.
                ops = &ops[ops.iter().take_while(|op| op.column == first.column).count()..];
            }
            _ => {
                let (same, others) =
                    ops.split_at(ops.iter().take_while(|op| op.column == first.column).count());
                let before = before.get(&first.column).map_or(&[][..], |seen| seen);
                if first.ty == CqlType::Counter {
                    push_counter(same, values, at, before, row)?;
                } else {
                    push_elements(first.column, effect_of(same, values, at, before)?, at, row);
                }
                ops = others;
            }
        }
    }
    Ok(())
}

/// Returns the effect of the operations on a column of elements, one after the other.
///
/// # Errors
/// An operation is invalid, or too many of them remove elements of a list that others read.
fn effect_of(
    ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
    before: &[Seen<'_>],
) -> Result<Effect, Error> {
    let mut effect = Effect::default();
    let (mut list, mut removals) = (LiveList::of(before), 0);
    // Operations behind the last one that reads have no use for the list.
    let readers = ops.iter().rposition(ColumnOp::reads_first).unwrap_or(0);
    for (place, op) in ops.iter().enumerate() {
        let earlier = effect.elements.len();
        op.effect(values, at, &list, &mut effect)?;
        if place < readers {
            if let Some(dead_at) = effect.dead_at {
                list.delete(dead_at);
            }
            let length = list.elements().len();
            lanes::count((length / MOVED_PER_UNIT) as u32);
            list.apply(&effect.elements[earlier..], at.timestamp);
            removals += usize::from(list.elements().len() < length);
            if removals > REMOVALS_MAX {
                return invalid(format!(
                    "expected at most {REMOVALS_MAX} operations of a statement that remove elements of a list \
                     before others, got more: send several statements"
                ));
            }
        }
    }
    Ok(effect)
}

fn push_simple(column: u32, given: Given<'_>, at: &Moment, row: &mut RowBuilder) {
    match given {
        Given::Unset => {}
        Given::Null => row.push(CellRef::dead(column, at.timestamp, at.now_s)),
        Given::Bytes(value) => {
            let value = CellValue::Live { value: &value, expiry: at.expiry };
            row.push(CellRef { column, path: None, timestamp: at.timestamp, value });
        }
    }
}

/// Elements of a list moved in one work unit, at an estimated 5 ns for their 56 bytes.
const MOVED_PER_UNIT: usize = 16;

/// Most operations of a statement on one list that remove elements before other operations read it.
/// Each moves the elements behind: without a bound, a statement of some kilobytes could move a list
/// of 65,535 elements thousands of times.
const REMOVALS_MAX: usize = 256;

/// Elements sorted in one work unit.
const SORTED_PER_UNIT: u32 = 2;

fn push_elements(column: u32, mut effect: Effect, at: &Moment, row: &mut RowBuilder) {
    if let Some(timestamp) = effect.dead_at {
        row.push(CellRef::dead(column, timestamp, at.now_s));
    }
    lanes::count(effect.elements.len() as u32 / SORTED_PER_UNIT);
    // Several operations may set one element, at one timestamp: a deletion wins, and then the
    // greatest value, compared as bytes. Replicas of Cassandra decide so.
    effect.elements.sort_by(|(path, value), (other_path, other)| {
        let of_values = || value.is_none().cmp(&other.is_none()).then_with(|| value.cmp(other));
        path.cmp(other_path).then_with(of_values)
    });
    for (place, (path, value)) in effect.elements.iter().enumerate() {
        if effect.elements.get(place + 1).is_some_and(|next| next.0 == *path) {
            continue;
        }
        let value = match value {
            Some(value) => CellValue::Live { value, expiry: at.expiry },
            None => CellValue::Dead { deleted_at_s: at.now_s },
        };
        row.push(CellRef { column, path: Some(path), timestamp: at.timestamp, value });
    }
}

/// Pushes the new total of a counter, with a timestamp that differs from the old one's.
fn push_counter(
    ops: &[ColumnOp],
    values: &[Value<'_>],
    at: &Moment,
    before: &[Seen<'_>],
    row: &mut RowBuilder,
) -> Result<(), Error> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_be_bytes);
    let (mut total, mut timestamp) = (0_i64, at.timestamp);
    if let Some(old) = before.first() {
        (total, timestamp) = (number(old.value), timestamp.max(old.timestamp.saturating_add(1)));
    }
    let mut counted = false;
    for op in ops {
        let (bind, is_negative) = match &op.op {
            Op::Increment(bind) => (bind, false),
            Op::Decrement(bind) => (bind, true),
            _ => continue,
        };
        match bind.get(values)? {
            Given::Bytes(by) if is_negative && number(&by) == i64::MIN => {
                return invalid(format!(
                    "The negation of {} overflows supported counter precision (signed 8 bytes integer)",
                    i64::MIN
                ));
            }
            Given::Bytes(by) if is_negative => total = total.wrapping_sub(number(&by)),
            Given::Bytes(by) => total = total.wrapping_add(number(&by)),
            Given::Null => return invalid("Invalid null value for counter increment/decrement".into()),
            Given::Unset => continue,
        }
        counted = true;
    }
    if counted {
        let value = CellValue::Live { value: &total.to_be_bytes(), expiry: None };
        row.push(CellRef { column: ops[0].column, path: None, timestamp, value });
    }
    Ok(())
}

/// Returns a collection key, which must not be null.
fn key<'a>(bind: &'a Bind, values: &[Value<'a>], ty: &CqlType) -> Result<Vec<u8>, Error> {
    let what = if matches!(ty, CqlType::Map(..)) { "map key" } else { "set value" };
    match bind.get(values)? {
        Given::Bytes(bytes) => elements::path_of(ty, &bytes),
        Given::Null => invalid(format!("Invalid null {what}")),
        Given::Unset => invalid(format!("Invalid unset {what}")),
    }
}

impl ColumnOp {
    fn effect(
        &self,
        values: &[Value<'_>],
        at: &Moment,
        list: &LiveList<'_>,
        out: &mut Effect,
    ) -> Result<(), Error> {
        let ty = &self.ty;
        let given = |path: Vec<u8>, given: Given<'_>| match given {
            Given::Unset => None,
            Given::Null => Some((path, None)),
            Given::Bytes(bytes) => Some((path, Some(bytes.into_owned()))),
        };
        match &self.op {
            Op::Delete => out.dead_at = Some(at.timestamp),
            Op::Replace(bind) => {
                let given = bind.get(values)?;
                if given != Given::Unset {
                    // Just before the write's timestamp, so that its own elements live.
                    out.dead_at = Some(at.timestamp - 1);
                }
                if let Given::Bytes(bytes) = given {
                    out.elements.extend(elements::of_value(ty, &bytes, &at.lists)?);
                }
            }
            Op::Add(bind) => {
                if let Given::Bytes(bytes) = bind.get(values)? {
                    out.elements.extend(elements::of_value(ty, &bytes, &at.lists)?);
                }
            }
            Op::Prepend(bind) => {
                if let Given::Bytes(bytes) = bind.get(values)? {
                    out.elements.extend(elements::prepended(&bytes, &at.lists)?);
                }
            }
            Op::Discard(bind) => {
                if let Given::Bytes(bytes) = bind.get(values)? {
                    out.elements.extend(elements::without(ty, &bytes)?);
                }
            }
            Op::Put(place, bind) => out.elements.extend(given(key(place, values, ty)?, bind.get(values)?)),
            Op::Remove(place) => out.elements.push((key(place, values, ty)?, None)),
            Op::SetField(field, bind) => {
                out.elements.extend(given(field.to_be_bytes().to_vec(), bind.get(values)?));
            }
            Op::RemoveField(field) => out.elements.push((field.to_be_bytes().to_vec(), None)),
            Op::DiscardValues(bind) => {
                if let Given::Bytes(bytes) = bind.get(values)? {
                    let element = ty.inner().first().copied().unwrap_or(ty);
                    let gone = schema::value::elements(&bytes).flatten().map(<[u8]>::to_vec).collect();
                    let gone = values_in_order(element, gone);
                    let live = list.elements();
                    lanes::count((live.len() + gone.len()) as u32);
                    let gone = live.iter().filter(|live| is_among(element, &gone, &live.value));
                    out.elements.extend(gone.map(|live| (live.path.to_vec(), None)));
                }
            }
            Op::PutAt(index, bind) => {
                let Some(index) = list_index(index, values)? else {
                    return invalid("Invalid unset value for list index".into());
                };
                let path = at_index(list, index, "set an element on")?;
                out.elements.extend(given(path, bind.get(values)?));
            }
            Op::RemoveAt(index) => {
                if let Some(index) = list_index(index, values)? {
                    out.elements.push((at_index(list, index, "delete an element from")?, None));
                }
            }
            Op::Set(_) | Op::Increment(_) | Op::Decrement(_) => {
                unreachable!("a column of one cell has no elements")
            }
        }
        Ok(())
    }
}

/// Returns a position in a list. `None`: it is unset.
fn list_index(bind: &Bind, values: &[Value<'_>]) -> Result<Option<i64>, Error> {
    match bind.get(values)? {
        Given::Null => invalid("Invalid null value for list index".into()),
        _ => bind.number(values),
    }
}

/// Returns the path of a list element.
fn at_index(list: &LiveList<'_>, index: i64, to: &str) -> Result<Vec<u8>, Error> {
    let live = list.elements();
    if live.is_empty() {
        return invalid(format!("Attempted to {to} a list which is null"));
    }
    match usize::try_from(index).ok().and_then(|at| live.get(at)) {
        Some(live) => Ok(live.path.to_vec()),
        None => invalid(format!("List index {index} out of bound, list has size {}", live.len())),
    }
}
