//! Printer of statements that change the schema.

use std::fmt::{self, Display, Formatter, Write};

use super::data::{ordering, where_clause};
use super::parts::{
    IfExists, IfNotExists, commas, identifiers, joined, option, types_in_parentheses, with_options,
};
use super::term::UserTypeName;
use crate::ast::{
    AlterKeyspace, AlterMaterializedView, AlterTable, AlterType, ColumnDefinition, CreateAggregate,
    CreateFunction, CreateIndex, CreateKeyspace, CreateMaterializedView, CreateTable, CreateTrigger,
    CreateType, DropFunction, DropObject, IndexTarget, TableChange, TableProperties, TypeChange, TypeName,
};
use crate::words::{Identifier, Quoted};

impl Display for CreateKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE KEYSPACE {}{}", IfNotExists(self.if_not_exists), Identifier(&self.name))?;
        with_options(f, &self.options)
    }
}

impl Display for AlterKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER KEYSPACE {}{}", IfExists(self.if_exists), Identifier(&self.name))?;
        with_options(f, &self.options)
    }
}

pub(super) fn drop_object(f: &mut Formatter<'_>, what: &str, drop: &DropObject) -> fmt::Result {
    write!(f, "DROP {what} {}{}", IfExists(drop.if_exists), drop.name)
}

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE TABLE {}{} (", IfNotExists(self.if_not_exists), self.table)?;
        commas(f, &self.columns)?;
        if !self.partition_key.is_empty() {
            f.write_str(if self.columns.is_empty() { "" } else { ", " })?;
            primary_key(f, &self.partition_key, &self.clustering)?;
        }
        f.write_char(')')?;
        self.properties.fmt(f)
    }
}

impl Display for ColumnDefinition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", Identifier(&self.name), self.ty, if self.is_static { " static" } else { "" })?;
        self.mask.iter().try_for_each(|mask| write!(f, " MASKED WITH {mask}"))
    }
}

/// Writes `PRIMARY KEY (a, b)`. Adds inner parentheses if the partition key has several columns.
pub(super) fn primary_key(
    f: &mut Formatter<'_>,
    partition_key: &[String],
    clustering: &[String],
) -> fmt::Result {
    f.write_str("PRIMARY KEY (")?;
    if let [column] = partition_key {
        Identifier(column).fmt(f)?;
    } else {
        f.write_char('(')?;
        identifiers(f, partition_key)?;
        f.write_char(')')?;
    }
    clustering.iter().try_for_each(|column| write!(f, ", {}", Identifier(column)))?;
    f.write_char(')')
}

impl Display for TableProperties {
    /// Writes ` WITH …`, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = " WITH ";
        if !self.clustering_order.is_empty() {
            write!(f, "{before}CLUSTERING ORDER BY (")?;
            ordering(f, &self.clustering_order)?;
            f.write_char(')')?;
            before = " AND ";
        }
        if self.compact_storage {
            write!(f, "{before}COMPACT STORAGE")?;
            before = " AND ";
        }
        for one in &self.options {
            f.write_str(before)?;
            option(f, one)?;
            before = " AND ";
        }
        Ok(())
    }
}

impl Display for AlterTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER TABLE {}{}", IfExists(self.if_exists), self.table)?;
        match &self.change {
            TableChange::Add { if_not_exists, columns } => {
                write!(f, " ADD {}", IfNotExists(*if_not_exists))?;
                commas(f, columns)
            }
            TableChange::Drop { if_exists, columns, timestamp } => {
                write!(f, " DROP {}", IfExists(*if_exists))?;
                identifiers(f, columns)?;
                timestamp.iter().try_for_each(|timestamp| write!(f, " USING TIMESTAMP {timestamp}"))
            }
            TableChange::DropCompactStorage => f.write_str(" DROP COMPACT STORAGE"),
            TableChange::Rename { if_exists, columns } => {
                write!(f, " RENAME {}", IfExists(*if_exists))?;
                renamings(f, columns)
            }
            TableChange::Type { column, ty } => write!(f, " ALTER {} TYPE {ty}", Identifier(column)),
            TableChange::Mask { if_exists, column, mask } => {
                write!(f, " ALTER {}{}", IfExists(*if_exists), Identifier(column))?;
                match mask {
                    Some(mask) => write!(f, " MASKED WITH {mask}"),
                    None => f.write_str(" DROP MASKED"),
                }
            }
            TableChange::With(properties) => properties.fmt(f),
        }
    }
}

