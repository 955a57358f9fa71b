//! CREATE and DROP INDEX.
//!
//! Classes are known by the names of Cassandra. All of them are the same index here: they differ in
//! the options and types that they accept, and in the queries that need no ALLOW FILTERING.

use std::collections::BTreeMap;

use cql::ast::{self, IndexTarget, OptionValue};
use engine::{Error, Schema, SchemaTarget};
use schema::{
    CLASS_OPTION, ColumnDef, ColumnKind, CqlType, IndexDef, IndexedPart, TableDef, is_storage_attached,
};
use uuid::Uuid;

use super::step::{DefinitionStep, changed, no_keyspace, plain, put_table};
use super::{vector_index, view_checks};
use crate::bind::restrict::with_duration;

/// Class name of indexes without a class.
const LEGACY_CLASS: &str = "legacy_local_table";

/// Options of storage-attached indexes that concern the order and case of texts.
const TEXT_OPTIONS: [&str; 3] = ["ascii", "case_sensitive", "normalize"];

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// Creates an index. Its data has the version of the schema as its identity.
pub(super) fn create(
    mut schema: Schema,
    create: &ast::CreateIndex,
    used: Option<&str>,
) -> Result<Option<DefinitionStep>, Error> {
    let class = class_of(create)?;
    let keyspace = keyspace_of(create, used)?;
    let Some(found) = schema.keyspaces.get(&keyspace) else { return Err(no_keyspace(&keyspace)) };
    let Some(table) = found.tables.get(&create.table.name) else {
        view_checks::check_no_view(
            found,
            &create.table.name,
            "Secondary indexes on materialized views aren't supported",
        )?;
        return invalid(format!("Table '{}' doesn't exist", create.table.name));
    };
    let is_taken =
        |name: &str| found.tables.values().any(|table| table.indexes.iter().any(|index| index.name == name));
    if let Some(name) = &create.name
        && is_taken(&name.name)
    {
        return match create.if_not_exists {
            true => Ok(None),
            false => invalid(format!("Index '{}' already exists", name.name)),
        };
    }
    let mut def = TableDef::clone(table);
    if def.columns.iter().any(|column| column.ty == CqlType::Counter) {
        return invalid("Secondary indexes on counter tables aren't supported".into());
    }
    let (column, part) = target(&def, create, class.is_some())?;
    let column = column.name.clone();
    let name = match &create.name {
        Some(name) => name.name.clone(),
        None => free_name(&def.name, &column, is_taken),
    };
    let mut options = class_options(create, class.as_deref())?;
    options.insert("target".to_owned(), part.of(&column));
    let index = IndexDef { name, column, part, options, data: schema.version, is_built: false };
    if let Some(twin) = def.indexes.iter().find(|other| other.is_duplicate_of(&index)) {
        return match create.if_not_exists {
            true => Ok(None),
            false => invalid(format!("Index {} is a duplicate of existing index {}", index.name, twin.name)),
        };
    }
    check_name(&index.name)?;
    if index.is_custom() {
        check_class(&def, &index)?;
    }
    let at = def.indexes.partition_point(|other| other.name < index.name);
    def.indexes.insert(at, index);
    put_table(&mut schema, def)?;
    changed(schema, "UPDATED", SchemaTarget::Table, &keyspace, &create.table.name)
}

/// Drops an index, and its data.
pub(super) fn drop(
    mut schema: Schema,
    drop: &ast::DropObject,
    keyspace: &str,
) -> Result<Option<DefinitionStep>, Error> {
    let Some(table) = table_of(&schema, keyspace, &drop.name.name) else {
        return match drop.if_exists {
            true => Ok(None),
            false => invalid(format!("Index '{keyspace}.{}' doesn't exist'", drop.name.name)),
        };
    };
    let mut def = table.clone();
    let gone: Vec<Uuid> =
        def.indexes.extract_if(.., |index| index.name == drop.name.name).map(|index| index.data).collect();
    let name = def.name.clone();
    put_table(&mut schema, def)?;
    let mut step = changed(schema, "UPDATED", SchemaTarget::Table, keyspace, &name)?;
    step.iter_mut().for_each(|step| step.dropped_indexes.clone_from(&gone));
    Ok(step)
}

