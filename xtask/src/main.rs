//! `cargo xtask`: tasks of developers. `cargo xtask test` runs every step of [`STEPS`] in order, up
//! to the first that fails. `cargo xtask NAME` runs one step. The help is written from the same
//! table.
//!
//! Its only dependency is a parser of Rust, so that it is built in seconds.

#![expect(
    clippy::disallowed_methods,
    reason = "a tool for developers: it runs on no lane, and std is what it uses"
)]

mod abuse;
mod benchmarks;
mod child;
mod circles;
mod clients;
mod debian;
mod docs;
mod files;
mod language;
mod layering;
mod report;
mod ring;
mod simulate;
mod sizes;
mod stress;
mod target;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Ok, or the fault, in sentences for a reader of the log.
type TaskResult = Result<(), String>;

/// One step of `cargo xtask test`.
struct TestStep {
    name: &'static str,
    what: &'static str,
    /// It compiles the workspace, and needs the target folder.
    builds: bool,
    run: fn(&Path) -> TaskResult,
}

/// In the order of `cargo xtask test`.
const STEPS: [TestStep; 13] = [
    TestStep {
        name: "layering",
        what: "crates depend only on rows below theirs",
        builds: false,
        run: layering::check,
    },
    TestStep {
        name: "circles",
        what: "few files of a crate import each other",
        builds: false,
        run: circles::check,
    },
    TestStep { name: "fmt", what: "cargo fmt --all --check", builds: false, run: fmt },
    TestStep {
        name: "clippy",
        what: "cargo clippy on all targets, warnings are errors",
        builds: true,
        run: clippy,
    },
    TestStep {
        name: "without-sql",
        what: "cargo clippy on the program without SQL",
        builds: true,
        run: without_sql,
    },
    TestStep { name: "cargo-test", what: "cargo test on the workspace", builds: true, run: cargo_test },
    TestStep { name: "docs", what: "the paths that documents name exist", builds: false, run: docs::check },
    TestStep {
        name: "benchmarks",
        what: "docs/benchmarks.md and its pages are rendered from bench/results",
        builds: false,
        run: benchmarks::check,
    },
    TestStep { name: "sizes", what: "no source file has too many lines", builds: false, run: sizes::check },
    TestStep {
        name: "language",
        what: "comments follow the rules of writing",
        builds: false,
        run: language::check,
    },
    TestStep {
        name: "clients",
        what: "drivers, cqlsh, tools and the examples of the documents against the built server",
        builds: true,
        run: clients::check,
    },
    TestStep {
        name: "abuse",
        what: "rude clients against the built server, decided without a clock",
        builds: true,
        run: abuse::check,
    },
    TestStep {
        name: "report",
        what: "the demo's report in a headless browser",
        builds: true,
        run: report::check,
    },
];

/// A tool that developers run by hand. It has flags.
struct Tool {
    name: &'static str,
    flags: &'static str,
    what: &'static str,
    /// It compiles the workspace, and needs the target folder.
    builds: bool,
    run: fn(&Path, &[&str]) -> TaskResult,
}

/// The tools.
const TOOLS: [Tool; 8] = [
    Tool {
        name: "benchmarks",
        flags: "[--check]",
        what: "writes docs/benchmarks.md and its pages from bench/results",
        builds: false,
        run: benchmarks::run,
    },
    Tool {
        name: "abuse",
        flags: "[--short] [--only NAME] [--seconds N]",
        what: "rude clients beside probes: measures, and draws what was measured",
        builds: true,
        run: abuse::attack,
    },
    Tool {
        name: "overload",
        flags: "[--short] [--seconds N]",
        what: "more requests than one core can answer: goodput, and whether the administrator gets in",
        builds: true,
        run: abuse::overload,
    },
    Tool {
        name: "fuzz",
        flags: "[--seconds N] [--seed N] [--sessions N] [--listener cql|sql|http] [--go-on]",
        what: "the fuzzers of wire and cql, then seeded random sessions at all listeners",
        builds: true,
        run: abuse::fuzz,
    },
    Tool {
        name: "simulate",
        flags: "[--seeds N] [--from N] [--seed N] [--only shard|machine|cql|limiter]",
        what: "seeded histories of storage and CQL against models (failures are made shorter), and overloads",
        builds: true,
        run: simulate::simulate,
    },
    Tool {
        name: "ring",
        flags: "[--quick] [--only NAME] [--minutes N] [--cells FILE] [--dry]",
        what: "fronts before three nodes of Cassandra: figures and failures for bench/results, an hour (Java, Maven)",
        builds: true,
        run: ring::run,
    },
    Tool {
        name: "spark",
        flags: "[--only NAME]",
        what: "Apache Spark through two fronts before three nodes of Cassandra, its answers beside ours (Java, Maven)",
        builds: true,
        run: ring::spark,
    },
    Tool {
        name: "stress",
        flags: "[--quick] [--seconds N] [--cores N] [--out FILE]",
        what: "a published experiment with cassandra-stress, ratios beside the published ones (Java, Maven)",
        builds: true,
        run: stress::run,
    },
];

