//! `cargo xtask stress`: the load generator of Apache Cassandra against fairlane, with the
//! published experiment on service levels.
//!
//! 1. Maven fetches `cassandra-stress` once. Without Java and Maven nothing is tried.
//! 2. The server gets half of the CPUs and the loads the other half.
//! 3. The tool creates the table and fills it. Roles and levels are created by a driver, because
//!    the tool runs no statements.
//! 4. One unlimited load shows the capacity. The throttle of the interactive load is a fraction of
//!    it.
//! 5. The interactive load runs alone, beside the batch load in one level, and with a level each.
//!    Then two and three unlimited loads share the server by their levels.
//!
//! [`compare::notes`] names the options that are as published. The others are the tool's defaults,
//! and all loads read. Results are ratios of stages of one run. A run decides nothing about shares
//! unless the server is busy: the tool takes many times the CPU of the server for an operation, so
//! the server needs few of many CPUs.

mod compare;
mod cpus;
mod output;
mod process;
mod server;
mod stages;
mod tool;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use compare::{ALONE, BATCH_ALONE, LOADS, OLAP, OLTP, ONE_LEVEL, SHARES, TWO_LEVELS};
use cpus::Cpus;
use output::Results;
use server::StressedServer;
use stages::{Measured, Stage};
use tool::{Load, Stress};

use crate::{TaskResult, clients, target};

/// Published threads of the interactive load, and of every other one.
const OLTP_THREADS: usize = 200;
const OLAP_THREADS: usize = 900;
/// Throttle of the interactive load, as a fraction of the rate of one unlimited load.
const THROTTLE_PART: f64 = 0.2;
/// Length of a stage, seconds, and rows of the table: in full and with `--quick`.
const SECONDS: [u64; 2] = [60, 3];
const ROWS: [u64; 2] = [200_000, 2_000];
/// Least rate of the prefill, which bounds its time. The tool takes 0.3 ms of CPU for a row on a
/// busy machine before its code is compiled (2026-11-28).
const PREFILL_PER_S_MIN: u64 = 200;
/// Timeout of the prefill besides: starting Java, and three seconds that the tool sleeps.
const PREFILL_TIMEOUT_S: u64 = 180;

#[derive(Debug, PartialEq)]
struct StressOptions {
    is_quick: bool,
    seconds: u64,
    /// CPUs of the server; `None`: half.
    cores: Option<usize>,
    out: Option<PathBuf>,
}

impl StressOptions {
    fn parse(flags: &[&str]) -> Result<StressOptions, String> {
        let mut is_quick = false;
        let mut seconds = None;
        let mut cores = None;
        let mut out = None;
        let mut words = flags.iter();
        while let Some(flag) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("expected a value after `{flag}`"));
            let number = |value: &str| match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("expected a number above 0 after `{flag}`, got `{value}`")),
            };
            match *flag {
                "--quick" => is_quick = true,
                "--seconds" => seconds = Some(number(value()?)?),
                "--cores" => cores = Some(number(value()?)? as usize),
                "--out" => out = Some(PathBuf::from(value()?)),
                _ => return Err(format!("expected --quick, --seconds, --cores or --out, got `{flag}`")),
            }
        }
        Ok(StressOptions { is_quick, seconds: seconds.unwrap_or(SECONDS[usize::from(is_quick)]), cores, out })
    }

    fn rows(&self) -> u64 {
        ROWS[usize::from(self.is_quick)]
    }
}

