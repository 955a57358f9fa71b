//! INSERT JSON with bind markers: the columns depend on the values of an execution.

use std::rc::Rc;
use std::sync::Arc;

use embedded::Embedded;
use engine::{
    BatchKind, Engine, Error, Execution, Guardrail, ParsedTree, Plan, Request, StatementOutcome, Value,
};
use lanes::Group;
use testkit::{Setup, texts};

const SETUP: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE t (k int PRIMARY KEY, v int, l list<int>, x text)",
];

fn run(cores: usize, test: impl AsyncFnOnce(Rc<Embedded>) + Send + 'static) {
    let lanes = Setup::new(cores).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            assert_eq!(answer(&engine, text, &[]).await, "done", "{text}");
        }
        test(engine).await;
    });
    lanes.shutdown();
}

fn prepare(engine: &Embedded, text: &str) -> Rc<dyn Plan> {
    engine.prepare(Arc::new(ParsedTree::parse(text).expect(text)), Some("ks")).expect(text)
}

async fn shown(engine: &Embedded, execution: Execution) -> String {
    match execution.outcome(engine).await {
        Ok(StatementOutcome::Rows(rows)) => {
            texts(&rows).iter().map(|row| row.join(",")).collect::<Vec<_>>().join(" ")
        }
        Ok(_) => "done".into(),
        Err(Error::Invalid(error)) => format!("Invalid: {error}"),
        Err(error) => format!("other: {error}"),
    }
}

async fn answer(engine: &Embedded, text: &str, values: &[Value<'_>]) -> String {
    let plan = prepare(engine, text);
    shown(engine, engine.execute(&plan, &Request { values, ..Request::EMPTY })).await
}

fn json(text: &str) -> Value<'_> {
    Value::Bytes(text.as_bytes())
}

#[test]
fn markers_take_the_columns_of_each_execution() {
    for cores in [1, 3] {
        run(cores, async |engine| {
            let insert = prepare(&engine, "INSERT INTO t JSON ?");
            let of = |spec: &engine::ColumnSpec| format!("{} {}", spec.name, spec.ty);
            assert_eq!(insert.binds().iter().map(of).collect::<Vec<_>>(), ["[json] text"]);
            assert_eq!(insert.partition_key_binds(), [0_u16; 0]);
            for (text, expected) in [
                ("{\"k\": 1, \"v\": 1, \"l\": [2, 1]}", "1,[2, 1],null"),
                ("{\"v\": 2, \"k\": 1, \"x\": \"y\"}", "2,null,'y'"),
                ("{\"k\": 1}", "null,null,null"),
            ] {
                let values = [json(text)];
                let request = Request { values: &values, ..Request::EMPTY };
                assert_eq!(shown(&engine, engine.execute(&insert, &request)).await, "done");
                assert_eq!(answer(&engine, "SELECT v, l, x FROM t WHERE k = 1", &[]).await, expected);
            }
            let ttl = 100_i32.to_be_bytes();
            let text = "INSERT INTO t JSON ? DEFAULT UNSET IF NOT EXISTS USING TTL ?";
            let values = [json("{\"k\": 2, \"v\": 3}"), Value::Bytes(&ttl)];
            assert_eq!(answer(&engine, text, &values).await, "true");
            assert_eq!(answer(&engine, text, &values).await, "false,2,[],3,null".replace("[]", "null"));
            let unset = "INSERT INTO t JSON :all DEFAULT UNSET";
            assert_eq!(answer(&engine, unset, &[json("{\"k\": 2, \"x\": \"z\"}")]).await, "done");
            assert_eq!(answer(&engine, "SELECT v, x FROM t WHERE k = 2", &[]).await, "3,'z'");
        });
    }
}

#[test]
fn wrong_values_of_markers_are_refused() {
    run(1, async |engine| {
        let insert = "INSERT INTO t JSON ?";
        for (value, expected) in [
            (Value::Null, "Got null for INSERT JSON values"),
            (json("null"), "Got null for INSERT JSON values"),
            (json("{\"v\": 1}"), "Invalid null value in condition for column k"),
            (json("{\"k\": 1, \"a\": 1}"), "JSON values map contains unrecognized column: a"),
            (
                json("{\"k\": 1, \"l\": [null]}"),
                "Error decoding JSON value for l: Invalid null element in list",
            ),
            (Value::Bytes(&[0xff]), "Invalid text value: it is not UTF-8"),
        ] {
            assert_eq!(answer(&engine, insert, &[value]).await, format!("Invalid: {expected}"));
        }
        assert_eq!(
            answer(&engine, insert, &[]).await,
            "Invalid: There were 1 markers(?) in CQL but 0 bound variables"
        );
        assert_eq!(
            answer(&engine, insert, &[json("{}"), json("{}")]).await,
            "Invalid: There were 1 markers(?) in CQL but 2 bound variables"
        );
        let unset = answer(&engine, "INSERT INTO t JSON ? DEFAULT UNSET", &[json("{\"v\": 1}")]).await;
        assert_eq!(unset, "Invalid: Invalid unset value for column k");
        assert_eq!(answer(&engine, "SELECT k FROM t", &[]).await, "");
    });
}

