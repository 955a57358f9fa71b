//! Repeats a published experiment: single-row writes at a fixed rate on one core, five minutes with
//! uncontrolled background work and five with the controllers. Each takes two phases, in the order
//! A B B A. Once at the published rate, of which this core may need a smaller part than the
//! published one did, and once at a rate that takes most of it.

use crate::error::DemoError;
use crate::metrics::now_s;
use crate::names::{ALONE, CONTROLLED, UNCONTROLLED, WRITES};
use crate::options::FlushOptions;
use crate::pairs::pairs;
use crate::results::{Chapter, Series, Window};
use crate::stage::{KEYSPACE, Stage};

use super::{Phase, SMALL};

/// The published rate, writes a second.
const RATE_PER_S: f64 = 20_000.0;
/// Other rate, as a fraction of what the server takes for long. The published server missed 6 % of
/// its rate with uncontrolled background work, and none with the controllers: it had little to
/// spare.
const PART: f64 = 0.8;
/// Phases of each of the two settings.
const PAIRS: usize = 2;
/// Warm-up, seconds.
const WARMUP_S: f64 = 2.0;
/// Table of the load.
const TABLE: &str = "standard1";

/// Phases at the published rate.
pub(crate) fn at_rate(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let options =
        FlushOptions { rate_per_s: stage.flush.rate_per_s.or(Some(RATE_PER_S)), ..stage.flush.clone() };
    let rate_per_s = options.rate_per_s(stage.measured.writes_per_s)?;
    let mut chapter = both(stage, rate_per_s)?;
    chapter.id = "published_rate".into();
    chapter.title = format!("{rate_per_s:.0} writes a second");
    Ok(chapter)
}

/// Phases at a rate that takes most of the core.
pub(crate) fn at_part(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let rate_per_s = stage.measured.writes_per_s * PART;
    let mut chapter = both(stage, rate_per_s)?;
    chapter.id = "published_part".into();
    chapter.title = format!("{:.0} % of what the core takes for long", PART * 100.0);
    Ok(chapter)
}

fn both(stage: &mut Stage, rate_per_s: f64) -> Result<Chapter, DemoError> {
    let mut chapter = Chapter { series: vec![Series::of(WRITES, &[])], ..Chapter::default() };
    let settings = pairs(&(UNCONTROLLED, false), &(CONTROLLED, true), PAIRS);
    for (number, (label, controllers)) in settings.into_iter().enumerate() {
        let phase = Phase {
            id: format!("{}-{number}", label.replace(' ', "_")),
            label: label.to_string(),
            memtables: SMALL,
            controllers,
            rate_per_s,
            warmup_s: WARMUP_S,
            seconds: stage.times.background.phase,
        };
        phase.measure(stage, &mut chapter)?;
    }
    chapter.windows.iter_mut().for_each(|window| window.cpu.served.clear());
    chapter.what = format!(
        "An open loop of {rate_per_s:.0} single-row writes a second, {:.0} % of what this core takes for long with \
         flushes and compactions. Each of {} phases takes {:.0} s on a server of its own. With controllers off, \
         flushes and compactions run as fast as their fixed shares allow; with controllers on, they are paced.",
        rate_per_s / stage.measured.writes_per_s * 100.0,
        2 * PAIRS,
        stage.times.background.phase
    );
    Ok(chapter)
}

/// A major compaction on the server of the last phase, without other work.
pub(crate) fn alone(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.settle(super::QUIET_S, "the compaction was not alone")?;
    let begin_s = now_s();
    stage.probe.mark();
    // In the level of the administrator, with nothing else to do.
    stage.cql(&[&format!("COMPACT {KEYSPACE}.{TABLE}")])?;
    stage.probe.mark();
    let end_s = now_s();
    let cpu = stage.probe.between(begin_s, end_s);
    let window = Window { id: ALONE.into(), label: "alone".into(), begin_s, end_s, loads: Vec::new(), cpu };
    Ok(Chapter {
        id: "background_alone".into(),
        title: "Background work alone takes what is there".to_string(),
        what: format!(
            "After the writes, a major compaction of their table with the controllers on: {:.1} s, during which \
             the server did nothing else.",
            end_s - begin_s
        ),
        cpu: stage.probe.points(begin_s, end_s),
        storage: stage.probe.storage(begin_s, end_s),
        windows: vec![window],
        ..Chapter::default()
    })
}
