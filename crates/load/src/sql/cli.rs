//! Command line of `fairlane load sql`. Progress goes to standard error, the report to standard
//! output and to files.
use super::flags;
use super::run::run as run_load;
use crate::LoadError;
use crate::cli::{stop_on_signals, write_file, write_json};
use crate::merge;
use crate::text::progress;

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
