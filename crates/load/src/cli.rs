//! Command line of `fairlane load`: parses flags into a spec and runs it. Progress goes to standard
//! error, the report to standard output and to files.

use crate::LoadError;
use crate::capacity;
use crate::flags::{Options, help, parse};
use crate::merge::{self, merge};
use crate::output::{stop_on_signals, write_file, write_json};
use crate::run::run;
use crate::spec::Workload;
use crate::sweep;
use crate::text::progress;
use crate::timeline::Second;
use crate::usl;

/// Runs `fairlane load` with the arguments after the word `load`. Returns the exit code: 0
/// for a valid measurement, 1 if none was possible, 2 for a wrong command line, 3 for invalid
/// results.
pub fn cli(args: &[String]) -> i32 {
    match dispatch(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fairlane load: {error}");
            match error {
                LoadError::Usage(_) => 2,
                LoadError::NoPlan(_) => 3,
                _ => 1,
            }
        }
    }
}

fn dispatch(args: &[String]) -> Result<i32, LoadError> {
    match args.split_first() {
        Some((word, rest)) if word == "tpch" || word == "hits" => return crate::data::cli(word, rest),
        Some((word, rest)) if word == "plan" => return capacity::cli(rest),
        Some((word, rest)) if word == "sql" => return crate::sql_cli::run(rest),
        Some((word, [next, rest @ ..])) if word == "usl" && next == "sql" => {
            return crate::sql_cli::ladder(rest);
        }
        Some((word, [next, rest @ ..])) if word == "sweep" && next == "sql" => {
            return crate::sql_cli::sweep(rest);
        }
        _ => {}
    }
    let mut options = Options::default();
    let words = parse(args, &mut options)?;
    if options.common.help {
        print!("{}", help());
        return Ok(0);
    }
    let (command, rest) = match words.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => return Err(LoadError::Usage("expected a workload; see `fairlane load --help`".into())),
    };
    if command == "merge" {
        return merge_files(rest, &options);
    }
    let (command, rest) = match (command, rest) {
        ("usl", []) => ("usl", &[][..]),
        ("usl", [workload]) => return run_ladder(&options, workload_by_name(workload)?),
        ("sweep", []) => ("sweep", &[][..]),
        ("sweep", [workload]) => return run_sweep(&options, workload_by_name(workload)?),
        other => other,
    };
    if let Some(word) = rest.first() {
        return Err(LoadError::Usage(format!("unexpected word `{word}`; see `fairlane load --help`")));
    }
    if command == "usl" {
        return run_ladder(&options, Workload::Read);
    }
    if command == "sweep" {
        return run_sweep(&options, Workload::Read);
    }
    let spec = options.spec(workload_by_name(command)?)?;
    let stop = stop_on_signals()?;
    let report = run(&spec, &stop, observer(&options))?;
    if options.common.json.as_deref() != Some("-") {
        print!("{}", report.text());
    }
    write_json(options.common.json.as_deref(), &report)?;
    if let Some(path) = &options.hdr {
        write_file(path, &merge::log(report.steps.iter())?)?;
    }
    Ok(if report.invalid { 3 } else { 0 })
}

fn workload_by_name(word: &str) -> Result<Workload, LoadError> {
    let found = Workload::ALL.iter().find(|(_, name, _)| *name == word);
    let unknown = || LoadError::Usage(format!("unknown workload `{word}`; see `fairlane load --help`"));
    found.map(|(workload, ..)| *workload).ok_or_else(unknown)
}

fn observer(options: &Options) -> impl FnMut(&Second) + use<> {
    let quiet = options.common.quiet;
    move |second| {
        if !quiet {
            eprintln!("{}", progress(second));
        }
    }
}

fn run_ladder(options: &Options, workload: Workload) -> Result<i32, LoadError> {
    usl::cli(&options.plan(workload)?, &options.common, &options.ladder)
}

fn run_sweep(options: &Options, workload: Workload) -> Result<i32, LoadError> {
    sweep::cli(&options.sweep(workload)?, &options.common)
}

fn merge_files(paths: &[String], options: &Options) -> Result<i32, LoadError> {
    if paths.is_empty() {
        return Err(LoadError::Usage("`merge` expects at least one file written by --hdr".into()));
    }
    let mut files = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path)
            .map_err(|error| LoadError::File { path: path.clone(), reason: error.to_string() })?;
        files.push((path.clone(), text));
    }
    let merged = merge(&files)?;
    if options.common.json.as_deref() != Some("-") {
        print!("{}", merge::text(&merged));
    }
    write_json(options.common.json.as_deref(), &merged)?;
    Ok(0)
}
