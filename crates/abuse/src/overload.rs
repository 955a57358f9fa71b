//! Overload: more requests than the server can answer, from the load generator. A hardened server
//! answers as many as at its best, rejects the others in time, and lets the administrator log in.
//!
//! 1. Start a server on one core, so that the load generator has the other core.
//! 2. Find the capacity: the best of closed loops with few to many requests in flight.
//! 3. Run a closed loop with 8,192 requests in flight, then an open loop at ten times the capacity.
//!    Both run beside the administrator. Then check the server.
//! 4. Repeat the best closed loop, which shows recovery. The best of all runs is the capacity.
//!
//! Requests are slices of 100 rows, so that the generator needs only a small part of its core even
//! at ten times the capacity. With reads of single rows it could not reach that rate.

use std::path::PathBuf;
use std::time::Duration;

use load::overload::{best, closed_loops};
use load::{Keys, Pacing, RateStep, Report, RowLayout, Spec, StopFlag, Workload};

use crate::admin::Admin;
use crate::cpu::Phase;
use crate::memory::RESIDENT_MAX;
use crate::report;
use crate::results::{Cpu, Load, Results};
use crate::server::{AttackedServer, Conditions};
use crate::setup;
use crate::target::{ADMIN, PASSWORD};
use crate::verdict::FOREIGN_MAX;

/// Numbers of requests in flight whose best goodput is the capacity.
const LADDER: [usize; 3] = [64, 256, 1_024];
/// Requests in flight of the closed loop.
const IN_FLIGHT: usize = 8_192;
/// Most requests in flight of the open loop, and on one of its connections.
const OPEN_IN_FLIGHT_MAX: usize = 32_768;
const OPEN_STREAMS: usize = 2_048;
/// Rate of the open loop, as a multiple of the capacity.
const RATE_FACTOR: f64 = 10.0;
/// Smallest accepted goodput under overload, as a fraction of the best goodput.
const GOODPUT_MIN: f64 = 0.9;
/// Number of partitions, and rows of each.
const PARTITIONS: u64 = 500;
const ROWS: u64 = 100;

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct OverloadOptions {
    pub(crate) server: PathBuf,
    /// Duration of each of the two overloads.
    pub(crate) time: Duration,
    /// Page of the report. The results as JSON and the table as Markdown go beside it.
    pub(crate) report: Option<PathBuf>,
}

