//! The stages of the experiment. In each of them loads run side by side.
//!
//! 1. A background load starts first and is stopped last, so that it runs during all of the load
//!    that is measured beside it.
//! 2. Measured loads start together and end by themselves, after the same time.
//! 3. Rates and CPU times are of the time that all loads have in common: from the first row of the
//!    last one to the end of the first one. A JVM takes seconds to start, one more than another.

use std::time::Duration;

use super::output::{LoadProgress, Results};
use super::process::{Process, until};
use super::server::{Cpu, StressedServer};
use super::tool::{Load, Stress};

/// Timeout of the start of a load, which warms up first, beside other loads on the same CPUs.
const START_TIMEOUT_S: u64 = 180;

const BACKGROUND_ENDED: &str = "expected a background load that runs, got its end.";

/// Loads that run side by side.
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) background: Option<Load>,
    pub(super) measured: Vec<Load>,
}

/// Results of a stage.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) stage: &'static str,
    /// Fraction of the server's CPUs that the server used.
    pub(super) busy: f64,
    /// In the order of the stage, the background last.
    pub(super) loads: Vec<MeasuredLoad>,
}

/// Results of a load.
#[derive(Debug, Default)]
pub(super) struct MeasuredLoad {
    pub(super) role: &'static str,
    /// Operations a second while all loads of the stage run. `None`: they have no time in common.
    pub(super) rate_per_s: Option<f64>,
    /// CPU time of the level of its role in that time, seconds. 0 without such a level.
    pub(super) cpu_s: f64,
    /// `None` for the background, which is stopped.
    pub(super) results: Option<Results>,
}

impl Measured {
    /// Returns the results of a role.
    pub(super) fn load(&self, role: &str) -> Option<&MeasuredLoad> {
        self.loads.iter().find(|load| load.role == role)
    }
}

/// CPU times, and the progress of each load that has any.
type Moment = (Cpu, Vec<Option<LoadProgress>>);

/// Runs a stage of `seconds`. The files with the output of its loads are named after both.
pub(super) fn run(
    stage: &Stage,
    (tool, server, cores): (&Stress, &StressedServer, usize),
    seconds: u64,
) -> Result<Measured, String> {
    println!("      {}", stage.name);
    let start = |load: &Load, seconds| {
        let log = format!("{}-{}", stage.name.replace([':', ',', ' '], "-"), load.role);
        tool.start(server, &tool.read(load, seconds), load.role, &log)
    };
    let longest = seconds + START_TIMEOUT_S;
    let started = |mut process: Process| {
        let first_row = || match process.has_ended()? {
            true => Err(BACKGROUND_ENDED.to_owned()),
            false => Ok(LoadProgress::last(&process.text()?).is_some()),
        };
        until(Duration::from_secs(START_TIMEOUT_S), "the first row of the background load", first_row)?;
        Ok(process)
    };
    let in_background = stage.background.iter().map(|load| start(load, longest + START_TIMEOUT_S));
    let background = in_background.map(|process| started(process?)).collect::<Result<Vec<_>, String>>()?;
    let mut all: Vec<Process> =
        stage.measured.iter().map(|load| start(load, seconds)).collect::<Result<_, _>>()?;
    let count = all.len();
    all.extend(background);
    let (began, ended) = watch(server, &mut all, count, Duration::from_secs(longest))?;
    let mut loads = Vec::new();
    for (index, load) in stage.measured.iter().chain(&stage.background).enumerate() {
        let results = (index < count).then(|| Results::parse(&all[index].text()?)).transpose()?;
        let errors = results.as_ref().map_or(0.0, |results| results.errors);
        if errors > 0.0 {
            return Err(format!("expected no errors of {} in `{}`, got {errors}.", load.role, stage.name));
        }
        let rows = began.1[index].zip(ended.1[index]);
        let rate_per_s = rows.and_then(|(first, last)| last.rate_since(first));
        let cpu_s = ended.0.of_level_since(load.role, &began.0);
        loads.push(MeasuredLoad { role: load.role, rate_per_s, cpu_s, results });
    }
    // Dropping kills the background: the tool has no other way to end before its time.
    Ok(Measured { stage: stage.name, busy: ended.0.busy_since(&began.0, cores), loads })
}

/// Waits for the end of the first `count` processes. Returns the beginning and the end of the time
/// that all of them have in common.
fn watch(
    server: &StressedServer,
    processes: &mut [Process],
    count: usize,
    limit: Duration,
) -> Result<(Moment, Moment), String> {
    let (mut began, mut ended) = (None, None);
    until(limit, "the end of the loads", || {
        let has_ended = processes.iter_mut().map(Process::has_ended).collect::<Result<Vec<bool>, _>>()?;
        if has_ended[count..].contains(&true) {
            return Err(BACKGROUND_ENDED.to_owned());
        }
        let ends = has_ended[..count].iter().filter(|ended| **ended).count();
        if began.is_none() || (ends > 0 && ended.is_none()) {
            let texts = processes.iter().map(Process::text).collect::<Result<Vec<_>, _>>()?;
            let rows: Vec<Option<LoadProgress>> = texts.iter().map(|text| LoadProgress::last(text)).collect();
            if began.is_none() && (rows.iter().all(Option::is_some) || ends > 0) {
                began = Some((server.cpu()?, rows.clone()));
            }
            if ends > 0 {
                ended = Some((server.cpu()?, rows));
            }
        }
        Ok(ends == count)
    })?;
    began.zip(ended).ok_or_else(|| "expected rows of the loads, got none.".to_owned())
}
