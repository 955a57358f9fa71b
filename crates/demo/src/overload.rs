//! More load than the server can do, without and with `max_concurrency = 'auto'`.
//!
//! ```text
//!   closed loops, 16 … 8,192 in flight ─► best ─► open loops, 20 … 103 % ─► capacity
//!   interactive   ░ 40 % ░ 40 % ░ … ░ 100 % ░ 100 % ░ … ░ 1,000 % ░ 1,000 %    ░ pause
//!   limiter          off    on          on      off         on        off
//!   steady        ███████████████████████████████████████████████████████
//! ```
//!
//! 1. Run a ladder of closed loops, then open loops at rising parts of its best. Capacity is the
//!    highest rate that is answered in time. It is usually less than the best of the ladder: deep
//!    queues of a closed loop make a request cheaper.
//! 2. Offer each rate as an open loop, without and with the limiter, in the order A B B A. The
//!    limiter is switched in the pause, on live sessions.
//! 3. A steady load in another level runs beside it at the same rate all the time. At first it is
//!    alone.
//!
//! Clients are well behaved. A refused client sends nothing before the time that it was told, and
//! counts what is due meanwhile as not served. So the generator's own work is bounded: requests
//! beyond its most in flight are not sent, and not sent later either.

use std::time::Duration;

use load::overload::{ClosedLoop, best, closed_loops};
use load::{Keys, Pacing, RateStep, Report, RowLayout, Spec, StepReport, Workload};

use crate::error::DemoError;
use crate::names::{FROM_DISK, FROM_MEMORY, FULL_MEMTABLES, INTERACTIVE, STEADY};
use crate::open_loop::{Search, capacity, together};
use crate::options::OverloadTimes;
use crate::results::{Chapter, LoadRun, Offered, Window, WindowLoad};
use crate::server::ADMIN;
use crate::stage::{KEYSPACE, Stage};
use charts::numbers::{percent, rate, time};

/// Time limit of the interactive level's statements: the goodput counts answers within it.
const TIME_LIMIT: Duration = Duration::from_millis(100);
/// Requests in flight of the closed loops.
const LADDER: [usize; 6] = [16, 64, 256, 1024, 4096, 8192];
/// Length of a closed loop, and warm-up before it, seconds. A second has tens of thousands of
/// requests.
const RUNG_S: f64 = 0.6;
const RUNG_WARMUP_S: f64 = 0.2;
/// Rates of the open loops that search for the capacity, as fractions of the best closed loop. In a
/// second, writes at capacity fill a memtable.
const SEARCH: Search = Search { first: 0.2, ratio: 1.2, count: 10, seconds: 1.0 };
/// Offered rates, in order. The lowest one is the base of comparison, and so measured twice.
pub(crate) const RATES: [OfferedRate; 12] = [
    unlimited(0.4),
    limited(0.4),
    limited(0.4),
    unlimited(0.4),
    unlimited(1.0),
    limited(1.0),
    limited(1.4),
    unlimited(1.4),
    unlimited(2.0),
    limited(2.0),
    limited(10.0),
    unlimited(10.0),
];
/// Rate of the steady load, as a fraction of capacity, and the most of it: a p99 of a phase needs
/// some hundred answers.
const STEADY_PART: f64 = 0.03;
const STEADY_PER_S_MAX: f64 = 1000.0;
/// Warm-up at each rate, seconds. A queue stands after 0.1 s, and is short after 0.4 s.
const OVERLOAD_WARMUP_S: f64 = 0.5;
/// Connections, each a client of its own.
const CONNECTIONS: usize = 64;
/// Most requests in flight over all connections: more than the constant bounds of the server.
const IN_FLIGHT_MAX: usize = 32_000;
/// Memory of the server, of memtables where they are to be full, and rows by kind of load. Rows on
/// disk take four times the memory of their server.
const FLAGS: [&str; 4] = ["--memory", "1GiB", "--memtable-memory", "64MiB"];
const DISK_FLAGS: [&str; 4] = ["--memory", "64MiB", "--memtable-memory", "64MiB"];
const DISK_ROWS: u64 = 250_000;
const LARGE_VALUE_BYTES: usize = 200;
const SMALL_VALUE_BYTES: usize = 34;