/// Returns the table with an index of this name.
pub(crate) fn table_of<'s>(schema: &'s Schema, keyspace: &str, index: &str) -> Option<&'s TableDef> {
    let mut tables = schema.keyspaces.get(keyspace)?.tables.values();
    tables.find(|table| table.indexes.iter().any(|own| own.name == index)).map(|table| &**table)
}

/// Returns the keyspace of the statement: that of the table, of the index, or the one in use.
pub(crate) fn keyspace_of(create: &ast::CreateIndex, used: Option<&str>) -> Result<String, Error> {
    let of_index = create.name.as_ref().and_then(|name| name.keyspace.as_deref());
    let of_table = create.table.keyspace.as_deref();
    if let (Some(index), Some(table)) = (of_index, of_table)
        && index != table
    {
        return invalid(format!("Keyspace name '{table}' doesn't match index name '{}'", create.table.name));
    }
    super::keyspace_of(&create.table, of_index.or(used))
}

/// Checks the class and the presence of options. Returns the class of a custom index.
fn class_of(create: &ast::CreateIndex) -> Result<Option<String>, Error> {
    let is_legacy = |class: &str| class.eq_ignore_ascii_case(LEGACY_CLASS);
    let unknown = |class: &str| Err(Error::Config(format!("Unable to find custom indexer class '{class}'")));
    match &create.class {
        // As in Cassandra, the default class is no custom one.
        None if create.custom => unknown(LEGACY_CLASS),
        None if !create.options.is_empty() => invalid("Cannot specify options for a non-CUSTOM index".into()),
        None => Ok(None),
        Some(class) if is_legacy(class) && !create.custom => Ok(None),
        Some(class) if is_storage_attached(class) => Ok(Some(class.clone())),
        Some(class) if class.ends_with("SASIIndex") => {
            invalid("SASI indexes are disabled. Enable in cassandra.yaml to use.".into())
        }
        Some(class) => unknown(class),
    }
}

/// Returns the options of a custom index, with its class.
fn class_options(create: &ast::CreateIndex, class: Option<&str>) -> Result<BTreeMap<String, String>, Error> {
    let mut options = BTreeMap::new();
    let Some(class) = class else { return Ok(options) };
    for (name, value) in &create.options {
        if name != "options" {
            return Err(Error::Syntax(format!("Unknown property '{name}'")));
        }
        let OptionValue::Map(pairs) = value else {
            return Err(Error::Syntax(format!("Invalid value for property '{name}'. It should be a map.")));
        };
        options.extend(pairs.iter().map(|(name, value)| (name.clone(), plain(value))));
    }
    for name in [CLASS_OPTION, "target"] {
        if options.contains_key(name) {
            return invalid(format!("Cannot specify {name} as a CUSTOM option"));
        }
    }
    options.insert(CLASS_OPTION.to_owned(), class.to_owned());
    Ok(options)
}

fn column_of(target: &IndexTarget) -> &str {
    match target {
        IndexTarget::Column(name)
        | IndexTarget::Values(name)
        | IndexTarget::Keys(name)
        | IndexTarget::Entries(name)
        | IndexTarget::Full(name) => name,
    }
}

