//! Options of a table in DESCRIBE: all of them, in Cassandra's order and with its defaults.

use std::collections::BTreeMap;
use std::fmt::{self, Formatter};

use schema::{StoredOption, TableDef};

use super::parts::option_map as write_map;
use crate::ast::{OptionValue, Statement};
use crate::words::Quoted;

/// Names of the options in the order of DESCRIBE. `comment`, `default_time_to_live` and
/// `gc_grace_seconds` are fields of the definition.
const ORDER: [&str; 20] = [
    "additional_write_policy",
    "allow_auto_snapshot",
    "bloom_filter_fp_chance",
    "caching",
    "cdc",
    "comment",
    "compaction",
    "compression",
    "memtable",
    "crc_check_chance",
    "default_time_to_live",
    "extensions",
    "gc_grace_seconds",
    "incremental_backups",
    "max_index_interval",
    "memtable_flush_period_in_ms",
    "min_index_interval",
    "read_repair",
    "speculative_retry",
    "tombstone_gc",
];

/// Writes `a = 1` and so on, one option a line.
pub(super) fn table_options(f: &mut Formatter<'_>, def: &TableDef) -> fmt::Result {
    options_except(f, def, None)
}

/// Writes options as [`table_options`] does, without one of them.
pub(super) fn options_except(f: &mut Formatter<'_>, def: &TableDef, hidden: Option<&str>) -> fmt::Result {
    let mut before = "";
    for name in ORDER.into_iter().filter(|name| Some(*name) != hidden) {
        let options = &def.options;
        let value = match name {
            "comment" => Quoted(&options.comment).to_string(),
            "default_time_to_live" => options.default_time_to_live.to_string(),
            "gc_grace_seconds" => options.gc_grace_seconds.to_string(),
            _ => {
                let Some(stored) = schema::stored_option(name) else { continue };
                let text = options.other.get(name).map_or(options.default_of(stored), String::as_str);
                if text.is_empty() {
                    continue;
                }
                constant(stored, text)
            }
        };
        write!(f, "{before}{name} = {value}")?;
        before = "\n    AND ";
    }
    f.write_str(";")
}

/// Returns the stored value of an option as a constant.
fn constant(option: &StoredOption, text: &str) -> String {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-') && text.parse::<f64>().is_ok();
    match option_map(option.name, text) {
        Some(pairs) => {
            let pairs: Vec<_> =
                pairs.into_iter().map(|(key, value)| (key, OptionValue::String(value))).collect();
            Map(&pairs).to_string()
        }
        None if is_number || ["true", "false"].contains(&text) => text.to_owned(),
        None => Quoted(text).to_string(),
    }
}

struct Map<'a>(&'a [(String, OptionValue)]);

impl fmt::Display for Map<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_map(f, self.0)
    }
}

/// Returns the value of an option that is a map as Cassandra stores it: with its defaults, with
/// current names of sub-options, and with packages before names of classes, which drivers compare.
/// `None`: the text is no map.
#[must_use]
pub fn option_map(option: &str, text: &str) -> Option<BTreeMap<String, String>> {
    let Ok(Statement::AlterKeyspace(alter)) = crate::parse(&format!("ALTER KEYSPACE k WITH o = {text}"))
    else {
        return None;
    };
    let [(_, OptionValue::Map(pairs))] = &alter.options[..] else { return None };
    let scalar = |value: &OptionValue| match value {
        OptionValue::Integer(number) => Some(number.to_string()),
        OptionValue::Float(number) => Some(number.to_string()),
        OptionValue::Boolean(value) => Some(value.to_string()),
        OptionValue::String(text) => Some(text.clone()),
        OptionValue::Duration(_) | OptionValue::Null | OptionValue::Map(_) => None,
    };
    let mut pairs: BTreeMap<String, String> =
        pairs.iter().filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect();
    complete(option, &mut pairs);
    Some(pairs)
}

fn complete(option: &str, pairs: &mut BTreeMap<String, String>) {
    let default = |pairs: &mut BTreeMap<String, String>, name: &str, value: &str| {
        pairs.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    };
    if option == "compaction" && pairs.contains_key("class") {
        default(pairs, "max_threshold", "32");
        default(pairs, "min_threshold", "4");
    }
    if option == "compression" {
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
    let package = match option {
        "compression" => "org.apache.cassandra.io.compress",
        _ => "org.apache.cassandra.db.compaction",
    };
    if let Some(class) = pairs.get_mut("class").filter(|class| !class.contains('.')) {
        *class = format!("{package}.{class}");
    }
}
