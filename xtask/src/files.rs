//! Files and folders of the repository, with errors that name the file.

use std::path::{Path, PathBuf};

/// Returns the text of a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{} could not be read: {error}.", path.display()))
}

/// Returns the entries of a folder, sorted by name. Empty if the folder does not exist.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error| format!("{} could not be listed: {error}.", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Returns the Rust files below `folders`, without those in folders with a name in `skipped`.
pub(crate) fn rust_files(mut folders: Vec<PathBuf>, skipped: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() {
                if !skipped.contains(&name(&path)) {
                    folders.push(path);
                }
            } else if name(&path).ends_with(".rs") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// Returns the last part of a path.
pub(crate) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Passes without complaints. Otherwise returns all of them, so that one run shows every fault.
pub(crate) fn verdict(complaints: Vec<String>) -> Result<(), String> {
    if complaints.is_empty() { Ok(()) } else { Err(format!("\n  {}", complaints.join("\n  "))) }
}
