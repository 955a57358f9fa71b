//! Options of service levels. One table declares the name, the column type, the setter and the
//! getter of each option. Statements, listings, messages and tests use this table.

use std::time::Duration;

use cql::ast::OptionValue;
use engine::Error;
use schema::CqlType;
use units::{bytes_text, parse_percent, percent_text};
use workload::{
    Action, Effective, LevelSpec, QUEUE_SIZE_DEFAULT, QUEUE_SIZE_MAX, QueryLimit, SHARES_DEFAULT,
    WorkloadType,
};

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
            OptionValue::Duration(d) => {
                let months = d.months;
                let days = d.days;
                let nanoseconds = d.nanoseconds;
                schema::value::Duration { months, days, nanoseconds }.to_bytes()
            }
            OptionValue::Null => return None,
            other => text_of(&other).into_bytes(),
        })
    }

    /// Returns the level that supplies the value, and the value as text. `None` if it is not set.
    pub(crate) fn effective<'a>(&self, effective: &'a Effective) -> Option<(&'a str, String)> {
        let value = (self.get)(&effective.spec);
        let from = self.from.map_or_else(|| Some(&**effective.level.name()), |from| from(effective))?;
        (value != OptionValue::Null).then(|| (from, text_of(&value)))
    }
}

/// Options in the order of the columns.
pub(crate) const OPTIONS: [LevelOption; 17] = [
    LevelOption {
        name: "timeout",
        ty: || CqlType::Duration,
        set: |spec, value| milliseconds("timeout", "Timeout values", value).map(|set| spec.timeout = set),
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
            let set = count("max_queue_size", (0, ""), value)?;
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
];

/// Options that are planned.
const PLANNED: [&str; 1] = ["tag"];

/// Option names of Apache Doris and the closest names here.
const DORIS: [(&str, &str); 12] = [
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

/// Longest timeout, about 24 days: `i32::MAX` milliseconds.
const TIMEOUT_MS_MAX: i64 = i32::MAX as i64;
/// Smallest I/O limit, in bytes per second: 16 of the disk's smallest requests.
const IO_LIMIT_MIN: u64 = 64 << 10;

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
    if PLANNED.contains(&name) {
        return format!("the option '{name}' is not supported yet: expected one of {}", names());
    }
    match DORIS.iter().find(|(other, _)| *other == name) {
        Some((_, own)) => format!("unknown option '{name}': use '{own}'"),
        None => format!("unknown option '{name}': expected one of {}", names()),
    }
}

fn names() -> String {
    OPTIONS.map(|option| option.name).join(", ")
}

/// Parses a duration in whole milliseconds. Messages start with `what`.
fn milliseconds(name: &str, what: &str, value: &OptionValue) -> Result<Option<Duration>, Error> {
    let wrong =
        |given: &str| Error::Invalid(format!("'{name}' takes a duration such as 50ms (given {given})"));
    let duration = match value {
        OptionValue::Null => return Ok(None),
        OptionValue::Duration(duration) => *duration,
        OptionValue::String(text) => cql::ast::Duration::parse(text).ok_or_else(|| wrong(text))?,
        other => return Err(wrong(&text_of(other))),
    };
    if duration.months != 0 || duration.days != 0 {
        return Err(Error::Invalid(format!("{what} cannot have days, months or years")));
    }
    if duration.nanoseconds % 1_000_000 != 0 {
        return Err(Error::Invalid(format!("{what} must be expressed in millisecond granularity")));
    }
    let ms = duration.nanoseconds / 1_000_000;
    if !(1..=TIMEOUT_MS_MAX).contains(&ms) {
        return Err(Error::Invalid(format!("{what} must be from 1ms to {TIMEOUT_MS_MAX}ms")));
    }
    Ok(Some(Duration::from_millis(ms.unsigned_abs())))
}

/// Parses a number of statements from `min` to `QUEUE_SIZE_MAX`. `others` are the other values that
/// the message names.
fn count(name: &str, (min, others): (u32, &str), value: &OptionValue) -> Result<Option<u32>, Error> {
    let set = match value {
        OptionValue::Null => return Ok(None),
        OptionValue::Integer(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    match set.filter(|set| (min..=QUEUE_SIZE_MAX).contains(set)) {
        Some(set) => Ok(Some(set)),
        None => {
            let given = text_of(value);
            let text =
                format!("'{name}' can only take values of {min}-{QUEUE_SIZE_MAX}{others} (given {given})");
            Err(Error::Invalid(text))
        }
    }
}

/// Parses a percentage of at least `min_ppm`. Returns ppm.
fn percent(name: &str, min_ppm: u32, value: &OptionValue) -> Result<Option<u32>, Error> {
    match value {
        OptionValue::Null => Ok(None),
        OptionValue::String(text) if let Some(ppm) = parse_percent(text).filter(|ppm| *ppm >= min_ppm) => {
            Ok(Some(ppm))
        }
        other => {
            let min = percent_text(min_ppm);
            let given = text_of(other);
            let text = format!("'{name}' can only take values of '{min}' to '100%' (given {given})");
            Err(Error::Invalid(text))
        }
    }
}

/// Parses bytes that fit a `bigint`.
fn parse_bytes(text: &str) -> Option<u64> {
    units::parse_bytes(text).filter(|bytes| i64::try_from(*bytes).is_ok())
}

/// Parses a boolean. Null is true.
fn truth(name: &str, value: &OptionValue) -> Result<bool, Error> {
    match value {
        OptionValue::Null => Ok(true),
        OptionValue::Boolean(truth) => Ok(*truth),
        other => {
            Err(Error::Invalid(format!("'{name}' can only be true or false (given {})", text_of(other))))
        }
    }
}

fn set_query_limit(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    let invalid = |why: String| {
        Err(Error::Invalid(format!(
            "{why}: 'query_limit' takes {{'elapsed': '30s', 'rows': 1e9, 'bytes': '10GB', 'action': 'cancel', \
             'overload': 'demote:LEVEL, suspend, cancel'}}, with at least one limit, and 'cancel', 'demote:LEVEL' or \
             'log' as the action"
        )))
    };
    let entries = match value {
        OptionValue::Null => {
            spec.query_limit = None;
            return Ok(());
        }
        OptionValue::Map(entries) => entries,
        other => return invalid(format!("{} is not a map", text_of(other))),
    };
    let action = Action::Cancel;
    let overload = Vec::new();
    let mut limit = QueryLimit { elapsed: None, rows: None, bytes: None, action, overload };
    for (name, value) in entries {
        let understood = match name.as_str() {
            "elapsed" => {
                limit.elapsed = milliseconds("query_limit", "'elapsed' values", value)?;
                limit.elapsed.is_some()
            }
            "rows" => {
                limit.rows = number(value);
                limit.rows.is_some()
            }
            "bytes" => {
                limit.bytes = match value {
                    OptionValue::String(text) => parse_bytes(text).filter(|bytes| *bytes > 0),
                    value => number(value),
                };
                limit.bytes.is_some()
            }
            "action" => match Action::parse(&text_of(value)) {
                Some(action) => {
                    limit.action = action;
                    true
                }
                None => false,
            },
            "overload" => match Action::parse_all(&text_of(value)) {
                Some(actions) => {
                    limit.overload = actions;
                    true
                }
                None => false,
            },
            _ => return invalid(format!("unknown key '{name}'")),
        };
        if !understood {
            return invalid(format!("invalid value of '{name}': {}", text_of(value)));
        }
    }
    let has_limit = limit.elapsed.is_some() || limit.rows.is_some() || limit.bytes.is_some();
    if !has_limit && limit.overload.is_empty() {
        return invalid("no limit".to_owned());
    }
    spec.query_limit = Some(limit);
    Ok(())
}

/// Parses a positive integer. Accepts `1e9` and strings.
fn number(value: &OptionValue) -> Option<u64> {
    let float =
        |number: f64| (number.fract() == 0.0 && (1.0..=1e18).contains(&number)).then_some(number as u64);
    match value {
        OptionValue::Integer(number) => u64::try_from(*number).ok().filter(|number| *number > 0),
        OptionValue::Float(number) => float(*number),
        OptionValue::String(text) => float(text.trim().parse::<f64>().ok()?),
        _ => None,
    }
}

/// Returns a query limit in the form that sets it.
fn query_limit(limit: &QueryLimit) -> OptionValue {
    let number = |number: u64| OptionValue::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let elapsed = limit.elapsed.map(|elapsed| string(Some(text_of(&duration(Some(elapsed))))));
    let bytes = limit.bytes.map(|bytes| string(Some(bytes_text(bytes))));
    let entries = [("elapsed", elapsed), ("rows", limit.rows.map(number)), ("bytes", bytes)];
    let set = entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let actions: Vec<String> = limit.overload.iter().map(ToString::to_string).collect();
    let overload = (!actions.is_empty()).then(|| ("overload".to_owned(), string(Some(actions.join(", ")))));
    let action = ("action".to_owned(), string(Some(limit.action.to_string())));
    OptionValue::Map(set.chain([action]).chain(overload).collect())
}

fn set_io_limit(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.io_limit = match value {
        OptionValue::Null => None,
        OptionValue::String(text)
            if let Some(bytes) = text.trim().strip_suffix("/s").and_then(parse_bytes)
                && bytes >= IO_LIMIT_MIN =>
        {
            Some(bytes)
        }
        other => {
            return Err(Error::Invalid(format!(
                "'io_limit' takes bytes a second such as '200MB/s', at least '{}/s' (given {})",
                bytes_text(IO_LIMIT_MIN),
                text_of(other)
            )));
        }
    };
    Ok(())
}

/// Sets a number of statements on the server, or `'auto'` for a limit by work on each core.
fn set_max_concurrency(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    let is_auto = matches!(value, OptionValue::String(text) if text.eq_ignore_ascii_case("auto"));
    spec.slots.max_concurrency =
        if is_auto { None } else { count("max_concurrency", (1, " or 'auto'"), value)? };
    spec.slots.is_auto = is_auto;
    Ok(())
}

/// Sets `'p99 < 5ms'`, or the duration alone.
fn set_latency_target(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    let wrong = || {
        Error::Invalid(format!(
            "'latency_target' takes a 99th percentile such as 'p99 < 5ms' (given {})",
            text_of(value)
        ))
    };
    let duration = match value {
        OptionValue::String(text) => {
            let text = text.trim();
            let bound = match text.get(..3) {
                Some(p99) if p99.eq_ignore_ascii_case("p99") => text[3..].trim_start().strip_prefix('<'),
                _ => Some(text),
            };
            let duration = cql::ast::Duration::parse(bound.ok_or_else(wrong)?.trim());
            OptionValue::Duration(duration.ok_or_else(wrong)?)
        }
        OptionValue::Null | OptionValue::Duration(_) => value.clone(),
        _ => return Err(wrong()),
    };
    spec.latency.target = milliseconds("latency_target", "'latency_target' values", &duration)?;
    Ok(())
}

fn set_workload_type(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.workload_type = match value {
        OptionValue::Null => None,
        other => {
            let text = text_of(other);
            let known = WorkloadType::from_name(&text);
            Some(known.ok_or_else(|| Error::Invalid(format!("Invalid workload type: {text}")))?)
        }
    };
    Ok(())
}

fn set_shares(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.shares = shares("SHARES", value)?.unwrap_or(SHARES_DEFAULT);
    Ok(())
}

fn shares(name: &str, value: &OptionValue) -> Result<Option<u16>, Error> {
    match value {
        OptionValue::Null => Ok(None),
        OptionValue::Integer(shares @ 1..=1000) => Ok(u16::try_from(*shares).ok()),
        _ => Err(not_shares(name, value)),
    }
}

fn not_shares(name: &str, value: &OptionValue) -> Error {
    Error::Invalid(format!("'{name}' can only take values of 1-1000 (given {})", text_of(value)))
}

/// Converts a time to a duration of CQL.
fn duration(time: Option<Duration>) -> OptionValue {
    time.map_or(OptionValue::Null, |time| {
        let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        OptionValue::Duration(cql::ast::Duration { months: 0, days: 0, nanoseconds })
    })
}

fn string(text: Option<String>) -> OptionValue {
    text.map_or(OptionValue::Null, OptionValue::String)
}

fn integer(number: Option<u32>) -> OptionValue {
    number.map_or(OptionValue::Null, |number| OptionValue::Integer(number.into()))
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

fn text_of(value: &OptionValue) -> String {
    match value {
        OptionValue::Null => "null".to_owned(),
        OptionValue::Integer(number) => number.to_string(),
        OptionValue::Float(number) => number.to_string(),
        OptionValue::Boolean(truth) => truth.to_string(),
        OptionValue::String(text) => text.clone(),
        OptionValue::Duration(duration) => duration.to_string(),
        map @ OptionValue::Map(_) => map.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets options as in `CREATE SERVICE LEVEL x WITH …`, and compares the resulting specification
    /// or the message.
    fn check(options: &str, expected: Result<&str, &str>) {
        let statement = cql::parse(&format!("CREATE SERVICE LEVEL x WITH {options}")).expect(options);
        let cql::Statement::CreateServiceLevel(create) = statement else { panic!("{options}") };
        let mut spec = LevelSpec::new("x");
        let formatted = set_all(&mut spec, &create.options).map(|()| {
            let timeout_ms = spec.timeout.map(|timeout| timeout.as_millis());
            format!("{} {timeout_ms:?} {:?} {:?}", spec.shares, spec.workload_type, spec.cpu_limit_ppm)
        });
        let message = formatted.as_ref().map(String::as_str).map_err(ToString::to_string);
        assert_eq!(message, expected.map_err(str::to_owned), "{options}");
    }

    #[test]
    fn null_restores_the_default_of_each_option() {
        let given = "shares = 7 AND shares_min = 1 AND shares_max = 900 AND timeout = 1s AND workload_type = 'batch' \
                     AND cpu_min = '1%' AND cpu_limit = '9%' AND io_limit = '1MB/s' AND max_concurrency = 3 AND \
                     max_queue_size = 5 AND queue_timeout = 1s AND memory_min = '1%' AND memory_limit = '2%' AND \
                     memory_overcommit = false AND spill = false AND query_limit = {'rows': 9} AND latency_target = \
                     'p99 < 5ms'";
        let statement = cql::parse(&format!("CREATE SERVICE LEVEL x WITH {given}")).expect("parses");
        let cql::Statement::CreateServiceLevel(create) = statement else { panic!("{given}") };
        let (mut spec, fresh) = (LevelSpec::new("x"), LevelSpec::new("x"));
        set_all(&mut spec, &create.options).expect("valid");
        for option in &OPTIONS {
            assert_ne!((option.get)(&spec), (option.get)(&fresh), "{} is given", option.name);
            (option.set)(&mut spec, &OptionValue::Null).expect(option.name);
            assert_eq!((option.get)(&spec), (option.get)(&fresh), "{}", option.name);
        }
    }

    #[test]
    fn values_out_of_bounds_return_the_documented_message() {
        let shares = |given: &str| format!("'SHARES' can only take values of 1-1000 (given {given})");
        check("shares = 1", Ok("1 None None None"));
        check("SHARES=1000", Ok("1000 None None None"));
        check("shares = 0", Err(&shares("0")));
        check("shares = 1001", Err(&shares("1001")));
        check("shares = -5", Err(&shares("-5")));
        check("shares = 10.5", Err(&shares("10.5")));
        check("shares = null", Ok("1000 None None None"));
        check("timeout = 50ms", Ok("1000 Some(50) None None"));
        check("timeout = 1m30s", Ok("1000 Some(90000) None None"));
        check("timeout = '50ms'", Ok("1000 Some(50) None None"));
        check("timeout = null", Ok("1000 None None None"));
        check("timeout = 50us", Err("Timeout values must be expressed in millisecond granularity"));
        check("timeout = 1d", Err("Timeout values cannot have days, months or years"));
        check("timeout = 1mo", Err("Timeout values cannot have days, months or years"));
        check("timeout = 0s", Err("Timeout values must be from 1ms to 2147483647ms"));
        check("timeout = 50", Err("'timeout' takes a duration such as 50ms (given 50)"));
        check("workload_type = 'interactive'", Ok("1000 None Some(Interactive) None"));
        check("workload_type = 'batch'", Ok("1000 None Some(Batch) None"));
        check("workload_type = null", Ok("1000 None None None"));
        check("workload_type = 'fast'", Err("Invalid workload type: fast"));
        check("cpu_limit = '50%'", Ok("1000 None None Some(500000)"));
        check("cpu_limit = '1%'", Ok("1000 None None Some(10000)"));
        check("cpu_limit = '12.5%'", Ok("1000 None None Some(125000)"));
        check(
            "cpu_limit = '100%' AND cpu_limit_ = null",
            Err(&format!("unknown option 'cpu_limit_': expected one of {}", names())),
        );
        for bad in ["'0%'", "'0.9%'", "'101%'", "'50'", "50", "'%'", "'-5%'", "'5.%'", "'99999999999%'", "''"]
        {
            let given = bad.trim_matches('\'');
            let message = format!("'cpu_limit' can only take values of '1%' to '100%' (given {given})");
            check(&format!("cpu_limit = {bad}"), Err(&message));
        }
    }

    #[test]
    fn unknown_options_return_a_remedy() {
        check("cpu_share = 10", Err("unknown option 'cpu_share': use 'shares'"));
        check("cpu_hard_limit = '10%'", Err("unknown option 'cpu_hard_limit': use 'cpu_limit'"));
        for name in PLANNED {
            let message = format!("the option '{name}' is not supported yet: expected one of {}", names());
            check(&format!("{name} = 1"), Err(&message));
        }
        for (other, own) in DORIS {
            assert!(OPTIONS.iter().any(|option| option.name == own) || PLANNED.contains(&own), "{other}");
        }
    }

    /// Sets one option, and compares it in the form that sets it again, or the message.
    fn check_one(option: &str, expected: Result<&str, &str>) {
        let statement = cql::parse(&format!("ALTER SERVICE LEVEL x WITH {option}")).expect(option);
        let cql::Statement::AlterServiceLevel(alter) = statement else { panic!("{option}") };
        let mut spec = LevelSpec::new("x");
        let name = &alter.options[0].0;
        let formatted = set_all(&mut spec, &alter.options).map(|()| {
            assert_eq!(of_text("x", &to_text(&spec)).as_ref(), Some(&spec), "stored: {option}");
            let option = OPTIONS.iter().find(|option| option.name == name).expect("it was set");
            (option.get)(&spec).to_string()
        });
        let message = formatted.as_ref().map(String::as_str).map_err(ToString::to_string);
        assert_eq!(message, expected.map_err(str::to_owned), "{option}");
    }

    #[test]
    fn slots_and_io_limits_have_bounds() {
        let counts = |name: &str, of: &str, given: &str| {
            format!("'{name}' can only take values of {of} (given {given})")
        };
        check_one("latency_target = 5ms", Ok("'p99 < 5ms'"));
        check_one("latency_target = 'P99<5ms'", Ok("'p99 < 5ms'"));
        let text = "'latency_target' takes a 99th percentile such as 'p99 < 5ms' (given p50 < 5ms)";
        check_one("latency_target = 'p50 < 5ms'", Err(text));
        check_one("latency_target = null", Ok("null"));
        check_one("shares_max = 1000", Ok("1000"));
        check_one("shares_min = null", Ok("null"));
        check_one("shares_max = 1001", Err(&counts("shares_max", "1-1000", "1001")));
        check_one("max_concurrency = 8", Ok("8"));
        check_one("max_concurrency = null", Ok("null"));
        check_one("max_concurrency = 'AUTO'", Ok("'auto'"));
        let of = "1-1000000 or 'auto'";
        check_one("max_concurrency = 0", Err(&counts("max_concurrency", of, "0")));
        check_one("max_concurrency = 'many'", Err(&counts("max_concurrency", of, "many")));
        check_one("max_queue_size = 0", Ok("0"));
        check_one("max_queue_size = null", Ok("1024"));
        check_one("max_queue_size = 1000001", Err(&counts("max_queue_size", "0-1000000", "1000001")));
        check_one("queue_timeout = 5s", Ok("5s"));
        check_one("queue_timeout = null", Ok("null"));
        let text = "'queue_timeout' values must be expressed in millisecond granularity";
        check_one("queue_timeout = 5us", Err(text));
        check_one("io_limit = '200MB/s'", Ok("'200MB/s'"));
        check_one("io_limit = '1.5 gib/s'", Ok("'1536MiB/s'"));
        check_one("io_limit = '100000/s'", Ok("'100KB/s'"));
        check_one("io_limit = '64KiB/s'", Ok("'64KiB/s'"));
        for bad in
            ["'200MB'", "'1KB/s'", "'65535/s'", "'x/s'", "5", "'-5MB/s'", "'1e9/s'", "'99999999999GB/s'"]
        {
            let given = bad.trim_matches('\'');
            let text = "'io_limit' takes bytes a second such as '200MB/s', at least '64KiB/s'";
            check_one(&format!("io_limit = {bad}"), Err(&format!("{text} (given {given})")));
        }
    }

    #[test]
    fn cpu_min_has_bounds() {
        check_one("cpu_min = '20%'", Ok("'20%'"));
        check_one("cpu_min = '100%'", Ok("'100%'"));
        check_one("cpu_min = '0%'", Ok("null"));
        check_one("cpu_min = null", Ok("null"));
        for bad in ["'101%'", "'20'", "20", "'-1%'"] {
            let given = bad.trim_matches('\'');
            let message = format!("'cpu_min' can only take values of '0%' to '100%' (given {given})");
            check_one(&format!("cpu_min = {bad}"), Err(&message));
        }
    }

    #[test]
    fn memory_options_and_query_limit_have_bounds() {
        check_one("memory_min = '25%'", Ok("'25%'"));
        check_one("memory_min = '0%'", Ok("null"));
        check_one("memory_limit = '30%'", Ok("'30%'"));
        let text = "'memory_limit' can only take values of '1%' to '100%' (given 0.5%)";
        check_one("memory_limit = '0.5%'", Err(text));
        let text = "'memory_min' can only take values of '0%' to '100%' (given 101%)";
        check_one("memory_min = '101%'", Err(text));
        check_one("memory_overcommit = false", Ok("false"));
        check_one("memory_overcommit = null", Ok("true"));
        check_one("spill = 7", Err("'spill' can only be true or false (given 7)"));
        let limit = "{'elapsed': '30s', 'rows': 1000000000, 'bytes': '10GB', 'action': 'demote:slow'}";
        check_one(&format!("query_limit = {limit}"), Ok(limit));
        check_one(
            "query_limit = {'elapsed':'30s','rows':1e9,'bytes':'10GB','action':'demote:slow'}",
            Ok(limit),
        );
        check_one("query_limit = {'rows': 5}", Ok("{'rows': 5, 'action': 'cancel'}"));
        check_one("query_limit = null", Ok("null"));
        check_one(
            "query_limit = {'overload': 'demote:slow,suspend'}",
            Ok("{'action': 'cancel', 'overload': 'demote:slow, suspend'}"),
        );
        let takes = "'query_limit' takes {'elapsed': '30s', 'rows': 1e9, 'bytes': '10GB', 'action': 'cancel', \
                     'overload': 'demote:LEVEL, suspend, cancel'}, with at least one limit, and 'cancel', \
                     'demote:LEVEL' or 'log' as the action";
        for (given, why) in [
            ("{'action': 'log'}", "no limit"),
            ("{'rows': 0}", "invalid value of 'rows': 0"),
            ("{'rows': 1.5}", "invalid value of 'rows': 1.5"),
            ("{'bytes': 'much'}", "invalid value of 'bytes': much"),
            ("{'rows': 1, 'action': 'kill'}", "invalid value of 'action': kill"),
            ("{'rows': 1, 'action': 'demote:'}", "invalid value of 'action': demote:"),
            ("{'overload': 'cancel, suspend'}", "invalid value of 'overload': cancel, suspend"),
            ("{'speed': 1}", "unknown key 'speed'"),
            ("5", "5 is not a map"),
        ] {
            check_one(&format!("query_limit = {given}"), Err(&format!("{why}: {takes}")));
        }
    }
}
