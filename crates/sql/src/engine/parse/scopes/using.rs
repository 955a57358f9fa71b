//! Columns of `USING`.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, ExcludeSelectItem, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, OrderByExpr,
    Select, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, Value,
    WildcardAdditionalOptions,
};

use crate::engine::parse::scopes::order::name_of;
use crate::engine::parse::syntax::{Columns, call, folded, last_part, own_expressions};
use crate::failure::{Failure, unsupported};

/// Tables of a join, and the columns that it merged.
#[derive(Default)]
struct Side {
    tables: Vec<JoinedTable>,
    /// Merged columns in the order of `*`.
    merged: Vec<Merged>,
    /// A join whose merged columns are not known here.
    unknown: Option<&'static str>,
}

struct JoinedTable {
    /// `None` without a name.
    name: Option<Ident>,
    /// Names of its columns. `None` if unknown.
    columns: Option<Vec<String>>,
    /// Columns that are merged.
    merged: Vec<Ident>,
}

struct Merged {
    name: Ident,
    value: Expr,
}

/// Rewrites `USING` to `ON`, and the merged columns to those of a side.
///
/// # Errors
/// The side of a merged column is not known without the schema of the tables.
pub(super) fn merge(
    select: &mut Select,
    orders: &mut [OrderByExpr],
    columns: Columns,
) -> Result<(), Failure> {
    let is_merged = |table: &TableWithJoins| table.joins.iter().any(|join| merges(&join.join_operator));
    let is_nested = |table: &TableWithJoins| {
        let within = |table: &TableFactor| matches!(table, TableFactor::NestedJoin { .. });
        within(&table.relation) || table.joins.iter().any(|join| within(&join.relation))
    };
    if !select.from.iter().any(|table| is_merged(table) || is_nested(table)) {
        return Ok(());
    }
    let sides: Result<Vec<Side>, Failure> =
        select.from.iter_mut().map(|table| side(table, columns)).collect();
    let sides = sides?;
    if sides.iter().all(|side| side.merged.is_empty() && side.unknown.is_none()) {
        return Ok(());
    }
    let has_star = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    if let Some(what) = sides.iter().find_map(|side| side.unknown)
        && (has_star || what == OUTER)
    {
        return unsupported(what);
    }
    let find = |name: &Ident| {
        let name = folded(name);
        sides.iter().flat_map(|side| &side.merged).find(|merged| folded(&merged.name) == name)
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && let Some(merged) = find(name)
        {
            *item = selected(merged);
        }
    }
    if has_star {
        let items = std::mem::take(&mut select.projection);
        for item in items {
            match item {
                SelectItem::Wildcard(options) => select.projection.extend(starred(&sides, &options)?),
                other => select.projection.push(other),
            }
        }
    }
    let outputs: HashSet<String> = select.projection.iter().filter_map(output).collect();
    let mut replace = |expr: &mut Expr| {
        if let Expr::Identifier(name) = expr
            && let Some(merged) = find(name)
        {
            *expr = merged.value.clone();
        }
    };
    own_expressions(&mut select.projection, &mut replace);
    own_expressions(&mut select.selection, &mut replace);
    own_expressions(&mut select.group_by, &mut replace);
    own_expressions(&mut select.having, &mut replace);
    own_expressions(&mut select.named_window, &mut replace);
    own_expressions(&mut select.distinct, &mut replace);
    for order in orders {
        let is_output =
            matches!(&order.expr, Expr::Identifier(name) if has_star || outputs.contains(&folded(name)));
        if !is_output {
            own_expressions(&mut order.expr, &mut replace);
        }
    }
    Ok(())
}

const OUTER: &str = "NATURAL joins that are RIGHT or FULL are not supported: write USING with the names of the \
                     columns";
const STAR: &str = "* over a NATURAL join, or over USING with a column of a join to its left, is not supported: \
                    write the names of the columns, or ON";

