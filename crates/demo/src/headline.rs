//! Headline of the report, of at most ten words, and the result in one sentence.

use crate::compare::{
    Effect, batch_loss, beside, best, both_p99, cost, deviation, isolation, mean_of, one_key, throughputs,
};
use crate::names::{BATCHED, DASHBOARD, DIRECT, LEVELS, ONE_LEVEL, SHORT, SHORT_CLICKBENCH};
use crate::results::{Chapter, DemoResults, Subject};
use charts::numbers::{factor, percent, rate, time};

/// Returns the headline: at most ten words, with the most important values that were measured.
pub(crate) fn headline(outcome: &DemoResults) -> String {
    let result = match outcome.subject {
        Subject::Levels => {
            let p99 = |id: &str| Effect::of(outcome.chapter(id)?)?.p99().map(factor);
            match (p99("two_levels"), p99("one_level")) {
                (Some(levels), Some(one)) => {
                    format!("With service levels p99 grows ×{levels}, without ×{one}")
                }
                _ => "Loads beside each other on one server".to_string(),
            }
        }
        Subject::Flush => {
            let cost = |id: &str| outcome.chapter(id).and_then(cost).map(factor);
            match (cost("controlled"), cost("uncontrolled")) {
                (Some(on), Some(off)) => {
                    format!("Beside flushes p99 of writes is ×{on}, uncontrolled ×{off}")
                }
                (Some(on), None) => format!("Beside flushes p99 of writes is ×{on}"),
                _ => match published(outcome) {
                    Some([off, on]) => {
                        format!("p99 of writes: {} uncontrolled, {} controlled", time(off), time(on))
                    }
                    None => "Writes beside flushes and compactions".to_string(),
                },
            }
        }
        Subject::Compaction => {
            let space = |id: &str| outcome.chapter(id).and_then(Chapter::temporary_space).map(percent);
            match (space("incremental"), space("size_tiered")) {
                (Some(own), Some(tiered)) => {
                    format!("Incremental compaction takes {own} more space, size-tiered {tiered}")
                }
                _ => "Temporary space of a major compaction".to_string(),
            }
        }
        Subject::Olap => olap_headline(outcome),
        Subject::Batching => match one_key(outcome) {
            Some((partitions, batches)) => {
                let (partitions, batches) = (rate(partitions), rate(batches));
                format!("One key: {partitions} commands/s in partitions, {batches} in batches")
            }
            None => "Commands in order over changing keys".to_string(),
        },
        Subject::Petabyte => match isolation(outcome) {
            Some([own, one]) => {
                format!("Next to users p99 is ×{}; in one level ×{} of that", factor(own), factor(one))
            }
            None => "Large user data next to application data".to_string(),
        },
        Subject::Cluster => {
            let p99 = |id: &str| Effect::of(outcome.chapter(id)?)?.p99().map(factor);
            match (p99("two_levels"), p99("one_level")) {
                (Some(levels), Some(one)) => {
                    format!("With levels in front p99 grows ×{levels}, without ×{one}")
                }
                _ => "Service levels in front of a node".to_string(),
            }
        }
        Subject::Overload => {
            let in_time = |is_limited| {
                let chapter = outcome.chapters.first()?;
                let goodput = mean_of(chapter, 10.0, is_limited, |offered| offered.goodput_per_s)?;
                Some(percent(goodput / best(chapter)?))
            };
            match (in_time(true), in_time(false)) {
                (Some(on), Some(off)) => format!("At ten times capacity: {on} in time, unlimited {off}"),
                _ => "More load than the server can do".to_string(),
            }
        }
    };
    if outcome.invalid() { format!("Invalid: {}", lower_first(&result)) } else { result }
}

