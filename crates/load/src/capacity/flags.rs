//! Flags of `fairlane load plan`, as one table.

use super::cores::Goal;
use crate::LoadError;
use crate::common::{self, Common};
use crate::flag::{Flag, count, flag, list, read, seconds, usage};

/// Default headroom, as a part of the rate.
const HEADROOM: f64 = 0.3;
/// Most headroom: a hundred times the rate.
const HEADROOM_MAX: f64 = 100.0;
/// Most cores of a server.
const CORES_MAX: usize = 100_000;

/// Parsed flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Files of ladders, each with its core count if the command line gives it.
    pub(crate) from: Vec<(String, Option<usize>)>,
    rate_per_s: Option<f64>,
    p99_us: Option<f64>,
    headroom: Option<f64>,
    pub(crate) common: Common,
}

impl AsMut<Common> for Options {
    fn as_mut(&mut self) -> &mut Common {
        &mut self.common
    }
}

const FLAGS: &[Flag<Options>] = &[
    flag!(
        "from",
        "FILE[=CORES]",
        "none",
        "JSON of `usl`, with the server's cores if it has none; may be repeated",
        |o, v| {
            o.from.push(file(v)?);
            Ok(())
        }
    ),
    flag!("rate", "RATE", "none", "requests a second to plan for, such as 500k", |o, v| {
        o.rate_per_s = Some(count(v)?);
        Ok(())
    }),
    flag!(
        "p99",
        "TIME",
        "none",
        "most that the 99th percentile of response times may be, such as 2ms",
        |o, v| {
            o.p99_us = Some(seconds(v)? * 1e6);
            Ok(())
        }
    ),
    flag!("headroom", "PERCENT", "30%", "spare capacity, as a part of the rate", |o, v| {
        o.headroom = Some(percent(v)?);
        Ok(())
    }),
    common::json(),
    common::html(),
    common::help(),
];

/// Parses a file with an optional core count: `usl.json` or `usl.json=4`.
fn file(text: &str) -> Result<(String, Option<usize>), LoadError> {
    let Some((path, cores)) = text.rsplit_once('=') else { return Ok((text.to_string(), None)) };
    match cores.parse::<usize>() {
        Ok(cores) if (1..=CORES_MAX).contains(&cores) => Ok((path.to_string(), Some(cores))),
        _ => Err(usage(format!("expected FILE=CORES with 1 to {CORES_MAX} cores, got `{text}`"))),
    }
}

/// Parses a percentage such as `30%`. Returns it as a part.
fn percent(text: &str) -> Result<f64, LoadError> {
    match text.strip_suffix('%').map(str::trim).and_then(|digits| digits.parse::<f64>().ok()) {
        Some(value) if (0.0..=HEADROOM_MAX * 100.0).contains(&value) => Ok(value / 100.0),
        _ => Err(usage(format!("expected a percentage such as 30%, got `{text}`"))),
    }
}

/// Returns the help.
pub(crate) fn help() -> String {
    let what = "fairlane load plan: the cores and the concurrency for a rate, from ladders of `fairlane load usl`\n\n\
        fairlane load plan --from usl.json --rate 500k --p99 2ms --headroom 30%\n\n\
        One ladder, or several of servers that differ in their cores. Four core counts determine a law over cores.\n";
    format!("{what}{}", list(&FLAGS.iter().collect::<Vec<_>>()))
}

/// Parses the flags.
///
/// # Errors
/// [`LoadError::Usage`].
pub(crate) fn parse(args: &[String]) -> Result<Options, LoadError> {
    let mut options = Options::default();
    let words = read(args, &mut options, &FLAGS.iter().collect::<Vec<_>>(), "fairlane load plan")?;
    match words.first() {
        Some(word) => Err(usage(format!("unexpected word `{word}`; see `fairlane load plan --help`"))),
        None => Ok(options),
    }
}

impl Options {
    /// Returns the checked goal.
    ///
    /// # Errors
    /// [`LoadError::Usage`], naming the flag.
    pub(crate) fn goal(&self) -> Result<Goal, LoadError> {
        if self.from.is_empty() {
            return Err(usage("expected --from with the JSON of `fairlane load usl --json`".into()));
        }
        let rate_per_s =
            self.rate_per_s.ok_or_else(|| usage("expected --rate with requests a second".into()))?;
        if rate_per_s <= 0.0 || self.p99_us.is_some_and(|us| us <= 0.0) {
            return Err(usage("--rate and --p99 must be above 0".into()));
        }
        Ok(Goal { rate_per_s, p99_us: self.p99_us, headroom: self.headroom.unwrap_or(HEADROOM) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(line: &str) -> Result<Goal, LoadError> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())?.goal()
    }

    fn check_error(line: &str, expected: &str) {
        let error = goal(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn flags_become_a_goal() {
        let found = goal("--from usl.json --rate 500k --p99 2ms --headroom 25%").expect("a goal");
        assert_eq!(found, Goal { rate_per_s: 500_000.0, p99_us: Some(2000.0), headroom: 0.25 });
        let plain = goal("--from usl.json --rate 7").expect("a goal");
        assert_eq!(plain, Goal { rate_per_s: 7.0, p99_us: None, headroom: HEADROOM });
        let help = help();
        assert!(FLAGS.iter().all(|flag| help.contains(&format!("--{}", flag.name))), "{help}");
    }

    #[test]
    fn files_may_have_a_core_count() {
        let args = ["--from", "a.json", "--from=b=c.json=8"].map(str::to_string);
        let expected = [("a.json".to_string(), None), ("b=c.json".to_string(), Some(8))];
        assert_eq!(parse(&args).expect("two files").from, expected);
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("--rate 5", "--from");
        check_error("--from a", "--rate");
        check_error("--from a --rate 0", "--rate");
        check_error("--from a=0 --rate 5", "--from");
        check_error("--from a=many --rate 5", "--from");
        check_error(
            "--from a --rate 5 --headroom 0.3",
            "--headroom: expected a percentage such as 30%, got `0.3`",
        );
        check_error("--from a --rate 5 --headroom -3%", "--headroom");
        check_error("--from a --rate 5 --p99 fast", "--p99");
        check_error("--from a --rate 5 twice", "twice");
    }
}
