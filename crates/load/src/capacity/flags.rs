//! Flags of `fairlane load plan`.

use std::str::FromStr;

use clap::Args;

use super::cores::Goal;
use crate::LoadError;
use crate::common_flags::PageFlags;
use crate::flag_values::{count, seconds};

/// Most headroom: a hundred times the rate.
const HEADROOM_MAX: f64 = 100.0;
/// Most cores of a server.
const CORES_MAX: usize = 100_000;

/// Ladders and the requested capacity.
#[derive(Args, Clone, Debug)]
pub(crate) struct CapacityFlags {
    /// JSON of `usl`, with the server's cores if it has none; may be repeated
    #[arg(long, value_name = "FILE[=CORES]", required = true)]
    pub(crate) from: Vec<LadderFile>,
    /// Requests a second to plan for, such as 500k
    #[arg(long = "rate", value_name = "RATE", value_parser = |text: &str| above_0(text, count))]
    rate_per_s: f64,
    /// Most that the 99th percentile of response times may be, such as 2ms
    #[arg(long = "p99", value_name = "TIME", value_parser = |text: &str| above_0(text, seconds))]
    p99_s: Option<f64>,
    /// Spare capacity, as a part of the rate
    #[arg(long, value_name = "PERCENT", default_value = "30%", value_parser = percent)]
    headroom: f64,
    /// Write the report as JSON (`-` for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<String>,
    #[command(flatten)]
    pub(crate) page: PageFlags,
}

/// File of a ladder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LadderFile {
    pub(crate) path: String,
    /// Cores of the server. `None`: those in the file.
    pub(crate) cores: Option<usize>,
}

impl FromStr for LadderFile {
    type Err = LoadError;

    /// Parses a file with an optional core count: `usl.json` or `usl.json=4`.
    fn from_str(text: &str) -> Result<LadderFile, LoadError> {
        let Some((path, cores)) = text.rsplit_once('=') else {
            return Ok(LadderFile { path: text.to_string(), cores: None });
        };
        match cores.parse::<usize>() {
            Ok(cores) if (1..=CORES_MAX).contains(&cores) => {
                Ok(LadderFile { path: path.to_string(), cores: Some(cores) })
            }
            _ => Err(LoadError::Usage(format!(
                "expected FILE=CORES with 1 to {CORES_MAX} cores, got `{text}`"
            ))),
        }
    }
}

/// Parses a number above 0.
fn above_0(text: &str, parse: fn(&str) -> Result<f64, LoadError>) -> Result<f64, LoadError> {
    match parse(text)? {
        value if value > 0.0 => Ok(value),
        _ => Err(LoadError::Usage(format!("expected more than 0, got `{text}`"))),
    }
}

/// Parses a percentage such as `30%`. Returns it as a part.
fn percent(text: &str) -> Result<f64, LoadError> {
    match text.strip_suffix('%').map(str::trim).and_then(|digits| digits.parse::<f64>().ok()) {
        Some(value) if (0.0..=HEADROOM_MAX * 100.0).contains(&value) => Ok(value / 100.0),
        _ => Err(LoadError::Usage(format!("expected a percentage such as 30%, got `{text}`"))),
    }
}

impl CapacityFlags {
    /// Returns the goal.
    pub(crate) fn goal(&self) -> Goal {
        Goal {
            rate_per_s: self.rate_per_s,
            p99_us: self.p99_s.map(|seconds| seconds * 1e6),
            headroom: self.headroom,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{OtherCommand, command};

    fn parsed(line: &str) -> Result<CapacityFlags, LoadError> {
        let args: Vec<String> = format!("plan {line}").split_whitespace().map(str::to_string).collect();
        match command(&args)?.and_then(|load| load.command) {
            Some(OtherCommand::Plan(flags)) => Ok(flags),
            other => panic!("{other:?}"),
        }
    }

    fn check_error(line: &str, expected: &str) {
        let error = parsed(line).expect_err(line).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn flags_become_a_goal() {
        let goal = |line| parsed(line).map(|flags| flags.goal());
        let found = goal("--from usl.json --rate 500k --p99 2ms --headroom 25%").expect("a goal");
        assert_eq!(found, Goal { rate_per_s: 500_000.0, p99_us: Some(2000.0), headroom: 0.25 });
        let plain = goal("--from usl.json --rate 7").expect("a goal");
        assert_eq!(plain, Goal { rate_per_s: 7.0, p99_us: None, headroom: 0.3 });
    }

    #[test]
    fn files_may_have_a_core_count() {
        let file = |path: &str, cores| LadderFile { path: path.to_string(), cores };
        let found = parsed("--from a.json --from=b=c.json=8 --rate 1").expect("two files").from;
        assert_eq!(found, [file("a.json", None), file("b=c.json", Some(8))]);
    }

    #[test]
    fn errors_name_the_wrong_flag() {
        check_error("--rate 5", "--from");
        check_error("--from a", "--rate");
        check_error("--from a --rate 0", "--rate");
        check_error("--from a=0 --rate 5", "--from");
        check_error("--from a=many --rate 5", "--from");
        check_error("--from a --rate 5 --headroom 0.3", "expected a percentage such as 30%, got `0.3`");
        check_error("--from a --rate 5 --headroom 0.3", "--headroom");
        check_error("--from a --rate 5 --headroom -3%", "--headroom");
        check_error("--from a --rate 5 --p99 fast", "--p99");
        check_error("--from a --rate 5 twice", "twice");
    }
}
