//! SQL clients that run queries without pause, and the phases in which they are measured.
//!
//! ```text
//!   along    dashboard  ▒████████        start together, and are measured over the same time
//!            reports    ▒████████
//!   around   dashboard      ▒████████    reports start earlier and end later
//!            reports    ▒████████████▒
//! ```

use std::sync::mpsc::channel;
use std::thread::ScopedJoinHandle;

use load::sql::{Query, SqlReport, SqlSpec, SqlStep, bundled_queries};
use load::{LoadError, Pacing, StopFlag};

use crate::error::DemoError;
use crate::phases::follow;
use crate::results::{Chapter, OfQuery, Series, Window, WindowLoad};
use crate::stage::Stage;
use charts::numbers::percent;

/// Time to wait for answers at the end of a phase, seconds.
const DRAIN_S: f64 = 5.0;
/// The same for clients that are not measured. Then their queries are cancelled.
const DRAIN_AROUND_S: f64 = 0.2;
/// Extra time after which a client ends by itself, as a safeguard. Seconds.
const SPARE_S: f64 = 60.0;

/// Queries that run in turn, and the keyspace of their tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queries {
    pub(super) keyspace: &'static str,
    pub(super) names: &'static [&'static str],
}

impl Queries {
    pub(super) fn texts(&self) -> Vec<Query> {
        // The folder with their texts has the name of the keyspace.
        bundled_queries(self.keyspace, self.names)
    }
}

/// Connections of one user. Each runs one query at a time, in turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clients {
    pub(super) user: &'static str,
    pub(super) queries: Queries,
    pub(super) connections: usize,
    /// Scans neither read nor fill the cache of column chunks.
    pub(super) bypass_cache: bool,
}

/// Other clients in a phase.
#[derive(Clone, Copy, Debug)]
pub(super) enum Beside {
    Nothing,
    /// Clients that run over the same time and are measured too.
    Along(Clients),
    /// Clients that run from before the phase until after it.
    Around(Clients),
}

impl Clients {
    fn spec(&self, stage: &Stage, seconds: f64, drain_s: f64) -> SqlSpec {
        let bypass_cache = if self.bypass_cache { "on" } else { "off" };
        SqlSpec {
            hosts: vec![stage.server.sql.clone()],
            user: self.user.to_string(),
            password: Some(stage.password.clone()),
            database: "fairlane".to_string(),
            queries: self.queries.texts(),
            setup: vec![
                format!("SET search_path TO {}", self.queries.keyspace),
                format!("SET bypass_cache = {bypass_cache}"),
            ],
            pacing: Pacing::Closed { in_flight: self.connections, seconds },
            rounds: 0,
            concurrency: self.connections,
            pipeline: 1,
            warmup_s: stage.olap.warmup_s,
            drain_s,
            seed: 1,
        }
    }
}

/// Chapter with the phases measured so far.
pub(super) struct Phases<'a> {
    pub(super) stage: &'a mut Stage,
    chapter: Chapter,
}

