//! Wide partitions in files and in memory: results are the same as with small partitions.

use std::rc::Rc;
use std::sync::Arc;

use embedded::Embedded;
use engine::{Engine, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, texts};

const ROWS: u32 = 3_000;

async fn run(engine: &Rc<Embedded>, text: &str, page: Option<u32>) -> Vec<String> {
    let statement = Arc::new(ParsedTree::parse(text).expect(text));
    let plan = engine.prepare(statement, Some("ks")).expect(text);
    let (mut state, mut shown): (Option<Vec<u8>>, _) = (None, Vec::new());
    loop {
        let request = Request { page_size: page, paging_state: state.as_deref(), ..Request::EMPTY };
        let outcome = engine.execute(&plan, &request).outcome(&**engine).await.expect(text);
        let StatementOutcome::Rows(rows) = outcome else { return shown };
        shown.extend(texts(&rows).iter().map(|row| row.join(",")));
        state = rows.paging_state;
        if state.is_none() {
            return shown;
        }
    }
}

async fn write(engine: &Rc<Embedded>, k: u32, rows: impl Iterator<Item = u32>, v: u32) {
    let filler = "x".repeat(150);
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(90) {
        let one = |c: &u32| format!("INSERT INTO w (k, c, v, f) VALUES ({k}, {c}, {v}, '{filler}');");
        let all: String = some.iter().map(one).collect();
        run(engine, &format!("BEGIN UNLOGGED BATCH {all} APPLY BATCH"), None).await;
    }
}

#[test]
fn wide_partitions_are_scanned_like_small_ones() {
    let dir = Folder::new("wide");
    let lanes = Setup::new(1).dir(Some(&dir)).start();
    lanes.block_on(0, Group::DEFAULT, || async {
        let engine = testkit::engine();
        run(&engine, KEYSPACE, None).await;
        let table = "CREATE TABLE w (k int, c int, s int static, v int, f text, PRIMARY KEY (k, c))";
        run(&engine, table, None).await;
        // In token order: 1, 2, 4, 3.
        for k in [1, 2] {
            run(&engine, &format!("UPDATE w SET s = {k} WHERE k = {k}"), None).await;
            write(&engine, k, 0..ROWS, 0).await;
        }
        run(&engine, "UPDATE w SET s = 3 WHERE k = 3", None).await;
        engine.flush().await.expect("flushed");
        write(&engine, 1, (0..ROWS).step_by(2), 1).await;
        engine.flush().await.expect("flushed");
        write(&engine, 2, (0..ROWS).step_by(3), 1).await;
        run(&engine, "DELETE FROM w WHERE k = 1 AND c >= 10 AND c < 20", None).await;
        run(&engine, "DELETE FROM w WHERE k = 2 AND c < 2990", None).await;
        run(&engine, "INSERT INTO w (k, c, v) VALUES (4, 1, 4)", None).await;
        let one = |c: u32| format!("1,{c},1,{}", 1 - c % 2);
        let two = |c: u32| format!("2,{c},2,{}", u32::from(c.is_multiple_of(3)));
        let ones: Vec<String> = (0..10).chain(20..ROWS).map(one).collect();
        let twos: Vec<String> = (2_990..ROWS).map(two).collect();
        let rest = ["4,1,null,4".to_owned(), "3,null,3,null".to_owned()];
        let all: Vec<String> = ones.iter().chain(&twos).chain(&rest).cloned().collect();
        for page in [None, Some(7), Some(1_000)] {
            let select =
                async |rest: &str| run(&engine, &format!("SELECT k, c, s, v FROM w {rest}"), page).await;
            assert_eq!(select("").await, all, "pages of {page:?}");
            assert_eq!(select("LIMIT 1").await, all[..1]);
            assert_eq!(select("LIMIT 2992").await, all[..2_992]);
            let firsts = [&ones[..2], &twos[..2], &rest].concat();
            assert_eq!(select("PER PARTITION LIMIT 2").await, firsts, "pages of {page:?}");
            assert_eq!(select("WHERE c = 2995 ALLOW FILTERING").await, ["1,2995,1,0", "2,2995,2,0"]);
            let distinct = run(&engine, "SELECT DISTINCT k, s FROM w", page).await;
            assert_eq!(distinct, ["1,1", "2,2", "4,null", "3,3"], "pages of {page:?}");
            assert_eq!(run(&engine, "SELECT count(*) FROM w", page).await, [all.len().to_string()]);
            assert_eq!(run(&engine, "UPDATE w SET s = 1 WHERE k = 1 IF s = 9", page).await, ["false,1"]);
        }
    });
    close_engines(&lanes);
    lanes.shutdown();
}
