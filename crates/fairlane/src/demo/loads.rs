//! The loads of the demo: their tables and rows, what each sends and how fast, and which run in this process
//! and which in one of their own.

use load::{Keys, Pacing, Report, Rows, Spec, Workload};

use super::DemoError;
use super::figures::{Capacity, Paced, Run};
use super::phases::BATCH;
use super::server::{ADMIN, Sender};
use super::stage::Stage;

/// Keyspace of the demo's tables.
pub(super) const KEYSPACE: &str = "demo";
/// Rows a slice reads; one partition has as many.
const SLICE_ROWS: u64 = 100;
/// The interactive load's part of the server's CPU, and how near is near enough.
const HALF: f64 = 0.5;
const HALF_OFF_MAX: f64 = 0.03;
/// Where the search for it begins, as a part of a closed loop's rate, and how often it looks.
const FIRST_PART: f64 = 0.25;
const HALF_TRIES_MAX: usize = 2;
/// The published shape's part of the rate of the faster closed loop.
const PUBLISHED_PART: f64 = 0.2;
/// Requests in flight of a load that is to be backlogged: far more than a core serves at once.
const BACKLOG: usize = 128;

/// What the two loads of the first chapters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Single rows at half of the server's CPU beside slices of 100 rows.
    Slices,
    /// Single rows both: 200 in flight at 20 % of capacity beside 1800.
    Published,
}

impl Shape {
    /// By its name.
    pub(super) fn parse(name: &str) -> Result<Shape, DemoError> {
        match name {
            "slices" => Ok(Shape::Slices),
            "published" => Ok(Shape::Published),
            _ => Err(DemoError::Usage(format!("There is no shape `{name}`: give slices or published."))),
        }
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Shape::Slices => "slices",
            Shape::Published => "published",
        }
    }

    /// The interactive load's requests in flight at most.
    fn in_flight_max(self) -> usize {
        match self {
            Shape::Slices => 10_000,
            Shape::Published => 200,
        }
    }

    /// The batch load's workload and requests in flight.
    fn batch(self) -> (Workload, usize) {
        match self {
            Shape::Slices => (Workload::Slice, 256),
            Shape::Published => (Workload::Read, 1800),
        }
    }
}

impl Stage {
    fn rows(&self, workload: Workload) -> (Keys, Rows) {
        let clustered = workload == Workload::Slice;
        let plain = Spec::default();
        let population = if clustered { self.times.partitions } else { self.times.rows };
        let rows = Rows {
            keyspace: KEYSPACE.to_string(),
            per_partition: if clustered { SLICE_ROWS } else { 0 },
            columns: if clustered { 1 } else { 5 },
            slice_rows: SLICE_ROWS,
            ..plain.rows
        };
        (Keys { population, ..plain.keys }, rows)
    }

