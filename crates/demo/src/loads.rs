//! Loads of the demo of service levels: tables, rows and rates, and the capacity that rates follow
//! from. The interactive load runs in this process. Batch loads run in processes of their own.

use load::{Keys, Pacing, Report, RowLayout, Spec, Workload};

use crate::error::DemoError;
use crate::names::BATCH;
use crate::options::Shape;
use crate::results::{Capacity, LoadRun, Paced};
use crate::server::{ADMIN, Sender};
use crate::stage::{KEYSPACE, Stage};

/// Rows of a partition, all of which a slice reads.
const SLICE_ROWS: u64 = 100;
/// Fraction of the server's CPU for the interactive load.
pub(crate) const HALF: f64 = 0.5;
/// Tolerance of a fraction of the server's CPU.
const PART_OFF_MAX: f64 = 0.03;
/// First rate of the search for it, as a part of this fraction of a closed loop's rate, and the
/// number of tries.
const FIRST_PART: f64 = 0.5;
const PART_TRIES_MAX: usize = 2;
/// Rate of the interactive load with [`Shape::Published`], as a fraction of the faster closed loop.
const PUBLISHED_PART: f64 = 0.2;
/// Requests in flight of a load that always has more to do: far more than a core serves at once.
const BACKLOG: usize = 128;

/// Returns the limit of the interactive load's requests in flight.
fn in_flight_max(shape: Shape) -> usize {
    match shape {
        Shape::Slices => 10_000,
        Shape::Published => 200,
    }
}

/// Returns the batch load's workload and requests in flight.
fn batch(shape: Shape) -> (Workload, usize) {
    match shape {
        Shape::Slices => (Workload::Slice, 256),
        Shape::Published => (Workload::Read, 1800),
    }
}

impl Stage {
    fn rows(&self, workload: Workload) -> (Keys, RowLayout) {
        let clustered = workload == Workload::Slice;
        let plain = Spec::default();
        let population = if clustered { self.times.partitions } else { self.times.rows };
        let rows = RowLayout {
            keyspace: KEYSPACE.to_string(),
            per_partition: if clustered { SLICE_ROWS } else { 0 },
            columns: if clustered { 1 } else { 5 },
            slice_rows: SLICE_ROWS,
            ..plain.rows
        };
        (Keys { population, ..plain.keys }, rows)
    }

    pub(crate) fn spec(&self, user: &str, workload: Workload, pacing: Pacing) -> Spec {
        let (keys, rows) = self.rows(workload);
        Spec {
            workload,
            hosts: vec![self.target.clone()],
            user: Some(user.to_string()),
            password: Some(self.password.clone()),
            pacing,
            keys,
            rows,
            create: false,
            drain_s: 3.0,
            ..Spec::default()
        }
    }

    /// Returns the interactive load with a step for each of `seconds`.
    pub(crate) fn interactive(&self, user: &str, seconds: &[f64]) -> Spec {
        let (rate_per_s, max_in_flight) = (self.measured.interactive_per_s, in_flight_max(self.shape));
        let steps = seconds.iter().map(|seconds| load::RateStep { rate_per_s, seconds: *seconds }).collect();
        Spec { max_in_flight, seed: 7, ..self.spec(user, Workload::Read, Pacing::Open(steps)) }
    }

    /// Fills both tables.
    pub(crate) fn prefill(&mut self) -> Result<(), DemoError> {
        for workload in [Workload::Read, Workload::Slice] {
            let pacing = Pacing::Closed { in_flight: 512, seconds: 0.0 };
            let (keys, rows) = self.rows(workload);
            let count = keys.population * rows.per_partition.max(1);
            self.print(&format!("writing {count} rows"));
            let base = self.spec(ADMIN, Workload::Prefill, pacing);
            self.fill(&Spec { keys, rows, create: true, ..base })?;
        }
        Ok(())
    }

