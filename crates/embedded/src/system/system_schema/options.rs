//! Options of `system_schema.tables`: declared once with type and default. Options without effect
//! are stored in a table as CQL text, which this module parses.

use std::collections::BTreeMap;

use bytes::Bytes;
use cql::Statement;
use cql::ast::OptionValue;
use schema::{CqlType, TableDef, value};

/// An option: one column of `system_schema.tables`.
pub(super) struct TableOption {
    pub(super) name: &'static str,
    /// CQL type.
    pub(super) ty: &'static str,
}

const fn option(name: &'static str, ty: &'static str) -> TableOption {
    TableOption { name, ty }
}

/// Options for which Cassandra shows null if a table does not specify them.
const NULL_BY_DEFAULT: [&str; 4] = ["allow_auto_snapshot", "cdc", "incremental_backups", "memtable"];

const TEXT_MAP: &str = "frozen<map<text, text>>";

/// All options, sorted by name. `comment`, `default_time_to_live`, `flags`, `gc_grace_seconds` and
/// `id` always come from the definition. The two read repair chances have no meaning any more, but
/// drivers read them.
pub(super) const ALL: [TableOption; 23] = [
    option("additional_write_policy", "text"),
    option("allow_auto_snapshot", "boolean"),
    option("bloom_filter_fp_chance", "double"),
    option("caching", TEXT_MAP),
    option("cdc", "boolean"),
    option("comment", "text"),
    option("compaction", TEXT_MAP),
    option("compression", TEXT_MAP),
    option("crc_check_chance", "double"),
    option("dclocal_read_repair_chance", "double"),
    option("default_time_to_live", "int"),
    option("extensions", "frozen<map<text, blob>>"),
    option("flags", "frozen<set<text>>"),
    option("gc_grace_seconds", "int"),
    option("id", "uuid"),
    option("incremental_backups", "boolean"),
    option("max_index_interval", "int"),
    option("memtable", "text"),
    option("memtable_flush_period_in_ms", "int"),
    option("min_index_interval", "int"),
    option("read_repair", "text"),
    option("read_repair_chance", "double"),
    option("speculative_retry", "text"),
];

/// Returns the defaults as cells, in the order of [`ALL`].
pub(super) fn defaults() -> Vec<Option<Bytes>> {
    let default = |option: &TableOption| match option.name {
        "dclocal_read_repair_chance" | "read_repair_chance" => Some("0.0"),
        name if NULL_BY_DEFAULT.contains(&name) => None,
        name => schema::stored_option(name).map(|option| option.default),
    };
    ALL.iter().map(|option| default(option).and_then(|text| cell(option, text))).collect()
}

/// Returns the options of a table as cells, in the order of [`ALL`].
pub(super) fn cells<'a>(
    def: &'a TableDef,
    defaults: &'a [Option<Bytes>],
) -> impl Iterator<Item = Option<Bytes>> + 'a {
    ALL.iter().zip(defaults).map(|(option, default)| {
        let options = &def.options;
        match option.name {
            // As in Cassandra where `cdc_enabled` is false: DESCRIBE alone shows it.
            "cdc" => None,
            "comment" => Some(Bytes::copy_from_slice(options.comment.as_bytes())),
            "default_time_to_live" => Some(seconds(options.default_time_to_live)),
            "flags" => Some(flags(def)),
            "gc_grace_seconds" => Some(seconds(options.gc_grace_seconds)),
            "id" => Some(Bytes::copy_from_slice(def.id.as_bytes())),
            name => {
                let given = options.other.get(name).and_then(|text| cell(option, text));
                given.or_else(|| own_default(def, option)).or_else(|| default.clone())
            }
        }
    })
}

/// Returns the default of an option, if that of the table differs from that of other tables.
fn own_default(def: &TableDef, option: &TableOption) -> Option<Bytes> {
    let stored = schema::stored_option(option.name)?;
    let text = def.options.default_of(stored);
    if text == stored.default { None } else { cell(option, text) }
}

/// Returns a CQL `int`. Validation bounds these options far below its maximum.
fn seconds(seconds: u32) -> Bytes {
    Bytes::copy_from_slice(&i32::try_from(seconds).unwrap_or(i32::MAX).to_be_bytes())
}

/// Returns the flags that Cassandra shows for tables without COMPACT STORAGE, and for counter
/// tables.
fn flags(def: &TableDef) -> Bytes {
    let all: [&[u8]; 2] = [b"compound", b"counter"];
    let counter = def.columns.iter().any(|c| c.ty == CqlType::Counter);
    value::encode_list(all[..1 + usize::from(counter)].iter().copied()).into()
}

/// Parses an option to a cell. `None`: the text is not a valid value.
fn cell(option: &TableOption, text: &str) -> Option<Bytes> {
    let value = read(text);
    match (option.ty, &value) {
        ("frozen<map<text, blob>>", _) => Some(value::encode_list(std::iter::empty()).into()),
        (TEXT_MAP, _) => cql::option_map(option.name, text).map(|pairs| text_map(&pairs)),
        // As a CQL word, `NEVER` would be in lower case.
        ("text", _) if !text.starts_with('\'') => Some(Bytes::copy_from_slice(text.as_bytes())),
        (ty, value) => {
            // Text that is not a CQL constant, such as `99p` without quotes, is used unchanged.
            let text = value.as_ref().map_or_else(|| Some(text.to_owned()), scalar)?;
            value::parse_text(&column_type(ty), &text).ok().map(Bytes::from)
        }
    }
}

/// Parses the value of an option with the CQL parser.
fn read(text: &str) -> Option<OptionValue> {
    match cql::parse(&format!("ALTER KEYSPACE k WITH o = {text}")).ok()? {
        Statement::AlterKeyspace(mut alter) if alter.options.len() == 1 => {
            alter.options.pop().map(|(_, v)| v)
        }
        _ => None,
    }
}

fn scalar(value: &OptionValue) -> Option<String> {
    match value {
        OptionValue::Integer(n) => Some(n.to_string()),
        OptionValue::Float(n) => Some(n.to_string()),
        OptionValue::Boolean(b) => Some(b.to_string()),
        OptionValue::String(s) => Some(s.clone()),
        OptionValue::Duration(_) | OptionValue::Null | OptionValue::Map(_) => None,
    }
}

/// Serializes a `map<text, text>`.
pub(super) fn text_map(map: &BTreeMap<String, String>) -> Bytes {
    value::encode_map(map.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))).into()
}

/// Parses the type of a column.
pub(super) fn column_type(text: &str) -> CqlType {
    CqlType::parse(text, &|_| None).expect("the layouts name built-in types")
}
