//! Child processes of the demo: the server on its cores, and loads on the other cores. Each has its
//! own process group, so that Ctrl-C reaches only the demo. The demo then ends its children by
//! their ids, in order, and waits for them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use load::Report;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use server_process::{Addresses, tail, wait_until_ready, without_settings};

use crate::error::DemoError;

/// Time limit for the start of a server on an empty folder.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a child that was asked to end is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Nice value of the batch load, which shares cores with the interactive one. It is used if `chrt`
/// is missing. With `chrt` the batch load is in the class `SCHED_IDLE`, which yields at once
/// instead of after a slice of some milliseconds.
pub(crate) const NICE: i32 = 19;
/// Name of the server's superuser.
pub(crate) const ADMIN: &str = "admin";

fn failed(what: &str) -> impl Fn(std::io::Error) -> DemoError {
    let what = what.to_string();
    move |error| DemoError::Failed(format!("{what}: {error}"))
}

/// Returns the cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Pins this thread, and threads and processes that it starts later, to these cores. Returns false
/// if the kernel refuses. That is no error, since only the results suffer.
pub(crate) fn pin_to(cores: &[usize]) -> bool {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).is_ok()
}

/// Starts a child on these cores. A child inherits cores and priority from the thread that starts
/// it, so that a short-lived thread sets them for itself first.
fn spawn(command: &mut Command, cores: &[usize], nice: bool) -> Result<Child, std::io::Error> {
    command.process_group(0).stdin(Stdio::null());
    let starter = std::thread::scope(|scope| {
        let start = scope.spawn(|| {
            pin_to(cores);
            if nice {
                let _refused = rustix::process::nice(NICE);
            }
            command.spawn()
        });
        start.join()
    });
    starter.unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it failed")))
}

/// Returns true if `chrt` can start programs in the idle class.
fn idle_class() -> bool {
    let mut trial = Command::new("chrt");
    trial.args(["--idle", "0", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success())
}

/// Asks a child to end and waits. Kills it after [`END_TIMEOUT`].
fn end(child: &mut Child) {
    // The id of a child that was waited for may belong to another process.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let _gone = kill_process(Pid::from_child(child), Signal::TERM);
    let start = Instant::now();
    while start.elapsed() < END_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _gone = child.kill();
    let _reaped = child.wait();
}

/// Temporary folder, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Creates the folder. It stays after the demo if `keep` is true.
    pub(crate) fn create(keep: bool) -> Result<Folder, DemoError> {
        let name = format!("fairlane-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(failed(&format!("{} cannot be created", path.display())))?;
        Ok(Folder { path, keep })
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("fairlane demo: {} could not be removed: {error}", self.path.display());
        }
    }
}

/// Server under test.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    log: PathBuf,
    /// HOST:PORT of CQL.
    pub(crate) cql: String,
    /// HOST:PORT of the metrics.
    pub(crate) http: String,
    /// HOST:PORT of SQL, empty if it is off.
    pub(crate) sql: String,
}

impl ServerProcess {
    /// Starts a server on an empty folder and waits until it is ready. `flags` override the usual
    /// flags.
    pub(crate) fn start(
        folder: &Folder,
        cores: &[usize],
        password: &str,
        flags: &[String],
    ) -> Result<ServerProcess, DemoError> {
        ServerProcess::launch(folder.file("server.log"), cores, |command| {
            command.arg("--data-dir").arg(folder.file("data"));
            // The default port may belong to another server. The loads need no shard-aware port,
            // and `flags` turn on SQL where it is needed.
            command.args(["--shard-aware-port", "off", "--sql-listen", "off", "--disk-probe", "off"]);
            command.args(flags).env("FAIRLANE_ADMIN_PASSWORD", password);
        })
    }

    /// Starts a server in front of the node at `contact` and waits until it is ready. At most
    /// `window` requests are in flight at the node.
    pub(crate) fn start_front(
        folder: &Folder,
        cores: &[usize],
        contact: &str,
        password: &str,
        window: u32,
    ) -> Result<ServerProcess, DemoError> {
        // The environment and `fairlane.toml` may have settings of storage, which a front refuses.
        let settings = folder.file("front.toml");
        std::fs::write(&settings, "").map_err(failed("the temporary folder cannot be written to"))?;
        ServerProcess::launch(folder.file("front.log"), cores, |command| {
            without_settings(command).arg("--config").arg(&settings);
            command.args(["--engine", "cluster", "--contact", contact, "--node-window", &window.to_string()]);
            command.args(["--cluster-user", ADMIN]).env("FAIRLANE_CLUSTER_PASSWORD", password);
        })
    }

