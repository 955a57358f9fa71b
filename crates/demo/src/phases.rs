//! The main chapters of the demo of service levels: the interactive load alone, beside an unlimited
//! batch load, and alone again. First both loads are in one level, then each has its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use load::{Report, Second, StopFlag};

use crate::error::DemoError;
use crate::metrics::now_s;
use crate::names::{BATCH, INTERACTIVE};
use crate::options::Shape;
use crate::results::{Chapter, LoadRun, Series, Window, WindowLoad};
use crate::stage::Stage;

/// Time limit for a load to log in and finish its first second.
const BEGIN_TIMEOUT_S: f64 = 20.0;
/// Warm-up of the interactive load: connections and caches. Seconds.
const WARMUP_S: f64 = 1.0;

/// Both loads in the default level.
pub(crate) fn one_level(stage: &mut Stage) -> Result<Chapter, DemoError> {
    stage.role(INTERACTIVE)?;
    stage.role(BATCH)?;
    let mut chapter = mixed(stage)?;
    chapter.id = "one_level".into();
    chapter.title = "Both loads in one level".to_string();
    chapter.what = format!(
        "The interactive load is an open loop of single-row reads {}. It runs alone, then beside {}, then alone \
         again. There are no service levels, so the server treats all requests alike.",
        interactive_words(stage),
        batch_words(stage)
    );
    Ok(chapter)
}

/// A level for each load.
pub(crate) fn two_levels(stage: &mut Stage) -> Result<Chapter, DemoError> {
    a_level_each(stage, "CREATE SERVICE LEVEL analytics WITH shares = 10")
}

/// A level for each load, that of the batch load by the statement `create_batch`.
pub(crate) fn a_level_each(stage: &mut Stage, create_batch: &str) -> Result<Chapter, DemoError> {
    stage.role(INTERACTIVE)?;
    stage.role(BATCH)?;
    stage.cql(&[
        "CREATE SERVICE LEVEL interactive WITH shares = 1000",
        create_batch,
        "ATTACH SERVICE LEVEL interactive TO interactive",
        "ATTACH SERVICE LEVEL analytics TO analytics",
    ])?;
    let mut chapter = mixed(stage)?;
    chapter.id = "two_levels".into();
    chapter.title = "A level for each load: shares 1000 and 10".to_string();
    chapter.what =
        "The same two loads, after two CREATE and two ATTACH statements. Shares matter only while both \
                    loads want the core, so the batch load gets all that the interactive load leaves."
            .to_string();
    Ok(chapter)
}

fn interactive_words(stage: &Stage) -> &'static str {
    match stage.shape {
        Shape::Slices => "at about half of the server's CPU",
        Shape::Published => "at 20 % of capacity, with at most 200 in flight",
    }
}

fn batch_words(stage: &Stage) -> &'static str {
    match stage.shape {
        Shape::Slices => "an unlimited batch load with 256 slices of 100 rows in flight",
        Shape::Published => "an unlimited batch load with 1800 single-row reads in flight",
    }
}

/// Runs the interactive load in five steps: alone, the batch load joins, both, it leaves, alone.
/// The batch load's process starts in the second step and ends in the fourth.
fn mixed(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let (phase, gap) = (stage.times.mixed, stage.times.settle);
    let mut spec = stage.interactive(INTERACTIVE, &[phase, gap, phase, gap, phase]);
    spec.warmup_s = WARMUP_S;
    let stop = StopFlag::new();
    let own = stop.clone();
    let (sender, seconds) = channel();
    let thread = std::thread::spawn(move || {
        load::run(&spec, &own, |second| {
            // After an error, the demo has dropped the receiver and stops the load.
            let _not_received = sender.send(second.clone());
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
    stage.note_failures(INTERACTIVE, &report.0);
    stage.note_failures(BATCH, &report.1);
    Ok(chapter(stage, &report.0, &report.1))
}

/// Prints the interactive load's progress and runs the batch load beside its third step.
fn beside(stage: &mut Stage, seconds: &Receiver<Second>, phase: f64, gap: f64) -> Result<Report, DemoError> {
    let first = first(stage, seconds)?;
    let begin = first.unix_ms as f64 / 1e3 - first.at_s + WARMUP_S;
    follow(stage, INTERACTIVE, seconds, begin + phase)?;
    stage.print("the batch load joins");
    let mut sender = stage.start_batch(BATCH, gap + phase + BEGIN_TIMEOUT_S)?;
    follow(stage, INTERACTIVE, seconds, begin + phase + gap + phase)?;
    sender.check()?;
    stage.print("the batch load leaves");
    let report = sender.stop()?;
    follow(stage, INTERACTIVE, seconds, begin + 3.0 * phase + 2.0 * gap + BEGIN_TIMEOUT_S)?;
    Ok(report)
}

/// Waits for the first second of the interactive load.
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
    Err(DemoError::Failed("the interactive load did not start".to_string()))
}

/// Prints a load's progress until a time, or until the load ends.
pub(crate) fn follow(
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
    let phases = [(0, "before", "alone"), (2, "beside", "beside analytics"), (4, "after", "alone again")];
    let mut windows = Vec::new();
    for (index, id, label) in phases {
        let Some(run) = LoadRun::of(INTERACTIVE, interactive, index) else { continue };
        let step = &interactive.steps[index];
        let begin_s = step.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + step.seconds;
        let mut loads = vec![WindowLoad::of(run, step)];
        if id == "beside" {
            // Its run is this phase and the seconds in which it joined and left.
            loads.push(WindowLoad {
                load: BATCH.to_string(),
                throughput_per_s: of_batch.rate_between(begin_s, end_s),
                latency: LoadRun::of(BATCH, batch, 0).map(|run| run.latency),
                generator_cpu: batch.generator_cpu,
                ..WindowLoad::default()
            });
        }
        let cpu = stage.probe.between(begin_s, end_s);
        windows.push(Window { id: id.into(), label: label.to_string(), begin_s, end_s, loads, cpu });
    }
    let series = vec![Series::of(INTERACTIVE, &interactive.seconds), of_batch];
    let runs = LoadRun::of(BATCH, batch, 0).into_iter().collect();
    let chapter = Chapter { windows, series, runs, ..Chapter::default() };
    let (begin_s, end_s) = chapter.ends();
    Chapter { cpu: stage.probe.points(begin_s, end_s), ..chapter }
}
