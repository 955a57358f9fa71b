//! The options of service levels, each declared once: its name, what it takes, its column in listings, how it is set and
//! shown. Statements, listings, messages and tests come from this table.

use std::time::Duration;

use cql::ast::OptionValue;
use engine::Error;
use schema::CqlType;
use workload::{Effective, LevelSpec, WorkloadType};

/// An option.
pub(crate) struct LevelOption {
    pub(crate) name: &'static str,
    /// The type of its column.
    pub(crate) ty: fn() -> CqlType,
    /// Checks a value and puts it into a specification.
    set: fn(&mut LevelSpec, &OptionValue) -> Result<(), Error>,
    /// Its value in a listing, serialized.
    pub(crate) cell: fn(&LevelSpec) -> Option<Vec<u8>>,
    /// The level it comes from and its value as text, where it is set.
    pub(crate) effective: fn(&Effective) -> Option<(&str, String)>,
}

/// In the order of the columns.
pub(crate) const OPTIONS: [LevelOption; 4] = [
    LevelOption {
        name: "timeout",
        ty: || CqlType::Duration,
        set: set_timeout,
        cell: |spec| Some(duration(spec.timeout?).to_bytes()),
        effective: |e| Some((e.timeout_from.as_deref()?, duration(e.timeout?).to_string())),
    },
    LevelOption {
        name: "workload_type",
        ty: || CqlType::Text,
        set: set_workload_type,
        cell: |spec| Some(spec.workload_type?.name().into()),
        effective: |e| Some((e.workload_type_from.as_deref()?, e.workload_type?.to_string())),
    },
    LevelOption {
        name: "shares",
        ty: || CqlType::Int,
        set: set_shares,
        cell: |spec| Some(i32::from(spec.shares).to_be_bytes().into()),
        effective: |e| Some((e.level.name(), e.shares.to_string())),
    },
    LevelOption {
        name: "cpu_limit",
        ty: || CqlType::Text,
        set: set_cpu_limit,
        cell: |spec| Some(percent_text(spec.cpu_limit_ppm?).into()),
        effective: |e| Some((e.level.name(), percent_text(e.cpu_limit_ppm?))),
    },
];

/// Options that will come.
const NOT_YET: [&str; 12] = [
    "cpu_min",
    "io_limit",
    "memory_min",
    "memory_limit",
    "memory_overcommit",
    "spill",
    "max_concurrency",
    "max_queue_size",
    "queue_timeout",
    "query_limit",
    "latency_target",
    "tag",
];

/// What Apache Doris calls its options, and their names here.
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

/// Longest timeout, some 24 days: what 32 bits of milliseconds hold.
const TIMEOUT_MS_MAX: i64 = i32::MAX as i64;

/// Puts the options of a statement into a specification.
///
/// # Errors
/// An option that is none, or a value that cannot be.
pub(crate) fn set_all(spec: &mut LevelSpec, options: &[(String, OptionValue)]) -> Result<(), Error> {
    options.iter().try_for_each(|(name, value)| match OPTIONS.iter().find(|option| option.name == name) {
        Some(option) => (option.set)(spec, value),
        None => Err(Error::Invalid(unknown(name))),
    })
}

fn unknown(name: &str) -> String {
    if NOT_YET.contains(&name) {
        return format!("The option '{name}' is not supported yet. Supported are: {}", names());
    }
    match DORIS.iter().find(|(theirs, _)| *theirs == name) {
        Some((_, ours)) => format!("There is no option '{name}'; the one like it is '{ours}'"),
        None => format!("There is no option '{name}'. The options of a service level are: {}", names()),
    }
}

fn names() -> String {
    OPTIONS.map(|option| option.name).join(", ")
}

fn set_timeout(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    let duration = match value {
        OptionValue::Null => {
            spec.timeout = None;
            return Ok(());
        }
        OptionValue::Duration(duration) => *duration,
        OptionValue::String(text) => {
            let parsed = cql::ast::Duration::parse(text);
            parsed.ok_or_else(|| {
                Error::Invalid(format!("'timeout' takes a duration such as 50ms (given {text})"))
            })?
        }
        other => {
            let given = text_of(other);
            return Err(Error::Invalid(format!("'timeout' takes a duration such as 50ms (given {given})")));
        }
    };
    if duration.months != 0 || duration.days != 0 {
        return Err(Error::Invalid("Timeout values cannot have days, months or years".to_owned()));
    }
    if duration.nanoseconds % 1_000_000 != 0 {
        return Err(Error::Invalid("Timeout values must be expressed in millisecond granularity".to_owned()));
    }
    let ms = duration.nanoseconds / 1_000_000;
    if !(1..=TIMEOUT_MS_MAX).contains(&ms) {
        return Err(Error::Invalid(format!("Timeout values must be from 1ms to {TIMEOUT_MS_MAX}ms")));
    }
    spec.timeout = Some(Duration::from_millis(ms.unsigned_abs()));
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
    let shares = match value {
        OptionValue::Integer(shares @ 1..=1000) => u16::try_from(*shares).ok(),
        _ => None,
    };
    spec.shares = shares.ok_or_else(|| {
        Error::Invalid(format!("'SHARES' can only take values of 1-1000 (given {})", text_of(value)))
    })?;
    Ok(())
}

