//! What every phase of the demo stands on: the server, the probe of its CPU, an administrator's session, the
//! sizes and times of this run, and how loads are begun.

use std::time::{Duration, Instant};

use load::session::Session;
use load::{Keys, Pacing, Report, Rows, Second, Spec, StopFlag, Workload};

use super::DemoError;
use super::figures::{Capacity, Machine, Run};
use super::metrics::Probe;
use super::phases::BATCH;
use super::server::{ADMIN, Folder, Sender, Server, keep_to};

/// Keyspace of the demo's tables.
const KEYSPACE: &str = "demo";
/// How long one statement of set-up may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Rows a slice reads; one partition has as many.
const SLICE_ROWS: u64 = 100;
/// Requests in flight of a load that is to be backlogged: far more than a core serves at once.
const BACKLOG: usize = 128;

/// What the two loads of the first chapters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Single rows at half of capacity beside slices of 100 rows.
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

    /// The interactive load's part of capacity, and its requests in flight at most.
    fn interactive(self) -> (f64, usize) {
        match self {
            Shape::Slices => (0.5, 10_000),
            Shape::Published => (0.2, 200),
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

/// Sizes and times of a run, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Rows by key.
    rows: u64,
    /// Partitions of 100 rows.
    partitions: u64,
    /// Each closed loop that looks for capacity.
    capacity: f64,
    /// Alone, beside, alone again: each.
    pub(super) mixed: f64,
    /// From one phase to the next, while a load joins, leaves, or a change settles.
    pub(super) settle: f64,
    /// Each combination of shares, and the cap.
    pub(super) shares: f64,
}

const QUICK: Times =
    Times { rows: 20_000, partitions: 300, capacity: 2.0, mixed: 3.0, settle: 1.0, shares: 3.0 };
const FULL: Times =
    Times { rows: 100_000, partitions: 2_000, capacity: 6.0, mixed: 16.0, settle: 2.0, shares: 14.0 };

/// The run so far. Fields are dropped in order: the probe before the server, the folder last.
pub(super) struct Stage {
    pub(super) probe: Probe,
    admin: Session,
    server: Server,
    pub(super) times: Times,
    pub(super) shape: Shape,
    /// Single-row reads a second, found by [`Stage::capacity`].
    reads_per_s: f64,
    /// Slices a second, likewise.
    pub(super) slices_per_s: f64,
    machine: Machine,
    /// What a reader of the figures must know.
    pub(super) notes: Vec<String>,
    password: String,
    pub(super) stop: StopFlag,
    begun: Instant,
    folder: Folder,
}

impl Stage {
    /// Starts the server and logs in.
    pub(super) fn open(
        quick: bool,
        shape: Shape,
        machine: Machine,
        folder: Folder,
        stop: StopFlag,
    ) -> Result<Stage, DemoError> {
        let begun = Instant::now();
        let mut notes = Vec::new();
        if !keep_to(&machine.load_cores) {
            notes
                .push("The loads could not be kept to their own cores; they disturb the server.".to_string());
        }
        let password = uuid::Uuid::new_v4().simple().to_string();
        eprintln!(
            "starting a server on core {:?} in {}; loads on core {:?}",
            machine.server_cores,
            folder.path().display(),
            machine.load_cores
        );
        let server = Server::start(&folder, &machine.server_cores, &password)?;
        let admin = Session::connect(&server.cql, Some(ADMIN), Some(&password), STATEMENT_TIMEOUT)?;
        let probe = Probe::start(&server.http, server.pid(), &machine.server_cores)
            .map_err(|error| DemoError::Failed(format!("No metrics from {}: {error}", server.http)))?;
        Ok(Stage {
            probe,
            admin,
            server,
            times: if quick { QUICK } else { FULL },
            shape,
            reads_per_s: 0.0,
            slices_per_s: 0.0,
            machine,
            notes,
            password,
            stop,
            begun,
            folder,
        })
    }

    /// A line of progress.
    pub(super) fn say(&self, line: &str) {
        eprintln!("[{:>3} s] {line}", self.begun.elapsed().as_secs());
    }

    /// Runs statements as the administrator, showing each.
    pub(super) fn cql(&mut self, statements: &[&str]) -> Result<(), DemoError> {
        for statement in statements {
            self.say(&format!("cql> {statement};"));
            self.admin.query(statement)?;
        }
        Ok(())
    }

    /// A role that logs in with the demo's password and reads its tables.
    pub(super) fn role(&mut self, name: &str) -> Result<(), DemoError> {
        self.say(&format!("role {name}, who may read the keyspace {KEYSPACE}"));
        let password = self.password.clone();
        let create =
            format!("CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = '{password}' AND LOGIN = true");
        self.admin.query(&create).map_err(|error| {
            let error = error.to_string().replace(&password, "…");
            DemoError::Failed(error)
        })?;
        self.admin.query(&format!("GRANT SELECT ON KEYSPACE {KEYSPACE} TO {name}"))?;
        Ok(())
    }

    /// Waits, unless interrupted or left without a server or one of these loads.
    pub(super) fn wait(&mut self, seconds: f64, senders: &mut [Sender]) -> Result<(), DemoError> {
        let until = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
        loop {
            self.interrupted()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        self.server_check()?;
        senders.iter_mut().try_for_each(Sender::check)
    }

    /// Fails after Ctrl-C.
    pub(super) fn interrupted(&self) -> Result<(), DemoError> {
        if self.stop.is_set() { Err(DemoError::Interrupted) } else { Ok(()) }
    }

    /// Fails when the server is gone.
    pub(super) fn server_check(&mut self) -> Result<(), DemoError> {
        self.server.check()
    }

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

    fn spec(&self, user: &str, workload: Workload, pacing: Pacing) -> Spec {
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
        let (part, max_in_flight) = self.shape.interactive();
        let rate_per_s = self.reads_per_s * part;
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

    /// Closed loops alone, to know what half of capacity is and what a batch load alone would get.
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
        Ok(Capacity { reads, batch })
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
    fn run(&mut self, name: &str, spec: &Spec) -> Result<Report, DemoError> {
        let report = load::run(spec, &self.stop, |second| self.progress(name, second))?;
        self.interrupted()?;
        self.server_check()?;
        self.heed(name, &report);
        Ok(report)
    }

    /// A second's line of progress.
    pub(super) fn progress(&self, name: &str, second: &Second) {
        if second.seconds < 0.3 {
            return;
        }
        let (rate, p99_ms) = (second.rate(), second.all.p99_us / 1e3);
        self.say(&format!("{name}: {rate:.0}/s, p99 {p99_ms:.2} ms, {} in flight", second.in_flight));
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
        if report.invalid {
            let used = report.generator_cpu * 100.0;
            self.notes.push(format!(
                "{name}: the sender used {used:.0} % of a core; above 80 % it measures itself as well as the server."
            ));
        }
        let errors: u64 = report.steps.iter().map(|step| step.errors).sum();
        if let Some(first) = report.steps.iter().flat_map(|step| &step.error_codes).next() {
            self.notes.push(format!("{name}: {errors} requests failed, as with: {}", first.example));
        }
        let lost: u64 = report.steps.iter().map(|step| step.lost + step.unsent).sum();
        if lost > 0 && !report.stopped {
            self.notes.push(format!("{name}: {lost} requests were due and never answered."));
        }
    }
}
