//! Graphs compared with exact search, and saved graphs with those that were saved.

use bytes::Bytes;
use testkit::Random;

use super::saved::FACTS_BYTES;
use super::*;

const DIMENSION: usize = 24;

/// Returns vectors around a few centres, as those of texts and pictures are.
fn clustered(random: &mut Random, count: usize) -> Vec<Vec<f32>> {
    let mut vector = |spread: f64| -> Vec<f32> {
        (0..DIMENSION).map(|_| ((random.fraction() * 2.0 - 1.0) * spread) as f32).collect()
    };
    let centres: Vec<Vec<f32>> = (0..12).map(|_| vector(1.0)).collect();
    let mut vectors = Vec::with_capacity(count);
    for at in 0..count {
        let near = vector(0.4);
        vectors.push(centres[at % centres.len()].iter().zip(near).map(|(a, b)| a + b).collect());
    }
    vectors
}

fn place(at: usize) -> Bytes {
    Bytes::from(format!("row {at}"))
}

fn similarity(measure: Measure, a: &[f32], b: &[f32]) -> f32 {
    let sum = |of: fn(f32, f32) -> f32| a.iter().zip(b).map(|(a, b)| of(*a, *b)).sum::<f32>();
    match measure {
        Measure::Cosine => (1.0 + sum(|a, b| a * b) / (sum(|a, _| a * a) * sum(|_, b| b * b)).sqrt()) / 2.0,
        Measure::DotProduct => (1.0 + sum(|a, b| a * b)) / 2.0,
        Measure::Euclidean => 1.0 / (1.0 + sum(|a, b| (a - b) * (a - b))),
    }
}

fn graph_of(measure: Measure, vectors: &[Vec<f32>]) -> Graph {
    let mut graph = Graph::new(DIMENSION, measure).unwrap();
    for (at, vector) in vectors.iter().enumerate() {
        graph.put(&place(at), vector).unwrap();
    }
    graph
}

#[test]
fn nearest_vectors_are_those_of_exact_search() {
    for measure in [Measure::Cosine, Measure::DotProduct, Measure::Euclidean] {
        let mut random = Random::new(7);
        let (vectors, queries) = (clustered(&mut random, 3000), clustered(&mut random, 50));
        let graph = graph_of(measure, &vectors);
        let mut hits = 0;
        for query in &queries {
            let mut exact: Vec<(usize, f32)> =
                vectors.iter().enumerate().map(|(at, v)| (at, similarity(measure, v, query))).collect();
            exact.sort_by(|a, b| b.1.total_cmp(&a.1));
            let found = graph.nearest(query, 10).unwrap();
            assert!(found.is_sorted_by(|a, b| a.similarity >= b.similarity), "{found:?}");
            for Found { place: found, similarity } in &found {
                let (_, own) = exact.iter().find(|(at, _)| place(*at) == *found).unwrap();
                assert!((own - similarity).abs() < 1e-4, "{measure:?}: {own} {similarity}");
            }
            hits += exact[..10].iter().filter(|(at, _)| found.iter().any(|f| f.place == place(*at))).count();
        }
        // These vectors have different lengths, which makes the dot product hard: see `candidates`.
        let least = if measure == Measure::DotProduct { 450 } else { 490 };
        assert!(hits >= least, "{measure:?}: {hits} of 500 found");
    }
}

#[test]
fn replaced_and_removed_places_are_not_found() {
    let mut random = Random::new(8);
    let vectors = clustered(&mut random, 400);
    let mut graph = graph_of(Measure::Euclidean, &vectors);
    let bytes = graph.bytes();
    for at in (0..400).step_by(2) {
        assert!(graph.remove(&place(at)).unwrap());
        assert!(!graph.remove(&place(at)).unwrap());
    }
    for at in (1..400).step_by(4) {
        graph.put(&place(at), &vectors[at - 1]).unwrap();
    }
    assert_eq!(graph.len(), 200);
    for (at, vector) in vectors.iter().enumerate() {
        let best = &graph.nearest(vector, 1).unwrap()[0];
        let expected = match at % 4 {
            0 => Some(at + 1),
            3 => Some(at),
            _ => None,
        };
        match expected {
            Some(expected) => assert_eq!((&best.place, best.similarity), (&place(expected), 1.0)),
            None => assert!(best.similarity < 1.0, "{at} {best:?}"),
        }
    }
    // Slots are used again.
    for round in 0..20 {
        for at in 0..200 {
            graph.put(&place(at), &vectors[(at + round) % 400]).unwrap();
        }
    }
    assert!(graph.bytes() < bytes * 2, "{} after {bytes}", graph.bytes());
}

#[test]
fn equal_input_gives_equal_answers() {
    let mut random = Random::new(9);
    let (vectors, queries) = (clustered(&mut random, 500), clustered(&mut random, 20));
    let (one, other) = (graph_of(Measure::Cosine, &vectors), graph_of(Measure::Cosine, &vectors));
    for query in &queries {
        assert_eq!(one.nearest(query, 20).unwrap(), other.nearest(query, 20).unwrap());
    }
}

