//! Writes beside flushes and compactions, and while these are held back: an open loop of writes at a part of what the server
//! can take, for minutes, once with the controllers of background work and once without.
//!
//! ```text
//!   running     ███████                         ███████          the server's own clock, so that both sides know the phases:
//!   held back          ░░░░░░░░                        ░░░░░░░░  of four since 1970 the second;
//!   catching up                ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                  what waited is flushed in the third, and merged until the fourth ends
//!   steps      g┆ body g┆ body g┆ body g┆ body g┆ body g┆ body   g: after a change, not counted
//! ```

use load::{Keys, Pacing, Report, Rows, Spec, Step, Workload};

use super::DemoError;
use super::figures::{Capacity, Chapter, Run, Series, StoragePoint, Window, WindowLoad};
use super::loads::KEYSPACE;
use super::metrics::now_s;
use super::server::ADMIN;
use super::stage::{Stage, Times};
use crate::rooms::{HELD_PHASE, HOLD_CYCLE};

/// The load in reports.
pub(super) const WRITES: &str = "writes";
/// Background work is done when nothing was written for so many seconds.
const QUIET_S: f64 = 3.0;
/// Rows that are written again and again: some hundred megabytes, so that there is something to merge.
const ROWS: u64 = 1_000_000;
/// The part of capacity that is asked for.
const PART: f64 = 0.4;
/// Requests in flight of the closed loop that looks for capacity.
const BACKLOG: usize = 256;
/// About what one row takes in a memtable, bytes: 170 of values, the key, and the tree around them.
const ROW_MEMORY_BYTES: f64 = 400.0;
/// What is written while background work is held back waits in memory of its own; as much again as expected of half a phase, for the
/// work that was under way.
const HELD_SLACK: f64 = 1.5;
/// The memory of servers, MiB: memtables of 32 MiB, one every second or two.
const MEMORY_MIB: f64 = 512.0;
/// The part of a phase that is not counted, at its beginning: 3 s of 30.
const GUARD_PART: f64 = 0.1;
/// A guard is not shorter, since both clocks are read a little late.
const GUARD_S_MIN: f64 = 1.0;
/// The kinds of phases: with all the work that a server always has; with none; with that and what waited.
pub(super) const RUNNING: &str = "running";
pub(super) const HELD: &str = "held back";
pub(super) const CATCHING_UP: &str = "catching up";
/// Seconds of writes before the first phase, so that connections and caches are warm.
const WARMUP_S: f64 = 1.0;
/// From asking a load to run to its first request.
const CONNECT_S: f64 = 0.3;
/// Of what is written while background work runs, what may be while it is held back: what was under way.
const HELD_PART_MAX: f64 = 0.05;

/// Of so many phases in a row one is running and the next one held back, whichever comes first.
pub(super) const PHASES_MIN: usize = HOLD_CYCLE as usize + 1;

/// What the command line asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// The length of each.
    pub(super) seconds: Option<f64>,
    /// How many with controllers.
    pub(super) phases: Option<usize>,
    /// The servers' `--commit`.
    pub(super) commit: Option<String>,
    /// Writes a second, instead of [`PART`] of capacity.
    pub(super) rate_per_s: Option<f64>,
}

impl Asked {
    /// These times, but for what was asked for.
    pub(super) fn times(&self, times: Times) -> Times {
        let background_phases = self
            .phases
            .map_or(times.background_phases, |phases| (phases, phases.div_ceil(2).max(PHASES_MIN)));
        Times { background: self.seconds.unwrap_or(times.background), background_phases, ..times }
    }

    /// Writes a second, of so many that the server can take. Errors: more were asked for, which would wait without end.
    fn rate_per_s(&self, capacity_per_s: f64) -> Result<f64, DemoError> {
        match self.rate_per_s {
            Some(rate) if rate >= capacity_per_s => Err(DemoError::Failed(format!(
                "The server takes {capacity_per_s:.0} writes a second for long; --rate wants fewer, not {rate:.0}."
            ))),
            Some(rate) => Ok(rate),
            None => Ok(capacity_per_s * PART),
        }
    }
}

