//! Paths that README.md, ARCHITECTURE.md, CHANGELOG.md, `docs/*.md` and `docs/decisions/*.md` name
//! exist in the repository, and ARCHITECTURE.md has a section for every crate.
//!
//! A path is a code span that starts with a top folder of ours or is the name of a document, or the
//! target of a link. Fenced blocks are examples and drawings and are passed over.

use std::path::Path;

use crate::files::{list, name, read, verdict};

/// The folders whose paths documents name.
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
            let spoken = path.split('#').next().unwrap_or_default();
            if !root.join(spoken).exists() && !folder.join(spoken).exists() {
                complaints.push(format!("{shown}:{line} names `{path}`, which does not exist."));
            }
        }
    }
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let folders = list(&root.join("crates"))?;
    complaints
        .extend(folders.iter().map(|path| name(path)).filter_map(|krate| section(&architecture, krate)));
    verdict(complaints)
}

/// A complaint if no heading names the crate.
fn section(architecture: &str, krate: &str) -> Option<String> {
    let span = format!("`{krate}`");
    let found = architecture.lines().any(|line| line.starts_with('#') && line.contains(&span));
    (!found).then(|| format!("ARCHITECTURE.md has no section for {span}."))
}

/// The repository paths a document names, each with its line.
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

/// True if a code span is a path of the repository. Patterns and places to fill in (`*`, `<`, `…`)
/// do not name one path.
fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let document = span.ends_with(".md") && !span.contains('/');
    plain && (document || TOPS.iter().any(|top| span.starts_with(top)))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        check("The [map](ARCHITECTURE.md#rooms), `CHANGELOG.md`", &["CHANGELOG.md", "ARCHITECTURE.md#rooms"]);
    }

    #[test]
    fn what_is_no_path_is_passed_over() {
        check(
            "`fairlane.toml` `/metrics` `crates/*/Cargo.toml` `cargo xtask test` [a](https://b.c) [d](#e)",
            &[],
        );
        check("```\n`docs/none.md`\n```\n", &[]);
    }

    #[test]
    fn every_crate_has_a_section() {
        assert_eq!(section("# Rooms\n### `sched`\n", "sched"), None);
        assert!(section("# Rooms\n`wire` is a crate\n", "wire").is_some());
    }
}
