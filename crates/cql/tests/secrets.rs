//! Passwords do not reach a log, neither in the text of a statement nor in that of an error.

fn check(text: &str) {
    match cql::parse(text) {
        Ok(statement) => {
            assert!(!statement.to_string().contains("hunter2"), "{statement}");
            assert!(statement.to_cql_with_secrets().contains("hunter2"), "{text}");
        }
        Err(error) => assert!(!error.to_string().contains("hunter2"), "{error}"),
    }
}

#[test]
fn passwords_are_masked() {
    for text in [
        "CREATE ROLE r WITH PASSWORD = 'hunter2'",
        "CREATE ROLE r WITH PASSWORD = $$hunter2$$ AND LOGIN = true",
        "ALTER ROLE r WITH HASHED PASSWORD = 'hunter2'",
        "CREATE USER u WITH PASSWORD 'hunter2' SUPERUSER",
        "ALTER USER u WITH HASHED PASSWORD 'hunter2'",
        // Malformed statements.
        "CREATE ROLE r WITH PASSWORD 'hunter2'",
        "CREATE ROLE r WITH PASSWORD = 'hunter2",
        "CREATE ROLE r WITH PASSWORD = $$hunter2",
        "CREATE ROLE r WITH PASSWORD = \"hunter2\"",
        "CREATE ROLE r WITH PASSWORD = hunter2",
        "CREATE ROLE r WITH PASSWORD = 'a' 'hunter2'",
    ] {
        check(text);
    }
}

#[test]
fn masked_statements_show_no_literal() {
    let check = |text: &str, expected: &str| {
        let statement = cql::parse(text).expect("the text is CQL");
        assert_eq!(cql::Masked(&statement).to_string(), expected);
        assert_eq!(cql::parse(&statement.to_string()).as_ref(), Ok(&statement), "printing is as before");
    };
    check(
        "INSERT INTO t (a, b, c) VALUES (1, 'secret', {'x': 0xff}) USING TTL 5",
        "INSERT INTO t (a, b, c) VALUES (?, ?, {?: ?}) USING TTL ?",
    );
    check(
        "SELECT a FROM t WHERE a IN (1.5, ?) AND b = true LIMIT 3",
        "SELECT a FROM t WHERE a IN (?, ?) AND b = ? LIMIT ?",
    );
}
