//! Printer of schema definitions as CREATE statements, in the layout of `DESCRIBE`.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write};

use schema::{
    CLASS_OPTION, ClusteringOrder, ColumnDef, ColumnKind, ColumnMask, CqlType, IndexDef, KeyspaceDef,
    MaskArgument, TableDef, UdtType, ViewDef, value,
};

use super::data::ordering;
use super::parts::identifiers;
use super::schema::primary_key;
use super::table_options::{options_except, table_options};
use crate::ast::TypeName;
use crate::words::{Identifier, Quoted};

/// Returns `CREATE TABLE …;` on several lines. Options are those of the definition and defaults.
pub fn create_table(def: &TableDef) -> String {
    AsCql(|f: &mut Formatter<'_>| table(f, def, false)).to_string()
}

/// Returns `CREATE TABLE …;` with the identity of the table and with its dropped columns, and an
/// ALTER TABLE for each column that was dropped, or added again.
pub fn create_table_with_internals(def: &TableDef) -> String {
    AsCql(|f: &mut Formatter<'_>| {
        table(f, def, true)?;
        dropped_columns(f, def)
    })
    .to_string()
}

/// Returns the definition of a virtual table as a comment, because no statement creates it.
pub fn virtual_table(def: &TableDef) -> String {
    AsCql(|f: &mut Formatter<'_>| {
        let (keyspace, name) = (Identifier(&def.keyspace), Identifier(&def.name));
        writeln!(
            f,
            "/*\nWarning: Table {keyspace}.{name} is a virtual table and cannot be recreated with CQL."
        )?;
        f.write_str("Structure, for reference:\nVIRTUAL ")?;
        columns_and_order(f, def, false)?;
        write!(f, "comment = {};\n*/", Quoted(&def.options.comment))
    })
    .to_string()
}

