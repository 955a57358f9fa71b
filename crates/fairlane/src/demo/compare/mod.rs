//! The figures beside those published of others. Each ratio is taken within one run; one that was not
//! measured is missing, never guessed, and one that others disturbed is shown and not judged.

pub(super) mod olap;
mod shares;
mod storage;

pub(super) use shares::over_first;
pub(super) use storage::harm;

use serde::{Deserialize, Serialize};

use super::figures::{Chapter, Outcome, Window};
use super::phases::{BATCH, INTERACTIVE};
use super::shares::CAPPED;
use super::trust::{OTHERS_MAX, late, others};
use super::units::{factor, percent, time};

/// One line of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    /// What is compared.
    pub(super) what: String,
    /// What was measured.
    pub(super) seen: String,
    /// What it was made of, in words.
    pub(super) detail: String,
    /// What others have published.
    pub(super) published: String,
    /// What we hold ourselves to.
    pub(super) goal: String,
    /// The figure the goal speaks of.
    pub(super) value: f64,
    /// Whether the goal was met; nothing where there is none, or where the run does not allow to say.
    pub(super) met: Option<bool>,
}

impl Row {
    /// Whether the goal was met, in words.
    pub(super) fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None if self.goal.is_empty() => "",
            None => "not judged",
        }
    }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) if b > 0.0 => Some(a / b),
        _ => None,
    }
}

/// Takes the verdict back where other programs had part of the server's cores, or the sender was late itself.
fn judged(mut row: Row, windows: &[&Window]) -> Row {
    let taken = windows.iter().map(|window| others(&window.cpu)).fold(0.0, f64::max);
    if taken > OTHERS_MAX && row.met.is_some() {
        row.met = None;
        row.detail += &format!("; other programs had up to {} of the server's cores", percent(taken));
    }
    let late = |window: &&Window| window.loads.iter().any(late);
    if row.met.is_some() && windows.iter().any(late) {
        row.met = None;
        row.detail += "; the sender itself was late";
    }
    row
}

/// What the interactive load felt of the batch load, in one chapter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Harm<'a> {
    /// The phase alone it is compared with: the quieter one, since a disturbed one would flatter the ratio.
    pub(super) alone: &'a Window,
    pub(super) beside: &'a Window,
}

