//! Sizes of pages: a page without rows follows a last page that is full, as in Cassandra. Clients
//! read on until a page has fewer rows than they requested.

use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{KEYSPACE, Setup, engine, run};

async fn pages(engine: &Embedded, text: &str, page: u32) -> Vec<u32> {
    let statement = ParsedTree::parse(text).expect(text);
    let plan = engine.prepare(Arc::new(statement), Some("ks")).expect(text);
    let (mut state, mut sizes) = (None::<Vec<u8>>, Vec::new());
    loop {
        let request = Request { page_size: Some(page), paging_state: state.as_deref(), ..Request::EMPTY };
        match engine.execute(&plan, &request).outcome(engine).await.expect(text) {
            StatementOutcome::Rows(rows) => {
                sizes.push(rows.count);
                state = rows.paging_state;
            }
            other => panic!("{text}: {other:?}"),
        }
        if state.is_none() {
            return sizes;
        }
    }
}

#[test]
fn page_without_rows_follows_a_full_last_page() {
    for cores in [1, 2] {
        let lanes = Setup::new(cores).start();
        lanes.block_on(0, Group::CONTROL, || async {
            let engine = engine();
            let tables = [
                KEYSPACE,
                "CREATE TABLE t (k int, c int, v int, w int, PRIMARY KEY (k, c))",
                "CREATE INDEX ON t (v)",
                "CREATE INDEX ON t (w) USING 'sai'",
                "CREATE MATERIALIZED VIEW m AS SELECT * FROM t WHERE v IS NOT NULL AND k IS NOT NULL AND \
                 c IS NOT NULL PRIMARY KEY (v, k, c)",
            ];
            for text in tables {
                run(&engine, text).await.expect(text);
            }
            for (k, c) in (0..4).flat_map(|k| (0..3).map(move |c| (k, c))) {
                let text = format!("INSERT INTO t (k, c, v, w) VALUES ({k}, {c}, 7, 7)");
                run(&engine, &text).await.expect(&text);
            }
            // Answers of Cassandra 5.0.
            let of_all: [(u32, &[u32]); 4] =
                [(3, &[3, 3, 3, 3, 0]), (5, &[5, 5, 2]), (12, &[12, 0]), (13, &[12])];
            for from in ["t", "t WHERE v = 7", "t WHERE w = 7", "t WHERE w > 0", "m", "m WHERE v = 7"] {
                for (page, sizes) in of_all {
                    assert_eq!(
                        pages(&engine, &format!("SELECT * FROM {from}"), page).await,
                        sizes,
                        "{from} {page}"
                    );
                }
            }
            let others: [(&str, u32, &[u32]); 8] = [
                ("SELECT * FROM t WHERE k = 1", 1, &[1, 1, 1, 0]),
                ("SELECT * FROM t WHERE k = 1", 2, &[2, 1]),
                ("SELECT * FROM t WHERE k IN (1, 2)", 3, &[3, 3, 0]),
                ("SELECT * FROM t LIMIT 6", 3, &[3, 3]),
                ("SELECT * FROM t WHERE v = 7 LIMIT 6", 6, &[6]),
                ("SELECT DISTINCT k FROM t", 2, &[2, 2, 0]),
                ("SELECT k, count(*) FROM t GROUP BY k", 4, &[4, 0]),
                ("SELECT * FROM t PER PARTITION LIMIT 1", 3, &[3, 1]),
            ];
            for (text, page, sizes) in others {
                assert_eq!(pages(&engine, text, page).await, sizes, "{text} {page}");
            }
        });
        lanes.shutdown();
    }
}
