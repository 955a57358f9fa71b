//! `compaction` and `compression` of a table: checked as in Cassandra, and converted to storage's
//! options.
//!
//! Strategies and compressors have the names of Cassandra or ScyllaDB. Accepting a name for
//! something different would mislead. Those without a counterpart are therefore rejected, with the
//! names of the available ones. Sub-options without a meaning in this storage, such as
//! `bucket_high`, are accepted and shown, but have no effect.

use cql::ast::OptionValue;
use engine::Error;
use schema::TableDef;
use storage::{Compression, Strategy, TableOptions};

const COMPACTION_PACKAGE: &str = "org.apache.cassandra.db.compaction.";
const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";

/// Options of every strategy.
const COMMON_OPTIONS: &[&str] = &[
    "class",
    "enabled",
    "log_all",
    "only_purge_repaired_tombstones",
    "provide_overlapping_tombstones",
    "tombstone_compaction_interval",
    "tombstone_threshold",
    "unchecked_tombstone_compaction",
    "max_threshold",
    "min_threshold",
];
const TIERED_OPTIONS: &[&str] = &["bucket_high", "bucket_low", "min_sstable_size"];
const LEVELED_OPTIONS: &[&str] = &["fanout_size", "single_sstable_uplevel", "sstable_size_in_mb"];
const TIME_WINDOW_OPTIONS: &[&str] = &[
    "bucket_high",
    "bucket_low",
    "compaction_window_size",
    "compaction_window_unit",
    "expired_sstable_check_frequency_seconds",
    "max_window_size",
    "min_sstable_size",
    "timestamp_resolution",
    "unsafe_aggressive_sstable_expiration",
];
const INCREMENTAL_OPTIONS: &[&str] =
    &["bucket_high", "bucket_low", "min_sstable_size", "space_amplification_goal", "sstable_size_in_mb"];
/// Strategies: name, additional options, and storage's counterpart.
const STRATEGIES: &[(&str, &[&str], Strategy)] = &[
    ("SizeTieredCompactionStrategy", TIERED_OPTIONS, Strategy::SizeTiered),
    ("LeveledCompactionStrategy", LEVELED_OPTIONS, Strategy::Leveled),
    ("TimeWindowCompactionStrategy", TIME_WINDOW_OPTIONS, Strategy::TimeWindow { window_s: 24 * 3600 }),
    ("IncrementalCompactionStrategy", INCREMENTAL_OPTIONS, Strategy::Incremental),
];

/// Compressors and storage's counterparts.
const COMPRESSORS: &[(&str, Compression)] = &[
    ("LZ4Compressor", Compression::Lz4),
    ("ZstdCompressor", Compression::Zstd),
    ("NoopCompressor", Compression::None),
];

/// Classes of Cassandra and ScyllaDB that are not implemented, with the nearest one that is.
const ABSENT: [(&str, &str); 4] = [
    ("UnifiedCompactionStrategy", "IncrementalCompactionStrategy"),
    ("DateTieredCompactionStrategy", "TimeWindowCompactionStrategy"),
    ("SnappyCompressor", "LZ4Compressor"),
    ("DeflateCompressor", "ZstdCompressor"),
];

type Pairs = [(String, OptionValue)];

/// Rejects a class that is not implemented.
fn absent(class: &str) -> Result<(), Error> {
    match ABSENT.iter().find(|(absent, _)| *absent == class) {
        Some((_, nearest)) => config(format!("{class} is not implemented; the nearest class is {nearest}")),
        None => Ok(()),
    }
}

fn config<T>(text: String) -> Result<T, Error> {
    Err(Error::Config(text))
}

/// Returns the options of the data of a table's indexes: those of the table, but entries that were
/// removed need not be remembered.
pub(crate) fn of_index(def: &TableDef) -> TableOptions {
    let TableOptions { compression, block_bytes, .. } = of_table(def);
    TableOptions { compression, block_bytes, gc_grace_s: 0, ..TableOptions::default() }
}

/// Returns the storage options of a table. Its definition was checked when it was created.
pub(crate) fn of_table(def: &TableDef) -> TableOptions {
    let mut options = TableOptions { gc_grace_s: def.options.gc_grace_seconds, ..TableOptions::default() };
    for (name, apply) in APPLIED {
        if let Some(OptionValue::Map(pairs)) = def.options.other.get(name).and_then(|text| read(text)) {
            let before = options;
            if apply(&pairs, &mut options).is_err() {
                options = before;
            }
        }
    }
    options
}

