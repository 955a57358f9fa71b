//! Printer of SELECT, INSERT, UPDATE, DELETE and BATCH.

use std::fmt::{self, Display, Formatter, Write};

use schema::ClusteringOrder;

use super::parts::{commas, identifiers, joined};
use crate::ast::{
    Assignment, AssignmentTarget, Batch, BatchKind, Change, CompareOp, Condition, Delete, IfClause, InValues,
    Insert, Nearest, Relation, Select, Test, Update, Using,
};
use crate::words::Identifier;

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SELECT ")?;
        f.write_str(if self.json { "JSON " } else { "" })?;
        f.write_str(if self.distinct { "DISTINCT " } else { "" })?;
        write!(f, "{} FROM {}", self.selection, self.from)?;
        where_clause(f, &self.relations)?;
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            commas(f, &self.group_by)?;
        }
        if !self.order_by.is_empty() || !self.nearest.is_empty() {
            f.write_str(" ORDER BY ")?;
            joined(f, &self.nearest, ", ", |f, Nearest { column, vector, order }| {
                write!(f, "{} ANN OF {vector} {}", Identifier(column), word(*order))
            })?;
            f.write_str(if self.order_by.is_empty() || self.nearest.is_empty() { "" } else { ", " })?;
            ordering(f, &self.order_by)?;
        }
        if let Some(limit) = &self.per_partition_limit {
            write!(f, " PER PARTITION LIMIT {limit}")?;
        }
        if let Some(limit) = &self.limit {
            write!(f, " LIMIT {limit}")?;
        }
        f.write_str(if self.allow_filtering { " ALLOW FILTERING" } else { "" })?;
        f.write_str(if self.bypass_cache { " BYPASS CACHE" } else { "" })?;
        self.using.fmt(f)
    }
}

/// Writes `a ASC, b DESC`.
pub(super) fn ordering(f: &mut Formatter<'_>, columns: &[(String, ClusteringOrder)]) -> fmt::Result {
    joined(f, columns, ", ", |f, (column, order)| write!(f, "{} {}", Identifier(column), word(*order)))
}

fn word(order: ClusteringOrder) -> &'static str {
    match order {
        ClusteringOrder::Asc => "ASC",
        ClusteringOrder::Desc => "DESC",
    }
}

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {} ", self.table)?;
        if let Some(json) = &self.json {
            write!(f, "JSON {}{}", json.value, if json.default_unset { " DEFAULT UNSET" } else { "" })?;
        } else {
            f.write_char('(')?;
            identifiers(f, &self.columns)?;
            f.write_str(") VALUES (")?;
            commas(f, &self.values)?;
            f.write_char(')')?;
        }
        f.write_str(if self.if_not_exists { " IF NOT EXISTS" } else { "" })?;
        self.using.fmt(f)
    }
}

impl Display for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "UPDATE {}{} SET ", self.table, self.using)?;
        joined(f, &self.assignments, ", ", assignment)?;
        where_clause(f, &self.relations)?;
        self.condition.fmt(f)
    }
}

fn assignment(f: &mut Formatter<'_>, assignment: &Assignment) -> fmt::Result {
    let Assignment { target, change } = assignment;
    match change {
        Change::Set(value) => write!(f, "{target} = {value}"),
        Change::Add(value) => write!(f, "{target} = {target} + {value}"),
        Change::Subtract(value) => write!(f, "{target} = {target} - {value}"),
        Change::Prepend(value) => write!(f, "{target} = {value} + {target}"),
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DELETE ")?;
        if !self.targets.is_empty() {
            commas(f, &self.targets)?;
            f.write_char(' ')?;
        }
        write!(f, "FROM {}{}", self.table, self.using)?;
        where_clause(f, &self.relations)?;
        self.condition.fmt(f)
    }
}

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        })?;
        self.using.fmt(f)?;
        self.statements.iter().try_for_each(|statement| write!(f, " {statement};"))?;
        f.write_str(" APPLY BATCH")
    }
}

