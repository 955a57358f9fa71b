//! Columns of a result: plain columns, expressions over a row, or expressions over groups of rows.
//!
//! A row of the result is formed in one of three ways, from the cheapest to the dearest:
//!
//! - [`Projection::Rows`]: each column is a column of the table, or a part or property of one.
//! - [`Projection::Computed`]: at least one column is another expression.
//! - [`Projection::Groups`]: there are aggregates, or a `GROUP BY`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cql::ast::{self, SelectExpr, Selection};
use engine::{ColumnSpec, Columns, Error, METADATA_BYTES_MAX, Value};
use schema::{ColumnDef, ColumnKind, CqlType, TableDef};
use storage::{PartitionView, RowView};

use crate::bind::expression::groups::{Call, GroupBy, Groups};
use crate::bind::expression::operand::{Building, Operand};
use crate::bind::expression::{Computed, Expr, Leaf};
use crate::bind::mask::Masks;
use crate::bind::names::TableNames;
use crate::bind::restrict::Restrictions;
use crate::bind::show::{RowSource, Show, Shows};
use crate::bind::term::Binder;
use crate::bind::term::operand::Moment;

/// Columns of a result.
#[derive(Clone, Debug)]
pub(crate) enum Projection {
    /// Columns of each row, and parts of them.
    Rows(Shows),
    /// Expressions over each row.
    Computed(Computed),
    /// Expressions over groups of rows.
    Groups(Box<Groups>),
}

/// Bytes of a computed value that is not a part of the row.
const COMPUTED_BYTES: usize = 64;

impl Projection {
    /// Returns the number of columns and expressions that are evaluated for each row.
    pub(crate) fn width(&self) -> usize {
        match self {
            Projection::Rows(shows) => shows.len(),
            Projection::Computed(computed) => computed.weight,
            Projection::Groups(groups) => groups.weight,
        }
    }

    /// Returns the groups, if rows are grouped.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        match self {
            Projection::Groups(groups) => Some(groups),
            _ => None,
        }
    }

    /// Returns the groups, if all rows of the query are one group.
    pub(crate) fn group_of_all(&self) -> Option<&Groups> {
        self.groups().filter(|groups| groups.by.is_none())
    }

    /// Returns true if it shows static columns.
    pub(crate) fn shows_statics(&self, def: &TableDef) -> bool {
        match self {
            Projection::Rows(shows) => shows.iter().any(|show| show.is_static(def)),
            Projection::Computed(computed) => computed.shows_statics(def),
            Projection::Groups(groups) => groups.shows_statics(def),
        }
    }

    /// Returns true if it depends on the values of an execution, or on its time.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Projection::Rows(shows) => shows.iter().any(Show::is_open),
            Projection::Computed(_) | Projection::Groups(_) => true,
        }
    }

    /// Binds the values of an execution, whose calls have one time.
    pub(crate) fn bound(&self, values: &[Value<'_>]) -> Result<Projection, Error> {
        let moment = Moment::now();
        Ok(match self {
            Projection::Rows(shows) => Projection::Rows(shows.bound(values)?),
            Projection::Computed(computed) => Projection::Computed(computed.bound(values, moment)?),
            Projection::Groups(groups) => Projection::Groups(Box::new(groups.bound(values, moment)?)),
        })
    }

    /// Returns true if the values of a row have about `limit` bytes at most, judging by the sizes
    /// of the row and of the static cells.
    #[inline]
    pub(crate) fn fits(&self, source: &RowSource<'_>, limit: usize) -> bool {
        let (weight, leaves) = match self {
            Projection::Rows(shows) => return shows.fits(source, limit),
            Projection::Computed(computed) => (computed.weight, computed.leaves),
            Projection::Groups(groups) => (groups.weight, groups.leaves),
        };
        let row = source.row.map_or(0, RowView::bytes) + source.view.map_or(0, PartitionView::static_bytes);
        let stored = row.saturating_mul(4) + source.key.len();
        stored.saturating_mul(leaves).saturating_add(weight * COMPUTED_BYTES) <= limit
    }
}

/// Builds the columns of one result, which share the table's names.
struct Specs {
    keyspace: Arc<str>,
    table: Arc<str>,
}

impl Specs {
    fn of(def: &TableDef) -> Specs {
        Specs { keyspace: def.keyspace.as_str().into(), table: def.name.as_str().into() }
    }

    fn spec(&self, name: String, ty: CqlType) -> ColumnSpec {
        ColumnSpec { keyspace: self.keyspace.clone(), table: self.table.clone(), name, ty }
    }
}

