//! `fairlane demo`: a real server and real load on this machine. The first subject is transactions
//! and analytics on one server, without and with service levels. Others are background work beside
//! writes, the space of compactions, queries beside queries, commands in order, overload, and
//! levels in front of a cluster. A subject is a script: the server's flags, what is measured first,
//! and chapters.
//!
//! ```text
//!   lib (flow) ── stage (shared state) ── phases · shares · cluster · flush · olap · batching · overload
//!                   │ server: child processes      │
//!                   │ metrics: CPU, storage        ▼
//!                   └──────────────────────────► results ──► compare · trust ──► terminal · report (chart) · JSON
//! ```
//!
//! The server is the same program, started as a child on half of the cores. The interactive load
//! runs in this process on the other half, and batch loads are children there. Results are measured
//! by clients, or are the server's own counters of CPU, shown beside those of the kernel. A chapter
//! that fails is left out with a note.
//!
//! `ladder` draws the results of `fairlane load usl`, and `sweep` those of `fairlane load sweep`,
//! with the same charts.
#![expect(
    clippy::disallowed_methods,
    reason = "the demo is a client and starts processes; it runs outside the lanes"
)]

mod activity;
mod batching;
mod cluster;
mod compaction;
mod compare;
mod error;
mod flags;
mod flush;
mod headline;
mod listing;
mod loads;
mod metrics;
mod names;
mod node_use;
mod olap;
mod open_loop;
mod options;
mod overload;
mod pairs;
mod petabyte;
mod phases;
mod report;
mod results;
mod server;
mod shares;
mod stage;
mod terminal;
mod trust;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use error::DemoError;
use flags::parse;
use load::StopFlag;
use options::{DemoOptions, OlapPart};
use results::{DemoResults, Machine, Subject};
use server::Folder;
use server_process::kernel;
use stage::Stage;

pub use options::Program;

/// Runs `fairlane demo` with the arguments after `demo`. Returns the exit code: 0 if all chapters
/// were measured, 1 if not, 2 for a wrong command line, 130 after Ctrl-C.
pub fn run(args: &[String], program: &Program) -> i32 {
    let options = match parse(args, program) {
        Ok(options) => options,
        Err(help_or_fault) => {
            // Without an output, the code alone tells.
            let _not_printed = help_or_fault.print();
            return help_or_fault.exit_code();
        }
    };
    let code = match &options.from {
        Some(file) => render(file, &options),
        None => show(&options),
    };
    code.unwrap_or_else(|error| {
        eprintln!("fairlane demo: {error}");
        match error {
            DemoError::Interrupted => 130,
            DemoError::ServerGone(_) | DemoError::Failed(_) => 1,
        }
    })
}

fn show(options: &DemoOptions) -> Result<i32, DemoError> {
    let start = Instant::now();
    let stop = stop_flag()?;
    let folder = Folder::create(options.keep)?;
    let machine = machine(options.subject);
    let mut outcome = DemoResults {
        version: env!("CARGO_PKG_VERSION").to_string(),
        subject: options.subject,
        started_unix_ms: (metrics::now_s() * 1e3) as u64,
        command: command(),
        quick: options.quick,
        shape: options.shape().name().to_string(),
        notes: notes(options, &machine),
        machine: machine.clone(),
        ..DemoResults::default()
    };
    for note in &outcome.notes {
        eprintln!("note: {note}");
    }
    let mut planned = compaction::STRATEGIES.len();
    let result = match script(options) {
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
    // Chapters that were measured before the server ended are still shown.
    match result {
        Ok(()) => {}
        Err(DemoError::ServerGone(reason)) if !outcome.chapters.is_empty() => outcome.notes.push(reason),
        Err(error) => return Err(error),
    }
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome.notes.extend(trust::doubts(&outcome));
    conclude(outcome.clone(), options)?;
    let complete = outcome.chapters.len() == planned;
    Ok(if complete { 0 } else { 1 })
}

/// Returns the command line without the path of the program.
fn command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("fairlane {}", arguments.join(" "))
}

/// Compares the results, prints the tables, and writes the requested files.
fn conclude(mut outcome: DemoResults, options: &DemoOptions) -> Result<(), DemoError> {
    outcome.comparison = compare::compare(&outcome);
    print!("{}", terminal::text(&outcome));
    write(&options.report, &report::page(&outcome))?;
    if let Some(path) = &options.picture {
        let picture = report::picture(&outcome);
        let missing = || {
            DemoError::Failed(format!(
                "{path} is not written, since the chapters of the picture are missing."
            ))
        };
        write(path, &picture.ok_or_else(missing)?)?;
    }
    println!("\nThe report with its charts: {}", options.report);
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&outcome).map_err(|e| DemoError::Failed(e.to_string()))?;
        write(path, &text)?;
    }
    Ok(())
}

/// Prints the tables and writes the report from results of an earlier run.
fn render(file: &str, options: &DemoOptions) -> Result<i32, DemoError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| DemoError::Failed(format!("{file} cannot be read: {error}")))?;
    let outcome: DemoResults = serde_json::from_str(&text).map_err(|error| {
        DemoError::Failed(format!("{file} contains no results of a demo, as `--json` writes them: {error}"))
    })?;
    conclude(outcome, options)?;
    Ok(0)
}

