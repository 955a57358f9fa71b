//! Measures an aggregate over a table `t (k int, c int, v int, b bigint, d double, x text, PRIMARY
//! KEY (k, c))` on one core: `cargo run --release -p embedded --example aggregates ROWS TIMES
//! FLUSHED WIDE QUERY`. A partition has `WIDE` rows. With `FLUSHED` 1 they are in a file.

use std::sync::Arc;

use engine::{Engine, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, engine, texts};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u64 { args[at].parse().expect("a number") };
    let (rows, times, flushed, wide) = (number(0), number(1), number(2) > 0, number(3));
    let query = args[4].clone();
    let dir = Folder::new("aggregates");
    let lanes = Setup::new(1)
        .dir(Some(&dir))
        .options(|options| {
            options.memtable_bytes_max = 1 << 30;
            options.commit = storage::CommitMode::Periodic { every: std::time::Duration::from_secs(1) };
        })
        .start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = engine();
        let run = |text: String| {
            let engine = engine.clone();
            async move {
                let statement = Arc::new(ParsedTree::parse(&text).expect("parses"));
                let plan = engine.prepare(statement, Some("ks")).expect("prepares");
                match engine.execute(&plan, &Request::EMPTY).outcome(&*engine).await.expect("runs") {
                    StatementOutcome::Rows(rows) => format!("{:?}", texts(&rows)),
                    _ => String::new(),
                }
            }
        };
        run(KEYSPACE.into()).await;
        run("CREATE TABLE t (k int, c int, v int, b bigint, d double, x text, PRIMARY KEY (k, c))".into())
            .await;
        for n in 0..rows {
            let (k, c) = (n / wide, n % wide);
            run(format!("INSERT INTO t (k, c, v, b, d, x) VALUES ({k}, {c}, {n}, {n}, {n}.25, 'text {n}')"))
                .await;
        }
        if flushed {
            engine.flush().await.expect("flushes");
        }
        for _ in 0..times {
            let start = lanes::time::monotonic_ns();
            let result = run(query.clone()).await;
            let ns = lanes::time::monotonic_ns() - start;
            println!("{result}: {} ns a row", ns / rows);
        }
    });
    close_engines(&lanes);
    lanes.shutdown();
}
