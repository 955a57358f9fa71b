//! A `fairlane serve` for a run, on a temporary folder and free ports. Stopped by its process id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use server_process::{tail, wait_until_ready, without_settings};

use crate::cpu;
use crate::memory::{CONFIGURED, Watch};
use crate::target::{AttackTarget, PASSWORD};

/// Longest start of a server on a fresh folder.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest orderly stop. Then the server is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time in which the server lets statements finish when it stops, as `docs/operations.md`
/// specifies.
const DRAIN: Duration = Duration::from_secs(10);
/// Time after the last client has left in which all its work must end. Twice what a client sees, as
/// the machine may be busy.
pub(crate) const REST_BEGINS: Duration = Duration::from_secs(2);
/// Time in which the server must do nothing.
const REST: Duration = Duration::from_millis(200);
/// Most CPU in that time, as a part of a core: timers and background work.
const REST_CPU_MAX: f64 = 0.4;
/// A certificate and its key, for tests only.
const CERTIFICATE: &str = include_str!("../../../tests/clients/tls/certificate.pem");
const KEY: &str = include_str!("../../../tests/clients/tls/key.pem");
/// Numbers the folders of one process.
static FOLDERS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Conditions under which a server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    /// In the syntax of `--cores`.
    pub(crate) cores: &'a str,
    pub(crate) memory: &'a str,
    /// In the syntax of `--guardrails`.
    pub(crate) guardrails: &'a str,
    /// Most open files. `None`: the limit of this process.
    pub(crate) files_max: Option<u32>,
}

impl Default for Conditions<'_> {
    fn default() -> Self {
        Conditions { cores: "2", memory: CONFIGURED, guardrails: "", files_max: None }
    }
}

/// A running server that is ready.
#[derive(Debug)]
pub(crate) struct AttackedServer {
    child: Child,
    folder: PathBuf,
    pub(crate) target: AttackTarget,
    pub(crate) memory: Watch,
}

impl AttackedServer {
    /// Starts `program`.
    pub(crate) fn start(program: &Path, conditions: &Conditions<'_>) -> Result<AttackedServer, String> {
        let number = FOLDERS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("fairlane-abuse-{}-{number}", std::process::id()));
        let failed = |error: std::io::Error| format!("starting the server failed: {error}");
        std::fs::create_dir(&folder).map_err(failed)?;
        let log = File::create(folder.join("server.log")).map_err(failed)?;
        let Conditions { cores, memory, guardrails, files_max } = *conditions;
        let mut command = limited(program, files_max);
        command.args(["serve", "--cores", cores, "--overprovisioned", "--memory", memory]);
        command.args(["--guardrails", guardrails]);
        command.args(["--disk-probe", "off", "--shard-aware-port", "0", "--sql-listen", "127.0.0.1:0"]);
        for (name, content) in [("certificate.pem", CERTIFICATE), ("key.pem", KEY)] {
            std::fs::write(folder.join(name), content).map_err(failed)?;
        }
        command.args(["--tls-certificate", "certificate.pem", "--tls-key", "key.pem"]);
        command.args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--data-dir", "data"]);
        without_settings(&mut command);
        command.env("FAIRLANE_ADMIN_PASSWORD", PASSWORD).env("RUST_BACKTRACE", "1").current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(failed)?;
        let ready = wait_until_ready(&mut child, READY_TIMEOUT);
        if let Some(target) = ready.and_then(|addresses| AttackTarget::of(&addresses)) {
            let memory = Watch::start(child.id());
            return Ok(AttackedServer { child, folder, target, memory });
        }
        let log = tail(&folder.join("server.log"), 3);
        drop(child.kill());
        drop(child.wait());
        drop(std::fs::remove_dir_all(&folder));
        Err(format!("the server did not get ready: {log}"))
    }

    /// Waits until the server does nothing, as it has no clients. The error is its CPU time after
    /// `within`.
    pub(crate) fn rests(&self, within: Duration) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let before = cpu::of_process(self.pid());
            std::thread::sleep(REST);
            let part = (cpu::of_process(self.pid()) - before) / REST.as_secs_f64();
            if part <= REST_CPU_MAX {
                return Ok(());
            }
            if began.elapsed() > within {
                let (percent, after) = (part * 100.0, within.as_secs());
                return Err(format!("{percent:.0} % of a core in use {after} s after the last client left"));
            }
        }
    }

    /// Sends SIGTERM. The error is a stop that takes longer than [`DRAIN`] and files need, or the
    /// status of a failed one.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        self.check()?;
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|error| error.to_string())?;
        let stopping = Instant::now();
        while stopping.elapsed() < DRAIN + STOP_TIMEOUT {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => return self.check().map_err(|why| format!("the stop failed: {why}")),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(format!("it did not end in {} s after SIGTERM", (DRAIN + STOP_TIMEOUT).as_secs()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Checks that the process lives. The error is how it ended.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.memory.killed() => Err("killed at 4 GiB of memory".to_owned()),
            Ok(Some(status)) => Err(format!("{status}: {}", self.log())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the lines about panics in the log so far, each with the next line, which contains
    /// the message. A panic in a connection's task ends only that connection, so the log is the
    /// only sign.
    pub(crate) fn panics(&self) -> Vec<String> {
        panics(&self.whole_log())
    }

    /// Returns the last line of the log about a task poll beyond the bound. It names the group and
    /// the task. The server logs a poll only if it is the longest so far.
    pub(crate) fn long_poll(&self) -> Option<String> {
        self.whole_log().lines().rev().find(|line| line.contains("long poll:")).map(str::to_owned)
    }

    fn whole_log(&self) -> String {
        let log = std::fs::read(self.folder.join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Copies the log to `to`. The original is removed with the server's folder.
    pub(crate) fn keep_log(&self, to: &Path) -> std::io::Result<()> {
        std::fs::copy(self.folder.join("server.log"), to).map(drop)
    }

    /// Returns the last lines of the log.
    pub(crate) fn log(&self) -> String {
        tail(&self.folder.join("server.log"), 3)
    }
}

/// Returns the command of `program`, with a limit of open files. The shell replaces itself by the
/// program, so that the process id is the server's.
fn limited(program: &Path, files_max: Option<u32>) -> Command {
    let Some(files) = files_max else { return Command::new(program) };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program);
    command
}

impl Drop for AttackedServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let stopping = Instant::now();
        while stopping.elapsed() < STOP_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn panics(log: &str) -> Vec<String> {
    let next = log.lines().skip(1).chain([""]);
    let pairs = log.lines().zip(next).filter(|(line, _)| line.contains("panicked"));
    pairs.map(|(line, next)| format!("{line} {next}").trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::panics;

    #[test]
    fn panic_is_found_with_its_message() {
        let log = "start\nthread 'a' panicked at b.rs:1:\nindex out of bounds\nend\nc panicked";
        assert_eq!(panics(log), ["thread 'a' panicked at b.rs:1: index out of bounds", "c panicked"]);
    }
}
