//! What every phase of the demo stands on: the server, the probe of its CPU, an administrator's session, the
//! sizes and times of this run.

use std::time::{Duration, Instant};

use load::session::Session;
use load::{Second, StopFlag};

use super::DemoError;
use super::figures::{Machine, StoragePoint};
use super::flags::Options;
use super::flush;
use super::loads::{KEYSPACE, Shape};
use super::metrics::{Probe, now_s};
use super::olap;
use super::server::{ADMIN, Folder, Sender, Server, keep_to};

/// For no longer are flushes and compactions waited for, seconds.
const SETTLING_S_MAX: f64 = 180.0;
/// How long one statement of set-up may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Sizes and times of a run, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Rows by key.
    pub(super) rows: u64,
    /// Partitions of 100 rows.
    pub(super) partitions: u64,
    /// Each closed loop that looks for capacity.
    pub(super) capacity: f64,
    /// Alone, beside, alone again: each.
    pub(super) mixed: f64,
    /// From one phase to the next, while a load joins, leaves, or a change settles.
    pub(super) settle: f64,
    /// Each combination of shares, and the cap.
    pub(super) shares: f64,
    /// A phase of the demo of flushes, warm-up included.
    pub(super) background: f64,
    /// Numbers of these phases with controllers, and without.
    pub(super) background_phases: (usize, usize),
}

impl Times {
    pub(super) const QUICK: Times = Times {
        rows: 20_000,
        partitions: 300,
        capacity: 2.0,
        mixed: 3.0,
        settle: 1.0,
        shares: 3.0,
        background: 5.0,
        background_phases: (4, 2),
    };
    pub(super) const FULL: Times = Times {
        rows: 100_000,
        partitions: 2_000,
        capacity: 6.0,
        mixed: 16.0,
        settle: 2.0,
        shares: 14.0,
        background: 30.0,
        background_phases: (16, 8),
    };
}

/// The run so far. Fields are dropped in order: the probe before the server, the folder last.
pub(super) struct Stage {
    pub(super) probe: Probe,
    admin: Session,
    pub(super) server: Server,
    pub(super) times: Times,
    /// The same of the demo of queries.
    pub(super) olap: olap::Sizes,
    /// What the command line asked for, of the demo of flushes.
    pub(super) flush: flush::Asked,
    pub(super) shape: Shape,
    /// Single-row reads a second, found by [`Stage::capacity`].
    pub(super) reads_per_s: f64,
    /// The interactive load's rate, likewise.
    pub(super) interactive_per_s: f64,
    /// Slices a second, likewise.
    pub(super) slices_per_s: f64,
    /// Writes a second, found by the demo of flushes.
    pub(super) writes_per_s: f64,
    /// Log bytes a second at the rate of that demo.
    pub(super) log_bytes_per_s: f64,
    pub(super) machine: Machine,
    /// What a reader of the figures must know.
    pub(super) notes: Vec<String>,
    pub(super) password: String,
    pub(super) stop: StopFlag,
    begun: Instant,
    pub(super) folder: Folder,
}

impl Stage {
    /// Starts the server and logs in.
    pub(super) fn open(
        options: &Options,
        machine: Machine,
        folder: Folder,
        stop: StopFlag,
        flags: &[String],
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
        let server = Server::start(&folder, &machine.server_cores, &password, flags)?;
        let admin = Session::connect(&server.cql, Some(ADMIN), Some(&password), STATEMENT_TIMEOUT)?;
        let probe = Probe::start(&server.http, server.pid(), &machine.server_cores, &machine.load_cores)
            .map_err(|error| DemoError::Failed(format!("No metrics from {}: {error}", server.http)))?;
        Ok(Stage {
            probe,
            admin,
            server,
            times: options.flush.times(if options.quick { Times::QUICK } else { Times::FULL }),
            olap: options.olap.sizes(options.quick),
            flush: options.flush.clone(),
            shape: options.shape,
            reads_per_s: 0.0,
            interactive_per_s: 0.0,
            writes_per_s: 0.0,
            log_bytes_per_s: 0.0,
            slices_per_s: 0.0,
            machine,
            notes,
            password,
            stop,
            begun,
            folder,
        })
    }

    /// Replaces the server by one with other flags and an empty folder.
    pub(super) fn restart(&mut self, flags: &[String]) -> Result<(), DemoError> {
        self.server.kill();
        let data = self.folder.file("data");
        std::fs::remove_dir_all(&data)
            .map_err(|error| DemoError::Failed(format!("Cannot empty {}: {error}", data.display())))?;
        self.say(&format!("another server: {}", flags.join(" ")));
        let cores = &self.machine.server_cores;
        self.server = Server::start(&self.folder, cores, &self.password, flags)?;
        self.admin =
            Session::connect(&self.server.cql, Some(ADMIN), Some(&self.password), STATEMENT_TIMEOUT)?;
        self.probe = Probe::start(&self.server.http, self.server.pid(), cores, &self.machine.load_cores)
            .map_err(|error| DemoError::Failed(format!("No metrics from {}: {error}", self.server.http)))?;
        Ok(())
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
        self.reader(name, KEYSPACE)
    }

    /// A role that logs in with the demo's password and reads a keyspace, beside those it reads already.
    pub(super) fn reader(&mut self, name: &str, keyspace: &str) -> Result<(), DemoError> {
        self.say(&format!("role {name}, who may read the keyspace {keyspace}"));
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

    /// Waits until flushes and compactions have written nothing for `quiet_s`: how long they went on, seconds. If that is too long, a
    /// note says what follows.
    pub(super) fn settle(&mut self, quiet_s: f64, what_follows: &str) -> Result<f64, DemoError> {
        let began_s = now_s();
        loop {
            self.wait(1.0, &mut [])?;
            let since_s = now_s() - quiet_s;
            let seen = self.probe.storage(since_s, since_s + quiet_s);
            let is_quiet =
                |point: &StoragePoint| point.flush_bytes_per_s + point.compaction_bytes_per_s <= 0.0;
            if since_s > began_s && !seen.is_empty() && seen.iter().all(is_quiet) {
                return Ok(since_s - began_s);
            }
            if since_s - began_s > SETTLING_S_MAX {
                let told = format!(
                    "Flushes and compactions went on for more than {SETTLING_S_MAX:.0} s; {what_follows}."
                );
                self.notes.push(told);
                return Ok(SETTLING_S_MAX);
            }
        }
    }

    /// Fails after Ctrl-C.
    pub(super) fn interrupted(&self) -> Result<(), DemoError> {
        if self.stop.is_set() { Err(DemoError::Interrupted) } else { Ok(()) }
    }

    /// Fails when the server is gone.
    pub(super) fn server_check(&mut self) -> Result<(), DemoError> {
        self.server.check()
    }

    /// A second's line of progress.
    pub(super) fn progress(&self, name: &str, second: &Second) {
        if second.seconds < 0.3 {
            return;
        }
        let (rate, p99_ms) = (second.rate(), second.all.p99_us / 1e3);
        self.say(&format!("{name}: {rate:.0}/s, p99 {p99_ms:.2} ms, {} in flight", second.in_flight));
    }
}
