//! `cargo xtask simulate`: seeded histories of the storage engine and of CQL, each against a
//! model, and overloads of a core with the limiter.
//!
//! The histories are tests, and variables of the environment choose their seeds. This builds those
//! tests alone, optimized and without the SQL engine, and runs them.

use std::path::Path;
use std::time::Duration;

use crate::{BUILD_TIMEOUT, TaskResult, cargo, child};

/// A simulation: its name, and the test that runs it. An empty name stands for all of its target.
struct Simulation {
    name: &'static str,
    package: &'static str,
    target: &'static [&'static str],
    test: &'static str,
}

const SIMULATIONS: [Simulation; 4] = [
    Simulation {
        name: "shard",
        package: "storage",
        target: &["--lib"],
        test: "random_crashes_keep_acknowledged_writes_whole",
    },
    Simulation {
        name: "machine",
        package: "storage",
        target: &["--lib"],
        test: "machine_loses_nothing_acknowledged_and_shows_nothing_half",
    },
    Simulation {
        name: "cql",
        package: "embedded",
        target: &["--test", "cql_model"],
        test: "random_statements_are_answered_as_the_model_does",
    },
    Simulation { name: "limiter", package: "sched", target: &["--test", "concurrency"], test: "" },
];

/// Seeds of each simulation without a flag.
const SEEDS: &str = "1000";

/// A hundred thousand seeds take this long.
const RUN_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the simulations.
pub(crate) fn simulate(root: &Path, flags: &[&str]) -> TaskResult {
    let (mut variables, mut only) = (vec![("FAIRLANE_SEEDS", SEEDS)], None);
    for pair in flags.chunks(2) {
        let [flag, value] = pair else { return Err(format!("expected a value after `{}`", pair[0])) };
        match *flag {
            "--only" if SIMULATIONS.iter().any(|own| own.name == *value) => only = Some(*value),
            "--only" => {
                let names = SIMULATIONS.map(|own| own.name).join(", ");
                return Err(format!("expected one of {names}, got `{value}`"));
            }
            "--seeds" | "--from" | "--seed" if value.parse::<u64>().is_err() => {
                return Err(format!("expected a number after `{flag}`, got `{value}`"));
            }
            "--seeds" => variables.push(("FAIRLANE_SEEDS", value)),
            "--from" => variables.push(("FAIRLANE_FROM", value)),
            "--seed" => variables.push(("FAIRLANE_SEED", value)),
            _ => return Err(format!("expected --seeds, --from, --seed or --only, got `{flag}`")),
        }
    }
    for simulation in SIMULATIONS.iter().filter(|own| only.is_none_or(|only| own.name == only)) {
        println!("{}: {} {}", simulation.name, simulation.target.join(" "), simulation.test);
        let mut test = cargo(root);
        test.args(["test", "--release", "-p", simulation.package]).args(simulation.target);
        child::run(test.arg("--no-run"), BUILD_TIMEOUT)?;
        let mut test = cargo(root);
        test.args(["test", "--release", "-p", simulation.package]).args(simulation.target);
        test.args(["--", "--nocapture"]).args(Some(simulation.test).filter(|test| !test.is_empty()));
        test.envs(variables.iter().copied());
        child::run(&mut test, RUN_TIMEOUT)?;
    }
    Ok(())
}
