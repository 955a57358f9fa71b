//! A run over the table of attacks: the short form decides without a clock and is a step of the tests; the
//! long form measures.
//!
//! 1. Start a server and set it up. The long form takes a fresh one for each attack, the short form goes on
//!    with one that withstood the attack before.
//! 2. Long form: measure both probes alone.
//! 3. Start the attack. The probes and the administrator go on beside it (long form), or the administrator
//!    comes once, when the attack's traffic has begun or everything it holds is in place (short form).
//! 4. When the attack has ended, the administrator comes once more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::admin::{Admin, once};
use crate::attack::Attack;
use crate::child::Attacker;
use crate::dial::FRIEND;
use crate::probe::{Probe, Readings};
use crate::report::{self, Row};
use crate::server::Server;
use crate::setup::{self, NEIGHBOUR, WATCHER};
use crate::table::ATTACKS;
use crate::target::Target;
use crate::verdict::{Outcome, Pair, Times, with_clock, without_clock};
use crate::{admin, http};

/// The most work units of one task poll: the bound that `lanes` documents as `UNITS_MAX`.
pub(crate) const POLL_UNITS_MAX: f64 = 2_000.0;
/// The metric with the most work units of a task poll. A server without it is not judged by it.
pub(crate) const POLL_UNITS: &str = "fairlane_task_poll_units_max";
/// How long the probes run alone in the long form.
const ALONE: Duration = Duration::from_secs(3);
/// Bounds an attack of the short form, whose rounds end it much sooner.
const SHORT: Duration = Duration::from_secs(20);

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: PathBuf,
    pub(crate) short: bool,
    /// Only attacks whose names contain this.
    pub(crate) only: Option<String>,
    /// How long each attack of the long form lasts.
    pub(crate) time: Duration,
    /// The report's page; the table goes beside it as Markdown.
    pub(crate) report: Option<PathBuf>,
}

/// Runs the attacks; returns the failed ones as an error.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let chosen =
        |attack: &&Attack| options.only.as_ref().is_none_or(|only| attack.name.contains(only.as_str()));
    let attacks: Vec<&Attack> = ATTACKS.iter().filter(chosen).collect();
    if attacks.is_empty() {
        return Err("no attack has such a name: `abuse list` prints all".to_owned());
    }
    let mut rows = Vec::new();
    let mut server = None;
    for attack in attacks {
        let mut current = match server.take() {
            Some(server) => server,
            None => fresh(&options.server)?,
        };
        let row = if options.short {
            short(&mut current, attack)?
        } else {
            long(&mut current, attack, options.time)?
        };
        println!("{}", report::line(&row));
        if options.short && row.reasons.is_empty() {
            server = Some(current);
        }
        rows.push(row);
        // Written after each attack, so that a run which is stopped leaves what it found.
        write_report(options, &rows)?;
    }
    let failed: Vec<&str> =
        rows.iter().filter(|row| !row.reasons.is_empty()).map(|row| row.attack.name).collect();
    if failed.is_empty() {
        println!("{} attacks withstood", rows.len());
        return Ok(());
    }
    Err(format!("{} of {} attacks succeeded: {}", failed.len(), rows.len(), failed.join(", ")))
}

fn write_report(options: &Options, rows: &[Row]) -> Result<(), String> {
    let Some(page) = &options.report else { return Ok(()) };
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", page.display());
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(page, report::page(rows)).map_err(failed)?;
    std::fs::write(page.with_extension("md"), report::markdown(rows)).map_err(failed)
}

/// A server with levels, roles and tables.
fn fresh(program: &Path) -> Result<Server, String> {
    let server = Server::start(program)?;
    setup::make(&server.target).map_err(|why| format!("{why}; its log: {}", server.log()))?;
    Ok(server)
}

fn short(server: &mut Server, attack: &'static Attack) -> Result<Row, String> {
    server.memory.take_peak();
    let panics = server.panics();
    let target = server.target;
    let mut attacker = Attacker::start(attack, &target, SHORT, attack.rounds)?;
    attacker.ready();
    let beside = once(&target).map_err(|why| format!("{why} (beside the attack)"));
    let answers = attacker.finish();
    let mut outcome = Outcome { answers, ..Outcome::default() };
    outcome.admin = beside.err();
    settle(server, &mut outcome, &panics);
    let reasons = without_clock(attack, &outcome, Some(POLL_UNITS_MAX));
    Ok(Row { attack, outcome, times: None, reasons })
}

fn long(server: &mut Server, attack: &'static Attack, time: Duration) -> Result<Row, String> {
    let target = server.target;
    let panics = server.panics();
    let [other, same] = probes(&target)?;
    std::thread::sleep(ALONE);
    let alone = [other.stop(), same.stop()];
    let [other, same] = probes(&target)?;
    server.memory.take_peak();
    let administrator = Admin::start(target);
    let answers = Attacker::start(attack, &target, time, u64::MAX)?.finish();
    let visits = administrator.stop();
    let beside = [other.stop(), same.stop()];
    let mut outcome = Outcome { answers, ..Outcome::default() };
    settle(server, &mut outcome, &panics);
    let mut reasons = without_clock(attack, &outcome, Some(POLL_UNITS_MAX));
    let [other, same] = pairs(alone, beside);
    let times = Times { other, same, visits };
    reasons.extend(with_clock(&times));
    Ok(Row { attack, outcome, times: Some(times), reasons })
}

fn probes(target: &Target) -> Result<[Probe; 2], String> {
    Ok([Probe::start(target, WATCHER)?, Probe::start(target, NEIGHBOUR)?])
}

fn pairs(alone: [Readings; 2], beside: [Readings; 2]) -> [Pair; 2] {
    let [other_alone, same_alone] = alone;
    let [other, same] = beside;
    [Pair { alone: other_alone, beside: other }, Pair { alone: same_alone, beside: same }]
}

/// What is found out when an attack has ended: whether the server lives and lets the administrator in, its
/// memory, and its own count of long task polls.
fn settle(server: &mut Server, outcome: &mut Outcome, panics: &[String]) {
    if outcome.admin.is_none() {
        outcome.admin = once(&server.target).err().map(|why| format!("{why} (after the attack)"));
    }
    let metrics = http::get(&server.target, FRIEND, "/metrics", admin::PATIENCE);
    outcome.poll_units = metrics.ok().and_then(|answer| http::metric(&answer.text, POLL_UNITS));
    outcome.died = server.check().err();
    outcome.resident = server.memory.take_peak();
    let now = server.panics();
    outcome.panicked = now.get(panics.len()..).and_then(|new| new.first()).cloned();
}