type Experiment = fn(&mut Stage) -> Result<results::Chapter, DemoError>;

/// Course of a subject.
struct Script {
    /// Additional flags of the first server.
    flags: fn(&DemoOptions) -> Vec<String>,
    /// Preparation and first measurement.
    prepare: fn(&mut Stage) -> Result<results::Capacity, DemoError>,
    /// Titles and experiments, in order.
    chapters: &'static [(&'static str, Experiment)],
    /// Number of chapters in the quick form.
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

const PUBLISHED_FLUSH: [(&str, Experiment); 3] = [
    ("the published rate, controllers off and on", flush::published::at_rate),
    ("most of the core, controllers off and on", flush::published::at_part),
    ("background work alone", flush::published::alone),
];

const OLAP: [(&str, Experiment); 4] = [
    ("two clients, shares 2:1 and in one level", olap::shares),
    ("cpu_limit = '50%' for 1, 2 and 4 connections", olap::cap),
    ("short queries of ClickBench beside others", olap::clickbench),
    ("short queries of TPC-H beside others", olap::tpch),
];

const BATCHING: [(&str, Experiment); 4] = [
    ("partitions in parallel, 64 threads", batching::few_threads),
    ("batches", batching::batched),
    ("batches without a limit", batching::unlimited),
    ("partitions in parallel, 1024 threads", batching::many_threads),
];

const OVERLOAD: [(&str, Experiment); 3] = [
    ("reads from memory", overload::from_memory),
    ("reads from disk", overload::from_disk),
    ("writes into full memtables", overload::full_memtables),
];

const PETABYTE: [(&str, Experiment); 7] = [
    ("users read at rising rates", petabyte::rates),
    ("users read, or read and write", petabyte::mixed),
    ("fewer shares for users", petabyte::shares),
    ("one level, and a level each", petabyte::levels),
    ("with the cache, and around it", petabyte::bypass),
    ("ingest with incremental compaction", petabyte::incremental),
    ("ingest with size-tiered compaction", petabyte::size_tiered),
];

const CLUSTER: [(&str, Experiment); 4] = [
    ("through the front, both loads in one level", cluster::one_level),
    ("through the front, two levels, shares 1000 and 10", cluster::two_levels),
    ("through the front, shares 200:400:800", shares::behind_a_front),
    ("without the front", cluster::direct),
];

/// Returns the chapters about queries, or those of one experiment.
fn olap_chapters(only: Option<OlapPart>) -> &'static [(&'static str, Experiment)] {
    let all: &'static [(&'static str, Experiment)] = &OLAP;
    match only {
        None => all,
        Some(OlapPart::Shares) => &all[..1],
        Some(OlapPart::Cap) => &all[1..2],
        Some(OlapPart::Latency) => &all[2..],
    }
}

/// Returns the script of a subject. `None`: the subject needs no server.
fn script(options: &DemoOptions) -> Option<Script> {
    let script = match options.subject {
        Subject::Levels => Script {
            flags: |_| Vec::new(),
            prepare: |stage| {
                stage.prefill()?;
                stage.capacity(loads::HALF)
            },
            chapters: &LEVELS,
            quick: 4,
        },
        Subject::Flush => {
            let flags = |options: &DemoOptions| flush::flags(&options.flush);
            let chapters: &'static [(&'static str, Experiment)] = match options.flush.is_published {
                true => &PUBLISHED_FLUSH,
                false => &FLUSH,
            };
            Script { flags, prepare: flush::capacity, chapters, quick: chapters.len() }
        }
        Subject::Olap => {
            let chapters = olap_chapters(options.olap.only);
            Script { flags: |_| olap::flags(), prepare: olap::prepare, chapters, quick: chapters.len() }
        }
        Subject::Batching => {
            Script { flags: |_| Vec::new(), prepare: batching::prepare, chapters: &BATCHING, quick: 3 }
        }
        Subject::Overload => Script {
            flags: |_| overload::flags(),
            prepare: |_| Ok(results::Capacity::default()),
            chapters: &OVERLOAD,
            quick: 1,
        },
        Subject::Petabyte => Script {
            flags: |_| petabyte::flags(),
            prepare: petabyte::prepare,
            chapters: &PETABYTE,
            quick: PETABYTE.len(),
        },
        Subject::Cluster => Script {
            flags: |_| Vec::new(),
            prepare: cluster::prepare,
            chapters: &CLUSTER,
            quick: CLUSTER.len(),
        },
        Subject::Compaction => return None,
    };
    Some(script)
}

