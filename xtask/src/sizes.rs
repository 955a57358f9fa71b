//! Size of source files: one over 800 lines has to be divided. Tests may be longer.

use std::path::Path;

use crate::files::{list, name, read, rust_files, verdict};

/// Maximum of lines in a source file without tests.
const LINES_MAX: usize = 800;

/// Checks every Rust file of the crates and of `xtask`.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    let mut folders = list(&root.join("crates"))?;
    folders.push(root.join("xtask"));
    for path in rust_files(folders, &["tests", "target"])? {
        if name(&path) != "tests.rs" {
            let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            complaints.extend(judge(&shown, read(&path)?.lines().count()));
        }
    }
    verdict(complaints)
}

fn judge(path: &str, lines: usize) -> Option<String> {
    (lines > LINES_MAX).then(|| format!("{path} has {lines} lines; divide it, {LINES_MAX} is the most."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_hundred_lines_is_the_most() {
        assert_eq!(judge("a.rs", LINES_MAX), None);
        assert!(judge("a.rs", LINES_MAX + 1).unwrap().contains("801 lines"));
    }
}