type Apply = fn(&Pairs, &mut TableOptions) -> Result<(), Error>;

/// Options that are maps and have an effect on storage.
const APPLIED: [(&str, Apply); 3] =
    [("compaction", compaction), ("compression", compression), ("tombstone_gc", tombstone_gc)];

/// Returns true if the value of `cdc` is for a log of changes as ScyllaDB keeps it, which its users
/// would rely on. Cassandra's form, a boolean, has no effect: as in a node with the default
/// `cdc_enabled: false`, there is no log.
fn is_change_log(value: &OptionValue) -> bool {
    let OptionValue::Map(pairs) = value else { return false };
    !pairs.iter().any(|(name, value)| name == "enabled" && text(value).eq_ignore_ascii_case("false"))
}

/// Number of runs of similar size that a table with compaction switched off keeps. Its owner knows
/// when to compact (`COMPACT TABLE`), but runs cost memory and files.
const UNCOMPACTED_RUNS_MAX: u32 = 256;

/// Checks the value of a table's option.
pub(crate) fn check(name: &str, value: &OptionValue) -> Result<(), Error> {
    if name == "cdc" && is_change_log(value) {
        return config("ScyllaDB's cdc is not implemented: leave it out, or set 'enabled' to false".into());
    }
    let Some((_, apply)) = APPLIED.iter().find(|(applied, _)| *applied == name) else { return Ok(()) };
    match value {
        OptionValue::Map(pairs) => apply(pairs, &mut TableOptions::default()),
        _ => config(format!("Invalid value for property '{name}'. It should be a map.")),
    }
}

/// Parses the stored text of an option with the CQL parser.
fn read(text: &str) -> Option<OptionValue> {
    match cql::parse(&format!("ALTER KEYSPACE k WITH o = {text}")).ok()? {
        cql::Statement::AlterKeyspace(mut alter) => alter.options.pop().map(|(_, value)| value),
        _ => None,
    }
}

fn text(value: &OptionValue) -> String {
    super::step::plain(value)
}

fn find<'p>(pairs: &'p Pairs, name: &str) -> Option<&'p OptionValue> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// Returns an integer option, if it is given.
fn number(pairs: &Pairs, name: &str) -> Result<Option<i64>, Error> {
    let Some(value) = find(pairs, name) else { return Ok(None) };
    match text(value).trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => config(format!("{} is not a parsable int (base10) for {name}", text(value))),
    }
}

fn is_true(pairs: &Pairs, name: &str, default: bool) -> bool {
    find(pairs, name).map_or(default, |value| text(value).eq_ignore_ascii_case("true"))
}

fn compaction(pairs: &Pairs, out: &mut TableOptions) -> Result<(), Error> {
    let Some(class) = find(pairs, "class").map(text) else {
        return config("Missing sub-option 'class' for the 'compaction' option.".into());
    };
    let short = class.strip_prefix(COMPACTION_PACKAGE).unwrap_or(&class);
    let Some((name, own, strategy)) = STRATEGIES.iter().find(|(name, ..)| *name == short) else {
        absent(short)?;
        return config(format!("Unable to find compaction strategy class '{COMPACTION_PACKAGE}{short}'"));
    };
    let unknown: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    let unknown: Vec<&str> =
        unknown.into_iter().filter(|name| !COMMON_OPTIONS.contains(name) && !own.contains(name)).collect();
    if !unknown.is_empty() {
        return config(format!("Properties specified [{}] are not understood by {name}", unknown.join(", ")));
    }
    let enabled = find(pairs, "enabled").map_or_else(|| "true".into(), text);
    if !matches!(&*enabled.to_ascii_lowercase(), "true" | "false") {
        return config(format!("enabled should either be 'true' or 'false', not {enabled}"));
    }
    out.strategy = *strategy;
    let (min, max) = (number(pairs, "min_threshold")?, number(pairs, "max_threshold")?);
    if let Some(min) = min {
        if min < 2 {
            return config(format!("Min compaction threshold cannot be less than 2 (got {min})"));
        }
        if min > max.unwrap_or(32) {
            return config("Min compaction threshold cannot be larger than max compaction threshold.".into());
        }
        out.min_threshold = u32::try_from(min).unwrap_or(u32::MAX);
    }
    if let Some(max) = max {
        if max < 2 {
            return config(format!("Max compaction threshold cannot be less than 2 (got {max})."));
        }
        out.max_threshold = u32::try_from(max).unwrap_or(u32::MAX);
    }
    tombstones(pairs, out)?;
    if let Some(mb) = number(pairs, "sstable_size_in_mb")? {
        match u64::try_from(mb) {
            Ok(mb @ 1..=1_048_576) => out.fragment_bytes = mb << 20,
            _ => return config(format!("sstable_size_in_mb must be larger than 0, but was {mb}")),
        }
    }
    if let Some(goal) = find(pairs, "space_amplification_goal").map(text) {
        match goal.parse::<f64>() {
            Ok(factor) if factor > 1.0 && factor <= 2.0 => {
                out.space_amplification_goal = Some((factor * 1000.0).round() as u32);
            }
            _ => {
                return config(format!(
                    "space_amplification_goal value ({goal}) must be greater than 1.0 and less than or equal to 2.0"
                ));
            }
        }
    }
    check_buckets(pairs)?;
    if let Strategy::TimeWindow { .. } = strategy {
        out.strategy = Strategy::TimeWindow { window_s: window(pairs)? };
        out.timestamps_per_s = resolution(pairs)?;
    }
    if !is_true(pairs, "enabled", true) {
        out.strategy = Strategy::SizeTiered;
        out.min_threshold = UNCOMPACTED_RUNS_MAX;
        out.tombstone_threshold_ppm = u32::MAX;
    }
    Ok(())
}

