//! The demo's child processes: the server on its cores, and loads of their own on the others at low
//! priority. Each is in a process group of its own, so that Ctrl-C reaches only the demo, which then ends
//! them in order; each is ended by its own id, and waited for.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use load::Report;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::DemoError;

/// How long the server may take to be ready on a fresh folder; it also measures the disk then.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a child may take to end when asked; then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// The batch load gives way to the interactive one on the cores that both send from. `SCHED_IDLE` gives way
/// at once; the lowest ordinary priority, where `chrt` is not there to set that, only when its slice of some
/// milliseconds is over.
const NICE: i32 = 19;
/// Who owns the server.
pub(super) const ADMIN: &str = "admin";

fn failed(what: &str) -> impl Fn(std::io::Error) -> DemoError {
    let what = what.to_string();
    move |error| DemoError::Failed(format!("{what}: {error}"))
}

/// The cores this process may use.
pub(super) fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Keeps this thread, and what it starts from now on, to these cores. Where that is refused the figures
/// suffer and nothing else, so it is not an error.
pub(super) fn keep_to(cores: &[usize]) -> bool {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).is_ok()
}

/// Starts a child on these cores. Both cores and priority are inherited from the thread that starts it, so
/// a short-lived thread takes them on first.
fn spawn(command: &mut Command, cores: &[usize], nice: bool) -> Result<Child, std::io::Error> {
    command.process_group(0).stdin(Stdio::null());
    let starter = std::thread::scope(|scope| {
        let start = scope.spawn(|| {
            keep_to(cores);
            if nice {
                let _kept = rustix::process::nice(NICE);
            }
            command.spawn()
        });
        start.join()
    });
    starter.unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it failed")))
}

/// Whether a program can be started in the class of idle work.
fn idle_class() -> bool {
    let mut trial = Command::new("chrt");
    trial.args(["--idle", "0", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success())
}

fn signal(child: &Child, signal: Signal) {
    // It may be gone already; that is what was wanted.
    let _gone = kill_process(Pid::from_child(child), signal);
}

/// Asks a child to end, waits, and kills it when it does not.
fn end(child: &mut Child) {
    signal(child, Signal::TERM);
    let asked = Instant::now();
    while asked.elapsed() < END_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _gone = child.kill();
    let _reaped = child.wait();
}

/// The last lines of a file, for messages.
fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(2).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// A folder that is removed in the end.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Creates it.
    pub(super) fn create(keep: bool) -> Result<Folder, DemoError> {
        let name = format!("fairlane-demo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(failed(&format!("Cannot create {}", path.display())))?;
        Ok(Folder { path, keep })
    }

    /// A file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("fairlane demo: {} is left behind: {error}", self.path.display());
        }
    }
}

/// The addresses in the line that says the server is ready: CQL, HTTP, and SQL where that is on.
fn addresses(line: &str) -> Option<[String; 3]> {
    let address = |mark: &str| {
        let rest = line.split(mark).nth(1)?;
        let found = rest.split([',', ' ']).next()?.trim_end_matches('.');
        found.contains(':').then(|| found.to_string())
    };
    line.contains("is ready:").then_some(())?;
    Some([address("CQL ")?, address("HTTP ")?, address("SQL ").unwrap_or_default()])
}

/// The server under test.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    log: PathBuf,
    /// HOST:PORT of the native protocol.
    pub(super) cql: String,
    /// HOST:PORT of the metrics.
    pub(super) http: String,
    /// HOST:PORT of the Postgres protocol; empty where that is off.
    pub(super) sql: String,
}