/// Flags of all servers here, and all of that whose capacity is looked for.
pub(super) fn flags(asked: &Asked) -> Vec<String> {
    let memory = [("--memory", format!("{MEMORY_MIB:.0}MiB"))];
    let commit = asked.commit.iter().map(|commit| ("--commit", commit.clone()));
    words(memory.into_iter().chain(commit))
}

fn words(flags: impl IntoIterator<Item = (&'static str, String)>) -> Vec<String> {
    flags.into_iter().flat_map(|(flag, value)| [flag.to_string(), value]).collect()
}

/// Memory in which a phase of writes waits to be flushed, MiB.
fn hold_memory_mib(rate_per_s: f64, phase_s: f64) -> f64 {
    (rate_per_s * phase_s * ROW_MEMORY_BYTES * HELD_SLACK / f64::from(1 << 20)).max(64.0)
}

/// What the server takes of writes alone, with the flushes and compactions that come with them, to their end: what a closed loop gets while it
/// lasts, spread over that time and the time that background work takes to catch up.
pub(super) fn capacity(stage: &mut Stage) -> Result<Capacity, DemoError> {
    stage.say(&format!(
        "capacity for writes: closed loop, {BACKLOG} in flight, and what it leaves to be done"
    ));
    // As long as it takes for memtables to fill and be flushed several times.
    let (warmup_s, seconds) = (stage.times.settle, 3.0 * stage.times.capacity);
    let pacing = Pacing::Closed { in_flight: BACKLOG, seconds };
    let spec = Spec { warmup_s, create: true, ..writes(stage, pacing) };
    let report = stage.run("writes, closed loop", &spec)?;
    let written = Run::of("writes, flushes and compactions to their end included", &report, 0);
    let Some(mut written) = written.filter(|run| run.throughput_per_s >= 1.0) else {
        return Err(DemoError::Failed("The server answered no writes; there is nothing to show.".into()));
    };
    let settling_s = stage.settle(QUIET_S, "capacity is less than it says")?;
    let loaded_s = warmup_s + seconds;
    stage.say(&format!(
        "{:.0} writes/s for {loaded_s:.0} s, settled {settling_s:.0} s later",
        written.throughput_per_s
    ));
    written.throughput_per_s *= loaded_s / (loaded_s + settling_s);
    stage.writes_per_s = written.throughput_per_s;
    stage.say(&format!("capacity: {:.0} writes/s", stage.writes_per_s));
    stage.flush.rate_per_s(stage.writes_per_s)?;
    Ok(Capacity { writes: Some(written), ..Capacity::default() })
}

fn writes(stage: &Stage, pacing: Pacing) -> Spec {
    let plain = stage.spec(ADMIN, Workload::Write, pacing);
    let rows = Rows { keyspace: KEYSPACE.to_string(), ..plain.rows.clone() };
    let keys = Keys { population: ROWS, ..plain.keys.clone() };
    Spec { keys, rows, create: true, seed: 11, ..plain }
}

/// With the controllers, as every server runs.
pub(super) fn controlled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = alternating(stage, true, stage.times.background_phases.0)?;
    chapter.id = "controlled".into();
    chapter.title = "Flush and compaction paced by their controllers".to_string();
    let rate_per_s = stage.flush.rate_per_s(stage.writes_per_s)?;
    chapter.what = format!(
        "An open loop of single-row writes, {rate_per_s:.0} a second: {:.0} % of what the server can take for long, flushes and compactions included. In every fourth \
         phase the server holds these back: what is written waits in memory set aside for that. It is flushed in the next phase, evenly, and merged until \
         the end of the one after that: these two have more work than a server that is left alone, and are not compared. Then the server does what it \
         always does for a phase.",
        rate_per_s / stage.writes_per_s * 100.0
    );
    Ok(chapter)
}

