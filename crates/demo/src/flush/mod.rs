//! Writes beside flushes and compactions, compared with writes on a server that flushes nothing.
//! The two servers differ only in `--memtable-memory`. They take phases in turn, in the order A B B
//! A, each starting with an empty folder under the same open loop of writes. Once the controllers
//! of background work are on, once they are off.
//!
//! ```text
//!   flushing    ▒███████                   ▒███████   ▒███████
//!   in memory              ▒███████   ▒███████                   ▒███████    ▒ warm-up, not measured
//!   pairs       └───────1────────┘    └───────2──────┘└────────3───────┘
//! ```
//!
//! A phase on the large server must end before its memtable is full. So it is shortened if the log
//! grows too fast (see [`LOG_BYTES`]).

pub(crate) mod published;

use load::{Keys, Pacing, RateStep, Report, RowLayout, Spec, Workload};

use crate::error::DemoError;
use crate::names::{FLUSHING, IN_MEMORY, WRITES};
use crate::options::FlushOptions;
use crate::pairs::pairs;
use crate::results::{Capacity, Chapter, LoadRun, Series, StoragePoint, Window, WindowLoad};
use crate::server::ADMIN;
use crate::stage::{KEYSPACE, Stage};

/// Background work has ended when nothing was written for this time, seconds.
const QUIET_S: f64 = 3.0;
/// Rows that are overwritten again and again, so that compactions find overlaps. Each takes 280
/// bytes in a memtable, in all about half of the 256 MiB of the large server.
const ROWS: u64 = 500_000;
/// Requests in flight of the closed loop that measures capacity.
const BACKLOG: usize = 256;
/// Memory of both servers.
const MEMORY: &str = "1GiB";
/// `--memtable-memory` of the two servers, for up to three memtables: 21 MiB each, which 80,000
/// rows fill, and 256 MiB each, the largest of a shard.
const SMALL: &str = "64MiB";
const LARGE: &str = "768MiB";
/// Log bytes at which the large server flushes: 3/2 of a memtable.
const LOG_BYTES: f64 = 384.0 * 1024.0 * 1024.0;
/// Fraction of [`LOG_BYTES`] that a phase may fill. The rest allows for a rate that varies.
const LOG_PART: f64 = 0.8;
/// Largest bytes that flushes and compactions write on the large server, over those on the small
/// one. The manifest names each log segment, which takes some 4 KiB a second.
const IN_MEMORY_PART_MAX: f64 = 0.01;
/// Least bytes that flushes and compactions write on the small server, over those of the log. Both
/// are about equal if memtables are flushed all the time.
const FLUSHED_PART_MIN: f64 = 0.1;
/// Least number of flushes in a phase of the small server that is more than an accident.
const FLUSHES_MIN: f64 = 3.0;
/// Warm-up as a fraction of the phase: connections, caches, and the first flushes.
const WARMUP_PART: f64 = 0.1;
/// Least warm-up, seconds.
const WARMUP_S_MIN: f64 = 1.0;

/// Returns the flags of a server with this memory for memtables.
fn server_flags(options: &FlushOptions, memtables: &str) -> Vec<String> {
    let flags = ["--memory", MEMORY, "--memtable-memory", memtables].map(str::to_string);
    let commit = options.commit().into_iter().flat_map(|commit| ["--commit".to_string(), commit]);
    flags.into_iter().chain(commit).collect()
}

/// Returns the flags of the server whose capacity is measured: one that flushes.
pub(crate) fn flags(options: &FlushOptions) -> Vec<String> {
    server_flags(options, SMALL)
}

