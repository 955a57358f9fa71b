//! Restrictions of the columns of a WHERE, merged as Cassandra merges them: a column takes one `=`
//! or `IN`, or one lower and one upper bound, and any number of CONTAINS.

use std::collections::BTreeMap;

use engine::Error;
use schema::TableDef;

use super::restriction::{Kind, Restriction};
use super::{Purpose, is_lower};
use crate::bind::tuple::SliceBound;

/// Merged restrictions.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    def: &'a TableDef,
    purpose: Purpose,
    all: Vec<Restriction>,
    /// Restriction of each column, as its index in `all`.
    of_columns: BTreeMap<usize, usize>,
}

impl<'a> Merged<'a> {
    /// Returns no restrictions of the columns of a table.
    pub(super) fn new(def: &'a TableDef, purpose: Purpose) -> Merged<'a> {
        Merged { def, purpose, all: Vec::new(), of_columns: BTreeMap::new() }
    }

    /// Returns true if an index supports a restriction. Writes use no indexes.
    fn finds(&self, restriction: &Restriction) -> bool {
        self.purpose.write().is_none() && restriction.has_index(self.def)
    }

    /// Adds a restriction.
    ///
    /// # Errors
    /// It cannot be combined with an earlier one.
    pub(super) fn add(&mut self, new: Restriction) -> Result<(), Error> {
        let (first, is_slice) = (new.columns.start, matches!(new.kind, Kind::Bounds(_)));
        let last = self.last_clustering().filter(|_| !self.purpose.allows_filtering() && !self.finds(&new));
        let mut known: Vec<usize> = self.of_columns.range(new.columns.clone()).map(|(_, at)| *at).collect();
        known.dedup();
        let columns = new.columns.clone();
        let at = match known[..] {
            [] => {
                self.all.push(new);
                self.all.len() - 1
            }
            [at] => {
                let common = self.common(&self.all[at], &new);
                merge(self.def, &mut self.all[at], new, &common)?;
                at
            }
            // Two restrictions of adjacent columns cannot both be combined with a third.
            [first, second, ..] => {
                for at in [first, second] {
                    let common = self.common(&self.all[at], &new);
                    check(self.def, &self.all[at], &new, &common)?;
                }
                return Err(Error::Server("overlapping restrictions are merged".into()));
            }
        };
        let clustering = self.clustering();
        let slices = last.filter(|_| clustering.contains(&first));
        let name = |at: usize| &self.def.columns[at].name;
        if let Some((last, last_is_slice)) = slices {
            if last_is_slice && first > last {
                return Err(Error::Invalid(format!(
                    "Clustering column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a \
                     non-EQ relation)",
                    name(first),
                    name(last)
                )));
            }
            let next = self.of_columns.range(first + 1..).map(|(column, _)| *column).next();
            if is_slice
                && first < last
                && let Some(next) = next
            {
                return Err(Error::Invalid(format!(
                    "PRIMARY KEY column \"{}\" cannot be restricted (preceding column \"{}\" is restricted by a \
                     non-EQ relation)",
                    name(next),
                    name(first)
                )));
            }
        }
        self.of_columns.extend(columns.map(|column| (column, at)));
        Ok(())
    }

    /// Returns the first column of the last restriction of clustering columns, and true if it is a
    /// slice.
    fn last_clustering(&self) -> Option<(usize, bool)> {
        let (_, at) = self.of_columns.range(self.clustering()).next_back()?;
        let last = &self.all[*at];
        Some((last.columns.start, matches!(last.kind, Kind::Bounds(_))))
    }

    fn clustering(&self) -> std::ops::Range<usize> {
        let partition = self.def.partition_key().count();
        partition..partition + self.def.clustering().count()
    }

    fn of(&self, column: usize) -> Option<&Restriction> {
        self.of_columns.get(&column).map(|at| &self.all[*at])
    }

    /// Returns true if the column is restricted.
    pub(super) fn is_restricted(&self, column: usize) -> bool {
        self.of_columns.contains_key(&column)
    }

    /// Returns true if the values of the column are given.
    pub(super) fn is_chosen(&self, column: usize) -> bool {
        self.of(column).is_some_and(|restriction| matches!(restriction.kind, Kind::Choice(_)))
    }

    /// Returns true if the column is restricted by CONTAINS.
    pub(super) fn is_contained(&self, column: usize) -> bool {
        self.of(column).is_some_and(|restriction| matches!(restriction.kind, Kind::Contains(_)))
    }

    /// Returns true if an index supports one of the restrictions.
    pub(super) fn has_index(&self) -> bool {
        self.all.iter().any(|restriction| self.finds(restriction))
    }

    /// Returns the names of the columns that two restrictions share.
    fn common(&self, one: &Restriction, other: &Restriction) -> String {
        let columns = one.columns.clone().filter(|column| other.columns.contains(column));
        columns.map(|column| self.def.columns[column].name.as_str()).collect::<Vec<_>>().join(" ,")
    }

    /// Returns the columns from `first` on that are restricted, in their order.
    pub(super) fn restricted_from(&self, first: usize) -> impl Iterator<Item = usize> {
        self.of_columns.range(first..).map(|(column, _)| *column)
    }

    /// Returns the restrictions in the order of their first columns.
    pub(super) fn into_sorted(mut self) -> Vec<Restriction> {
        self.all.sort_by_key(|restriction| restriction.columns.start);
        self.all
    }
}

/// Checks that two restrictions can be combined.
fn check(def: &TableDef, old: &Restriction, new: &Restriction, common: &str) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::Invalid(text));
    match (&old.kind, &new.kind) {
        (Kind::Choice(choice), _) => {
            let kind = if choice.is_one() { "an Equal" } else { "a IN" };
            invalid(format!("{common} cannot be restricted by more than one relation if it includes {kind}"))
        }
        (Kind::Bounds(bounds), Kind::Bounds(others)) => {
            if old.columns.start != new.columns.start {
                let column = old.columns.start.max(new.columns.start);
                return invalid(format!(
                    "Column \"{}\" cannot be restricted by two inequalities not starting with the same column",
                    def.columns[column].name
                ));
            }
            for (is_start, bound) in [(true, "start"), (false, "end")] {
                let has = |bounds: &[SliceBound]| bounds.iter().any(|bound| is_lower(bound.op) == is_start);
                if has(bounds) && has(others) {
                    return invalid(format!(
                        "More than one restriction was found for the {bound} bound on {common}"
                    ));
                }
            }
            Ok(())
        }
        (Kind::Bounds(_), _) => invalid(format!(
            "Column \"{common}\" cannot be restricted by both an equality and an inequality relation"
        )),
        (Kind::Contains(_), Kind::Contains(_)) => Ok(()),
        (Kind::Contains(_), _) => invalid(format!(
            "Collection column {common} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
        )),
    }
}

/// Merges a restriction into an earlier one of the same columns.
fn merge(def: &TableDef, old: &mut Restriction, new: Restriction, common: &str) -> Result<(), Error> {
    check(def, old, &new, common)?;
    old.is_tuple |= new.is_tuple;
    old.columns.end = old.columns.end.max(new.columns.end);
    match (&mut old.kind, new.kind) {
        (Kind::Bounds(bounds), Kind::Bounds(more)) => bounds.extend(more),
        (Kind::Contains(tests), Kind::Contains(more)) => tests.extend(more),
        _ => unreachable!("checked above"),
    }
    Ok(())
}
