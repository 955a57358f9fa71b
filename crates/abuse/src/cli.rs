//! Command line. `cargo xtask abuse` and `cargo xtask fuzz` pass their flags to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};

use crate::attack::Listener;
use crate::child::{self, server_program};
use crate::results::Results;
use crate::run::{self, Guardrails, RunOptions};
use crate::table::ATTACKS;
use crate::{fuzz, overload, report};

/// Most seconds of a run: a day, which is also the limit of `cargo xtask`.
const SECONDS_MAX: u64 = 24 * 60 * 60;
/// Default durations of each overload, seconds.
const OVERLOAD_S: u64 = 120;
const OVERLOAD_SHORT_S: u64 = 10;

/// Rude clients and random sessions against a real server.
#[derive(Debug, Parser)]
#[command(name = "abuse", args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs attacks beside probes and an administrator
    Run {
        /// Runs the attacks whose names contain NAME
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
        /// Length of each attack, 1 to 86400 seconds
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = seconds())]
        seconds: u64,
        /// Runs them with the default guardrails, without any, or both ways
        #[arg(long, value_enum, default_value_t = Guardrails::On)]
        guardrails: Guardrails,
        #[command(flatten)]
        common: Common,
    },
    /// Loads one core with 8,192 requests in flight, and with ten times its capacity
    Overload {
        /// Length of each overload, 1 to 86400 seconds [default: 120, with --short 10]
        #[arg(long, value_name = "N", value_parser = seconds())]
        seconds: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Writes page and table again from the JSON of a run
    Report { file: PathBuf },
    /// Runs seeded random sessions at all listeners
    Fuzz {
        /// Length of the search, 1 to 86400 seconds
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = seconds())]
        seconds: u64,
        /// Seed of the first session [default: the time]
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
        /// Ends after N sessions
        #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
        sessions: u64,
        /// Keeps to one listener
        #[arg(long, value_enum, ignore_case = true)]
        listener: Option<Listener>,
        /// Starts another server after a fault and searches on
        #[arg(long)]
        go_on: bool,
        /// The server [default: the one beside this program]
        #[arg(long, value_name = "FILE")]
        server: Option<PathBuf>,
    },
    /// Prints the attacks
    List,
    /// Runs one attack; a run starts it so
    #[command(hide = true)]
    Attack { words: Vec<String> },
}

/// Flags of runs with a report.
#[derive(Debug, Args)]
struct Common {
    /// Decides by counts, bytes and answers alone, without a clock
    #[arg(long)]
    short: bool,
    /// Writes a page with a chart, and beside it the results as JSON and the table as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The server [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// Returns a parser of 1 to [`SECONDS_MAX`] seconds. Its error states the bounds.
fn seconds() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=SECONDS_MAX)
}

/// Runs the program.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Attack { words } => return child::main(&words),
        Command::Run { only, seconds, guardrails, common } => {
            options(only, seconds, guardrails, common).and_then(|options| run::run(&options))
        }
        Command::Overload { seconds, common } => overload(seconds, common),
        Command::Report { file } => {
            Results::read(&file).and_then(|results| report::write(&results, &file.with_extension("html")))
        }
        Command::Fuzz { seconds, seed, sessions, listener, go_on, server } => {
            server_program(server.as_deref()).and_then(|server| {
                let time = Duration::from_secs(seconds);
                let seed = seed.unwrap_or_else(fuzz::seed_of_now);
                fuzz::run(&fuzz::FuzzOptions { server, time, seed, sessions, listener, goes_on: go_on })
            })
        }
        Command::List => {
            list();
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("abuse: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn options(
    only: Option<String>,
    seconds: u64,
    guardrails: Guardrails,
    Common { short, report, server }: Common,
) -> Result<RunOptions, String> {
    let (server, time) = (server_program(server.as_deref())?, Duration::from_secs(seconds));
    Ok(RunOptions { server, short, only, time, report, guardrails })
}

fn overload(seconds: Option<u64>, Common { short, report, server }: Common) -> Result<(), String> {
    let time = seconds.unwrap_or(if short { OVERLOAD_SHORT_S } else { OVERLOAD_S });
    let (server, time) = (server_program(server.as_deref())?, Duration::from_secs(time));
    overload::run(&overload::OverloadOptions { server, time, report })
}

fn list() {
    for attack in ATTACKS {
        let (listener, needs) = (attack.listener.name(), attack.needs.needs());
        println!("{:24} {listener:5} {needs:28} {}", attack.name, attack.sends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        let words = std::iter::once("abuse").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_parsed_or_refused() {
        let refused = |line: &str, expected: &str| {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        for line in [
            "run --short",
            "run --only cql --seconds 3 --guardrails both --report r.html --server x",
            "overload --short",
            "fuzz --seed 7 --sessions 3 --listener CQL --go-on",
            "report r.json",
            "list",
            "attack a 1,2,3 0.5 18446744073709551615",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        refused("run --seconds 0", "0 is not in 1..=86400");
        refused("run --seconds many", "many");
        refused("run --guardrails none", "[possible values: on, off, both]");
        refused("fuzz --listener all", "[possible values: cql, sql, http]");
        refused("run --shorts", "--short");
        refused("ran", "run");
    }
}
