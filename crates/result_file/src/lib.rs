//! Results of a benchmark. They are printed, and written to a result file if the environment
//! variable [`FOLDER`] names a folder. `cargo xtask benchmarks` renders `docs/benchmarks.md` from
//! the files in `bench/results`, so a number of that page is never typed.
//!
//! 1. A benchmark makes a [`ResultRun`] for each command that repeats a part of it, and adds rows.
//! 2. [`ResultRun::finish`] adds date, commit and machine, and makes a block of lines of them.
//! 3. The block takes the place of the older block of the same command in the section's file. Other
//!    blocks and the head of the file stay.
//!
//! `xtask/src/benchmarks.rs` describes the format, and checks it. This crate is for benchmarks
//! only, which stand outside the lanes.
#![expect(
    clippy::disallowed_methods,
    reason = "benchmarks stand outside the lanes, and may be of `lanes` itself"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Environment variable with the folder of the result files. A relative path begins at the root of
/// the workspace, whatever the current folder: cargo starts a benchmark in the folder of its crate.
pub const FOLDER: &str = "BENCH_RESULTS";

/// Section of `docs/benchmarks.md`, which is one result file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Name of the file without `.txt`. The page has the sections in the order of these names.
    pub file: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Sentence that states the goal.
    pub goal: &'static str,
}

/// Results of one command.
#[derive(Debug)]
pub struct ResultRun {
    section: Section,
    command: String,
    samples: u32,
    note: &'static str,
    rows: Vec<String>,
}

impl ResultRun {
    /// Begins the results of a command, and prints it. `samples` is the number of samples behind
    /// each result.
    #[must_use]
    pub fn new(section: Section, command: impl Into<String>, samples: u32) -> ResultRun {
        let command = command.into();
        println!("{command}");
        ResultRun { section, command, samples: samples.max(1), note: "", rows: Vec::new() }
    }

    /// Adds sentences that explain the results.
    #[must_use]
    pub fn note(mut self, sentences: &'static str) -> ResultRun {
        self.note = sentences;
        self
    }

    /// Adds and prints a result without a goal.
    pub fn row(&mut self, what: &str, measured: &str, unit: &str) {
        self.add(what, measured, unit, "", "");
    }

    /// Adds and prints a result with its goal.
    pub fn row_with_goal(&mut self, what: &str, measured: &str, unit: &str, goal: &str, is_met: bool) {
        self.add(what, measured, unit, goal, if is_met { "met" } else { "missed" });
    }

    fn add(&mut self, what: &str, measured: &str, unit: &str, goal: &str, verdict: &str) {
        println!(
            "  {what:60} {measured} {unit}{}{goal} {verdict}",
            if goal.is_empty() { "" } else { ", goal " }
        );
        let cells = [what, measured, unit, goal, verdict];
        assert!(
            !cells.iter().any(|cell| cell.contains(['|', '\n'])),
            "expected cells without `|`, got {cells:?}"
        );
        self.rows.push(cells.join(" | ").trim_end().to_owned());
    }

    /// Writes the results to the section's file if [`FOLDER`] names a folder.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn finish(self) {
        let Some(folder) = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) else { return };
        let root = root();
        let path = root.join(folder).join(format!("{}.txt", self.section.file));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let date = units::Day((now / 86_400) as i64).to_string();
        let block = self.block(&date, &commit(&root), &machine());
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let text = replaced(&old, &self.section, &self.command, &block);
        if let Err(error) = std::fs::write(&path, text) {
            panic!("{} could not be written: {error}", path.display());
        }
        println!("  (written to {})", path.display());
    }

    /// Returns the block of lines of these results.
    fn block(&self, date: &str, commit: &str, machine: &str) -> String {
        let note = if self.note.is_empty() { String::new() } else { format!("note: {}\n", self.note) };
        let ResultRun { command, samples, rows, .. } = self;
        let rows = rows.join("\n");
        format!(
            "date: {date}\ncommit: {commit}\ncommand: {command}\nmachine: {machine}\nruns: {samples}\n{note}{rows}\n"
        )
    }
}

