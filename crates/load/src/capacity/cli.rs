//! Command line of `fairlane load plan`: reads the ladders and prints the plan.

use super::cores::needed;
use super::flags::{CapacityFlags, LadderFile};
use super::operating::operating;
use super::page::page;
use crate::LoadError;
use crate::output::{write_file, write_json};
use crate::usl::read_ladder;

/// Prints the plan. Returns the exit code 0.
///
/// # Errors
/// [`LoadError::Usage`], [`LoadError::File`] for a file without a ladder, and [`LoadError::NoPlan`]
/// for a ladder that determines no plan.
pub(crate) fn run(flags: &CapacityFlags) -> Result<i32, LoadError> {
    let goal = flags.goal();
    let mut measured = Vec::new();
    for LadderFile { path, cores } in &flags.from {
        let ladder = read_ladder(path)?;
        let cores = cores.or(ladder.server_core_count).ok_or_else(|| {
            LoadError::Usage(format!(
                "--from {path}: the file has no core count: it was measured without --metrics, or in steps too short \
                 for them; give it as --from {path}=CORES"
            ))
        })?;
        measured.push(operating(path, &ladder, cores, goal.p99_us)?);
    }
    let plan = needed(goal, measured);
    if flags.json.as_deref() != Some("-") {
        print!("{}", plan.text());
    }
    write_json(flags.json.as_deref(), &plan)?;
    if let Some(path) = &flags.page.html {
        write_file(path, &page(&plan))?;
    }
    Ok(0)
}
