//! Golden files: each `role> statement` (`role!> statement`: in a new session) in `tests/golden/*.txt` is run in order, in turn on every core, and followed by what it
//! must answer. With GOLDEN=write the files are written anew, to be read before they are committed.
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
    assert_eq!(got.len(), expected.len(), "{name}.txt: as many lines");
    assert!(count > 10, "{name}.txt is there");
}

#[test]
fn service_levels() {
    check("service_levels");
}

#[test]
fn roles() {
    check("roles");
}

#[test]
fn permissions() {
    check("permissions");
}

#[test]
fn level_rights() {
    check("level_rights");
}
