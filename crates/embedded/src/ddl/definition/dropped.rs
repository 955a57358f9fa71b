//! Columns that are dropped, and added again.
//!
//! A column that is added again has another number, so that its old cells stay hidden. After a
//! DROP with `USING TIMESTAMP` cells with later timestamps are kept. The column then gets its old
//! number back. The caller has removed the earlier cells from storage before (`revived`).
//!
//! Without `USING TIMESTAMP` the time of the statement counts. A client whose clock is fast may
//! have written cells with later timestamps. They are dropped too.

use cql::ast::{ColumnDefinition, Literal, Term};
use engine::Error;
use schema::{ColumnDef, ColumnKind, CqlType, DroppedColumn, TableDef};

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Returns the timestamp of a DROP, in microseconds.
pub(super) fn timestamp(term: &Term) -> Result<i64, Error> {
    match term {
        Term::Literal(Literal::Integer(digits)) => digits
            .parse()
            .map_err(|_| Error::Invalid(format!("expected a timestamp in microseconds, got {digits}"))),
        _ => invalid("expected a timestamp in microseconds without bind markers".into()),
    }
}

/// Removes a column, and remembers it.
pub(super) fn drop(
    def: &mut TableDef,
    name: &str,
    if_exists: bool,
    timestamp: Option<i64>,
    now_us: i64,
) -> Result<(), Error> {
    let Some((at, column)) = def.column(name) else {
        return match if_exists {
            true => Ok(()),
            false => invalid(format!("Column {name} was not found in table '{}.{}'", def.keyspace, def.name)),
        };
    };
    if !matches!(column.kind, ColumnKind::Static | ColumnKind::Regular) {
        return invalid(format!("Cannot drop PRIMARY KEY column {name}"));
    }
    if matches!(column.ty, CqlType::Udt(_)) {
        return invalid(format!("Cannot drop non-frozen column {name} of user type {}", column.ty));
    }
    let column = def.columns.remove(at);
    def.masks.remove(&column.id);
    let (dropped_us, keeps_later) = (timestamp.unwrap_or(now_us), timestamp.is_some());
    def.dropped.insert(name.to_owned(), DroppedColumn { column, dropped_us, keeps_later });
    Ok(())
}

/// Adds a column, which may have been dropped before.
pub(super) fn add(def: &mut TableDef, column: &ColumnDefinition, ty: CqlType) -> Result<(), Error> {
    let name = &column.name;
    let shown = || format!("{}.{}", def.keyspace, def.name);
    match (def.is_counter(), ty == CqlType::Counter) {
        (true, false) => {
            let text =
                format!("{}: Cannot have a non counter column (\"{name}\") in a counter table", shown());
            return Err(Error::Config(text));
        }
        (false, true)
            if def.columns.iter().any(|c| matches!(c.kind, ColumnKind::Static | ColumnKind::Regular)) =>
        {
            let text =
                format!("{}: Cannot have a counter column (\"{name}\") in a non counter table", shown());
            return Err(Error::Config(text));
        }
        _ => {}
    }
    let kind = if column.is_static { ColumnKind::Static } else { ColumnKind::Regular };
    let mut id = def.next_column_id;
    if let Some(dropped) = def.dropped.get_mut(name) {
        let old = &dropped.column;
        if !reads(&ty, &old.ty) {
            return invalid(format!(
                "Cannot add a column '{name}' of type {ty}, incompatible with previously dropped column '{name}' of \
                 type {}",
                old.ty
            ));
        }
        if old.kind != kind {
            let shown = |kind| if kind == ColumnKind::Static { "STATIC" } else { "REGULAR" };
            return invalid(format!(
                "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
                shown(kind),
                shown(old.kind)
            ));
        }
        if old.ty == CqlType::Counter {
            return invalid(format!("Cannot re-add previously dropped counter column {name}"));
        }
        let same_keys = ty == old.ty || !ty.is_multi_cell() || is_extensible(&old.ty);
        match dropped.keeps_later && same_keys {
            true => id = old.id,
            // No column has the cells any more.
            false => dropped.keeps_later = false,
        }
    }
    def.next_column_id = def.next_column_id.max(id + 1);
    def.columns.push(ColumnDef { id, name: name.clone(), ty, kind });
    Ok(())
}

/// Returns true if the keys of elements stay the same when user types in the type get fields.
fn is_extensible(ty: &CqlType) -> bool {
    let is_fixed = matches!(ty, CqlType::Udt(udt) if !udt.is_extensible);
    !is_fixed && ty.inner().into_iter().all(is_extensible)
}

/// Returns true if the type can read the bytes of values of an older one, as Cassandra defines it.
fn reads(ty: &CqlType, old: &CqlType) -> bool {
    use CqlType as T;
    let same_text = || ty.to_string() == old.to_string();
    let compatible = match (ty, old) {
        (T::Text, T::Ascii) | (T::Uuid, T::TimeUuid) | (T::Date, T::Int) => true,
        (T::BigInt, T::Timestamp) | (T::Timestamp | T::Time, T::BigInt) => true,
        (T::Blob, old) => old.fixed_len().is_none() && !old.is_multi_cell(),
        _ => false,
    };
    compatible || same_text()
}