/// Returns `CREATE INDEX …;` on one line.
pub fn create_index(table: &TableDef, index: &IndexDef) -> String {
    AsCql(|f: &mut Formatter<'_>| secondary_index(f, table, index)).to_string()
}

/// Returns `CREATE MATERIALIZED VIEW …;` on several lines.
pub fn create_view(base: &TableDef, view: &ViewDef, with_internals: bool) -> String {
    AsCql(|f: &mut Formatter<'_>| materialized_view(f, base, view, with_internals)).to_string()
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

fn table(f: &mut Formatter<'_>, def: &TableDef, with_internals: bool) -> fmt::Result {
    f.write_str("CREATE ")?;
    columns_and_order(f, def, with_internals)?;
    table_options(f, def)
}

/// Writes `TABLE … WITH ` up to the first option.
fn columns_and_order(f: &mut Formatter<'_>, def: &TableDef, with_internals: bool) -> fmt::Result {
    let names =
        |columns: &mut dyn Iterator<Item = &ColumnDef>| columns.map(|c| c.name.clone()).collect::<Vec<_>>();
    let partition_key = names(&mut def.partition_key());
    let clustering = names(&mut def.clustering());
    let single = partition_key.len() == 1 && clustering.is_empty();
    writeln!(f, "TABLE {}.{} (", Identifier(&def.keyspace), Identifier(&def.name))?;
    // A column that was added again is first dropped below.
    let is_shown = |column: &&ColumnDef| !(with_internals && def.dropped.contains_key(&column.name));
    let mut columns: Vec<Cow<'_, ColumnDef>> =
        in_create_order(def).filter(is_shown).map(Cow::Borrowed).collect();
    if with_internals {
        columns.extend(def.dropped.values().map(|dropped| {
            let ty = with_frozen_tuples(&dropped.column.ty.without_user_types());
            Cow::Owned(ColumnDef { ty, ..dropped.column.clone() })
        }));
    }
    for (i, column) in columns.iter().enumerate() {
        f.write_str("    ")?;
        column_definition(f, def, column)?;
        let is_key = single && matches!(column.kind, ColumnKind::PartitionKey(_));
        let end = if single && i + 1 == columns.len() { "" } else { "," };
        writeln!(f, "{}{end}", if is_key { " PRIMARY KEY" } else { "" })?;
    }
    if !single {
        f.write_str("    ")?;
        primary_key(f, &partition_key, &clustering)?;
        f.write_char('\n')?;
    }
    f.write_str(") WITH ")?;
    id_and_order(f, def, with_internals)
}

/// Writes the first options, which are not in the definition's options.
fn id_and_order(f: &mut Formatter<'_>, def: &TableDef, with_internals: bool) -> fmt::Result {
    if with_internals {
        write!(f, "ID = {}\n    AND ", def.id)?;
    }
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
    Ok(())
}

/// Returns the columns in Cassandra's order: of those outside the key, static ones first, and those
/// of several cells last.
fn in_create_order(def: &TableDef) -> impl Iterator<Item = &ColumnDef> {
    let mut columns: Vec<&ColumnDef> = def.columns.iter().collect();
    columns.sort_by_key(|column| match column.kind {
        ColumnKind::PartitionKey(_) => (0, false),
        ColumnKind::Clustering(..) => (1, false),
        ColumnKind::Static => (2, column.ty.is_multi_cell()),
        ColumnKind::Regular => (3, column.ty.is_multi_cell()),
    });
    columns.into_iter()
}

/// Writes `name type static MASKED WITH f()`.
fn column_definition(f: &mut Formatter<'_>, def: &TableDef, column: &ColumnDef) -> fmt::Result {
    write!(f, "{} {}", Identifier(&column.name), TypeName::from(&with_frozen_tuples(&column.ty)))?;
    f.write_str(if column.kind == ColumnKind::Static { " static" } else { "" })?;
    match def.masks.get(&column.id).filter(|_| def.column(&column.name).is_some()) {
        Some(mask) => write!(f, " MASKED WITH {}", mask_text(mask)),
        None => Ok(()),
    }
}

/// Returns a mask as Cassandra shows it.
fn mask_text(mask: &ColumnMask) -> String {
    let argument = |argument: &MaskArgument| match &argument.value {
        None => "null".to_owned(),
        Some(value) => value::to_text(&argument.ty, value),
    };
    let arguments: Vec<String> = mask.arguments.iter().map(argument).collect();
    format!("system.{}({})", mask.function, arguments.join(", "))
}

fn dropped_columns(f: &mut Formatter<'_>, def: &TableDef) -> fmt::Result {
    for (name, dropped) in &def.dropped {
        let (keyspace, table) = (Identifier(&def.keyspace), Identifier(&def.name));
        let (column, at) = (Identifier(name), dropped.dropped_us);
        write!(f, "\nALTER TABLE {keyspace}.{table} DROP {column} USING TIMESTAMP {at};")?;
        if let Some((_, again)) = def.column(name) {
            write!(f, "\nALTER TABLE {keyspace}.{table} ADD ")?;
            column_definition(f, def, again)?;
            f.write_char(';')?;
        }
    }
    Ok(())
}

fn materialized_view(
    f: &mut Formatter<'_>,
    base: &TableDef,
    view: &ViewDef,
    with_internals: bool,
) -> fmt::Result {
    let def = view.table(base);
    let keyspace = Identifier(&base.keyspace);
    write!(f, "CREATE MATERIALIZED VIEW {keyspace}.{} AS\n    SELECT ", Identifier(&view.name))?;
    match view.others {
        None => f.write_char('*')?,
        Some(_) => {
            let names: Vec<String> = def.columns.iter().map(|column| column.name.clone()).collect();
            identifiers(f, &names)?;
        }
    }
    write!(f, "\n    FROM {keyspace}.{}\n    WHERE {}\n    ", Identifier(&base.name), view.where_clause)?;
    let names = |columns: &mut dyn Iterator<Item = &ColumnDef>| columns.map(|c| c.name.clone()).collect();
    let (partition_key, clustering): (Vec<String>, Vec<String>) =
        (names(&mut def.partition_key()), names(&mut def.clustering()));
    primary_key(f, &partition_key, &clustering)?;
    f.write_str("\n WITH ")?;
    id_and_order(f, &def, with_internals)?;
    // Rows of a view expire with those of the table.
    options_except(f, &def, Some("default_time_to_live"))
}

fn secondary_index(f: &mut Formatter<'_>, table: &TableDef, index: &IndexDef) -> fmt::Result {
    let (class, target) = (index.options.get(CLASS_OPTION), index.part.of(&index.column));
    write!(
        f,
        "CREATE {}INDEX {} ON {}.{} ({target})",
        if class.is_some() { "CUSTOM " } else { "" },
        Identifier(&index.name),
        Identifier(&table.keyspace),
        Identifier(&table.name)
    )?;
    if let Some(class) = class {
        write!(f, " USING {}", Quoted(class))?;
    }
    let others = index.options.iter().filter(|(name, _)| *name != CLASS_OPTION && *name != "target");
    for (at, (name, value)) in others.enumerate() {
        let before = if at == 0 { " WITH OPTIONS = {" } else { ", " };
        write!(f, "{before}{}: {}", Quoted(name), Quoted(value))?;
    }
    let has_options = index.options.len() > 2;
    f.write_str(if has_options { "};" } else { ";" })
}

fn keyspace(f: &mut Formatter<'_>, def: &KeyspaceDef) -> fmt::Result {
    write!(f, "CREATE KEYSPACE {} WITH replication = {{", Identifier(&def.name))?;
    // Write the class first, by convention.
    let class = def.replication.get_key_value("class");
    let others = def.replication.iter().filter(|(name, _)| *name != "class");
    for (i, (name, value)) in class.into_iter().chain(others).enumerate() {
        write!(f, "{}{}: {}", if i == 0 { "" } else { ", " }, Quoted(name), Quoted(value))?;
    }
    // Two blanks, as in Cassandra, whose answers tools compare.
    write!(f, "}}  AND durable_writes = {};", def.durable_writes)
}

fn user_type(f: &mut Formatter<'_>, def: &UdtType) -> fmt::Result {
    writeln!(f, "CREATE TYPE {}.{} (", Identifier(&def.keyspace), Identifier(&def.name))?;
    for (i, (name, ty)) in def.fields.iter().enumerate() {
        let end = if i + 1 == def.fields.len() { "" } else { "," };
        writeln!(f, "    {} {}{end}", Identifier(name), TypeName::from(ty))?;
    }
    f.write_str(");")
}

/// Returns the type with each tuple in `frozen<>`, as Cassandra shows it.
fn with_frozen_tuples(ty: &CqlType) -> CqlType {
    let boxed = |inner: &CqlType| Box::new(with_frozen_tuples(inner));
    match ty {
        CqlType::List(e) => CqlType::List(boxed(e)),
        CqlType::Set(e) => CqlType::Set(boxed(e)),
        CqlType::Map(k, v) => CqlType::Map(boxed(k), boxed(v)),
        CqlType::Tuple(parts) => {
            let parts = parts.iter().map(with_frozen_tuples).collect();
            CqlType::Frozen(Box::new(CqlType::Tuple(parts)))
        }
        CqlType::Frozen(inner) => match with_frozen_tuples(inner) {
            frozen @ CqlType::Frozen(_) => frozen,
            other => CqlType::Frozen(Box::new(other)),
        },
        other => other.clone(),
    }
}
