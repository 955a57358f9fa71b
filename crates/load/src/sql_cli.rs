//! Command line of `fairlane load sql`. Progress goes to standard error, the report to standard
//! output and to files.
use crate::LoadError;
use crate::merge;
use crate::output::{stop_on_signals, write_file, write_json};
use crate::sql::run as run_load;
use crate::sql_flags as flags;
use crate::text::progress;
use crate::usl;

/// Runs with the arguments after the word `sql`. Returns the exit code: 0 for a valid measurement,
/// 3 for invalid results.
///
/// # Errors
/// [`LoadError`] if the load cannot start or its report cannot be written.
pub(crate) fn run(args: &[String]) -> Result<i32, LoadError> {
    let options = flags::parse(args)?;
    if options.common.help {
        print!("{}", flags::help());
        return Ok(0);
    }
    let spec = options.spec()?;
    let stop = stop_on_signals()?;
    let report = run_load(&spec, &stop, |second| {
        if !options.common.quiet {
            eprintln!("{}", progress(second));
        }
    })?;
    if options.common.json.as_deref() != Some("-") {
        print!("{}", report.text());
    }
    write_json(options.common.json.as_deref(), &report)?;
    if let Some(path) = &options.hdr {
        write_file(path, &merge::log(report.steps.iter().map(|step| &step.all))?)?;
    }
    Ok(if report.invalid { 3 } else { 0 })
}

/// Runs `fairlane load usl sql` with the arguments after the word `sql`. Returns the exit code.
///
/// # Errors
/// As [`run`].
pub(crate) fn ladder(args: &[String]) -> Result<i32, LoadError> {
    let options = flags::parse_ladder(args)?;
    if options.common.help {
        print!("{}", flags::ladder_help());
        return Ok(0);
    }
    usl::cli(&options.plan()?, &options.common, &options.ladder)
}

/// Runs `fairlane load sweep sql` with the arguments after the word `sql`. Returns the exit code.
///
/// # Errors
/// As [`run`].
pub(crate) fn sweep(args: &[String]) -> Result<i32, LoadError> {
    let options = flags::parse_sweep(args)?;
    if options.common.help {
        print!("{}", flags::sweep_help());
        return Ok(0);
    }
    crate::sweep::cli(&options.sweep()?, &options.common)
}
