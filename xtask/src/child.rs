//! Child processes with a time limit. After it, the child and its descendants are killed by process
//! id.
//!
//! Children stay in our process group, so that Ctrl-C at a terminal reaches them too.

use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Interval between two checks of a child. Short beside any step, and cheap.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum of rounds that search for descendants. A round finds processes started before the
/// previous one stopped their parents. Two are usual.
const KILL_ROUNDS_MAX: usize = 10;

/// Runs a command to its end.
///
/// # Errors
/// It cannot start, fails, or takes longer than `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<(), String> {
    let name = line(command);
    let mut child = command.spawn().map_err(|error| format!("`{name}` could not be started: {error}."))?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("`{name}` ended with {status}.")),
            Ok(None) if Instant::now() < deadline => sleep(CHECK_INTERVAL),
            Ok(None) => {
                kill(&mut child);
                return Err(format!("`{name}` was killed: it took longer than {} s.", limit.as_secs()));
            }
            Err(error) => {
                kill(&mut child);
                return Err(format!("`{name}` could not be waited for: {error}."));
            }
        }
    }
}

/// Returns the command line, without the environment.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Kills a child and its descendants. After the death of a parent, the kernel gives its children
/// another one. So find them first:
///
/// 1. Stop the child, so that it starts no more of them.
/// 2. Find its descendants and stop them too, until no new ones are found.
/// 3. Kill them all.
pub(crate) fn kill(child: &mut Child) {
    let mut family = vec![child.id()];
    for _ in 0..KILL_ROUNDS_MAX {
        signal("-STOP", &family);
        let found = descendants(child.id(), &parents());
        if found.iter().all(|pid| family.contains(pid)) {
            break;
        }
        family.extend(found);
    }
    signal("-KILL", &family);
    // Both fail only if the process has ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends a signal by the `kill` of the shell, because some systems have no program of that name.
/// Ignores processes that have ended.
pub(crate) fn signal(signal: &str, pids: &[u32]) {
    let mut command = Command::new("sh");
    command.args(["-c", "kill \"$@\" 2>/dev/null", "sh", signal]).args(pids.iter().map(u32::to_string));
    let _ = command.status();
}

/// Returns each process with its parent, from `/proc`.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, server_process::kernel::parent(pid)?))).collect()
}

/// Returns the descendants of `pid`, in any order.
fn descendants(pid: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        let children = parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid);
        let new: Vec<u32> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn success_and_failure_are_told_apart() {
        assert_eq!(run(&mut shell("exit 0"), Duration::from_secs(30)), Ok(()));
        let failed = run(&mut shell("exit 3"), Duration::from_secs(30)).unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
        let missing = run(&mut Command::new("/no/such/program"), Duration::from_secs(30)).unwrap_err();
        assert!(missing.contains("could not be started"), "{missing}");
    }

    #[test]
    fn a_late_child_is_killed_with_its_own_children() {
        // An argument of sleep that no other process of the machine has.
        let length = 100_000_000 + u64::from(std::process::id());
        let script = format!("sleep {length} & sleep {length}; true");
        let late = run(&mut shell(&script), Duration::from_millis(300)).unwrap_err();
        assert!(late.contains("was killed"), "{late}");
        // The kernel ends them a little later. The bound is for a failure.
        let words_of_sleep = format!("sleep\0{length}\0");
        let gone = (0..1000).any(|_| {
            sleep(CHECK_INTERVAL);
            !parents().into_iter().any(|(pid, _)| {
                let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words == words_of_sleep.as_bytes()
            })
        });
        assert!(gone, "a grandchild was not killed");
    }

    #[test]
    fn descendants_are_found_at_any_depth() {
        let parents = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 9)];
        assert_eq!(descendants(2, &parents), [3, 4]);
        assert_eq!(descendants(6, &parents), []);
    }
}