fn merges(operator: &JoinOperator) -> bool {
    constraint(operator).is_some_and(|(constraint, _)| {
        matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JoinKind {
    Left,
    Right,
    Full,
}

fn constraint(operator: &JoinOperator) -> Option<(&JoinConstraint, JoinKind)> {
    Some(match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => (constraint, JoinKind::Left),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (constraint, JoinKind::Right)
        }
        JoinOperator::FullOuter(constraint) => (constraint, JoinKind::Full),
        _ => return None,
    })
}

fn constraint_mut(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => Some(constraint),
        _ => None,
    }
}

fn factor(table: &mut TableFactor, columns: Columns) -> Result<Side, Failure> {
    match table {
        TableFactor::NestedJoin { table_with_joins, alias: None } => side(table_with_joins, columns),
        other => {
            let table =
                JoinedTable { name: name_of(other), columns: columns_of(other, columns), merged: Vec::new() };
            Ok(Side { tables: vec![table], ..Side::default() })
        }
    }
}

/// Rewrites the joins of a table from left to right.
fn side(table: &mut TableWithJoins, columns: Columns) -> Result<Side, Failure> {
    let mut left = factor(&mut table.relation, columns)?;
    for join in &mut table.joins {
        let right = factor(&mut join.relation, columns)?;
        let kind = constraint(&join.join_operator).map_or(JoinKind::Left, |(_, kind)| kind);
        left.unknown = left.unknown.or(right.unknown);
        if let Some(constraint @ JoinConstraint::Natural) = constraint_mut(&mut join.join_operator)
            && let Some(names) = left.common(&right)
        {
            let name = |name: String| ObjectName::from(vec![Ident::with_quote('"', name)]);
            *constraint = match names.is_empty() {
                true => JoinConstraint::On(Expr::Value(Value::Boolean(true).into())),
                false => JoinConstraint::Using(names.into_iter().map(name).collect()),
            };
        }
        match constraint_mut(&mut join.join_operator) {
            Some(constraint @ JoinConstraint::Using(_)) => left = joined(left, right, constraint, kind)?,
            Some(constraint) => {
                let is_natural = matches!(constraint, JoinConstraint::Natural);
                if is_natural {
                    left.unknown = Some(if kind == JoinKind::Left { STAR } else { OUTER });
                }
                if let JoinConstraint::On(condition) = constraint {
                    let sides = [&left, &right];
                    own_expressions(condition, &mut |expr| {
                        if let Expr::Identifier(name) = expr
                            && let Some(merged) = sides.iter().find_map(|side| side.find(name))
                        {
                            *expr = merged.value.clone();
                        }
                    });
                }
                left.tables.extend(right.tables);
                left.merged.extend(right.merged);
            }
            None => {
                left.tables.extend(right.tables);
                left.merged.extend(right.merged);
            }
        }
    }
    Ok(left)
}

/// Returns the names of the columns of a table. `None` if unknown.
fn columns_of(table: &TableFactor, columns: Columns) -> Option<Vec<String>> {
    match table {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. }
            if !alias.columns.is_empty() =>
        {
            Some(alias.columns.iter().map(|column| folded(&column.name)).collect())
        }
        TableFactor::Table { name, args: None, .. } => columns(name),
        TableFactor::Derived { subquery, .. } => {
            subquery.body.as_select()?.projection.iter().map(output).collect()
        }
        _ => None,
    }
}

impl Side {
    /// Returns the names that both sides have, in the order of the left one. `None` if unknown.
    fn common(&self, right: &Side) -> Option<Vec<String>> {
        let names = |side: &Side| -> Option<Vec<String>> {
            let mut names: Vec<String> = side.merged.iter().map(|merged| folded(&merged.name)).collect();
            for table in &side.tables {
                names.extend(table.columns.as_ref()?.iter().cloned());
            }
            Some(names)
        };
        let (mut left, right) = (names(self)?, names(right)?);
        let mut seen = HashSet::new();
        left.retain(|name| right.contains(name) && seen.insert(name.clone()));
        Some(left)
    }

