//! Command line of `fairlane load plan`: reads the ladders and prints the plan.

use super::cores::needed;
use super::flags;
use super::operating::operating;
use super::page::page;
use crate::LoadError;
use crate::flag::usage;
use crate::output::{write_file, write_json};
use crate::usl::read_ladder;

/// Runs with the arguments after the word `plan`. Returns the exit code 0.
///
/// # Errors
/// [`LoadError::Usage`], [`LoadError::File`] for a file without a ladder, and [`LoadError::NoPlan`]
/// for a ladder that determines no plan.
pub(crate) fn run(args: &[String]) -> Result<i32, LoadError> {
    let options = flags::parse(args)?;
    if options.common.help {
        print!("{}", flags::help());
        return Ok(0);
    }
    let goal = options.goal()?;
    let mut measured = Vec::new();
    for (path, given) in &options.from {
        let ladder = read_ladder(path)?;
        let cores = given.or(ladder.server_core_count).ok_or_else(|| {
            usage(format!(
                "--from {path}: the file has no core count: it was measured without --metrics, or in steps too short \
                 for them; give it as --from {path}=CORES"
            ))
        })?;
        measured.push(operating((path, &ladder), cores, goal.p99_us)?);
    }
    let plan = needed(goal, measured);
    if options.common.json.as_deref() != Some("-") {
        print!("{}", plan.text());
    }
    write_json(options.common.json.as_deref(), &plan)?;
    if let Some(path) = &options.common.html {
        write_file(path, &page(&plan))?;
    }
    Ok(0)
}
