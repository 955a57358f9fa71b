//! `fairlane load sql`: flags to a load, progress on standard error, the report on standard output and into files.

use super::flags;
use super::run::run as run_load;
use crate::LoadError;
use crate::cli::{stop_on_signals, write_file, write_json};
use crate::merge;
use crate::text::progress;

/// Runs with what follows the word `sql`; returns the exit code: 0 when measured, 3 when the figures are invalid.
///
/// # Errors
/// [`LoadError`], when the load could not be begun or its report not be written.
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