/// Selectors of a SELECT, before they are grouped.
#[derive(Clone)]
pub(crate) struct Selected {
    shown: Vec<Expr>,
    aggregates: Vec<Call>,
    pub(crate) columns: Columns,
}

/// Prepares the selectors of a SELECT.
pub(crate) fn selected(
    names: &TableNames,
    selection: &Selection,
    binder: &mut Binder,
) -> Result<Selected, Error> {
    let def = &names.def;
    let specs = Specs::of(def);
    let Selection::Selectors(selectors) = selection else {
        let describe = |c: &ColumnDef| binder.describe(&c.name, c.ty.description_bytes(METADATA_BYTES_MAX));
        def.columns.iter().try_for_each(describe)?;
        let columns = def.columns.iter().map(|c| specs.spec(c.name.clone(), c.ty.clone())).collect();
        let show = |(at, column)| Expr::Leaf(Leaf::Show(Show::column(at, column)));
        let shown = def.columns.iter().enumerate().map(show).collect();
        return Ok(Selected { shown, aggregates: Vec::new(), columns });
    };
    let types = binder.types().clone();
    let mut building = Building { names, binder, aggregates: Vec::new(), is_in_aggregate: false };
    let mut shown = Vec::with_capacity(selectors.len());
    let mut columns = Vec::with_capacity(selectors.len());
    // Bytes that describe the type of each column: it may be shown thousands of times.
    let mut described: HashMap<&str, usize> = HashMap::new();
    for selector in selectors {
        let operand = Operand::of(&types, names, &selector.expr)?;
        let (expr, ty) = operand.build(&mut building, None)?;
        let label = selector.alias.clone().unwrap_or_else(|| operand.label());
        let count = || ty.description_bytes(METADATA_BYTES_MAX);
        let type_bytes = match &selector.expr {
            SelectExpr::Column(name) => *described.entry(name).or_insert_with(count),
            _ => count(),
        };
        building.binder.describe(&label, type_bytes)?;
        shown.push(expr);
        columns.push(specs.spec(label, ty));
    }
    Ok(Selected { shown, aggregates: building.aggregates, columns: columns.into() })
}

impl Selected {
    /// Returns the selectors for roles that see masked columns through their masks. `None`: no
    /// selector reads one.
    pub(crate) fn masked(&self, masks: &Masks<'_>) -> Option<Selected> {
        let mut masked = self.clone();
        let mut differs = false;
        for expr in &mut masked.shown {
            differs |= masks.apply(expr);
        }
        for call in &mut masked.aggregates {
            differs |= call.arguments.replace(|expr| masks.apply(expr));
        }
        differs.then_some(masked)
    }

    /// Returns the projection, with the groups of a `GROUP BY` if there are some.
    pub(crate) fn projection(self, def: &TableDef, by: Option<GroupBy>) -> Projection {
        if by.is_some() || !self.aggregates.is_empty() {
            return Projection::Groups(Box::new(Groups::new(self.shown, self.aggregates, by)));
        }
        let is_show = |expr: &Expr| matches!(expr, Expr::Leaf(Leaf::Show(_)));
        if !self.shown.iter().all(is_show) {
            return Projection::Computed(Computed::new(self.shown));
        }
        let show = |expr| match expr {
            Expr::Leaf(Leaf::Show(show)) => show,
            _ => unreachable!("all of them were checked"),
        };
        Projection::Rows(Shows::new(def, self.shown.into_iter().map(show).collect()))
    }
}

/// Returns the projection of parts of columns, behind the masks of their columns.
pub(crate) fn masked_rows(masks: &Masks<'_>, shows: Vec<Show>) -> Projection {
    let mut shown: Vec<Expr> = shows.into_iter().map(|show| Expr::Leaf(Leaf::Show(show))).collect();
    for expr in &mut shown {
        masks.apply(expr);
    }
    Projection::Computed(Computed::new(shown))
}

