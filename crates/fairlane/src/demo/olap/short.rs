//! A client of short queries, alone and beside another of ever more connections that run the same without pause: first in a level
//! each with the same shares, then in one. With levels it should be owed half of the server however many are beside it; in one level its
//! queries are a few among many.
//!
//! Each number of connections is there twice, on the way up and on the way down, and `alone` at both ends: two phases of the same
//! kind differ by how the clients' queries happen to meet, and what drifts meanwhile is in both halves alike.

use super::super::DemoError;
use super::super::figures::Chapter;
use super::super::stage::Stage;
use super::clients::{Beside, Clients, Phases, Queries};
use super::{FIRST, LEVELS, ONE_LEVEL, SECOND, a_level_each, one_level};

/// The chapters' ids, and what they run.
pub(in crate::demo) const SHORT: [(&str, Queries); 2] = [
    ("olap_clickbench", Queries { keyspace: "clickbench", names: &["q15", "q17", "q23"] }),
    ("olap_tpch", Queries { keyspace: "tpch", names: &["q03", "q07", "q19"] }),
];
/// Connections of the other client.
pub(in crate::demo) const CONNECTIONS: [usize; 4] = [1, 2, 4, 8];
/// The phase that the others are compared with.
pub(in crate::demo) const ALONE: &str = "alone";

/// Each kind of phase is there twice.
const SHORT_PHASES: f64 = 0.6;

/// Whether a chapter is of these.
pub(in crate::demo) fn is_short(chapter: &Chapter) -> bool {
    SHORT.iter().any(|(id, _)| *id == chapter.id)
}

/// Of ClickBench.
pub(in crate::demo) fn clickbench(stage: &mut Stage) -> Result<Chapter, DemoError> {
    chapter(stage, SHORT[0], "Short queries of ClickBench beside others", "Q15, Q17 and Q23")
}

/// Of TPC-H.
pub(in crate::demo) fn tpch(stage: &mut Stage) -> Result<Chapter, DemoError> {
    chapter(stage, SHORT[1], "Short queries of TPC-H beside others", "Q3, Q7 and Q19")
}

fn chapter(
    stage: &mut Stage,
    (id, queries): (&str, Queries),
    title: &str,
    told: &str,
) -> Result<Chapter, DemoError> {
    let seconds = stage.olap.seconds * SHORT_PHASES;
    let first = Clients { user: FIRST, queries, connections: 1 };
    let mut phases = Phases::new(stage);
    a_level_each(phases.stage, [1000, 1000])?;
    phases.measure(ALONE, "alone", first, Beside::Nobody, seconds)?;
    for (how, label) in [(LEVELS, "a level each"), (ONE_LEVEL, "one level")] {
        if how == ONE_LEVEL {
            one_level(phases.stage)?;
        }
        for connections in CONNECTIONS.into_iter().chain(CONNECTIONS.into_iter().rev()) {
            let beside = Beside::Around(Clients { user: SECOND, queries, connections });
            let (id, label) = (format!("{how}-{connections}"), format!("{label}, beside {connections}"));
            phases.measure(&id, &label, first, beside, seconds)?;
        }
    }
    phases.measure(ALONE, "alone", first, Beside::Nobody, seconds)?;
    let mut chapter = phases.finish();
    chapter.id = id.to_string();
    chapter.title = title.to_string();
    chapter.what = format!(
        "One connection runs {told} in turn: alone, then beside another client of 1, 2, 4, 8 and again 8, 4, 2 and 1 connections that run the same without \
         pause, in a level each with the same shares and then with both in one level. What is drawn first is how much longer its queries took than alone: \
         each query over itself, and of these ratios the middle one. A phase has few queries, so its p99 is its slowest."
    );
    Ok(chapter)
}
