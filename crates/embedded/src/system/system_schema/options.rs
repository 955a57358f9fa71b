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
    /// Value as CQL text if the table does not specify the option. `None`: null, which Cassandra
    /// shows for options that are left at their default.
    default: Option<&'static str>,
}

const fn option(name: &'static str, ty: &'static str, default: Option<&'static str>) -> TableOption {
    TableOption { name, ty, default }
}

const TEXT_MAP: &str = "frozen<map<text, text>>";

/// All options, sorted by name. `comment`, `default_time_to_live`, `flags`, `gc_grace_seconds` and
/// `id` always come from the definition. The two read repair chances have no meaning any more, but
/// drivers read them.
pub(super) const ALL: [TableOption; 23] = [
    option("additional_write_policy", "text", Some("'99p'")),
    option("allow_auto_snapshot", "boolean", None),
    option("bloom_filter_fp_chance", "double", Some("0.01")),
    option("caching", TEXT_MAP, Some("{'keys': 'ALL', 'rows_per_partition': 'NONE'}")),
    option("cdc", "boolean", None),
    option("comment", "text", None),
    option(
        "compaction",
        TEXT_MAP,
        Some("{'class': 'SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}"),
    ),
    option("compression", TEXT_MAP, Some("{'chunk_length_in_kb': '16', 'class': 'LZ4Compressor'}")),
    option("crc_check_chance", "double", Some("1.0")),
    option("dclocal_read_repair_chance", "double", Some("0.0")),
    option("default_time_to_live", "int", None),
    option("extensions", "frozen<map<text, blob>>", Some("{}")),
    option("flags", "frozen<set<text>>", None),
    option("gc_grace_seconds", "int", None),
    option("id", "uuid", None),
    option("incremental_backups", "boolean", None),
    option("max_index_interval", "int", Some("2048")),
    option("memtable", "text", None),
    option("memtable_flush_period_in_ms", "int", Some("0")),
    option("min_index_interval", "int", Some("128")),
    option("read_repair", "text", Some("'BLOCKING'")),
    option("read_repair_chance", "double", Some("0.0")),
    option("speculative_retry", "text", Some("'99p'")),
];

/// Returns the defaults as cells, in the order of [`ALL`].
pub(super) fn defaults() -> Vec<Option<Bytes>> {
    ALL.iter().map(|option| option.default.and_then(|text| cell(option, text))).collect()
}

/// Returns the options of a table as cells, in the order of [`ALL`].
pub(super) fn cells<'a>(
    def: &'a TableDef,
    defaults: &'a [Option<Bytes>],
) -> impl Iterator<Item = Option<Bytes>> + 'a {
    ALL.iter().zip(defaults).map(|(option, default)| {
        let options = &def.options;
        match option.name {
            "comment" => Some(Bytes::copy_from_slice(options.comment.as_bytes())),
            "default_time_to_live" => Some(seconds(options.default_time_to_live)),
            "flags" => Some(flags(def)),
            "gc_grace_seconds" => Some(seconds(options.gc_grace_seconds)),
            "id" => Some(Bytes::copy_from_slice(def.id.as_bytes())),
            name => {
                let given = options.other.get(name).and_then(|text| cell(option, text));
                given.or_else(|| leveled_default(def, option)).or_else(|| default.clone())
            }
        }
    })
}

/// Returns the default of a table with leveled compaction, if it differs from that of other tables.
fn leveled_default(def: &TableDef, option: &TableOption) -> Option<Bytes> {
    let is_leveled =
        || def.options.other.get("compaction").is_some_and(|text| text.contains("LeveledCompaction"));
    if option.name == "bloom_filter_fp_chance" && is_leveled() { cell(option, "0.1") } else { None }
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
        (TEXT_MAP, Some(OptionValue::Map(pairs))) => {
            let pairs = pairs.iter().filter_map(|(key, value)| Some((key.clone(), scalar(value)?)));
            let mut pairs: BTreeMap<String, String> = pairs.collect();
            complete(option.name, &mut pairs);
            if let Some(class) = pairs.get_mut("class") {
                *class = full_class(package(option.name), class);
            }
            Some(text_map(&pairs))
        }
        (TEXT_MAP, _) => None,
        // As a CQL word, `NEVER` would be in lower case.
        ("text", _) if !text.starts_with('\'') => Some(Bytes::copy_from_slice(text.as_bytes())),
        (ty, value) => {
            // Text that is not a CQL constant, such as `99p` without quotes, is used unchanged.
            let text = value.as_ref().map_or_else(|| Some(text.to_owned()), scalar)?;
            value::parse_text(&column_type(ty), &text).ok().map(Bytes::from)
        }
    }
}

/// Completes a map as Cassandra stores it: with its defaults, and current names of sub-options.
fn complete(option: &str, pairs: &mut BTreeMap<String, String>) {
    let default = |pairs: &mut BTreeMap<String, String>, name: &str, value: &str| {
        pairs.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    if option == "compaction" && pairs.contains_key("class") {
        default(pairs, "max_threshold", "32");
        default(pairs, "min_threshold", "4");
    }
    if option != "compression" {
        return;
    }
    for (old, name) in [("sstable_compression", "class"), ("chunk_length_kb", "chunk_length_in_kb")] {
        if let Some(value) = pairs.remove(old) {
            default(pairs, name, &value);
        }
    }
    let is_off = pairs.remove("enabled").is_some_and(|enabled| !enabled.eq_ignore_ascii_case("true"));
    match pairs.get("class") {
        Some(class) if !is_off && !class.is_empty() => default(pairs, "chunk_length_in_kb", "16"),
        _ => *pairs = BTreeMap::from([("enabled".to_owned(), "false".to_owned())]),
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

fn package(option: &str) -> &'static str {
    if option == "compression" {
        "org.apache.cassandra.io.compress"
    } else {
        "org.apache.cassandra.db.compaction"
    }
}

/// Returns a class name with its package, as Cassandra always shows it. Drivers compare these
/// names.
pub(super) fn full_class(package: &str, class: &str) -> String {
    if class.contains('.') { class.to_owned() } else { format!("{package}.{class}") }
}

/// Serializes a `map<text, text>`.
pub(super) fn text_map(map: &BTreeMap<String, String>) -> Bytes {
    value::encode_map(map.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes()))).into()
}

/// Parses the type of a column.
pub(super) fn column_type(text: &str) -> CqlType {
    CqlType::parse(text, &|_| None).expect("the layouts name built-in types")
}