impl Display for Using {
    /// Writes ` USING … AND …`, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = " USING";
        for (name, term) in [("TIMESTAMP", &self.timestamp), ("TTL", &self.ttl), ("TIMEOUT", &self.timeout)] {
            if let Some(term) = term {
                write!(f, "{before} {name} {term}")?;
                before = " AND";
            }
        }
        match &self.service_level {
            Some(level) => write!(f, "{before} SERVICE LEVEL {}", Identifier(level)),
            None => Ok(()),
        }
    }
}

impl Display for AssignmentTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AssignmentTarget::Column(column) => Identifier(column).fmt(f),
            AssignmentTarget::Element(column, key) => write!(f, "{}[{key}]", Identifier(column)),
            AssignmentTarget::Field(column, field) => {
                write!(f, "{}.{}", Identifier(column), Identifier(field))
            }
        }
    }
}

impl Display for IfClause {
    /// Writes ` IF …`, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            IfClause::None => Ok(()),
            IfClause::Exists => f.write_str(" IF EXISTS"),
            IfClause::Columns(conditions) => {
                f.write_str(" IF ")?;
                joined(f, conditions, " AND ", |f, Condition { target, test }| write!(f, "{target} {test}"))
            }
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Test::Compare(op, value) => write!(f, "{op} {value}"),
            Test::In(values) => write!(f, "IN {values}"),
            Test::Contains(value) => write!(f, "CONTAINS {value}"),
            Test::ContainsKey(key) => write!(f, "CONTAINS KEY {key}"),
            Test::Like(pattern) => write!(f, "LIKE {pattern}"),
        }
    }
}

impl Display for CompareOp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompareOp::Eq => "=",
            CompareOp::NotEq => "!=",
            CompareOp::Less => "<",
            CompareOp::LessEq => "<=",
            CompareOp::Greater => ">",
            CompareOp::GreaterEq => ">=",
        })
    }
}

impl Display for InValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InValues::List(terms) => {
                f.write_char('(')?;
                commas(f, terms)?;
                f.write_char(')')
            }
            InValues::Marker(marker) => marker.fmt(f),
        }
    }
}

/// Writes ` WHERE …`, or nothing.
pub(super) fn where_clause(f: &mut Formatter<'_>, relations: &[Relation]) -> fmt::Result {
    if relations.is_empty() {
        return Ok(());
    }
    f.write_str(" WHERE ")?;
    joined(f, relations, " AND ", |f, relation| relation.fmt(f))
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Relation::Compare { column, op, value } => write!(f, "{} {op} {value}", Identifier(column)),
            Relation::Element { column, key, op, value } => {
                write!(f, "{}[{key}] {op} {value}", Identifier(column))
            }
            Relation::In { column, values } => write!(f, "{} IN {values}", Identifier(column)),
            Relation::Contains { column, value } => write!(f, "{} CONTAINS {value}", Identifier(column)),
            Relation::ContainsKey { column, key } => write!(f, "{} CONTAINS KEY {key}", Identifier(column)),
            Relation::Like { column, pattern } => write!(f, "{} LIKE {pattern}", Identifier(column)),
            Relation::IsNotNull { column } => write!(f, "{} IS NOT NULL", Identifier(column)),
            Relation::Tuple { columns, op, value } => {
                columns_in_parentheses(f, columns)?;
                write!(f, " {op} {value}")
            }
            Relation::TupleIn { columns, values } => {
                columns_in_parentheses(f, columns)?;
                write!(f, " IN {values}")
            }
            Relation::Token { columns, op, value } => {
                f.write_str("token")?;
                columns_in_parentheses(f, columns)?;
                write!(f, " {op} {value}")
            }
        }
    }
}

fn columns_in_parentheses(f: &mut Formatter<'_>, columns: &[String]) -> fmt::Result {
    f.write_char('(')?;
    identifiers(f, columns)?;
    f.write_char(')')
}