fn set_cpu_limit(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.cpu_limit_ppm = match value {
        OptionValue::Null => None,
        OptionValue::String(text) if let Some(ppm) = parse_percent(text) => Some(ppm),
        other => {
            let given = text_of(other);
            return Err(Error::Invalid(format!(
                "'cpu_limit' can only take values of '1%' to '100%' (given {given})"
            )));
        }
    };
    Ok(())
}

/// `'50%'`, `'12.5%'` as millionths, from 1 % to 100 %; no more than four digits behind the point.
pub(crate) fn parse_percent(text: &str) -> Option<u32> {
    let number = text.trim().strip_suffix('%')?.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let ppm = whole.parse::<u32>().ok()? * 10_000 + format!("{fraction:0<4}").parse::<u32>().ok()?;
    (10_000..=1_000_000).contains(&ppm).then_some(ppm)
}

/// Millionths as percent.
pub(crate) fn percent_text(ppm: u32) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A timeout as CQL's duration.
fn duration(timeout: Duration) -> schema::value::Duration {
    let nanoseconds = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
    schema::value::Duration { months: 0, days: 0, nanoseconds }
}

fn text_of(value: &OptionValue) -> String {
    match value {
        OptionValue::Null => "null".to_owned(),
        OptionValue::Integer(number) => number.to_string(),
        OptionValue::Float(number) => number.to_string(),
        OptionValue::Boolean(truth) => truth.to_string(),
        OptionValue::String(text) => text.clone(),
        OptionValue::Duration(duration) => duration.to_string(),
        OptionValue::Map(_) => "a map".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets options as in `CREATE SERVICE LEVEL x WITH …`: what they look like after that, or the message.
    fn check(options: &str, expected: Result<&str, &str>) {
        let statement = cql::parse(&format!("CREATE SERVICE LEVEL x WITH {options}")).expect(options);
        let cql::Statement::CreateServiceLevel(create) = statement else { panic!("{options}") };
        let mut spec = LevelSpec::new("x");
        let shown = set_all(&mut spec, &create.options).map(|()| {
            let timeout_ms = spec.timeout.map(|timeout| timeout.as_millis());
            format!("{} {timeout_ms:?} {:?} {:?}", spec.shares, spec.workload_type, spec.cpu_limit_ppm)
        });
        let message = shown.as_ref().map(String::as_str).map_err(ToString::to_string);
        assert_eq!(message, expected.map_err(str::to_owned), "{options}");
    }

    #[test]
    fn values_are_taken_in_bounds_and_refused_beyond_with_the_documented_words() {
        let shares = |given: &str| format!("'SHARES' can only take values of 1-1000 (given {given})");
        check("shares = 1", Ok("1 None None None"));
        check("SHARES=1000", Ok("1000 None None None"));
        check("shares = 0", Err(&shares("0")));
        check("shares = 1001", Err(&shares("1001")));
        check("shares = -5", Err(&shares("-5")));
        check("shares = 10.5", Err(&shares("10.5")));
        check("shares = null", Err(&shares("null")));
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
            Err("There is no option 'cpu_limit_'. The options of a \
            service level are: timeout, workload_type, shares, cpu_limit"),
        );
        for bad in ["'0%'", "'0.9%'", "'101%'", "'50'", "50", "'%'", "'-5%'", "'5.%'", "'99999999999%'", "''"]
        {
            let given = bad.trim_matches('\'');
            let message = format!("'cpu_limit' can only take values of '1%' to '100%' (given {given})");
            check(&format!("cpu_limit = {bad}"), Err(&message));
        }
    }

    #[test]
    fn options_of_others_and_of_later_are_named() {
        check("cpu_share = 10", Err("There is no option 'cpu_share'; the one like it is 'shares'"));
        check(
            "cpu_hard_limit = '10%'",
            Err("There is no option 'cpu_hard_limit'; the one like it is 'cpu_limit'"),
        );
        for name in NOT_YET {
            let message = format!(
                "The option '{name}' is not supported yet. Supported are: timeout, workload_type, shares, cpu_limit"
            );
            check(&format!("{name} = 1"), Err(&message));
        }
        for (theirs, ours) in DORIS {
            assert!(OPTIONS.iter().any(|option| option.name == ours) || NOT_YET.contains(&ours), "{theirs}");
        }
    }

    #[test]
    fn percentages_come_back_as_they_were() {
        for text in ["1%", "12.5%", "99.9999%", "100%", "10%"] {
            assert_eq!(percent_text(parse_percent(text).unwrap()), text);
        }
    }
}
