//! Commands in order over changing keys: partitions in parallel, and batches that keep
//! happens-before. Both are strategies of the library `batcher`, over its store of a CQL table.
//!
//! ```text
//!   commands ──► batcher ──► driver scylla ──► delay line ──► server
//!    open loop                                  1 ms each way
//! ```
//!
//! 1. Measure the capacity of batches over 1,000,000 keys. The rate of the open loop is a part of
//!    it. Measure N*, the concurrency with the highest throughput, by a ladder of closed loops.
//! 2. Each chapter runs the same phases with another strategy. A phase has its own keys. After it,
//!    wait until all commands have ended, and compare each row with the result of running all
//!    commands one after the other.
//!
//! Loopback hides the cost of round trips, so that a delay line makes the response time R some ten
//! times the service time S, as between machines.

mod client;
mod keys;
mod observed;

use std::time::Duration;

use batcher::{Limits, Strategy};
use load::usl::LadderPlan;
use load::{DelayLine, Experiment, Keys as Population, Pacing, RepeatedLoad, Spec, Workload};

use crate::error::DemoError;
use crate::names::{BATCHED, COMMANDS, ONE_KEY, PER_PARTITION, TEN_KEYS, THREADS, UNLIMITED};
use crate::results::{Capacity, Chapter, LoadRun, MostUseful, Series, Window};
use crate::server::ADMIN;
use crate::stage::{KEYSPACE, Stage};
use charts::numbers::{percent, rate, time};

use client::{Client, Phase, Way, failed, on_runtime};
use keys::{Key, Keys};

/// Delay of the line in each direction.
const DELAY: Duration = Duration::from_millis(1);
/// Rate of the open loop, as a fraction of the capacity of batches over most keys.
const RATE_PART: f64 = 0.4;
/// Operations in flight of batches, and of batches without a limit.
const IN_FLIGHT: usize = 128;
const UNLIMITED_IN_FLIGHT: usize = 4096;
/// Concurrencies of the ladder that finds N*, its rounds, and the seconds of each rung with its
/// warm-up.
const LADDER: [usize; 7] = [16, 64, 256, 512, 1024, 2048, 4096];
const LADDER_ROUNDS: usize = 2;
const RUNG: (f64, f64) = (0.7, 0.3);
/// Commands at once of partitions in parallel, and of the chapter with a thread for each key.
const FEW_THREADS: usize = 64;
const MANY_THREADS: usize = 1024;
/// `commands_max` of partitions in parallel. Twice as many are held, and one key must run them all
/// before the next phase begins.
const HELD: usize = 256;

const MANY: Keys =
    Keys { id: "keys-100000", label: "100 000 keys", count: 100_000, hot_percent: 0, backlog: 0 };
/// A burst of new keys: commands that have piled up, almost all of them of different keys.
const BURST: Keys =
    Keys { id: "burst", label: "burst on 1 000 000", count: 1_000_000, hot_percent: 0, backlog: 2048 };
/// The phases of a chapter with all keys.
const PHASES: [Keys; 6] = [
    MANY,
    Keys { id: "keys-100", label: "100 keys", count: 100, hot_percent: 0, backlog: 0 },
    Keys { id: TEN_KEYS, label: "10 keys", count: 10, hot_percent: 0, backlog: 0 },
    Keys { id: "hot", label: "half on 1 hot key", hot_percent: 50, ..MANY },
    Keys { id: ONE_KEY, label: "1 key", count: 1, hot_percent: 0, backlog: 0 },
    BURST,
];

fn per_partition(threads: usize, held: usize) -> Way {
    let strategy =
        Strategy::PerPartition { threads, partition: |slot: &Key| u64::from(slot.0.cast_unsigned()) };
    Way { strategy, limits: Limits { commands_max: held, iops_in_flight: threads, ..Limits::default() } }
}

fn batches(iops_in_flight: usize) -> Way {
    Way { strategy: Strategy::Pipelined, limits: Limits { iops_in_flight, ..Limits::default() } }
}

