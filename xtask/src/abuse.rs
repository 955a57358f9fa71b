//! Rude clients and random sessions against the built server: the program `abuse` of the workspace
//! does both.
//!
//! `cargo xtask abuse` with flags measures, and `cargo xtask fuzz` searches, for as long as their
//! flags specify. With `--short` the first decides without a clock; that is the step of the test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{BUILD_TIMEOUT, cargo, child, target};

/// Bounds a run whose flags specify its time.
const TOOL_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Bounds the step of the test. An attack that does not end takes a minute of it.
const STEP_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The step of the test: every attack in the short form.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    run(root, &["run", "--short"], STEP_TIMEOUT)
}

/// `cargo xtask abuse FLAGS`. The report goes to the target folder unless a flag names another
/// place.
pub(crate) fn attack(root: &Path, flags: &[&str]) -> Result<(), String> {
    measure(root, "run", "report.html", flags)
}

/// `cargo xtask overload FLAGS`, with a report as well.
pub(crate) fn overload(root: &Path, flags: &[&str]) -> Result<(), String> {
    measure(root, "overload", "overload.html", flags)
}

fn measure(root: &Path, command: &str, page: &str, flags: &[&str]) -> Result<(), String> {
    let page = target::folder(root).join("abuse").join(page).display().to_string();
    let mut words = vec![command];
    words.extend(flags);
    if !flags.iter().any(|flag| ["--short", "--report"].contains(flag)) {
        words.extend(["--report", page.as_str()]);
        println!("      the report: {page}");
    }
    run(root, &words, TOOL_TIMEOUT)
}

/// `cargo xtask fuzz FLAGS`. A replay leaves out the fuzzers of `wire` and `cql`, which have seeds
/// of their own.
pub(crate) fn fuzz(root: &Path, flags: &[&str]) -> Result<(), String> {
    if !flags.contains(&"--sessions") {
        for words in [["-p", "wire", "--test", "protocol", "fuzz"], ["-p", "cql", "--test", "fuzz", ""]] {
            child::run(cargo(root).args(["test", "--release"]).args(words), BUILD_TIMEOUT)?;
        }
    }
    run(root, &[&["fuzz"], flags].concat(), TOOL_TIMEOUT)
}

/// Builds everything, with the features that tests give it, and runs the program.
fn run(root: &Path, words: &[&str], limit: Duration) -> Result<(), String> {
    let build = ["build", "--release", "--workspace", "--bins", "--examples"];
    child::run(cargo(root).args(build), BUILD_TIMEOUT)?;
    let mut command = Command::new(target::folder(root).join("release/abuse"));
    child::run(command.args(words).current_dir(root), limit)
}