/// The same with static shares: the harm.
pub(super) fn uncontrolled(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let mut chapter = alternating(stage, false, stage.times.background_phases.1)?;
    chapter.id = "uncontrolled".into();
    chapter.title = "The same with the controllers switched off".to_string();
    chapter.what = "The same load on a server with `--background-controllers false`: each flush and compaction runs as fast as it can with the shares \
                    it has."
        .to_string();
    Ok(chapter)
}

/// A server that holds background work back in every fourth phase, and writes over `phases` of them.
fn alternating(stage: &mut Stage, controllers: bool, phases: usize) -> Result<Chapter, DemoError> {
    let phase = stage.times.background;
    let rate_per_s = stage.flush.rate_per_s(stage.writes_per_s)?;
    let hold_mib = hold_memory_mib(rate_per_s, phase);
    let more = [
        ("--background-controllers", controllers.to_string()),
        ("--hold-background", format!("{phase:.0}")),
        ("--hold-memory", format!("{hold_mib:.0}MiB")),
    ];
    let flags = [flags(&stage.flush), words(more)].concat();
    stage.restart(&flags)?;
    let guard = (phase * GUARD_PART).max(GUARD_S_MIN);
    let steps = (0..phases).flat_map(|_| [guard, phase - guard]);
    let steps = steps.map(|seconds| Step { rate_per_s, seconds }).collect();
    let spec = Spec { warmup_s: WARMUP_S, ..writes(stage, Pacing::Open(steps)) };
    let lead = lead_s(now_s(), phase);
    stage.wait(lead, &mut [])?;
    stage.say(&format!("{rate_per_s:.0} writes a second, {phases} phases of {phase:.0} s"));
    let report = stage.run(WRITES, &spec)?;
    Ok(chapter(stage, &report, phase))
}

/// How long to wait until a load begun then is warm at the beginning of a phase.
fn lead_s(now_s: f64, phase_s: f64) -> f64 {
    let early = WARMUP_S + CONNECT_S;
    let next = ((now_s + early) / phase_s).ceil() * phase_s;
    next - early - now_s
}

/// What kind a phase is of at this moment: the names of kinds begin the names of phases.
fn kind(at_s: f64, phase_s: f64) -> &'static str {
    match (at_s / phase_s).floor().rem_euclid(f64::from(HOLD_CYCLE)) as u32 {
        0 => RUNNING,
        HELD_PHASE => HELD,
        _ => CATCHING_UP,
    }
}

fn chapter(stage: &mut Stage, report: &Report, phase: f64) -> Chapter {
    let mut windows = Vec::new();
    // Every second step is a phase without its guard.
    for (index, step) in report.steps.iter().enumerate().skip(1).step_by(2) {
        let Some(run) = Run::of(WRITES, report, index) else { continue };
        let begin_s = step.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + step.seconds;
        let kind = kind(f64::midpoint(begin_s, end_s), phase);
        let mut cpu = stage.probe.between(begin_s, end_s);
        // One level in twenty phases: the client's own figures say more.
        cpu.served.clear();
        windows.push(Window {
            id: format!("{}-{}", kind.replace(' ', "_"), index / 2),
            label: kind.to_string(),
            begin_s,
            end_s,
            loads: vec![WindowLoad {
                load: WRITES.to_string(),
                throughput_per_s: run.throughput_per_s,
                asked_per_s: run.asked_per_s,
                latency: Some(run.latency),
                from_sent: Some(step.from_sent),
                errors: run.errors,
                held_back: run.held_back,
                generator_cpu: run.generator_cpu,
                generator_lag_p99_us: step.generator_lag_p99_us,
                ..WindowLoad::default()
            }],
            cpu,
        });
    }
    let (begin, end) = ends(&windows);
    let chapter = Chapter {
        series: vec![Series::of(WRITES, &report.seconds)],
        cpu: stage.probe.points(begin, end),
        storage: stage.probe.storage(begin, end),
        windows,
        ..Chapter::default()
    };
    stage.notes.extend(not_held(&chapter));
    chapter
}

fn ends(windows: &[Window]) -> (f64, f64) {
    (windows.first().map_or(0.0, |w| w.begin_s), windows.last().map_or(0.0, |w| w.end_s))
}

