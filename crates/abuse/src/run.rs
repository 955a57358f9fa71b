//! A run over the table of attacks. The short form decides without a clock and is a step of the
//! tests. The long form measures.
//!
//! 1. Start a server and set it up. The long form starts one for each attack. The short form reuses
//!    the server after an attack that it withstood.
//! 2. Long form: measure both probes alone, before and after the attack.
//! 3. Start the attack. In the long form, probes and administrator run beside it. In the short
//!    form, the administrator makes one round when the attack's traffic has begun, or when
//!    everything it holds is in place.
//! 4. After the attack, the administrator makes one more round.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin::{Admin, once};
use crate::answers::Answers;
use crate::attack::Attack;
use crate::child::Attacker;
use crate::cpu::Phase;
use crate::dial::FRIEND;
use crate::late::{Late, LateMonitor};
use crate::probe::Probe;
use crate::report;
use crate::results::{Cpu, Entry, Phases, Reads, Results, Timing};
use crate::server::Server;
use crate::setup::{self, NEIGHBOUR, WATCHER};
use crate::table::ATTACKS;
use crate::verdict::{Bounds, Outcome, with_clock, without_clock};
use crate::{admin, http};

/// Most work units of one task poll: the bound that `lanes` documents as `UNITS_MAX`.
pub(crate) const POLL_UNITS_MAX: f64 = 2_000.0;
/// Metric with the most work units of a task poll. A server without it is not judged by it.
pub(crate) const POLL_UNITS: &str = "fairlane_task_poll_units_max";
/// Duration of the probes' runs alone in the long form.
const ALONE: Duration = Duration::from_secs(2);
/// Longest duration of an attack in the short form. Its rounds end much sooner.
const SHORT: Duration = Duration::from_secs(20);

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: PathBuf,
    pub(crate) short: bool,
    /// Text that the names of the attacks must contain.
    pub(crate) only: Option<String>,
    /// Duration of each attack in the long form.
    pub(crate) time: Duration,
    /// Page of the report. The results as JSON and the table as Markdown go beside it.
    pub(crate) report: Option<PathBuf>,
}

/// Runs the attacks. Returns the failed ones as an error.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let chosen =
        |attack: &&Attack| options.only.as_ref().is_none_or(|only| attack.name.contains(only.as_str()));
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(chosen).collect();
    if attacks.is_empty() {
        return Err("no attack has such a name; `abuse list` prints all".to_owned());
    }
    let mut results = Results::begin();
    let mut server = None;
    for attack in attacks {
        let mut current = match server.take() {
            Some(server) => server,
            None => fresh(&options.server)?,
        };
        let entry = if options.short {
            short(&mut current, attack)?
        } else {
            long(&mut current, attack, options.time, results.cores)?
        };
        println!("{}", report::line(&entry));
        if options.short && entry.reasons.is_empty() {
            server = Some(current);
        }
        results.entries.push(entry);
        // Write after each attack, so that a stopped run leaves its results.
        if let Some(page) = &options.report {
            results.write(&page.with_extension("json"))?;
            report::write(&results, page)?;
        }
    }
    let entries = &results.entries;
    let failed: Vec<&str> =
        entries.iter().filter(|entry| !entry.reasons.is_empty()).map(|entry| entry.name.as_str()).collect();
    let unclear = entries.iter().filter(|entry| entry.verdict() == "unclear").count();
    if failed.is_empty() {
        println!("{} attacks withstood, {unclear} unclear", entries.len() - unclear);
        return Ok(());
    }
    Err(format!("{} of {} attacks succeeded: {}", failed.len(), entries.len(), failed.join(", ")))
}

/// Starts a server with levels, roles and tables.
fn fresh(program: &Path) -> Result<Server, String> {
    let server = Server::start(program)?;
    setup::make(&server.target).map_err(|why| format!("{why}; its log: {}", server.log()))?;
    Ok(server)
}

fn short(server: &mut Server, attack: &'static Attack) -> Result<Entry, String> {
    server.memory.take_peak();
    let panics = server.panics();
    let target = server.target;
    let mut attacker = Attacker::start(attack, &target, SHORT, attack.rounds)?;
    attacker.ready();
    let beside = once(&target).map_err(|why| format!("{why} (beside the attack)"));
    let (answers, _) = attacker.finish();
    let mut outcome = Outcome { answers, ..Outcome::default() };
    outcome.admin = beside.err();
    check_server(server, &mut outcome, &panics);
    Ok(entry(attack, &outcome, true))
}