#[test]
fn vectors_of_another_dimension_are_errors() {
    let mut graph = Graph::new(3, Measure::Cosine).unwrap();
    assert!(graph.is_empty());
    assert_eq!(graph.nearest(&[1.0, 0.0, 0.0], 5).unwrap(), []);
    graph.put(&place(0), &[1.0, 0.0, 0.0]).unwrap();
    assert!(graph.put(&place(1), &[1.0]).is_err());
    assert!(graph.nearest(&[1.0], 1).is_err());
    assert_eq!(graph.nearest(&[1.0, 0.0, 0.0], 5).unwrap().len(), 1);
}

const OWNER: Owner = [7; OWNER_BYTES];

fn load(file: &[u8]) -> Result<Graph, GraphError> {
    Graph::load(file, &OWNER, DIMENSION, Measure::Euclidean)
}

/// Returns a graph of which a quarter of the places were removed.
fn with_holes(random: &mut Random, count: usize) -> (Graph, Vec<Vec<f32>>) {
    let vectors = clustered(random, count);
    let mut graph = graph_of(Measure::Euclidean, &vectors);
    for at in (0..count).step_by(4) {
        assert!(graph.remove(&place(at)).unwrap());
    }
    (graph, vectors)
}

#[test]
fn loaded_graph_answers_and_grows_as_the_saved_one() {
    let mut random = Random::new(10);
    let (mut saved, vectors) = with_holes(&mut random, 600);
    let queries = clustered(&mut random, 20);
    let mut loaded = load(&saved.save(&OWNER).unwrap()).unwrap();
    assert_eq!(loaded.len(), 450);
    for query in &queries {
        assert_eq!(loaded.nearest(query, 20).unwrap(), saved.nearest(query, 20).unwrap());
    }
    for graph in [&mut saved, &mut loaded] {
        // The first fill free slots, the others need more.
        for at in 0..1200 {
            assert!(graph.put(&place(at), &vectors[at / 2]).unwrap(), "{at}");
        }
        let mut hits = 0;
        for (at, vector) in vectors.iter().enumerate() {
            let found = graph.nearest(vector, 2).unwrap();
            hits += found.iter().filter(|f| f.place == place(2 * at) || f.place == place(2 * at + 1)).count();
        }
        assert!(hits >= 1190, "{hits} of 1200 found");
    }
    let (own, other) = (loaded.bytes(), saved.bytes());
    assert!(own < other * 2 && other < own * 2, "{own} and {other} bytes");
    // A loaded graph can be saved.
    let again = load(&loaded.save(&OWNER).unwrap()).unwrap();
    assert_eq!(again.nearest(&queries[0], 20).unwrap(), loaded.nearest(&queries[0], 20).unwrap());
}

#[test]
fn scan_of_a_loaded_graph_tells_what_has_changed() {
    let (saved, vectors) = with_holes(&mut Random::new(11), 100);
    let mut graph = load(&saved.save(&OWNER).unwrap()).unwrap();
    for _ in 0..2 {
        graph.begin_scan();
        assert_eq!(graph.unmet().len(), graph.len());
    }
    for at in 10..100 {
        let new_at = if at == 50 { 51 } else { at };
        let inserts = at % 4 == 0 || at == 50;
        assert_eq!(graph.put(&place(at), &vectors[new_at]).unwrap(), inserts, "{at}");
    }
    let mut unmet = graph.unmet();
    unmet.sort();
    assert_eq!(unmet, [1, 2, 3, 5, 6, 7, 9].map(place));
    assert_eq!(graph.nearest(&vectors[51], 2).unwrap()[1].similarity, 1.0, "50 has the vector of 51");
}

#[test]
fn every_damaged_byte_of_a_file_is_noticed() {
    let (graph, _) = with_holes(&mut Random::new(12), 8);
    let file = graph.save(&OWNER).unwrap();
    assert!(load(&file).is_ok() && is_saved(&file));
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        assert!(load(&damaged).is_err(), "byte {at}");
        assert_eq!(is_saved(&damaged), at >= 8);
        assert!(load(&file[..at]).is_err(), "cut at {at}");
    }
    let longer = [&file[..], &[0]].concat();
    assert!(load(&longer).is_err());
}

#[test]
fn file_of_another_graph_is_not_loaded() {
    let (graph, _) = with_holes(&mut Random::new(13), 8);
    let file = graph.save(&OWNER).unwrap();
    let mut other = OWNER;
    other[31] ^= 1;
    assert!(Graph::load(&file, &other, DIMENSION, Measure::Euclidean).is_err());
    assert!(Graph::load(&file, &OWNER, DIMENSION - 1, Measure::Euclidean).is_err());
    assert!(Graph::load(&file, &OWNER, DIMENSION, Measure::Cosine).is_err());
    // The next version, with the right checksum of the header.
    let mut next = file.clone();
    next[8] += 1;
    let sum = crc32c::crc32c(&next[..FACTS_BYTES + 4]).to_le_bytes();
    next[FACTS_BYTES + 4..][..4].copy_from_slice(&sum);
    assert!(load(&next).is_err());
    next[8] -= 1;
    let sum = crc32c::crc32c(&next[..FACTS_BYTES + 4]).to_le_bytes();
    next[FACTS_BYTES + 4..][..4].copy_from_slice(&sum);
    assert!(load(&next).is_ok());
}
