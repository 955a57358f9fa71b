//! Decides whether a server withstood an attack. Pure: it takes results and returns the reasons of a failure.

use crate::admin::Visits;
use crate::answers::Answers;
use crate::attack::Attack;
use crate::memory::RESIDENT_MAX;
use crate::probe::Readings;

/// The 99th percentile of another level may be this many times the one alone.
const OTHER_P99_FACTOR: f64 = 2.0;
/// The longest read in another level, milliseconds.
const OTHER_MAX_MS: f64 = 20.0;
/// The longest read in the attackers' own level, milliseconds.
const SAME_MAX_MS: f64 = 50.0;
/// The longest round of the administrator, milliseconds.
const ADMIN_MAX_MS: f64 = 1_000.0;

/// What can be decided without a clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) answers: Answers,
    /// How the process ended; `None`: it lives.
    pub(crate) died: Option<String>,
    /// A line of the server's log about a new panic.
    pub(crate) panicked: Option<String>,
    /// Peak of resident memory, bytes.
    pub(crate) resident: u64,
    /// The most work units of one task poll, where the server exports them.
    pub(crate) poll_units: Option<f64>,
    /// Why the administrator could not work; `None`: he could.
    pub(crate) admin: Option<String>,
}

/// A probe alone and beside the attack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    pub(crate) alone: Readings,
    pub(crate) beside: Readings,
}

/// What takes a clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) other: Pair,
    pub(crate) same: Pair,
    pub(crate) visits: Vec<(&'static str, Visits)>,
}

/// The reasons why the server failed; none when it withstood the attack. `poll_units_max` is the bound on
/// [`Outcome::poll_units`].
pub(crate) fn without_clock(attack: &Attack, outcome: &Outcome, poll_units_max: Option<f64>) -> Vec<String> {
    let mut reasons = Vec::new();
    reasons.extend(outcome.died.iter().map(|how| format!("the server died: {how}")));
    reasons.extend(outcome.panicked.iter().map(|line| format!("the server panicked: {line}")));
    if outcome.resident > RESIDENT_MAX {
        let mib = |bytes: u64| bytes >> 20;
        reasons.push(format!("{} MiB resident, at most {}", mib(outcome.resident), mib(RESIDENT_MAX)));
    }
    for label in outcome.answers.labels().filter(|label| !attack.expected.contains(label)) {
        let text = outcome.answers.text(label);
        let colon = if text.is_empty() { "" } else { ": " };
        reasons.push(format!("answer `{label}`{colon}{text}"));
    }
    reasons.extend(outcome.admin.iter().map(|why| format!("the administrator: {why}")));
    if let (Some(units), Some(max)) = (outcome.poll_units, poll_units_max)
        && units > max
    {
        reasons.push(format!("a task poll of {units} work units, at most {max}"));
    }
    reasons
}

/// The further reasons that take a clock.
pub(crate) fn with_clock(times: &Times) -> Vec<String> {
    let mut reasons = Vec::new();
    let (alone, beside) = (&times.other.alone, &times.other.beside);
    let p99_max = alone.quantile_ms(0.99) * OTHER_P99_FACTOR;
    if beside.quantile_ms(0.99) > p99_max {
        let p99 = beside.quantile_ms(0.99);
        reasons.push(format!("other level: p99 {p99:.2} ms, at most {p99_max:.2}"));
    }
    for (level, readings, max) in [("other", beside, OTHER_MAX_MS), ("same", &times.same.beside, SAME_MAX_MS)]
    {
        if readings.max_ms() > max {
            reasons.push(format!("{level} level: a read of {:.1} ms, at most {max}", readings.max_ms()));
        }
        if readings.failed() {
            let (failures, unanswered) = (readings.failures.summary(), readings.unanswered);
            reasons.push(format!("{level} level: reads failed ({failures}), {unanswered} unanswered"));
        }
    }
    for (way, visits) in &times.visits {
        if visits.max_ms > ADMIN_MAX_MS {
            reasons
                .push(format!("administrator over {way}: {:.0} ms, at most {ADMIN_MAX_MS}", visits.max_ms));
        }
        if visits.failures.labels().next().is_some() {
            reasons.push(format!("administrator over {way}: {}", visits.failures.summary()));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Answer;
    use crate::table::find;

    fn reasons(change: impl FnOnce(&mut Outcome)) -> Vec<String> {
        let mut outcome = Outcome { poll_units: Some(10.0), ..Outcome::default() };
        outcome.answers.add(Answer::error("0x2500", "unknown"));
        change(&mut outcome);
        without_clock(find("cql-unknown-ids").expect("in the table"), &outcome, Some(100.0))
    }

    #[test]
    fn accepted_answers_of_a_living_server_pass() {
        assert_eq!(reasons(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn each_fault_is_a_reason() {
        let check = |change: fn(&mut Outcome), part: &str| {
            let found = reasons(change);
            assert!(found.len() == 1 && found[0].contains(part), "{found:?} does not say {part}");
        };
        check(|outcome| outcome.died = Some("signal: 6".into()), "died: signal: 6");
        check(|outcome| outcome.panicked = Some("at a.rs".into()), "panicked: at a.rs");
        check(|outcome| outcome.resident = RESIDENT_MAX + 1, "1280 MiB resident");
        check(|outcome| outcome.answers.add(Answer::new("closed")), "answer `closed`");
        check(|outcome| outcome.admin = Some("SQL: silence".into()), "SQL: silence");
        check(|outcome| outcome.poll_units = Some(101.0), "101 work units");
    }

    #[test]
    fn slow_reads_are_reasons() {
        let quick = Readings::of_ms(&[1; 200]);
        let one_of = |ms: u64| Readings::of_ms(&[[1; 199].as_slice(), &[ms]].concat());
        let times = |other: Readings, same: Readings| Times {
            other: Pair { alone: quick.clone(), beside: other },
            same: Pair { alone: quick.clone(), beside: same },
            visits: Vec::new(),
        };
        assert_eq!(with_clock(&times(one_of(20), one_of(50))), Vec::<String>::new());
        assert_eq!(with_clock(&times(one_of(21), one_of(51))).len(), 2);
        assert_eq!(with_clock(&times(Readings::of_ms(&[3; 200]), one_of(1))).len(), 1);
        let late = Visits { max_ms: 1_001.0, ..Visits::default() };
        let times = Times { visits: vec![("SQL", late)], ..Times::default() };
        assert!(with_clock(&times)[0].contains("over SQL"));
    }
}