fn long(server: &mut Server, attack: &'static Attack, time: Duration, cores: usize) -> Result<Entry, String> {
    let target = server.target;
    let panics = server.panics();
    let before = measured(server, || {
        std::thread::sleep(ALONE);
        Ok(0.0)
    })?;
    server.memory.take_peak();
    let (mut answers, mut visits) = (Answers::default(), Vec::new());
    let beside = measured(server, || {
        let administrator = Admin::start(target);
        let (seen, cpu_s) = Attacker::start(attack, &target, time, u64::MAX)?.run_out();
        answers = seen;
        visits = administrator.stop();
        Ok(cpu_s)
    })?;
    let mut outcome = Outcome { answers, ..Outcome::default() };
    check_server(server, &mut outcome, &panics);
    let failures = visits.iter().filter(|(_, visits)| !visits.failures.is_empty());
    let failures: Vec<String> = failures
        .map(|(way, visits)| format!("administrator over {way}: {}", visits.failures.summary()))
        .collect();
    let after = measured(server, || {
        std::thread::sleep(ALONE);
        Ok(0.0)
    });
    let mut entry = entry(attack, &outcome, false);
    entry.reasons.extend(failures);
    // The death of the server is already a reason.
    entry.reasons.extend(after.as_ref().err().filter(|_| outcome.died.is_none()).cloned());
    let after = after.unwrap_or_default();
    let timing = Timing {
        other: Phases { before: before.other, beside: beside.other, after: after.other },
        same: Phases { before: before.same, beside: beside.same, after: after.same },
        admin_ms: visits.iter().map(|(way, visits)| ((*way).to_owned(), visits.max_ms)).collect(),
        cpu_before: before.cpu,
        cpu_beside: beside.cpu,
        late_p99_ms: beside.late.quantile_ms(0.99),
        late_max_ms: beside.late.quantile_ms(1.0),
    };
    let clocked = with_clock(&timing, cores);
    entry.reasons.extend(clocked.reasons);
    entry.unclear = clocked.unclear;
    entry.timing = Some(timing);
    Ok(entry)
}

/// Returns an entry without times.
fn entry(attack: &Attack, outcome: &Outcome, accepts_misses: bool) -> Entry {
    Entry {
        name: attack.name.to_owned(),
        listener: attack.listener.name().to_owned(),
        needs: attack.needs.needs().to_owned(),
        sends: attack.sends.to_owned(),
        reasons: without_clock(attack, outcome, Bounds { poll_units: POLL_UNITS_MAX, accepts_misses }),
        unclear: Vec::new(),
        resident_mib: outcome.resident >> 20,
        answers: outcome.answers.summary(),
        poll_units: outcome.poll_units,
        timing: None,
    }
}

/// Results of both probes in a phase.
#[derive(Debug, Default)]
struct Measured {
    other: Reads,
    same: Reads,
    cpu: Cpu,
    late: Late,
}

/// Measures while `each` runs. `each` returns the CPU time of the attacker, seconds.
fn measured(server: &Server, each: impl FnOnce() -> Result<f64, String>) -> Result<Measured, String> {
    let target = &server.target;
    let (other, same) = (Probe::start(target, WATCHER)?, Probe::start(target, NEIGHBOUR)?);
    let monitor = LateMonitor::start();
    let phase = Phase::begin(server.pid());
    let attacker_s = each()?;
    let (mut other, mut same) = (other.stop(), same.stop());
    let cpu = phase.end(attacker_s);
    let mut late = monitor.stop();
    late.add(std::mem::take(&mut other.late));
    late.add(std::mem::take(&mut same.late));
    let late = late.merged();
    Ok(Measured { other: other.summary(&late), same: same.summary(&late), cpu, late })
}

/// Completes the outcome after an attack: whether the server lives and the administrator can log
/// in, its memory, and the longest task poll that it reports.
fn check_server(server: &mut Server, outcome: &mut Outcome, panics: &[String]) {
    if outcome.admin.is_none() {
        outcome.admin = once(&server.target).err().map(|why| format!("{why} (after the attack)"));
    }
    let metrics = http::get(&server.target, FRIEND, "/metrics", admin::PATIENCE);
    outcome.poll_units = metrics.ok().and_then(|answer| http::metric(&answer.text, POLL_UNITS));
    outcome.long_poll = server.long_poll();
    outcome.died = server.check().err();
    outcome.resident = server.memory.take_peak();
    let now = server.panics();
    outcome.panicked = now.get(panics.len()..).and_then(|new| new.first()).cloned();
}
