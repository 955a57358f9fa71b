//! Random trees: printed, then parsed, they are what they were. Trees are of the shape the parser makes (its documents
//! say which that is). Seeded: a failure names the seed.

#[path = "common/generate.rs"]
mod generate;
#[path = "common/random.rs"]
mod random;

use cql::Statement;
use generate::Generator;
use random::Random;

/// About two seconds in a debug build.
const TREES: u64 = 20_000;

#[test]
fn random_trees() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..TREES {
        let tree: Statement = Generator::new(Random(seed)).statement();
        let text = tree.to_cql_with_secrets();
        match cql::parse(&text) {
            Ok(parsed) => assert_eq!(without_numbers(&parsed), without_numbers(&tree), "seed {seed}: {text}"),
            Err(error) => panic!("seed {seed}: {text}: {error}\n{tree:?}"),
        }
        cql::fuzz::fuzz(text.as_bytes());
        kinds.insert(format!("{tree:?}").split('(').next().map(str::to_owned));
    }
    assert_eq!(kinds.len(), generate::KINDS, "every kind of statement was generated: {kinds:?}");
}

/// The tree as Rust shows it, without the numbers of its markers.
fn without_numbers(tree: &Statement) -> String {
    let debug = format!("{tree:?}");
    let mut pieces = debug.split("BindMarker { index: ");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.trim_start_matches(|c: char| c.is_ascii_digit()))
}
