//! The demo as somebody at a terminal knows it: a report from earlier figures, and an end by Ctrl-C in the middle,
//! after which nothing is left, neither processes nor files.
#![expect(clippy::disallowed_methods, reason = "a client, which stands outside the lanes")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long one line, or the end, may take on a busy machine before a test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary folder, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("fairlane-demo-test-{}-{name}", std::process::id()));
        let _none_before = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a temporary folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn demo(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRLANE_")) {
        command.env_remove(name);
    }
    // What the demo makes of its own goes into the temporary folder of its environment.
    command.arg("demo").args(args).current_dir(&folder.0).env("TMPDIR", &folder.0);
    command
}

/// A demo under way; killed if a test fails while it runs.
struct Running {
    child: Child,
    said: Receiver<String>,
}

impl Running {
    fn start(folder: &Folder, args: &[&str]) -> Running {
        let mut command = demo(folder, args);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let stderr = child.stderr.take().expect("a pipe");
        let (say, said) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _nobody_listens = say.send(line);
            }
        });
        Running { child, said }
    }

    /// Waits for a line with these words.
    fn hear(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        while let Ok(line) = self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if line.contains(words) {
                return;
            }
            heard.push(line);
        }
        panic!("never heard `{words}`, but: {heard:#?}");
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

/// Command lines of processes that name this folder.
fn naming(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

/// Interrupts the demo once it has said these words; nothing of it may be left.
fn check_interrupted(name: &str, args: &[&str], words: &str) {
    let folder = Folder::new(name);
    let mut running = Running::start(&folder, args);
    running.hear(words);
    let serves = args[0] != "compaction";
    assert_eq!(!naming(&folder.0).is_empty(), serves, "its server, if it has one, runs on the folder");
    assert_eq!(running.interrupt().code(), Some(130));
    assert_eq!(naming(&folder.0), Vec::<String>::new(), "processes are left");
    let left: Vec<_> =
        std::fs::read_dir(&folder.0).expect("the folder").flatten().map(|e| e.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new(), "files are left");
}

#[test]
fn interrupted_while_it_fills_the_tables() {
    check_interrupted("filling", &["--quick"], "rows");
}

#[test]
fn interrupted_while_both_loads_run() {
    check_interrupted("loads", &["--quick"], "the batch load joins");
}

#[test]
fn interrupted_while_it_looks_for_the_write_capacity() {
    check_interrupted("flush", &["flush", "--quick"], "capacity for writes");
}

#[test]
fn interrupted_while_it_writes_what_is_to_be_compacted() {
    check_interrupted("compaction", &["compaction", "--quick"], "incremental:");
}

#[test]
fn interrupted_while_it_fills_what_is_queried() {
    check_interrupted("olap", &["olap", "--quick"], "in the shape of ClickBench");
}

#[test]
fn interrupted_while_two_clients_run_queries() {
    let args = ["olap", "--quick", "--only", "shares", "--rows", "3000", "--seconds", "60"];
    check_interrupted("queries", &args, "first:");
}

#[test]
fn earlier_figures_make_a_report() {
    let folder = Folder::new("from");
    let figures =
        r#"{"version": "0.1.0", "quick": true, "machine": {"server_cores": [0], "load_cores": [1]}}"#;
    std::fs::write(folder.file("a.json"), figures).expect("a file");
    let output = demo(&folder, &["--from", "a.json", "--report", "a.html"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = std::fs::read_to_string(folder.file("a.html")).expect("a report");
    assert!(page.starts_with("<!doctype html>") && page.contains("fairlane 0.1.0"));
}

#[test]
fn what_are_no_figures_is_refused_in_a_sentence() {
    let folder = Folder::new("refused");
    std::fs::write(folder.file("a.json"), "[1, 2").expect("a file");
    for file in ["a.json", "nothing.json"] {
        let output = demo(&folder, &["--from", file]).output().expect("the binary");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(file), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!folder.file("report.html").exists());
}
