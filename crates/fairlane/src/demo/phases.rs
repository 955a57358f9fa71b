//! The two chapters that matter most: interactive load alone, beside an unlimited batch load, and alone
//! again; once with both in one level, once with a level each.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use load::{Report, Second, StopFlag};

use super::DemoError;
use super::figures::{Chapter, Run, Series, Window, WindowLoad};
use super::loads::Shape;
use super::metrics::now_s;
use super::stage::Stage;

/// The interactive load: its role, its level and its name in reports.
pub(super) const INTERACTIVE: &str = "interactive";
/// The batch load: likewise. (`batch` itself is a reserved word of CQL.)
pub(super) const BATCH: &str = "analytics";
/// How long a load may take to log in and answer its first second.
const BEGIN_TIMEOUT_S: f64 = 20.0;
/// Seconds of the interactive load before anything counts, so that connections and caches are warm.
const WARMUP_S: f64 = 1.0;

/// Both loads in the level everybody has.
pub(super) fn one_level(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.role(INTERACTIVE)?;
    stage.role(BATCH)?;
    let mut chapter = mixed(stage)?;
    chapter.id = "one_level".into();
    chapter.title = "Both in one level: the harm".to_string();
    chapter.what = format!(
        "The interactive load, an open loop of single-row reads {}, runs alone; {} joins; it leaves again. There are no service levels, \
         so the server treats every request alike.",
        interactive_words(stage),
        batch_words(stage)
    );
    Ok(chapter)
}

/// A level each.
pub(super) fn two_levels(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.role(INTERACTIVE)?;
    stage.role(BATCH)?;
    stage.cql(&[
        "CREATE SERVICE LEVEL interactive WITH shares = 1000",
        "CREATE SERVICE LEVEL analytics WITH shares = 10",
        "ATTACH SERVICE LEVEL interactive TO interactive",
        "ATTACH SERVICE LEVEL analytics TO analytics",
    ])?;
    let mut chapter = mixed(stage)?;
    chapter.id = "two_levels".into();
    chapter.title = "A level each: shares 1000 and 10".to_string();
    chapter.what = "The same two loads, after two CREATE and two ATTACH statements. Shares decide who goes first, and only while the \
                    core is contended: the batch load gets all that the interactive one leaves."
        .to_string();
    Ok(chapter)
}

fn interactive_words(stage: &Stage) -> &'static str {
    match stage.shape {
        Shape::Slices => "at about half of capacity",
        Shape::Published => "at 20 % of capacity with 200 in flight at most",
    }
}

fn batch_words(stage: &Stage) -> &'static str {
    match stage.shape {
        Shape::Slices => "an unlimited batch load, 256 slices of 100 rows in flight,",
        Shape::Published => "an unlimited batch load, 1800 single-row reads in flight,",
    }
}

/// Alone, the batch load joins, beside, it leaves, alone: an interactive run of five steps, with the batch
/// load's process begun and ended around the third.
fn mixed(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let (phase, gap) = (stage.times.mixed, stage.times.settle);
    let mut spec = stage.interactive(INTERACTIVE, &[phase, gap, phase, gap, phase]);
    spec.warmup_s = WARMUP_S;
    let stop = StopFlag::new();
    let own = stop.clone();
    let (say, seconds) = channel();
    let thread = std::thread::spawn(move || {
        load::run(&spec, &own, |second| {
            // The demo may have given up meanwhile; then the load is being stopped.
            let _nobody_listens = say.send(second.clone());
        })
    });
    let batch = beside(stage, &seconds, phase, gap);
    if batch.is_err() {
        stop.set();
    }
    let report = thread.join().map_err(|_| DemoError::Failed("the interactive load failed".into()))?;
    stage.interrupted()?;
    let report = match (report, batch) {
        (Err(error), _) => return Err(error.into()),
        (Ok(_), Err(error)) => return Err(error),
        (Ok(interactive), Ok(batch)) => (interactive, batch),
    };
    stage.heed(INTERACTIVE, &report.0);
    stage.heed(BATCH, &report.1);
    Ok(chapter(stage, &report.0, &report.1))
}

