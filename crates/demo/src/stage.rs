//! State that all chapters share: the server, the probe of its CPU, an administrator's session,
//! sizes and times, and measured capacities.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use load::session::{ResultRow, Session};
use load::{Second, StopFlag};

use crate::error::DemoError;
use crate::metrics::{Probe, now_s};
use crate::options::{DemoOptions, FlushOptions, OlapSizes, Shape, Times};
use crate::results::{Machine, MostUseful, StoragePoint};
use crate::server::{ADMIN, Folder, Sender, ServerProcess, pin_to};

/// Keyspace of the demo's tables.
pub(crate) const KEYSPACE: &str = "demo";
/// Longest wait for flushes and compactions to end, seconds.
const SETTLING_S_MAX: f64 = 180.0;
/// Time limit of a statement of the administrator.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Capacities of the server, and rates that follow from them. Zero until they are measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capacities {
    /// Capacity for single-row reads.
    pub(crate) reads_per_s: f64,
    /// Rate of the interactive load.
    pub(crate) interactive_per_s: f64,
    /// Capacity for slices.
    pub(crate) slices_per_s: f64,
    /// Capacity for writes in the demo of flushes.
    pub(crate) writes_per_s: f64,
    /// Rate of commands in the demo of batches.
    pub(crate) commands_per_s: f64,
    /// Concurrency that its operations in flight should not exceed.
    pub(crate) most_useful: Option<MostUseful>,
    /// Bytes that the log writes at the rate of the demo of flushes.
    pub(crate) log_bytes_per_s: f64,
}

/// Run of a demo. Fields are dropped in order: the probe before the server, the folder last.
pub(crate) struct Stage {
    pub(crate) probe: Probe,
    admin: Session,
    /// Server in front of `server`, if the subject is a cluster.
    front: Option<ServerProcess>,
    pub(crate) server: ServerProcess,
    /// HOST:PORT of CQL for the loads.
    pub(crate) target: String,
    pub(crate) times: Times,
    pub(crate) olap: OlapSizes,
    pub(crate) flush: FlushOptions,
    pub(crate) shape: Shape,
    pub(crate) measured: Capacities,
    pub(crate) machine: Machine,
    /// File of what is expected, next to the report.
    expected: PathBuf,
    /// Sentences that a reader of the results must know.
    pub(crate) notes: Vec<String>,
    pub(crate) password: String,
    pub(crate) stop: StopFlag,
    start: Instant,
    pub(crate) folder: Folder,
}

/// Starts a server, logs in as its superuser, and starts sampling it.
fn start_server(
    folder: &Folder,
    machine: &Machine,
    password: &str,
    flags: &[String],
) -> Result<(ServerProcess, Session, Probe), DemoError> {
    let server = ServerProcess::start(folder, &machine.server_cores, password, flags)?;
    let admin = Session::connect(&server.cql, Some(ADMIN), Some(password), STATEMENT_TIMEOUT)?;
    let probe = Probe::start(&server.http, server.pid(), &machine.server_cores, &machine.load_cores)
        .map_err(|error| DemoError::Failed(format!("{} returned no metrics: {error}", server.http)))?;
    Ok((server, admin, probe))
}

impl Stage {
    /// Starts the server and logs in.
    pub(crate) fn open(
        options: &DemoOptions,
        machine: Machine,
        folder: Folder,
        stop: StopFlag,
        flags: &[String],
    ) -> Result<Stage, DemoError> {
        let start = Instant::now();
        let mut notes = Vec::new();
        if !pin_to(&machine.load_cores) {
            notes.push(
                "The loads could not be pinned to their own cores, so they disturb the server.".to_string(),
            );
        }
        let password = uuid::Uuid::new_v4().simple().to_string();
        eprintln!(
            "starting a server on cores {:?} in {}, loads on cores {:?}",
            machine.server_cores,
            folder.path().display(),
            machine.load_cores
        );
        let (server, admin, probe) = start_server(&folder, &machine, &password, flags)?;
        Ok(Stage {
            probe,
            admin,
            front: None,
            target: server.cql.clone(),
            server,
            times: options.times(),
            olap: options.olap.sizes(options.quick),
            flush: options.flush.clone(),
            shape: options.shape,
            measured: Capacities::default(),
            machine,
            expected: Path::new(&options.report).with_extension("expected.txt"),
            notes,
            password,
            stop,
            start,
            folder,
        })
    }

    /// Replaces the server by one with other flags and an empty folder.
    pub(crate) fn restart(&mut self, flags: &[String]) -> Result<(), DemoError> {
        self.server.kill();
        let data = self.folder.file("data");
        std::fs::remove_dir_all(&data)
            .map_err(|error| DemoError::Failed(format!("{} cannot be emptied: {error}", data.display())))?;
        self.print(&format!("starting another server: {}", flags.join(" ")));
        (self.server, self.admin, self.probe) =
            start_server(&self.folder, &self.machine, &self.password, flags)?;
        self.target.clone_from(&self.server.cql);
        Ok(())
    }

