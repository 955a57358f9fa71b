//! Command line of `fairlane load sweep`. Progress goes to standard error, the report to standard
//! output and to files.

use super::measure::{SweepEvent, SweepPlan, sweep};
use super::page::page;
use crate::LoadError;
use crate::common_flags::{PageFlags, ReportFlags};
use crate::output::{stop_on_signals, write_file, write_json};
use crate::text::progress;

/// Measures a sweep and writes its reports. Returns the exit code: 0 if every run was made and is
/// valid, 3 if not. Goals that were missed are results, not failures.
///
/// # Errors
/// Those of [`sweep`], and [`LoadError::File`] for a file that cannot be written.
pub(crate) fn run(plan: &SweepPlan, report: &ReportFlags, page_file: &PageFlags) -> Result<i32, LoadError> {
    let stop = stop_on_signals()?;
    let found = sweep(plan, &stop, |event| {
        if !report.quiet {
            eprintln!("{}", line(event));
        }
    })?;
    if report.prints_text() {
        print!("{}", found.text());
    }
    write_json(report.json.as_deref(), &found)?;
    if let Some(path) = &page_file.html {
        write_file(path, &page(&found))?;
    }
    Ok(if found.is_complete() { 0 } else { 3 })
}

fn line(event: SweepEvent<'_>) -> String {
    match event {
        SweepEvent::Begins { run, of, part, rate_per_s } => {
            format!("run {run} of {of}: {:.0} % of the peak, {rate_per_s:.0}/s", part * 100.0)
        }
        SweepEvent::Second(second) => progress(second),
    }
}
