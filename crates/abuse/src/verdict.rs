//! Decision whether a server withstood an attack. Maps results to the reasons of a failure, and
//! does no I/O.

use crate::answers::{Answers, SILENCE};
use crate::attack::{Attack, Listener};
use crate::memory::{RESIDENT_MAX, TOGETHER_MAX};
use crate::results::Timing;

/// Largest p99 of another level beside an attack, as a multiple of its p99 alone.
const OTHER_P99_FACTOR: f64 = 2.0;
/// Longest accepted read in another level, milliseconds.
const OTHER_MAX_MS: f64 = 20.0;
/// Longest accepted read in the attackers' own level, milliseconds.
const SAME_MAX_MS: f64 = 50.0;
/// Longest accepted round of the administrator, milliseconds.
const ADMIN_MAX_MS: f64 = 1_000.0;

/// Share of the machine that other programs and the host may take in a valid measurement.
pub(crate) const FOREIGN_MAX: f64 = 0.05;

/// Answers that a busy machine causes: no answer in time, and the server's time limit of reads.
const CLOCKED_ANSWERS: [&str; 2] = [SILENCE, "error 0x1200"];

/// Label of an effect that came later than the bound. The short form accepts it, as the machine may
/// be busy.
pub(crate) const LATE: &str = "late";

/// Answers that any statement may get from a server without guardrails: it runs, or is too large
/// for another bound.
const UNGUARDED_ANSWERS: [&str; 13] = [
    "rows",
    "void",
    "prepared",
    "schema changed",
    "complete",
    "parsed",
    "suspended",
    "error 0x1001",
    "error 0x2200",
    "error 53200",
    "error 53400",
    "error 54000",
    "error 54001",
];

/// Results that need no clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttackOutcome {
    pub(crate) answers: Answers,
    /// Exit status of the process, or the reason of its end. `None`: it lives.
    pub(crate) died: Option<String>,
    /// A line of the server's log about a new panic.
    pub(crate) panicked: Option<String>,
    /// Peak of resident memory, bytes.
    pub(crate) resident: u64,
    /// Most work units of one task poll, if the server exports them.
    pub(crate) poll_units: Option<f64>,
    /// Line of the server's log about the longest task poll, if it was beyond the bound.
    pub(crate) long_poll: Option<String>,
    /// Failure of a stop, or of the server to rest without clients.
    pub(crate) stop: Option<String>,
    /// Failure of the administrator. `None`: all rounds succeeded.
    pub(crate) admin: Option<String>,
}

/// Bounds of an attack that need no clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Largest [`AttackOutcome::poll_units`].
    pub(crate) poll_units: f64,
    /// True to accept late effects.
    pub(crate) accepts_late: bool,
    /// True if the server has no guardrails.
    pub(crate) unguarded: bool,
}

/// Returns the reasons why the server failed. Empty: it withstood the attack.
pub(crate) fn without_clock(attack: &Attack, outcome: &AttackOutcome, bounds: Bounds) -> Vec<String> {
    let mut reasons = Vec::new();
    reasons.extend(outcome.died.iter().map(|how| format!("the server died: {how}")));
    reasons.extend(outcome.panicked.iter().map(|line| format!("the server panicked: {line}")));
    let resident_max = if attack.listener == Listener::All { TOGETHER_MAX } else { RESIDENT_MAX };
    if outcome.resident > resident_max {
        let mib = |bytes: u64| bytes >> 20;
        reasons.push(format!("{} MiB resident, at most {}", mib(outcome.resident), mib(resident_max)));
    }
    let is_late = |label: &str| {
        CLOCKED_ANSWERS.iter().any(|late| label.ends_with(late))
            || bounds.accepts_late && label.ends_with(LATE)
    };
    let unexpected = |label: &&str| {
        let unguarded = bounds.unguarded && UNGUARDED_ANSWERS.contains(label);
        !attack.expected.contains(label) && !is_late(label) && !unguarded
    };
    for label in outcome.answers.labels().filter(unexpected) {
        let text = outcome.answers.text(label);
        let colon = if text.is_empty() { "" } else { ": " };
        reasons.push(format!("answer `{label}`{colon}{text}"));
    }
    reasons.extend(outcome.admin.iter().map(|why| format!("the administrator: {why}")));
    reasons.extend(outcome.stop.iter().map(|why| format!("the server's end: {why}")));
    let max = bounds.poll_units;
    if let Some(units) = outcome.poll_units.filter(|units| *units > max) {
        let line = outcome.long_poll.as_deref().map_or(String::new(), |line| format!(": {line}"));
        reasons.push(format!("a task poll of {units} work units, at most {max}{line}"));
    }
    reasons
}

/// Further reasons, from times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocked {
    pub(crate) reasons: Vec<String>,
    /// Missed bounds that the tool's own delays or other programs may explain.
    pub(crate) unclear: Vec<String>,
}

