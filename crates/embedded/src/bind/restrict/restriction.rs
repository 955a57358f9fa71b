//! Restrictions: relations bound to the columns of a table.

use std::ops::Range;
use std::sync::Arc;

use cql::ast::{CompareOp, InValues, Relation, Term};
use engine::Error;
use schema::{ColumnDef, ColumnKind, CqlType, TableDef};

use super::{TokenBound, is_bound, is_lower, sign, with_duration};
use crate::bind::choice::Choice;
use crate::bind::filter::{Filter, Test};
use crate::bind::names::TableNames;
use crate::bind::sought::Sought;
use crate::bind::term::Binder;
use crate::bind::tuple::{SliceBound, TupleBind, tuple_of};

/// Restriction of one column, or of several adjacent clustering columns.
#[derive(Debug)]
pub(super) struct Restriction {
    /// Indexes in the table's `columns`.
    pub(super) columns: Range<usize>,
    /// True if a relation of it has columns in parentheses.
    pub(super) is_tuple: bool,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// `=` or `IN`.
    Choice(Choice),
    /// A lower or an upper bound, or one of each.
    Bounds(Vec<SliceBound>),
    /// `CONTAINS`, `CONTAINS KEY` and entries of a map.
    Contains(Vec<Test>),
}

fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

impl Restriction {
    /// Prepares a relation.
    pub(super) fn of(
        names: &TableNames,
        relation: &Relation,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        match relation {
            Relation::Compare { op: CompareOp::NotEq, .. }
            | Relation::Element { op: CompareOp::NotEq, .. }
            | Relation::Tuple { op: CompareOp::NotEq, .. } => {
                invalid(format!("Unsupported \"!=\" relation: {relation}"))
            }
            Relation::IsNotNull { .. } => invalid(format!("Unsupported restriction: {relation}")),
            Relation::Like { column, pattern } => {
                let (_, column) = names.find(column)?;
                check_comparable(column, "LIKE")?;
                binder.bind(&column.name, &column.ty, pattern)?;
                invalid(format!(
                    "LIKE restriction is only supported on properly indexed columns. {relation} is not valid."
                ))
            }
            Relation::Compare { column, op, value } => {
                Restriction::compare(names, column, *op, value, binder)
            }
            Relation::In { column, values } => Restriction::one_of(names, column, values, binder),
            Relation::Contains { column, value } => Restriction::contains(names, column, value, binder),
            Relation::ContainsKey { column, key } => Restriction::contains_key(names, column, key, binder),
            Relation::Element { column, key, op, value } => {
                Restriction::element(names, column, [key, value], *op, binder)
            }
            Relation::Tuple { columns, op, value } => {
                let columns = tuple_columns(names, columns, relation)?;
                let tuple = TupleBind::of(
                    &names.def.columns[columns.clone()],
                    &shared(names, &columns),
                    value,
                    binder,
                )?;
                let kind = match op {
                    CompareOp::Eq => Kind::Choice(Choice::Tuple(tuple)),
                    op => Kind::Bounds(vec![SliceBound { op: *op, value: tuple, may_be_null: false }]),
                };
                Ok(Restriction { columns, is_tuple: true, kind })
            }
            Relation::TupleIn { columns, values } => {
                let columns = tuple_columns(names, columns, relation)?;
                let choice = tuples(names, &columns, values, binder)?;
                Ok(Restriction { columns, is_tuple: true, kind: Kind::Choice(choice) })
            }
            Relation::Token { .. } => unreachable!("bounds on tokens are kept apart"),
        }
    }

    fn of_column(column: usize, kind: Kind) -> Restriction {
        Restriction { columns: column..column + 1, is_tuple: false, kind }
    }

    fn compare(
        names: &TableNames,
        column: &str,
        op: CompareOp,
        value: &Term,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        let (at, column) = names.find(column)?;
        if is_bound(op)
            && let Some(what) = with_duration(&column.ty)
        {
            let what = if what == "durations" { "duration columns" } else { what };
            return invalid(format!("Slice restrictions are not supported on {what}"));
        }
        check_comparable(column, sign(op))?;
        let bind = binder.bind(&column.name, &column.ty, value)?;
        Ok(Restriction::of_column(
            at,
            match op {
                CompareOp::Eq => Kind::Choice(Choice::One(bind)),
                op => Kind::Bounds(vec![SliceBound {
                    op,
                    value: TupleBind::Parts(vec![bind]),
                    may_be_null: true,
                }]),
            },
        ))
    }

    fn one_of(
        names: &TableNames,
        column: &str,
        values: &InValues,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        let (at, column) = names.find(column)?;
        check_comparable(column, "IN")?;
        let (name, ty) = (&column.name, &column.ty);
        let choice = match values {
            // As in Cassandra: an IN of one value is an equality.
            InValues::List(terms) if terms.len() == 1 => Choice::One(binder.bind(name, ty, &terms[0])?),
            InValues::List(terms) => Choice::Some(binder.bind_all(name, ty, terms)?),
            InValues::Marker(term) => {
                Choice::Listed(binder.bind_list(name, ty, term)?, Arc::from(name.as_str()))
            }
        };
        Ok(Restriction::of_column(at, Kind::Choice(choice)))
    }

