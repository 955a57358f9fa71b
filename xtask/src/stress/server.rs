//! The server under the load: its process, its statements and its CPU time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
/// Bounds the page of metrics.
const PAGE_BYTES_MAX: u64 = 16 << 20;

/// A running server. It is killed if it is not stopped.
pub(super) struct Server {
    process: Process,
    data: PathBuf,
    pub(super) host: String,
    pub(super) port: String,
    pub(super) password: String,
    http: String,
}

impl Server {
    /// Starts the server on free ports with an empty data folder in `folder`.
    pub(super) fn start(binary: &Path, folder: &Path, cpus: &Cpus) -> Result<Server, String> {
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
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRLANE_")).for_each(
            |(name, _)| {
                command.env_remove(name);
            },
        );
        command.env("FAIRLANE_ADMIN_PASSWORD", &password);
        let mut process = Process::start(&mut command, &folder.join("server.log"))?;
        let (mut cql, mut http) = (None, None);
        until(READY_TIMEOUT, "a ready server", || {
            let text = process.text()?;
            (cql, http) = (address(&text, "CQL "), address(&text, "HTTP "));
            Ok((cql.is_some() && http.is_some()) || process.has_ended()?)
        })?;
        let address = cql.and_then(|cql| Some((cql.rsplit_once(':')?.0.to_owned(), cql)));
        let (host, cql) = address.ok_or("expected the addresses of the server, got none.")?;
        let port = cql[host.len() + 1..].to_owned();
        Ok(Server { process, data, host, port, password, http: http.unwrap_or_default() })
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
        Ok(Cpu::parse(&get(&self.http, "/metrics").map_err(failed)?))
    }

    /// Stops the server and removes its data.
    pub(super) fn stop(self) -> Result<(), String> {
        self.process.stop()?;
        std::fs::remove_dir_all(&self.data)
            .map_err(|error| format!("{} cannot be removed: {error}.", self.data.display()))
    }
}

/// Returns the address after `protocol` in the line of a ready server.
fn address(text: &str, protocol: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("fairlane is ready: "))?;
    let rest = line.split_once(protocol)?.1;
    Some(rest.split(',').next()?.trim().to_owned())
}

/// Returns 32 random hexadecimal digits.
fn password() -> Result<String, String> {
    let mut bytes = [0u8; 16];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    random.map_err(|error| format!("/dev/urandom cannot be read: {error}."))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Sends one GET request and returns the whole answer.
fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(METRICS_TIMEOUT))?;
    stream.set_write_timeout(Some(METRICS_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(PAGE_BYTES_MAX).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
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
        let mut cpu = Cpu { at: Instant::now(), process: 0.0, levels: BTreeMap::new() };
        for line in page.lines() {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Ok(seconds) = value.parse::<f64>() else { continue };
            if name == "process_cpu_seconds_total" {
                cpu.process = seconds;
            } else if let Some(labels) = name.strip_prefix("fairlane_cpu_seconds_total{") {
                let level = labels.split_once("level=\"").and_then(|(_, rest)| rest.split('"').next());
                *cpu.levels.entry(level.unwrap_or_default().to_owned()).or_default() += seconds;
            }
        }
        cpu
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
    fn addresses_are_read_from_the_line_of_a_ready_server() {
        let text =
            "a warning\nfairlane is ready: CQL 127.0.0.1:44905, HTTP 127.0.0.1:35193, SQL 127.0.0.1:1\n";
        assert_eq!(address(text, "CQL ").as_deref(), Some("127.0.0.1:44905"));
        assert_eq!(address(text, "HTTP ").as_deref(), Some("127.0.0.1:35193"));
        assert_eq!(address("is ready", "CQL "), None);
    }

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
