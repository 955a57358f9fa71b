//! JSON of any size, in polls of bounded length.

use engine::{BatchKind, Engine, Guardrail, Plan, Request, Value};
use std::rc::Rc;

use crate::Server;

#[test]
fn json_of_any_size_is_written_in_bounded_polls() {
    let server = Server::with(&[
        "CREATE TYPE u (a int, b text)",
        "CREATE TABLE t (k int PRIMARY KEY, l list<int>, s frozen<set<text>>, m map<text, frozen<u>>, x text)",
    ]);
    server.run(async |session| {
        session.limit(Guardrail::CollectionElements, 0);
        for elements in [10, 200, 400, 800, 1_600, 30_000] {
            let each = |one: &dyn Fn(usize) -> String| (0..elements).map(one).collect::<Vec<_>>().join(", ");
            for column in [
                format!("\"l\": [{}]", each(&|n| n.to_string())),
                format!("\"s\": [{}]", each(&|n| format!("\"{n}\\u00e9\""))),
                format!("\"m\": {{{}}}", each(&|n| format!("\"{n}\": {{\"a\": {n}, \"b\": \"\"}}"))),
                format!("\"x\": \"{}\"", "\\u20ac".repeat(elements)),
            ] {
                let text = format!("{{\"k\": 1, {column}}}");
                session.run("INSERT INTO t JSON ?", &[text.as_bytes()]).await.expect("written");
                let unset = "INSERT INTO t JSON ? DEFAULT UNSET IF NOT EXISTS";
                session.run(unset, &[text.as_bytes()]).await.expect("refused by its condition");
            }
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn batch_of_json_is_written_in_bounded_polls() {
    let columns: Vec<String> = (0..100).map(|n| format!("c{n} int")).collect();
    let create: &'static str =
        Box::leak(format!("CREATE TABLE t (k int PRIMARY KEY, {})", columns.join(", ")).into_boxed_str());
    let server = Server::with(Box::leak(Box::new([create])));
    server.run(async |session| {
        session.limit(Guardrail::BatchBytes, 0);
        let insert = session.prepare("INSERT INTO t JSON ?").expect("prepares");
        let texts: Vec<String> = (0..5_000).map(|n| format!("{{\"k\": {n}, \"c7\": {n}}}")).collect();
        let values: Vec<[Value<'_>; 1]> = texts.iter().map(|text| [Value::Bytes(text.as_bytes())]).collect();
        let parts = |count: usize| {
            let of = |values| (insert.clone(), values as &[Value<'_>]);
            values.iter().map(of).take(count).collect::<Vec<(Rc<dyn Plan>, &[Value<'_>])>>()
        };
        for count in [2, 30, 5_000] {
            let batch = session.0.execute_batch(BatchKind::Unlogged, &parts(count), &Request::EMPTY);
            session.counted(batch).await.expect("written");
        }
        assert_eq!(session.run("SELECT k FROM t", &[]).await, Ok(5_000));
        // Columns that no text names cost memory too.
        let many: Vec<(Rc<dyn Plan>, &[Value<'_>])> = parts(5_000).into_iter().cycle().take(60_000).collect();
        let batch = session.0.execute_batch(BatchKind::Unlogged, &many, &Request::EMPTY);
        let error = session.counted(batch).await.expect_err("too large").to_string();
        assert!(error.contains("send several statements"), "{error}");
    });
    server.end_with_bounded_polls();
}