impl<'a> Phases<'a> {
    pub(super) fn new(stage: &'a mut Stage) -> Phases<'a> {
        Phases { stage, chapter: Chapter::default() }
    }

    /// Measures a phase of clients beside others.
    pub(super) fn measure(
        &mut self,
        id: &str,
        label: &str,
        first: Clients,
        beside: Beside,
        seconds: f64,
    ) -> Result<(), DemoError> {
        let lead_s = if matches!(beside, Beside::Around(_)) { self.stage.olap.warmup_s } else { 0.0 };
        let mut specs = vec![first.spec(self.stage, seconds, DRAIN_S)];
        specs.extend(match beside {
            Beside::Nothing => None,
            Beside::Along(other) => Some(other.spec(self.stage, seconds, DRAIN_S)),
            Beside::Around(other) => Some(other.spec(self.stage, seconds + SPARE_S, DRAIN_AROUND_S)),
        });
        let reports = together(self.stage, &specs, lead_s)?;
        let mut steps = Vec::new();
        for report in &reports {
            steps.push(self.add(report)?);
        }
        let begin_s = steps[0].all.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + steps[0].all.seconds;
        let mut loads: Vec<WindowLoad> =
            reports.iter().zip(steps).map(|(report, step)| load_of(report, step)).collect();
        if let (Beside::Around(_), [_, other]) = (beside, loads.as_mut_slice()) {
            // Its own step is longer than the phase.
            other.throughput_per_s =
                Series::of(&other.load, &reports[1].seconds).rate_between(begin_s, end_s);
        }
        self.stage.probe.mark();
        let cpu = self.stage.probe.between(begin_s, end_s);
        let done = |load: &WindowLoad| format!("{} {:.2}/s", load.load, load.throughput_per_s);
        let done: Vec<String> = loads.iter().map(done).collect();
        let used = percent(cpu.server_part());
        self.stage.print(&format!("{label}: {}; the server used {used} of its CPU", done.join(", ")));
        let (id, label) = (id.to_string(), label.to_string());
        self.chapter.windows.push(Window { id, label, begin_s, end_s, loads, cpu });
        Ok(())
    }

    /// Adds the seconds of a run to the chapter. Returns its only step.
    fn add<'r>(&mut self, report: &'r SqlReport) -> Result<&'r SqlStep, DemoError> {
        let name = &report.spec.user;
        self.stage.note_steps(name, report.steps.iter().map(|step| &step.all), report.stopped);
        let step = report.steps.first().filter(|step| step.all.answered > 0).ok_or_else(|| {
            DemoError::Failed(format!("No query of `{name}` was answered. {}", report.warnings.join(" ")))
        })?;
        let more = Series::of(name, &report.seconds);
        match self.chapter.series.iter_mut().find(|series| series.load == *name) {
            Some(series) => series.points.extend(more.points),
            None => self.chapter.series.push(more),
        }
        Ok(step)
    }

    pub(super) fn finish(mut self) -> Chapter {
        let (begin_s, end_s) = self.chapter.ends();
        self.chapter.cpu = self.stage.probe.points(begin_s, end_s);
        self.chapter
    }
}

fn load_of(report: &SqlReport, step: &SqlStep) -> WindowLoad {
    let of_query = |query: &load::sql::QueryResults| OfQuery {
        name: query.name.clone(),
        count: query.count,
        latency: query.latency,
    };
    WindowLoad {
        load: report.spec.user.clone(),
        throughput_per_s: step.all.throughput_per_s,
        latency: step.all.reads.as_ref().map(|reads| reads.latency),
        errors: step.all.errors,
        generator_cpu: step.all.generator_cpu,
        queries: step.queries.iter().map(of_query).collect(),
        ..WindowLoad::default()
    }
}

/// Runs loads beside each other. With a lead, the first load starts that much later than the others
/// and ends them. Without one, all start together and run to their own ends. An error of the first
/// ends all.
fn together(stage: &mut Stage, specs: &[SqlSpec], lead_s: f64) -> Result<Vec<SqlReport>, DemoError> {
    let stop = StopFlag::new();
    let (sender, seconds) = channel();
    let own = &stop;
    std::thread::scope(|scope| {
        let others: Vec<_> =
            specs[1..].iter().map(|spec| scope.spawn(move || load::sql::run(spec, own, |_| ()))).collect();
        let first = stage.wait(lead_s, &mut []).and_then(|()| {
            let running = scope.spawn(move || {
                load::sql::run(&specs[0], own, |second| {
                    // After an error, the demo has dropped the receiver and stops the load.
                    let _not_received = sender.send(second.clone());
                })
            });
            let followed = follow(stage, &specs[0].user, &seconds, f64::INFINITY);
            if followed.is_err() {
                own.set();
            }
            let report = ended(running);
            followed.and(report)
        });
        if first.is_err() || lead_s > 0.0 {
            own.set();
        }
        let mut reports = vec![first?];
        for other in others {
            reports.push(ended(other)?);
        }
        stage.interrupted()?;
        Ok(reports)
    })
}

fn ended(load: ScopedJoinHandle<'_, Result<SqlReport, LoadError>>) -> Result<SqlReport, DemoError> {
    Ok(load.join().map_err(|_| DemoError::Failed("a load failed".to_string()))??)
}
