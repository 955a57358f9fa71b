//! User rows written at 90 % of capacity, and the space of their table over time, by strategy of
//! compaction. Each has a server of its own.
//!
//! 1. Write all rows, and compact them into one run. Its space is the data.
//! 2. Measure the capacity for overwrites, over a time with flushes and compactions. Only for the
//!    first strategy, and only once.
//! 3. Overwrite rows at 90 % of capacity, and sample the space.

use std::time::Duration;

use load::{Distribution, Keys, Pacing, RateStep, Spec, Workload};

use super::run::sampled;
use super::{TABLE, capacity, data, flags, table};
use crate::compaction::{STRATEGIES, watch};
use crate::compare::expected;
use crate::error::DemoError;
use crate::names::{USER_WRITES, USERS};
use crate::open_loop::Search;
use crate::results::{Chapter, LoadRun, Series, Window, WindowLoad};
use crate::stage::{KEYSPACE, Stage};

/// Part of capacity.
const PART: f64 = 0.9;
/// Options that both strategies have, and those of the incremental one. Its fragments are small, as
/// the table is: a run of 240 MB has 60.
const GOAL: &str = "'space_amplification_goal': '1.25', 'sstable_size_in_mb': 4";
/// Interval of samples of the space. A compaction takes seconds, and a sample costs the sender's
/// core some time.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Ingest with incremental compaction.
pub(crate) fn incremental(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = ingest(stage, "petabyte_ingest", STRATEGIES[0].0, &format!(", {GOAL}"))?;
    chapter.title = "Ingest with incremental compaction".to_string();
    Ok(chapter)
}

/// Ingest with size-tiered compaction, at the same rate.
pub(crate) fn size_tiered(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = ingest(stage, "petabyte_tiered", STRATEGIES[1].0, "")?;
    chapter.title = "Ingest with size-tiered compaction".to_string();
    Ok(chapter)
}

fn overwrites(stage: &Stage, pacing: Pacing) -> Spec {
    let plain = data(stage, USERS, pacing, Workload::Write);
    let keys = Keys {
        population: stage.times.petabyte.ingest_rows,
        distribution: Distribution::Uniform,
        ..plain.keys.clone()
    };
    Spec { keys, seed: 41, ..plain }
}

fn ingest(stage: &mut Stage, id: &str, strategy: &str, options: &str) -> Result<Chapter, DemoError> {
    stage.expect(id, &expected(id))?;
    stage.restart(&flags())?;
    let (rows, seconds) = (stage.times.petabyte.ingest_rows, stage.times.petabyte.ingest);
    table(stage, USERS, rows)?;
    let compaction = format!("{{'class': '{strategy}'{options}}}");
    stage.cql(&[&format!("ALTER TABLE {KEYSPACE}.{TABLE} WITH compaction = {compaction}")])?;
    if stage.measured.writes_per_s <= 0.0 {
        let search = Search { first: 0.3, ratio: 1.15, count: 9, seconds: seconds / 8.0 };
        let spec = overwrites(stage, Pacing::Open(Vec::new()));
        stage.measured.writes_per_s = capacity(stage, USER_WRITES, spec, &search)?.throughput_per_s;
    }
    stage.settle(3.0, "writes are slower than without compactions")?;
    stage.cql(&[&format!("COMPACT {KEYSPACE}.{TABLE}")])?;
    // Removed files are freed a moment later.
    stage.settle(2.0, "removed files may count as data")?;
    let rate_per_s = stage.measured.writes_per_s * PART;
    let spec = overwrites(stage, Pacing::Open(vec![RateStep { rate_per_s, seconds }]));
    let dir = stage.folder.file("data");
    let (report, space) = watch(&dir, SAMPLE_EVERY, || stage.run(USER_WRITES, &spec))?;
    stage.probe.mark();
    let (Some(run), Some(step)) = (LoadRun::of(USER_WRITES, &report, 0), report.steps.first()) else {
        return Err(DemoError::Failed("The server answered no writes.".into()));
    };
    let begin_s = step.begin_unix_ms as f64 / 1e3;
    let end_s = begin_s + step.seconds;
    let cpu = stage.probe.between(begin_s, end_s);
    let loads = vec![WindowLoad::of(run, step)];
    let label = format!("{:.0} %", PART * 100.0);
    let chapter = Chapter {
        id: id.into(),
        what: format!(
            "{rows} rows, each written once and compacted into one run, are overwritten at {rate_per_s:.0} a second: \
             {:.0} % of the highest rate that is answered in time for {:.0} s with flushes and compactions.",
            PART * 100.0,
            seconds / 8.0
        ),
        windows: vec![Window { id: "ingest".into(), label, begin_s, end_s, loads, cpu }],
        series: vec![Series::of(USER_WRITES, &report.seconds)],
        space,
        ..Chapter::default()
    };
    Ok(sampled(stage, chapter))
}