fn renamings(f: &mut Formatter<'_>, pairs: &[(String, String)]) -> fmt::Result {
    joined(f, pairs, " AND ", |f, (old, new)| write!(f, "{} TO {}", Identifier(old), Identifier(new)))
}

/// Writes `a int, b text`.
fn typed(f: &mut Formatter<'_>, pairs: &[(String, TypeName)]) -> fmt::Result {
    joined(f, pairs, ", ", |f, (name, ty)| write!(f, "{} {ty}", Identifier(name)))
}

impl Display for CreateType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE TYPE {}{} (", IfNotExists(self.if_not_exists), UserTypeName(&self.name))?;
        typed(f, &self.fields)?;
        f.write_char(')')
    }
}

impl Display for AlterType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER TYPE {}{}", IfExists(self.if_exists), UserTypeName(&self.name))?;
        match &self.change {
            TypeChange::Add { if_not_exists, field, ty } => {
                write!(f, " ADD {}{} {ty}", IfNotExists(*if_not_exists), Identifier(field))
            }
            TypeChange::Rename { if_exists, fields } => {
                write!(f, " RENAME {}", IfExists(*if_exists))?;
                renamings(f, fields)
            }
            TypeChange::Type { field, ty } => write!(f, " ALTER {} TYPE {ty}", Identifier(field)),
        }
    }
}

impl Display for CreateIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let custom = if self.custom { "CUSTOM " } else { "" };
        write!(f, "CREATE {custom}INDEX {}", IfNotExists(self.if_not_exists))?;
        self.name.iter().try_for_each(|name| write!(f, "{name} "))?;
        write!(f, "ON {} (", self.table)?;
        commas(f, &self.targets)?;
        f.write_char(')')?;
        self.class.iter().try_for_each(|class| write!(f, " USING {}", Quoted(class)))?;
        with_options(f, &self.options)
    }
}

impl Display for IndexTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            IndexTarget::Column(column) => Identifier(column).fmt(f),
            IndexTarget::Values(column) => write!(f, "values({})", Identifier(column)),
            IndexTarget::Keys(column) => write!(f, "keys({})", Identifier(column)),
            IndexTarget::Entries(column) => write!(f, "entries({})", Identifier(column)),
            IndexTarget::Full(column) => write!(f, "full({})", Identifier(column)),
        }
    }
}

impl Display for CreateMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "CREATE MATERIALIZED VIEW {}{} AS ", IfNotExists(self.if_not_exists), self.name)?;
        write!(f, "SELECT {} FROM {}", self.selection, self.from)?;
        where_clause(f, &self.relations)?;
        f.write_char(' ')?;
        primary_key(f, &self.partition_key, &self.clustering)?;
        self.properties.fmt(f)
    }
}

impl Display for AlterMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER MATERIALIZED VIEW {}{}{}", IfExists(self.if_exists), self.name, self.properties)
    }
}

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let or_replace = if self.or_replace { "OR REPLACE " } else { "" };
        write!(f, "CREATE {or_replace}FUNCTION {}{} (", IfNotExists(self.if_not_exists), self.name)?;
        typed(f, &self.arguments)?;
        let on_null = if self.called_on_null_input { "CALLED" } else { "RETURNS NULL" };
        write!(f, ") {on_null} ON NULL INPUT RETURNS {} ", self.returns)?;
        write!(f, "LANGUAGE {} AS {}", Identifier(&self.language), Quoted(&self.body))
    }
}

pub(super) fn drop_function(f: &mut Formatter<'_>, what: &str, drop: &DropFunction) -> fmt::Result {
    write!(f, "DROP {what} {}{}", IfExists(drop.if_exists), drop.name)?;
    match &drop.arguments {
        Some(arguments) => types_in_parentheses(f, arguments),
        None => Ok(()),
    }
}

impl Display for CreateAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let or_replace = if self.or_replace { "OR REPLACE " } else { "" };
        write!(f, "CREATE {or_replace}AGGREGATE {}{} ", IfNotExists(self.if_not_exists), self.name)?;
        types_in_parentheses(f, &self.arguments)?;
        write!(f, " SFUNC {} STYPE {}", Identifier(&self.state_function), self.state_type)?;
        self.final_function.iter().try_for_each(|name| write!(f, " FINALFUNC {}", Identifier(name)))?;
        self.initial.iter().try_for_each(|term| write!(f, " INITCOND {term}"))
    }
}

impl Display for CreateTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = Identifier(&self.name);
        let class = Quoted(&self.class);
        write!(f, "CREATE TRIGGER {}{name} ON {} USING {class}", IfNotExists(self.if_not_exists), self.table)
    }
}