    /// Starts a front before the server. From then on, statements and loads go to the front.
    pub(crate) fn start_front(&mut self) -> Result<(), DemoError> {
        let (cores, window) = (&self.machine.front_cores, self.times.node_window);
        self.print(&format!("starting a front on cores {cores:?} with a window of {window} at the node"));
        let front =
            ServerProcess::start_front(&self.folder, cores, &self.server.cql, &self.password, window)?;
        self.admin = Session::connect(&front.cql, Some(ADMIN), Some(&self.password), STATEMENT_TIMEOUT)?;
        self.target.clone_from(&front.cql);
        self.front = Some(front);
        Ok(())
    }

    /// Returns true if there is a front.
    pub(crate) fn has_front(&self) -> bool {
        self.front.is_some()
    }

    /// Adds to a file what is expected of a chapter that was not measured yet.
    pub(crate) fn expect(&self, chapter: &str, expected: &str) -> Result<(), DemoError> {
        let file = OpenOptions::new().create(true).append(true).open(&self.expected);
        let written = file.and_then(|mut file| write!(file, "{chapter}, at {:.0}:\n{expected}\n", now_s()));
        let failed =
            |error| DemoError::Failed(format!("{} cannot be written: {error}", self.expected.display()));
        written.map_err(failed)
    }

    /// Prints a line of progress.
    pub(crate) fn print(&self, line: &str) {
        eprintln!("[{:>3} s] {line}", self.start.elapsed().as_secs());
    }

    /// Prints statements and runs them as the administrator.
    pub(crate) fn cql(&mut self, statements: &[&str]) -> Result<(), DemoError> {
        for statement in statements {
            self.print(&format!("cql> {statement};"));
            self.admin.query(statement)?;
        }
        Ok(())
    }

    /// Returns the rows of a statement of the administrator.
    pub(crate) fn rows_of(&mut self, statement: &str) -> Result<Vec<ResultRow>, DemoError> {
        Ok(self.admin.query(statement)?)
    }

    /// Creates a role with the demo's password that may read the demo's tables.
    pub(crate) fn role(&mut self, name: &str) -> Result<(), DemoError> {
        self.reader(name, KEYSPACE)
    }

    /// Creates a role with the demo's password, unless it exists, and lets it read a keyspace.
    pub(crate) fn reader(&mut self, name: &str, keyspace: &str) -> Result<(), DemoError> {
        self.print(&format!("role {name} may read keyspace {keyspace}"));
        let password = self.password.clone();
        let create =
            format!("CREATE ROLE IF NOT EXISTS {name} WITH PASSWORD = '{password}' AND LOGIN = true");
        self.admin.query(&create).map_err(|error| {
            let error = error.to_string().replace(&password, "…");
            DemoError::Failed(error)
        })?;
        self.admin.query(&format!("GRANT SELECT ON KEYSPACE {keyspace} TO {name}"))?;
        Ok(())
    }

    /// Waits. Fails after Ctrl-C, or if the server or one of these loads has ended.
    pub(crate) fn wait(&mut self, seconds: f64, senders: &mut [Sender]) -> Result<(), DemoError> {
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

    /// Waits until flushes and compactions have written nothing for `quiet_s`. Returns the time
    /// that they went on, seconds. After [`SETTLING_S_MAX`] a note with the `consequence` is added
    /// instead.
    pub(crate) fn settle(&mut self, quiet_s: f64, consequence: &str) -> Result<f64, DemoError> {
        let began_s = now_s();
        loop {
            self.wait(1.0, &mut [])?;
            let since_s = now_s() - quiet_s;
            let points = self.probe.storage(since_s, since_s + quiet_s);
            let is_quiet = |point: &StoragePoint| point.background_bytes_per_s() <= 0.0;
            if since_s > began_s && !points.is_empty() && points.iter().all(is_quiet) {
                return Ok(since_s - began_s);
            }
            if since_s - began_s > SETTLING_S_MAX {
                self.notes.push(format!(
                    "Flushes and compactions went on for more than {SETTLING_S_MAX:.0} s, so {consequence}."
                ));
                return Ok(SETTLING_S_MAX);
            }
        }
    }

    /// Fails after Ctrl-C.
    pub(crate) fn interrupted(&self) -> Result<(), DemoError> {
        if self.stop.is_set() { Err(DemoError::Interrupted) } else { Ok(()) }
    }

    /// Fails if the server or its front has ended.
    pub(crate) fn server_check(&mut self) -> Result<(), DemoError> {
        self.front.iter_mut().try_for_each(ServerProcess::check)?;
        self.server.check()
    }

    /// Prints the results of one second.
    pub(crate) fn progress(&self, name: &str, second: &Second) {
        if second.seconds < 0.3 {
            return;
        }
        let (rate, p99_ms) = (second.rate(), second.all.p99_us / 1e3);
        self.print(&format!("{name}: {rate:.0}/s, p99 {p99_ms:.2} ms, {} in flight", second.in_flight));
    }
}