/// Returns the text of a result file after a block of `command` has been written to it.
fn replaced(old: &str, section: &Section, command: &str, block: &str) -> String {
    let new_head =
        format!("title: {}\ngoal: {}\nmachine: Each run names its machine.", section.title, section.goal);
    let mut parts = old.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let head = parts.next().map_or(new_head, str::to_owned);
    let mut blocks: Vec<&str> = parts.collect();
    let line = format!("command: {command}");
    match blocks.iter_mut().find(|block| block.lines().any(|of_block| of_block == line)) {
        Some(older) => *older = block,
        None => blocks.push(block),
    }
    blocks.iter().fold(head + "\n", |text, block| format!("{text}\n{}\n", block.trim()))
}

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a crate is in crates/NAME").to_owned()
}

/// Returns the checked-out commit, followed by `modified` if files differ from it. Result files and
/// the page made of them do not count.
fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changes =
        ["status", "--porcelain", "--", ".", ":!bench/results", ":!docs/benchmarks.md", ":!docs/benchmarks"];
    match (git(&["rev-parse", "--short=8", "HEAD"]), git(&changes)) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit} modified"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Returns a sentence on the CPUs, the kernel, and the load by other programs and this benchmark.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = read("/proc/loadavg");
    sentence(cpus, &read("/proc/cpuinfo"), &read("/proc/sys/kernel/osrelease"), &load)
}

fn sentence(cpus: usize, cpuinfo: &str, kernel: &str, load: &str) -> String {
    let value = |key: &str| {
        let line =
            cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|found| found.trim() == key));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim())
    };
    let is_virtual = value("flags").split(' ').any(|flag| flag == "hypervisor");
    let kind = if is_virtual { "Virtual machine" } else { "Machine" };
    let load = load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown");
    let kernel = if kernel.trim().is_empty() { "unknown" } else { kernel.trim() };
    format!("{kind}, {cpus} CPUs ({}), kernel {kernel}, load average {load} at the end.", value("model name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: Section = Section { file: "99-a", title: "A title", goal: "A goal." };

    #[test]
    fn block_has_the_lines_of_the_format() {
        let mut run = ResultRun::new(SECTION, "cargo bench -p a", 3).note("A note.");
        run.row("first", "1 · 2", "µs");
        run.row_with_goal("second", "0.5", "", "1", false);
        let expected = "date: 2026-11-25\ncommit: 0a1b2c3d\ncommand: cargo bench -p a\nmachine: M.\nruns: 3\n\
            note: A note.\nfirst | 1 · 2 | µs |  |\nsecond | 0.5 |  | 1 | missed\n";
        assert_eq!(run.block("2026-11-25", "0a1b2c3d", "M."), expected);
    }

    #[test]
    fn block_takes_the_place_of_the_older_one_of_its_command() {
        let head = "title: A title\ngoal: A goal.\nmachine: Each run names its machine.\n";
        let first = replaced("", &SECTION, "a", "command: a\nx | 1 | | |\n");
        assert_eq!(first, format!("{head}\ncommand: a\nx | 1 | | |\n"));
        let second = replaced(&first, &SECTION, "a b", "command: a b\ny | 1 | | |\n");
        assert_eq!(second, format!("{first}\ncommand: a b\ny | 1 | | |\n"));
        let third = replaced(&second, &SECTION, "a", "command: a\nx | 2 | | |\n");
        assert_eq!(third, second.replace("x | 1", "x | 2"));
        let kept = replaced("title: Other\n\ncommand: b\n", &SECTION, "a", "command: a\n");
        assert_eq!(kept, "title: Other\n\ncommand: b\n\ncommand: a\n", "head and other blocks stay");
    }

    #[test]
    fn machine_is_one_sentence() {
        let cpuinfo = "model name\t: AMD EPYC\nflags\t\t: fpu hypervisor\n\nmodel name\t: AMD EPYC\n";
        let expected = "Virtual machine, 2 CPUs (AMD EPYC), kernel 6.18.1, load average 1.50 at the end.";
        assert_eq!(sentence(2, cpuinfo, "6.18.1\n", "1.50 1.20 1.00 1/99 1234\n"), expected);
        let expected = "Machine, 4 CPUs (unknown), kernel unknown, load average unknown at the end.";
        assert_eq!(sentence(4, "", "", ""), expected);
    }
}
