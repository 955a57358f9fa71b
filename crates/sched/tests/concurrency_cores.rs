//! Predicted waits of the limiter on several cores, in simulated time. The statements of a level
//! share the cores equally. A parallel one uses all cores at once, whatever core admitted it. A
//! serial one uses the core that admitted it.

use std::collections::VecDeque;

use sched::control::{
    Arriving, Concurrency, ConcurrencyInput, ConcurrencyLimit, INTERVAL_NS, LevelBounds, Overload, Spread,
    Verdict,
};
use testkit::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Step of the simulation, ns.
const STEP_NS: u64 = MS;

#[derive(Clone, Copy)]
struct Statement {
    due_ns: u64,
    left_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    cores: usize,
    is_parallel: bool,
    /// Number of cores, from the first, that have connections.
    admitting: usize,
    /// CPU time of a statement, over all cores, ns.
    work_ns: u64,
    /// Arrivals, as a multiple of what the cores that work can do.
    offered: f64,
    time_limit_ns: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Results {
    in_time: u64,
    late: u64,
    expired: u64,
    /// Those of them that would have ended within 80 % of their time limit, even after all work of
    /// those in flight.
    refused_in_vain: u64,
}

struct Core {
    waiting: VecDeque<Statement>,
    running: Vec<Statement>,
    control: Concurrency,
    limit: ConcurrencyLimit,
}

/// Runs a level for a minute. Counts after ten seconds.
fn run(seed: u64, load: Load) -> Results {
    let mut random = Random::new(seed + 1);
    let input = ConcurrencyInput {
        interval_ns: INTERVAL_NS,
        entitlement_ppm: 1_000_000,
        bounds: LevelBounds { time_limit_ns: load.time_limit_ns, latency_target_ns: None, limit_max: 16_384 },
        ..ConcurrencyInput::default()
    };
    let limit = Concurrency::default().decide(input);
    let core =
        |_| Core { waiting: VecDeque::new(), running: Vec::new(), control: Concurrency::default(), limit };
    let mut cores: Vec<Core> = (0..load.cores).map(core).collect();
    let mut spread = Spread::new(load.cores);
    let mut results = Results::default();
    let mut ended = 0;
    let mut used_ns = vec![0; load.cores];
    let at_work = if load.is_parallel { load.cores } else { load.admitting };
    let mean_gap_ns = load.work_ns as f64 / (load.offered * at_work as f64);
    let mut next_ns = 0;
    for now_ns in (0..60 * SECOND).step_by(STEP_NS as usize) {
        let counted = u64::from(now_ns >= 10 * SECOND);
        while next_ns <= now_ns {
            let statement = Statement { due_ns: next_ns, left_ns: load.work_ns };
            cores[random.within(0, load.admitting as u64) as usize].waiting.push_back(statement);
            let part = (random.within(0, 1 << 30) + 1) as f64 / f64::from(1 << 30);
            next_ns += (-part.ln() * mean_gap_ns) as u64 + 1;
        }
        for at in 0..load.cores {
            while let Some(statement) = cores[at].waiting.front().copied() {
                let age_ns = now_ns - statement.due_ns;
                let arriving = Arriving {
                    age_ns,
                    time_limit_ns: load.time_limit_ns,
                    level_in_flight: cores[at].running.len() as u32,
                    queue_stands: false,
                    overload: Overload::Hold,
                    random: 0,
                };
                match cores[at].limit.admit(arriving) {
                    Verdict::Admit => cores[at].running.push(statement),
                    Verdict::Hold => break,
                    Verdict::Expired { .. } => {
                        let work = |core: &Core| core.running.len() as u64 * load.work_ns;
                        let before_ns = match load.is_parallel {
                            true => cores.iter().map(work).sum::<u64>() / load.cores as u64,
                            false => work(&cores[at]),
                        };
                        let own_ns = load.work_ns / if load.is_parallel { load.cores as u64 } else { 1 };
                        let end_ns = age_ns + before_ns + own_ns;
                        results.expired += counted;
                        results.refused_in_vain += counted * u64::from(end_ns < load.time_limit_ns / 5 * 4);
                    }
                    verdict => panic!("{verdict:?}"),
                }
                cores[at].waiting.pop_front();
            }
        }
        let all: usize = cores.iter().map(|core| core.running.len()).sum();
        let elsewhere: Vec<u64> = cores.iter().map(|core| (all - core.running.len()) as u64).collect();
        for (at, core) in cores.iter_mut().enumerate() {
            let running = core.running.len() as u64;
            let part_ns = match load.is_parallel {
                true => STEP_NS * load.cores as u64 / (all as u64).max(1),
                false => STEP_NS / running.max(1),
            };
            for one in &mut core.running {
                let used = part_ns.min(one.left_ns);
                one.left_ns -= used;
                match load.is_parallel {
                    true => used_ns.iter_mut().for_each(|ns| *ns += used / load.cores as u64),
                    false => used_ns[at] += used,
                }
            }
            core.running.retain(|one| {
                let has_ended = one.left_ns == 0;
                let is_late = now_ns + STEP_NS - one.due_ns > load.time_limit_ns;
                ended += u64::from(has_ended);
                results.late += counted * u64::from(has_ended && is_late);
                results.in_time += counted * u64::from(has_ended && !is_late);
                !has_ended
            });
        }
        if now_ns % INTERVAL_NS == 0 {
            let busiest_ppm = spread.add(INTERVAL_NS, &used_ns);
            let cpu_ns = used_ns.iter().sum();
            for (core, elsewhere) in cores.iter_mut().zip(&elsewhere) {
                core.limit = core.control.decide(ConcurrencyInput {
                    ended,
                    cpu_ns,
                    running: all as u32,
                    elsewhere: *elsewhere as u32,
                    busiest_ppm,
                    ..input
                });
            }
            (ended, used_ns) = (0, vec![0; load.cores]);
        }
    }
    results
}

fn parallel(cores: usize, admitting: usize, offered: f64) -> Load {
    Load { cores, is_parallel: true, admitting, work_ns: 2 * SECOND, offered, time_limit_ns: 10 * SECOND }
}

#[test]
fn parallel_statement_that_ends_in_time_is_not_refused() {
    for (seed, cores) in [2, 4, 16].into_iter().enumerate() {
        for admitting in [1, cores] {
            for offered in [0.5, 0.8, 0.95] {
                let load = parallel(cores, admitting, offered);
                let results = run(seed as u64, load);
                assert_eq!(results.refused_in_vain, 0, "{load:?}: {results:?}");
                assert!(
                    results.in_time > 10 && results.late * 20 <= results.in_time,
                    "{load:?}: {results:?}"
                );
            }
        }
    }
}

/// Most of what is admitted ends in time. The work of a statement itself does not count before its
/// admission: it may be less than the mean.
#[test]
fn overload_of_several_cores_wastes_little_work() {
    for (seed, cores) in [2, 4, 16].into_iter().enumerate() {
        for (is_parallel, admitting) in [(true, 1), (true, cores), (false, 1), (false, cores)] {
            let load = Load { is_parallel, ..parallel(cores, admitting, 2.0) };
            let results = run(seed as u64, load);
            let at_work = if is_parallel { cores } else { admitting } as u64;
            let good = results.in_time * load.work_ns * 100 / (50 * SECOND * at_work);
            let late = results.late * 100 / results.in_time.max(1);
            assert!(good >= 80 && late <= 33, "{load:?}: good {good} %, late {late} %, {results:?}");
            assert!(results.expired > 0, "{load:?}: {results:?}");
        }
    }
}
