//! Command line of `fairlane load`: runs the command that the flags describe. Progress goes to
//! standard error, the report to standard output and to files.

use crate::LoadError;
use crate::capacity;
use crate::commands::{MergeFlags, OtherCommand, SweepTarget, UslTarget, command};
use crate::data::{write_hits, write_tpch};
use crate::flags::CqlFlags;
use crate::merge::{self, merge};
use crate::output::{stop_on_signals, write_file, write_json};
use crate::run::run;
use crate::scan;
use crate::spec::Workload;
use crate::sql;
use crate::sql_flags::SqlFlags;
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
    let Some(load) = command(args)? else { return Ok(0) };
    match load.command {
        Some(other) => run_other(other),
        None => match load.workload {
            Some(workload) => run_load(&load.flags, workload),
            None => Err(LoadError::Usage("expected a workload; see `fairlane load --help`".into())),
        },
    }
}

fn run_other(command: OtherCommand) -> Result<i32, LoadError> {
    match command {
        OtherCommand::Plan(flags) => capacity::cli(&flags),
        OtherCommand::Scan(flags) => scan::cli(&flags),
        OtherCommand::Merge(flags) => merge_files(&flags),
        OtherCommand::Tpch(flags) => write_tpch(&flags),
        OtherCommand::Hits(flags) => write_hits(&flags),
        OtherCommand::Sql(flags) => run_sql(&flags),
        OtherCommand::Usl(usl) => match &usl.sql {
            None => {
                let plan = usl.flags.ladder(usl.workload, &usl.ladder)?;
                usl::cli(&plan, &usl.flags.report, &usl.page, &usl.ladder)
            }
            Some(UslTarget::Sql(sql)) => {
                let plan = sql.flags.ladder(&sql.ladder, sql.metrics.metrics.clone())?;
                usl::cli(&plan, &sql.flags.report, &sql.page, &sql.ladder)
            }
        },
        OtherCommand::Sweep(sweep) => match &sweep.sql {
            None => {
                let plan = sweep.flags.sweep(sweep.workload, &sweep.sweep)?;
                sweep::cli(&plan, &sweep.flags.report, &sweep.page)
            }
            Some(SweepTarget::Sql(sql)) => {
                let plan = sql.flags.sweep(&sql.sweep, sql.metrics.metrics.clone())?;
                sweep::cli(&plan, &sql.flags.report, &sql.page)
            }
        },
    }
}

/// Runs a load over CQL. Returns 3 for invalid results.
fn run_load(flags: &CqlFlags, workload: Workload) -> Result<i32, LoadError> {
    let spec = flags.spec(workload)?;
    let stop = stop_on_signals()?;
    let report = run(&spec, &stop, print_progress(flags.report.quiet))?;
    if flags.report.prints_text() {
        print!("{}", report.text());
    }
    write_json(flags.report.json.as_deref(), &report)?;
    if let Some(path) = &flags.histograms.hdr {
        write_file(path, &merge::log(report.steps.iter())?)?;
    }
    Ok(if report.invalid { 3 } else { 0 })
}

/// Runs a load of SQL queries. Returns 3 for invalid results.
fn run_sql(flags: &SqlFlags) -> Result<i32, LoadError> {
    let spec = flags.spec()?;
    let stop = stop_on_signals()?;
    let report = sql::run(&spec, &stop, print_progress(flags.report.quiet))?;
    if flags.report.prints_text() {
        print!("{}", report.text());
    }
    write_json(flags.report.json.as_deref(), &report)?;
    if let Some(path) = &flags.histograms.hdr {
        write_file(path, &merge::log(report.steps.iter().map(|step| &step.all))?)?;
    }
    Ok(if report.invalid { 3 } else { 0 })
}

fn print_progress(quiet: bool) -> impl FnMut(&Second) {
    move |second| {
        if !quiet {
            eprintln!("{}", progress(second));
        }
    }
}

fn merge_files(flags: &MergeFlags) -> Result<i32, LoadError> {
    let mut files = Vec::new();
    for path in &flags.files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| LoadError::File { path: path.clone(), reason: error.to_string() })?;
        files.push((path.clone(), text));
    }
    let merged = merge(&files)?;
    if flags.report.prints_text() {
        print!("{}", merge::text(&merged));
    }
    write_json(flags.report.json.as_deref(), &merged)?;
    Ok(0)
}