impl Server {
    /// Starts it on a fresh folder, on these cores, with these flags behind the usual ones, which they win over, and waits until it
    /// is ready.
    pub(super) fn start(
        folder: &Folder,
        cores: &[usize],
        password: &str,
        flags: &[String],
    ) -> Result<Server, DemoError> {
        let program = std::env::current_exe().map_err(failed("Cannot find this program"))?;
        let log = folder.file("server.log");
        let file = File::create(&log).map_err(failed("Cannot write the server's log"))?;
        // `--cores N` alone is a number of CPUs; a range of one is the CPU of that number.
        let list = cores.iter().map(|core| format!("{core}-{core}")).collect::<Vec<_>>().join(",");
        let mut command = Command::new(program);
        command.arg("serve").arg("--data-dir").arg(folder.file("data"));
        command.args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--cores", &list]);
        // Its usual port may be another server's, and the loads route by connection on these few cores. Who needs SQL says so in flags.
        command.args(["--shard-aware-port", "off", "--sql-listen", "off", "--disk-probe", "off"]).args(flags);
        command.env("FAIRLANE_ADMIN_PASSWORD", password).stdout(Stdio::piped()).stderr(file);
        let mut child = spawn(&mut command, cores, false).map_err(failed("Cannot start the server"))?;
        let stdout = child.stdout.take();
        let mut server = Server { child, log, cql: String::new(), http: String::new(), sql: String::new() };
        let (said, lines) = channel();
        std::thread::spawn(move || {
            // Reads on to the end, so that the server never waits for somebody to read what it prints.
            for line in stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok)) {
                let _nobody_waits_any_more = said.send(line);
            }
        });
        let asked = Instant::now();
        while let Some(left) = READY_TIMEOUT.checked_sub(asked.elapsed()) {
            let Ok(line) = lines.recv_timeout(left) else { break };
            if let Some(found) = addresses(&line) {
                [server.cql, server.http, server.sql] = found;
                return Ok(server);
            }
        }
        let log = tail(&server.log);
        Err(DemoError::Failed(format!("The server did not get ready. It said: {log}")))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it. Its data is not needed any more, so that it need not flush it.
    pub(super) fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Whether it still runs; what it said last when it does not.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(DemoError::ServerGone(format!("The server ended. It said: {}", tail(&self.log)))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A load in a process of its own.
#[derive(Debug)]
pub(super) struct Sender {
    child: Child,
    name: String,
    json: PathBuf,
    errors: PathBuf,
}

impl Sender {
    /// Starts `fairlane load` with these arguments on these cores, at the lowest priority if `nice`.
    pub(super) fn start(
        folder: &Folder,
        cores: &[usize],
        name: &str,
        password: &str,
        nice: bool,
        arguments: &[String],
    ) -> Result<Sender, DemoError> {
        let program = std::env::current_exe().map_err(failed("Cannot find this program"))?;
        let (json, errors) = (folder.file(&format!("{name}.json")), folder.file(&format!("{name}.err")));
        let _none_before = std::fs::remove_file(&json);
        let file = File::create(&errors).map_err(failed("Cannot write into the temporary folder"))?;
        let command = |first: &[&OsStr]| -> Result<Command, DemoError> {
            let mut command = Command::new(first[0]);
            command.args(&first[1..]).arg("load").args(arguments).arg("--json").arg(&json);
            let file = file.try_clone().map_err(failed("Cannot write into the temporary folder"))?;
            command.env("FAIRLANE_PASSWORD", password).stdout(Stdio::null()).stderr(file);
            Ok(command)
        };
        let plain = [program.as_os_str()];
        let idle = ["chrt", "--idle", "0"].map(OsStr::new);
        let idle = [&idle[..], &plain].concat();
        let idle_class = nice && idle_class();
        let first = if idle_class { &idle[..] } else { &plain[..] };
        let child =
            spawn(&mut command(first)?, cores, nice && !idle_class).map_err(failed("Cannot start a load"))?;
        Ok(Sender { child, name: name.to_string(), json, errors })
    }

    /// Fails when it has ended before its time, as when the server refuses its user.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(DemoError::Failed(format!("The load `{}` ended: {}", self.name, tail(&self.errors)))),
        }
    }

    /// Whether its first second is over: then it has said something.
    pub(super) fn sends(&self) -> bool {
        std::fs::metadata(&self.errors).is_ok_and(|file| file.len() > 0)
    }

    /// Ends it and returns what it found.
    pub(super) fn stop(mut self) -> Result<Report, DemoError> {
        end(&mut self.child);
        let text = std::fs::read_to_string(&self.json).map_err(|_| {
            DemoError::Failed(format!("The load `{}` wrote no report: {}", self.name, tail(&self.errors)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_the_line_that_says_ready() {
        let found = |doors: &str| addresses(&format!("fairlane is ready: {doors}"));
        let (cql, http) = ("127.0.0.1:4711".to_string(), "127.0.0.1:8080".to_string());
        let without = found("CQL 127.0.0.1:4711, HTTP 127.0.0.1:8080");
        assert_eq!(without, Some([cql.clone(), http.clone(), String::new()]));
        let all = found("CQL 127.0.0.1:4711, HTTP 127.0.0.1:8080, SQL 127.0.0.1:5433");
        assert_eq!(all, Some([cql, http, "127.0.0.1:5433".to_string()]));
        assert_eq!(addresses("starting: CQL 1:2, HTTP 1:3"), None);
        assert_eq!(addresses("fairlane is ready: CQL 127.0.0.1:4711"), None);
    }
}