    pub(super) fn spec(&self, user: &str, workload: Workload, pacing: Pacing) -> Spec {
        let (keys, rows) = self.rows(workload);
        Spec {
            workload,
            hosts: vec![self.server.cql.clone()],
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

    /// The interactive load at its part of capacity, a step for each time.
    pub(super) fn interactive(&self, user: &str, seconds: &[f64]) -> Spec {
        let (rate_per_s, max_in_flight) = (self.interactive_per_s, self.shape.in_flight_max());
        let steps = seconds.iter().map(|seconds| load::Step { rate_per_s, seconds: *seconds }).collect();
        Spec { max_in_flight, seed: 7, ..self.spec(user, Workload::Read, Pacing::Open(steps)) }
    }

    /// Fills both tables.
    pub(super) fn prefill(&mut self) -> Result<(), DemoError> {
        for workload in [Workload::Read, Workload::Slice] {
            let pacing = Pacing::Closed { in_flight: 512, seconds: 0.0 };
            let (keys, rows) = self.rows(workload);
            let count = keys.population * rows.per_partition.max(1);
            self.say(&format!("writing {count} rows"));
            let base = self.spec(ADMIN, Workload::Prefill, pacing);
            let report = self.run("prefill", &Spec { keys, rows, create: true, ..base })?;
            if let Some(missing) = report.warnings.iter().find(|warning| warning.contains("not written")) {
                return Err(DemoError::Failed(format!("The prefill failed: {missing}")));
            }
        }
        Ok(())
    }

    /// Closed loops alone, to know what there is and what a batch load alone would get; and the rate of the
    /// interactive load.
    pub(super) fn capacity(&mut self) -> Result<Capacity, DemoError> {
        let reads = self.closed_loop("single-row reads", Workload::Read, 64)?;
        let slices = self.closed_loop("slices of 100 rows", Workload::Slice, 256)?;
        let batch = match self.shape.batch() {
            (Workload::Slice, _) => slices.clone(),
            (workload, in_flight) => self.closed_loop("single-row reads, deep queue", workload, in_flight)?,
        };
        let rate = |run: &Option<Run>| run.as_ref().map_or(0.0, |run| run.throughput_per_s);
        (self.reads_per_s, self.slices_per_s) = (rate(&reads), rate(&slices));
        if self.reads_per_s < 1.0 || self.slices_per_s < 1.0 {
            return Err(DemoError::Failed("The server answered no reads; there is nothing to show.".into()));
        }
        self.say(&format!("capacity: {:.0} reads/s, {:.0} slices/s", self.reads_per_s, self.slices_per_s));
        let interactive = match self.shape {
            Shape::Published => {
                Paced { per_s: self.reads_per_s.max(rate(&batch)) * PUBLISHED_PART, cpu: None }
            }
            Shape::Slices => self.half()?,
        };
        self.interactive_per_s = interactive.per_s;
        Ok(Capacity { reads, batch, interactive, writes: None })
    }

    /// The rate of single-row reads that takes half of the server's CPU. A closed loop does not tell: its deep
    /// queues are served in large batches, so that a request costs about half of what it does in an open loop,
    /// and half of its rate would leave the server nearly full.
    ///
    /// 1. Send at a part of the closed loop's rate that is surely below, and see what CPU it takes.
    /// 2. Send in proportion, and again, since a request costs less the more there are.
    fn half(&mut self) -> Result<Paced, DemoError> {
        let mut found = Paced { per_s: self.reads_per_s * FIRST_PART, cpu: None };
        for _ in 0..HALF_TRIES_MAX {
            let seconds = (self.times.capacity + self.times.settle) / 2.0;
            let steps = vec![load::Step { rate_per_s: found.per_s, seconds }];
            let spec = self.spec(ADMIN, Workload::Read, Pacing::Open(steps));
            let report = self.run("single-row reads, open loop", &spec)?;
            let end = report.steps.first().map_or(0.0, |step| step.begin_unix_ms as f64 / 1e3 + step.seconds);
            let used = self.probe.between(end - self.times.capacity / 2.0, end);
            let cpu = used.process / used.cores.max(1) as f64;
            let answered = report.steps.first().map_or(0.0, |step| step.throughput_per_s);
            self.say(&format!("{:.0} reads/s take {:.0} % of the server's CPU", found.per_s, cpu * 100.0));
            found.cpu = Some(cpu);
            if cpu <= 0.0 || (cpu - HALF).abs() <= HALF_OFF_MAX {
                break;
            }
            // Where other programs have the cores, CPU tells nothing; half of a closed loop's rate is the most.
            found = Paced { per_s: (answered * HALF / cpu).min(self.reads_per_s * HALF), cpu: None };
        }
        Ok(found)
    }

    fn closed_loop(
        &mut self,
        what: &str,
        workload: Workload,
        in_flight: usize,
    ) -> Result<Option<Run>, DemoError> {
        self.say(&format!("capacity for {what}: closed loop, {in_flight} in flight"));
        let pacing = Pacing::Closed { in_flight, seconds: self.times.capacity };
        let spec = Spec { warmup_s: self.times.settle, ..self.spec(ADMIN, workload, pacing) };
        let report = self.run(what, &spec)?;
        Ok(Run::of(what, &report, 0))
    }

    /// Runs a load here, to its end.
    pub(super) fn run(&mut self, name: &str, spec: &Spec) -> Result<Report, DemoError> {
        let report = load::run(spec, &self.stop, |second| self.progress(name, second))?;
        self.interrupted()?;
        self.server_check()?;
        self.heed(name, &report);
        Ok(report)
    }

    /// The batch load of this shape, for `seconds` at most, in a process of its own.
    pub(super) fn batch(&self, user: &str, seconds: f64) -> Result<Sender, DemoError> {
        let (workload, in_flight) = self.shape.batch();
        self.sender(user, workload, &["--in-flight".into(), in_flight.to_string()], seconds)
    }

    /// A backlogged load of slices: closed loop, always with requests waiting.
    pub(super) fn backlogged(&self, user: &str, seconds: f64) -> Result<Sender, DemoError> {
        self.sender(user, Workload::Slice, &["--in-flight".into(), BACKLOG.to_string()], seconds)
    }

    /// An open loop of slices at this rate; what does not fit waits in the sender and is counted there.
    pub(super) fn throttled(&self, user: &str, rate: f64, seconds: f64) -> Result<Sender, DemoError> {
        let most = ["--max-in-flight".to_string(), BACKLOG.to_string()];
        let pace = ["--rate".to_string(), format!("{rate:.0}")];
        self.sender(user, Workload::Slice, &[pace, most].concat(), seconds)
    }

    fn sender(
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
        flag("hosts", self.server.cql.clone());
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
        // Only beside the interactive load need a sender give way.
        let nice = user == BATCH;
        Sender::start(&self.folder, &self.machine.load_cores, user, &self.password, nice, &arguments)
    }

    /// Keeps what a report warns of, as far as it bears on the figures.
    pub(super) fn heed(&mut self, name: &str, report: &Report) {
        self.heed_steps(name, report.steps.iter(), report.stopped);
    }

    /// Likewise of a report's steps.
    pub(super) fn heed_steps<'s>(
        &mut self,
        name: &str,
        steps: impl Iterator<Item = &'s load::StepReport> + Clone,
        stopped: bool,
    ) {
        let errors: u64 = steps.clone().map(|step| step.errors).sum();
        if let Some(first) = steps.clone().flat_map(|step| &step.error_codes).next() {
            self.notes.push(format!("{name}: {errors} requests failed, as with: {}", first.example));
        }
        let sum = |field: fn(&load::StepReport) -> u64| steps.clone().map(field).sum::<u64>();
        let (lost, due) = (sum(|step| step.lost + step.unsent), sum(|step| step.due));
        // The handful that was due in the last moments of a run tells nothing.
        if lost > due / 100 && !stopped {
            self.notes.push(format!("{name}: {lost} of {due} requests were due and never answered."));
        }
    }
}