/// Returns the headline of the first of the experiments that was measured.
fn olap_headline(outcome: &DemoResults) -> String {
    let shares =
        || throughputs(outcome.chapter("olap_shares")?.window(LEVELS)?).map(|ratio| format!("{ratio:.2}:1"));
    let short = || {
        let chapter = SHORT.iter().find_map(|id| outcome.chapter(id))?;
        let (connections, over) = *beside(chapter, LEVELS, DASHBOARD).last()?;
        Some(format!("Beside {connections} connections, short queries take ×{} as long", factor(over.p50)))
    };
    if let Some(ratio) = shares() {
        return format!("Shares of 2:1 give {ratio} of query throughput");
    }
    let capped = outcome.chapter("olap_cap").into_iter().flat_map(|chapter| &chapter.windows);
    if let Some(most) = capped.map(|window| window.cpu.server_part()).reduce(f64::max) {
        return format!("cpu_limit = '50%' holds queries to {}", percent(most));
    }
    short().unwrap_or_else(|| "Queries beside queries".to_string())
}

/// Returns the sentence. It contains only values that were measured, and warns of invalid results.
pub(crate) fn sentence(outcome: &DemoResults) -> String {
    let result = result(outcome);
    if outcome.invalid() { format!("Do not rely on this: {}", lower_first(&result)) } else { result }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn result(outcome: &DemoResults) -> String {
    match outcome.subject {
        Subject::Levels => levels(outcome),
        Subject::Flush => flush(outcome),
        Subject::Compaction => compaction(outcome),
        Subject::Olap => olap(outcome),
        Subject::Batching => batching(outcome),
        Subject::Overload => overload(outcome),
        Subject::Petabyte => petabyte(outcome),
        Subject::Cluster => cluster(outcome),
    }
}

/// Returns a clause for each of the three experiments that was measured.
fn olap(outcome: &DemoResults) -> String {
    let mut clauses = Vec::new();
    let ratio = |id: &str| throughputs(outcome.chapter("olap_shares")?.window(id)?);
    if let (Some(levels), Some(one)) = (ratio(LEVELS), ratio(ONE_LEVEL)) {
        clauses.push(format!(
            "two clients with shares 2:1 get query throughput of {levels:.2} : 1, in one level {one:.2} : 1"
        ));
    }
    let capped = outcome
        .chapter("olap_cap")
        .map(|chapter| chapter.windows.iter().map(|window| window.cpu.server_part()));
    if let Some(most) = capped.and_then(|parts| parts.reduce(f64::max)) {
        clauses.push(format!("with a client limited to 50 % the server uses at most {}", percent(most)));
    }
    let short = SHORT.iter().filter_map(|id| outcome.chapter(id));
    for chapter in short {
        let last = |how: &str| beside(chapter, how, DASHBOARD).last().copied();
        if let (Some((most, levels)), Some((_, one))) = (last(LEVELS), last(ONE_LEVEL)) {
            clauses.push(format!(
                "beside {most} connections short queries of {} take ×{} as long as alone with a level each, ×{} in \
                 one level",
                if chapter.id == SHORT_CLICKBENCH { "ClickBench" } else { "TPC-H" },
                factor(levels.p50),
                factor(one.p50)
            ));
        }
    }
    match clauses.is_empty() {
        true => "Queries beside queries.".to_string(),
        false => format!("{}.", upper_first(&clauses.join("; "))),
    }
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn petabyte(outcome: &DemoResults) -> String {
    match isolation(outcome) {
        Some([own, one]) => format!(
            "Next to users who read at 85 % of capacity, the p99 of the application's reads is ×{} of that alone when \
             each has a service level; in one level it is ×{} of that.",
            factor(own),
            factor(one)
        ),
        None => "Large user data next to small application data.".to_string(),
    }
}

/// Returns the p99 of writes at the published rate, with the controllers off and on, µs.
fn published(outcome: &DemoResults) -> Option<[f64; 2]> {
    outcome.chapters.iter().find_map(both_p99)
}

fn flush(outcome: &DemoResults) -> String {
    let cost = |id: &str| outcome.chapter(id).and_then(cost);
    match (cost("controlled"), cost("uncontrolled")) {
        (Some(on), Some(off)) => format!(
            "Beside flushes and compactions, the p99 of writes is ×{} of that on a server that flushes nothing; \
             with the controllers off it is ×{}.",
            factor(on),
            factor(off)
        ),
        (Some(on), None) => format!(
            "Beside flushes and compactions, the p99 of writes is ×{} of that on a server that flushes nothing.",
            factor(on)
        ),
        _ => match published(outcome) {
            Some([off, on]) => format!(
                "Beside flushes and compactions, the p99 of writes is {} with uncontrolled background work, and {} \
                 with the controllers.",
                time(off),
                time(on)
            ),
            None => "Writes beside flushes and compactions.".to_string(),
        },
    }
}

fn batching(outcome: &DemoResults) -> String {
    let deviation = outcome.chapter(BATCHED).and_then(deviation);
    match (one_key(outcome), deviation) {
        (Some((partitions, batches)), Some(deviation)) => format!(
            "Commands in order on one key: {} a second with partitions in parallel, {} in batches. Whatever the keys, \
             batches stay within {} of the requested rate.",
            rate(partitions),
            rate(batches),
            percent(deviation)
        ),
        _ => "Commands in order over changing keys.".to_string(),
    }
}

fn overload(outcome: &DemoResults) -> String {
    let clause = |chapter: &Chapter| {
        let best = best(chapter)?;
        let goodput = |is_limited| mean_of(chapter, 10.0, is_limited, |offered| offered.goodput_per_s);
        Some(format!(
            "{}: {} without a limit, {} with max_concurrency = 'auto'",
            lower_first(&chapter.title),
            percent(goodput(false)? / best),
            percent(goodput(true)? / best)
        ))
    };
    let clauses: Vec<String> = outcome.chapters.iter().filter_map(clause).collect();
    match clauses.is_empty() {
        true => "More load than the server can do.".to_string(),
        false => format!(
            "Offered ten times what it can do, the server answers in time, of its best: {}.",
            clauses.join("; ")
        ),
    }
}

fn compaction(outcome: &DemoResults) -> String {
    let space = |id: &str| outcome.chapter(id).and_then(Chapter::temporary_space).map(percent);
    match (space("incremental"), space("size_tiered")) {
        (Some(incremental), Some(tiered)) => format!(
            "A major compaction temporarily takes {incremental} of the table's space with the incremental \
             strategy, and {tiered} with the size-tiered one."
        ),
        _ => "Temporary space of a major compaction.".to_string(),
    }
}

fn cluster(outcome: &DemoResults) -> String {
    let clause = |(id, how): (&str, &str)| {
        let p99 = Effect::of(outcome.chapter(id)?)?.p99()?;
        Some(format!("×{} {how}", factor(p99)))
    };
    let cases = [
        ("two_levels", "with a level for each load in the front"),
        ("one_level", "with both in one level of it"),
        (DIRECT, "without a front"),
    ];
    let clauses: Vec<String> = cases.into_iter().filter_map(clause).collect();
    match clauses.is_empty() {
        true => "Service levels in front of a node that has none.".to_string(),
        false => format!(
            "Beside an unlimited batch load at a node without levels, the p99 of the interactive load is, over that \
             alone: {}.",
            clauses.join("; ")
        ),
    }
}

fn levels(outcome: &DemoResults) -> String {
    let effect = |id: &str| {
        let effect = Effect::of(outcome.chapter(id)?)?;
        Some((effect.p99()?, effect.throughput()?))
    };
    let (levels, one) = (effect("two_levels"), effect("one_level"));
    match (levels, one) {
        (Some((p99, throughput)), Some((p99_one, throughput_one))) => format!(
            "Beside an unlimited batch load, the interactive load keeps {} of its throughput at ×{} of its p99 \
             when each has a service level; with both in one level it keeps {} at ×{}.",
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
        _ => "Effects of loads on each other on one server.".to_string(),
    }
}

/// Returns a sentence about the batch load.
pub(crate) fn batch(outcome: &DemoResults) -> Option<String> {
    let (lost, used) = batch_loss(outcome)?;
    Some(format!(
        "The batch load got {} of its throughput alone; the interactive load alone takes {} of the server's CPU.",
        percent(1.0 - lost),
        percent(used)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_run_starts_with_a_warning() {
        let mut outcome = DemoResults::default();
        assert_eq!(sentence(&outcome), "Effects of loads on each other on one server.");
        outcome.notes.push("Invalid: the server was empty.".to_string());
        assert_eq!(sentence(&outcome), "Do not rely on this: effects of loads on each other on one server.");
        assert_eq!(headline(&outcome), "Invalid: loads beside each other on one server");
    }
}
