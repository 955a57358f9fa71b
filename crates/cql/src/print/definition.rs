//! Printer of schema definitions as CREATE statements, in the layout of `DESCRIBE`.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};

use schema::{ClusteringOrder, ColumnDef, ColumnKind, KeyspaceDef, TableDef, UdtType};

use super::data::ordering;
use super::schema::primary_key;
use crate::ast::TypeName;
use crate::words::{Identifier, Quoted};

/// Returns `CREATE TABLE …;` on several lines. The options in `other` are maps as CQL text, and the
/// plain texts of other values.
pub fn create_table(def: &TableDef) -> String {
    AsCql(|f: &mut Formatter<'_>| table(f, def)).to_string()
}

/// Returns `CREATE KEYSPACE …;` on one line.
pub fn create_keyspace(def: &KeyspaceDef) -> String {
    AsCql(|f: &mut Formatter<'_>| keyspace(f, def)).to_string()
}

/// Returns `CREATE TYPE …;` on several lines.
pub fn create_type(def: &UdtType) -> String {
    AsCql(|f: &mut Formatter<'_>| user_type(f, def)).to_string()
}

/// Display of the text that a function writes.
struct AsCql<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for AsCql<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (self.0)(f)
    }
}

fn table(f: &mut Formatter<'_>, def: &TableDef) -> fmt::Result {
    let names =
        |columns: &mut dyn Iterator<Item = &ColumnDef>| columns.map(|c| c.name.clone()).collect::<Vec<_>>();
    let partition_key = names(&mut def.partition_key());
    let clustering = names(&mut def.clustering());
    let single = partition_key.len() == 1 && clustering.is_empty();
    writeln!(f, "CREATE TABLE {}.{} (", Identifier(&def.keyspace), Identifier(&def.name))?;
    for (i, column) in def.columns.iter().enumerate() {
        let suffix = match column.kind {
            ColumnKind::Static => " static",
            ColumnKind::PartitionKey(_) if single => " PRIMARY KEY",
            _ => "",
        };
        let end = if single && i + 1 == def.columns.len() { "" } else { "," };
        writeln!(f, "    {} {}{suffix}{end}", Identifier(&column.name), TypeName::from(&column.ty))?;
    }
    if !single {
        f.write_str("    ")?;
        primary_key(f, &partition_key, &clustering)?;
        f.write_char('\n')?;
    }
    f.write_str(") WITH ")?;
    let orders: Vec<(String, ClusteringOrder)> = def
        .clustering()
        .filter_map(|c| match c.kind {
            ColumnKind::Clustering(_, order) => Some((c.name.clone(), order)),
            _ => None,
        })
        .collect();
    if !orders.is_empty() {
        f.write_str("CLUSTERING ORDER BY (")?;
        ordering(f, &orders)?;
        f.write_str(")\n    AND ")?;
    }
    table_options(f, def)
}

fn table_options(f: &mut Formatter<'_>, def: &TableDef) -> fmt::Result {
    let mut options: BTreeMap<&str, String> =
        def.options.other.iter().map(|(name, text)| (name.as_str(), constant(text))).collect();
    options.insert("comment", Quoted(&def.options.comment).to_string());
    options.insert("default_time_to_live", def.options.default_time_to_live.to_string());
    options.insert("gc_grace_seconds", def.options.gc_grace_seconds.to_string());
    for (i, (name, value)) in options.iter().enumerate() {
        write!(f, "{}{} = {value}", if i == 0 { "" } else { "\n    AND " }, Identifier(name))?;
    }
    f.write_char(';')
}

/// Returns the value of an option as a constant: text in quotes, as it was before it was stored.
fn constant(text: &str) -> String {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && text.parse::<f64>().is_ok();
    match is_number || text.starts_with('{') || ["true", "false"].contains(&text) {
        true => text.to_owned(),
        false => Quoted(text).to_string(),
    }
}

fn keyspace(f: &mut Formatter<'_>, def: &KeyspaceDef) -> fmt::Result {
    write!(f, "CREATE KEYSPACE {} WITH replication = {{", Identifier(&def.name))?;
    // Write the class first, by convention.
    let class = def.replication.get_key_value("class");
    let others = def.replication.iter().filter(|(name, _)| *name != "class");
    for (i, (name, value)) in class.into_iter().chain(others).enumerate() {
        write!(f, "{}{}: {}", if i == 0 { "" } else { ", " }, Quoted(name), Quoted(value))?;
    }
    write!(f, "}} AND durable_writes = {};", def.durable_writes)
}

fn user_type(f: &mut Formatter<'_>, def: &UdtType) -> fmt::Result {
    writeln!(f, "CREATE TYPE {}.{} (", Identifier(&def.keyspace), Identifier(&def.name))?;
    for (i, (name, ty)) in def.fields.iter().enumerate() {
        let end = if i + 1 == def.fields.len() { "" } else { "," };
        writeln!(f, "    {} {}{end}", Identifier(name), TypeName::from(ty))?;
    }
    f.write_str(");")
}