/// Rate that clients offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OfferedRate {
    /// Fraction of capacity. Zero: the steady load is alone.
    pub(crate) part: f64,
    /// True with the limiter.
    pub(crate) is_limited: bool,
}

const fn unlimited(part: f64) -> OfferedRate {
    OfferedRate { part, is_limited: false }
}

const fn limited(part: f64) -> OfferedRate {
    OfferedRate { part, is_limited: true }
}

/// LoadKind of load.
struct LoadKind {
    id: &'static str,
    title: &'static str,
    what: &'static str,
    workload: Workload,
    /// Partitions, and bytes in each column of their rows.
    partitions: u64,
    value_bytes: usize,
    flags: [&'static str; 4],
}

impl Offered {
    /// Returns the rate and the setting in words.
    pub(crate) fn label(&self) -> String {
        let how = if self.is_limited { "on" } else { "off" };
        match self.part {
            part if part > 0.0 => format!("{:.0}\u{a0}%, limiter {how}", part * 100.0),
            _ => "steady load alone".to_string(),
        }
    }
}

/// Returns the flags of the first server.
pub(crate) fn flags() -> Vec<String> {
    FLAGS.map(str::to_string).to_vec()
}

/// Reads of 100 rows from memory. Reads of single rows cost the server no more than the generator,
/// which cannot offer ten times as many as the server can do.
pub(crate) fn from_memory(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let kind = LoadKind {
        id: FROM_MEMORY,
        title: "Reads from memory",
        what: "Reads of 100 rows each that the core alone limits.",
        workload: Workload::Slice,
        partitions: stage.times.partitions,
        value_bytes: SMALL_VALUE_BYTES,
        flags: FLAGS,
    };
    chapter(stage, &kind)
}

/// Single-row reads of more rows than the cache has space for.
pub(crate) fn from_disk(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let kind = LoadKind {
        id: FROM_DISK,
        title: "Reads from disk",
        what: "Single-row reads of four times as many bytes as the server has memory.",
        workload: Workload::Read,
        partitions: DISK_ROWS,
        value_bytes: LARGE_VALUE_BYTES,
        flags: DISK_FLAGS,
    };
    chapter(stage, &kind)
}

/// Writes that fill memtables faster than flushes free them.
pub(crate) fn full_memtables(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let kind = LoadKind {
        id: FULL_MEMTABLES,
        title: "Writes into full memtables",
        what: "Writes of rows of 1 KB. Memtables are small, so that they are full after a second at capacity.",
        workload: Workload::Write,
        partitions: DISK_ROWS,
        value_bytes: LARGE_VALUE_BYTES,
        flags: FLAGS,
    };
    chapter(stage, &kind)
}

impl LoadKind {
    fn spec(&self, stage: &Stage, user: &str, pacing: Pacing) -> Spec {
        let plain = stage.spec(user, self.workload, pacing);
        Spec {
            keys: Keys { population: self.partitions, ..plain.keys.clone() },
            rows: RowLayout { value_bytes: self.value_bytes, ..plain.rows.clone() },
            route: false,
            drain_s: 2.0,
            ..plain
        }
    }

