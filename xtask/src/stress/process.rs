//! A child process with its output in a file, so that no reader has to keep up with it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::child;
use crate::files::read;

/// Interval between two checks. Short beside the seconds that are measured.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of a process after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A child process. It is killed if it still runs when it is dropped.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with its output and its errors in `log`.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Process, String> {
        let failed = |error| format!("{} cannot be written: {error}.", log.display());
        let file = File::create(log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|error| format!("`{name}` could not be started: {error}."))?;
        Ok(Process { child, log: log.to_owned() })
    }

    /// Returns the output until now.
    pub(super) fn text(&self) -> Result<String, String> {
        read(&self.log)
    }

    /// Returns true after a successful end.
    ///
    /// # Errors
    /// The process failed. The text contains its last exceptions.
    pub(super) fn has_ended(&mut self) -> Result<bool, String> {
        match self.child.try_wait() {
            Ok(None) => Ok(false),
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => {
                let text = self.text().unwrap_or_default();
                let reasons = text.lines().filter(|line| !line.trim_start().starts_with("at "));
                let lines: Vec<&str> = reasons.filter(|line| !line.trim().is_empty()).collect();
                let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n  ");
                Err(format!("a process ended with {status}; all of {}:\n  {last}", self.log.display()))
            }
            Err(error) => Err(format!("a process could not be waited for: {error}.")),
        }
    }

    /// Waits for the successful end.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<(), String> {
        let log = self.log.display().to_string();
        until(limit, &format!("the end of the process of {log}"), || self.has_ended())
    }

    /// Ends the process by SIGTERM, and waits for a successful end.
    pub(super) fn stop(mut self) -> Result<(), String> {
        child::signal("-TERM", &[self.child.id()]);
        self.wait(STOP_TIMEOUT)
    }
}

/// Lines of a failed process in the error.
const LINES_SHOWN: usize = 8;

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            child::kill(&mut self.child);
        }
    }
}

/// Calls `done` until it returns true.
///
/// # Errors
/// Those of `done`, or it takes longer than `limit`. `what` is the expected event.
pub(super) fn until(
    limit: Duration,
    what: &str,
    mut done: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + limit;
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("expected {what} within {} s, got nothing.", limit.as_secs()));
        }
        sleep(CHECK_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &str) -> (Process, PathBuf) {
        let log = std::env::temp_dir().join(format!("xtask-{}-{log}", std::process::id()));
        (Process::start(Command::new("sh").args(["-c", script]), &log).expect("sh starts"), log)
    }

    #[test]
    fn failed_process_shows_its_errors() {
        let (mut process, log) =
            shell("echo first; echo '\tat a.b.c' >&2; echo reason >&2; exit 3", "failed");
        let failed = process.wait(Duration::from_secs(30)).unwrap_err();
        assert!(failed.contains("exit status: 3") && failed.ends_with("first\n  reason"), "{failed}");
        std::fs::remove_file(log).expect("the log exists");
    }

    #[test]
    fn process_ends_by_sigterm() {
        let (process, log) = shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", "stopped");
        until(Duration::from_secs(30), "a line", || Ok(process.text()?.contains("ready"))).unwrap();
        assert_eq!(process.stop(), Ok(()));
        std::fs::remove_file(log).expect("the log exists");
    }

    #[test]
    fn missing_event_is_named() {
        let late = until(Duration::ZERO, "an event", || Ok(false)).unwrap_err();
        assert_eq!(late, "expected an event within 0 s, got nothing.");
    }
}
