//! Options of a table: checked as in Cassandra, and stored in the form in which Cassandra shows
//! them. Those that are maps with an effect are checked by `storage_options`.

use cql::ast::{self, OptionValue};
use engine::{Error, Schema};
use schema::{TTL_SECONDS_MAX, TableDef};
use uuid::Uuid;

use super::step::plain;
use super::storage_options;

/// Bounds of false positives that Cassandra's filters can have, and the defaults of the intervals
/// of its index summaries.
const BLOOM_FILTER_FP_CHANCE_MIN: f64 = 6.71e-5;
const MIN_INDEX_INTERVAL: i32 = 128;
const MAX_INDEX_INTERVAL: i32 = 2048;

fn config<T>(text: String) -> Result<T, Error> {
    Err(Error::Config(text))
}

fn syntax<T>(text: String) -> Result<T, Error> {
    Err(Error::Syntax(text))
}

/// Sets the options of a statement.
///
/// # Errors
/// Returns Cassandra's error for an unknown option, or a value that is not accepted.
pub(super) fn set(def: &mut TableDef, options: &ast::OptionList) -> Result<(), Error> {
    for (name, option) in options {
        match name.as_str() {
            "comment" => def.options.comment = simple(name, option)?,
            "default_time_to_live" => {
                let seconds = not_negative(name, option)?;
                if seconds > TTL_SECONDS_MAX {
                    return config(format!(
                        "{name} must be less than or equal to {TTL_SECONDS_MAX} (got {seconds})"
                    ));
                }
                def.options.default_time_to_live = seconds;
            }
            "gc_grace_seconds" => def.options.gc_grace_seconds = not_negative(name, option)?,
            // See `id`.
            "id" => {}
            _ if schema::stored_option(name).is_some() => {
                let text = stored(name, option)?;
                def.options.other.insert(name.to_owned(), text);
            }
            _ => return syntax(format!("Unknown property '{name}'")),
        }
    }
    let interval = |name: &str, default| {
        def.options.other.get(name).and_then(|text| text.parse::<i32>().ok()).unwrap_or(default)
    };
    let min = interval("min_index_interval", MIN_INDEX_INTERVAL);
    let max = interval("max_index_interval", MAX_INDEX_INTERVAL);
    if max < min {
        return config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({min}) (got {max})"
        ));
    }
    Ok(())
}

/// Returns the identity that a CREATE TABLE chooses for its table, if any.
///
/// # Errors
/// Returns an error if it is no UUID, or that of another table.
pub(super) fn id(schema: &Schema, options: &ast::OptionList) -> Result<Option<Uuid>, Error> {
    let Some((name, value)) = options.iter().find(|(name, _)| name == "id") else { return Ok(None) };
    let Ok(id) = simple(name, value)?.parse::<Uuid>() else { return config("Invalid table id".into()) };
    let mut tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    match tables.find(|def| def.id == id) {
        Some(def) => {
            config(format!("expected an id that no table has, got {id} of {}.{}", def.keyspace, def.name))
        }
        None => Ok(Some(id)),
    }
}

/// Checks that an ALTER TABLE changes only options that can change.
pub(super) fn check_altered(properties: &ast::TableProperties) -> Result<(), Error> {
    if properties.options.iter().any(|(name, _)| name == "id") {
        return config("Cannot alter table id.".into());
    }
    Ok(())
}

/// Checks an option that is stored as text, and returns that text.
fn stored(name: &str, value: &OptionValue) -> Result<String, Error> {
    storage_options::check(name, value)?;
    match name {
        "additional_write_policy" | "speculative_retry" => retry_policy(&simple(name, value)?),
        "bloom_filter_fp_chance" => {
            let chance = double(name, value)?;
            match chance > BLOOM_FILTER_FP_CHANCE_MIN && chance <= 1.0 {
                true => Ok(format!("{chance:?}")),
                false => config(format!(
                    "{name} must be larger than 6.71E-5 and less than or equal to 1.0 (got {chance:?})"
                )),
            }
        }
        "crc_check_chance" => {
            let chance = double(name, value)?;
            match (0.0..=1.0).contains(&chance) {
                true => Ok(format!("{chance:?}")),
                false => config(format!(
                    "{name} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {chance:?})"
                )),
            }
        }
        "caching" => caching(name, value),
        "max_index_interval" => Ok(integer(name, value)?.to_string()),
        "min_index_interval" => match integer(name, value)? {
            interval @ 1.. => Ok(interval.to_string()),
            interval => config(format!("{name} must be greater than or equal to 1 (got {interval})")),
        },
        "memtable_flush_period_in_ms" => Ok(not_negative(name, value)?.to_string()),
        "read_repair" => {
            let strategy = simple(name, value)?.to_ascii_uppercase();
            match strategy.as_str() {
                "NONE" | "BLOCKING" => Ok(strategy),
                _ => config(format!("expected NONE or BLOCKING for 'read_repair', got '{strategy}'")),
            }
        }
        "memtable" => match simple(name, value)?.as_str() {
            "default" => Ok("default".into()),
            other => config(format!("Memtable configuration \"{other}\" not found.")),
        },
        "allow_auto_snapshot" => Ok(boolean(name, value)?.to_string()),
        "cdc" | "incremental_backups" if !matches!(value, OptionValue::Map(_) | OptionValue::Null) => {
            Ok(boolean(name, value)?.to_string())
        }
        _ => Ok(plain(value)),
    }
}