/// Measures the writes that the server takes for long: those of a closed loop, spread over its time
/// and the time that flushes and compactions take to finish afterwards. Then measures how fast the
/// log grows at the requested rate.
pub(crate) fn capacity(stage: &mut Stage) -> Result<Capacity, DemoError> {
    stage.print(&format!(
        "capacity for writes: closed loop, {BACKLOG} in flight, then background work to its end"
    ));
    // Long enough to fill and flush memtables several times, and before longer phases to compact
    // as often as they do: compactions of compacted files come late.
    let part_of_phase = if stage.flush.is_published { stage.times.background.phase / 2.0 } else { 0.0 };
    let (warmup_s, seconds) = (stage.times.settle, part_of_phase.max(3.0 * stage.times.capacity));
    let pacing = Pacing::Closed { in_flight: BACKLOG, seconds };
    let spec = Spec { warmup_s, ..writes(stage, pacing) };
    let report = stage.run("writes, closed loop", &spec)?;
    let written = LoadRun::of("writes, flushes and compactions to their end included", &report, 0);
    let Some(mut written) = written.filter(|run| run.throughput_per_s >= 1.0) else {
        return Err(DemoError::Failed("The server answered no writes.".into()));
    };
    let settling_s = stage.settle(QUIET_S, "capacity is lower than reported")?;
    let loaded_s = warmup_s + seconds;
    stage.print(&format!(
        "{:.0} writes/s for {loaded_s:.0} s, settled {settling_s:.0} s later",
        written.throughput_per_s
    ));
    written.throughput_per_s *= loaded_s / (loaded_s + settling_s);
    stage.measured.writes_per_s = written.throughput_per_s;
    stage.print(&format!("capacity: {:.0} writes/s", stage.measured.writes_per_s));
    let rate_per_s = stage.flush.rate_per_s(stage.measured.writes_per_s)?;
    let (report, begin_s, end_s) = open_loop(stage, rate_per_s, WARMUP_S_MIN, 2.0 * stage.times.settle)?;
    let log = stage.probe.storage(begin_s, end_s);
    stage.measured.log_bytes_per_s =
        log.iter().map(|point| point.log_bytes_per_s).sum::<f64>() / log.len().max(1) as f64;
    stage.print(&format!(
        "the log grows by {:.1} MB/s at {:.0} writes/s",
        stage.measured.log_bytes_per_s / 1e6,
        report.steps[0].throughput_per_s
    ));
    Ok(Capacity { writes: Some(written), ..Capacity::default() })
}

fn writes(stage: &Stage, pacing: Pacing) -> Spec {
    let plain = stage.spec(ADMIN, Workload::Write, pacing);
    let rows = RowLayout { keyspace: KEYSPACE.to_string(), ..plain.rows.clone() };
    let value_bytes = stage.times.background.value_bytes.unwrap_or(rows.value_bytes);
    let rows = RowLayout { value_bytes, ..rows };
    let keys = Keys { population: ROWS, ..plain.keys.clone() };
    Spec { keys, rows, create: true, seed: 11, ..plain }
}

/// Writes at a rate. Returns the report with one step, and its begin and end.
fn open_loop(
    stage: &mut Stage,
    rate_per_s: f64,
    warmup_s: f64,
    seconds: f64,
) -> Result<(Report, f64, f64), DemoError> {
    let spec = Spec { warmup_s, ..writes(stage, Pacing::Open(vec![RateStep { rate_per_s, seconds }])) };
    let report = stage.run(WRITES, &spec)?;
    let Some(step) = report.steps.first() else {
        return Err(DemoError::Failed("The server answered no writes.".into()));
    };
    let begin_s = step.begin_unix_ms as f64 / 1e3;
    let end_s = begin_s + step.seconds;
    stage.probe.mark();
    Ok((report, begin_s, end_s))
}

/// Phases with the controllers, the default of every server.
pub(crate) fn controlled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = alternating(stage, true, stage.times.background.controlled)?;
    chapter.id = "controlled".into();
    chapter.title = "Flush and compaction paced by their controllers".to_string();
    let rate_per_s = stage.flush.rate_per_s(stage.measured.writes_per_s)?;
    chapter.what = format!(
        "An open loop of single-row writes, {rate_per_s:.0} a second: {:.0} % of what a server takes for long, \
         with flushes and compactions. Two servers take the phases in turn, and each phase starts with an empty \
         folder. One has {SMALL} for memtables, so that it flushes and compacts all the time. The other one has \
         {LARGE} and flushes nothing during a phase. Each phase is compared with its neighbour.",
        rate_per_s / stage.measured.writes_per_s * 100.0
    );
    Ok(chapter)
}

