//! A run over the table of attacks. The short form decides without a clock and is a step of the
//! tests. The long form measures.
//!
//! 1. Start a server and set it up. The long form starts one for each attack. The short form reuses
//!    the server after an attack that it withstood.
//! 2. Long form: measure both probes alone, before and after the attack.
//! 3. Start the attack. In the long form, probes and administrator run beside it. In the short
//!    form, the administrator makes one round when the attack's traffic has begun, or when
//!    everything it holds is in place.
//! 4. After the attack, the administrator makes one more round. Some attacks have further checks.
//!
//! With `--guardrails both`, all this is done twice: with the default thresholds of all guardrails,
//! and without any. The bounds are the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin::{Admin, once};
use crate::answers::Answers;
use crate::attack::{After, Attack};
use crate::child::Attacker;
use crate::cpu::Phase;
use crate::dial::FRIEND;
use crate::late::{Late, LateMonitor};
use crate::probe::Probe;
use crate::report;
use crate::results::{AttackResults, Cpu, Phases, Reads, Results, Timing};
use crate::server::{AttackedServer, Conditions, REST_BEGINS};
use crate::setup::{self, NEIGHBOUR, WATCHER};
use crate::table::ATTACKS;
use crate::verdict::{AttackOutcome, Bounds, with_clock, without_clock};
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
pub(crate) struct RunOptions {
    pub(crate) server: PathBuf,
    pub(crate) short: bool,
    /// Text that the names of the attacks must contain.
    pub(crate) only: Option<String>,
    /// Duration of each attack in the long form.
    pub(crate) time: Duration,
    /// Page of the report. The results as JSON and the table as Markdown go beside it.
    pub(crate) report: Option<PathBuf>,
    pub(crate) guardrails: Guardrails,
}

/// Thresholds of guardrails in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Guardrails {
    /// The server's defaults.
    On,
    /// None.
    Off,
    /// A pass with each.
    Both,
}

impl Guardrails {
    /// Returns the passes: the setting of the server, and the mark of its results.
    fn passes(self, program: &Path) -> Result<Vec<(String, &'static str)>, String> {
        let on = (String::new(), "");
        let off = || Ok::<_, String>((setup::no_guardrails(program)?, OFF_MARK));
        Ok(match self {
            Guardrails::On => vec![on],
            Guardrails::Off => vec![off()?],
            Guardrails::Both => vec![on, off()?],
        })
    }
}

/// Added to the names of attacks on a server without guardrails.
pub(crate) const OFF_MARK: &str = ", off";

/// Runs the attacks. Returns the failed ones as an error.
pub(crate) fn run(options: &RunOptions) -> Result<(), String> {
    let chosen =
        |attack: &&Attack| options.only.as_ref().is_none_or(|only| attack.name.contains(only.as_str()));
    let is_run = |attack: &&Attack| attack.rounds > 0 || !options.short;
    let attacks: Vec<&'static Attack> = ATTACKS.iter().filter(chosen).filter(is_run).collect();
    if attacks.is_empty() {
        return Err("no attack has such a name; `abuse list` prints all".to_owned());
    }
    let mut results = Results::begin();
    for (guardrails, mark) in options.guardrails.passes(&options.server)? {
        pass(options, &attacks, &guardrails, mark, &mut results)?;
    }
    let entries = &results.entries;
    // Repeat the reasons: the end of a log may be all that is kept of it.
    let failed: Vec<String> = entries
        .iter()
        .filter(|entry| !entry.reasons.is_empty())
        .map(|entry| format!("{} ({})", entry.name, entry.reasons.join("; ")))
        .collect();
    let unclear = entries.iter().filter(|entry| entry.verdict() == "unclear").count();
    if failed.is_empty() {
        println!("{} attacks withstood, {unclear} unclear", entries.len() - unclear);
        return Ok(());
    }
    Err(format!("{} of {} attacks succeeded: {}", failed.len(), entries.len(), failed.join(", ")))
}

