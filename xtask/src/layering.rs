//! Rows of crates: a crate imports only from rows below its own. Cargo refuses circles. This check
//! also refuses imports from higher rows that form no circle yet.
//!
//! Tests may also use their own row (dev-dependencies), and `testkit`, never another row above.
//! Every crate but `lanes` inherits the lints of the workspace, which forbid `unsafe`.

use std::path::Path;

use crate::files::{list, name, read, verdict};

/// The rows, lowest first. A new crate gets its row here and in ARCHITECTURE.md.
const ROWS: [&[&str]; 7] = [
    &["charts", "sched", "schema", "server_process", "units", "vectors"],
    &["lanes", "cql", "wire", "columns", "result_file", "functions"],
    &["storage", "workload", "engine", "frontdoor"],
    &["embedded", "cluster"],
    &["access", "load", "batcher"],
    &["server", "sql", "demo", "abuse"],
    &["fairlane", "testkit"],
];

/// The crate that tests of every row may use. Its own row is the highest, so that no crate can use
/// it outside of tests.
const TEST_CRATE: &str = "testkit";

/// The only crate with `unsafe`. It has its own table of lints.
const UNSAFE_CRATE: &str = "lanes";

/// Checks every manifest under `crates/`.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let folders = list(&root.join("crates"))?;
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        complaints.extend(judge(name(folder), &read(&folder.join("Cargo.toml"))?));
    }
    verdict(complaints)
}

/// Returns the faults of one crate, given its name and manifest.
fn judge(krate: &str, manifest: &str) -> Vec<String> {
    let Some(row) = row(krate) else {
        return vec![format!("crates/{krate} is in no row: add it to ROWS in xtask/src/layering.rs.")];
    };
    let mut complaints = Vec::new();
    for (kind, dependency) in dependencies(manifest) {
        let Some(below) = self::row(&dependency) else { continue };
        let allowed = match kind {
            DependencyKind::Normal => below < row,
            DependencyKind::Dev => below <= row || dependency == TEST_CRATE,
        };
        if !allowed {
            let how = if kind == DependencyKind::Dev { "for tests " } else { "" };
            complaints.push(format!("`{krate}` (row {row}) depends {how}on `{dependency}` (row {below})."));
        }
    }
    let inherits = entries(manifest).any(|(section, line)| section == "lints" && key(line) == "workspace");
    if !inherits && krate != UNSAFE_CRATE {
        complaints
            .push(format!("`{krate}` does not take the workspace's lints: `[lints] workspace = true`."));
    }
    complaints
}

fn row(krate: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&krate))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DependencyKind {
    Normal,
    Dev,
}

/// Returns the dependencies of a manifest. Parses the part of TOML that manifests use: sections,
/// with one dependency in a line or a section.
fn dependencies(manifest: &str) -> Vec<(DependencyKind, String)> {
    let mut found = Vec::new();
    let sections = manifest.lines().filter_map(header).map(|section| (section, ""));
    for (section, line) in sections.chain(entries(manifest)) {
        // `[target.'cfg(unix)'.dev-dependencies]` and `[dev-dependencies.proptest]` count as
        // `[dev-dependencies]`.
        let Some((start, kind)) = kind_of(section) else { continue };
        let (_, own) = section[start..].split_once('.').unwrap_or_default();
        let key = if own.is_empty() { key(line) } else { own.trim_matches('"') };
        let renamed = line.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
        // In the section of one dependency, `package = "…"` is a line of its own.
        if !key.is_empty() && (own.is_empty() || line.is_empty() || renamed.is_some()) {
            found.push((kind, renamed.unwrap_or(key).to_owned()));
        }
    }
    found
}

/// Returns the kind of dependencies of a section, and its offset in the name of the section.
fn kind_of(section: &str) -> Option<(usize, DependencyKind)> {
    if section.starts_with("workspace") {
        return None;
    }
    // Dependencies of a build script follow the rule for normal ones.
    let words = [
        ("dev-dependencies", DependencyKind::Dev),
        ("build-dependencies", DependencyKind::Normal),
        ("dependencies", DependencyKind::Normal),
    ];
    words.into_iter().find_map(|(word, kind)| Some((section.rfind(word)?, kind)))
}

/// Returns the lines with a `=`, each with its section.
fn entries(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        if let Some(name) = header(line) {
            section = name;
            return None;
        }
        let line = line.trim();
        (line.contains('=') && !line.starts_with('#')).then_some((section, line))
    })
}

/// Returns the name in a `[section]` line.
fn header(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix('[')?.trim_start_matches('[');
    rest.split_once(']').map(|(name, _)| name.trim())
}

/// Returns the first part of the key in a `key = value` or `key.part = value` line.
fn key(line: &str) -> &str {
    line.split(['=', '.', ' ', '\t']).next().unwrap_or_default().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(krate: &str, manifest: &str, expected: &[&str]) {
        let complaints = judge(krate, &format!("[lints]\nworkspace = true\n{manifest}"));
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, part) in complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint} does not say {part}");
        }
    }

    #[test]
    fn a_crate_depends_on_rows_below() {
        check("storage", "[dependencies]\nlanes.workspace = true\nimbl = \"7\" # maps\n", &[]);
        check("storage", "[dependencies]\nengine.workspace = true\n", &["on `engine` (row 2)"]);
        check("cql", "[dependencies]\n# server = 1\nserver = { path = \"../server\" }\n", &["on `server`"]);
        check("fairlane", "[dependencies]\nserver.workspace = true\nload.workspace = true\n", &[]);
    }

    #[test]
    fn tests_may_use_their_own_row() {
        check("server", "[dev-dependencies]\nserver.workspace = true\nload.workspace = true\n", &[]);
        check("load", "[dev-dependencies]\nserver.workspace = true\n", &["for tests on `server`"]);
    }

    #[test]
    fn only_tests_use_the_crate_for_tests() {
        check("sched", "[dev-dependencies]\ntestkit.workspace = true\n", &[]);
        check("fairlane", "[dependencies]\ntestkit.workspace = true\n", &["on `testkit` (row 6)"]);
        check("sched", "[dependencies]\ntestkit.workspace = true\n", &["on `testkit` (row 6)"]);
    }

    #[test]
    fn every_way_to_write_a_dependency_is_seen() {
        check("sched", "[target.'cfg(unix)'.dependencies]\nlanes.workspace = true\n", &["`lanes`"]);
        check("sched", "[dependencies.lanes]\nworkspace = true\n", &["`lanes`"]);
        check("sched", "[build-dependencies]\nschema.workspace = true\n", &["`schema`"]);
        check("sched", "[dependencies]\nx = { path = \"../lanes\", package = \"lanes\" }\n", &["`lanes`"]);
        check("sched", "[dependencies.x]\npackage = \"lanes\"\n", &["`lanes`"]);
        check("sched", "[dependencies]\n\"lanes\" = \"1\"\n", &["`lanes`"]);
    }

    #[test]
    fn a_crate_needs_a_row_and_the_lints() {
        check("attic", "", &["crates/attic is in no row"]);
        assert_eq!(judge("sched", "[dependencies]\n").len(), 1);
        assert_eq!(judge("lanes", "[lints.rust]\nunsafe_code = \"deny\"\n").len(), 0);
    }
}
