//! A client of short queries, alone and beside a second client with up to eight connections that
//! run the same queries without pause. With a level each, the first client is entitled to half of
//! the server whatever the number of connections. In one level its queries are a few among many.
//! These are the four published tests: few and many connections without workload groups, and with.
//!
//! Each number of connections is measured twice, in rising and in falling order, and `alone` at
//! both ends. Two phases of one kind differ by the way in which queries overlap, and a drift
//! affects both halves alike.

use super::clients::{Beside, Clients, Phases, Queries};
use super::{set_one_level, set_shares};
use crate::error::DemoError;
use crate::names::{ALONE, CONNECTIONS, DASHBOARD, LEVELS, ONE_LEVEL, REPORTS, SHORT_CLICKBENCH, SHORT_TPCH};
use crate::results::Chapter;
use crate::stage::Stage;

/// Short queries.
pub(super) const CLICKBENCH: Queries = Queries { keyspace: "clickbench", names: &["q15", "q17", "q23"] };
pub(super) const TPCH: Queries = Queries { keyspace: "tpch", names: &["q03", "q07", "q19"] };

/// Length of the phases, in usual phases. Each kind of phase is measured twice.
const SHORT_PHASES: f64 = 0.6;

/// Measures short queries of ClickBench.
pub(crate) fn clickbench(stage: &mut Stage) -> Result<Chapter, DemoError> {
    chapter(
        stage,
        SHORT_CLICKBENCH,
        CLICKBENCH,
        "Short queries of ClickBench beside others",
        "Q15, Q17 and Q23",
    )
}

/// Measures short queries of TPC-H.
pub(crate) fn tpch(stage: &mut Stage) -> Result<Chapter, DemoError> {
    chapter(stage, SHORT_TPCH, TPCH, "Short queries of TPC-H beside others", "Q3, Q7 and Q19")
}

fn chapter(
    stage: &mut Stage,
    id: &str,
    queries: Queries,
    title: &str,
    names: &str,
) -> Result<Chapter, DemoError> {
    let seconds = stage.olap.seconds * SHORT_PHASES;
    let first = Clients { user: DASHBOARD, queries, connections: 1, bypass_cache: false };
    let mut phases = Phases::new(stage);
    set_shares(phases.stage, [1000, 1000])?;
    phases.measure(ALONE, "alone", first, Beside::Nothing, seconds)?;
    for (how, label) in [(LEVELS, "a level each"), (ONE_LEVEL, "one level")] {
        if how == ONE_LEVEL {
            set_one_level(phases.stage)?;
        }
        for connections in CONNECTIONS.into_iter().chain(CONNECTIONS.into_iter().rev()) {
            let beside = Beside::Around(Clients { user: REPORTS, connections, ..first });
            let (id, label) = (format!("{how}-{connections}"), format!("{label}, beside {connections}"));
            phases.measure(&id, &label, first, beside, seconds)?;
        }
    }
    phases.measure(ALONE, "alone", first, Beside::Nothing, seconds)?;
    let mut chapter = phases.finish();
    chapter.id = id.to_string();
    chapter.title = title.to_string();
    chapter.what = format!(
        "One connection of `{DASHBOARD}` runs {names} in turn: alone, then beside `{REPORTS}` with 1, 2, 4, 8 and \
         again 8, 4, 2 and 1 connections that run the same queries without pause. First each client has its own \
         level with the same shares, then both are in one level. The first panel shows the ratio of latency to \
         latency alone: the median over the queries, each compared with itself. A phase has few queries, so its \
         p99 is its slowest query."
    );
    Ok(chapter)
}
