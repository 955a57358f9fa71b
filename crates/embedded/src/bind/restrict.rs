//! WHERE clauses, sorted by the use of each relation: to name partitions, to choose and to bound
//! clustering keys, or to filter rows.
//!
//! 1. Each relation becomes a [`Restriction`] of one column or of several, in the order of the
//!    statement.
//! 2. Restrictions of the same columns are merged ([`merge::Merged`]).
//! 3. The statement's rules for partition keys, clustering keys and other columns are checked.
//! 4. Choices of all partition key columns name partitions. Choices of the first clustering
//!    columns, and bounds on those after them, become ranges of clustering keys. All others filter
//!    rows.
//!
//! Texts and their order are Cassandra's. The result is bounded by the columns and the length of
//! the statement.

mod merge;
mod restriction;

use cql::ast::{CompareOp, Relation};
use engine::Error;
use schema::{CqlType, TableDef};

use crate::bind::choice::{Choice, Cost, plus, times};
use crate::bind::filter::{Filter, Test};
use crate::bind::names::TableNames;
use crate::bind::term::{Bind, Binder};
use crate::bind::tuple::SliceBound;
use merge::Merged;
use restriction::{Kind, Restriction, Tokens};

/// A bound on tokens.
pub(crate) type TokenBound = (CompareOp, Bind);

/// Prepared WHERE clause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Restrictions {
    /// Values of each partition key column; empty if the statement names no partition.
    pub(crate) partition: Vec<Choice>,
    /// Values of a prefix of the clustering columns.
    pub(crate) clustering: Vec<Choice>,
    /// Bounds on the clustering columns after that prefix: at most one lower and one upper one.
    pub(crate) range: Vec<SliceBound>,
    /// Bounds on the token.
    pub(crate) tokens: Vec<TokenBound>,
    /// All other relations.
    pub(crate) filters: Vec<Filter>,
}

/// Statement of a WHERE clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// SELECT. With `statics` alone it selects static columns and parts of the partition key.
    Select { statics: bool, allow_filtering: bool },
    /// SELECT from a virtual table: every relation is a filter.
    Virtual,
    /// UPDATE. With `statics` alone it changes and tests static columns.
    Update { statics: bool },
    /// DELETE. With `statics` alone it deletes and tests static columns.
    Delete { statics: bool },
}

/// Cassandra's text for a SELECT that needs ALLOW FILTERING.
pub(crate) const NEEDS_FILTERING: &str = "Cannot execute this query as it might involve data \
    filtering and thus may have unpredictable performance. If you want to execute this query despite \
    the performance unpredictability, use ALLOW FILTERING";

impl Restrictions {
    /// Returns true if a key column has an IN, or if bounds are tuples, which may be several
    /// slices: the rows and slices of each execution are then counted first.
    pub(crate) fn has_in(&self) -> bool {
        self.partition.iter().chain(&self.clustering).any(|choice| !choice.is_one())
            || self.range.iter().any(|bound| bound.value.width() > 1)
    }

    /// Returns true if keys of rows, or bounds on them, are given.
    pub(crate) fn names_rows(&self) -> bool {
        !self.clustering.is_empty() || !self.range.is_empty()
    }

    /// Returns the number of clustering columns whose values are given.
    pub(crate) fn chosen(&self) -> usize {
        self.clustering.iter().map(Choice::width).sum()
    }

    /// Returns true if the key column with this index is restricted by `=`.
    pub(crate) fn is_equal(&self, def: &TableDef, column: usize) -> bool {
        let partition = def.partition_key().count();
        let (choices, mut last) = match column < partition {
            true => (&self.partition, 0),
            false => (&self.clustering, partition),
        };
        for choice in choices {
            last += choice.width();
            if column < last {
                return choice.is_one();
            }
        }
        self.filters.iter().any(|filter| filter.column == column && filter.is_equality())
    }

