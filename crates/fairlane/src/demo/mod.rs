//! `fairlane demo`: a real server and real load on this machine. Its first subject is transactions and analytics sharing a
//! server, without and with service levels; others are storage's work beside writes, and queries beside queries. A subject is a
//! script: what the server is started with, what is measured first, and chapters.
//!
//! ```text
//!   mod (flow) ── stage (what all phases share) ── phases · shares · flush · olap
//!                   │ server: child processes          │
//!                   │ metrics: CPU, storage            ▼
//!                   └──────────► figures ──► compare · trust ──► terminal · report (chart) · JSON
//! ```
//!
//! The server is this same program, run as a child on one half of the cores. The interactive load runs here,
//! on the other half; batch loads are children there at low priority. Everything measured is measured from
//! outside, through the front door, or is the server's own count of CPU, shown beside the system's count.
//! What a server refuses is reported and its section left out; no figure is made up.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo is a client and starts processes; it stands outside the lanes"
)]

mod activity;
mod chart;
mod compaction;
mod compare;
mod figures;
mod flags;
mod flush;
mod headline;
mod listing;
mod loads;
mod metrics;
mod olap;
mod phases;
mod report;
mod server;
mod shares;
mod stage;
mod terminal;
mod trust;
mod units;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use figures::{Machine, Outcome, Subject};
use flags::{HELP, Options, parse};
use load::StopFlag;
use server::Folder;
use stage::Stage;

/// Why the demo, or one section of it, could not be done.
#[derive(Debug)]
enum DemoError {
    /// A flag makes no sense.
    Usage(String),
    /// Ctrl-C.
    Interrupted,
    /// The server is not there any more.
    ServerGone(String),
    /// This section is not to be had; others may be.
    Failed(String),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemoError::Interrupted => f.write_str("interrupted; everything is cleaned up"),
            DemoError::Usage(why) | DemoError::ServerGone(why) | DemoError::Failed(why) => f.write_str(why),
        }
    }
}

impl From<load::LoadError> for DemoError {
    fn from(error: load::LoadError) -> DemoError {
        DemoError::Failed(error.to_string())
    }
}

/// Runs `fairlane demo` with what follows the word `demo`; returns the exit code: 0 when everything was
/// shown, 1 when something could not be, 2 for a wrong command line, 130 after Ctrl-C.
pub(crate) fn run(args: &[String]) -> i32 {
    let outcome = parse(args).and_then(|options| {
        if options.help {
            print!("{HELP}");
            return Ok(0);
        }
        match &options.from {
            Some(file) => render(file, &options),
            None => show(&options),
        }
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("fairlane demo: {error}");
        match error {
            DemoError::Usage(_) => 2,
            DemoError::Interrupted => 130,
            DemoError::ServerGone(_) | DemoError::Failed(_) => 1,
        }
    })
}

fn show(options: &Options) -> Result<i32, DemoError> {
    let begun = Instant::now();
    let stop = interrupted()?;
    let folder = Folder::create(options.keep)?;
    let machine = machine(options.subject);
    let mut outcome = Outcome {
        version: env!("CARGO_PKG_VERSION").to_string(),
        subject: options.subject,
        started_unix_ms: (metrics::now_s() * 1e3) as u64,
        command: command(),
        quick: options.quick,
        shape: options.shape.name().to_string(),
        notes: notes(options, &machine),
        machine: machine.clone(),
        ..Outcome::default()
    };
    for note in &outcome.notes {
        eprintln!("note: {note}");
    }
    let mut planned = compaction::STRATEGIES.len();
    let shown = match script(options) {
        Some(script) => {
            planned = script.chapters(options.quick).len();
            Stage::open(options, machine, folder, stop, &(script.flags)(options))
                .and_then(|mut stage| experiments(&mut stage, &script, &mut outcome))
        }
        None => compaction::chapters(options.quick, &machine, &folder, &stop).map(|chapters| {
            outcome.notes.extend(chapters.iter().filter_map(compaction::too_few));
            outcome.chapters = chapters;
        }),
    };
    // What was measured until the server went is still worth reading.
    match shown {
        Ok(()) => {}
        Err(DemoError::ServerGone(why)) if !outcome.chapters.is_empty() => outcome.notes.push(why),
        Err(error) => return Err(error),
    }
    outcome.seconds = begun.elapsed().as_secs_f64();
    outcome.notes.extend(trust::doubts(&outcome));
    conclude(outcome.clone(), options)?;
    let complete = outcome.chapters.len() == planned;
    Ok(if complete { 0 } else { 1 })
}

