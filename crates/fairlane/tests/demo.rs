//! The demo as a user at a terminal sees it: a report from earlier results, and an end by Ctrl-C,
//! after which no processes and files are left.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::Folder;

/// Time limit of one line and of the end, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn demo(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRLANE_")) {
        command.env_remove(name);
    }
    // The demo creates its files in the temporary folder of its environment.
    command.arg("demo").args(args).current_dir(folder.path()).env("TMPDIR", folder.path());
    command
}

/// A running demo, killed if the test fails.
struct Running {
    child: Child,
    /// Lines of standard error.
    lines: Receiver<String>,
}

impl Running {
    fn start(folder: &Folder, args: &[&str]) -> Running {
        let mut command = demo(folder, args);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = child.stderr.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _test_ended = sender.send(line);
            }
        });
        Running { child, lines }
    }

    /// Waits for a line with these words.
    fn wait_for(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(words) {
                return;
            }
            others.push(line);
        }
        panic!("expected a line with `{words}`, got {others:#?}");
    }

    fn interrupt(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the demo did not end in {PATIENCE:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGTERM first: a demo that is killed cannot end its children.
        let _gone = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns the command lines of processes that contain the path of a folder.
fn processes_with(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

/// Interrupts the demo after a line with these words. Checks that nothing of it is left.
fn check_interrupted(name: &str, args: &[&str], words: &str) {
    let folder = Folder::empty(name);
    let mut running = Running::start(&folder, args);
    running.wait_for(words);
    let serves = args[0] != "compaction";
    assert_eq!(!processes_with(&folder).is_empty(), serves, "its server, if it has one, runs on the folder");
    assert_eq!(running.interrupt().code(), Some(130));
    assert_eq!(processes_with(&folder), Vec::<String>::new(), "processes are left");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("the folder").flatten().map(|e| e.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "files are left");
}

#[test]
fn demo_interrupted_while_filling_tables_leaves_nothing() {
    check_interrupted("filling", &["--quick"], "rows");
}

#[test]
fn demo_interrupted_during_both_loads_leaves_nothing() {
    check_interrupted("loads", &["--quick"], "the batch load joins");
}

#[test]
fn demo_interrupted_during_the_capacity_search_leaves_nothing() {
    check_interrupted("flush", &["flush", "--quick"], "capacity for writes");
}

#[test]
fn demo_interrupted_before_compactions_leaves_nothing() {
    check_interrupted("compaction", &["compaction", "--quick"], "incremental:");
}

#[test]
fn demo_interrupted_while_loading_queried_tables_leaves_nothing() {
    check_interrupted("olap", &["olap", "--quick"], "in the shape of ClickBench");
}

#[test]
fn demo_interrupted_during_commands_in_order_leaves_nothing() {
    check_interrupted("batching", &["batching", "--quick"], "100 000 keys:");
}

#[test]
fn demo_interrupted_while_overloaded_leaves_nothing() {
    check_interrupted("overload", &["overload", "--quick"], "closed loop, 16 in flight");
}

/// The words follow the start of the front, so that both servers run.
#[test]
fn demo_interrupted_in_front_of_a_node_leaves_nothing() {
    check_interrupted("cluster", &["cluster", "--quick"], "capacity for single-row reads");
}

#[test]
fn demo_interrupted_during_queries_leaves_nothing() {
    let args = ["olap", "--quick", "--only", "shares", "--rows", "3000", "--seconds", "60"];
    check_interrupted("queries", &args, "dashboard:");
}

#[test]
fn demo_runs_to_its_end_and_writes_its_results() {
    let folder = Folder::empty("to-the-end");
    let args = ["olap", "--quick", "--only", "shares", "--rows", "3000", "--seconds", "1"];
    let output = demo(&folder, &[&args[..], &["--report", "r.html", "--json", "r.json"]].concat()).output();
    let output = output.expect("the binary");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(processes_with(&folder), Vec::<String>::new(), "processes are left");
    let results = std::fs::read_to_string(folder.join("r.json")).expect("results");
    let results: serde_json::Value = serde_json::from_str(&results).expect("JSON");
    let compared = results["comparison"].as_array().expect("results that were compared");
    // Both clients were answered: the ratio of their rates is a number above zero.
    assert!(!compared.is_empty());
    for result in compared {
        assert!(result["value"].as_f64().is_some_and(|ratio| ratio > 0.0), "{result}");
    }
    let page = std::fs::read_to_string(folder.join("r.html")).expect("a report");
    assert!(page.contains("<svg") && page.contains("dashboard"), "a figure of the clients");
}

#[test]
fn report_is_rendered_from_earlier_results() {
    let folder = Folder::empty("from");
    let figures =
        r#"{"version": "0.1.0", "quick": true, "machine": {"server_cores": [0], "load_cores": [1]}}"#;
    std::fs::write(folder.join("a.json"), figures).expect("a file");
    let output = demo(&folder, &["--from", "a.json", "--report", "a.html"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = std::fs::read_to_string(folder.join("a.html")).expect("a report");
    assert!(page.starts_with("<!doctype html>") && page.contains("fairlane 0.1.0"));
}

#[test]
fn invalid_results_are_refused_in_one_line() {
    let folder = Folder::empty("refused");
    std::fs::write(folder.join("a.json"), "[1, 2").expect("a file");
    for file in ["a.json", "nothing.json"] {
        let output = demo(&folder, &["--from", file]).output().expect("the binary");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && message.contains(file), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(!folder.join("report.html").exists());
}
