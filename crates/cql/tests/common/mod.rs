//! Golden files. A case is a statement of one or more lines, then `=>` and its canonical text, or
//! `!!` and its error. A blank line ends a case. `--` before a statement starts a comment.

#![allow(dead_code, reason = "each test uses its part of this module")]

/// A case of a golden file.
pub(crate) struct Case {
    /// The file, and the line of the statement.
    pub(crate) place: String,
    /// The statement.
    pub(crate) text: String,
    /// Its canonical text, or its error message.
    pub(crate) expected: Result<String, String>,
}

/// The golden files, by name.
const FILES: [(&str, &str); 5] = [
    ("select.cql", include_str!("../golden/select.cql")),
    ("modify.cql", include_str!("../golden/modify.cql")),
    ("schema.cql", include_str!("../golden/schema.cql")),
    ("access.cql", include_str!("../golden/access.cql")),
    ("service_levels.cql", include_str!("../golden/service_levels.cql")),
];

/// Returns every case of every golden file.
pub(crate) fn cases() -> Vec<Case> {
    FILES.iter().flat_map(|(name, content)| cases_of(name, content)).collect()
}

/// The texts of all cases, valid and invalid.
pub(crate) fn statements() -> Vec<String> {
    cases().into_iter().map(|case| case.text).collect()
}

fn cases_of(name: &str, content: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut text: Vec<&str> = Vec::new();
    for (i, line) in content.lines().enumerate() {
        let expected = match (line.strip_prefix("=> "), line.strip_prefix("!! ")) {
            (Some(canonical), _) => Ok(canonical.to_owned()),
            (_, Some(error)) => Err(error.to_owned()),
            _ if text.is_empty() && (line.is_empty() || line.starts_with("--")) => continue,
            _ => {
                text.push(line);
                continue;
            }
        };
        let place = format!("{name}:{}", i + 1 - text.len());
        assert!(!text.is_empty(), "{place}: a result without a statement");
        cases.push(Case { place, text: text.join("\n"), expected });
        text.clear();
    }
    assert!(text.is_empty(), "{name}: a statement without a result: {text:?}");
    cases
}
