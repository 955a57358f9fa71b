//! Choice of an index for a SELECT, and the queries that need no ALLOW FILTERING for its sake.
//!
//! One index finds the rows, and all filters are applied to them. Other indexes of the query only
//! decide about ALLOW FILTERING, as in Cassandra: an index without a class serves one restriction
//! alone, storage-attached ones serve any number together. Ranges are filters.

use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{ColumnKind, CqlType, IndexDef, IndexedPart, TableDef};
use storage::TableId;

use crate::bind::choice::Choice;
use crate::bind::filter::{Filter, Test};
use crate::bind::restrict::{NEEDS_FILTERING, Restrictions, is_bound};
use crate::index::cursor::Probe;
use crate::index::maintain::key_of;

/// Index that finds the rows of a SELECT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexUse {
    /// Index in the table's `indexes`.
    index: usize,
    /// Index in the filters of the restrictions.
    filter: usize,
}

/// Returns true if an index finds the rows that pass a filter.
fn finds(def: &TableDef, index: &IndexDef, filter: &Filter) -> bool {
    let is_equality = matches!(filter.test, Test::Compare(CompareOp::Eq, _));
    def.columns[filter.column].name == index.column
        && match index.part {
            IndexedPart::Value | IndexedPart::Full => is_equality,
            IndexedPart::Values => matches!(filter.test, Test::Contains(_)),
            IndexedPart::Keys => matches!(filter.test, Test::ContainsKey(_)),
            IndexedPart::Entries => matches!(filter.test, Test::Entry(..)),
        }
}

/// Returns true if Cassandra's index of this class and column supports a filter.
fn supports(def: &TableDef, index: &IndexDef, filter: &Filter) -> bool {
    let column = &def.columns[filter.column];
    let is_range = matches!(filter.test, Test::Compare(op, _) if is_bound(op));
    let has_order = !matches!(column.ty, CqlType::Text | CqlType::Ascii | CqlType::Boolean);
    finds(def, index, filter)
        || is_range
            && has_order
            && index.column == column.name
            && index.part == IndexedPart::Value
            && index.is_storage_attached()
}

/// Returns the index to use. `None`: all partitions that the statement names are read.
///
/// # Errors
/// The query needs ALLOW FILTERING, or the index that makes it unnecessary is not built.
pub(crate) fn choose(
    def: &TableDef,
    restrictions: &Restrictions,
    allow_filtering: bool,
    is_ordered: bool,
) -> Result<Option<IndexUse>, Error> {
    let filters = &restrictions.filters;
    if filters.is_empty() {
        return Ok(None);
    }
    let is_found = |filter: &Filter| def.indexes.iter().any(|index| supports(def, index, filter));
    if filters.iter().any(is_found) {
        check_combination(restrictions, is_ordered)?;
    }
    if !allow_filtering {
        check(def, restrictions)?;
    }
    let usable = def.indexes.iter().enumerate().filter(|(_, index)| index.is_built);
    let uses = usable.filter_map(|(at, index)| {
        let filter = filters.iter().position(|filter| finds(def, index, filter))?;
        Some(IndexUse { index: at, filter })
    });
    // Prefer entries that name rows: they read no others.
    Ok(uses.min_by_key(|found| !found.names_rows(def)))
}

/// Refuses what Cassandra refuses together with an index.
fn check_combination(restrictions: &Restrictions, is_ordered: bool) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
    if restrictions.partition.iter().any(|choice| !matches!(choice, Choice::One(_))) {
        return invalid("Select on indexed columns and with IN clause for the PRIMARY KEY are not supported");
    }
    match is_ordered {
        true => invalid("ORDER BY with 2ndary indexes is not supported, except for ANN queries."),
        false => Ok(()),
    }
}

/// Checks that indexes support all filters, and that they are built.
fn check(def: &TableDef, restrictions: &Restrictions) -> Result<(), Error> {
    let filters = &restrictions.filters;
    // As in Cassandra: behind a gap, all restrictions of clustering columns need an index.
    let is_clustering = |column: usize| matches!(def.columns[column].kind, ColumnKind::Clustering(..));
    let has_gap = restrictions.names_rows() && filters.iter().any(|filter| is_clustering(filter.column));
    let named = restrictions.clustering.len() + usize::from(!restrictions.range.is_empty());
    let of_rows = def.clustering().take(if has_gap { named } else { 0 });
    let mut of_rows = of_rows.map(|column| {
        def.indexes.iter().any(|index| index.column == column.name && index.is_storage_attached())
    });
    if !of_rows.all(|is_indexed| is_indexed) {
        return Err(Error::Invalid(NEEDS_FILTERING.into()));
    }
    let of_class = |sai: bool| def.indexes.iter().filter(move |index| index.is_storage_attached() == sai);
    let supported = |sai: bool| {
        let found = filters.iter().map(|filter| of_class(sai).find(|index| supports(def, index, filter)));
        found.collect::<Option<Vec<_>>>()
    };
    let used = match supported(true) {
        Some(used) => used,
        None => supported(false)
            .filter(|used| used.len() == 1 && !has_gap)
            .ok_or_else(|| Error::Invalid(NEEDS_FILTERING.into()))?,
    };
    match used.into_iter().find(|index| !index.is_built) {
        Some(index) => Err(Error::Invalid(format!(
            "The secondary index '{}' is not yet available as it is building",
            index.name
        ))),
        None => Ok(()),
    }
}

impl IndexUse {
    /// Returns true if the entries of the index name rows, and not partitions.
    fn names_rows(self, def: &TableDef) -> bool {
        let column = def.column(&def.indexes[self.index].column);
        column.is_some_and(|(_, c)| matches!(c.kind, ColumnKind::Clustering(..) | ColumnKind::Regular))
    }

    /// Returns the value to look up in an execution.
    pub(crate) fn probe(
        self,
        def: &TableDef,
        restrictions: &Restrictions,
        values: &[Value<'_>],
    ) -> Result<Probe, Error> {
        let filter = &restrictions.filters[self.filter];
        let ty = &def.columns[filter.column].ty;
        let inner = ty.thawed().inner();
        let mut value = Vec::new();
        let mut add = |ty: &CqlType, bind: &crate::bind::term::Bind| {
            bind.required(values).map(|bytes| key_of(ty, &bytes, &mut value))
        };
        match (&filter.test, &inner[..]) {
            (Test::Compare(_, bind), _) => add(ty, bind)?,
            (Test::Contains(bind), [.., of]) => add(of, bind)?,
            (Test::ContainsKey(bind), [of, ..]) => add(of, bind)?,
            (Test::Entry(key, bind), [of_keys, of]) => {
                add(of_keys, key)?;
                add(of, bind)?;
            }
            _ => return Err(Error::Server("an index was chosen for a filter of another kind".into())),
        }
        let data = TableId(def.indexes[self.index].data.as_u128());
        Ok(Probe::new(data, value, self.names_rows(def)))
    }
}