/// The command line, without the path of the program.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("fairlane {}", arguments.join(" "))
}

/// Compares, and writes everything that was asked for: the table, the report, the JSON file.
fn conclude(mut outcome: Outcome, options: &Options) -> Result<(), DemoError> {
    outcome.comparison = compare::compare(&outcome);
    print!("{}", terminal::text(&outcome));
    write(&options.report, &report::page(&outcome))?;
    if let Some(path) = &options.picture {
        let picture = report::picture(&outcome);
        let nothing =
            || DemoError::Failed(format!("{path} is not written: without both loads there is no picture."));
        write(path, &picture.ok_or_else(nothing)?)?;
    }
    println!("\nThe report with its charts: {}", options.report);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&outcome).map_err(|e| DemoError::Failed(e.to_string()))?;
        write(path, &text)?;
    }
    Ok(())
}

/// The table and the report again, from the figures of an earlier run; nothing is run.
fn render(file: &str, options: &Options) -> Result<i32, DemoError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| DemoError::Failed(format!("Cannot read {file}: {error}")))?;
    let outcome: Outcome = serde_json::from_str(&text).map_err(|error| {
        DemoError::Failed(format!("{file} holds no figures of a demo, as `--json` writes them: {error}"))
    })?;
    conclude(outcome, options)?;
    Ok(0)
}

type Experiment = fn(&mut Stage) -> Result<figures::Chapter, DemoError>;

/// How a subject is shown.
struct Script {
    /// Flags of the first server, beside the usual ones.
    flags: fn(&Options) -> Vec<String>,
    /// What is done and measured before the chapters.
    prepare: fn(&mut Stage) -> Result<figures::Capacity, DemoError>,
    /// Titles and experiments, in order.
    chapters: &'static [(&'static str, Experiment)],
    /// How many of them the quick form shows.
    quick: usize,
}

impl Script {
    fn chapters(&self, quick: bool) -> &'static [(&'static str, Experiment)] {
        if quick { &self.chapters[..self.quick] } else { self.chapters }
    }
}

const LEVELS: [(&str, Experiment); 5] = [
    ("both loads in one level", phases::one_level),
    ("two levels, shares 1000 and 10", phases::two_levels),
    ("shares 200:400, 200:800 and 200:400:800", shares::proportions),
    ("one level with cpu_limit = '50%'", shares::cap),
    ("shares with throttled loads", shares::throttled),
];

const FLUSH: [(&str, Experiment); 2] =
    [("controllers on", flush::controlled), ("controllers off", flush::uncontrolled)];

const OLAP: [(&str, Experiment); 4] = [
    ("two clients, shares 2:1 and in one level", olap::shares),
    ("cpu_limit = '50%' for 1, 2 and 4 connections", olap::cap),
    ("short queries of ClickBench beside others", olap::clickbench),
    ("short queries of TPC-H beside others", olap::tpch),
];

/// The chapters about queries, or those of one experiment alone.
fn olap_chapters(only: Option<olap::Part>) -> &'static [(&'static str, Experiment)] {
    let all: &'static [(&'static str, Experiment)] = &OLAP;
    match only {
        None => all,
        Some(olap::Part::Shares) => &all[..1],
        Some(olap::Part::Cap) => &all[1..2],
        Some(olap::Part::Latency) => &all[2..],
    }
}

/// The script of a subject that takes a server.
fn script(options: &Options) -> Option<Script> {
    let script = match options.subject {
        Subject::Levels => Script {
            flags: |_| Vec::new(),
            prepare: |stage| {
                stage.prefill()?;
                stage.capacity()
            },
            chapters: &LEVELS,
            quick: 4,
        },
        Subject::Flush => {
            let flags = |options: &Options| flush::flags(&options.flush);
            Script { flags, prepare: flush::capacity, chapters: &FLUSH, quick: FLUSH.len() }
        }
        Subject::Olap => {
            let chapters = olap_chapters(options.olap.only);
            Script { flags: |_| olap::flags(), prepare: olap::prepare, chapters, quick: chapters.len() }
        }
        Subject::Compaction => return None,
    };
    Some(script)
}

