//! The server under the load: its process, its statements and its CPU time.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use server_process::metrics::{fetch, series, sums};
use server_process::{Addresses, without_settings};

use super::cpus::{self, Cpus};
use super::process::{Process, until};
use crate::child;

/// The superuser that the server creates.
pub(super) const ADMIN: &str = "admin";
/// Memory of the server: the rows and their indexes fit in it.
const MEMORY: &str = "2GiB";
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of a few statements, beside other processes.
const STATEMENTS_TIMEOUT: Duration = Duration::from_secs(60);
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server. It is killed if it is not stopped.
pub(super) struct StressedServer {
    process: Process,
    data: PathBuf,
    pub(super) host: String,
    pub(super) port: String,
    pub(super) password: String,
    http: String,
}

impl StressedServer {
    /// Starts the server on free ports with an empty data folder in `folder`.
    pub(super) fn start(binary: &Path, folder: &Path, cpus: &Cpus) -> Result<StressedServer, String> {
        let data = folder.join("data");
        let _absent = std::fs::remove_dir_all(&data);
        let password = password()?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--data-dir").arg(&data).args(["--cores", &cpus::list(&cpus.server)]);
        command.args(["--memory", MEMORY, "--disk-probe", "off", "--shard-aware-port", "off"]);
        command.args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sql-listen", "off"]);
        if cpus.are_shared() {
            command.arg("--overprovisioned");
        }
        without_settings(&mut command);
        command.env("FAIRLANE_ADMIN_PASSWORD", &password);
        let mut process = Process::start(&mut command, &folder.join("server.log"))?;
        let mut ready = None;
        until(READY_TIMEOUT, "a ready server", || {
            ready = process.text()?.lines().find_map(Addresses::parse);
            Ok(ready.is_some() || process.has_ended()?)
        })?;
        let Addresses { cql, http, .. } = ready.ok_or("expected the addresses of the server, got none.")?;
        let (host, port) = cql.rsplit_once(':').ok_or("expected an address with a port.")?;
        Ok(StressedServer { process, data, host: host.to_owned(), port: port.to_owned(), password, http })
    }

    /// Runs statements of CQL as the superuser, by the driver of the Python environment.
    pub(super) fn execute(&self, python: &Path, script: &Path, statements: &[String]) -> Result<(), String> {
        let mut command = Command::new(python);
        command.arg(script).args([&self.host, &self.port, ADMIN]).args(statements);
        command.env("FAIRLANE_PASSWORD", &self.password).env("PYTHONDONTWRITEBYTECODE", "1");
        child::run(&mut command, STATEMENTS_TIMEOUT)
    }

    /// Reads the CPU times.
    pub(super) fn cpu(&self) -> Result<Cpu, String> {
        let failed = |error| format!("http://{}/metrics cannot be read: {error}.", self.http);
        Ok(Cpu::parse(&fetch(&self.http, METRICS_TIMEOUT).map_err(failed)?))
    }

    /// Stops the server and removes its data.
    pub(super) fn stop(self) -> Result<(), String> {
        self.process.stop()?;
        std::fs::remove_dir_all(&self.data)
            .map_err(|error| format!("{} cannot be removed: {error}.", self.data.display()))
    }
}

/// Returns 32 random hexadecimal digits.
fn password() -> Result<String, String> {
    let mut bytes = [0u8; 16];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.map_err(|error| format!("/dev/urandom cannot be read: {error}."))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// CPU times of the server at one moment, seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cpu {
    at: Instant,
    process: f64,
    /// By service level, both lanes together.
    levels: BTreeMap<String, f64>,
}

impl Cpu {
    fn parse(page: &str) -> Cpu {
        let process = series(page).find(|found| found.metric == "process_cpu_seconds_total");
        Cpu {
            at: Instant::now(),
            process: process.map_or(0.0, |found| found.value),
            levels: sums(page, "fairlane_cpu_seconds_total", "level"),
        }
    }

    /// Returns the part of `cores` that the server was busy since `earlier`.
    pub(super) fn busy_since(&self, earlier: &Cpu, cores: usize) -> f64 {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64() * cores as f64;
        (self.process - earlier.process) / seconds.max(f64::EPSILON)
    }

    /// Returns the CPU time of a level since `earlier`, seconds. 0 if it does not exist.
    pub(super) fn of_level_since(&self, level: &str, earlier: &Cpu) -> f64 {
        let at = |cpu: &Cpu| cpu.levels.get(level).copied().unwrap_or_default();
        at(self) - at(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_of_a_level_is_the_sum_of_its_lanes() {
        let page = "# TYPE x\nfairlane_cpu_seconds_total{level=\"load1\",lane=\"fast\"} 1.5\n\
                    fairlane_cpu_seconds_total{level=\"load1\",lane=\"heavy\"} 0.25\nprocess_cpu_seconds_total 3\n";
        let (earlier, later) = (Cpu::parse(""), Cpu::parse(page));
        assert!((later.of_level_since("load1", &earlier) - 1.75).abs() < 1e-9, "{later:?}");
        assert!((later.process - 3.0).abs() < 1e-9, "{later:?}");
        assert!(later.of_level_since("load2", &earlier).abs() < 1e-9);
    }
}
