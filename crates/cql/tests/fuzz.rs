//! Mutated statements: the parser neither panics nor hangs, and every parsed statement survives
//! printing. The test is seeded and has a fixed number of rounds. A failure names the seed, which
//! reproduces it alone.

mod common;

use std::panic::catch_unwind;

use testkit::Random;

/// Number of rounds: about 2 s in a debug build.
const ROUNDS: u64 = 60_000;

/// Insertions that make the parser take another rule.
const SNIPPETS: [&str; 42] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ":",
    ".",
    "..",
    "?",
    "*",
    "+",
    "-",
    "=",
    "<",
    ">=",
    "--",
    "/*",
    "*/",
    "$$",
    "'",
    "\"",
    " ",
    "\n",
    "0x",
    "1.",
    "1e5",
    "1h",
    "P1D",
    "NULL",
    "token",
    "IN",
    "AND",
    "USING",
    "IF",
    "SERVICE LEVEL",
    "count(1)",
    "\u{b5}s",
    "\u{1F600}",
    "true",
];

fn mutate(random: &mut Random, corpus: &[String]) -> Vec<u8> {
    let mut bytes = random.pick(corpus).into_bytes();
    for _ in 0..=random.index(3) {
        let at = random.index(bytes.len() + 1);
        let end = (at + random.index(12)).min(bytes.len());
        match random.index(6) {
            0 => drop(bytes.drain(at..end)),
            1 => drop(bytes.splice(at..at, random.pick(&SNIPPETS).bytes())),
            2 => drop(bytes.splice(at..end, random.pick(&SNIPPETS).bytes())),
            3 => {
                let other = random.pick(corpus).into_bytes();
                let from = random.index(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            4 => {
                let copied = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copied));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.index(8);
                }
            }
        }
    }
    bytes
}

#[test]
fn mutated_statements_do_not_panic() {
    let corpus: Vec<String> = common::statements();
    let mut parsed = 0;
    for seed in 0..ROUNDS {
        let bytes = mutate(&mut Random::new(seed), &corpus);
        let outcome = catch_unwind(|| cql::fuzz::fuzz(&bytes));
        assert!(outcome.is_ok(), "seed {seed}: {:?}", String::from_utf8_lossy(&bytes));
        parsed += u64::from(std::str::from_utf8(&bytes).is_ok_and(|text| cql::parse(text).is_ok()));
    }
    // If no mutation were a statement, the test would cover error paths only.
    assert!(parsed > ROUNDS / 40, "only {parsed} of {ROUNDS} mutated statements were valid");
}
