//! User reads with and without BYPASS CACHE, and from memory. Rates are parts of the capacity with
//! the cache, so that capacities and latencies are compared apart.

use super::run::{Setting, run};
use super::{APP_KEYSPACE, LOW, TABLE, read_capacity};
use crate::error::DemoError;
use crate::names::{APPLICATION, BYPASSING, CACHED, FROM_MEMORY, USERS};
use crate::pairs::pairs;
use crate::results::Chapter;
use crate::stage::Stage;

/// Measures three capacities, and latencies at the same rate.
pub(crate) fn bypass(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let cached = Setting::new(CACHED, LOW, 0.0);
    let bypassing = Setting { bypasses: true, ..Setting::new(BYPASSING, LOW, 0.0) };
    let settings = pairs(&bypassing, &cached, stage.times.petabyte.pairs);
    let mut chapter = run(stage, "petabyte_bypass", &settings)?;
    // Its rows were overwritten a dozen times. Versions in several runs exceed the cache: of 4,200
    // rows, 7,600 reads a second, and 33,600 after a compaction (2026-11-28).
    stage.cql(&[&format!("COMPACT {APP_KEYSPACE}.{TABLE}")])?;
    chapter.runs = vec![
        read_capacity(stage, BYPASSING, USERS, true)?,
        read_capacity(stage, CACHED, USERS, false)?,
        read_capacity(stage, FROM_MEMORY, APPLICATION, false)?,
    ];
    chapter.title = "With the cache, and around it".to_string();
    chapter.what = "User reads at 61 % of capacity with the cache and with BYPASS CACHE in turn. Then the \
                    capacities of both, and of reads of the application's rows, which fit into memory once they are \
                    compacted."
        .to_string();
    Ok(chapter)
}
