//! Phases of users and the application: their rates, the loads, and the results.

use load::{Keys, Latency, OpKind, Pacing, RateStep, Report, Spec, Workload};

use super::data;
use crate::compare::expected;
use crate::error::DemoError;
use crate::names::{APPLICATION, APPLICATION_WRITES, USER_WRITES, USERS};
use crate::open_loop::together;
use crate::results::{Chapter, LoadRun, Series, Window, WindowLoad};
use crate::stage::Stage;

/// The application's part of the requests.
const APPLICATION_PART: f64 = 0.04;
/// Generators of user reads.
const GENERATORS: u64 = 2;
/// Pause before each phase, at its rates: changes take effect, and queues of the phase before end.
const PAUSE_S: f64 = 2.0;

/// Rates of a phase, and the statements before it.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) id: String,
    /// Rates as parts of capacity: user reads, user writes, application.
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) application: f64,
    /// True if users read with BYPASS CACHE.
    pub(super) bypasses: bool,
    pub(super) statements: Vec<String>,
}

impl Setting {
    pub(super) fn new(id: impl Into<String>, reads: f64, writes: f64) -> Setting {
        let application = (reads + writes) * APPLICATION_PART / (1.0 - APPLICATION_PART);
        Setting { id: id.into(), reads, writes, application, bypasses: false, statements: Vec::new() }
    }

    pub(super) fn after(mut self, statement: String) -> Setting {
        self.statements.push(statement);
        self
    }

    /// Returns the rate of user reads with or without BYPASS CACHE.
    fn reads_that(&self, bypass: bool) -> f64 {
        if self.bypasses == bypass { self.reads } else { 0.0 }
    }
}

/// Returns a pause and a phase for each setting.
fn steps(settings: &[Setting], seconds: f64, rate_per_s: impl Fn(&Setting) -> f64) -> Vec<RateStep> {
    let steps = settings.iter().flat_map(|setting| {
        let rate_per_s = rate_per_s(setting);
        [PAUSE_S, seconds].map(|seconds| RateStep { rate_per_s, seconds })
    });
    steps.collect()
}

/// Returns the setting whose pause has this step.
fn setting_of(step: usize) -> Option<usize> {
    step.is_multiple_of(2).then_some(step / 2)
}

/// Returns the loads of the settings: the application first. A load that never sends is left out.
fn loads(stage: &Stage, settings: &[Setting]) -> Vec<(&'static str, Spec)> {
    let (capacity, seconds) = (stage.measured.reads_per_s, stage.times.petabyte.phase);
    let open = |user: &str, workload, rate: &dyn Fn(&Setting) -> f64| {
        let pacing = Pacing::Open(steps(settings, seconds, |setting| rate(setting) * capacity));
        Spec { drain_s: 2.0, ..data(stage, user, pacing, workload) }
    };
    let mut loads = vec![(
        APPLICATION,
        Spec {
            seed: 37,
            write_ratio: 0.5,
            ..open(APPLICATION, Workload::Mixed, &|setting| setting.application)
        },
    )];
    for bypass_cache in [false, true] {
        if settings.iter().all(|setting| setting.reads_that(bypass_cache) <= 0.0) {
            continue;
        }
        let reads =
            open(USERS, Workload::Read, &|setting| setting.reads_that(bypass_cache) / GENERATORS as f64);
        loads.extend((1..=GENERATORS).map(|part| {
            let keys = Keys { slice: (part, GENERATORS), ..reads.keys.clone() };
            (USERS, Spec { keys, seed: 20 + part, bypass_cache, ..reads.clone() })
        }));
    }
    if settings.iter().any(|setting| setting.writes > 0.0) {
        loads.push((
            USER_WRITES,
            Spec { seed: 31, ..open(USERS, Workload::Write, &|setting| setting.writes) },
        ));
    }
    loads
}

/// Writes what is expected of the chapter, and runs all loads through its settings.
pub(super) fn run(stage: &mut Stage, id: &str, settings: &[Setting]) -> Result<Chapter, DemoError> {
    stage.expect(id, &expected(id))?;
    let loads = loads(stage, settings);
    let statements =
        |step| setting_of(step).map(|next| settings[next].statements.clone()).unwrap_or_default();
    let reports = together(stage, &loads, statements)?;
    let named: Vec<(&str, &Report)> = loads.iter().map(|(name, _)| *name).zip(&reports).collect();
    for (name, report) in &named {
        stage.note_failures(name, report);
    }
    stage.probe.mark();
    Ok(Chapter { id: id.into(), ..chapter(stage, settings, &named) })
}

