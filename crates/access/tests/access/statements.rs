//! Golden files `tests/golden/*.txt`. A line `role> statement` runs a statement, and
//! `role!> statement` runs it in a new session. Statements run in order and alternate between the
//! cores. The expected response follows each of them. GOLDEN=write rewrites the files for review.
#![expect(clippy::disallowed_methods, reason = "golden files are read and written outside of lanes")]

use crate::common::{CORES, Server};

fn check(name: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let expected = std::fs::read_to_string(&path).expect("a golden file");
    let server = Server::start(None);
    let mut got = String::new();
    let mut count = 0;
    for line in expected.lines() {
        let prompt = line.split_once("> ").filter(|(role, _)| !role.contains(' '));
        if let Some((role, statement)) = prompt {
            count += 1;
            got += &format!("{line}\n{}\n", server.run(count % CORES, role, statement));
        } else if line.is_empty() || line.starts_with('#') {
            got += &format!("{line}\n");
        }
    }
    server.stop();
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(&path, &got).expect("written");
    }
    for (number, (got, expected)) in got.lines().zip(expected.lines()).enumerate() {
        assert_eq!(got, expected, "{name}.txt:{}", number + 1);
    }
    assert_eq!(got.len(), expected.len(), "{name}.txt: the same length");
    assert!(count > 10, "{name}.txt has statements");
}

#[test]
fn service_level_statements_match_the_golden_file() {
    check("service_levels");
}

#[test]
fn role_statements_match_the_golden_file() {
    check("roles");
}

#[test]
fn permission_statements_match_the_golden_file() {
    check("permissions");
}

#[test]
fn level_rights_match_the_golden_file() {
    check("level_rights");
}
