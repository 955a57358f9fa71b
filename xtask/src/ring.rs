//! `cargo xtask ring`: figures and failures of fronts before three nodes of Apache Cassandra. It
//! builds the program, and runs `bench/ring` in the environment of the client tests, which knows
//! how to start the nodes. Without Java and Maven nothing is tried.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{BUILD_TIMEOUT, TaskResult, cargo, child, clients, target};

/// Timeout of a run, which ends itself 90 minutes after its soak, of an hour unless more is asked
/// for. It may download the nodes before.
const RUN_TIMEOUT: Duration = Duration::from_secs(8 * 3600);

/// `cargo xtask ring FLAGS`.
pub(crate) fn run(root: &Path, flags: &[&str]) -> TaskResult {
    // With SQL, for scans by SQL in a front, and for the node of its own kind that `cpu` measures.
    child::run(cargo(root).args(["build", "--release", "--package", "fairlane"]), BUILD_TIMEOUT)?;
    let mut command = Command::new(clients::python(root)?);
    command.arg(root.join("bench/ring")).args(flags).current_dir(root);
    command.env("PYTHONPATH", root.join("tests/clients")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("FAIRLANE_BIN", target::folder(root).join("release/fairlane"));
    child::run(&mut command, RUN_TIMEOUT)
}
