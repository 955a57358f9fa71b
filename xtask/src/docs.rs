//! Checks that paths named in README.md, ARCHITECTURE.md, CHANGELOG.md, `docs/*.md` and
//! `docs/decisions/*.md` exist, that ARCHITECTURE.md has a section for every crate, and that the
//! tests that docs/architecture.md names exist.
//!
//! A path is the target of a link, or a code span that starts with a folder of [`TOPS`] or is the
//! name of a document. Fenced blocks are examples and drawings, and are skipped.

use std::path::Path;

use crate::files::{list, name, read, rust_files, verdict};

/// Folders whose paths are checked.
const TOPS: [&str; 8] = ["bench/", "crates/", "docs/", "xtask/", "tests/", "fuzz/", ".ci/", ".cargo/"];

/// Checks all documents.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut documents = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name)).to_vec();
    for folder in ["docs", "docs/decisions"] {
        documents.extend(list(&root.join(folder))?.into_iter().filter(|path| name(path).ends_with(".md")));
    }
    let mut complaints = Vec::new();
    for document in &documents {
        let text = read(document)?;
        let shown = document.strip_prefix(root).unwrap_or(document).display();
        let folder = document.parent().unwrap_or(root);
        for (line, path) in paths(&text) {
            let file = path.split('#').next().unwrap_or_default();
            if !root.join(file).exists() && !folder.join(file).exists() {
                complaints.push(format!("{shown}:{line} names `{path}`, which does not exist."));
            }
        }
    }
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let folders = list(&root.join("crates"))?;
    complaints
        .extend(folders.iter().map(|path| name(path)).filter_map(|krate| section(&architecture, krate)));
    let sources = rust_files(vec![root.join("crates"), root.join("xtask")], &["target"])?;
    let sources = sources.iter().map(|path| read(path)).collect::<Result<Vec<String>, String>>()?;
    let is_missing = |test: &&str| {
        let head = format!("fn {test}(");
        !sources.iter().any(|text| text.contains(&head))
    };
    let tests = read(&root.join("docs/architecture.md"))?;
    let missing = table_tests(&tests).into_iter().filter(is_missing);
    complaints.extend(
        missing.map(|test| format!("docs/architecture.md names a test `{test}`, which does not exist.")),
    );
    verdict(complaints)
}

/// Returns the tests in the last column of the tables with three columns. Commands are skipped.
fn table_tests(text: &str) -> Vec<&str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let last = rows.filter_map(|row| row.split('|').nth(3));
    last.filter_map(|cell| cell.trim().strip_prefix('`')?.strip_suffix('`'))
        .filter(|test| !test.contains(' '))
        .collect()
}

/// Returns a complaint if no heading names the crate.
fn section(architecture: &str, krate: &str) -> Option<String> {
    let span = format!("`{krate}`");
    let found = architecture.lines().any(|line| line.starts_with('#') && line.contains(&span));
    (!found).then(|| format!("ARCHITECTURE.md has no section for {span}."))
}

/// Returns the paths in a document, each with its line.
fn paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| is_path(span));
            let links =
                line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            let links = links.filter(|target| !target.contains("://") && !target.starts_with('#'));
            found.extend(spans.chain(links).map(|path| (index + 1, path)));
        }
    }
    found
}

/// Returns true if a code span is a path of the repository. Patterns and placeholders (`*`, `<`,
/// `…`) are not.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let document = span.ends_with(".md") && !span.contains('/');
    plain && (document || TOPS.iter().any(|top| span.starts_with(top)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_in_the_last_column() {
        let text = "| change | read | test |\n|---|---|---|\n| a | `b.rs` | `c_d` |\n| | `e.rs` | |\n| one | two |\n";
        assert_eq!(table_tests(text), ["c_d"]);
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&str> = paths(text).into_iter().map(|(_, path)| path).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn paths_in_code_spans_and_links_are_found() {
        check(
            "See `crates/sched/src/tree.rs` and `docs/scheduler.md`.",
            &["crates/sched/src/tree.rs", "docs/scheduler.md"],
        );
        check(
            "The [map](ARCHITECTURE.md#crates), `CHANGELOG.md`",
            &["CHANGELOG.md", "ARCHITECTURE.md#crates"],
        );
    }

    #[test]
    fn other_code_spans_and_fenced_blocks_are_skipped() {
        check(
            "`fairlane.toml` `/metrics` `crates/*/Cargo.toml` `cargo xtask test` [a](https://b.c) [d](#e)",
            &[],
        );
        check("```\n`docs/none.md`\n```\n", &[]);
    }

    #[test]
    fn every_crate_has_a_section() {
        assert_eq!(section("# Crates\n### `sched`\n", "sched"), None);
        assert!(section("# Crates\n`wire` is a crate\n", "wire").is_some());
    }
}