/// Timeout of a build. A first build of everything on two slow cores takes a large part of it.
const BUILD_TIMEOUT: Duration = Duration::from_secs(75 * 60);
/// Timeout of the tests, which run for four minutes after the build.
const TESTS_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const FMT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let steps: Vec<&TestStep> = match words[..] {
        ["--help" | "-h" | "help"] => {
            print!("{}", help());
            return ExitCode::SUCCESS;
        }
        ["test"] => STEPS.iter().collect(),
        [name, ref flags @ ..] if TOOLS.iter().any(|tool| tool.name == name) => {
            let tool = TOOLS.iter().find(|tool| tool.name == name).expect("it was just found");
            let ran = claimed(tool.builds, |root| (tool.run)(root, flags));
            return ran.map_or_else(|reason| failed(&reason), |()| ExitCode::SUCCESS);
        }
        [name] => STEPS.iter().filter(|step| step.name == name).collect(),
        _ => Vec::new(),
    };
    if steps.is_empty() {
        eprint!("{}", help());
        return ExitCode::from(2);
    }
    let builds = steps.iter().any(|step| step.builds);
    match claimed(builds, |root| Ok(run(root, &steps))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => failed(&reason),
    }
}

/// Runs `work` in the root of the repository, with the target folder if it `builds`.
fn claimed<T>(builds: bool, work: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let root = root();
    let _claimed = builds.then(|| target::claim(&root)).transpose()?;
    work(&root)
}

fn failed(reason: &str) -> ExitCode {
    println!("\nFAILED: {reason}");
    ExitCode::FAILURE
}

/// Runs the steps and prints their names. Returns true if all passed.
fn run(root: &Path, steps: &[&TestStep]) -> bool {
    let started = Instant::now();
    for (index, step) in steps.iter().enumerate() {
        println!("[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.what);
        let step_started = Instant::now();
        if let Err(reason) = (step.run)(root) {
            println!(
                "\nFAILED at {}: {reason}\nTo run this step alone: cargo xtask {}{}",
                step.name,
                step.name,
                TOOLS.iter().find(|tool| tool.name == step.name).map_or_else(String::new, first_flag)
            );
            return false;
        }
        println!("      {} passed in {:.1} s", step.name, step_started.elapsed().as_secs_f64());
    }
    println!("Everything passed in {:.0} s.", started.elapsed().as_secs_f64());
    true
}

/// The first flag of a tool, which makes it do what the step of its name does.
fn first_flag(tool: &Tool) -> String {
    tool.flags.split(['[', ']']).nth(1).map_or_else(String::new, |flag| format!(" {flag}"))
}

fn help() -> String {
    let mut text =
        String::from("cargo xtask test    every step below, in this order, up to the first that fails\n\n");
    for step in &STEPS {
        text += &format!("cargo xtask {:<12}{}\n", step.name, step.what);
    }
    text += "\n";
    for tool in &TOOLS {
        text += &format!("cargo xtask {} {}\n    {}\n", tool.name, tool.flags, tool.what);
    }
    text
}

fn fmt(root: &Path) -> TaskResult {
    child::run(cargo(root).args(["fmt", "--all", "--check"]), FMT_TIMEOUT)
}

fn clippy(root: &Path) -> TaskResult {
    let args = ["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
    child::run(cargo(root).args(args), BUILD_TIMEOUT)
}

/// Checks the program of README's first command, and a package without SQL.
fn without_sql(root: &Path) -> TaskResult {
    let args = ["clippy", "--release", "--package", "fairlane", "--no-default-features"];
    let deny = ["--", "-D", "warnings"];
    child::run(cargo(root).args(args).args(["--features", "demo"]).args(deny), BUILD_TIMEOUT)?;
    child::run(cargo(root).args(args).args(deny), BUILD_TIMEOUT)
}

/// Runs every test, so that one run names all failures.
fn cargo_test(root: &Path) -> TaskResult {
    let test = ["test", "--release", "--workspace"];
    child::run(cargo(root).args(test).arg("--no-run"), BUILD_TIMEOUT)?;
    child::run(cargo(root).args(test).arg("--no-fail-fast"), TESTS_TIMEOUT)
}

/// Returns a command of the cargo that runs this program, in the root of the repository.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).env("CARGO_TARGET_DIR", target::folder(root));
    std::env::vars_os().filter(|(name, _)| is_of_package(name)).for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}

/// Returns true for variables by which cargo describes the running package. Build scripts of some
/// dependencies read them. Passed on, they would make cargo build those dependencies again after
/// each change between a call by a person and a call by this program.
fn is_of_package(variable: &std::ffi::OsStr) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Returns the root of the repository: the parent of this crate's folder, as cargo reports it now.
/// The folder may have moved since the build.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let here = PathBuf::from(here);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_a_run() {
        let passes = TestStep { name: "passes", what: "", builds: false, run: |_| Ok(()) };
        let fails = TestStep { name: "fails", what: "", builds: false, run: |_| Err("as it should.".into()) };
        let unreached =
            TestStep { name: "unreached", what: "", builds: false, run: |_| panic!("ran after a failure") };
        assert!(run(Path::new("/"), &[&passes, &passes]));
        assert!(!run(Path::new("/"), &[&passes, &fails, &unreached]));
    }

    #[test]
    fn tools_of_a_step_have_a_first_flag() {
        let tools = TOOLS.iter().filter(|tool| STEPS.iter().any(|step| step.name == tool.name));
        let flags: Vec<String> = tools.map(first_flag).collect();
        assert_eq!(flags, [" --check", " --short"]);
    }

    #[test]
    fn help_names_every_step() {
        let help = help();
        assert!(STEPS.iter().all(|step| help.contains(&format!("cargo xtask {}", step.name))), "{help}");
        assert!(TOOLS.iter().all(|tool| help.contains(tool.flags)), "{help}");
    }
}