/// The same without the controllers.
pub(crate) fn uncontrolled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = alternating(stage, false, stage.times.background.uncontrolled)?;
    chapter.id = "uncontrolled".into();
    chapter.title = "The same with the controllers off".to_string();
    chapter.what =
        "The same load on servers with `--background-controllers false`: each flush and compaction runs \
                    as fast as its fixed shares allow."
            .to_string();
    Ok(chapter)
}

/// Returns the length of a phase in which the large server flushes nothing, at most `seconds`.
fn phase_s(seconds: f64, log_bytes_per_s: f64) -> f64 {
    seconds.min(LOG_BYTES * LOG_PART / log_bytes_per_s.max(1.0))
}

/// One phase: writes at a rate to a server of its own.
struct Phase {
    id: String,
    label: String,
    /// `--memtable-memory`.
    memtables: &'static str,
    controllers: bool,
    rate_per_s: f64,
    warmup_s: f64,
    /// Length after the warm-up.
    seconds: f64,
}

impl Phase {
    /// Starts a server with an empty folder, measures the phase on it, and adds the results.
    fn measure(self, stage: &mut Stage, chapter: &mut Chapter) -> Result<(), DemoError> {
        let mut flags = server_flags(&stage.flush, self.memtables);
        flags.extend(["--background-controllers".to_string(), self.controllers.to_string()]);
        stage.restart(&flags)?;
        let (report, begin_s, end_s) = open_loop(stage, self.rate_per_s, self.warmup_s, self.seconds)?;
        let cpu = stage.probe.between(begin_s, end_s);
        let run = LoadRun::of(WRITES, &report, 0).unwrap_or_default();
        let loads = vec![WindowLoad::of(run, &report.steps[0])];
        chapter.windows.push(Window { id: self.id, label: self.label, begin_s, end_s, loads, cpu });
        chapter.series[0].points.extend(Series::of(WRITES, &report.seconds).points);
        chapter.cpu.extend(stage.probe.points(begin_s, end_s));
        chapter.storage.extend(stage.probe.storage(begin_s, end_s));
        Ok(())
    }
}

/// Measures the phases of both kinds of servers.
fn alternating(stage: &mut Stage, controllers: bool, phases: usize) -> Result<Chapter, DemoError> {
    let phase_s = phase_s(stage.times.background.phase, stage.measured.log_bytes_per_s);
    let rate_per_s = stage.flush.rate_per_s(stage.measured.writes_per_s)?;
    stage.print(&format!("{phases} phases of {phase_s:.1} s, warm-up included"));
    let warmup_s = (phase_s * WARMUP_PART).max(WARMUP_S_MIN);
    let mut chapter = Chapter { series: vec![Series::of(WRITES, &[])], ..Chapter::default() };
    for (phase, kind) in pairs(&FLUSHING, &IN_MEMORY, phases / 2).into_iter().enumerate() {
        Phase {
            id: format!("{}-{phase}", kind.replace(' ', "_")),
            label: kind.to_string(),
            memtables: if kind == FLUSHING { SMALL } else { LARGE },
            controllers,
            rate_per_s,
            warmup_s,
            seconds: phase_s - warmup_s,
        }
        .measure(stage, &mut chapter)?;
    }
    // All phases have the same level, and the client's results contain more.
    chapter.windows.iter_mut().for_each(|window| window.cpu.served.clear());
    stage.notes.extend(not_comparable(&chapter));
    stage.notes.extend(few_flushes(&chapter, controllers));
    Ok(chapter)
}