impl<'a> Harm<'a> {
    /// Of a chapter with these phases.
    pub(super) fn of(chapter: &'a Chapter) -> Option<Harm<'a>> {
        let (before, beside) = (chapter.window("before")?, chapter.window("beside")?);
        let alone = match chapter.window("after") {
            Some(after) if p99(after) < p99(before) && p99(after).is_some() => after,
            _ => before,
        };
        Some(Harm { alone, beside })
    }

    /// 99th percentile beside, over alone.
    pub(super) fn p99(&self) -> Option<f64> {
        ratio(p99(self.beside), p99(self.alone))
    }

    /// Throughput beside, over alone.
    pub(super) fn throughput(&self) -> Option<f64> {
        ratio(self.beside.throughput(INTERACTIVE), self.alone.throughput(INTERACTIVE))
    }
}

/// 99th percentile of the interactive load, µs.
pub(super) fn p99(window: &Window) -> Option<f64> {
    window.latency(INTERACTIVE).map(|latency| latency.p99_us)
}

fn harm_rows(chapter: &Chapter, published: bool, rows: &mut Vec<Row>) {
    let Some(harm) = Harm::of(chapter) else { return };
    let levels = chapter.id == "two_levels";
    let how = if levels { "a level each" } else { "one level" };
    let phases = [harm.alone, harm.beside];
    let goal = |goal: &str| if levels { goal.to_string() } else { String::new() };
    let told = |window| time(p99(window).unwrap_or_default());
    if let Some(value) = harm.p99() {
        let detail = format!("{} beside, {} alone", told(harm.beside), told(harm.alone));
        let row = Row {
            what: format!("interactive p99, beside/alone, {how}"),
            seen: format!("×{}", factor(value)),
            detail,
            published: if levels { "×2 to ×3.5" } else { "×6" }.into(),
            goal: goal("≤\u{a0}×1.2"),
            value,
            met: levels.then_some(value <= 1.2),
        };
        rows.push(judged(row, &phases));
    }
    let sent = |window: &Window| window.load(INTERACTIVE)?.from_sent.map(|latency| latency.p99_us);
    let of_sent = (sent(harm.beside), sent(harm.alone));
    if let (true, Some(value)) = (published, ratio(of_sent.0, of_sent.1)) {
        let told = |us: Option<f64>| time(us.unwrap_or_default());
        let row = Row {
            what: format!("the same from sending on, {how}"),
            seen: format!("×{}", factor(value)),
            detail: format!(
                "{} beside, {} alone; so the published figures count",
                told(of_sent.0),
                told(of_sent.1)
            ),
            published: if levels { "×2 to ×3.5" } else { "×6" }.into(),
            goal: goal("≤\u{a0}×1.2"),
            value,
            met: levels.then_some(value <= 1.2),
        };
        rows.push(judged(row, &phases));
    }
    if let Some(value) = harm.throughput() {
        let rate = |window: &Window| super::units::rate(window.throughput(INTERACTIVE).unwrap_or_default());
        let row = Row {
            what: format!("interactive throughput kept, {how}"),
            seen: percent(value),
            detail: format!("{} a second beside, {} alone", rate(harm.beside), rate(harm.alone)),
            published: if levels { "90 to 97 %" } else { "" }.into(),
            goal: goal("≥\u{a0}99.5\u{a0}%"),
            value,
            met: levels.then_some(value >= 0.995),
        };
        rows.push(judged(row, &phases));
    }
}

/// What the batch load gave up of its throughput alone, and what the interactive load, alone, takes of the server's CPU: the whole
/// process's, since the sockets' part of the work is in no level. Both in parts.
pub(super) fn given_up(outcome: &Outcome) -> Option<(f64, f64)> {
    let alone = outcome.capacity.batch.as_ref().map(|run| run.throughput_per_s);
    let chapter = outcome.chapter("two_levels")?;
    let kept = ratio(chapter.window("beside")?.throughput(BATCH), alone)?;
    let cpu = &chapter.window("before")?.cpu;
    Some((1.0 - kept, cpu.process / cpu.cores.max(1) as f64))
}

fn given_up_row(outcome: &Outcome, rows: &mut Vec<Row>) {
    let beside = outcome.chapter("two_levels").and_then(|chapter| chapter.window("beside"));
    let (Some((lost, used)), Some(beside)) = (given_up(outcome), beside) else { return };
    let row = Row {
        what: "batch throughput given up, a level each".to_string(),
        seen: percent(lost),
        detail: format!("alone, the interactive load takes {} of the server's CPU", percent(used)),
        published: "4 to 18 %".into(),
        goal: format!("≤ {}", percent(used)),
        value: lost,
        met: Some(lost <= used + 0.01),
    };
    rows.push(judged(row, &[beside]));
}

fn cap_row(outcome: &Outcome, rows: &mut Vec<Row>) {
    let window = outcome.chapter("cap").and_then(|chapter| chapter.window("capped"));
    let Some((window, value)) = window.and_then(|window| Some((window, window.cpu.part(CAPPED)?))) else {
        return;
    };
    let row = Row {
        what: "cpu_limit = '50%' on an idle machine".to_string(),
        seen: percent(value),
        detail: "of the server's CPU, with always more to do".into(),
        published: "50\u{a0}±\u{a0}2\u{a0}%".into(),
        goal: "50\u{a0}±\u{a0}1\u{a0}%".into(),
        value,
        met: Some((value - 0.5).abs() <= 0.01),
    };
    rows.push(judged(row, &[window]));
}

/// Every comparison that could be measured.
pub(super) fn compare(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    for chapter in &outcome.chapters {
        harm_rows(chapter, outcome.shape == "published", &mut rows);
    }
    given_up_row(outcome, &mut rows);
    shares::rows(outcome, &mut rows);
    cap_row(outcome, &mut rows);
    storage::rows(outcome, &mut rows);
    olap::rows(outcome, &mut rows);
    rows
}

#[cfg(test)]
mod tests;