fn experiments(stage: &mut Stage, script: &Script, outcome: &mut Outcome) -> Result<(), DemoError> {
    outcome.capacity = (script.prepare)(stage)?;
    let chapters = script.chapters(outcome.quick);
    for (number, (title, experiment)) in chapters.iter().enumerate() {
        stage.say(&format!("── {} of {}: {title}", number + 1, chapters.len()));
        match experiment(stage) {
            Ok(chapter) => outcome.chapters.push(chapter),
            Err(DemoError::Failed(why)) => {
                stage.say(&format!("left out: {why}"));
                outcome.notes.push(format!("Left out: {title}. {why}"));
                stage.server_check()?;
            }
            Err(error) => {
                outcome.notes.append(&mut stage.notes);
                return Err(error);
            }
        }
    }
    outcome.notes.append(&mut stage.notes);
    Ok(())
}

/// A flag that Ctrl-C and SIGTERM set; everything in the demo that waits looks at it.
fn interrupted() -> Result<StopFlag, DemoError> {
    let caught = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, caught.clone())
            .map_err(|error| DemoError::Failed(format!("Cannot watch for Ctrl-C: {error}")))?;
    }
    let stop = StopFlag::new();
    let flag = stop.clone();
    // It ends with the process; there is nothing to wait for.
    std::thread::spawn(move || {
        while !caught.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        flag.set();
    });
    Ok(stop)
}

/// One half of the cores for the server, the other for the loads; on one core both have it.
fn halves(cores: &[usize]) -> (Vec<usize>, Vec<usize>) {
    match cores {
        [] | [_] => (cores.to_vec(), cores.to_vec()),
        _ => {
            let (server, loads) = cores.split_at(cores.len() / 2);
            (server.to_vec(), loads.to_vec())
        }
    }
}

fn machine(subject: Subject) -> Machine {
    let cores = server::cores();
    let (mut server_cores, mut load_cores) = halves(&cores);
    match subject {
        Subject::Levels => {}
        // What storage does is per core, and one core is what figures are given for.
        Subject::Flush | Subject::Compaction => server_cores.truncate(1),
        // A query runs on every core, and who waits for its answer hardly needs one.
        Subject::Olap => (server_cores, load_cores) = (cores.clone(), cores),
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find(|line| line.starts_with("model name"))
        .map(|line| line.split_once(':').map_or(String::new(), |(_, model)| model.trim().to_string()));
    Machine {
        model: model.unwrap_or_default(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
        server_cores,
        load_cores,
    }
}

fn notes(options: &Options, machine: &Machine) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(commit) = options.flush.commit.as_ref().filter(|commit| commit.as_str() != "batch") {
        notes.push(format!(
            "The servers ran with `--commit {commit}`: writes did not wait for the disk, and these figures hold nothing of that."
        ));
    }
    if let Some(rate_per_s) = options.flush.rate_per_s {
        notes.push(format!(
            "Writes came at {rate_per_s:.0} a second, as `--rate` asked for, whatever part of capacity that is."
        ));
    }
    if machine.server_cores == machine.load_cores && machine.load_cores.len() < 2 {
        notes.push(
            "There is one core, so server and loads take it from each other: throughput is far below what the server can do, \
             latencies hold the time the sender waited for the core, and what runs in the server's idle time is charged to nobody. Only \
             the server's own CPU figures by level are to be trusted."
                .to_string(),
        );
    }
    if cfg!(debug_assertions) {
        notes.push("This is a debug build: many times slower than a release build.".to_string());
    }
    notes
}

fn write(path: &str, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text).map_err(|error| DemoError::Failed(format!("Cannot write {path}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_experiment_by_itself_has_its_own_chapters() {
        let count = |only| olap_chapters(only).len();
        assert_eq!(count(None), count(Some(olap::Part::Shares)) + 1 + count(Some(olap::Part::Latency)));
        assert!(olap_chapters(Some(olap::Part::Cap))[0].0.contains("cpu_limit"));
    }

    #[test]
    fn cores_are_halved() {
        assert_eq!(halves(&[0, 1, 4]), (vec![0], vec![1, 4]));
        assert_eq!(halves(&[3]), (vec![3], vec![3]));
    }
}