/// Measures capacity: commands without pause, in batches over most keys. Notes the response time of
/// a single operation.
pub(crate) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    stage.cql(&[&format!("CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}")])?;
    stage.print("capacity for commands: batches over 1 000 000 keys, closed loop");
    let line = DelayLine::start(&stage.server.cql, DELAY).map_err(failed)?;
    let seconds = stage.times.capacity;
    let address = line.address();
    let password = stage.password.clone();
    let stop = stage.stop.clone();
    let (single, full) = on_runtime(async {
        let one = Way { strategy: Strategy::Sequential, ..batches(IN_FLIGHT) };
        let mut client = Client::start(&address, &password, "single", one, &stop).await?;
        let single = client.phase(&MANY, Some(10.0), 1.0).await?;
        let mut client = Client::start(&address, &password, "capacity", batches(IN_FLIGHT), &stop).await?;
        Ok((single, client.phase(&Keys { backlog: 0, ..BURST }, None, seconds).await?))
    })?;
    stage.server_check()?;
    wrong(&full)?;
    let command_us = single.load.latency.unwrap_or_default().p50_us;
    let capacity_per_s = full.load.throughput_per_s;
    most_useful(stage, line.address())?;
    stage.measured.commands_per_s = (capacity_per_s * RATE_PART).round();
    stage.print(&format!(
        "capacity: {capacity_per_s:.0} commands/s; the open loop has {:.0}; one command alone takes {}",
        stage.measured.commands_per_s,
        time(command_us)
    ));
    stage.notes.push(format!(
        "A delay line holds back each message by {} ms, since loopback hides the cost of round trips. A command is a \
         read and then a write of a row: alone it takes {}.",
        DELAY.as_millis(),
        time(command_us)
    ));
    let run = LoadRun {
        load: "commands in batches over 1 000 000 keys, closed loop".to_string(),
        throughput_per_s: capacity_per_s,
        latency: full.load.latency.unwrap_or_default(),
        // The client may be the limit here: the rate is a part of what client and server can do.
        ..LoadRun::default()
    };
    Ok(Capacity { batch: Some(run), ..Capacity::default() })
}

/// Finds N* of single operations by a ladder through the delay line, or the end of the linear
/// region if throughput does not fall up to the last rung.
fn most_useful(stage: &mut Stage, address: String) -> Result<(), DemoError> {
    let (seconds, warmup_s) = RUNG;
    let plain = stage.spec(ADMIN, Workload::Write, Pacing::Closed { in_flight: 1, seconds });
    let spec = Spec {
        hosts: vec![address],
        keys: Population { population: BURST.count, ..plain.keys.clone() },
        connections: 16,
        create: true,
        warmup_s,
        route: false,
        ..plain
    };
    let experiment = Experiment { load: RepeatedLoad::Cql(spec), seconds, seed: 1, metrics: None };
    let plan = LadderPlan { experiment, rungs: LADDER.to_vec(), rounds: LADDER_ROUNDS };
    stage.print("N* of single operations: a ladder of closed loops through the delay line");
    let found = match load::ladder(&plan, &stage.stop, |_| {}) {
        Ok(found) => found,
        Err(error) => {
            stage.notes.push(format!("N* is unknown, since its ladder failed: {error}"));
            return Ok(());
        }
    };
    let scaling = found.scaling.as_ref();
    stage.measured.most_useful = scaling.map(|scaling| match scaling.peak {
        Some(peak) => MostUseful { n: peak.n.value, is_peak: true, up_to: scaling.up_to_n as u64 },
        None => MostUseful { n: scaling.linear_end.value, is_peak: false, up_to: scaling.up_to_n as u64 },
    });
    match stage.measured.most_useful {
        Some(found) => stage.print(&found.label()),
        None => stage.notes.push("The ladder determined no law, so that N* is unknown.".to_string()),
    }
    Ok(())
}

/// Fails if a phase computed wrong results. Capacity is measured from them.
fn wrong(phase: &Phase) -> Result<(), DemoError> {
    match phase.batches.wrong {
        0 => Ok(()),
        wrong => Err(failed(format!("{wrong} rows or outputs were not those of sequential execution."))),
    }
}

/// Each partition in order, on 64 threads.
pub(crate) fn few_threads(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let chapter = chapter(stage, PER_PARTITION, per_partition(FEW_THREADS, HELD), &PHASES)?;
    Ok(Chapter {
        title: "Partitions in parallel, each in order".to_string(),
        what: format!(
            "The usual way: up to {FEW_THREADS} commands at once, and one of each key. The number of active keys \
             decides how many round trips overlap, and the data decides that number. {}",
            offered(stage)
        ),
        ..chapter
    })
}

