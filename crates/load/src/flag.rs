//! Tables of flags. Parsing, help and tests of a command read one table.

use crate::LoadError;

/// A flag of the command line.
pub(crate) struct Flag<O> {
    /// Name without dashes.
    pub(crate) name: &'static str,
    /// Name of the value in the help. Empty for a switch.
    pub(crate) value: &'static str,
    /// Default, as text for the help.
    pub(crate) default: &'static str,
    /// Effect, as text for the help.
    pub(crate) help: &'static str,
    /// Parses a value into the options.
    pub(crate) set: fn(&mut O, &str) -> Result<(), LoadError>,
}

pub(crate) fn usage(reason: String) -> LoadError {
    LoadError::Usage(reason)
}

pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, LoadError> {
    text.parse().map_err(|_| usage(format!("expected a number, got `{text}`")))
}

/// Parses a duration: `60s`, `5m`, `1h`, `250ms`. A bare number is in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, LoadError> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    scaled(text, &units, "a duration such as 60s, 5m, 1h or 250ms")
}

/// Parses a count: `100000`, `40k`, `10M`, `1G`.
pub(crate) fn count(text: &str) -> Result<f64, LoadError> {
    scaled(text, &[("k", 1e3), ("M", 1e6), ("G", 1e9)], "a count such as 100000, 40k or 10M")
}

/// Parses a number of at least 0 with one of the units, or none. `expected` is for the error.
fn scaled(text: &str, units: &[(&str, f64)], expected: &str) -> Result<f64, LoadError> {
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (digits, scale) = found.unwrap_or((text, 1.0));
    match digits.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value * scale),
        _ => Err(usage(format!("expected {expected}, got `{text}`"))),
    }
}

pub(crate) fn whole(text: &str) -> Result<u64, LoadError> {
    match text.parse::<u64>() {
        Ok(value) => Ok(value),
        Err(_) => count(text).map(|value| value as u64),
    }
}

pub(crate) fn rates(text: &str) -> Result<Vec<(f64, Option<f64>)>, LoadError> {
    let step = |part: &str| match part.split_once(':') {
        Some((rate, time)) => Ok((count(rate)?, Some(seconds(time)?))),
        None => Ok((count(part)?, None)),
    };
    text.split(',').map(step).collect()
}

pub(crate) fn password_file(path: &str) -> Result<String, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| LoadError::File { path: path.to_string(), reason: error.to_string() })?;
    Ok(text.lines().next().unwrap_or_default().to_string())
}

macro_rules! flag {
    ($name:literal, $value:literal, $default:expr, $help:expr, $set:expr) => {
        $crate::flag::Flag { name: $name, value: $value, default: $default, help: $help, set: $set }
    };
}
pub(crate) use flag;

/// Formats the flags of a table, one a line.
pub(crate) fn list<O>(flags: &[&Flag<O>]) -> String {
    let mut out = String::from("\nFlags\n");
    for flag in flags {
        let left = format!("--{} {}", flag.name, flag.value);
        let default = if flag.default.is_empty() { String::new() } else { format!(" [{}]", flag.default) };
        out.push_str(&format!("  {left:<30}{}{default}\n", flag.help));
    }
    out
}

/// Parses flags given as `--name value` or `--name=value`. Returns the other words, in order.
/// `command` is the command whose help errors mention.
///
/// # Errors
/// [`LoadError::Usage`] for a flag that is unknown, lacks its value or has a wrong one.
pub(crate) fn read<O>(
    args: &[String],
    options: &mut O,
    flags: &[&Flag<O>],
    command: &str,
) -> Result<Vec<String>, LoadError> {
    let mut words = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--") else {
            words.push(arg.clone());
            continue;
        };
        let (name, inline) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (name, None),
        };
        let flag = flags.iter().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| usage(format!("unknown flag --{name}; see `{command} --help`")))?;
        let value = match (flag.value.is_empty(), inline) {
            (true, None) => String::new(),
            (true, Some(_)) => return Err(usage(format!("--{name} takes no value"))),
            (false, Some(value)) => value,
            (false, None) => match args.next() {
                Some(value) => value.clone(),
                None => return Err(usage(format!("--{name} expects {}", flag.value))),
            },
        };
        (flag.set)(options, &value).map_err(|error| match error {
            LoadError::Usage(reason) => usage(format!("--{name}: {reason}")),
            other => other,
        })?;
    }
    Ok(words)
}
