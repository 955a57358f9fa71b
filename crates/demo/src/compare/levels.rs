//! Comparisons of the demo of service levels: the effect of the batch load on the interactive one,
//! the throughput of the batch load, and the hard limit.

use super::judge::{judged, ratio};
use crate::names::{BATCH, CAPPED, DIRECT, INTERACTIVE};
use crate::results::{Chapter, ComparisonRow, DemoResults, Subject, Window};
use charts::numbers::{factor, percent, time};

/// Largest p99 of the interactive load beside the batch load, over that alone: in the server, and
/// in front of a node whose window has slices in it.
const P99_MAX: f64 = 1.2;
const P99_BEHIND_A_FRONT_MAX: f64 = 1.5;

/// Effect of the batch load on the interactive load in one chapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect<'a> {
    /// Phase alone with the lower p99. A disturbed phase would make the ratio look better.
    pub(crate) alone: &'a Window,
    pub(crate) beside: &'a Window,
}

impl<'a> Effect<'a> {
    /// Returns the effect in a chapter, if it has these phases.
    pub(crate) fn of(chapter: &'a Chapter) -> Option<Effect<'a>> {
        let (before, beside) = (chapter.window("before")?, chapter.window("beside")?);
        let alone = match chapter.window("after") {
            Some(after) if p99(after) < p99(before) && p99(after).is_some() => after,
            _ => before,
        };
        Some(Effect { alone, beside })
    }

    /// Returns the p99 beside the batch load over the p99 alone.
    pub(crate) fn p99(&self) -> Option<f64> {
        ratio(p99(self.beside), p99(self.alone))
    }

    /// Returns the throughput beside the batch load over the throughput alone.
    pub(crate) fn throughput(&self) -> Option<f64> {
        ratio(self.beside.throughput(INTERACTIVE), self.alone.throughput(INTERACTIVE))
    }
}

/// Returns the p99 of the interactive load, µs.
fn p99(window: &Window) -> Option<f64> {
    window.latency(INTERACTIVE).map(|latency| latency.p99_us)
}

fn effect_rows(outcome: &DemoResults, chapter: &Chapter, rows: &mut Vec<ComparisonRow>) {
    let Some(effect) = Effect::of(chapter) else { return };
    let levels = chapter.id == "two_levels";
    let how = match &*chapter.id {
        "two_levels" => "a level each",
        DIRECT => "no front",
        _ => "one level",
    };
    let p99_max = if outcome.subject == Subject::Cluster { P99_BEHIND_A_FRONT_MAX } else { P99_MAX };
    let p99_goal = format!("≤\u{a0}×{}", factor(p99_max));
    let published = |text: &'static str| if is_published(outcome) { text } else { "" };
    let published_p99 = published(if levels { "×2 to ×3.5" } else { "×6" });
    let phases = [effect.alone, effect.beside];
    let goal = |goal: &str| if levels { goal.to_string() } else { String::new() };
    let shown = |window| time(p99(window).unwrap_or_default());
    if let Some(value) = effect.p99() {
        let detail = format!("{} beside, {} alone", shown(effect.beside), shown(effect.alone));
        let row = ComparisonRow::times(format!("interactive p99, beside/alone, {how}"), value)
            .detail(detail)
            .published(published_p99)
            .goal(goal(&p99_goal), levels.then_some(value <= p99_max));
        rows.push(judged(row, &phases));
    }
    let sent = |window: &Window| window.load(INTERACTIVE)?.from_sent.map(|latency| latency.p99_us);
    let of_sent = (sent(effect.beside), sent(effect.alone));
    if let (true, Some(value)) = (outcome.shape == "published", ratio(of_sent.0, of_sent.1)) {
        let shown = |us: Option<f64>| time(us.unwrap_or_default());
        let row = ComparisonRow::times(format!("the same from the time of sending, {how}"), value)
            .detail(format!(
                "{} beside, {} alone; measured as the published results",
                shown(of_sent.0),
                shown(of_sent.1)
            ))
            .published(published_p99)
            .goal(goal(&p99_goal), levels.then_some(value <= p99_max));
        rows.push(judged(row, &phases));
    }
    if let Some(value) = effect.throughput() {
        let rate =
            |window: &Window| charts::numbers::rate(window.throughput(INTERACTIVE).unwrap_or_default());
        let row = ComparisonRow::percent(format!("interactive throughput kept, {how}"), value)
            .detail(format!("{} a second beside, {} alone", rate(effect.beside), rate(effect.alone)))
            .published(published(if levels { "90 to 97 %" } else { "" }))
            .goal(goal("≥\u{a0}99.5\u{a0}%"), levels.then_some(value >= 0.995));
        rows.push(judged(row, &phases));
    }
}

/// Returns the fraction of its throughput that the batch load lost beside the interactive load, and
/// the fraction of the server's CPU that the interactive load takes alone. The latter is the whole
/// process, since work on sockets belongs to no level.
pub(crate) fn batch_loss(outcome: &DemoResults) -> Option<(f64, f64)> {
    let alone = outcome.capacity.batch.as_ref().map(|run| run.throughput_per_s);
    let chapter = outcome.chapter("two_levels")?;
    let kept = ratio(chapter.window("beside")?.throughput(BATCH), alone)?;
    Some((1.0 - kept, chapter.window("before")?.cpu.server_part()))
}

/// Returns true if another system has published results of this experiment.
fn is_published(outcome: &DemoResults) -> bool {
    outcome.subject != Subject::Cluster
}

fn batch_loss_row(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    let beside = outcome.chapter("two_levels").and_then(|chapter| chapter.window("beside"));
    let (Some((lost, used)), Some(beside)) = (batch_loss(outcome), beside) else { return };
    let row = ComparisonRow::percent("batch throughput lost, a level each", lost)
        .detail(format!("the interactive load alone takes {} of the server's CPU", percent(used)))
        .published(if is_published(outcome) { "4 to 18 %" } else { "" })
        .goal(format!("≤ {}", percent(used)), Some(lost <= used + 0.01));
    rows.push(judged(row, &[beside]));
}

pub(super) fn cap_row(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    let window = outcome.chapter("cap").and_then(|chapter| chapter.window("capped"));
    let Some((window, value)) = window.and_then(|window| Some((window, window.cpu.part(CAPPED)?))) else {
        return;
    };
    let row = ComparisonRow::percent("cpu_limit = '50%' on an idle machine", value)
        .detail("of the server's CPU, by a load that always has more to do")
        .goal("50\u{a0}±\u{a0}1\u{a0}%", Some((value - 0.5).abs() <= 0.01));
    rows.push(judged(row, &[window]));
}

pub(super) fn rows(outcome: &DemoResults, rows: &mut Vec<ComparisonRow>) {
    for chapter in &outcome.chapters {
        effect_rows(outcome, chapter, rows);
    }
    batch_loss_row(outcome, rows);
}
