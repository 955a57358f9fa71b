//! Printer: writes a tree as canonical CQL on one line.
//!
//! The text of a parsed tree parses to an equal tree. A tree built by hand may have no text (a sum
//! inside a product of terms, a map without entries). Its printed text then parses to a different
//! tree.

mod access;
mod data;
mod definition;
mod expression;
mod parts;
mod schema;
mod table_options;
mod term;

use std::cell::Cell;
use std::fmt::{self, Display, Formatter};

use crate::ast::{Describe, DescribeTarget, QualifiedName, Statement};
use crate::words::Identifier;
use parts::{IfExists, Secrets};

pub use definition::{
    create_index, create_keyspace, create_table, create_table_with_internals, create_type, create_view,
    virtual_table,
};
pub use table_options::option_map;

impl Display for Statement {
    /// Writes the statement as CQL with `*****` for passwords, for logs.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        statement(f, self, Secrets::Masked)
    }
}

thread_local! {
    /// True while literals are printed as `?`.
    static MASKS: Cell<bool> = const { Cell::new(false) };
}

/// Display of a statement without its data, for logs: `?` for each literal and `*****` for
/// passwords.
#[derive(Debug)]
pub struct Masked<'a>(pub &'a Statement);

impl Display for Masked<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        struct Unmask(bool);
        impl Drop for Unmask {
            fn drop(&mut self) {
                MASKS.set(self.0);
            }
        }
        let _unmask = Unmask(MASKS.replace(true));
        self.0.fmt(f)
    }
}

/// True while a [`Masked`] statement is printed.
fn masks_literals() -> bool {
    MASKS.get()
}

impl Statement {
    /// Returns the statement as CQL with its passwords. Not for logs.
    pub fn to_cql_with_secrets(&self) -> String {
        struct Shown<'a>(&'a Statement);
        impl Display for Shown<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                statement(f, self.0, Secrets::Shown)
            }
        }
        Shown(self).to_string()
    }
}

fn statement(f: &mut Formatter<'_>, statement: &Statement, secrets: Secrets) -> fmt::Result {
    match statement {
        Statement::Select(s) => s.fmt(f),
        Statement::Insert(s) => s.fmt(f),
        Statement::Update(s) => s.fmt(f),
        Statement::Delete(s) => s.fmt(f),
        Statement::Batch(s) => s.fmt(f),
        Statement::Truncate(s) => write!(f, "TRUNCATE TABLE {}{}", s.table, s.using),
        Statement::Compact(table) => write!(f, "COMPACT TABLE {table}"),
        Statement::Flush(table) => write!(f, "FLUSH TABLE {table}"),
        Statement::Scrub(table) => write!(f, "SCRUB TABLE {table}"),
        Statement::Use(keyspace) => write!(f, "USE {}", Identifier(keyspace)),
        Statement::CreateKeyspace(s) => s.fmt(f),
        Statement::AlterKeyspace(s) => s.fmt(f),
        Statement::DropKeyspace(s) => {
            write!(f, "DROP KEYSPACE {}{}", IfExists(s.if_exists), Identifier(&s.name))
        }
        Statement::CreateTable(s) => s.fmt(f),
        Statement::AlterTable(s) => s.fmt(f),
        Statement::DropTable(s) => schema::drop_object(f, "TABLE", s),
        Statement::CreateType(s) => s.fmt(f),
        Statement::AlterType(s) => s.fmt(f),
        Statement::DropType(s) => schema::drop_object(f, "TYPE", s),
        Statement::CreateIndex(s) => s.fmt(f),
        Statement::DropIndex(s) => schema::drop_object(f, "INDEX", s),
        Statement::CreateMaterializedView(s) => s.fmt(f),
        Statement::AlterMaterializedView(s) => s.fmt(f),
        Statement::DropMaterializedView(s) => schema::drop_object(f, "MATERIALIZED VIEW", s),
        Statement::CreateFunction(s) => s.fmt(f),
        Statement::DropFunction(s) => schema::drop_function(f, "FUNCTION", s),
        Statement::CreateAggregate(s) => s.fmt(f),
        Statement::DropAggregate(s) => schema::drop_function(f, "AGGREGATE", s),
        Statement::CreateTrigger(s) => s.fmt(f),
        Statement::DropTrigger(s) => {
            write!(f, "DROP TRIGGER {}{} ON {}", IfExists(s.if_exists), Identifier(&s.name), s.table)
        }
        Statement::Describe(s) => describe(f, s),
        other => access::statement(f, other, secrets),
    }
}

impl Display for QualifiedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "{}.", Identifier(keyspace))?;
        }
        Identifier(&self.name).fmt(f)
    }
}

fn describe(f: &mut Formatter<'_>, describe: &Describe) -> fmt::Result {
    f.write_str("DESCRIBE ")?;
    match &describe.target {
        DescribeTarget::Schema { full } => f.write_str(if *full { "FULL SCHEMA" } else { "SCHEMA" })?,
        DescribeTarget::Cluster => f.write_str("CLUSTER")?,
        DescribeTarget::Keyspaces => f.write_str("KEYSPACES")?,
        DescribeTarget::Keyspace { only, name } => {
            f.write_str(if *only { "ONLY KEYSPACE" } else { "KEYSPACE" })?;
            if let Some(name) = name {
                write!(f, " {}", Identifier(name))?;
            }
        }
        DescribeTarget::Tables => f.write_str("TABLES")?,
        DescribeTarget::Table(name) => write!(f, "TABLE {name}")?,
        DescribeTarget::Types => f.write_str("TYPES")?,
        DescribeTarget::Type(name) => write!(f, "TYPE {name}")?,
        DescribeTarget::Functions => f.write_str("FUNCTIONS")?,
        DescribeTarget::Function(name) => write!(f, "FUNCTION {name}")?,
        DescribeTarget::Aggregates => f.write_str("AGGREGATES")?,
        DescribeTarget::Aggregate(name) => write!(f, "AGGREGATE {name}")?,
        DescribeTarget::Index(name) => write!(f, "INDEX {name}")?,
        DescribeTarget::MaterializedView(name) => write!(f, "MATERIALIZED VIEW {name}")?,
        DescribeTarget::Named(name) => match &name.keyspace {
            Some(_) => name.fmt(f)?,
            // Quote the name: `tables` without quotes is a keyword here.
            None => write!(f, "\"{}\"", name.name.replace('"', "\"\""))?,
        },
    }
    f.write_str(match (describe.with_internals, describe.with_passwords) {
        (true, true) => " WITH INTERNALS AND PASSWORDS",
        (true, false) => " WITH INTERNALS",
        (false, _) => "",
    })
}