#[test]
fn batches_mix_json_with_other_statements() {
    for cores in [1, 3] {
        run(cores, async |engine| {
            let text = "BEGIN BATCH INSERT INTO t JSON ?; UPDATE t SET v = ? WHERE k = 7; INSERT INTO t JSON ? \
                        DEFAULT UNSET APPLY BATCH";
            let four = 4_i32.to_be_bytes();
            let values = [json("{\"k\": 1, \"v\": 1}"), Value::Bytes(&four), json("{\"k\": 2, \"l\": [5]}")];
            assert_eq!(answer(&engine, text, &values).await, "done");
            let all = "SELECT k, v, l FROM t WHERE k IN (1, 2, 3, 7)";
            assert_eq!(answer(&engine, all, &[]).await, "1,1,null 2,null,[5] 7,4,null");
            let insert = prepare(&engine, "INSERT INTO t JSON ?");
            let update = prepare(&engine, "UPDATE t SET v = ? WHERE k = 7");
            let (first, last) = ([json("{\"k\": 3, \"v\": 3}")], [json("{\"k\": 1}")]);
            let nine = 9_i32.to_be_bytes();
            let set = [Value::Bytes(&nine)];
            let parts: [(Rc<dyn Plan>, &[Value<'_>]); 3] =
                [(insert.clone(), &first), (update, &set), (insert.clone(), &last)];
            let batch = engine.execute_batch(BatchKind::Logged, &parts, &Request::EMPTY);
            assert_eq!(shown(&engine, batch).await, "done");
            assert_eq!(answer(&engine, all, &[]).await, "1,null,null 2,null,[5] 3,3,null 7,9,null");
            let wrong = [json("{\"k\": \"a\"}")];
            let parts: [(Rc<dyn Plan>, &[Value<'_>]); 2] =
                [(insert.clone(), &first), (insert.clone(), &wrong)];
            let batch = engine.execute_batch(BatchKind::Logged, &parts, &Request::EMPTY);
            assert_eq!(
                shown(&engine, batch).await,
                "Invalid: Error decoding JSON value for k: Unable to make int from 'a'"
            );
        });
    }
}

#[test]
fn long_json_is_written_whole() {
    run(3, async |engine| {
        let list: Vec<String> = (0..50_000).map(|n| n.to_string()).collect();
        let text = format!("{{\"k\": 1, \"l\": [{}], \"x\": \"{}\"}}", list.join(","), "é".repeat(1 << 20));
        assert_eq!(answer(&engine, "INSERT INTO t JSON ?", &[json(&text)]).await, "done");
        let shown = answer(&engine, "SELECT l, x FROM t WHERE k = 1", &[]).await;
        assert_eq!(shown, format!("[{}],'{}'", list.join(", "), "é".repeat(1 << 20)));
        let again = answer(&engine, "INSERT INTO t JSON ? IF NOT EXISTS", &[json(&text)]).await;
        assert!(again.starts_with("false,1,"), "{}", &again[..100]);
    });
}

#[test]
fn result_of_select_json_is_one_column_of_text() {
    run(3, async |engine| {
        let select = prepare(&engine, "SELECT JSON k, x FROM t");
        let columns = select.result().expect("it shows rows");
        assert_eq!(columns.len(), 1);
        assert_eq!((columns[0].name.as_str(), &columns[0].ty), ("[json]", &schema::CqlType::Text));
        // Long rows, whose texts are twice as long, in pages.
        let quotes = "\"".repeat(300_000);
        for k in 0..8_i32 {
            let key = k.to_be_bytes();
            let values = [Value::Bytes(&key), json(&quotes)];
            assert_eq!(answer(&engine, "INSERT INTO t (k, x) VALUES (?, ?)", &values).await, "done");
        }
        let (mut state, mut pages, mut found) = (None::<Vec<u8>>, 0, 0);
        loop {
            let request = Request { page_size: Some(100), paging_state: state.as_deref(), ..Request::EMPTY };
            let Ok(StatementOutcome::Rows(rows)) = engine.execute(&select, &request).outcome(&*engine).await
            else {
                panic!("no rows")
            };
            for row in rows.decoded() {
                let text = std::str::from_utf8(row[0].expect("a text")).expect("UTF-8");
                assert!(
                    text.starts_with("{\"k\": ")
                        && text.ends_with(&format!("{}\"}}", "\\\"".repeat(300_000)))
                );
            }
            assert!(rows.cells.len() < 1 << 20, "a page has {} bytes", rows.cells.len());
            (pages, found) = (pages + 1, found + rows.count);
            state = rows.paging_state;
            if state.is_none() {
                break;
            }
        }
        assert!(found == 8 && pages > 2, "{found} rows in {pages} pages");
    });
}

#[test]
fn guardrails_count_the_values_in_the_json() {
    let lanes = Setup::new(1).start();
    lanes.block_on(0, Group::DEFAULT, move || async move {
        let engine = testkit::engine();
        for text in SETUP {
            assert_eq!(answer(&engine, text, &[]).await, "done", "{text}");
        }
        let limit = engine.registry().guardrails().fail_threshold(Guardrail::CollectionElements);
        assert!(limit > 0, "the guardrail is on by default");
        let long = format!("{{\"k\": 1, \"l\": [{}1]}}", "1,".repeat(limit as usize));
        let refused = answer(&engine, "INSERT INTO t JSON ?", &[json(&long)]).await;
        assert!(refused.contains("elements"), "{refused}");
        let literal = ParsedTree::parse(&format!("INSERT INTO t JSON '{long}'")).expect("a statement");
        let error =
            engine.prepare(Arc::new(literal), Some("ks")).map(drop).expect_err("too many").to_string();
        assert!(error.contains("elements"), "{error}");
    });
    lanes.shutdown();
}
