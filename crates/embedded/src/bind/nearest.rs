//! `ORDER BY … ANN OF`: the rows whose vectors are the nearest to one come first.
//!
//! Texts, and the order of checks, are Cassandra's.

use std::sync::Arc;

use cql::ast;
use engine::{Error, Note, Request, Warnings};
use functions::Similarity;
use schema::{ClusteringOrder, TableDef};
use storage::TableId;

use crate::bind::choice::Choice;
use crate::bind::names::TableNames;
use crate::bind::restrict::{NEEDS_FILTERING, Restrictions};
use crate::bind::term::{Bind, Binder, Given};
use crate::index::vectors::{check_vector, is_of_floats, similarity_of};

/// Rows that one query may request, as in Cassandra.
const LIMIT_MAX: u32 = 1000;

/// Prepared `ORDER BY … ANN OF`.
#[derive(Clone, Debug)]
pub(crate) struct Nearest {
    /// Index in the table's `columns`.
    column: usize,
    similarity: Similarity,
    /// Data of the index.
    data: TableId,
    vector: Bind,
}

/// A search for the nearest vectors, with the values of an execution. It is sent to every core.
#[derive(Clone, Debug)]
pub(crate) struct NearestSearch {
    /// Index in the table's `columns`.
    pub(crate) column: usize,
    pub(crate) similarity: Similarity,
    /// Data of the index.
    pub(crate) data: TableId,
    /// The vector, serialized.
    pub(crate) vector: Arc<[u8]>,
    /// Rows that are requested, 1..=[`LIMIT_MAX`].
    pub(crate) limit: usize,
}

fn invalid<T>(text: &str) -> Result<T, Error> {
    Err(Error::Invalid(text.to_owned()))
}

/// Checks that an ORDER BY has one ANN OF and nothing else, or none.
///
/// # Errors
/// Another ordering, a descending one, or a column that the table does not have.
pub(crate) fn check_ordering(names: &TableNames, select: &ast::Select) -> Result<(), Error> {
    select.order_by.iter().try_for_each(|(name, _)| names.find(name).map(drop))?;
    select.nearest.iter().try_for_each(|nearest| names.find(&nearest.column).map(drop))?;
    match &select.nearest[..] {
        [] => Ok(()),
        [_] if !select.order_by.is_empty() => invalid("ANN ordering does not support any other ordering"),
        [nearest] if nearest.order == ClusteringOrder::Desc => {
            invalid("Descending ANN ordering is not supported")
        }
        [_] => Ok(()),
        _ => invalid("Cannot specify more than one ANN ordering"),
    }
}

/// Binds the ANN OF of a SELECT, if it has one. `is_grouped` if it has aggregates or a GROUP BY.
///
/// # Errors
/// The column has no index on vectors, a restricted column has no index, or the SELECT has another
/// part that Cassandra refuses here.
pub(crate) fn bind(
    names: &TableNames,
    select: &ast::Select,
    restrictions: &Restrictions,
    is_grouped: bool,
    binder: &mut Binder,
) -> Result<Option<Nearest>, Error> {
    let (def, Some(nearest)) = (&names.def, select.nearest.first()) else { return Ok(None) };
    let (column, found) = names.find(&nearest.column)?;
    let vector = binder.bind(&found.name, &found.ty, &nearest.vector)?;
    if restrictions.filters.iter().any(|filter| filter.column == column && filter.is_equality()) {
        return Err(Error::Invalid(format!(
            "{} cannot be restricted by more than one relation if it includes an Equal",
            found.name
        )));
    }
    if !is_of_floats(&found.ty) {
        return invalid("ANN ordering is only supported on float vector indexes");
    }
    let mut indexes = def.indexes.iter().filter(|index| index.column == found.name);
    if indexes.clone().next().is_none() {
        return invalid("ANN ordering by vector requires the column to be indexed");
    }
    let Some((index, similarity)) = indexes.find_map(|index| Some((index, similarity_of(def, index)?)))
    else {
        // As in Cassandra: it has an index without a class.
        return invalid(NEEDS_FILTERING);
    };
    check_indexed(def, restrictions)?;
    if select.distinct {
        return invalid(
            "SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.",
        );
    }
    if select.per_partition_limit.is_some() {
        return invalid("Top-K queries do not support per-partition limits");
    }
    if is_grouped {
        return invalid("Top-K queries can not be run with aggregation");
    }
    Ok(Some(Nearest { column, similarity, data: TableId(index.data.as_u128()), vector }))
}

/// Checks that every restricted column is a part of the key that is given, or has an index.
fn check_indexed(def: &TableDef, restrictions: &Restrictions) -> Result<(), Error> {
    let has_index = |name: &str| def.indexes.iter().any(|index| index.column == name);
    let all_filters = restrictions.filters.iter().all(|filter| has_index(&def.columns[filter.column].name));
    let of_rows = restrictions.chosen() + restrictions.range.len().min(1);
    let of_key = !restrictions.partition.is_empty()
        || def.clustering().take(of_rows).all(|column| has_index(&column.name));
    if !all_filters || !of_key {
        return invalid("ANN ordering by vector requires all restricted column(s) to be indexed");
    }
    if restrictions.partition.iter().any(|choice| !matches!(choice, Choice::One(_))) {
        return invalid("Select on indexed columns and with IN clause for the PRIMARY KEY are not supported");
    }
    Ok(())
}

impl Nearest {
    /// Binds the values of an execution. `limit`: the LIMIT of the statement. Warns of a request
    /// that is answered in another way than it asks for.
    ///
    /// # Errors
    /// There is no LIMIT, or it is too large, or the vector has no direction or is null, or the
    /// request is serial.
    pub(crate) fn bound(
        &self,
        def: &TableDef,
        request: &Request<'_>,
        limit: u32,
    ) -> Result<NearestSearch, Error> {
        match request.consistency {
            level if request.serial => {
                return Err(Error::Invalid(format!(
                    "Top-K queries can only be run with consistency level ONE/LOCAL_ONE. Consistency level {level} was \
                     used."
                )));
            }
            level => Note::downgraded(level).into_iter().for_each(Warnings::add_note),
        }
        if limit == u32::MAX {
            return invalid(
                "Top-K queries must have a limit specified and the limit must be less than the query page size",
            );
        }
        if limit > LIMIT_MAX {
            return Err(Error::Invalid(format!(
                "Use of ANN OF in an ORDER BY clause requires a LIMIT that is not greater than {LIMIT_MAX}. LIMIT \
                 was {limit}"
            )));
        }
        if let Some(page) = request.page_size.filter(|page| *page < limit) {
            // Both are at most LIMIT_MAX.
            Warnings::add_note(Note::PageBelowLimit { page: page as u16, limit: limit as u16 });
        }
        let column = &def.columns[self.column];
        let vector: Arc<[u8]> = match self.vector.get(request.values)? {
            Given::Bytes(bytes) => bytes.as_ref().into(),
            Given::Null => {
                return Err(Error::Invalid(format!("Unsupported null value for column {}", column.name)));
            }
            Given::Unset => {
                return Err(Error::Invalid(format!("Unsupported unset value for column {}", column.name)));
            }
        };
        check_vector(self.similarity, &vector)?;
        Ok(NearestSearch {
            column: self.column,
            similarity: self.similarity,
            data: self.data,
            vector,
            limit: limit as usize,
        })
    }
}