/// Judges times. A read that was slow only while a thread of the tool waited for a core is unclear.
/// All times are unclear if other programs or the host took more than [`FOREIGN_MAX`] of the
/// machine.
pub(crate) fn with_clock(timing: &Timing, cores: usize) -> Clocked {
    let mut clocked = Clocked::default();
    let Timing { other, same, .. } = timing;
    let p99_max = other.before.p99_ms * OTHER_P99_FACTOR;
    let limits = [
        ("other level: p99", other.beside.p99_ms, other.beside.net_p99_ms, p99_max),
        ("other level: longest read", other.beside.max_ms, other.beside.net_max_ms, OTHER_MAX_MS),
        ("same level: longest read", same.beside.max_ms, same.beside.net_max_ms, SAME_MAX_MS),
    ];
    for (what, gross, net, max) in limits {
        if gross > max {
            let text = format!("{what} {gross:.2} ms, at most {max:.2}; {net:.2} without delays of the tool");
            if net > max { clocked.reasons.push(text) } else { clocked.unclear.push(text) }
        }
    }
    for (way, ms) in &timing.admin_ms {
        if *ms > ADMIN_MAX_MS {
            clocked.reasons.push(format!("administrator over {way}: {ms:.0} ms, at most {ADMIN_MAX_MS}"));
        }
    }
    let foreign = timing.cpu_before.foreign(cores).max(timing.cpu_beside.foreign(cores));
    if foreign > FOREIGN_MAX {
        let part = foreign * 100.0;
        clocked.unclear.append(&mut clocked.reasons);
        clocked.unclear.push(format!("other programs and the host took {part:.0} % of the machine"));
    }
    for (level, reads) in [("other", &other.beside), ("same", &same.beside)] {
        if !reads.failures.is_empty() {
            clocked.reasons.push(format!("{level} level: reads failed ({})", reads.failures));
        }
    }
    clocked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::ServerAnswer;
    use crate::results::{Cpu, Phases, Reads};
    use crate::table::find;

    fn reasons(change: impl FnOnce(&mut AttackOutcome)) -> Vec<String> {
        let mut outcome = AttackOutcome { poll_units: Some(10.0), ..AttackOutcome::default() };
        outcome.answers.add(ServerAnswer::error("0x2500", "unknown"));
        change(&mut outcome);
        without_clock(find("cql-unknown-ids").expect("in the table"), &outcome, BOUNDS)
    }

    const BOUNDS: Bounds = Bounds { poll_units: 100.0, accepts_late: false, unguarded: false };

    #[test]
    fn accepted_answers_of_a_living_server_pass() {
        assert_eq!(reasons(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_a_reason() {
        let check = |change: fn(&mut AttackOutcome), part: &str| {
            let found = reasons(change);
            assert!(found.len() == 1 && found[0].contains(part), "expected {part}, got {found:?}");
        };
        check(|outcome| outcome.died = Some("signal: 6".into()), "died: signal: 6");
        check(|outcome| outcome.panicked = Some("at a.rs".into()), "panicked: at a.rs");
        check(|outcome| outcome.resident = RESIDENT_MAX + 1, "1280 MiB resident");
        check(|outcome| outcome.answers.add(ServerAnswer::new("closed")), "answer `closed`");
        check(|outcome| outcome.admin = Some("SQL: silence".into()), "SQL: silence");
        check(|outcome| outcome.poll_units = Some(101.0), "101 work units");
        check(|outcome| outcome.stop = Some("1.0 s of CPU".into()), "end: 1.0 s of CPU");
    }

    #[test]
    fn server_without_guardrails_may_run_any_statement() {
        let attack = find("cql-unknown-ids").expect("in the table");
        let mut outcome = AttackOutcome::default();
        outcome.answers.add(ServerAnswer::new("rows"));
        let reasons = |unguarded| without_clock(attack, &outcome, Bounds { unguarded, ..BOUNDS }).len();
        assert_eq!((reasons(false), reasons(true)), (1, 0));
    }

    #[test]
    fn late_effects_fail_only_a_measurement() {
        let attack = find("cql-unknown-ids").expect("in the table");
        let mut outcome = AttackOutcome::default();
        outcome.answers.add(ServerAnswer::new("ended late"));
        let reasons = |accepts_late| without_clock(attack, &outcome, Bounds { accepts_late, ..BOUNDS }).len();
        assert_eq!((reasons(false), reasons(true)), (1, 0));
    }

    fn timing(other_ms: f64, net_ms: f64, others_s: f64) -> Timing {
        let quick = Reads { p99_ms: 1.0, net_p99_ms: 1.0, max_ms: 1.0, ..Reads::default() };
        let beside = Reads { max_ms: other_ms, net_max_ms: net_ms, ..quick.clone() };
        Timing {
            other: Phases { before: quick.clone(), beside, after: quick.clone() },
            same: Phases { before: quick.clone(), beside: quick.clone(), after: quick },
            cpu_beside: Cpu { wall_s: 5.0, others_s, ..Cpu::default() },
            ..Timing::default()
        }
    }

    #[test]
    fn slow_reads_are_reasons() {
        assert_eq!(with_clock(&timing(20.0, 20.0, 0.0), 2), Clocked::default());
        let clocked = with_clock(&timing(21.0, 21.0, 0.0), 2);
        assert_eq!((clocked.reasons.len(), clocked.unclear.len()), (1, 0));
        let mut slow = timing(1.0, 1.0, 0.0);
        (slow.other.beside.p99_ms, slow.other.beside.net_p99_ms) = (3.0, 3.0);
        slow.admin_ms = vec![("SQL".to_owned(), 1_001.0)];
        slow.same.beside.failures = "closed ×1".to_owned();
        assert_eq!(with_clock(&slow, 2).reasons.len(), 3);
    }

    #[test]
    fn reads_that_the_tool_explains_are_unclear() {
        let clocked = with_clock(&timing(30.0, 5.0, 0.0), 2);
        assert_eq!((clocked.reasons.len(), clocked.unclear.len()), (0, 1));
        let beside_others = with_clock(&timing(30.0, 30.0, 1.0), 2);
        assert_eq!((beside_others.reasons.len(), beside_others.unclear.len()), (0, 2));
    }
}
