//! Command line. `cargo xtask abuse` and `cargo xtask fuzz` pass their flags to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::attack::Listener;
use crate::child::{self, server_program};
use crate::results::Results;
use crate::run::{self, Guardrails, Options};
use crate::table::ATTACKS;
use crate::{fuzz, overload, report};

const HELP: &str = "\
abuse run [--short] [--only NAME] [--seconds N] [--guardrails on|off|both] [--report FILE] [--server FILE]
    Runs the attacks whose names contain NAME, each for N seconds (5), beside probes and an administrator.
    --short decides by counts, bytes and answers alone, without a clock.
    --guardrails on|off|both runs them with the default guardrails (on), without any, or both ways.
    --report writes a page with a chart, and beside it the results as JSON and the table as Markdown.
abuse report FILE
    Writes page and table again from the JSON of a run.
abuse overload [--short] [--seconds N] [--report FILE] [--server FILE]
    Loads one core beyond its capacity, with 8,192 requests in flight and with ten times the capacity, for N
    seconds each (120; --short: 10).
abuse fuzz [--seconds N] [--seed N] [--sessions N] [--listener cql|sql|http] [--go-on] [--server FILE]
    Runs seeded random sessions at all listeners for N seconds (60), or as many as --sessions specifies.
    --listener keeps to one listener. --go-on starts another server after a fault and searches on.
abuse list
    Prints the attacks.
";

/// Runs the program.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = words.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    let outcome = match command.as_str() {
        "attack" => return child::main(rest),
        "run" => options(rest).and_then(|options| run::run(&options)),
        "overload" => options(rest).and_then(|options| overload(&options, rest)),
        "report" => rewrite_report(rest),
        "fuzz" => fuzz_options(rest).and_then(|options| fuzz::run(&options)),
        "list" => {
            ATTACKS.iter().for_each(|attack| {
                println!(
                    "{:24} {:5} {:28} {}",
                    attack.name,
                    attack.listener.name(),
                    attack.needs.needs(),
                    attack.sends
                );
            });
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
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

/// Default duration of each overload.
const OVERLOAD: Duration = Duration::from_secs(120);
const OVERLOAD_SHORT: Duration = Duration::from_secs(10);

fn overload(options: &Options, words: &[String]) -> Result<(), String> {
    let is_set = words.iter().any(|word| word == "--seconds");
    let unset = if options.short { OVERLOAD_SHORT } else { OVERLOAD };
    let time = if is_set { options.time } else { unset };
    let (server, report) = (options.server.clone(), options.report.clone());
    overload::run(&overload::Options { server, time, report })
}

/// Writes a report from the results of a run.
fn rewrite_report(words: &[String]) -> Result<(), String> {
    let [file] = words else { return Err("expected one file of results".to_owned()) };
    let file = PathBuf::from(file);
    report::write(&Results::read(&file)?, &file.with_extension("html"))
}

/// Returns the value after a flag.
fn value<'w>(flag: &str, words: &mut impl Iterator<Item = &'w String>) -> Result<&'w str, String> {
    words.next().map(String::as_str).ok_or_else(|| format!("expected a value after {flag}"))
}

fn number<T: std::str::FromStr>(flag: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected a number after {flag}, got `{text}`"))
}

fn listener(text: &str) -> Result<Listener, String> {
    let all = [Listener::Cql, Listener::Sql, Listener::Http];
    let found = all.into_iter().find(|listener| listener.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("expected cql, sql or http after --listener, got `{text}`"))
}

fn guardrails(text: &str) -> Result<Guardrails, String> {
    match text {
        "on" => Ok(Guardrails::On),
        "off" => Ok(Guardrails::Off),
        "both" => Ok(Guardrails::Both),
        _ => Err(format!("expected on, off or both after --guardrails, got `{text}`")),
    }
}

fn options(words: &[String]) -> Result<Options, String> {
    let (mut server, mut words) = (None, words.iter());
    let mut options = Options {
        server: PathBuf::new(),
        short: false,
        only: None,
        time: Duration::from_secs(5),
        report: None,
        guardrails: Guardrails::On,
    };
    while let Some(flag) = words.next() {
        match flag.as_str() {
            "--short" => options.short = true,
            "--guardrails" => options.guardrails = guardrails(value(flag, &mut words)?)?,
            "--only" => options.only = Some(value(flag, &mut words)?.to_owned()),
            "--seconds" => options.time = Duration::from_secs(number(flag, value(flag, &mut words)?)?),
            "--report" => options.report = Some(value(flag, &mut words)?.into()),
            "--server" => server = Some(value(flag, &mut words)?),
            _ => return Err(format!("expected a flag of this help, got `{flag}`\n{HELP}")),
        }
    }
    options.server = server_program(server)?;
    Ok(options)
}

fn fuzz_options(words: &[String]) -> Result<fuzz::Options, String> {
    let (mut server, mut words) = (None, words.iter());
    let mut options = fuzz::Options {
        server: PathBuf::new(),
        time: Duration::from_secs(60),
        seed: fuzz::seed_of_now(),
        sessions: u64::MAX,
        listener: None,
        goes_on: false,
    };
    while let Some(flag) = words.next() {
        match flag.as_str() {
            "--seconds" => options.time = Duration::from_secs(number(flag, value(flag, &mut words)?)?),
            "--seed" => options.seed = number(flag, value(flag, &mut words)?)?,
            "--listener" => options.listener = Some(listener(value(flag, &mut words)?)?),
            "--go-on" => options.goes_on = true,
            "--sessions" => options.sessions = number(flag, value(flag, &mut words)?)?,
            "--server" => server = Some(value(flag, &mut words)?),
            _ => return Err(format!("expected a flag of this help, got `{flag}`\n{HELP}")),
        }
    }
    options.server = server_program(server)?;
    Ok(options)
}