/// `cargo xtask stress FLAGS`.
pub(crate) fn run(root: &Path, flags: &[&str]) -> TaskResult {
    let options = StressOptions::parse(flags)?;
    if !has_tools() {
        println!("not tried: Java and Maven are needed");
        return Ok(());
    }
    let cpus = Cpus::divide(options.cores)?;
    let folder = folder(root)?;
    let tool = Stress::new(&folder, &cpus.loads, options.rows(), !options.is_quick)?;
    let python = clients::python(root)?;
    let binary = binary(root)?;

    let started = Instant::now();
    let server = StressedServer::start(&binary, &folder, &cpus)?;
    let bench = Bench { options: &options, cores: cpus.server.len(), tool: &tool, server: &server };
    let script = root.join("tests/bench/statements.py");
    let found = bench.run(|statements| server.execute(&python, &script, statements))?;
    server.stop()?;
    let text = report(&options, &cpus, &tool, &found, started.elapsed());
    println!("\n{text}");
    options.out.map_or(Ok(()), |out| {
        std::fs::write(&out, text).map_err(|error| format!("{} cannot be written: {error}.", out.display()))
    })
}

/// Returns the folder of the fetched tool, or `None` without Java or Maven.
pub(crate) fn fetch(root: &Path) -> Result<Option<PathBuf>, String> {
    if !has_tools() {
        return Ok(None);
    }
    tool::fetch(&folder(root)?).map(Some)
}

fn has_tools() -> bool {
    ["java", "mvn"].into_iter().all(is_installed)
}

/// Returns the folder for the tool and its logs. Creates it.
fn folder(root: &Path) -> Result<PathBuf, String> {
    let folder = target::folder(root).join("cassandra-stress");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("{} cannot be created: {error}.", folder.display()))?;
    Ok(folder)
}

/// The tool and the server under its load.
struct Bench<'a> {
    options: &'a StressOptions,
    /// CPUs of the server.
    cores: usize,
    tool: &'a Stress,
    server: &'a StressedServer,
}

/// Results of the experiment.
struct Found {
    prefill: Results,
    /// Throttle of the interactive load, operations a second.
    throttle_per_s: f64,
    stages: Vec<Measured>,
}

impl Bench<'_> {
    /// Runs the experiment. `execute` runs statements as the superuser.
    fn run(&self, execute: impl Fn(&[String]) -> TaskResult) -> Result<Found, String> {
        println!("      prefill");
        let limit = Duration::from_secs(self.options.rows() / PREFILL_PER_S_MIN + PREFILL_TIMEOUT_S);
        let prefill = Results::parse(&self.tool.fill(self.server, OLTP_THREADS, limit)?)?;
        execute(&roles(&self.server.password))?;

        let capacity = self.stage(BATCH_ALONE, None, vec![batch(LOADS[0])])?;
        let capacity_per_s = capacity.loads[0].results.as_ref().map_or(0.0, |found| found.operations_per_s);
        let throttle_per_s = (capacity_per_s * THROTTLE_PART).max(1.0);
        let oltp = || vec![interactive(throttle_per_s)];
        let mut stages = vec![capacity, self.stage(ALONE, None, oltp())?];
        stages.push(self.stage(ONE_LEVEL, Some(batch(OLAP)), oltp())?);
        execute(&levels())?;
        stages.push(self.stage(TWO_LEVELS, Some(batch(OLAP)), oltp())?);
        for (name, loads) in SHARES.into_iter().zip([&[0, 1][..], &[0, 2], &[0, 1, 2]]) {
            // The last one has all levels.
            if !self.options.is_quick || loads.len() == LOADS.len() {
                stages.push(self.stage(
                    name,
                    None,
                    loads.iter().map(|load| batch(LOADS[*load])).collect(),
                )?);
            }
        }
        Ok(Found { prefill, throttle_per_s, stages })
    }

    fn stage(
        &self,
        name: &'static str,
        background: Option<Load>,
        measured: Vec<Load>,
    ) -> Result<Measured, String> {
        let stage = Stage { name, background, measured };
        stages::run(&stage, (self.tool, self.server, self.cores), self.options.seconds)
    }
}

/// Returns an unlimited load with a role.
fn batch(role: &'static str) -> Load {
    Load { role, threads: OLAP_THREADS, throttle_per_s: None }
}

/// Returns the interactive load.
fn interactive(per_s: f64) -> Load {
    Load { role: OLTP, threads: OLTP_THREADS, throttle_per_s: Some(per_s) }
}