/// Runs the loads and prints their results. Returns missed criteria as an error.
pub(crate) fn run(options: &OverloadOptions) -> Result<(), String> {
    let begun = Results::begin();
    let mut server =
        AttackedServer::start(&options.server, &Conditions { cores: "0,", ..Conditions::default() })?;
    // Creates the level that the administrator alters.
    setup::make(&server.target)?;
    let loads = measure(options, &mut server)?;
    if let Some(page) = &options.report {
        let results = Results { loads: loads.clone(), ..begun };
        results.write(&page.with_extension("json"))?;
        report::write(&results, page)?;
    }
    let failed: Vec<String> = loads
        .iter()
        .flat_map(|load| load.reasons.iter().map(|reason| format!("{}: {reason}", load.name)))
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Returns the load as the command line of the generator describes it: slices of 100 rows.
fn slices(server: &AttackedServer) -> Spec {
    let plain = Spec::default();
    Spec {
        workload: Workload::Slice,
        hosts: vec![server.target.cql.to_string()],
        user: Some(ADMIN.to_owned()),
        password: Some(PASSWORD.to_owned()),
        keys: Keys { population: PARTITIONS, ..plain.keys },
        rows: RowLayout { per_partition: ROWS, columns: 1, ..plain.rows },
        ..plain
    }
}

fn measure(options: &OverloadOptions, server: &mut AttackedServer) -> Result<Vec<Load>, String> {
    let short = (options.time / 4).clamp(Duration::from_secs(3), Duration::from_secs(20)).as_secs_f64();
    let (seconds, base) = (options.time.as_secs_f64(), slices(server));
    generate("prefill", server, &Spec { workload: Workload::Prefill, ..base.clone() })?;
    let mut loads = Vec::new();
    let loops = closed_loops(&base, &LADDER, short, |in_flight, spec| {
        let (load, report) = generate(&format!("closed loop, {in_flight} in flight"), server, spec)?;
        loads.push(load);
        Ok::<Report, String>(report)
    })?;
    let best = best(&loops).ok_or("the server answered no requests")?;
    let closed = Spec { pacing: Pacing::Closed { in_flight: IN_FLIGHT, seconds }, ..base.clone() };
    loads.push(beside_admin(&format!("closed loop, {IN_FLIGHT} in flight"), server, &closed)?);
    let rate_per_s = (best.throughput_per_s() * RATE_FACTOR).round();
    let open = Spec {
        streams: OPEN_STREAMS,
        max_in_flight: OPEN_IN_FLIGHT_MAX,
        pacing: Pacing::Open(vec![RateStep { rate_per_s, seconds }]),
        ..base.clone()
    };
    loads.push(beside_admin(&format!("open loop, {rate_per_s:.0} a second"), server, &open)?);
    let in_flight = best.in_flight;
    let after = Spec { pacing: Pacing::Closed { in_flight, seconds: short }, ..base };
    loads.push(generate(&format!("closed loop, {in_flight} in flight, after"), server, &after)?.0);
    judge(&mut loads);
    loads.iter().for_each(|load| println!("{}", load.line()));
    Ok(loads)
}

/// Compares the goodput of overloads and of the recovery with the best one.
fn judge(loads: &mut [Load]) {
    let best = loads.iter().map(|load| load.goodput_per_s).fold(0.0, f64::max);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (index, load) in loads.iter_mut().enumerate() {
        load.of_best = load.goodput_per_s / best;
        if index < LADDER.len() || load.of_best >= GOODPUT_MIN {
            continue;
        }
        let (percent, least) = (load.of_best * 100.0, GOODPUT_MIN * 100.0);
        let text = format!("goodput is {percent:.1} % of the best, at least {least:.0} %");
        let foreign = load.cpu.foreign(cores);
        if foreign > FOREIGN_MAX {
            let part = foreign * 100.0;
            load.unclear.push(format!("{text}; other programs and the host took {part:.0} % of the machine"));
        } else {
            load.reasons.push(text);
        }
    }
}

/// Runs a load beside the administrator, and checks the server afterwards.
fn beside_admin(name: &str, server: &mut AttackedServer, spec: &Spec) -> Result<Load, String> {
    let panics = server.panics().len();
    server.memory.take_peak();
    let admin = Admin::start(server.target);
    let outcome = generate(name, server, spec);
    let visits = admin.stop();
    let (mut load, _) = outcome?;
    load.resident_mib = server.memory.take_peak() >> 20;
    load.reasons.extend(server.check().err().map(|how| format!("the server died: {how}")));
    load.reasons.extend(server.panics().get(panics).map(|line| format!("the server panicked: {line}")));
    if load.resident_mib > RESIDENT_MAX >> 20 {
        load.reasons.push(format!("{} MiB resident, at most {}", load.resident_mib, RESIDENT_MAX >> 20));
    }
    for (way, visits) in visits {
        load.admin_ms.push((way.to_owned(), visits.max_ms));
        if visits.failures.labels().next().is_some() {
            load.reasons.push(format!("administrator over {way}: {}", visits.failures.summary()));
        }
    }
    Ok(load)
}

/// Runs a load in this process. Returns its results, and its report.
fn generate(name: &str, server: &AttackedServer, spec: &Spec) -> Result<(Load, Report), String> {
    let phase = Phase::begin(server.pid());
    let report = load::run(spec, &StopFlag::new(), |_| {}).map_err(|error| format!("{name}: {error}"))?;
    let mut load = results(name, &report).ok_or_else(|| format!("{name}: the load was not measured"))?;
    // The generator counts as the attacker, not as the tool whose threads it has.
    let cpu = phase.end(0.0);
    let attacker_s = (report.generator_cpu * load.seconds).min(cpu.tool_s);
    load.cpu = Cpu { attacker_s, tool_s: cpu.tool_s - attacker_s, ..cpu };
    Ok((load, report))
}

/// Returns the results of the only step of a load.
fn results(name: &str, report: &Report) -> Option<Load> {
    let step = report.steps.first()?;
    Some(Load {
        name: name.to_owned(),
        seconds: step.seconds,
        sent_per_s: step.sent as f64 / step.seconds,
        goodput_per_s: step.answered as f64 / step.seconds,
        overloaded: step.overloaded,
        other_errors: step.errors.checked_sub(step.overloaded)?,
        lost: step.lost + step.unanswered,
        unsent: step.unsent,
        generator_cpu: report.generator_cpu,
        ..Load::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_below_nine_tenths_of_the_best_fails() {
        let load = |goodput_per_s: f64, others_s: f64| {
            let cpu = Cpu { wall_s: 1.0, others_s, ..Cpu::default() };
            Load { goodput_per_s, cpu, ..Load::default() }
        };
        let ladder = [load(10.0, 0.0), load(100.0, 0.0), load(90.0, 0.0)];
        let overloads = [load(90.0, 0.0), load(89.0, 0.0), load(89.0, 9.0)];
        let mut loads = [ladder, overloads].concat();
        judge(&mut loads);
        let found: Vec<_> = loads.iter().map(|load| (load.reasons.len(), load.unclear.len())).collect();
        assert_eq!(found, [(0, 0), (0, 0), (0, 0), (0, 0), (1, 0), (0, 1)]);
        assert!(loads[4].reasons[0].contains("89.0 % of the best"));
    }
}
