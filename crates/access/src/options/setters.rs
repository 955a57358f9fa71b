//! Options with a syntax of their own.

use cql::ast::OptionValue;
use engine::Error;
use units::bytes_text;
use workload::{LevelSpec, SHARES_DEFAULT, Tag, WorkloadType};

use super::values::{count, milliseconds, parse_bytes, shares, text_of};

/// Smallest I/O limit, in bytes per second: 16 of the disk's smallest requests.
const IO_LIMIT_MIN: u64 = 64 << 10;

pub(super) fn set_io_limit(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
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
pub(super) fn set_max_concurrency(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    let is_auto = matches!(value, OptionValue::String(text) if text.eq_ignore_ascii_case("auto"));
    spec.slots.max_concurrency =
        if is_auto { None } else { count("max_concurrency", 1, " or 'auto'", value)? };
    spec.slots.is_auto = is_auto;
    Ok(())
}

/// Sets `'p99 < 5ms'`, or the duration alone.
pub(super) fn set_latency_target(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
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
            OptionValue::Duration(duration.map_err(|_| wrong())?)
        }
        OptionValue::Null | OptionValue::Duration(_) => value.clone(),
        _ => return Err(wrong()),
    };
    spec.latency.target = milliseconds("latency_target", "'latency_target' values", &duration)?;
    Ok(())
}

pub(super) fn set_workload_type(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
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

/// Sets the nodes that coordinate requests. The planner checks that they exist.
pub(super) fn set_tag(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.tag = match value {
        OptionValue::Null => None,
        other => Some(Tag::parse(&text_of(other)).map_err(Error::Invalid)?),
    };
    Ok(())
}

pub(super) fn set_shares(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
    spec.shares = shares("SHARES", value)?.unwrap_or(SHARES_DEFAULT);
    Ok(())
}
