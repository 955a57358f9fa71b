//! Parsers of the values of flags. An error states the expected form with its bounds; `clap` adds
//! the name of the flag.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::LoadError;
use crate::spec::{Pacing, RateStep};

fn expected(what: &str, text: &str) -> LoadError {
    LoadError::Usage(format!("expected {what}, got `{text}`"))
}

/// Parses a number.
///
/// # Errors
/// [`LoadError::Usage`], as for all parsers of this file.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, LoadError> {
    text.parse().map_err(|_| expected("a number", text))
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

/// Parses a number of at least 0 with one of the units, or none. `what` is for the error.
fn scaled(text: &str, units: &[(&str, f64)], what: &str) -> Result<f64, LoadError> {
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (digits, scale) = found.unwrap_or((text, 1.0));
    match digits.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value * scale),
        _ => Err(expected(what, text)),
    }
}

/// Parses a count as a whole number.
pub(crate) fn whole(text: &str) -> Result<u64, LoadError> {
    match text.parse::<u64>() {
        Ok(value) => Ok(value),
        Err(_) => count(text).map(|value| value as u64),
    }
}

/// Parses a count of things in memory.
pub(crate) fn size(text: &str) -> Result<usize, LoadError> {
    Ok(whole(text)? as usize)
}

/// Parses a size within bounds.
pub(crate) fn size_in(text: &str, bounds: RangeInclusive<usize>) -> Result<usize, LoadError> {
    let wrong = || expected(&format!("a count of {} to {}", bounds.start(), bounds.end()), text);
    size(text).ok().filter(|value| bounds.contains(value)).ok_or_else(wrong)
}

/// Parses a share of 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, LoadError> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| expected("a number of 0 to 1", text))
}

/// Parses a part I of N, such as `1/4`.
pub(crate) fn slice(text: &str) -> Result<(u64, u64), LoadError> {
    let (index, of) = text.split_once('/').ok_or_else(|| expected("a slice I/N such as 1/4", text))?;
    Ok((number(index)?, number(of)?))
}

/// Words separated by commas. Empty ones are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CommaList(pub(crate) Vec<String>);

impl FromStr for CommaList {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<CommaList, LoadError> {
        let words = text.split(',').filter(|word| !word.is_empty());
        Ok(CommaList(words.map(str::to_string).collect()))
    }
}

/// Concurrencies separated by commas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Concurrencies(pub(crate) Vec<usize>);

impl FromStr for Concurrencies {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Concurrencies, LoadError> {
        text.split(',').map(size).collect::<Result<_, _>>().map(Concurrencies)
    }
}

/// Rates of an open loop, some with a time of their own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(Vec<TimedRate>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct TimedRate {
    rate_per_s: f64,
    /// Duration. `None`: the one of all steps.
    seconds: Option<f64>,
}

impl FromStr for Rates {
    type Err = LoadError;

    fn from_str(text: &str) -> Result<Rates, LoadError> {
        let step = |part: &str| match part.split_once(':') {
            Some((rate, time)) => Ok(TimedRate { rate_per_s: count(rate)?, seconds: Some(seconds(time)?) }),
            None => Ok(TimedRate { rate_per_s: count(part)?, seconds: None }),
        };
        text.split(',').map(step).collect::<Result<_, _>>().map(Rates)
    }
}

impl Rates {
    /// Returns the open loop. A rate without a time lasts `duration_s`.
    pub(crate) fn pacing(&self, duration_s: f64) -> Pacing {
        let step = |timed: &TimedRate| RateStep {
            rate_per_s: timed.rate_per_s,
            seconds: timed.seconds.unwrap_or(duration_s),
        };
        Pacing::Open(self.0.iter().map(step).collect())
    }
}