/// Checks the bounds of the buckets of a strategy, which have no effect here.
fn check_buckets(pairs: &Pairs) -> Result<(), Error> {
    let bound = |name: &str, default: f64| match find(pairs, name).map(text) {
        Some(given) => {
            given.parse().or_else(|_| config(format!("{given} is not a parsable float for {name}")))
        }
        None => Ok(default),
    };
    let (low, high): (f64, f64) = (bound("bucket_low", 0.5)?, bound("bucket_high", 1.5)?);
    match high <= low {
        true => config(format!(
            "bucket_high value ({high:?}) is less than or equal to the bucket_low value ({low:?})"
        )),
        false => Ok(()),
    }
}

/// Parses ScyllaDB's option for when tombstones are dropped, which overrides `gc_grace_seconds`.
/// The grace is for replicas that miss a deletion. There are no replicas here, so a table may do
/// without.
fn tombstone_gc(pairs: &Pairs, out: &mut TableOptions) -> Result<(), Error> {
    let known = ["mode", "propagation_delay_in_seconds"];
    if let Some((name, _)) = pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        return config(format!(
            "expected mode or propagation_delay_in_seconds in tombstone_gc, got '{name}'"
        ));
    }
    if number(pairs, "propagation_delay_in_seconds")?.is_some_and(|delay| delay < 0) {
        return config("expected propagation_delay_in_seconds of at least 0 in tombstone_gc".into());
    }
    match find(pairs, "mode").map(text).as_deref() {
        Some("timeout") | None => {}
        Some("immediate") => out.gc_grace_s = 0,
        Some("disabled") => out.gc_grace_s = u32::MAX,
        Some("repair") => {
            return config(
                "tombstone_gc mode 'repair' needs replicas, which this server does not have: use 'timeout', \
                 'immediate' or 'disabled'"
                    .into(),
            );
        }
        Some(mode) => {
            return config(format!(
                "expected mode timeout, immediate or disabled in tombstone_gc, got '{mode}'"
            ));
        }
    }
    Ok(())
}

/// Parses the thresholds at which a run is compacted alone because of its dead data.
fn tombstones(pairs: &Pairs, out: &mut TableOptions) -> Result<(), Error> {
    if let Some(threshold) = find(pairs, "tombstone_threshold").map(text) {
        match threshold.parse::<f64>() {
            Ok(share) if share > 0.0 && share.is_finite() => {
                out.tombstone_threshold_ppm = (share.min(1.0) * 1e6).round() as u32;
            }
            Ok(_) => {
                let problem = format!("tombstone_threshold must be greater than 0, but was {threshold}");
                return config(problem);
            }
            Err(_) => {
                return config(format!("{threshold} is not a parsable float for tombstone_threshold"));
            }
        }
    }
    if let Some(interval) = number(pairs, "tombstone_compaction_interval")? {
        match u32::try_from(interval) {
            Ok(interval) => out.tombstone_interval_s = interval,
            Err(_) if interval > 0 => out.tombstone_interval_s = u32::MAX,
            Err(_) => {
                let problem =
                    format!("tombstone_compaction_interval must be greater than 0, but was {interval}");
                return config(problem);
            }
        }
    }
    if let Some(unchecked) = find(pairs, "unchecked_tombstone_compaction").map(text) {
        out.unchecked_tombstones = match unchecked.to_ascii_lowercase().as_str() {
            "true" => true,
            "false" => false,
            _ => {
                let problem = format!(
                    "'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{unchecked}'"
                );
                return config(problem);
            }
        };
    }
    Ok(())
}

