//! Limits of length, nesting, operations and markers. Trees within the limits need little stack.

use std::thread;

use cql::Statement;

const DEPTH: usize = cql::DEPTH_MAX as usize;

#[expect(clippy::disallowed_methods, reason = "a thread of its own, to bound the stack; no lanes here")]
fn check(text: &str, expected: Result<(), &str>) {
    // 1/8 of the default stack of a thread (2 MiB), or half of it in a debug build.
    const STACK_BYTES: usize = if cfg!(debug_assertions) { 1 << 20 } else { 256 << 10 };
    let text = text.to_owned();
    let outcome = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let statement = cql::parse(&text).map_err(|error| error.message)?;
            let printed = statement.to_string();
            assert_eq!(statement.bind_markers().len(), statement.bind_marker_count());
            assert_eq!(cql::parse(&printed).as_ref(), Ok(&statement.clone()));
            Ok::<(), String>(())
        })
        .expect("a thread")
        .join()
        .expect("no panic");
    match expected {
        Ok(()) => assert_eq!(outcome, Ok(())),
        Err(part) => {
            let message = outcome.expect_err("an error");
            assert!(message.contains(part), "{message}");
        }
    }
}

fn insert(term: &str) -> String {
    format!("INSERT INTO t (a) VALUES ({term})")
}

fn around(open: &str, close: &str, times: usize) -> String {
    format!("{}1{}", open.repeat(times), close.repeat(times))
}

#[test]
fn nesting_beyond_the_limit_is_rejected() {
    const TOO_DEEP: Result<(), &str> = Err("nested more than 64 deep");
    for (open, close) in [("[", "]"), ("{", "}"), ("(", ")"), ("f(", ")"), ("{1: ", "}"), ("{a: ", "}")] {
        check(&insert(&around(open, close, DEPTH - 1)), Ok(()));
        check(&insert(&around(open, close, DEPTH)), TOO_DEEP);
        check(&insert(&around(open, close, 100_000)), TOO_DEEP);
    }
    check(&insert(&around("(int) ", "", DEPTH - 1)), Ok(()));
    check(&insert(&around("(int) ", "", DEPTH)), TOO_DEEP);
    check(&insert(&around("- ", "", 100_000)), TOO_DEEP);
    check(&format!("SELECT {} FROM t", around("f(", ")", DEPTH - 1)), Ok(()));
    check(&format!("SELECT {} FROM t", around("(", ")", 100_000)), TOO_DEEP);
    check(&format!("SELECT {} FROM t", around("CAST(", " AS int)", 100_000)), TOO_DEEP);
    check(&format!("CREATE TABLE t (a {}int{})", "list<".repeat(DEPTH - 1), ">".repeat(DEPTH - 1)), Ok(()));
    check(&format!("CREATE TABLE t (a {}int{})", "list<".repeat(DEPTH), ">".repeat(DEPTH)), TOO_DEEP);
    check(&format!("SELECT * FROM t WHERE {}a = 1{}", "(".repeat(100_000), ")".repeat(100_000)), TOO_DEEP);
}

#[test]
fn operations_beyond_the_limit_are_rejected() {
    const TOO_MANY: Result<(), &str> = Err("more than 64 operations in one expression");
    check(&insert(&format!("1{}", " + 1".repeat(DEPTH))), Ok(()));
    check(&insert(&format!("1{}", " + 1".repeat(DEPTH + 1))), TOO_MANY);
    check(&format!("SELECT a{} FROM t", ".b".repeat(DEPTH)), Ok(()));
    check(&format!("SELECT a{} FROM t", ".b".repeat(100_000)), TOO_MANY);
    check(&format!("SELECT a{} FROM t", " * 2".repeat(100_000)), TOO_MANY);
    // Each value of a list is its own expression. A long list is therefore not deep.
    let sums =
        format!("INSERT INTO t ({}) VALUES ({})", "a, ".repeat(199) + "a", "1 + 1, ".repeat(199) + "1");
    check(&sums, Ok(()));
}

#[test]
fn markers_beyond_the_limit_are_rejected() {
    let with = |count: usize| insert(&format!("[{}?]", "?, ".repeat(count - 1)));
    check(&with(65_535), Ok(()));
    check(&with(65_536), Err("more than 65535 bind markers"));
}

#[test]
fn length_beyond_the_limit_is_rejected() {
    let long = |bytes: usize| {
        let head = "USE a";
        format!("{head}{}", " ".repeat(bytes - head.len()))
    };
    check(&long(cql::TEXT_BYTES_MAX), Ok(()));
    check(&long(cql::TEXT_BYTES_MAX + 1), Err("expected a statement of at most 16777216 bytes"));
}

#[test]
fn markers_are_numbered_in_text_order() {
    let text = "BEGIN BATCH USING TIMESTAMP :ts UPDATE t USING TTL ? SET a = :a, m[?] = {:k: [?]} WHERE k = :a \
                IF b = ? DELETE m[?] FROM t USING TIMESTAMP ? WHERE (c, d) IN (?, ?) AND token(k) > f(?); APPLY BATCH";
    let statement = cql::parse(text).expect("a statement");
    let names: Vec<Option<&str>> = statement.bind_markers().iter().map(|m| m.name.as_deref()).collect();
    let mut expected = vec![None; 13];
    (expected[0], expected[2], expected[4], expected[6]) = (Some("ts"), Some("a"), Some("k"), Some("a"));
    assert_eq!(names, expected);

    let Ok(Statement::Select(select)) =
        cql::parse("SELECT f(?), m[:x] FROM t WHERE a = ? LIMIT :n USING TIMEOUT ?")
    else {
        panic!("a SELECT")
    };
    assert_eq!(Statement::Select(select).bind_marker_count(), 5);
}

#[test]
fn tokens_beyond_the_limit_are_rejected() {
    let of = |terms: usize| format!("SELECT a FROM t WHERE a IN ({}1)", "'',".repeat(terms));
    let (_, tokens) = cql::parse_counted(&of(65_535)).expect("as many terms as there are bind markers");
    assert_eq!(tokens, 2 * 65_535 + 10);
    assert_eq!(cql::count_tokens(&of(65_535)), Ok(tokens));
    let error = cql::count_tokens(&of(2_000_000)).expect_err("too many");
    assert!(error.message.starts_with("more than 262144 words"), "{error}");
    let error = cql::parse(&of(200_000)).expect_err("too many");
    assert!(error.message.contains("more than 262144 words"), "{error}");
    assert_eq!(cql::TOKENS_MAX, 262_144, "the number in the message");
}
