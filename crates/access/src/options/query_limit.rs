//! The option `query_limit`: a map of limits and actions.

use cql::ast::OptionValue;
use engine::Error;
use units::bytes_text;
use workload::{Action, LevelSpec, QueryLimit};

use super::values::{duration, milliseconds, parse_bytes, string, text_of};

pub(super) fn set_query_limit(spec: &mut LevelSpec, value: &OptionValue) -> Result<(), Error> {
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
pub(super) fn query_limit(limit: &QueryLimit) -> OptionValue {
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
