//! Batches of tens of thousands of statements.

use std::rc::Rc;

use engine::{BatchKind, Engine, Error, Guardrail, Plan, Request, Value};

use crate::{Server, Session};

/// Runs one statement once per value, as a batch.
async fn batch(
    session: &Session,
    kind: BatchKind,
    text: &str,
    values: impl Iterator<Item = Value<'static>>,
) -> Result<u32, Error> {
    let plan = session.prepare(text).expect("prepares");
    let values: Vec<[Value<'static>; 1]> = values.map(|value| [value]).collect();
    let parts: Vec<(Rc<dyn Plan>, &[Value<'_>])> =
        values.iter().map(|values| (plan.clone(), &values[..])).collect();
    session.counted(session.0.execute_batch(kind, &parts, &Request::EMPTY)).await
}

fn number(n: u32) -> Value<'static> {
    Value::Bytes(Box::leak(Box::new(n.to_be_bytes())))
}

#[test]
fn large_batch_is_applied_in_bounded_polls() {
    let server = Server::with(&[
        "CREATE TABLE t (k int PRIMARY KEY)",
        "CREATE TABLE w (k int, c int, PRIMARY KEY (k, c))",
        "CREATE TABLE n (k int PRIMARY KEY, n counter)",
        "CREATE TABLE l (k int PRIMARY KEY, l list<int>)",
    ]);
    server.run(async |session| {
        let numbers = || (0..10_000).map(number);
        let unlogged = BatchKind::Unlogged;
        batch(&session, unlogged, "INSERT INTO t (k) VALUES (?)", numbers()).await.expect("applied");
        assert_eq!(session.run("SELECT k FROM t", &[]).await, Ok(10_000));
        batch(&session, unlogged, "INSERT INTO w (k, c) VALUES (1, ?)", numbers()).await.expect("applied");
        assert_eq!(session.run("SELECT c FROM w WHERE k = 1", &[]).await, Ok(10_000));
        let text = "UPDATE n SET n = n + 1 WHERE k = ?";
        batch(&session, BatchKind::Counter, text, numbers().take(3_000)).await.expect("applied");
        assert_eq!(session.run("SELECT n FROM n WHERE n = 1 ALLOW FILTERING", &[]).await, Ok(3_000));
        batch(&session, unlogged, "UPDATE l SET l = l + [?] WHERE k = 1", numbers().take(500))
            .await
            .expect("applied");
        let listed = "SELECT l FROM l WHERE k = 1 AND l CONTAINS 499 ALLOW FILTERING";
        assert_eq!(session.run(listed, &[]).await, Ok(1));
    });
    server.end_with_bounded_polls();
}

/// Other clients write rows of the partition meanwhile.
#[test]
fn contended_batch_is_applied_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE w (k int, c int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let others = lanes::spawn(lanes::current_group(), {
            let session = session.clone();
            async move {
                for n in 20_000..21_000_u32 {
                    let text = format!("INSERT INTO w (k, c) VALUES (1, {n})");
                    session.run(&text, &[]).await.expect("written");
                    lanes::yield_now().await;
                }
            }
        });
        let text = "INSERT INTO w (k, c) VALUES (1, ?)";
        let first = batch(&session, BatchKind::Unlogged, text, (0..10_000).map(number));
        let second = {
            let session = session.clone();
            lanes::spawn(lanes::current_group(), async move {
                let numbers = (10_000..20_000).map(number);
                batch(&session, BatchKind::Unlogged, text, numbers).await
            })
        };
        first.await.expect("applied");
        second.await.expect("applied");
        others.await;
        assert_eq!(session.run("SELECT c FROM w WHERE k = 1", &[]).await, Ok(21_000));
    });
    server.end_with_bounded_polls();
}

#[test]
fn large_textual_batch_is_applied_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    server.run(async |session| {
        let statements: String =
            (0..400).map(|k| format!("INSERT INTO t (k, v) VALUES ({k}, 1); ")).collect();
        session.run(&format!("BEGIN BATCH {statements} APPLY BATCH"), &[]).await.expect("applied");
        assert_eq!(session.run("SELECT k FROM t", &[]).await, Ok(400));
    });
    server.end_with_bounded_polls();
}

#[test]
fn conditional_batch_is_checked_in_bounded_polls() {
    let server = Server::with(&["CREATE TABLE w (k int, c int, PRIMARY KEY (k, c))"]);
    server.run(async |session| {
        let text = "INSERT INTO w (k, c) VALUES (1, ?) IF NOT EXISTS";
        let numbers = || (0..5_000).map(number);
        assert_eq!(batch(&session, BatchKind::Unlogged, text, numbers()).await, Ok(1), "applied");
        assert_eq!(session.run("SELECT c FROM w WHERE k = 1", &[]).await, Ok(5_000));
    });
    server.end_with_bounded_polls();
}

/// Statements after the second partition are not checked: the error is not about the null key
/// there.
#[test]
fn conditions_are_rejected_at_the_second_partition() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v int)"]);
    server.run(async |session| {
        for others in [1, 1_000] {
            let values = [number(1), number(2), Value::Null].into_iter().chain((0..others).map(number));
            let text = "INSERT INTO t (k) VALUES (?) IF NOT EXISTS";
            let error = batch(&session, BatchKind::Unlogged, text, values).await.expect_err("refused");
            assert_eq!(error.to_string(), "Batch with conditions cannot span multiple partitions");
        }
    });
    server.end_with_bounded_polls();
}

#[test]
fn guardrails_limit_statements_and_bytes_of_a_batch() {
    let server = Server::with(&["CREATE TABLE t (k int PRIMARY KEY, v blob)"]);
    server.run(async |session| {
        session.limit(Guardrail::BatchStatements, 100);
        session.limit(Guardrail::BatchBytes, 10_000);
        let insert = "INSERT INTO t (k) VALUES (?)";
        let error = batch(&session, BatchKind::Logged, insert, (0..101).map(number)).await;
        let expected = "Guardrail batch_statements violated: expected at most 100 statements in one batch, got 101: \
                        send several batches";
        assert_eq!(error.expect_err("refused").to_string(), expected);
        let blob = Value::Bytes(Box::leak(vec![0; 2_000].into_boxed_slice()));
        let update = "UPDATE t SET v = ? WHERE k = 1";
        let error = batch(&session, BatchKind::Logged, update, [blob; 5].into_iter()).await;
        let error = error.expect_err("refused").to_string();
        let too_large = "Batch too large. Guardrail batch_bytes violated: expected at most 10000 bytes";
        assert!(error.starts_with(too_large), "{error}");
        assert_eq!(session.run("SELECT k FROM t", &[]).await, Ok(0), "the batch was not applied");
        let text = format!("BEGIN BATCH {} APPLY BATCH", "INSERT INTO t (k) VALUES (1); ".repeat(101));
        assert_eq!(session.refused(&text, &[]).await, expected);
    });
    server.end_with_bounded_polls();
}