    fn contains(
        names: &TableNames,
        column: &str,
        value: &Term,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        let (at, column) = names.find(column)?;
        let (name, inner) = (&column.name, column.ty.thawed().inner());
        let Some(element) = inner.last().filter(|_| column.ty.is_collection()) else {
            return invalid(format!("Cannot use CONTAINS on non-collection column {name}"));
        };
        let value = binder.bind(&format!("value({name})"), element, value)?;
        Ok(Restriction::of_column(at, Kind::Contains(vec![Test::Contains(value)])))
    }

    fn contains_key(
        names: &TableNames,
        column: &str,
        key: &Term,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        let (at, column) = names.find(column)?;
        let name = &column.name;
        let CqlType::Map(of, _) = column.ty.thawed() else {
            return invalid(format!("Cannot use CONTAINS KEY on non-map column {name}"));
        };
        let key = binder.bind(&format!("key({name})"), of, key)?;
        Ok(Restriction::of_column(at, Kind::Contains(vec![Test::ContainsKey(key)])))
    }

    fn element(
        names: &TableNames,
        column: &str,
        [key, value]: [&Term; 2],
        op: CompareOp,
        binder: &mut Binder,
    ) -> Result<Restriction, Error> {
        let (at, column) = names.find(column)?;
        let name = &column.name;
        let (of, values) = match column.ty.thawed() {
            CqlType::List(_) => {
                return invalid(format!(
                    "Indexes on list entries ({name}[index] = value) are not currently supported."
                ));
            }
            CqlType::Map(..) if !column.ty.is_multi_cell() => {
                return invalid(format!(
                    "Map-entry equality predicates on frozen map column {name} are not supported"
                ));
            }
            CqlType::Map(of, values) => (of, values),
            _ => return invalid(format!("Column {name} cannot be used as a map")),
        };
        if op != CompareOp::Eq {
            return invalid("Only EQ relations are supported on map entries");
        }
        let key = binder.bind(&format!("key({name})"), of, key)?;
        let value = binder.bind(&format!("value({name})"), values, value)?;
        Ok(Restriction::of_column(at, Kind::Contains(vec![Test::Entry(key, value)])))
    }

    /// Returns true if an index of its columns supports it, in Cassandra.
    pub(super) fn has_index(&self, def: &TableDef) -> bool {
        let has_index = |sought: Sought| {
            let mut columns = self.columns.clone().map(|at| &def.columns[at]);
            columns.any(|column| def.indexes.iter().any(|index| sought.has_index(index, column)))
        };
        match &self.kind {
            Kind::Choice(choice) => choice.is_one() && has_index(Sought::Equality),
            Kind::Bounds(_) => !self.is_tuple && has_index(Sought::Range),
            Kind::Contains(tests) => tests.iter().filter_map(Sought::of).any(has_index),
        }
    }

    /// Returns true if it can be a filter.
    pub(super) fn can_filter(&self) -> bool {
        match &self.kind {
            Kind::Choice(choice) => choice.is_one() || self.columns.len() == 1,
            Kind::Bounds(_) => !self.is_tuple,
            Kind::Contains(_) => true,
        }
    }

    /// Appends it as filters.
    ///
    /// # Errors
    /// Cassandra has no such filter.
    pub(super) fn filter(self, filters: &mut Vec<Filter>) -> Result<(), Error> {
        let (first, width) = (self.columns.start, self.columns.len());
        let of_first = |test| Filter::new(first, test);
        match self.kind {
            Kind::Choice(Choice::One(bind)) => filters.push(of_first(Test::Compare(CompareOp::Eq, bind))),
            Kind::Choice(Choice::Tuple(TupleBind::Parts(binds))) => {
                let tests = binds.into_iter().map(|bind| Test::Compare(CompareOp::Eq, bind));
                filters.extend(self.columns.zip(tests).map(|(column, test)| Filter::new(column, test)));
            }
            Kind::Choice(Choice::Tuple(tuple)) => {
                filters.extend((0..width).map(|at| Filter::new(first + at, Test::Field(tuple.clone(), at))))
            }
            Kind::Choice(choice) if width == 1 => filters.push(of_first(Test::In(choice))),
            Kind::Choice(_) => return invalid("Multicolumn IN filters are not supported"),
            Kind::Bounds(_) if self.is_tuple => {
                return invalid("Multi-column slice restrictions cannot be used for filtering.");
            }
            Kind::Bounds(bounds) => {
                filters.extend(bounds.into_iter().flat_map(|SliceBound { op, value, .. }| {
                    let TupleBind::Parts(binds) = value else {
                        unreachable!("a bound on one column is one value")
                    };
                    binds.into_iter().map(move |bind| of_first(Test::Compare(op, bind)))
                }))
            }
            Kind::Contains(tests) => filters.extend(tests.into_iter().map(of_first)),
        }
        Ok(())
    }
}

