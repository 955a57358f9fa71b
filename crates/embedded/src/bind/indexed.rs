//! Choice of an index for a SELECT, and the queries that need no ALLOW FILTERING for its sake.
//!
//! Indexes of one value find the rows that all of them name. Without any, an index finds the rows
//! of a range, if partitions are not named. All filters are applied to the rows in any case.
//!
//! As in Cassandra, an index without a class makes ALLOW FILTERING unnecessary for one restriction
//! alone, and storage-attached ones do for any number together.

use std::ops::Bound;

use cql::ast::CompareOp;
use engine::{Error, Value};
use schema::{ColumnKind, CqlType, IndexDef, TableDef};
use storage::TableId;

use crate::bind::choice::Choice;
use crate::bind::filter::{Filter, Test};
use crate::bind::restrict::{NEEDS_FILTERING, Restrictions, is_bound, is_lower};
use crate::bind::sought::Sought;
use crate::index::cursor::{Lookup, Probe};
use crate::index::entry::VALUE_BYTES_MAX;
use crate::index::list::IndexKey;
use crate::index::maintain::term_of;
use crate::index::range::IndexRange;

/// Bytes of a value that an index without a class looks up, at most.
const LOOKUP_BYTES_MAX: usize = 65_535;

/// Indexes that find the rows of a SELECT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IndexUse {
    first: Served,
    /// Other values that the rows have.
    others: Vec<Served>,
    /// True if the entries name rows, and not partitions.
    names_rows: bool,
    /// True if an index that makes ALLOW FILTERING unnecessary is not built.
    is_building: bool,
}

/// An index, and the filter that it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Served {
    /// Index in the table's `indexes`.
    index: usize,
    /// Index in the filters of the restrictions.
    filter: usize,
}

/// Returns true if an index finds the rows that pass a filter, or their range.
fn supports(def: &TableDef, index: &IndexDef, filter: &Filter) -> bool {
    Sought::of(&filter.test).is_some_and(|sought| sought.has_index(index, &def.columns[filter.column]))
}

/// Returns true if an index finds the rows that pass a filter by their values.
fn finds(def: &TableDef, index: &IndexDef, filter: &Filter) -> bool {
    Sought::of(&filter.test) != Some(Sought::Range) && supports(def, index, filter)
}

/// Returns the index to use. `None`: all partitions that the statement names are read.
///
/// # Errors
/// The query needs ALLOW FILTERING.
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
    let is_of_vectors = |filter: &Filter| {
        let column = &def.columns[filter.column];
        matches!(column.ty.thawed(), CqlType::Vector(..))
            && def.indexes.iter().any(|index| index.column == column.name)
    };
    if filters.iter().any(is_of_vectors) {
        return Err(Error::Invalid("Vector indexes only support ANN queries".into()));
    }
    let is_found = |filter: &Filter| def.indexes.iter().any(|index| supports(def, index, filter));
    if filters.iter().any(is_found) {
        check_combination(restrictions, is_ordered)?;
    }
    let is_building = !allow_filtering && !check(def, restrictions)?;
    let usable = || def.indexes.iter().enumerate().filter(|(_, index)| index.is_built || is_building);
    let all_served = |by: fn(&TableDef, &IndexDef, &Filter) -> bool| {
        let served = filters.iter().enumerate().filter_map(move |(filter, test)| {
            // Another index of the column may have other terms.
            let ty = &def.columns[test.column].ty;
            let has_terms = |index: &IndexDef| index.analysis(ty) == test.analysis;
            let (index, _) = usable().find(|(_, index)| by(def, index, test) && has_terms(index))?;
            Some(Served { index, filter })
        });
        served.collect::<Vec<_>>()
    };
    let of_values = all_served(finds);
    // Prefer entries that name rows: they read no others.
    let Some(first) = of_values.iter().copied().min_by_key(|served| !served.names_rows(def)) else {
        // The rows of a named partition are read faster than a range of all.
        let is_found = restrictions.partition.is_empty();
        let ranges = if is_found { all_served(supports) } else { Vec::new() };
        return Ok(ranges.first().map(|&first| {
            let others = Vec::new();
            IndexUse { first, others, names_rows: first.names_rows(def), is_building }
        }));
    };
    let names_rows = first.names_rows(def);
    let others = of_values.into_iter().filter(|other| *other != first && other.names_rows(def) == names_rows);
    Ok(Some(IndexUse { first, others: others.collect(), names_rows, is_building }))
}

