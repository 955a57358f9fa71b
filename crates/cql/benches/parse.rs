//! Costs of parsing statements that clients send unprepared: `cargo bench -p cql`. Each result is
//! the best of 30 rounds, so that other load on the machine disturbs it little. With
//! `BENCH_RESULTS=bench/results` the results are written to that folder.

use std::hint::black_box;
use std::time::Instant;

use result_file::{ResultRun, Section};

const PARTS: Section = Section {
    file: "06-parts-of-a-request",
    title: "Parts of a request",
    goal: "The cost of each step of a request on one core is known.",
};

const ROUNDS: u32 = 30;
const PARSES_PER_ROUND: u32 = 20_000;

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock itself")]
fn best_ns(mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..PARSES_PER_ROUND {
            work();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(PARSES_PER_ROUND));
    }
    best
}

fn main() {
    let key = "0x".to_owned() + &"4c3f".repeat(5);
    let value = "0x".to_owned() + &"a7".repeat(34);
    let statements = [
        ("read, stress row", format!(r#"SELECT "C0","C1","C2","C3","C4" FROM "standard1" WHERE key={key}"#)),
        (
            "write, stress row",
            format!(
                "INSERT INTO \"standard1\" (key,\"C0\",\"C1\",\"C2\",\"C3\",\"C4\") \
                 VALUES ({key},{value},{value},{value},{value},{value})"
            ),
        ),
        ("read with markers", "SELECT a, b, c FROM ks.t WHERE pk = ? AND ck > ? LIMIT 10".to_owned()),
        ("write with markers", "INSERT INTO ks.t (pk, ck, a, b) VALUES (?, ?, ?, ?) USING TTL 60".to_owned()),
        ("read with constants", "SELECT * FROM users WHERE id = 42 AND name = 'alice'".to_owned()),
        (
            "update",
            "UPDATE ks.t SET a = 'x', c = c + 1, m['k'] = 5 WHERE pk = 1 AND ck = 2 IF a = 'y'".to_owned(),
        ),
    ];
    let mut run = ResultRun::new(PARTS, "cargo bench -p cql", ROUNDS).note("The best of the runs.");
    for (name, text) in &statements {
        let Ok(tree) = cql::parse(text) else { panic!("expected a statement, got {text}") };
        let parse = best_ns(|| {
            let _ = black_box(cql::parse(black_box(text)));
        });
        let print = best_ns(|| drop(black_box(tree.to_string())));
        let what = format!("a statement of {} bytes ({name})", text.len());
        run.row(&format!("parse {what}"), &format!("{parse:.0}"), "ns");
        run.row(&format!("print {what}"), &format!("{print:.0}"), "ns");
    }
    run.finish();
}
