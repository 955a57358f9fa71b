//! The result in one sentence, made from the figures alone.

use super::compaction::temporary;
use super::compare::olap::{beside, server_part, throughputs};
use super::compare::{self, Harm, given_up};
use super::figures::{Outcome, Subject};
use super::olap::{LEVELS, ONE_LEVEL, SHORT};
use super::units::{factor, percent};

/// The sentence; what was not measured is not in it, and a run that says something else than it seems is
/// called invalid.
pub(super) fn sentence(outcome: &Outcome) -> String {
    let told = result(outcome);
    if outcome.invalid() { format!("Not to be relied on: {}", lower_first(&told)) } else { told }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn result(outcome: &Outcome) -> String {
    match outcome.subject {
        Subject::Levels => levels(outcome),
        Subject::Flush => flush(outcome),
        Subject::Compaction => compaction(outcome),
        Subject::Olap => olap(outcome),
    }
}

/// What was measured of the three experiments, a clause each.
fn olap(outcome: &Outcome) -> String {
    let mut told = Vec::new();
    let ratio = |id: &str| throughputs(outcome.chapter("olap_shares")?.window(id)?);
    if let (Some(levels), Some(one)) = (ratio(LEVELS), ratio(ONE_LEVEL)) {
        told.push(format!(
            "two clients of queries with shares 2:1 get {levels:.2} : 1 done, in one level {one:.2} : 1"
        ));
    }
    let capped = outcome.chapter("olap_cap").map(|chapter| chapter.windows.iter().map(server_part));
    if let Some(most) = capped.and_then(|parts| parts.reduce(f64::max)) {
        told.push(format!("with a client held to 50 % the server uses {} at most", percent(most)));
    }
    let short = SHORT.iter().filter_map(|(id, _)| outcome.chapter(id));
    for chapter in short {
        let last = |how: &str| beside(chapter, how).last().copied();
        if let (Some((most, levels)), Some((_, one))) = (last(LEVELS), last(ONE_LEVEL)) {
            told.push(format!(
                "beside {most} connections short queries of {} take ×{} as long as alone with a level each, ×{} in one level",
                if chapter.id == SHORT[0].0 { "ClickBench" } else { "TPC-H" },
                factor(levels.p50),
                factor(one.p50)
            ));
        }
    }
    match told.is_empty() {
        true => "Queries beside queries.".to_string(),
        false => format!("{}.", upper_first(&told.join("; "))),
    }
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn flush(outcome: &Outcome) -> String {
    let harm = |id: &str| outcome.chapter(id).and_then(compare::harm);
    match (harm("controlled"), harm("uncontrolled")) {
        (Some(on), Some(off)) => format!(
            "Beside flushes and compactions, writes have ×{} of the p99 that they have on a server that flushes nothing; with the controllers \
             off ×{}.",
            factor(on),
            factor(off)
        ),
        (Some(on), None) => format!(
            "Beside flushes and compactions, writes have ×{} of the p99 that they have on a server that flushes nothing.",
            factor(on)
        ),
        _ => "Writes beside flushes and compactions.".to_string(),
    }
}

fn compaction(outcome: &Outcome) -> String {
    let space = |id: &str| outcome.chapter(id).and_then(temporary).map(percent);
    match (space("incremental"), space("size_tiered")) {
        (Some(incremental), Some(tiered)) => format!(
            "A major compaction takes {incremental} of the table's space for a while with the incremental strategy, {tiered} with the \
             size-tiered one."
        ),
        _ => "The space that a major compaction takes for a while.".to_string(),
    }
}

fn levels(outcome: &Outcome) -> String {
    let harm = |id: &str| outcome.chapter(id).and_then(Harm::of);
    let told = |harm: &Harm| Some((harm.p99()?, harm.throughput()?));
    let levels = harm("two_levels").as_ref().and_then(told);
    let one = harm("one_level").as_ref().and_then(told);
    match (levels, one) {
        (Some((p99, throughput)), Some((p99_one, throughput_one))) => format!(
            "Beside an unlimited batch load, the interactive load keeps {} of its throughput at ×{} of its p99 when each has a service level; \
             with both in one level it keeps {} at ×{}.",
            percent(throughput),
            factor(p99),
            percent(throughput_one),
            factor(p99_one)
        ),
        (Some((p99, throughput)), None) => format!(
            "Beside an unlimited batch load, the interactive load keeps {} of its throughput at ×{} of its p99.",
            percent(throughput),
            factor(p99)
        ),
        _ => "What loads do to each other on one server.".to_string(),
    }
}

/// What the batch load had of it.
pub(super) fn batch(outcome: &Outcome) -> Option<String> {
    let (lost, used) = given_up(outcome)?;
    Some(format!(
        "The batch load meanwhile got {} of what it gets alone; the interactive load, alone, takes {} of the server's CPU.",
        percent(1.0 - lost),
        percent(used)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_run_says_so_first() {
        let mut outcome = Outcome::default();
        assert_eq!(sentence(&outcome), "What loads do to each other on one server.");
        outcome.notes.push("Invalid: the server was empty.".to_string());
        assert_eq!(sentence(&outcome), "Not to be relied on: what loads do to each other on one server.");
    }
}