/// Returns the text of a value that is not a map.
fn simple(name: &str, value: &OptionValue) -> Result<String, Error> {
    match value {
        OptionValue::Map(_) => syntax(format!("Invalid value for property '{name}'. It should be a string")),
        OptionValue::Duration(duration) => Ok(duration.to_string()),
        value => Ok(plain(value)),
    }
}

fn integer(name: &str, value: &OptionValue) -> Result<i32, Error> {
    let text = simple(name, value)?;
    text.parse().or_else(|_| syntax(format!("Invalid integer value {text} for '{name}'")))
}

fn not_negative(name: &str, value: &OptionValue) -> Result<u32, Error> {
    let number = integer(name, value)?;
    u32::try_from(number)
        .or_else(|_| config(format!("{name} must be greater than or equal to 0 (got {number})")))
}

fn double(name: &str, value: &OptionValue) -> Result<f64, Error> {
    let text = simple(name, value)?;
    text.parse().or_else(|_| syntax(format!("Invalid double value {text} for '{name}'")))
}

/// Parses a boolean option.
///
/// # Errors
/// Returns Cassandra's error for other values.
pub(super) fn boolean(name: &str, value: &OptionValue) -> Result<bool, Error> {
    let text = simple(name, value)?;
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => syntax(format!(
            "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or 'yes'. \
             Negative values can be '0', 'false' or 'no'."
        )),
    }
}

fn caching(name: &str, value: &OptionValue) -> Result<String, Error> {
    let OptionValue::Map(pairs) = value else {
        return syntax(format!("Invalid value for property '{name}'. It should be a map."));
    };
    let known = ["keys", "rows_per_partition"];
    let unknown: Vec<&str> =
        pairs.iter().map(|(option, _)| option.as_str()).filter(|option| !known.contains(option)).collect();
    if !unknown.is_empty() {
        return config(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            unknown.join(", ")
        ));
    }
    let given = |option: &str| pairs.iter().find(|(name, _)| name == option).map(|(_, value)| plain(value));
    let refused = |option: &str, value: &str, accepted: &str| {
        config(format!(
            "Invalid value '{value}' for caching sub-option '{option}': only {accepted} are allowed"
        ))
    };
    let keys = given("keys").unwrap_or_else(|| "NONE".into());
    let rows = given("rows_per_partition").unwrap_or_else(|| "NONE".into());
    let (upper_keys, upper_rows) = (keys.to_ascii_uppercase(), rows.to_ascii_uppercase());
    if !["ALL", "NONE"].contains(&upper_keys.as_str()) {
        return refused("keys", &keys, "'ALL' and 'NONE'");
    }
    let rows = match upper_rows.as_str() {
        "ALL" | "NONE" => upper_rows,
        _ => match rows.parse::<u32>() {
            Ok(0) => "NONE".into(),
            Ok(count) if count <= i32::MAX as u32 && rows.bytes().all(|b| b.is_ascii_digit()) => {
                count.to_string()
            }
            _ => return refused("rows_per_partition", &rows, "'ALL', 'NONE', and integer values"),
        },
    };
    Ok(format!("{{'keys': '{upper_keys}', 'rows_per_partition': '{rows}'}}"))
}

/// Checks a policy of repeated reads, and returns it in Cassandra's form: `99p`, `50ms`, `ALWAYS`,
/// `NEVER`, `MIN(99p,50ms)` or `MAX(99p,50ms)`.
fn retry_policy(text: &str) -> Result<String, Error> {
    let upper = text.to_ascii_uppercase();
    if ["ALWAYS", "NEVER"].contains(&upper.as_str()) {
        return Ok(upper);
    }
    if upper == "NONE" {
        return Ok("NEVER".into());
    }
    let refused = || config(format!("Invalid value {text} for option 'speculative_retry'"));
    let both = upper.strip_suffix(')').and_then(|rest| rest.split_once('('));
    if let Some((function @ ("MIN" | "MAX"), both)) = both {
        let Some((first, second)) = both.split_once(',') else { return refused() };
        let (first, second) = (delay(first.trim(), text)?, delay(second.trim(), text)?);
        return match (first, second) {
            (Some(first), Some(second)) if first.ends_with('p') != second.ends_with('p') => {
                Ok(format!("{function}({first},{second})"))
            }
            (Some(first), Some(_)) => {
                let kind = if first.ends_with('p') { "PERCENTILE" } else { "FIXED" };
                config(format!(
                    "Invalid value {text} for option 'speculative_retry': MIN()/MAX() arguments should be of \
                     different types, but both are of type {kind}"
                ))
            }
            _ => refused(),
        };
    }
    delay(&upper, text)?.map_or_else(refused, Ok)
}

/// Parses `99P`, `99PERCENTILE` or `50MS`. `None`: the text has another form. `whole` is the
/// option.
fn delay(upper: &str, whole: &str) -> Result<Option<String>, Error> {
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        is_number.then(|| digits.parse::<f64>().ok()).flatten()
    };
    if let Some(ms) = upper.strip_suffix("MS").and_then(number) {
        return Ok(Some(format!("{}ms", ms.trunc())));
    }
    let percent = upper.strip_suffix("PERCENTILE").or_else(|| upper.strip_suffix('P')).and_then(number);
    match percent {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(Some(format!("{percent}p"))),
        Some(_) => config(format!(
            "Invalid value {whole} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)"
        )),
        None => Ok(None),
    }
}