/// Runs the attacks on servers with these guardrails.
fn pass(
    options: &RunOptions,
    attacks: &[&'static Attack],
    guardrails: &str,
    mark: &str,
    results: &mut Results,
) -> Result<(), String> {
    let (mut server, unguarded) = (None, !guardrails.is_empty());
    for attack in attacks {
        let conditions = Conditions { guardrails, files_max: attack.files_max, ..Conditions::default() };
        let mut current = match server.take().filter(|_| attack.files_max.is_none()) {
            Some(server) => server,
            None => fresh(&options.server, &conditions)?,
        };
        let is_short = options.short || attack.after.is_stop();
        let mut entry = if is_short {
            let time = if options.short { SHORT } else { options.time };
            let rounds = if options.short { attack.rounds } else { u64::MAX };
            entry(attack, &short(&mut current, attack, time, rounds)?, options.short, unguarded)
        } else {
            let (outcome, failures, timing) = long(&mut current, attack, options.time)?;
            timed(entry(attack, &outcome, false, unguarded), failures, timing, results.cores)
        };
        entry.name += mark;
        println!("{}", report::line(&entry));
        let is_reused = matches!(attack.after, After::Nothing | After::Rests) && attack.files_max.is_none();
        if options.short && entry.reasons.is_empty() && is_reused {
            server = Some(current);
        }
        results.entries.push(entry);
        // Write after each attack, so that a stopped run leaves its results.
        if let Some(page) = &options.report {
            results.write(&page.with_extension("json"))?;
            report::write(results, page)?;
        }
    }
    Ok(())
}

/// Starts a server with levels, roles and tables.
fn fresh(program: &Path, conditions: &Conditions<'_>) -> Result<AttackedServer, String> {
    let server = AttackedServer::start(program, conditions)?;
    setup::make(&server.target).map_err(|why| format!("{why}; its log: {}", server.log()))?;
    Ok(server)
}

fn short(
    server: &mut AttackedServer,
    attack: &'static Attack,
    time: Duration,
    rounds: u64,
) -> Result<AttackOutcome, String> {
    server.memory.take_peak();
    let panics = server.panics();
    let target = server.target;
    let mut attacker = Attacker::start(attack, &target, time, rounds)?;
    attacker.ready();
    let beside = once(&target).map_err(|why| format!("{why} (beside the attack)"));
    let stopped = (attack.after == After::StopsBeside).then(|| server.stop());
    let (answers, _) = attacker.finish();
    let mut outcome = AttackOutcome { answers, ..AttackOutcome::default() };
    outcome.admin = beside.err();
    if stopped.is_some() {
        outcome.stop = stopped.and_then(Result::err);
        outcome.resident = server.memory.take_peak();
        outcome.panicked = new_panic(server, &panics);
    } else {
        check_server(server, &mut outcome, &panics);
        check_after(server, attack, SHORT, &mut outcome);
    }
    Ok(outcome)
}

/// Makes the further checks of an attack. Without clients the server must rest after
/// `rests_within`.
fn check_after(
    server: &mut AttackedServer,
    attack: &Attack,
    rests_within: Duration,
    outcome: &mut AttackOutcome,
) {
    if outcome.died.is_some() {
        return;
    }
    match attack.after {
        After::Nothing | After::Replaced | After::StopsBeside => {}
        After::Flushes => {
            outcome.admin = outcome.admin.take().or_else(|| admin::flush(&server.target).err());
        }
        After::Rests => outcome.stop = server.rests(rests_within).err(),
        After::Stops => outcome.stop = server.rests(rests_within).and_then(|()| server.stop()).err(),
    }
}

/// Returns the outcome, further reasons of a failure, and the times.
fn long(
    server: &mut AttackedServer,
    attack: &'static Attack,
    time: Duration,
) -> Result<(AttackOutcome, Vec<String>, Timing), String> {
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
    let mut outcome = AttackOutcome { answers, ..AttackOutcome::default() };
    check_server(server, &mut outcome, &panics);
    check_after(server, attack, REST_BEGINS, &mut outcome);
    let failures = visits.iter().filter(|(_, visits)| !visits.failures.is_empty());
    let mut failures: Vec<String> = failures
        .map(|(way, visits)| format!("administrator over {way}: {}", visits.failures.summary()))
        .collect();
    let after = measured(server, || {
        std::thread::sleep(ALONE);
        Ok(0.0)
    });
    // The death of the server is already a reason.
    failures.extend(after.as_ref().err().filter(|_| outcome.died.is_none()).cloned());
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
    Ok((outcome, failures, timing))
}

/// Adds reasons and times to an entry.
fn timed(mut entry: AttackResults, failures: Vec<String>, timing: Timing, cores: usize) -> AttackResults {
    let clocked = with_clock(&timing, cores);
    entry.reasons.extend(failures);
    entry.reasons.extend(clocked.reasons);
    entry.unclear = clocked.unclear;
    entry.timing = Some(timing);
    entry
}

/// Returns an entry without times.
fn entry(attack: &Attack, outcome: &AttackOutcome, accepts_late: bool, unguarded: bool) -> AttackResults {
    let bounds = Bounds { poll_units: POLL_UNITS_MAX, accepts_late, unguarded };
    AttackResults {
        name: attack.name.to_owned(),
        listener: attack.listener.name().to_owned(),
        needs: attack.needs.needs().to_owned(),
        sends: attack.sends.to_owned(),
        reasons: without_clock(attack, outcome, bounds),
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
fn measured(server: &AttackedServer, each: impl FnOnce() -> Result<f64, String>) -> Result<Measured, String> {
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
fn check_server(server: &mut AttackedServer, outcome: &mut AttackOutcome, panics: &[String]) {
    if outcome.admin.is_none() {
        outcome.admin = once(&server.target).err().map(|why| format!("{why} (after the attack)"));
    }
    let metrics = http::get(&server.target, FRIEND, "/metrics", admin::PATIENCE);
    outcome.poll_units = metrics.ok().and_then(|answer| http::metric(&answer.text, POLL_UNITS));
    outcome.long_poll = server.long_poll();
    outcome.died = server.check().err();
    outcome.resident = server.memory.take_peak();
    outcome.panicked = new_panic(server, panics);
}

/// Returns the first panic in the log after the known ones.
fn new_panic(server: &AttackedServer, known: &[String]) -> Option<String> {
    server.panics().get(known.len()..)?.first().cloned()
}
