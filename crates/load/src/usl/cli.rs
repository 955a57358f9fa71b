//! Command line of `fairlane load usl`. Progress goes to standard error, the report to standard
//! output and to files.

use super::flags::LadderFlags;
use super::ladder::{LadderPlan, ladder};
use super::page::{draw, page};
use crate::LoadError;
use crate::common_flags::{PageFlags, ReportFlags};
use crate::output::{stop_on_signals, write_file, write_json};
use crate::text::progress;

/// Measures a ladder and writes its reports. Returns the exit code: 0 if a law was fitted, 3 if
/// not.
///
/// # Errors
/// Those of [`ladder`], and [`LoadError::File`] for a file that cannot be written.
pub(crate) fn run(
    plan: &LadderPlan,
    report: &ReportFlags,
    page_file: &PageFlags,
    flags: &LadderFlags,
) -> Result<i32, LoadError> {
    let stop = stop_on_signals()?;
    let found = ladder(plan, &stop, |second| {
        if !report.quiet {
            eprintln!("{}", progress(second));
        }
    })?;
    if report.prints_text() {
        print!("{}", found.text());
    }
    write_json(report.json.as_deref(), &found)?;
    if let Some(path) = &flags.svg {
        match draw(&found) {
            Some(drawing) => write_file(path, &drawing)?,
            None => eprintln!("fairlane load: {path} is not written, since there are no valid rungs to draw"),
        }
    }
    if let Some(path) = &page_file.html {
        write_file(path, &page(&found))?;
    }
    Ok(if found.scaling.is_some() { 0 } else { 3 })
}