/// Returns the indexed column and the part of it.
fn target<'d>(
    def: &'d TableDef,
    create: &ast::CreateIndex,
    is_custom: bool,
) -> Result<(&'d ColumnDef, IndexedPart), Error> {
    let of = |name: &String| {
        def.column(name).map(|(_, column)| column).ok_or_else(|| {
            Error::Invalid(format!("Undefined column name {name} in table {}.{}", def.keyspace, def.name))
        })
    };
    let [target] = &create.targets[..] else {
        let names: Vec<&str> = create.targets.iter().map(column_of).collect();
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))
            && is_custom
        {
            return invalid(format!("Duplicate column '{}' in index target list", twice.1));
        }
        return invalid(match (create.targets.len(), is_custom) {
            (0, false) => "Only CUSTOM indexes can be created without specifying a target column".into(),
            (0, true) => "Failed to retrieve target column for: ".into(),
            (_, false) => "Only CUSTOM indexes support multiple columns".into(),
            (_, true) => format!(
                "A storage-attached index cannot be created over multiple columns: {}",
                names.join(", ")
            ),
        });
    };
    let (name, part) = match target {
        IndexTarget::Column(name) => (name, IndexedPart::Value),
        IndexTarget::Values(name) => (name, IndexedPart::Values),
        IndexTarget::Keys(name) => (name, IndexedPart::Keys),
        IndexTarget::Entries(name) => (name, IndexedPart::Entries),
        IndexTarget::Full(name) => (name, IndexedPart::Full),
    };
    let column = of(name)?;
    let part = match part {
        IndexedPart::Value if column.ty.thawed().is_collection() => IndexedPart::Values,
        part => part,
    };
    check_target(def, column, part)?;
    Ok((column, part))
}

fn check_target(def: &TableDef, column: &ColumnDef, part: IndexedPart) -> Result<(), Error> {
    let (name, ty, shown) = (&column.name, &column.ty, part.name().unwrap_or_default());
    if let Some(what) = with_duration(ty) {
        let what = if what == "durations" { "duration columns" } else { what };
        return invalid(format!("Secondary indexes are not supported on {what}"));
    }
    if matches!(column.kind, ColumnKind::PartitionKey(_)) && def.partition_key().count() == 1 {
        return invalid(format!("Cannot create secondary index on the only partition key column {name}"));
    }
    let is_frozen = ty.thawed().is_collection() && !ty.is_multi_cell();
    if is_frozen && part != IndexedPart::Full {
        return invalid(format!(
            "Cannot create {shown}() index on frozen column {name}. Frozen collections are immutable and must be \
             fully indexed by using the 'full({name})' modifier"
        ));
    }
    if !is_frozen && part == IndexedPart::Full {
        return invalid("full() indexes can only be created on frozen collections".into());
    }
    if !ty.thawed().is_collection() && part != IndexedPart::Value {
        return invalid(format!(
            "Cannot create {shown}() index on {name}. Non-collection columns only support simple indexes"
        ));
    }
    if matches!(part, IndexedPart::Keys | IndexedPart::Entries) && !matches!(ty, CqlType::Map(..)) {
        return invalid(format!("Cannot create index on {shown} of column {name} with non-map type"));
    }
    if ty.is_multi_cell() && !ty.is_collection() {
        return invalid(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    Ok(())
}

/// Checks a storage-attached index against the limits of its class.
fn check_class(def: &TableDef, index: &IndexDef) -> Result<(), Error> {
    let (name, names) = (&index.column, option_names(index));
    let is_known = |name: &&str| TEXT_OPTIONS.contains(name) || vector_index::OPTIONS.contains(name);
    let unknown: Vec<&str> = names.iter().filter(|name| !is_known(name)).copied().collect();
    if !unknown.is_empty() {
        return Err(Error::Config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            unknown.join(", ")
        )));
    }
    if !name.chars().all(is_of_word) {
        return invalid(format!("Column '{name}' contains non-alphanumeric-underscore characters"));
    }
    let same = |other: &&IndexDef| {
        other.column == index.column && other.part == index.part && other.is_storage_attached()
    };
    if def.indexes.iter().any(|other| same(&other)) {
        return invalid(format!(
            "Cannot create more than one storage-attached index on the same column: {name}"
        ));
    }
    let (_, column) = def.column(name).expect("the target was checked");
    let names: Vec<&str> = names.into_iter().filter(|name| TEXT_OPTIONS.contains(name)).collect();
    if matches!(column.kind, ColumnKind::PartitionKey(_) | ColumnKind::Clustering(..)) && !names.is_empty() {
        let given = names.iter().map(|name| format!("'{name}': '{}'", index.options[*name]));
        return invalid(format!(
            "Analysis options are not supported on primary key columns, but found {{{}}}",
            given.collect::<Vec<_>>().join(", ")
        ));
    }
    if let Some(ty) = unsupported(&column.ty, index.part) {
        return invalid(format!("Unsupported type: {ty}"));
    }
    vector_index::check(&column.ty, index)?;
    check_analysis(column, index, &names)
}