/// Returns the tables, the command lines and the differences from the published experiment.
fn report(options: &StressOptions, cpus: &Cpus, tool: &Stress, found: &Found, took: Duration) -> String {
    let seconds = options.seconds;
    let loads = [interactive(found.throttle_per_s), batch(OLAP)].map(|load| tool.read(&load, seconds));
    let commands = std::iter::once(tool.prefill(OLTP_THREADS)).chain(loads);
    let commands = commands.map(|words| format!("    cassandra-stress {}\n", words.join(" ")));
    let (server, all) = (cpus.server.len(), cpus.count());
    let scaled = format!(
        "one server on {server} of {all} CPUs and all loads on the others, {} rows, {seconds} s a stage, a \
         throttle of {:.0} a second ({:.0} % of one unlimited load).",
        options.rows(),
        found.throttle_per_s,
        THROTTLE_PART * 100.0
    );
    format!(
        "{}\n{}\n{}\nPrefill: {:.0} rows a second, p99 {:.1} ms. All took {:.0} s.\n{}",
        compare::loads(&found.stages),
        compare::ratios(&found.stages),
        commands.collect::<String>(),
        found.prefill.operations_per_s,
        found.prefill.p99_ms,
        took.as_secs_f64(),
        compare::notes(&scaled)
    )
}

/// Returns the server: `FAIRLANE_BIN`, or one that is built as for the clients.
fn binary(root: &Path) -> Result<PathBuf, String> {
    if let Some(binary) = std::env::var_os("FAIRLANE_BIN").filter(|binary| !binary.is_empty()) {
        return Ok(binary.into());
    }
    Ok(clients::build(root)?.join("fairlane"))
}

/// Returns true if a program is in the search path.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns the statements that create the roles, and the levels of loads with shares.
fn roles(password: &str) -> Vec<String> {
    let mut statements = Vec::new();
    for role in [OLTP, OLAP].into_iter().chain(LOADS) {
        statements.push(format!("CREATE ROLE {role} WITH PASSWORD = '{password}' AND LOGIN = true"));
        statements.push(format!("GRANT SELECT ON KEYSPACE keyspace1 TO {role}"));
    }
    statements.extend(LOADS.into_iter().zip([200, 400, 800]).flat_map(|(role, shares)| level(role, shares)));
    statements
}

/// Returns the statements that give the interactive and the batch load a level each.
fn levels() -> Vec<String> {
    [level(OLTP, 1000), level(OLAP, 100)].concat()
}

fn level(role: &str, shares: u32) -> [String; 2] {
    let create = format!("CREATE SERVICE LEVEL {role} WITH shares = {shares}");
    [create, format!("ATTACH SERVICE LEVEL {role} TO {role}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed() {
        let out = Some(PathBuf::from("a.md"));
        let quick = StressOptions { is_quick: true, seconds: 3, cores: None, out };
        assert_eq!(StressOptions::parse(&["--quick", "--out", "a.md"]), Ok(quick));
        let full = StressOptions { is_quick: false, seconds: 20, cores: Some(2), out: None };
        assert_eq!(StressOptions::parse(&["--cores", "2", "--seconds", "20"]), Ok(full));
        for (flags, named) in
            [(&["--out"][..], "after `--out`"), (&["--seconds", "0"], "`0`"), (&["--x"], "`--x`")]
        {
            let refused = StressOptions::parse(flags).unwrap_err();
            assert!(refused.contains(named), "{refused}");
        }
    }

    #[test]
    fn every_load_has_a_role_and_a_level() {
        let statements = [roles("secret"), levels()].concat();
        for role in [OLTP, OLAP].into_iter().chain(LOADS) {
            let attached = format!("ATTACH SERVICE LEVEL {role} TO {role}");
            assert!(statements.contains(&attached), "{attached} in {statements:?}");
            assert!(statements.iter().any(|text| text.starts_with(&format!("CREATE ROLE {role} "))));
        }
    }
}