    /// Returns the number of slices that one execution reads or deletes in each partition, and
    /// their bytes, from the lengths of the values alone.
    ///
    /// # Errors
    /// Returns an error if a count overflows.
    pub(crate) fn slices(&self, def: &TableDef, values: &[engine::Value<'_>]) -> Result<Cost, Error> {
        let prefixes = Cost::of(&self.clustering, values)?;
        let (mut count, mut bytes) = (1, 0);
        for bound in &self.range {
            let ranges = bound.ranges(def, self.chosen());
            count = plus(count, ranges - 1)?;
            bytes = plus(bytes, times(ranges, bound.value.size(values))?)?;
        }
        let bytes = plus(times(prefixes.bytes, count)?, times(prefixes.count, bytes)?)?;
        Ok(Cost { count: times(prefixes.count, count)?, bytes })
    }

    /// Returns the number of constants in INs.
    pub(crate) fn listed(&self) -> usize {
        self.choices().map(Choice::listed).sum()
    }

    /// Returns true if an IN, of a key column or another, has a list that comes with the request.
    pub(crate) fn has_lists(&self) -> bool {
        self.choices().any(Choice::is_listed)
    }

    fn choices(&self) -> impl Iterator<Item = &Choice> {
        let of_filters = self.filters.iter().filter_map(|filter| match &filter.test {
            Test::In(choice) => Some(choice),
            _ => None,
        });
        self.partition.iter().chain(&self.clustering).chain(of_filters)
    }
}

/// Returns true for a lower bound.
pub(crate) fn is_lower(op: CompareOp) -> bool {
    matches!(op, CompareOp::Greater | CompareOp::GreaterEq)
}

/// Prepares the relations of a WHERE over a table.
pub(crate) fn restrict(
    names: &TableNames,
    relations: &[Relation],
    binder: &mut Binder,
    purpose: Purpose,
) -> Result<Restrictions, Error> {
    let def = &names.def;
    let (mut merged, mut tokens) = (Merged::new(def, purpose), Tokens::default());
    for relation in relations {
        let contains = match relation {
            Relation::Contains { .. } => Some("CONTAINS"),
            Relation::ContainsKey { .. } => Some("CONTAINS KEY"),
            _ => None,
        };
        if let (Some(contains), Some(write)) = (contains, purpose.write()) {
            return Err(Error::Invalid(format!("Cannot use {write} with {contains}")));
        }
        match relation {
            Relation::Token { columns, op, value } => {
                tokens.add(names, columns, *op, value, relation, binder)?
            }
            _ => merged.add(Restriction::of(names, relation, binder)?)?,
        }
    }
    let mut out = Restrictions { tokens: tokens.bounds, ..Restrictions::default() };
    if purpose == Purpose::Virtual {
        merged.into_sorted().into_iter().try_for_each(|restriction| restriction.filter(&mut out.filters))?;
        return Ok(out);
    }
    let may_filter = purpose.allows_filtering() || merged.has_index();
    let checks = Checks { def, merged: &merged, purpose, may_filter };
    checks.partition_key(!out.tokens.is_empty())?;
    checks.clustering_key()?;
    checks.others()?;
    sort(def, merged, &mut out).map_err(|error| match purpose {
        // A restriction that cannot be a filter needs filtering all the same.
        Purpose::Select { allow_filtering: false, .. } => Error::Invalid(NEEDS_FILTERING.into()),
        _ => error,
    })?;
    Ok(out)
}

/// Sorts restrictions by their use.
fn sort(def: &TableDef, merged: Merged<'_>, out: &mut Restrictions) -> Result<(), Error> {
    let partition = def.partition_key().count();
    let clustering = partition + def.clustering().count();
    let is_named = (0..partition).all(|column| merged.is_chosen(column));
    // An index finds the rows of all partitions with a value of a clustering column.
    let has_index = |column: usize| def.indexes.iter().any(|index| index.column == def.columns[column].name);
    // The first clustering column whose values are not given.
    let mut next = partition;
    // Restrictions are in the order of their first columns.
    for restriction in merged.into_sorted() {
        let first = restriction.columns.start;
        let is_of_slice = (partition..clustering).contains(&first)
            && first == next
            && (is_named || !restriction.can_filter() || !restriction.columns.clone().any(has_index));
        match restriction.kind {
            Kind::Choice(choice) if first < partition && is_named => out.partition.push(choice),
            Kind::Choice(choice) if is_of_slice => {
                next = restriction.columns.end;
                out.clustering.push(choice);
            }
            Kind::Bounds(bounds) if is_of_slice => out.range = bounds,
            kind => Restriction { kind, ..restriction }.filter(&mut out.filters)?,
        }
    }
    Ok(())
}

impl Purpose {
    fn allows_filtering(self) -> bool {
        matches!(self, Purpose::Select { allow_filtering: true, .. } | Purpose::Virtual)
    }

    /// Returns the name of a statement that writes. `None` for a SELECT.
    fn write(self) -> Option<&'static str> {
        match self {
            Purpose::Select { .. } | Purpose::Virtual => None,
            Purpose::Update { .. } => Some("UPDATE"),
            Purpose::Delete { .. } => Some("DELETE"),
        }
    }

    /// Returns true if it is about static columns alone.
    fn is_of_statics(self) -> bool {
        matches!(
            self,
            Purpose::Select { statics: true, .. }
                | Purpose::Update { statics: true }
                | Purpose::Delete { statics: true }
        )
    }
}

/// Rules of a statement for its restrictions.
struct Checks<'a> {
    def: &'a TableDef,
    merged: &'a Merged<'a>,
    purpose: Purpose,
    /// True with ALLOW FILTERING, or if an index supports a restriction: the choice of the index
    /// then decides what needs ALLOW FILTERING.
    may_filter: bool,
}