/// Returns the phases of the reports.
fn chapter(stage: &Stage, settings: &[Setting], reports: &[(&str, &Report)]) -> Chapter {
    let named = |name: &str| -> Vec<&Report> {
        reports.iter().filter(|(found, _)| *found == name).map(|(_, report)| *report).collect()
    };
    let series = [APPLICATION, USERS].map(|name| {
        let all = named(name).into_iter().map(|report| Series::of(name, &report.seconds));
        all.reduce(|sum, one| sum.plus(&one)).unwrap_or_default()
    });
    let mut chapter = Chapter { series: series.to_vec(), ..Chapter::default() };
    for (number, setting) in settings.iter().enumerate() {
        let index = 2 * number + 1;
        let steps = [
            (APPLICATION, APPLICATION, OpKind::Read),
            (APPLICATION, APPLICATION_WRITES, OpKind::Write),
            (USERS, USERS, OpKind::Read),
            (USER_WRITES, USER_WRITES, OpKind::Write),
        ];
        let loads =
            steps.into_iter().filter_map(|(load, name, kind)| window_load(name, &named(load), index, kind));
        let Some(measured) = reports.first().and_then(|(_, report)| report.steps.get(index)) else { break };
        let begin_s = measured.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + measured.seconds;
        let cpu = stage.probe.between(begin_s, end_s);
        let id = format!("{}-{number}", setting.id);
        chapter.windows.push(Window {
            id,
            label: setting.id.clone(),
            begin_s,
            end_s,
            loads: loads.collect(),
            cpu,
        });
    }
    let (begin_s, end_s) = chapter.ends();
    chapter.disk = stage.probe.disk(begin_s, end_s);
    sampled(stage, chapter)
}

/// Adds what the server reported during the phases.
pub(super) fn sampled(stage: &Stage, mut chapter: Chapter) -> Chapter {
    chapter.windows.iter_mut().for_each(|window| window.cpu.served.clear());
    let (begin_s, end_s) = chapter.ends();
    chapter.cpu = stage.probe.points(begin_s, end_s);
    chapter.storage = stage.probe.storage(begin_s, end_s);
    chapter
}

/// Returns the throughput of all generators of a load in a step, and the latency of its reads or
/// writes. `None` if there were none.
fn window_load(name: &str, reports: &[&Report], index: usize, kind: OpKind) -> Option<WindowLoad> {
    let steps = reports.iter().filter_map(|report| Some((*report, report.steps.get(index)?)));
    let sending: Vec<_> = steps.filter(|(_, step)| step.throughput_per_s > 0.0).collect();
    let (first, step) = *sending.first()?;
    let mut all = step.latencies.clone();
    sending[1..].iter().for_each(|(_, step)| all.add(&step.latencies));
    let latencies = all.of(kind);
    let load = WindowLoad::of(LoadRun::of(name, first, index)?, step);
    let sum = |of: &dyn Fn(&load::StepReport) -> f64| sending.iter().map(|(_, step)| of(step)).sum();
    (!latencies.is_empty()).then(|| WindowLoad {
        latency: Some(Latency::of(latencies)),
        throughput_per_s: sum(&|step| step.throughput_per_s),
        asked_per_s: Some(sum(&|step| step.rate_per_s.unwrap_or_default())),
        generator_lag_p99_us: sending.iter().map(|(_, step)| step.generator_lag_p99_us).fold(0.0, f64::max),
        ..load
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_has_four_percent_of_all_requests() {
        let setting = Setting::new("80/20", 0.4, 0.1);
        let all = setting.reads + setting.writes + setting.application;
        assert!((setting.application / all - 0.04).abs() < 1e-9, "{setting:?}");
    }

    #[test]
    fn each_setting_has_a_pause_in_which_it_is_set() {
        let settings = [Setting::new("a", 0.5, 0.0), Setting::new("b", 0.8, 0.1)];
        let all = steps(&settings, 10.0, |setting| setting.reads * 100.0);
        let expected = [(50.0, PAUSE_S), (50.0, 10.0), (80.0, PAUSE_S), (80.0, 10.0)];
        let found: Vec<(f64, f64)> = all.iter().map(|step| (step.rate_per_s, step.seconds)).collect();
        assert_eq!(found, expected);
        assert_eq!([0, 1, 2, 3].map(setting_of), [Some(0), None, Some(1), None]);
    }

    #[test]
    fn reads_either_bypass_the_cache_or_not() {
        let cached = Setting::new("a", 0.5, 0.0);
        let bypassing = Setting { bypasses: true, ..cached.clone() };
        assert_eq!([false, true].map(|bypass| cached.reads_that(bypass)), [0.5, 0.0]);
        assert_eq!([false, true].map(|bypass| bypassing.reads_that(bypass)), [0.0, 0.5]);
    }
}