/// Has filters compare values as their indexes do. As in Cassandra, an index without a class is
/// preferred if it finds the rows, and changes no value.
pub(crate) fn analyze(def: &TableDef, restrictions: &mut Restrictions) {
    for filter in &mut restrictions.filters {
        let ty = &def.columns[filter.column].ty;
        let used: Vec<_> = def.indexes.iter().filter(|index| supports(def, index, filter)).collect();
        if used.iter().all(|index| index.is_storage_attached()) {
            filter.skips_empty = used.iter().any(|index| index.skips_empty(ty));
            let mut analyses = used.iter().map(|index| index.analysis(ty));
            filter.analysis = analyses.find(|analysis| !analysis.is_none()).unwrap_or_default();
        }
    }
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

/// Checks that indexes support all filters. Returns true if they are built.
fn check(def: &TableDef, restrictions: &Restrictions) -> Result<bool, Error> {
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
    Ok(used.into_iter().all(|index| index.is_built))
}

impl Served {
    /// Returns true if the entries of the index name rows, and not partitions.
    fn names_rows(self, def: &TableDef) -> bool {
        let column = def.column(&def.indexes[self.index].column);
        column.is_some_and(|(_, c)| matches!(c.kind, ColumnKind::Clustering(..) | ColumnKind::Regular))
    }

    fn data(self, def: &TableDef) -> TableId {
        TableId(def.indexes[self.index].data.as_u128())
    }

    /// Returns the value to look up in an execution.
    fn key(
        self,
        def: &TableDef,
        restrictions: &Restrictions,
        values: &[Value<'_>],
    ) -> Result<IndexKey, Error> {
        let filter = &restrictions.filters[self.filter];
        let ty = &def.columns[filter.column].ty;
        let inner = ty.thawed().inner();
        let (mut value, analysis) = (Vec::new(), def.indexes[self.index].analysis(ty));
        let bytes_max =
            if def.indexes[self.index].is_storage_attached() { usize::MAX } else { LOOKUP_BYTES_MAX };
        let mut add = |ty: &CqlType, bind: &crate::bind::term::Bind| match bind.required(values)? {
            bytes if bytes.len() > bytes_max => {
                Err(Error::Invalid("Index expression values may not be larger than 64K".into()))
            }
            bytes => {
                term_of(analysis, ty, &bytes, &mut value);
                Ok(())
            }
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
        let finds_ranges = def.indexes[self.index].finds_ranges(ty);
        Ok(IndexKey::new(self.data(def), &value, finds_ranges))
    }

    /// Returns the range of values in an execution.
    fn range(
        self,
        def: &TableDef,
        restrictions: &Restrictions,
        values: &[Value<'_>],
    ) -> Result<IndexRange, Error> {
        let column = restrictions.filters[self.filter].column;
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        for filter in restrictions.filters.iter().filter(|filter| filter.column == column) {
            let Test::Compare(op, bind) = &filter.test else { continue };
            let mut key = Vec::new();
            let ty = &def.columns[column].ty;
            term_of(def.indexes[self.index].analysis(ty), ty, &bind.required(values)?, &mut key);
            let is_cut = key.len() > VALUE_BYTES_MAX;
            key.truncate(VALUE_BYTES_MAX);
            let bound = match op {
                CompareOp::GreaterEq | CompareOp::LessEq => Bound::Included(key),
                // Entries have the beginning of the value alone.
                CompareOp::Greater | CompareOp::Less if is_cut => Bound::Included(key),
                CompareOp::Greater | CompareOp::Less => Bound::Excluded(key),
                CompareOp::Eq | CompareOp::NotEq => continue,
            };
            *if is_lower(*op) { &mut lower } else { &mut upper } = bound;
        }
        Ok(IndexRange::new(self.data(def), lower, upper))
    }
}

impl IndexUse {
    /// Returns the lookup of an execution.
    ///
    /// # Errors
    /// A value is missing, or too large for an index without a class, or an index is not built.
    pub(crate) fn probe(
        &self,
        def: &TableDef,
        restrictions: &Restrictions,
        values: &[Value<'_>],
    ) -> Result<Probe, Error> {
        if self.is_building {
            return Err(Error::IndexNotAvailable);
        }
        let key = |served: &Served| served.key(def, restrictions, values);
        let lookup = match restrictions.filters[self.first.filter].test {
            Test::Compare(op, _) if is_bound(op) => {
                Lookup::Range(self.first.range(def, restrictions, values)?)
            }
            _ => Lookup::Values(key(&self.first)?, self.others.iter().map(key).collect::<Result<_, _>>()?),
        };
        Ok(Probe { lookup, names_rows: self.names_rows })
    }
}
