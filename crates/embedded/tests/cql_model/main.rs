//! CQL compared with a simple model of the data model. Random schemas, writes and reads of every
//! kind run as text over one to three cores, with flushes, compactions and restarts in between. The
//! model keeps every cell and computes each result from all of them. If the two differ, Cassandra's
//! rules decide which one is wrong.
//!
//! `cargo xtask simulate --only cql --seeds 5000` runs many histories, `cargo xtask simulate --only
//! cql --seed 17` replays one. They set the environment variables `FAIRLANE_SEED` (one seed), or
//! `FAIRLANE_SEEDS` (the number of seeds) and `FAIRLANE_FROM` (the first seed). A history that
//! fails is shortened by removing steps, and printed.

mod data;
mod generate;
mod model;
mod run;

use generate::{Case, case};
use run::{Failure, Server};

/// Number of histories by default: a few seconds.
const SEEDS: u64 = 40;

/// Attempts to shorten a history that fails.
const ATTEMPTS_MAX: u32 = 400;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Removes steps as long as the history still fails. Schema changes stay, because statements name
/// columns by their index.
fn shorter(server: &mut Server, case: &Case, mut failure: Failure) -> Failure {
    let is_fixed = |step: &data::Step| {
        use data::Step as S;
        matches!(step, S::Drop(_) | S::Add(_) | S::DropIndexes(_) | S::CreateView(_) | S::DropViews)
    };
    let mut steps = case.steps[..=failure.step].to_vec();
    let (mut size, mut attempts) = (steps.len().div_ceil(2), 0);
    while size > 0 {
        let mut from = 0;
        while from < steps.len() && attempts < ATTEMPTS_MAX {
            let (at, to) = (from, (from + size).min(steps.len()));
            let fewer: Vec<_> = steps
                .iter()
                .enumerate()
                .filter(|(number, step)| !(at..to).contains(number) || is_fixed(step))
                .map(|(_, step)| step.clone())
                .collect();
            attempts += 1;
            match server.run(&Case { steps: fewer.clone(), ..case.clone() }) {
                Err(other) if fewer.len() < steps.len() => (steps, failure) = (fewer, other),
                _ => from += size,
            }
        }
        size /= 2;
    }
    failure
}

#[test]
fn random_statements_are_answered_as_the_model_does() {
    let from = number("FAIRLANE_FROM").unwrap_or(0);
    let asked = number("FAIRLANE_SEEDS");
    let seeds = match number("FAIRLANE_SEED") {
        Some(seed) => seed..seed + 1,
        None => from..from + asked.unwrap_or(SEEDS),
    };
    let go_on = std::env::var_os("FAIRLANE_GO_ON").is_some();
    let (mut server, mut failed) = (Server::default(), Vec::new());
    for seed in seeds {
        let case = case(seed);
        if let Err(failure) = server.run(&case) {
            let (first, last) = (failure.what.clone(), shorter(&mut server, &case, failure));
            let report = format!(
                "seed {seed}: {first}\n\nmade shorter, on {} cores: {}\n{}\n\n\
                 to see it again: cargo xtask simulate --only cql --seed {seed}",
                case.cores,
                last.what,
                last.trace.join("\n"),
            );
            assert!(go_on, "{report}");
            println!("{report}\n");
            failed.push(seed);
        }
        if asked.is_some() && (seed + 1).is_multiple_of(500) {
            println!("{} seeds: {:?}", seed + 1 - from, server.counts);
        }
    }
    server.close();
    assert!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
    assert!(
        server.counts.refused * 20 < server.counts.statements,
        "too much was refused: {:?}",
        server.counts
    );
}