/// Prepares a `GROUP BY`. `None`: there is none.
///
/// # Errors
/// The groups are not a prefix of the primary key, with the whole partition key. Columns that an
/// `=` restricts may be left out.
pub(crate) fn group_by(
    names: &TableNames,
    select: &ast::Select,
    restrictions: &Restrictions,
    binder: &mut Binder,
) -> Result<Option<GroupBy>, Error> {
    if select.group_by.is_empty() {
        return Ok(None);
    }
    let invalid = |text: String| Err(Error::Invalid(text));
    let partition = names.def.partition_key().count();
    let keys = partition + names.def.clustering().count();
    // Key columns before this one are grouped, or restricted by `=`.
    let mut next = 0;
    let mut function = None;
    for expr in &select.group_by {
        let at = match expr {
            SelectExpr::Column(name) => {
                let (at, column) = names.find(name)?;
                if at >= keys {
                    return invalid(format!(
                        "Group by is currently only supported on the columns of the PRIMARY KEY, got {}",
                        column.name
                    ));
                }
                if function.is_some() {
                    return invalid(
                        "Functions are only supported on the last element of the GROUP BY clause".into(),
                    );
                }
                at
            }
            _ => {
                let (at, computed) = grouping_function(names, expr, binder)?;
                function = Some(computed);
                at
            }
        };
        while next != at {
            if next >= keys || !restrictions.is_equal(&names.def, next) {
                return invalid(
                    "Group by currently only support groups of columns following their declared order in the \
                     PRIMARY KEY"
                        .into(),
                );
            }
            next += 1;
        }
        next = at + 1;
    }
    if next < partition {
        return invalid("Group by is not supported on only a part of the partition key".into());
    }
    if next > partition && select.distinct {
        return invalid("Grouping on clustering columns is not allowed for SELECT DISTINCT queries".into());
    }
    let columns = next - partition - usize::from(function.is_some());
    Ok(Some(GroupBy { columns, function }))
}

/// Prepares a function of a clustering column in a `GROUP BY`. Returns the index of the column.
fn grouping_function(
    names: &TableNames,
    expr: &SelectExpr,
    binder: &mut Binder,
) -> Result<(usize, Computed), Error> {
    let invalid = |text: String| Err(Error::Invalid(text));
    let types = binder.types().clone();
    let operand = Operand::of(&types, names, expr)?;
    if operand.is_aggregate() {
        return invalid(format!(
            "Aggregate functions are not supported within the GROUP BY clause, got: {}",
            operand.label().split('(').next().unwrap_or_default()
        ));
    }
    let mut columns = HashSet::new();
    columns_in(expr, &mut columns);
    let mut columns: Vec<&str> = columns.into_iter().collect();
    columns.sort_unstable();
    let [column] = columns[..] else {
        return invalid(match columns.is_empty() {
            true => "GROUP BY functions must have one clustering column name as parameter".into(),
            false => format!(
                "GROUP BY functions accept only one clustering column as parameter, got: {}",
                columns.join(",")
            ),
        });
    };
    let (at, column) = names.find(column)?;
    if !matches!(column.kind, ColumnKind::Clustering(..)) {
        return invalid(format!(
            "Group by functions are only supported on clustering columns, got {}",
            column.name
        ));
    }
    if let Some(function) = operand.unordered_function() {
        return invalid(format!(
            "Only monotonic functions are supported in the GROUP BY clause. Got: {function}"
        ));
    }
    let mut building = Building { names, binder, aggregates: Vec::new(), is_in_aggregate: true };
    let (expr, _) = operand.build(&mut building, None)?;
    Ok((at, Computed::new(vec![expr])))
}

/// Adds the columns that an expression reads. The parser bounds its depth.
pub(crate) fn columns_in<'e>(expr: &'e SelectExpr, columns: &mut HashSet<&'e str>) {
    match expr {
        SelectExpr::Column(name) => {
            columns.insert(name);
        }
        SelectExpr::Function(call) => {
            call.arguments.iter().for_each(|argument| columns_in(argument, columns))
        }
        SelectExpr::Element(base, _)
        | SelectExpr::Field(base, _)
        | SelectExpr::Slice(base, ..)
        | SelectExpr::Cast(base, _)
        | SelectExpr::TypeHint(_, base)
        | SelectExpr::Negate(base) => columns_in(base, columns),
        SelectExpr::Arithmetic(arithmetic) => {
            columns_in(&arithmetic.left, columns);
            columns_in(&arithmetic.right, columns);
        }
        SelectExpr::List(parts) | SelectExpr::Set(parts) | SelectExpr::Tuple(parts) => {
            parts.iter().for_each(|part| columns_in(part, columns));
        }
        SelectExpr::Map(entries) => entries.iter().for_each(|(key, value)| {
            columns_in(key, columns);
            columns_in(value, columns);
        }),
        SelectExpr::Udt(fields) => fields.iter().for_each(|(_, field)| columns_in(field, columns)),
        SelectExpr::CountRows | SelectExpr::Term(_) => {}
    }
}
