//! Fronts before three nodes of Apache Cassandra: `cargo xtask ring` has figures and failures,
//! `cargo xtask spark` runs Apache Spark through two of them. Both build the program with SQL, and
//! run in the environment of the client tests, which knows how to start the nodes. Without Java and
//! Maven nothing is tried.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{BUILD_TIMEOUT, TaskResult, cargo, child, clients, target};

/// Timeout of a run. A run ends itself after 90 minutes, and the minutes of a soak more (60 unless
/// asked). It may download the nodes before.
const RUN_TIMEOUT: Duration = Duration::from_secs(8 * 3600);

/// `cargo xtask ring FLAGS`.
pub(crate) fn run(root: &Path, flags: &[&str]) -> TaskResult {
    program(root, "bench/ring", flags)
}

/// `cargo xtask spark`.
pub(crate) fn spark(root: &Path, flags: &[&str]) -> TaskResult {
    program(root, "tests/clients/spark", flags)
}

/// Builds the program, and runs a folder with a program of Python.
fn program(root: &Path, folder: &str, flags: &[&str]) -> TaskResult {
    child::run(cargo(root).args(["build", "--release", "--package", "fairlane"]), BUILD_TIMEOUT)?;
    let mut command = Command::new(clients::python(root)?);
    command.arg(root.join(folder)).args(flags).current_dir(root);
    command.env("PYTHONPATH", root.join("tests/clients")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("FAIRLANE_BIN", target::folder(root).join("release/fairlane"));
    child::run(&mut command, RUN_TIMEOUT)
}