    /// Starts a server with `flags` and waits until it is ready.
    fn launch(
        log: PathBuf,
        cores: &[usize],
        flags: impl FnOnce(&mut Command),
    ) -> Result<ServerProcess, DemoError> {
        let program = std::env::current_exe().map_err(failed("this program was not found"))?;
        let file = File::create(&log).map_err(failed("the server's log cannot be written"))?;
        // `--cores 1` is one CPU, and `--cores 1-1` is CPU 1.
        let list = cores.iter().map(|core| format!("{core}-{core}")).collect::<Vec<_>>().join(",");
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--cores", &list]);
        flags(&mut command);
        command.stdout(Stdio::piped()).stderr(file);
        let mut child = spawn(&mut command, cores, false).map_err(failed("the server cannot be started"))?;
        let ready = wait_until_ready(&mut child, READY_TIMEOUT);
        let mut server =
            ServerProcess { child, log, cql: String::new(), http: String::new(), sql: String::new() };
        if let Some(Addresses { cql, http, sql }) = ready {
            (server.cql, server.http, server.sql) = (cql, http, sql.unwrap_or_default());
            return Ok(server);
        }
        let log = tail(&server.log, 2);
        Err(DemoError::Failed(format!("The server was not ready after {} s: {log}", READY_TIMEOUT.as_secs())))
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server, without the flush of an orderly stop. The caller removes its data.
    pub(crate) fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Fails with the last log lines if the server has ended.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(DemoError::ServerGone(format!("The server ended: {}", tail(&self.log, 2)))),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Load in a process of its own.
#[derive(Debug)]
pub(crate) struct Sender {
    child: Child,
    name: String,
    json: PathBuf,
    errors: PathBuf,
}

impl Sender {
    /// Starts `fairlane load` with these arguments on these cores, at low priority if `nice` is
    /// true.
    pub(crate) fn start(
        folder: &Folder,
        cores: &[usize],
        name: &str,
        password: &str,
        nice: bool,
        arguments: &[String],
    ) -> Result<Sender, DemoError> {
        let program = std::env::current_exe().map_err(failed("this program was not found"))?;
        let (json, errors) = (folder.file(&format!("{name}.json")), folder.file(&format!("{name}.err")));
        let _none_before = std::fs::remove_file(&json);
        let file = File::create(&errors).map_err(failed("the temporary folder cannot be written to"))?;
        let command = |first: &[&OsStr]| -> Result<Command, DemoError> {
            let mut command = Command::new(first[0]);
            command.args(&first[1..]).arg("load").args(arguments).arg("--json").arg(&json);
            let file = file.try_clone().map_err(failed("the temporary folder cannot be written to"))?;
            command.env("FAIRLANE_PASSWORD", password).stdout(Stdio::null()).stderr(file);
            Ok(command)
        };
        let plain = [program.as_os_str()];
        let idle = ["chrt", "--idle", "0"].map(OsStr::new);
        let idle = [&idle[..], &plain].concat();
        let idle_class = nice && idle_class();
        let first = if idle_class { &idle[..] } else { &plain[..] };
        let child = spawn(&mut command(first)?, cores, nice && !idle_class)
            .map_err(failed("a load cannot be started"))?;
        Ok(Sender { child, name: name.to_string(), json, errors })
    }

    /// Fails if the load has ended, for example because the server refused its user.
    pub(crate) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(DemoError::Failed(format!("The load `{}` ended: {}", self.name, tail(&self.errors, 2)))),
        }
    }

    /// Returns true once the load has printed the line of its first second.
    pub(crate) fn is_sending(&self) -> bool {
        std::fs::metadata(&self.errors).is_ok_and(|file| file.len() > 0)
    }

    /// Ends the load and returns its report.
    pub(crate) fn stop(mut self) -> Result<Report, DemoError> {
        end(&mut self.child);
        let text = std::fs::read_to_string(&self.json).map_err(|_| {
            DemoError::Failed(format!("The load `{}` wrote no report: {}", self.name, tail(&self.errors, 2)))
        })?;
        serde_json::from_str(&text)
            .map_err(|error| DemoError::Failed(format!("The report of `{}` is damaged: {error}", self.name)))
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