/// Follows the interactive load and runs the batch load beside its third step.
fn beside(stage: &mut Stage, seconds: &Receiver<Second>, phase: f64, gap: f64) -> Result<Report, DemoError> {
    let first = first(stage, seconds)?;
    let begin = first.unix_ms as f64 / 1e3 - first.at_s + WARMUP_S;
    follow(stage, INTERACTIVE, seconds, begin + phase)?;
    stage.say("the batch load joins");
    let mut sender = stage.batch(BATCH, gap + phase + BEGIN_TIMEOUT_S)?;
    follow(stage, INTERACTIVE, seconds, begin + phase + gap + phase)?;
    sender.check()?;
    stage.say("the batch load leaves");
    let report = sender.stop()?;
    follow(stage, INTERACTIVE, seconds, begin + 3.0 * phase + 2.0 * gap + BEGIN_TIMEOUT_S)?;
    Ok(report)
}

/// The load's first second, which tells when it began.
fn first(stage: &mut Stage, seconds: &Receiver<Second>) -> Result<Second, DemoError> {
    let until = now_s() + BEGIN_TIMEOUT_S;
    while now_s() < until {
        stage.interrupted()?;
        match seconds.recv_timeout(Duration::from_millis(50)) {
            Ok(second) => return Ok(second),
            Err(RecvTimeoutError::Timeout) => stage.server_check()?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Err(DemoError::Failed("the interactive load did not begin".to_string()))
}

/// Shows the load's progress until a moment, or until it ends.
pub(super) fn follow(
    stage: &mut Stage,
    name: &str,
    seconds: &Receiver<Second>,
    until_s: f64,
) -> Result<(), DemoError> {
    while now_s() < until_s {
        stage.interrupted()?;
        stage.server_check()?;
        let left = (until_s - now_s()).clamp(0.001, 0.05);
        match seconds.recv_timeout(Duration::from_secs_f64(left)) {
            Ok(second) => stage.progress(name, &second),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn chapter(stage: &Stage, interactive: &Report, batch: &Report) -> Chapter {
    let of_batch = Series::of(BATCH, &batch.seconds);
    let phases = [(0, "before", "alone"), (2, "beside", "analytics beside it"), (4, "after", "alone again")];
    let mut windows = Vec::new();
    for (index, id, label) in phases {
        let Some(run) = Run::of(INTERACTIVE, interactive, index) else { continue };
        let step = &interactive.steps[index];
        let begin_s = step.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + step.seconds;
        let mut loads = vec![WindowLoad {
            load: INTERACTIVE.to_string(),
            throughput_per_s: run.throughput_per_s,
            asked_per_s: run.asked_per_s,
            latency: Some(run.latency),
            from_sent: Some(step.from_sent),
            errors: run.errors,
            held_back: run.held_back,
            generator_cpu: run.generator_cpu,
            generator_lag_p99_us: step.generator_lag_p99_us,
            ..WindowLoad::default()
        }];
        if id == "beside" {
            // Its run began and ended with this phase, but for the seconds in which it joined and left.
            loads.push(WindowLoad {
                load: BATCH.to_string(),
                throughput_per_s: of_batch.rate_between(begin_s, end_s),
                latency: Run::of(BATCH, batch, 0).map(|run| run.latency),
                generator_cpu: batch.generator_cpu,
                ..WindowLoad::default()
            });
        }
        let cpu = stage.probe.between(begin_s, end_s);
        windows.push(Window { id: id.into(), label: label.to_string(), begin_s, end_s, loads, cpu });
    }
    let ends = windows.first().map_or(0.0, |w| w.begin_s)..windows.last().map_or(0.0, |w| w.end_s);
    let cpu = stage.probe.points(ends.start, ends.end);
    let series = vec![Series::of(INTERACTIVE, &interactive.seconds), of_batch];
    Chapter {
        windows,
        series,
        cpu,
        runs: Run::of(BATCH, batch, 0).into_iter().collect(),
        ..Chapter::default()
    }
}
