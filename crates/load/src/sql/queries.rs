//! Query files with one statement each. A query is named by its file without `.sql`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LoadError;

/// A query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// Name, such as `q03`.
    pub name: String,
    /// Text. Not part of reports.
    #[serde(skip)]
    pub text: String,
}

/// Folder, name and text of the queries bundled with the program, for use without its sources.
const BUNDLED: [(&str, &str, &str); 7] = [
    ("clickbench", "q10", include_str!("../../queries/clickbench/q10.sql")),
    ("clickbench", "q15", include_str!("../../queries/clickbench/q15.sql")),
    ("clickbench", "q17", include_str!("../../queries/clickbench/q17.sql")),
    ("clickbench", "q23", include_str!("../../queries/clickbench/q23.sql")),
    ("tpch", "q03", include_str!("../../queries/tpch/q03.sql")),
    ("tpch", "q07", include_str!("../../queries/tpch/q07.sql")),
    ("tpch", "q19", include_str!("../../queries/tpch/q19.sql")),
];

/// Returns bundled queries of a folder of `crates/load/queries`.
///
/// # Panics
/// If a name is not bundled.
pub fn bundled_queries(folder: &str, names: &[&str]) -> Vec<Query> {
    let query = |name: &&str| {
        let found = BUNDLED.iter().find(|(of, named, _)| *of == folder && named == name);
        let (_, _, text) = found.unwrap_or_else(|| panic!("{folder}/{name} is not bundled"));
        Query { name: (*name).to_string(), text: statement(text) }
    };
    names.iter().map(query).collect()
}

fn failed(path: &Path, reason: impl Into<String>) -> LoadError {
    LoadError::File { path: path.display().to_string(), reason: reason.into() }
}

/// Reads a file, or all `.sql` files of a folder ordered by name. A non-empty `only` selects
/// queries by name.
///
/// # Errors
/// [`LoadError::File`] if there is no query, [`LoadError::Usage`] for a name without a file.
pub(crate) fn read(path: &Path, only: &[String]) -> Result<Vec<Query>, LoadError> {
    let mut queries = Vec::new();
    for file in files(path)? {
        let text = std::fs::read_to_string(&file).map_err(|error| failed(&file, error.to_string()))?;
        let text = statement(&text);
        if text.is_empty() {
            return Err(failed(&file, "expected a statement, got an empty file"));
        }
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        queries.push(Query { name, text });
    }
    if let Some(missing) = only.iter().find(|name| queries.iter().all(|query| query.name != **name)) {
        let names: Vec<&str> = queries.iter().map(|query| query.name.as_str()).collect();
        return Err(LoadError::Usage(format!(
            "--only: unknown query `{missing}`; expected one of {}",
            names.join(", ")
        )));
    }
    queries.retain(|query| only.is_empty() || only.contains(&query.name));
    Ok(queries)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| failed(path, error.to_string()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    if files.is_empty() {
        Err(failed(path, "expected .sql files in this folder, got none"))
    } else {
        Ok(files)
    }
}

/// Returns the statement of a file, without comment lines and the final semicolon.
fn statement(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    lines.join("\n").trim().trim_end_matches(';').trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_queries_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
        let tpch = read(&folder.join("tpch"), &[]).expect("the folder exists");
        let names: Vec<String> = (1..=22).map(|number| format!("q{number:02}")).collect();
        assert_eq!(tpch.iter().map(|query| query.name.clone()).collect::<Vec<_>>(), names);
        assert!(tpch.iter().all(|query| query.text.contains("from") && !query.text.contains([';', '$'])));
        let some = read(&folder.join("clickbench"), &["q23".into(), "q15".into()]).expect("both exist");
        assert_eq!(some.iter().map(|query| query.name.as_str()).collect::<Vec<_>>(), ["q15", "q23"]);
        let one = read(&folder.join("tpch/q06.sql"), &[]).expect("one file");
        assert!(one.len() == 1 && one[0].text.starts_with("select sum"), "{one:?}");
    }

    #[test]
    fn bundled_queries_equal_the_files() {
        for (folder, name, _) in BUNDLED {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries").join(folder);
            assert_eq!(
                bundled_queries(folder, &[name]),
                read(&path, &[name.into()]).expect("the file exists")
            );
        }
    }

    #[test]
    fn errors_name_the_missing_query_or_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
        let check_error = |path: &Path, only: &[String], expected: &str| {
            let error = read(path, only).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check_error(&folder.join("tpch"), &["q99".into()], "q99");
        check_error(&folder, &[], ".sql");
        check_error(&folder.join("none.sql"), &[], "none.sql");
        assert_eq!(statement("-- only\n  -- comments\n;\n"), "");
        assert_eq!(statement("-- a\nselect 1 -- b\n;\n"), "select 1 -- b");
    }
}
