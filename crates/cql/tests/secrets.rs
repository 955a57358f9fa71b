//! Passwords do not reach a log: neither in a statement's text nor in an error's.

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
        // Mistakes.
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
