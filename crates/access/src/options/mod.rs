//! Options of service levels. One table declares the name, the column type, the setter and the
//! getter of each option. Statements, listings, messages and tests use this table.

mod query_limit;
mod setters;
mod values;

use cql::ast::OptionValue;
use engine::Error;
use schema::CqlType;
use units::{bytes_text, percent_text};
use workload::{Effective, LevelSpec, QUEUE_SIZE_DEFAULT};

use self::query_limit::{query_limit, set_query_limit};
use self::setters::{
    set_io_limit, set_latency_target, set_max_concurrency, set_shares, set_tag, set_workload_type,
};
use self::values::{count, duration, integer, milliseconds, percent, shares, string, text_of, truth};

/// An option.
pub(crate) struct LevelOption {
    pub(crate) name: &'static str,
    /// Type of its column in listings.
    pub(crate) ty: fn() -> CqlType,
    /// Checks a value and sets it in a specification.
    set: fn(&mut LevelSpec, &OptionValue) -> Result<(), Error>,
    /// Returns the value in the form that sets it. Null if it is not set.
    get: fn(&LevelSpec) -> OptionValue,
    /// Returns the level that supplies the value for a role. `None`: the level that supplied
    /// `shares`.
    from: Option<fn(&Effective) -> Option<&str>>,
}

impl LevelOption {
    /// Returns the value in a listing, serialized.
    pub(crate) fn cell(&self, spec: &LevelSpec) -> Option<Vec<u8>> {
        Some(match (self.get)(spec) {
            OptionValue::Integer(number) if matches!((self.ty)(), CqlType::Text) => number.to_string().into(),
            OptionValue::Integer(number) => i32::try_from(number).unwrap_or(i32::MAX).to_be_bytes().into(),
            OptionValue::Boolean(truth) => vec![u8::from(truth)],
            OptionValue::Duration(duration) => duration.to_bytes(),
            OptionValue::Null => return None,
            other => text_of(&other).into_bytes(),
        })
    }

    /// Returns the level that supplies the value, and the value as text. `None` if no level sets
    /// it: the level is then the one that supplied `shares`.
    pub(crate) fn effective<'a>(&self, effective: &'a Effective) -> (&'a str, Option<String>) {
        let value = (self.get)(&effective.spec);
        let from = self.from.and_then(|from| from(effective)).unwrap_or(effective.level.name());
        (from, (value != OptionValue::Null).then(|| text_of(&value)))
    }
}

/// Options in the order of the columns.
pub(crate) const OPTIONS: [LevelOption; 18] = [
    LevelOption {
        name: "timeout",
        ty: || CqlType::Duration,
        // As in ScyllaDB, a timeout of 0 is none.
        set: |spec, value| match value {
            OptionValue::Duration(zero) if *zero == schema::value::Duration::default() => {
                spec.timeout = None;
                Ok(())
            }
            value => milliseconds("timeout", "Timeout values", value).map(|set| spec.timeout = set),
        },
        get: |spec| duration(spec.timeout),
        from: Some(|effective| effective.timeout_from.as_deref()),
    },
    LevelOption {
        name: "workload_type",
        ty: || CqlType::Text,
        set: set_workload_type,
        get: |spec| string(spec.workload_type.map(|kind| kind.name().to_owned())),
        from: Some(|effective| effective.workload_type_from.as_deref()),
    },
    LevelOption {
        name: "shares",
        ty: || CqlType::Int,
        set: set_shares,
        get: |spec| OptionValue::Integer(spec.shares.into()),
        from: None,
    },
    LevelOption {
        name: "shares_min",
        ty: || CqlType::Int,
        set: |spec, value| shares("shares_min", value).map(|set| spec.latency.shares_min = set),
        get: |spec| integer(spec.latency.shares_min.map(u32::from)),
        from: None,
    },
    LevelOption {
        name: "shares_max",
        ty: || CqlType::Int,
        set: |spec, value| shares("shares_max", value).map(|set| spec.latency.shares_max = set),
        get: |spec| integer(spec.latency.shares_max.map(u32::from)),
        from: None,
    },
    LevelOption {
        name: "latency_target",
        ty: || CqlType::Text,
        set: set_latency_target,
        get: |spec| {
            let target = spec.latency.target;
            string(target.map(|target| format!("p99 < {}", text_of(&duration(Some(target))))))
        },
        from: None,
    },
    LevelOption {
        name: "cpu_limit",
        ty: || CqlType::Text,
        set: |spec, value| percent("cpu_limit", 10_000, value).map(|set| spec.cpu_limit_ppm = set),
        get: |spec| string(spec.cpu_limit_ppm.map(percent_text)),
        from: None,
    },
    LevelOption {
        name: "cpu_min",
        ty: || CqlType::Text,
        set: |spec, value| percent("cpu_min", 0, value).map(|set| spec.cpu_min_ppm = set.unwrap_or(0)),
        get: |spec| string(Some(spec.cpu_min_ppm).filter(|ppm| *ppm > 0).map(percent_text)),
        from: None,
    },
    LevelOption {
        name: "io_limit",
        ty: || CqlType::Text,
        set: set_io_limit,
        get: |spec| string(spec.io_limit.map(|bytes| format!("{}/s", bytes_text(bytes)))),
        from: None,
    },
    LevelOption {
        name: "max_concurrency",
        ty: || CqlType::Text,
        set: set_max_concurrency,
        get: |spec| match spec.slots.is_auto {
            true => string(Some("auto".to_owned())),
            false => integer(spec.slots.max_concurrency),
        },
        from: None,
    },
    LevelOption {
        name: "max_queue_size",
        ty: || CqlType::Int,
        set: |spec, value| {
            let set = count("max_queue_size", 0, "", value)?;
            spec.slots.max_queue_size = set.unwrap_or(QUEUE_SIZE_DEFAULT);
            Ok(())
        },
        get: |spec| integer(Some(spec.slots.max_queue_size)),
        from: None,
    },
    LevelOption {
        name: "queue_timeout",
        ty: || CqlType::Duration,
        set: |spec, value| {
            milliseconds("queue_timeout", "'queue_timeout' values", value)
                .map(|set| spec.slots.queue_timeout = set)
        },
        get: |spec| duration(spec.slots.queue_timeout),
        from: None,
    },
    LevelOption {
        name: "memory_min",
        ty: || CqlType::Text,
        set: |spec, value| percent("memory_min", 0, value).map(|set| spec.memory.min_ppm = set.unwrap_or(0)),
        get: |spec| string(Some(spec.memory.min_ppm).filter(|ppm| *ppm > 0).map(percent_text)),
        from: None,
    },
    LevelOption {
        name: "memory_limit",
        ty: || CqlType::Text,
        set: |spec, value| percent("memory_limit", 10_000, value).map(|set| spec.memory.limit_ppm = set),
        get: |spec| string(spec.memory.limit_ppm.map(percent_text)),
        from: None,
    },
    LevelOption {
        name: "memory_overcommit",
        ty: || CqlType::Boolean,
        set: |spec, value| truth("memory_overcommit", value).map(|set| spec.memory.overcommit = set),
        get: |spec| OptionValue::Boolean(spec.memory.overcommit),
        from: None,
    },
    LevelOption {
        name: "spill",
        ty: || CqlType::Boolean,
        set: |spec, value| truth("spill", value).map(|set| spec.spill = set),
        get: |spec| OptionValue::Boolean(spec.spill),
        from: None,
    },
    LevelOption {
        name: "query_limit",
        ty: || CqlType::Text,
        set: set_query_limit,
        get: |spec| spec.query_limit.as_ref().map_or(OptionValue::Null, query_limit),
        from: None,
    },
    LevelOption {
        name: "tag",
        ty: || CqlType::Text,
        set: set_tag,
        get: |spec| string(spec.tag.as_ref().map(ToString::to_string)),
        from: Some(|effective| effective.tag_from.as_deref()),
    },
];