    /// Writes all rows of a prefill.
    pub(crate) fn fill(&mut self, spec: &Spec) -> Result<(), DemoError> {
        let report = self.run("prefill", spec)?;
        match report.warnings.iter().find(|warning| warning.contains("not written")) {
            Some(missing) => Err(DemoError::Failed(format!("The prefill failed: {missing}"))),
            None => Ok(()),
        }
    }

    /// Measures the capacity with closed loops that run alone, and chooses the rate of the
    /// interactive load: with slices one that takes `part` of the server's CPU.
    pub(crate) fn capacity(&mut self, part: f64) -> Result<Capacity, DemoError> {
        let reads = self.closed_loop("single-row reads", Workload::Read, 64)?;
        let slices = self.closed_loop("slices of 100 rows", Workload::Slice, 256)?;
        let batch = match batch(self.shape) {
            (Workload::Slice, _) => slices.clone(),
            (workload, in_flight) => self.closed_loop("single-row reads, deep queue", workload, in_flight)?,
        };
        let rate = |run: &Option<LoadRun>| run.as_ref().map_or(0.0, |run| run.throughput_per_s);
        (self.measured.reads_per_s, self.measured.slices_per_s) = (rate(&reads), rate(&slices));
        if self.measured.reads_per_s < 1.0 || self.measured.slices_per_s < 1.0 {
            return Err(DemoError::Failed("The server answered no reads.".into()));
        }
        self.print(&format!(
            "capacity: {:.0} reads/s, {:.0} slices/s",
            self.measured.reads_per_s, self.measured.slices_per_s
        ));
        let interactive = match self.shape {
            Shape::Published => {
                Paced { per_s: self.measured.reads_per_s.max(rate(&batch)) * PUBLISHED_PART, cpu: None }
            }
            Shape::Slices => self.rate_at(part)?,
        };
        self.measured.interactive_per_s = interactive.per_s;
        Ok(Capacity { reads, batch, interactive, writes: None })
    }

    /// Returns the rate of single-row reads that takes `part` of the server's CPU. That part of a
    /// closed loop's rate is too much: the server reads its deep queues in large batches, so that a
    /// request costs about half of the CPU of a request in an open loop.
    ///
    /// 1. Send at a low rate and measure the CPU.
    /// 2. Send at the proportional rate, and measure again, since a request costs less at higher
    ///    rates.
    fn rate_at(&mut self, part: f64) -> Result<Paced, DemoError> {
        let mut paced = Paced { per_s: self.measured.reads_per_s * part * FIRST_PART, cpu: None };
        for _ in 0..PART_TRIES_MAX {
            let seconds = (self.times.capacity + self.times.settle) / 2.0;
            let steps = vec![load::RateStep { rate_per_s: paced.per_s, seconds }];
            let spec = self.spec(ADMIN, Workload::Read, Pacing::Open(steps));
            let report = self.run("single-row reads, open loop", &spec)?;
            let end = report.steps.first().map_or(0.0, |step| step.begin_unix_ms as f64 / 1e3 + step.seconds);
            let used = self.probe.between(end - self.times.capacity / 2.0, end);
            let cpu = used.server_part();
            let answered = report.steps.first().map_or(0.0, |step| step.throughput_per_s);
            self.print(&format!("{:.0} reads/s take {:.0} % of the server's CPU", paced.per_s, cpu * 100.0));
            paced.cpu = Some(cpu);
            if cpu <= 0.0 || (cpu - part).abs() <= PART_OFF_MAX {
                break;
            }
            // If other programs use the cores, the CPU is too low. Limit the rate to `part` of a
            // closed loop's.
            paced = Paced { per_s: (answered * part / cpu).min(self.measured.reads_per_s * part), cpu: None };
        }
        Ok(paced)
    }