/// Returns the number of timestamp units per second.
fn resolution(pairs: &Pairs) -> Result<u64, Error> {
    let unit = find(pairs, "timestamp_resolution").map_or_else(|| "MICROSECONDS".to_owned(), text);
    match unit.to_ascii_uppercase().as_str() {
        "SECONDS" => Ok(1),
        "MILLISECONDS" => Ok(1000),
        "MICROSECONDS" => Ok(1_000_000),
        "NANOSECONDS" => Ok(1_000_000_000),
        _ => config(format!("{unit} is not valid for timestamp_resolution")),
    }
}

/// Returns the length of a time window in seconds.
fn window(pairs: &Pairs) -> Result<u32, Error> {
    let unit = find(pairs, "compaction_window_unit").map_or_else(|| "DAYS".to_owned(), text);
    let unit_s: u32 = match unit.to_ascii_uppercase().as_str() {
        "MINUTES" => 60,
        "HOURS" => 3600,
        "DAYS" => 24 * 3600,
        _ => return config(format!("{unit} is not valid for compaction_window_unit")),
    };
    match number(pairs, "compaction_window_size")?.unwrap_or(1) {
        size @ 1.. => Ok(u32::try_from(size).unwrap_or(u32::MAX).saturating_mul(unit_s)),
        size => config(format!("{size} must be greater than 0 for compaction_window_size")),
    }
}