    fn find(&self, name: &Ident) -> Option<&Merged> {
        let name = folded(name);
        self.merged.iter().find(|merged| folded(&merged.name) == name)
    }

    /// Returns a column that is to be merged. `None` if its table is not known.
    fn column(&mut self, name: &Ident) -> Option<Expr> {
        if let Some(merged) = self.find(name) {
            return Some(merged.value.clone());
        }
        let table = match &mut self.tables[..] {
            [table] => table,
            tables => {
                let searched = folded(name);
                if tables.iter().any(|table| table.columns.is_none()) {
                    return None;
                }
                let has = |table: &&mut JoinedTable| {
                    table.columns.iter().flatten().any(|column| *column == searched)
                };
                tables.iter_mut().find(has)?
            }
        };
        let of = table.name.clone()?;
        table.merged.push(name.clone());
        Some(Expr::CompoundIdentifier(vec![of, name.clone()]))
    }
}

fn joined(
    mut left: Side,
    mut right: Side,
    constraint: &mut JoinConstraint,
    kind: JoinKind,
) -> Result<Side, Failure> {
    let JoinConstraint::Using(names) = constraint else { return Ok(left) };
    let names: Vec<Ident> = names.iter().filter_map(|name| last_part(name).cloned()).collect();
    let (mut merged, mut condition) = (Vec::new(), None);
    for name in names {
        let (Some(a), Some(b)) = (left.column(&name), right.column(&name)) else {
            if kind != JoinKind::Left {
                let text = "USING in a RIGHT or FULL join over a column of one of several tables is not \
                            supported: write ON";
                return unsupported(text);
            }
            left.unknown = Some(STAR);
            left.tables.extend(right.tables);
            left.merged.extend(right.merged);
            return Ok(left);
        };
        let equal =
            Expr::BinaryOp { left: Box::new(a.clone()), op: BinaryOperator::Eq, right: Box::new(b.clone()) };
        condition = Some(match condition {
            None => equal,
            Some(all) => {
                Expr::BinaryOp { left: Box::new(all), op: BinaryOperator::And, right: Box::new(equal) }
            }
        });
        let value = match kind {
            JoinKind::Left => a,
            JoinKind::Right => b,
            JoinKind::Full => call("coalesce", vec![a, b]),
        };
        merged.push(Merged { name, value });
    }
    *constraint = JoinConstraint::On(condition.unwrap_or_else(|| Expr::Value(Value::Boolean(true).into())));
    let is_new = |old: &Merged| !merged.iter().any(|new| folded(&new.name) == folded(&old.name));
    let rest: Vec<Merged> = left.merged.into_iter().chain(right.merged).filter(is_new).collect();
    merged.extend(rest);
    left.tables.extend(right.tables);
    Ok(Side { merged, ..left })
}

/// Returns a merged column as an item of a SELECT.
fn selected(merged: &Merged) -> SelectItem {
    match &merged.value {
        value @ Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(value.clone()),
        value => SelectItem::ExprWithAlias { expr: value.clone(), alias: merged.name.clone() },
    }
}

/// Returns the items of `*`: merged columns first.
fn starred(sides: &[Side], options: &WildcardAdditionalOptions) -> Result<Vec<SelectItem>, Failure> {
    let mut items = Vec::new();
    for side in sides {
        items.extend(side.merged.iter().map(selected));
        for table in &side.tables {
            let Some(name) = &table.name else { return unsupported(STAR) };
            let names: Vec<ObjectName> =
                table.merged.iter().map(|name| ObjectName::from(vec![name.clone()])).collect();
            let opt_exclude = (!names.is_empty()).then_some(ExcludeSelectItem::Multiple(names));
            let kind = SelectItemQualifiedWildcardKind::ObjectName(ObjectName::from(vec![name.clone()]));
            let options = WildcardAdditionalOptions { opt_exclude, ..options.clone() };
            items.push(SelectItem::QualifiedWildcard(kind, options));
        }
    }
    Ok(items)
}

/// Returns the name of an item.
fn output(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names)) => names.last().map(folded),
        _ => None,
    }
}