    /// Returns an open loop of clients that give up.
    fn open_loop(&self, stage: &Stage, user: &str, steps: Vec<RateStep>) -> Spec {
        Spec {
            connections: CONNECTIONS,
            streams: IN_FLIGHT_MAX / CONNECTIONS,
            max_in_flight: IN_FLIGHT_MAX,
            time_limit_s: Some(TIME_LIMIT.as_secs_f64()),
            ..self.spec(stage, user, Pacing::Open(steps))
        }
    }
}

fn failed(reason: &str) -> DemoError {
    DemoError::Failed(reason.to_string())
}

/// Creates table, rows, roles and levels.
fn prepare(stage: &mut Stage, kind: &LoadKind) -> Result<(), DemoError> {
    stage.print(&format!("writing {} partitions", kind.partitions));
    let pacing = Pacing::Closed { in_flight: 512, seconds: 0.0 };
    let spec = Spec { workload: Workload::Prefill, create: true, ..kind.spec(stage, ADMIN, pacing) };
    stage.fill(&spec)?;
    for role in [INTERACTIVE, STEADY] {
        stage.role(role)?;
        stage.cql(&[&format!("GRANT MODIFY ON KEYSPACE {KEYSPACE} TO {role}")])?;
    }
    stage.cql(&[
        &format!(
            "CREATE SERVICE LEVEL {INTERACTIVE} WITH shares = 1000 AND timeout = {}ms AND workload_type = \
             'interactive'",
            TIME_LIMIT.as_millis()
        ),
        &format!("CREATE SERVICE LEVEL {STEADY} WITH shares = 1000 AND workload_type = 'interactive'"),
        &format!("ATTACH SERVICE LEVEL {INTERACTIVE} TO {INTERACTIVE}"),
        &format!("ATTACH SERVICE LEVEL {STEADY} TO {STEADY}"),
    ])
}

/// Runs the ladder of closed loops, in a level without a time limit.
fn ladder(stage: &mut Stage, kind: &LoadKind) -> Result<Vec<ClosedLoop>, DemoError> {
    let pacing = Pacing::Closed { in_flight: LADDER[0], seconds: RUNG_S };
    let spec = Spec {
        connections: CONNECTIONS,
        warmup_s: RUNG_WARMUP_S,
        seed: 5,
        ..kind.spec(stage, ADMIN, pacing)
    };
    closed_loops(&spec, &LADDER, RUNG_S, |in_flight, spec| {
        let report = load::run(spec, &stage.stop, |_| {})?;
        stage.interrupted()?;
        stage.server_check()?;
        if let Some(run) = rung(in_flight, &report) {
            let (rate_per_s, p99) = (run.throughput_per_s, time(run.latency.p99_us));
            stage.print(&format!("{}: {rate_per_s:.0}/s, p99 {p99}, {} errors", run.load, run.errors));
        }
        Ok(report)
    })
}

/// Returns the results of a closed loop. `None`: it ended before it was measured.
fn rung(in_flight: usize, report: &Report) -> Option<LoadRun> {
    LoadRun::of(&format!("closed loop, {in_flight} in flight"), report, 0)
}

/// Returns the steps of both loads: the steady load alone, then for each rate a pause, a warm-up,
/// and what is measured.
fn steps(capacity_per_s: f64, times: OverloadTimes) -> Vec<RateStep> {
    let OverloadTimes { rate: seconds, pause } = times;
    let mut steps = vec![RateStep { rate_per_s: 0.0, seconds }];
    for rate in RATES {
        let rate_per_s = rate.part * capacity_per_s;
        steps.push(RateStep { rate_per_s: 0.0, seconds: pause });
        steps.push(RateStep { rate_per_s, seconds: OVERLOAD_WARMUP_S });
        steps.push(RateStep { rate_per_s, seconds });
    }
    steps
}

/// Returns the index of the rate that follows if `step` is a pause.
fn rate_after(step: usize) -> Option<usize> {
    (step % 3 == 1).then_some(step / 3)
}

/// Returns the statement that sets the limiter of the interactive level.
fn set_limiter(is_on: bool) -> String {
    let limit = if is_on { "'auto'" } else { "null" };
    format!("ALTER SERVICE LEVEL {INTERACTIVE} WITH max_concurrency = {limit}")
}

/// Runs both loads through all steps. Returns their reports.
fn offer(stage: &mut Stage, kind: &LoadKind, capacity_per_s: f64) -> Result<[Report; 2], DemoError> {
    let interactive = steps(capacity_per_s, stage.times.overload);
    let steady_per_s = (capacity_per_s * STEADY_PART).min(STEADY_PER_S_MAX);
    let steady = interactive.iter().map(|step| RateStep { rate_per_s: steady_per_s, ..*step }).collect();
    let steady = Spec { connections: 4, seed: 13, ..kind.spec(stage, STEADY, Pacing::Open(steady)) };
    let interactive = Spec { seed: 17, ..kind.open_loop(stage, INTERACTIVE, interactive) };
    let statements =
        |step| rate_after(step).map(|next| set_limiter(RATES[next].is_limited)).into_iter().collect();
    let reports = together(stage, &[(INTERACTIVE, interactive), (STEADY, steady)], statements)?;
    reports.try_into().map_err(|_| failed("A load has no report."))
}

/// Returns the results of a step.
fn offered(step: &StepReport, steady: &StepReport, rate: OfferedRate, cpu_cores: f64) -> Offered {
    let per_s = |count: u64| count as f64 / step.seconds.max(1e-9);
    let latency = |step: &StepReport| step.reads.as_ref().or(step.writes.as_ref()).map(|found| found.latency);
    let answered_per_s = step.throughput_per_s + steady.throughput_per_s;
    Offered {
        part: rate.part,
        is_limited: rate.is_limited,
        due_per_s: per_s(step.due),
        goodput_per_s: per_s(step.in_time),
        answered_per_s: step.throughput_per_s,
        refused_per_s: per_s(step.overloaded),
        failed_per_s: per_s(step.errors - step.overloaded),
        turned_away_per_s: per_s(step.turned_away),
        unsent_per_s: per_s(step.unsent),
        latency: latency(step).unwrap_or_default(),
        steady: latency(steady).unwrap_or_default(),
        in_flight: step.in_flight_mean,
        cpu_us: cpu_cores / answered_per_s.max(1e-9) * 1e6,
        generator_cpu: step.generator_cpu.max(steady.generator_cpu),
    }
}

/// Measures a kind of load on a server of its own.
fn chapter(stage: &mut Stage, kind: &LoadKind) -> Result<Chapter, DemoError> {
    if kind.id != FROM_MEMORY {
        stage.restart(&kind.flags.map(str::to_string))?;
    }
    prepare(stage, kind)?;
    let loops = ladder(stage, kind)?;
    let best = best(&loops).and_then(|best| rung(best.in_flight, &best.report));
    let best = best.ok_or_else(|| failed("The server answered no requests."))?;
    let rungs: Vec<LoadRun> =
        loops.iter().filter_map(|rung| self::rung(rung.in_flight, &rung.report)).collect();
    let last = rungs.last().map_or(0.0, |run| run.throughput_per_s);
    let closed_per_s = best.throughput_per_s;
    let rising = Spec { seed: 3, ..kind.open_loop(stage, ADMIN, Vec::new()) };
    let capacity_per_s = capacity(stage, rising, &SEARCH, closed_per_s)?;
    stage.print(&format!("capacity: {capacity_per_s:.0}/s; {closed_per_s:.0}/s, {}", best.load));
    let [interactive, steady] = offer(stage, kind, capacity_per_s)?;
    stage.probe.mark();
    let mut chapter = Chapter {
        id: kind.id.to_string(),
        title: kind.title.to_string(),
        what: format!(
            "{} A closed loop reaches {} a second ({}), and {} with {} in flight. An open loop is answered in time up \
             to {}, which is 100 % here. Then clients on {CONNECTIONS} connections offer fixed rates, \
             whatever the server answers. An answer counts if it comes within {} of \
             when its request was due.",
            kind.what,
            rate(closed_per_s),
            best.load,
            rate(last),
            rate(LADDER[LADDER.len() - 1] as f64),
            rate(capacity_per_s),
            time(TIME_LIMIT.as_secs_f64() * 1e6)
        ),
        runs: rungs,
        ..Chapter::default()
    };
    let measured = RATES.into_iter().enumerate().map(|(n, rate)| (3 * n + 3, rate));
    for (index, rate) in std::iter::once((0, unlimited(0.0))).chain(measured) {
        let (window, offered) = window(stage, [&interactive, &steady], index, rate)?;
        chapter.windows.push(window);
        chapter.offered.push(offered);
    }
    Ok(chapter)
}

/// Returns a step of both loads as a phase, and what its clients got.
fn window(
    stage: &Stage,
    [interactive, steady]: [&Report; 2],
    index: usize,
    rate: OfferedRate,
) -> Result<(Window, Offered), DemoError> {
    let (Some(step), Some(steady_step)) = (interactive.steps.get(index), steady.steps.get(index)) else {
        return Err(failed("A load ended early."));
    };
    let begin_s = step.begin_unix_ms as f64 / 1e3;
    let end_s = begin_s + step.seconds;
    let cpu = stage.probe.between(begin_s, end_s);
    let cores = cpu.levels.values().chain(cpu.groups.values()).sum();
    let offered = offered(step, steady_step, rate, cores);
    stage.print(&format!(
        "{}: {:.0}/s in time of {:.0}/s, {:.0}/s refused, p99 {}, steady p99 {}, {:.0} in flight, generator {}",
        offered.label(),
        offered.goodput_per_s,
        offered.due_per_s,
        offered.refused_per_s + offered.turned_away_per_s,
        time(offered.latency.p99_us),
        time(offered.steady.p99_us),
        offered.in_flight,
        percent(offered.generator_cpu)
    ));
    let loads = [(INTERACTIVE, interactive), (STEADY, steady)];
    let loads = loads.into_iter().filter_map(|(name, report)| {
        Some(WindowLoad::of(LoadRun::of(name, report, index)?, &report.steps[index]))
    });
    let window =
        Window { id: index.to_string(), label: offered.label(), begin_s, end_s, loads: loads.collect(), cpu };
    Ok((window, offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rate_has_a_pause_in_which_the_limiter_is_set() {
        let steps = steps(1000.0, OverloadTimes { rate: 2.0, pause: 1.0 });
        assert_eq!(steps.len(), 1 + 3 * RATES.len());
        for (index, step) in steps.iter().enumerate() {
            let expected = match (index, rate_after(index)) {
                (0, _) => 0.0,
                (_, Some(next)) => {
                    let after = [steps[index + 1].rate_per_s, steps[index + 2].rate_per_s];
                    assert_eq!(after, [RATES[next].part * 1000.0; 2]);
                    0.0
                }
                (_, None) => RATES[(index - 1) / 3].part * 1000.0,
            };
            assert_eq!(step.rate_per_s, expected, "step {index}");
        }
    }

    #[test]
    fn each_rate_is_offered_without_and_with_the_limiter() {
        for OfferedRate { part, .. } in RATES {
            let count = |rate: OfferedRate| RATES.iter().filter(|other| **other == rate).count();
            assert_eq!(count(unlimited(part)), count(limited(part)), "{part}");
        }
    }

    #[test]
    fn results_of_a_step_are_rates() {
        let step = StepReport {
            seconds: 2.0,
            due: 100,
            in_time: 40,
            overloaded: 10,
            errors: 12,
            turned_away: 6,
            unsent: 4,
            throughput_per_s: 30.0,
            generator_cpu: 0.5,
            ..StepReport::default()
        };
        let steady = StepReport { throughput_per_s: 10.0, ..StepReport::default() };
        let found = offered(&step, &steady, limited(1.4), 0.001);
        let rates = [found.due_per_s, found.goodput_per_s, found.refused_per_s, found.failed_per_s];
        assert_eq!(rates, [50.0, 20.0, 5.0, 1.0]);
        assert_eq!((found.turned_away_per_s, found.unsent_per_s, found.cpu_us), (3.0, 2.0, 25.0));
        assert_eq!(found.label(), "140\u{a0}%, limiter on");
    }
}