fn compression(pairs: &Pairs, out: &mut TableOptions) -> Result<(), Error> {
    const KNOWN: [&str; 10] = [
        "chunk_length_in_kb",
        "chunk_length_kb",
        "class",
        "compression_level",
        "crc_check_chance",
        "enabled",
        "lz4_compressor_type",
        "lz4_high_compressor_level",
        "min_compress_ratio",
        "sstable_compression",
    ];
    if let Some((unknown, _)) = pairs.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
        return config(format!("Unknown compression options {unknown}"));
    }
    let class = find(pairs, "class").or_else(|| find(pairs, "sstable_compression")).map(text);
    let off = !is_true(pairs, "enabled", true) || pairs.is_empty() || class.as_deref() == Some("");
    if off {
        if let (Some(class), true) = (&class, pairs.len() > 1) {
            return config(match class.is_empty() && find(pairs, "class").is_some() {
                true => "The 'class' option must not be empty. To disable compression use 'enabled' : false"
                    .into(),
                false => {
                    "If the 'enabled' option is set to false no other options must be specified".to_owned()
                }
            });
        }
        out.compression = Compression::None;
        return Ok(());
    }
    let Some(class) = class else {
        return config("Missing sub-option 'class' for the 'compression' option.".into());
    };
    let short = class.strip_prefix(COMPRESSION_PACKAGE).unwrap_or(&class);
    match COMPRESSORS.iter().find(|(name, _)| *name == short) {
        Some((_, compression)) => out.compression = *compression,
        None => {
            absent(short)?;
            return config(format!("Could not create Compression for type {COMPRESSION_PACKAGE}{short}"));
        }
    }
    if let Some(ratio) = find(pairs, "min_compress_ratio").map(text) {
        match ratio.parse::<f64>() {
            Ok(ratio) if ratio < 0.0 => return config("Invalid negative min_compress_ratio".into()),
            Ok(ratio) if ratio > 0.0 && ratio < 1.0 => {
                return config("min_compress_ratio can either be 0 or greater than or equal to 1".into());
            }
            Ok(_) => {}
            Err(_) => return config("Invalid value for min_compress_ratio".into()),
        }
    }
    for name in ["chunk_length_in_kb", "chunk_length_kb"] {
        match number(pairs, name)? {
            None => {}
            Some(kb) if kb <= 0 => return config(format!("Invalid negative or null {name}")),
            Some(kb) if kb.count_ones() != 1 => return config(format!("{name} must be a power of 2")),
            Some(kb) => match usize::try_from(kb) {
                Ok(kb @ ..=16_384) => out.block_bytes = kb << 10,
                _ => return config(format!("{name} is at most 16384")),
            },
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_option(name: &str, written: &str, expected: Result<TableOptions, &str>) {
        let value = read(written).expect("an option");
        let found = check(name, &value).map(|()| {
            let mut options = TableOptions::default();
            if let OptionValue::Map(pairs) = &value {
                let (_, apply) =
                    APPLIED.iter().find(|(applied, _)| *applied == name).expect("an option of APPLIED");
                apply(pairs, &mut options).expect("checked");
            }
            options
        });
        assert_eq!(found.map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{written}");
    }

    #[test]
    fn log_of_changes_as_in_scylla_can_only_be_off() {
        let check = |written| check("cdc", &read(written).expect("an option")).map_err(|e| e.to_string());
        let refused = "ScyllaDB's cdc is not implemented: leave it out, or set 'enabled' to false";
        for on in ["{'enabled': 'true'}", "{'preimage': 'false'}"] {
            assert_eq!(check(on), Err(refused.to_owned()), "{on}");
        }
        for taken in ["true", "'true'", "false", "'False'", "{'enabled': false}"] {
            assert_eq!(check(taken), Ok(()), "{taken}");
        }
    }

    #[test]
    fn compaction_that_is_switched_off_waits_for_many_runs() {
        let options = |tombstone_threshold_ppm, strategy, min_threshold| TableOptions {
            tombstone_threshold_ppm,
            strategy,
            min_threshold,
            ..TableOptions::default()
        };
        let leveled = |enabled| format!("{{'class': 'LeveledCompactionStrategy', 'enabled': '{enabled}'}}");
        let check = |written: String, expected| check_option("compaction", &written, expected);
        check(leveled("false"), Ok(options(u32::MAX, Strategy::SizeTiered, UNCOMPACTED_RUNS_MAX)));
        let TableOptions { tombstone_threshold_ppm, min_threshold, .. } = TableOptions::default();
        check(leveled("True"), Ok(options(tombstone_threshold_ppm, Strategy::Leveled, min_threshold)));
        check(leveled("x"), Err("enabled should either be 'true' or 'false', not x"));
    }

    #[test]
    fn tombstone_gc_mode_decides_the_grace() {
        let default = TableOptions::default();
        let check = |written, expected| check_option("tombstone_gc", written, expected);
        check("{'mode': 'timeout', 'propagation_delay_in_seconds': '3600'}", Ok(default));
        check("{'mode': 'immediate'}", Ok(TableOptions { gc_grace_s: 0, ..default }));
        check("{'mode': 'disabled'}", Ok(TableOptions { gc_grace_s: u32::MAX, ..default }));
        check(
            "{'mode': 'repair'}",
            Err(
                "tombstone_gc mode 'repair' needs replicas, which this server does not have: use 'timeout', \
                 'immediate' or 'disabled'",
            ),
        );
        check(
            "{'mode': 'never'}",
            Err("expected mode timeout, immediate or disabled in tombstone_gc, got 'never'"),
        );
        check(
            "{'mod': 'timeout'}",
            Err("expected mode or propagation_delay_in_seconds in tombstone_gc, got 'mod'"),
        );
    }

    #[test]
    fn strategies_are_converted_to_storage_options() {
        let default = TableOptions::default();
        let check = |written, expected| check_option("compaction", written, expected);
        check(
            "{'class': 'SizeTieredCompactionStrategy', 'min_threshold': '8', 'bucket_low': 0.5}",
            Ok(TableOptions { strategy: Strategy::SizeTiered, min_threshold: 8, ..default }),
        );
        check(
            "{'class': 'org.apache.cassandra.db.compaction.LeveledCompactionStrategy', 'sstable_size_in_mb': 160}",
            Ok(TableOptions { strategy: Strategy::Leveled, fragment_bytes: 160 << 20, ..default }),
        );
        check(
            "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', \
             'compaction_window_size': '6'}",
            Ok(TableOptions { strategy: Strategy::TimeWindow { window_s: 6 * 3600 }, ..default }),
        );
        check(
            "{'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': '1.25', \
             'sstable_size_in_mb': 1000}",
            Ok(TableOptions {
                strategy: Strategy::Incremental,
                space_amplification_goal: Some(1250),
                fragment_bytes: 1000 << 20,
                ..default
            }),
        );
        check(
            "{'class': 'SizeTieredCompactionStrategy', 'tombstone_threshold': '0.5', 'max_threshold': 8, \
             'tombstone_compaction_interval': '3600', 'unchecked_tombstone_compaction': 'true'}",
            Ok(TableOptions {
                strategy: Strategy::SizeTiered,
                max_threshold: 8,
                tombstone_threshold_ppm: 500_000,
                tombstone_interval_s: 3600,
                unchecked_tombstones: true,
                ..default
            }),
        );
        check(
            "{'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'MILLISECONDS'}",
            Ok(TableOptions {
                strategy: Strategy::TimeWindow { window_s: 24 * 3600 },
                timestamps_per_s: 1000,
                ..default
            }),
        );
    }

    #[test]
    fn invalid_compaction_options_are_rejected() {
        let check = |written, expected| check_option("compaction", written, Err(expected));
        check("{'min_threshold': 4}", "Missing sub-option 'class' for the 'compaction' option.");
        check(
            "{'class': 'Nope'}",
            "Unable to find compaction strategy class 'org.apache.cassandra.db.compaction.Nope'",
        );
        check(
            "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}",
            "UnifiedCompactionStrategy is not implemented; the nearest class is IncrementalCompactionStrategy",
        );
        check(
            "{'class': 'LeveledCompactionStrategy', 'bucket_low': 1}",
            "Properties specified [bucket_low] are not understood by LeveledCompactionStrategy",
        );
        check(
            "{'class': 'SizeTieredCompactionStrategy', 'min_threshold': 'x'}",
            "x is not a parsable int (base10) for min_threshold",
        );
        check(
            "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'WEEKS'}",
            "WEEKS is not valid for compaction_window_unit",
        );
        check(
            "{'class': 'SizeTieredCompactionStrategy', 'tombstone_threshold': '-1'}",
            "tombstone_threshold must be greater than 0, but was -1",
        );
        check(
            "{'class': 'SizeTieredCompactionStrategy', 'tombstone_compaction_interval': '-3'}",
            "tombstone_compaction_interval must be greater than 0, but was -3",
        );
        check(
            "{'class': 'LeveledCompactionStrategy', 'unchecked_tombstone_compaction': 'perhaps'}",
            "'unchecked_tombstone_compaction' should be either 'true' or 'false', not 'perhaps'",
        );
        check(
            "{'class': 'TimeWindowCompactionStrategy', 'timestamp_resolution': 'WEEKS'}",
            "WEEKS is not valid for timestamp_resolution",
        );
        check(
            "{'class': 'IncrementalCompactionStrategy', 'space_amplification_goal': 2.5}",
            "space_amplification_goal value (2.5) must be greater than 1.0 and less than or equal to 2.0",
        );
    }

    #[test]
    fn compressors_are_converted_to_storage_options() {
        let default = TableOptions::default();
        let check = |written, expected| check_option("compression", written, expected);
        let with =
            |compression, kb: usize| Ok(TableOptions { compression, block_bytes: kb << 10, ..default });
        check("{'class': 'ZstdCompressor', 'chunk_length_in_kb': 128}", with(Compression::Zstd, 128));
        check("{'sstable_compression': 'LZ4Compressor', 'chunk_length_kb': '4'}", with(Compression::Lz4, 4));
        check("{'enabled': 'false'}", with(Compression::None, 64));
        check("{'sstable_compression': ''}", with(Compression::None, 64));
        check(
            "{'class': 'LZ4Compressor', 'chunk_length_in_kb': 5}",
            Err("chunk_length_in_kb must be a power of 2"),
        );
        check(
            "{'class': 'Nope'}",
            Err("Could not create Compression for type org.apache.cassandra.io.compress.Nope"),
        );
        check(
            "{'class': 'SnappyCompressor'}",
            Err("SnappyCompressor is not implemented; the nearest class is LZ4Compressor"),
        );
        check("{'chunk_length_in_kb': 4}", Err("Missing sub-option 'class' for the 'compression' option."));
        check("{'class': 'LZ4Compressor', 'nope': 4}", Err("Unknown compression options nope"));
    }
}