impl Checks<'_> {
    fn partition_key(&self, has_tokens: bool) -> Result<(), Error> {
        let columns = 0..self.def.partition_key().count();
        let is_chosen = |column: usize| self.merged.is_chosen(column);
        let is_restricted = |column: &usize| self.merged.is_restricted(*column);
        let Some(write) = self.purpose.write() else {
            let needs_filtering =
                columns.clone().any(|at| is_restricted(&at)) && !columns.clone().all(is_chosen);
            return match needs_filtering && !self.may_filter {
                true => Err(Error::Invalid(NEEDS_FILTERING.into())),
                false => Ok(()),
            };
        };
        // As in Cassandra, bounds on tokens may stand beside the whole key.
        if has_tokens && !columns.clone().all(|at| is_restricted(&at)) {
            return Err(Error::Invalid(format!(
                "The token function cannot be used in WHERE clauses for {write} statements"
            )));
        }
        if !columns.clone().all(|at| is_restricted(&at)) {
            let missing = self.unrestricted(columns);
            return Err(Error::Invalid(format!("Some partition key parts are missing: {missing}")));
        }
        if !columns.clone().all(is_chosen) {
            return Err(Error::Invalid(format!(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function) \
                 for {write} statements"
            )));
        }
        Ok(())
    }

    fn clustering_key(&self) -> Result<(), Error> {
        let partition = self.def.partition_key().count();
        let columns = partition..partition + self.def.clustering().count();
        let is_restricted = |column: &usize| self.merged.is_restricted(*column);
        if self.purpose.is_of_statics() && columns.clone().any(|at| is_restricted(&at)) {
            return Err(Error::Invalid(match self.purpose.write() {
                Some(write) => format!(
                    "Invalid restrictions on clustering columns since the {write} statement modifies only static \
                     columns"
                ),
                None => "Cannot restrict clustering columns when selecting only static columns".into(),
            }));
        }
        if let Purpose::Update { statics } = self.purpose {
            if columns.clone().any(|at| is_restricted(&at) && !self.merged.is_chosen(at)) {
                return Err(Error::Invalid(
                    "Slice restrictions are not supported on the clustering columns in UPDATE statements"
                        .into(),
                ));
            }
            if !statics && !columns.clone().all(|at| is_restricted(&at)) {
                let missing = self.unrestricted(columns);
                return Err(Error::Invalid(format!("Some clustering keys are missing: {missing}")));
            }
            return Ok(());
        }
        if self.may_filter {
            return Ok(());
        }
        if columns.clone().any(|at| self.merged.is_contained(at)) {
            return Err(Error::Invalid(
                "Clustering columns can only be restricted with CONTAINS with a secondary index or filtering"
                    .into(),
            ));
        }
        let name = |at: usize| &self.def.columns[at].name;
        let gap =
            columns.clone().zip(columns.filter(is_restricted)).find(|(at, restricted)| at != restricted);
        match gap {
            Some((skipped, restricted)) => Err(Error::Invalid(format!(
                "PRIMARY KEY column \"{}\" cannot be restricted as preceding column \"{}\" is not restricted",
                name(restricted),
                name(skipped)
            ))),
            None => Ok(()),
        }
    }

    fn others(&self) -> Result<(), Error> {
        let keys = self.def.partition_key().count() + self.def.clustering().count();
        let others = self.merged.restricted_from(keys);
        let mut names: Vec<&str> = others.map(|at| self.def.columns[at].name.as_str()).collect();
        if names.is_empty() || self.may_filter {
            return Ok(());
        }
        names.sort_unstable();
        Err(Error::Invalid(match self.purpose.write() {
            Some(_) => format!("Non PRIMARY KEY columns found in where clause: {} ", names.join(", ")),
            None => NEEDS_FILTERING.into(),
        }))
    }

    fn unrestricted(&self, columns: std::ops::Range<usize>) -> String {
        let columns = columns.filter(|at| !self.merged.is_restricted(*at));
        columns.map(|at| self.def.columns[at].name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Returns Cassandra's name for a type with durations, which have no order. `None`: it has none.
pub(crate) fn with_duration(ty: &CqlType) -> Option<&'static str> {
    ty.mentions(&CqlType::Duration).then(|| match ty.thawed() {
        CqlType::Tuple(_) => "tuples containing durations",
        CqlType::Udt(_) => "UDTs containing durations",
        ty if ty.is_collection() => "collections containing durations",
        _ => "durations",
    })
}

/// Returns the CQL operator of a comparison.
pub(crate) fn sign(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "=",
        CompareOp::NotEq => "!=",
        CompareOp::Less => "<",
        CompareOp::LessEq => "<=",
        CompareOp::Greater => ">",
        CompareOp::GreaterEq => ">=",
    }
}

/// Returns true for a comparison that bounds a value.
pub(crate) fn is_bound(op: CompareOp) -> bool {
    !matches!(op, CompareOp::Eq | CompareOp::NotEq)
}