/// Names that options have in other databases, and the closest names here.
const NAMES_ELSEWHERE: [(&str, &str); 12] = [
    ("cpu_share", "shares"),
    ("cpu_hard_limit", "cpu_limit"),
    ("max_cpu_percent", "cpu_limit"),
    ("min_cpu_percent", "cpu_min"),
    ("enable_memory_overcommit", "memory_overcommit"),
    ("max_memory_percent", "memory_limit"),
    ("min_memory_percent", "memory_min"),
    ("read_bytes_per_second", "io_limit"),
    ("remote_read_bytes_per_second", "io_limit"),
    ("spill_threshold_low_watermark", "spill"),
    ("spill_threshold_high_watermark", "spill"),
    ("scan_thread_num", "cpu_limit"),
];

/// Sets the options of a statement in a specification.
///
/// # Errors
/// Returns an error for an unknown option and for an invalid value.
pub(crate) fn set_all(spec: &mut LevelSpec, options: &[(String, OptionValue)]) -> Result<(), Error> {
    options.iter().try_for_each(|(name, value)| match OPTIONS.iter().find(|option| option.name == name) {
        Some(option) => (option.set)(spec, value),
        None => Err(Error::Invalid(unknown(name))),
    })
}

fn unknown(name: &str) -> String {
    match NAMES_ELSEWHERE.iter().find(|(other, _)| *other == name) {
        Some((_, own)) => format!("unknown option '{name}': use '{own}'"),
        None => format!("unknown option '{name}': expected one of {}", names()),
    }
}

fn names() -> String {
    OPTIONS.map(|option| option.name).join(", ")
}

/// Formats all options as CQL for storage: `shares = 1000 AND …`.
pub(crate) fn to_text(spec: &LevelSpec) -> String {
    let set = OPTIONS.iter().map(|option| (option.name, (option.get)(spec)));
    let set = set.filter(|(_, value)| *value != OptionValue::Null);
    set.map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(" AND ")
}

/// Parses a level from its name and the text of [`to_text`]. `None` if this server did not write
/// the text.
pub(crate) fn of_text(name: &str, options: &str) -> Option<LevelSpec> {
    let parsed = cql::parse(&format!("ALTER SERVICE LEVEL x WITH {options}")).ok()?;
    let cql::Statement::AlterServiceLevel(alter) = parsed else { return None };
    let mut spec = LevelSpec::new(name);
    set_all(&mut spec, &alter.options).ok()?;
    Some(spec)
}

#[cfg(test)]
mod tests;