/// Checks the options of an index that concern texts.
fn check_analysis(column: &ColumnDef, index: &IndexDef, names: &[&str]) -> Result<(), Error> {
    for option in names {
        let value = &index.options[*option];
        if value.is_empty() {
            return invalid(format!("Empty value for boolean option '{option}'"));
        }
        if value.to_ascii_lowercase().parse::<bool>().is_err() {
            return invalid(format!("Illegal value for boolean option '{option}': {value}"));
        }
    }
    let ty = match index.part {
        IndexedPart::Value | IndexedPart::Full => Some(&column.ty),
        IndexedPart::Keys => column.ty.inner().first().copied(),
        IndexedPart::Values => column.ty.inner().last().copied(),
        IndexedPart::Entries => {
            let classes: Vec<String> = column.ty.inner().into_iter().map(CqlType::class_name).collect();
            let package = "org.apache.cassandra.db.marshal";
            return match names.is_empty() {
                true => Ok(()),
                false => invalid(format!(
                    "CQL type '{package}.CompositeType({})' cannot be analyzed.",
                    classes.join(",")
                )),
            };
        }
    };
    match names.is_empty() || matches!(ty, Some(CqlType::Text | CqlType::Ascii)) {
        true => Ok(()),
        false => invalid(format!("CQL type {} cannot be analyzed.", ty.unwrap_or(&column.ty))),
    }
}

/// Returns the names of the options that the statement has given.
fn option_names(index: &IndexDef) -> Vec<&str> {
    let names = index.options.keys().map(String::as_str);
    names.filter(|name| *name != "target" && *name != CLASS_OPTION).collect()
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the type that storage-attached indexes refuse, if they refuse the indexed part.
fn unsupported(ty: &CqlType, part: IndexedPart) -> Option<&CqlType> {
    let refused = |ty: &&CqlType| matches!(ty, CqlType::Blob | CqlType::Duration | CqlType::Counter);
    match part {
        IndexedPart::Value => Some(ty).filter(refused),
        IndexedPart::Full => None,
        IndexedPart::Keys => ty.inner().first().copied().filter(refused),
        IndexedPart::Values => ty.inner().last().copied().filter(refused),
        IndexedPart::Entries => ty.inner().into_iter().find(refused),
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    match !name.is_empty() && name.chars().all(is_of_word) {
        true => Ok(()),
        false => Err(Error::Config(format!("Illegal index name {name}"))),
    }
}

/// Returns the default name of an index, with a number if it is taken.
fn free_name(table: &str, column: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let base: String = format!("{table}_{column}_idx").chars().filter(|c| is_of_word(*c)).collect();
    let numbered = (1_u64..).map(|number| format!("{base}_{number}"));
    let mut names = std::iter::once(base.clone()).chain(numbered);
    names.find(|name| !is_taken(name)).expect("there are fewer indexes than numbers")
}

/// Returns an error if an index needs a column that a statement removes or renames.
pub(super) fn check_free(def: &TableDef, column: &str, verb: &str) -> Result<(), Error> {
    let names: Vec<&str> =
        def.indexes.iter().filter(|index| index.column == column).map(|index| index.name.as_str()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => invalid(format!(
            "Cannot {verb} column {column} because it has dependent secondary indexes ({})",
            names.join(", ")
        )),
    }
}