    fn closed_loop(
        &mut self,
        what: &str,
        workload: Workload,
        in_flight: usize,
    ) -> Result<Option<LoadRun>, DemoError> {
        self.print(&format!("capacity for {what}: closed loop, {in_flight} in flight"));
        let pacing = Pacing::Closed { in_flight, seconds: self.times.capacity };
        let spec = Spec { warmup_s: self.times.settle, ..self.spec(ADMIN, workload, pacing) };
        let report = self.run(what, &spec)?;
        Ok(LoadRun::of(what, &report, 0))
    }

    /// Runs a load in this process to its end.
    pub(crate) fn run(&mut self, name: &str, spec: &Spec) -> Result<Report, DemoError> {
        let report = load::run(spec, &self.stop, |second| self.progress(name, second))?;
        self.interrupted()?;
        self.server_check()?;
        self.note_failures(name, &report);
        Ok(report)
    }

    /// Starts the batch load of this shape, for at most `seconds`.
    pub(crate) fn start_batch(&self, user: &str, seconds: f64) -> Result<Sender, DemoError> {
        let (workload, in_flight) = batch(self.shape);
        self.start_sender(user, workload, &["--in-flight".into(), in_flight.to_string()], seconds)
    }

    /// Starts a closed loop of slices that always has requests waiting.
    pub(crate) fn start_backlogged(&self, user: &str, seconds: f64) -> Result<Sender, DemoError> {
        self.start_sender(user, Workload::Slice, &["--in-flight".into(), BACKLOG.to_string()], seconds)
    }

    /// Starts an open loop of slices. Requests above the limit in flight wait in the sender.
    pub(crate) fn start_throttled(&self, user: &str, rate: f64, seconds: f64) -> Result<Sender, DemoError> {
        let limit = ["--max-in-flight".to_string(), BACKLOG.to_string()];
        let pace = ["--rate".to_string(), format!("{rate:.0}")];
        self.start_sender(user, Workload::Slice, &[pace, limit].concat(), seconds)
    }

    fn start_sender(
        &self,
        user: &str,
        workload: Workload,
        pace: &[String],
        seconds: f64,
    ) -> Result<Sender, DemoError> {
        let (keys, rows) = self.rows(workload);
        let word = if workload == Workload::Slice { "slice" } else { "read" };
        let mut arguments: Vec<String> = vec![word.into(), "--no-create".into()];
        let mut flag = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
        flag("hosts", self.target.clone());
        flag("user", user.to_string());
        flag("keyspace", rows.keyspace);
        flag("keys", keys.population.to_string());
        flag("duration", format!("{seconds:.0}s"));
        flag("drain", "3s".to_string());
        if workload == Workload::Slice {
            flag("rows-per-partition", rows.per_partition.to_string());
            flag("slice-rows", rows.slice_rows.to_string());
        }
        arguments.extend_from_slice(pace);
        // Only the batch load shares cores with the interactive load.
        let nice = user == BATCH;
        Sender::start(&self.folder, &self.machine.load_cores, user, &self.password, nice, &arguments)
    }

    /// Adds notes about failed and unanswered requests of a report.
    pub(crate) fn note_failures(&mut self, name: &str, report: &Report) {
        self.note_steps(name, report.steps.iter(), report.stopped);
    }

    /// Adds notes about failed and unanswered requests of steps.
    pub(crate) fn note_steps<'s>(
        &mut self,
        name: &str,
        steps: impl Iterator<Item = &'s load::StepReport> + Clone,
        stopped: bool,
    ) {
        let errors: u64 = steps.clone().map(|step| step.errors).sum();
        if let Some(first) = steps.clone().flat_map(|step| &step.error_codes).next() {
            self.notes.push(format!("{name}: {errors} requests failed, for example: {}", first.example));
        }
        let sum = |field: fn(&load::StepReport) -> u64| steps.clone().map(field).sum::<u64>();
        let (lost, due) = (sum(|step| step.lost + step.unsent), sum(|step| step.due));
        // Some requests of the last moments of a run are always unanswered.
        if lost > due / 100 && !stopped {
            self.notes.push(format!("{name}: {lost} of {due} requests were never answered."));
        }
    }
}