/// Batches.
pub(crate) fn batched(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let chapter = chapter(stage, BATCHED, batches(IN_FLIGHT), &PHASES)?;
    Ok(Chapter {
        title: "Batches that keep the order".to_string(),
        what: format!(
            "A command waits for its own rows only. A row in use is read once, commands run in order in memory, and \
             one write sends the last value of all that ran meanwhile: so each takes about two round trips, whatever \
             its keys, with at most {IN_FLIGHT} operations in flight. {}",
            offered(stage)
        ),
        ..chapter
    })
}

/// Batches over most keys without a limit of operations in flight.
pub(crate) fn unlimited(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let chapter = chapter(stage, UNLIMITED, batches(UNLIMITED_IN_FLIGHT), &[MANY, BURST])?;
    Ok(Chapter {
        title: "Batches without a limit".to_string(),
        what: format!(
            "With few keys there are few operations. A burst of new keys has as many as there are commands, and \
             without a limit sends all at once, up to {UNLIMITED_IN_FLIGHT}: past N*, if the server has a peak. {}",
            offered(stage)
        ),
        ..chapter
    })
}

/// Each partition in order, with more threads than the server needs.
pub(crate) fn many_threads(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let chapter = chapter(stage, THREADS, per_partition(MANY_THREADS, MANY_THREADS), &PHASES)?;
    Ok(Chapter {
        title: "Partitions in parallel with more threads".to_string(),
        what: format!(
            "More threads do not help: a hot key is still one command at a time. They only allow a burst of new \
             keys to send {MANY_THREADS} operations at once. {}",
            offered(stage)
        ),
        ..chapter
    })
}

fn offered(stage: &Stage) -> String {
    format!(
        "Commands arrive at {} a second, {} of what client and server can do in batches over 1 000 000 keys. The last \
         phase begins with {} more, as after a pause.",
        rate(stage.measured.commands_per_s),
        percent(RATE_PART),
        rate(BURST.backlog as f64)
    )
}

/// Runs phases with one client.
fn chapter(stage: &mut Stage, id: &str, way: Way, phases: &[Keys]) -> Result<Chapter, DemoError> {
    let line = DelayLine::start(&stage.server.cql, DELAY).map_err(failed)?;
    let address = line.address();
    let password = stage.password.clone();
    let stop = stage.stop.clone();
    let (seconds, per_s) = (stage.times.batching, stage.measured.commands_per_s);
    let most_useful = stage.measured.most_useful;
    let mut chapter = Chapter { id: id.to_string(), most_useful, ..Chapter::default() };
    let mut series = Series { load: COMMANDS.to_string(), points: Vec::new() };
    on_runtime(async {
        let mut client = Client::start(&address, &password, id, way, &stop).await?;
        for keys in phases {
            let phase = client.phase(keys, Some(per_s), seconds).await?;
            stage.server_check()?;
            add(stage, &mut chapter, &mut series, keys, phase);
        }
        Ok(())
    })?;
    let (begin_s, end_s) = chapter.ends();
    chapter.cpu = stage.probe.points(begin_s, end_s);
    chapter.series = vec![series];
    Ok(chapter)
}

/// Adds a phase to its chapter, and prints it.
fn add(stage: &mut Stage, chapter: &mut Chapter, series: &mut Series, keys: &Keys, phase: Phase) {
    stage.probe.mark();
    let cpu = stage.probe.between(phase.begin_s, phase.end_s);
    let (load, batches) = (&phase.load, &phase.batches);
    stage.print(&format!(
        "{}: {:.0} commands/s, p99 {}, {:.0} operations in flight ({} at most); {} rows compared, {} wrong",
        keys.label,
        load.throughput_per_s,
        time(load.latency.unwrap_or_default().p99_us),
        batches.in_flight_mean,
        batches.in_flight_most,
        batches.rows,
        batches.wrong
    ));
    chapter.windows.push(Window {
        id: keys.id.to_string(),
        label: keys.label.to_string(),
        begin_s: phase.begin_s,
        end_s: phase.end_s,
        loads: vec![phase.load],
        cpu,
    });
    chapter.batches.push(phase.batches);
    series.points.extend(phase.points);
    chapter.in_flight.extend(phase.in_flight);
}