/// Prepares the values of an IN of several columns.
fn tuples(
    names: &TableNames,
    columns: &Range<usize>,
    values: &InValues,
    binder: &mut Binder,
) -> Result<Choice, Error> {
    let (defs, shared) = (&names.def.columns[columns.clone()], shared(names, columns));
    Ok(match values {
        // As in Cassandra: an IN of one tuple is an equality.
        InValues::List(terms) if terms.len() == 1 => {
            Choice::Tuple(TupleBind::of(defs, &shared, &terms[0], binder)?)
        }
        InValues::List(terms) => {
            binder.check(engine::Guardrail::InValues, terms.len())?;
            let tuples = terms.iter().map(|term| TupleBind::of(defs, &shared, term, binder));
            Choice::Tuples(tuples.collect::<Result<_, _>>()?, shared)
        }
        InValues::Marker(term) => {
            Choice::ListedTuples(binder.bind_list(&shared.join(","), &tuple_of(defs), term)?, shared)
        }
    })
}

fn shared(names: &TableNames, columns: &Range<usize>) -> Arc<[String]> {
    names.def.columns[columns.clone()].iter().map(|column| column.name.clone()).collect()
}

/// Returns the columns of a relation of several columns.
///
/// # Errors
/// They are not adjacent clustering columns in the order of the key.
fn tuple_columns(names: &TableNames, columns: &[String], relation: &Relation) -> Result<Range<usize>, Error> {
    let mut found: Option<Range<usize>> = None;
    for name in columns {
        let (at, column) = names.find(name)?;
        if !matches!(column.kind, ColumnKind::Clustering(..)) {
            return invalid(format!(
                "Multi-column relations can only be applied to clustering columns but was applied to: {name}"
            ));
        }
        found = Some(match found {
            None => at..at + 1,
            Some(seen) if seen.contains(&at) => {
                return invalid(format!("Column \"{name}\" appeared twice in a relation: {relation}"));
            }
            Some(seen) if seen.end == at => seen.start..at + 1,
            Some(_) => {
                return invalid(format!(
                    "Clustering columns must appear in the PRIMARY KEY order in multi-column relations: {relation}"
                ));
            }
        });
    }
    found.ok_or_else(|| Error::Syntax("expected at least one column in parentheses".into()))
}

/// Rejects a comparison of a column of elements as a whole.
fn check_comparable(column: &ColumnDef, sign: &str) -> Result<(), Error> {
    let (name, ty) = (&column.name, &column.ty);
    match ty.is_multi_cell() {
        true if ty.is_collection() => {
            invalid(format!("Collection column '{name}' ({ty}) cannot be restricted by a '{sign}' relation"))
        }
        true => {
            invalid(format!("Non-frozen UDT column '{name}' ({ty}) cannot be restricted by any relation"))
        }
        false => Ok(()),
    }
}

/// Bounds on the token found so far.
#[derive(Default, Debug)]
pub(super) struct Tokens {
    pub(super) bounds: Vec<TokenBound>,
}

impl Tokens {
    /// Adds a relation of `token(…)`.
    pub(super) fn add(
        &mut self,
        names: &TableNames,
        columns: &[String],
        op: CompareOp,
        value: &Term,
        relation: &Relation,
        binder: &mut Binder,
    ) -> Result<(), Error> {
        if op == CompareOp::NotEq {
            return invalid(format!("Unsupported \"!=\" relation: {relation}"));
        }
        check_token_columns(names, columns)?;
        let bind = binder.bind("partition key token", &CqlType::BigInt, value)?;
        let of = columns.join(", ");
        for (other, _) in &self.bounds {
            if *other == CompareOp::Eq {
                return invalid(format!(
                    "{of} cannot be restricted by more than one relation if it includes an Equal"
                ));
            }
            if op == CompareOp::Eq {
                return invalid(format!(
                    "Columns \"{of}\" cannot be restricted by both an equality and an inequality relation"
                ));
            }
            if is_lower(*other) == is_lower(op) {
                let bound = if is_lower(op) { "start" } else { "end" };
                return invalid(format!("More than one restriction was found for the {bound} bound on {of}"));
            }
        }
        self.bounds.push((op, bind));
        Ok(())
    }
}

fn check_token_columns(names: &TableNames, columns: &[String]) -> Result<(), Error> {
    let key: Vec<&str> = names.def.partition_key().map(|column| column.name.as_str()).collect();
    if columns.iter().eq(&key) {
        return Ok(());
    }
    for column in columns {
        names.find(column)?;
    }
    let given: std::collections::HashSet<&str> = columns.iter().map(String::as_str).collect();
    if !key.iter().all(|column| given.contains(column)) {
        return invalid(
            "The token() function must be applied to all partition key components or none of them",
        );
    }
    if given.len() < columns.len() {
        return invalid("The token() function contains duplicate partition key components");
    }
    if given.len() > key.len() {
        return invalid("The token() function must contains only partition key components");
    }
    invalid(format!("The token function arguments must be in the partition key order: {}", key.join(", ")))
}