/// Returns a note if a phase of the small server had few flushes.
fn few_flushes(chapter: &Chapter, controllers: bool) -> Option<String> {
    let phases = chapter.windows.iter().filter(|window| window.label == FLUSHING);
    let flushes = phases.map(|window| chapter.storage_sum(window, |point| point.flushes));
    let least = flushes.reduce(f64::min)?.round();
    (least < FLUSHES_MIN).then(|| {
        format!(
            "Phases with controllers {} had as few as {least:.0} flushes each, fewer than {FLUSHES_MIN:.0}: the \
             writes were too slow to fill memtables in so short a time. Use `--seconds` for longer phases.",
            if controllers { "on" } else { "off" }
        )
    })
}

/// Returns a note if the large server flushed, or the small one hardly did.
fn not_comparable(chapter: &Chapter) -> Option<String> {
    let written = |label| chapter.storage_mean(label, StoragePoint::background_bytes_per_s);
    let (flushing, in_memory) = (written(FLUSHING), written(IN_MEMORY));
    let log = chapter.storage_mean(FLUSHING, |point| point.log_bytes_per_s);
    (in_memory > flushing * IN_MEMORY_PART_MAX || flushing <= log * FLUSHED_PART_MIN).then(|| {
        format!(
            "Invalid: flushes and compactions wrote {:.1} MB a second on the server that should flush nothing, and \
             {:.1} MB on the other one, whose log wrote {:.1} MB. The phases are not comparable.",
            in_memory / 1e6,
            flushing / 1e6,
            log / 1e6
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_ends_before_the_log_is_long() {
        assert_eq!(phase_s(30.0, 5e6), 30.0);
        assert_eq!(phase_s(30.0, 0.0), 30.0);
        let phase = phase_s(30.0, 20e6);
        assert!((16.0..16.2).contains(&phase), "{phase}");
    }

    #[test]
    fn few_flushes_are_noted() {
        let window = Window { label: FLUSHING.into(), begin_s: 0.0, end_s: 5.0, ..Window::default() };
        let point = |at_s: f64| StoragePoint { at_s, flushes: 1.0, ..StoragePoint::default() };
        let chapter = |seconds: &[f64]| Chapter {
            windows: vec![window.clone()],
            storage: seconds.iter().copied().map(point).collect(),
            ..Chapter::default()
        };
        assert_eq!(few_flushes(&chapter(&[0.5, 1.5, 2.5]), true), None);
        let note = few_flushes(&chapter(&[0.5, 1.5, 7.5]), false).expect("two flushes in the phase");
        assert!(note.contains("off had as few as 2") && note.contains("--seconds"), "{note}");
        assert_eq!(few_flushes(&Chapter::default(), true), None);
    }

    #[test]
    fn phases_that_do_not_differ_are_noted() {
        let window = |label: &str, begin_s: f64| Window {
            label: label.into(),
            begin_s,
            end_s: begin_s + 2.0,
            ..Window::default()
        };
        let point = |at_s: f64, flush_bytes_per_s: f64| StoragePoint {
            at_s,
            flush_bytes_per_s,
            log_bytes_per_s: 4e6,
            ..StoragePoint::default()
        };
        let mut chapter = Chapter {
            windows: vec![window(FLUSHING, 0.0), window(IN_MEMORY, 4.0)],
            storage: vec![point(0.5, 2e6), point(1.5, 4e6), point(4.5, 4096.0), point(7.5, 9e9)],
            ..Chapter::default()
        };
        assert_eq!(not_comparable(&chapter), None);
        chapter.storage[2].flush_bytes_per_s = 1e5;
        assert!(not_comparable(&chapter).expect("the large server flushed").starts_with("Invalid"));
        chapter.storage = vec![point(0.5, 1e5), point(4.5, 0.0)];
        assert!(
            not_comparable(&chapter).expect("the small server hardly flushed").contains("log wrote 4.0 MB")
        );
        assert!(not_comparable(&Chapter::default()).is_some());
    }
}