fn experiments(stage: &mut Stage, script: &Script, outcome: &mut DemoResults) -> Result<(), DemoError> {
    outcome.capacity = (script.prepare)(stage)?;
    let chapters = script.chapters(outcome.quick);
    for (number, (title, experiment)) in chapters.iter().enumerate() {
        stage.print(&format!("── {} of {}: {title}", number + 1, chapters.len()));
        match experiment(stage) {
            Ok(chapter) => outcome.chapters.push(chapter),
            Err(DemoError::Failed(reason)) => {
                stage.print(&format!("left out: {reason}"));
                outcome.notes.push(format!("Left out: {title}. {reason}"));
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

/// Returns a flag that Ctrl-C, SIGTERM and SIGHUP set. All waiting code checks it.
fn stop_flag() -> Result<StopFlag, DemoError> {
    let is_caught = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, is_caught.clone())
            .map_err(|error| DemoError::Failed(format!("signals cannot be caught: {error}")))?;
    }
    let stop = StopFlag::new();
    let flag = stop.clone();
    // The thread ends with the process.
    std::thread::spawn(move || {
        while !is_caught.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        flag.set();
    });
    Ok(stop)
}

/// Returns the cores of the server and those of the loads: a half each. A single core is shared.
fn halves(cores: &[usize]) -> (Vec<usize>, Vec<usize>) {
    match cores {
        [] | [_] => (cores.to_vec(), cores.to_vec()),
        _ => {
            let (server, loads) = cores.split_at(cores.len() / 2);
            (server.to_vec(), loads.to_vec())
        }
    }
}

/// Leaves the node one core of `server_cores`. Returns the core of the front: another one of them,
/// or else one of the loads.
fn apart(server_cores: &mut Vec<usize>, load_cores: &[usize]) -> usize {
    let spare = server_cores.get(1).copied();
    server_cores.truncate(1);
    spare.unwrap_or(load_cores[0])
}

fn machine(subject: Subject) -> Machine {
    let cores = server::cores();
    let (mut server_cores, mut load_cores) = halves(&cores);
    let mut front_cores = Vec::new();
    match subject {
        Subject::Levels | Subject::Batching => {}
        // Background work of storage is per core, so that one core is enough.
        // So is the limit of statements in flight.
        Subject::Flush | Subject::Compaction | Subject::Overload | Subject::Petabyte => {
            server_cores.truncate(1);
        }
        // One core of the node is enough to be full, and the front must have CPU to spare.
        Subject::Cluster => front_cores = vec![apart(&mut server_cores, &load_cores)],
        // A query runs on all cores, and its client needs hardly any CPU.
        Subject::Olap => (server_cores, load_cores) = (cores.clone(), cores),
    }
    Machine {
        model: kernel::cpu_value("model name").unwrap_or_default(),
        kernel: kernel::release().unwrap_or_default(),
        server_cores,
        load_cores,
        front_cores,
    }
}

fn notes(options: &DemoOptions, machine: &Machine) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(commit) = options.flush.commit.as_ref().filter(|commit| commit.as_str() != "batch") {
        notes.push(format!("The servers ran with `--commit {commit}`: writes did not wait for the disk."));
    }
    if let Some(rate_per_s) = options.flush.rate_per_s {
        notes.push(format!(
            "The rate of {rate_per_s:.0} writes a second is that of `--rate`, not 40 % of capacity."
        ));
    }
    if options.subject == Subject::Petabyte {
        notes.push(petabyte::NOT_MODELLED.to_string());
    }
    if options.subject == Subject::Cluster {
        notes.push(cluster::NOT_A_CLUSTER.to_string());
        if machine.load_cores.iter().any(|core| machine.front_cores.contains(core)) {
            notes.push(cluster::SHARED_CORE.to_string());
        }
    }
    if machine.server_cores == machine.load_cores && machine.load_cores.len() < 2 {
        notes.push(
            "Server and loads share the only core. So throughput is far below the server's capacity, latencies \
             include the time that the sender waited for the core, and work in the server's idle time is charged \
             to no level. Rely only on the server's own CPU by level."
                .to_string(),
        );
    }
    if cfg!(debug_assertions) {
        notes.push("This is a debug build, many times slower than a release build.".to_string());
    }
    notes
}

fn write(path: &str, text: &str) -> Result<(), DemoError> {
    std::fs::write(path, text)
        .map_err(|error| DemoError::Failed(format!("{path} cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_experiment_has_its_own_chapters() {
        let count = |only| olap_chapters(only).len();
        assert_eq!(count(None), count(Some(OlapPart::Shares)) + 1 + count(Some(OlapPart::Latency)));
        assert!(olap_chapters(Some(OlapPart::Cap))[0].0.contains("cpu_limit"));
    }

    #[test]
    fn cores_are_halved() {
        assert_eq!(halves(&[0, 1, 4]), (vec![0], vec![1, 4]));
        assert_eq!(halves(&[3]), (vec![3], vec![3]));
    }

    #[test]
    fn front_has_a_spare_core_or_one_of_the_loads() {
        let front = |cores: &[usize]| {
            let (mut node, loads) = halves(cores);
            let front = apart(&mut node, &loads);
            (node, front, loads)
        };
        assert_eq!(front(&[0, 1]), (vec![0], 1, vec![1]));
        assert_eq!(front(&[0, 1, 4, 5]), (vec![0], 1, vec![4, 5]));
        assert_eq!(front(&[3]), (vec![3], 3, vec![3]));
    }
}