/// What flush and compaction wrote in the phases of one kind, bytes a second.
pub(super) fn written_per_s(chapter: &Chapter, kind: &str) -> f64 {
    let in_phase = |point: &&StoragePoint| {
        let inside = |window: &&Window| (window.begin_s..window.end_s).contains(&point.at_s);
        chapter.windows.iter().filter(|window| window.label == kind).any(|window| inside(&window))
    };
    let points: Vec<&StoragePoint> = chapter.storage.iter().filter(in_phase).collect();
    let sum: f64 = points.iter().map(|point| point.flush_bytes_per_s + point.compaction_bytes_per_s).sum();
    sum / points.len().max(1) as f64
}

/// A comparison of phases that do not differ says nothing: a sentence when it is one.
fn not_held(chapter: &Chapter) -> Option<String> {
    let (running, held) = (written_per_s(chapter, RUNNING), written_per_s(chapter, HELD));
    let megabytes = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
    (held > running * HELD_PART_MAX || running <= 0.0).then(|| {
        format!(
            "Invalid: flush and compaction wrote {} a second while held back, and {} while running; there is nothing to compare.",
            megabytes(held),
            megabytes(running)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_a_part_of_capacity_or_what_was_asked_for() {
        let rate = |asked| Asked { rate_per_s: asked, ..Asked::default() }.rate_per_s(50_000.0);
        assert_eq!(rate(None).expect("a part"), 20_000.0);
        assert_eq!(rate(Some(30_000.0)).expect("less than capacity"), 30_000.0);
        let refused = rate(Some(50_000.0)).expect_err("it would wait without end").to_string();
        assert!(refused.contains("takes 50000 writes"), "{refused}");
    }

    #[test]
    fn memory_holds_what_is_held_back() {
        assert_eq!(hold_memory_mib(10.0, 5.0), 64.0);
        // 40,000 a second for 30 s are 480 MB, and half as much again.
        let memory = hold_memory_mib(40_000.0, 30.0);
        assert!((686.0..688.0).contains(&memory), "{memory}");
    }

    #[test]
    fn phases_follow_the_clock() {
        let kinds = [120.1, 179.9, 180.1, 239.9, 240.1].map(|at_s| kind(at_s, 30.0));
        assert_eq!(kinds, [RUNNING, HELD, CATCHING_UP, CATCHING_UP, RUNNING]);
        for now in [1000.0, 1000.1, 1028.6, 1028.8, 1029.9] {
            let lead = lead_s(now, 30.0);
            let warm = now + lead + WARMUP_S + CONNECT_S;
            assert!(
                (0.0..30.0).contains(&lead) && (warm / 30.0 - (warm / 30.0).round()).abs() < 1e-6,
                "{now}: {lead}"
            );
        }
    }

    #[test]
    fn phases_that_do_not_differ_are_told() {
        let window = |label: &str, begin_s: f64| Window {
            label: label.into(),
            begin_s,
            end_s: begin_s + 2.0,
            ..Window::default()
        };
        let point = |at_s: f64, flush_bytes_per_s: f64| StoragePoint {
            at_s,
            flush_bytes_per_s,
            ..StoragePoint::default()
        };
        let mut chapter = Chapter {
            windows: vec![window(RUNNING, 0.0), window(HELD, 4.0), window(CATCHING_UP, 6.0)],
            storage: vec![point(0.5, 2e6), point(1.5, 4e6), point(4.5, 1e5), point(7.5, 9e9)],
            ..Chapter::default()
        };
        assert_eq!([RUNNING, HELD, CATCHING_UP].map(|kind| written_per_s(&chapter, kind)), [3e6, 1e5, 9e9]);
        assert_eq!(not_held(&chapter), None);
        chapter.storage[2].flush_bytes_per_s = 2e6;
        assert!(not_held(&chapter).expect("nothing to compare").starts_with("Invalid"));
        assert!(not_held(&Chapter::default()).is_some());
    }
}
