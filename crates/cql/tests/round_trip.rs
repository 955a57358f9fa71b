//! Random trees: a printed and parsed tree equals the original. The trees have the shapes that the
//! parser produces, as `ast` documents. The test is seeded, and a failure names the seed.

#[path = "common/generate.rs"]
mod generate;

use cql::Statement;
use generate::Generator;
use testkit::Random;

/// Number of trees: about 2 s in a debug build.
const TREES: u64 = 20_000;

#[test]
fn random_trees_survive_printing_and_parsing() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..TREES {
        let tree: Statement = Generator::new(Random::new(seed)).statement();
        let text = tree.to_cql_with_secrets();
        match cql::parse(&text) {
            Ok(parsed) => assert_eq!(without_indexes(&parsed), without_indexes(&tree), "seed {seed}: {text}"),
            Err(error) => panic!("seed {seed}: {text}: {error}\n{tree:?}"),
        }
        cql::fuzz::fuzz(text.as_bytes());
        kinds.insert(format!("{tree:?}").split('(').next().map(str::to_owned));
    }
    assert_eq!(kinds.len(), generate::KINDS, "every kind of statement was generated: {kinds:?}");
}

/// Formats the tree with Debug, without the indexes of its markers.
fn without_indexes(tree: &Statement) -> String {
    let debug = format!("{tree:?}");
    let mut parts = debug.split("BindMarker { index: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}
