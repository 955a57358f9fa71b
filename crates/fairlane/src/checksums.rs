//! `SHA256SUMS` of a snapshot, in the format of `sha256sum --check`, so that a copy of the snapshot
//! can be verified without fairlane. A table file never changes. Its sum is copied from an earlier
//! snapshot that has a link to the same file. So only files that are new since then are read.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Name of the file with the sums.
const NAME: &str = "SHA256SUMS";

/// Bytes of one read. A file is not read into memory as a whole.
const READ_BYTES: usize = 1 << 20;

/// Sums of the files of a folder, by path below the folder.
type Sums = HashMap<PathBuf, String>;

/// Returns true if a snapshot has sums.
pub(crate) fn exist(snapshot: &Path) -> bool {
    snapshot.join(NAME).exists()
}

/// Writes the sums of a snapshot.
///
/// # Errors
/// A file cannot be read, or the sums cannot be written. Without a full stop.
pub(crate) fn write(snapshot: &Path) -> Result<(), String> {
    let earlier = earlier(snapshot);
    let mut text = String::new();
    for path in files(snapshot)? {
        let known = earlier
            .iter()
            .find_map(|(folder, sums)| same(snapshot, folder, &path).then(|| sums.get(&path))?);
        let sum = match known {
            Some(sum) => sum.clone(),
            None => sum_of(&snapshot.join(&path))?,
        };
        writeln!(text, "{sum}  {}", path.display()).expect("a string takes all");
    }
    let (to, new) = (snapshot.join(NAME), snapshot.join(format!("{NAME}.new")));
    let put = || {
        fs::write(&new, &text)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, &to)?;
        File::open(snapshot)?.sync_all()
    };
    put().map_err(|error| format!("{} cannot be written: {error}", to.display()))
}

/// Verifies a snapshot. One without sums is accepted.
///
/// # Errors
/// A file is missing, has changed, or cannot be read. Without a full stop.
pub(crate) fn verify(snapshot: &Path) -> Result<(), String> {
    let Some(sums) = read(snapshot) else { return Ok(()) };
    // A check of the snapshot leaves lock files.
    let is_listed = |path: &PathBuf| path.ends_with("LOCK") || sums.contains_key(path);
    if let Some(path) = files(snapshot)?.iter().find(|path| !is_listed(path)) {
        let path = path.display();
        return Err(format!(
            "{} has no sum of {path}: it was cut, or is an older copy; make another snapshot, or remove {NAME} to \
             restore without it",
            snapshot.join(NAME).display()
        ));
    }
    for (path, sum) in &sums {
        let file = snapshot.join(path);
        if sum_of(&file)? != *sum {
            return Err(format!("{} is damaged: its checksum differs from {NAME}", file.display()));
        }
    }
    Ok(())
}

/// Returns folders and sums of the other snapshots of the data folder.
fn earlier(snapshot: &Path) -> Vec<(PathBuf, Sums)> {
    let entries = snapshot.parent().and_then(|all| fs::read_dir(all).ok());
    let folders = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    folders
        .filter(|folder| folder != snapshot)
        .filter_map(|folder| Some((folder.clone(), read(&folder)?)))
        .collect()
}

/// Returns true if `path` is a table file, and the same file in both folders.
fn same(one: &Path, other: &Path, path: &Path) -> bool {
    let is_table = path.extension().is_some_and(|kind| kind == "table");
    let file = |folder: &Path| fs::metadata(folder.join(path)).map(|found| (found.dev(), found.ino())).ok();
    is_table && file(one).is_some_and(|found| file(other) == Some(found))
}

/// Returns all files below a folder except the sums, as paths below the folder, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |path: &Path, error: io::Error| format!("{} cannot be read: {error}", path.display());
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(inner) = folders.pop() {
        let path = folder.join(&inner);
        for entry in fs::read_dir(&path).map_err(|error| unreadable(&path, error))? {
            let entry = entry.map_err(|error| unreadable(&path, error))?;
            let below = inner.join(entry.file_name());
            match entry.file_type().map_err(|error| unreadable(&path, error))?.is_dir() {
                true => folders.push(below),
                false if below == Path::new(NAME) => {}
                false => found.push(below),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the sums of a folder. `None`: it has none.
fn read(folder: &Path) -> Option<Sums> {
    let text = fs::read_to_string(folder.join(NAME)).ok()?;
    let line = |line: &str| line.split_once("  ").map(|(sum, path)| (PathBuf::from(path), sum.to_owned()));
    Some(text.lines().filter_map(line).collect())
}

/// Returns the sum of a file in hexadecimal digits.
fn sum_of(path: &Path) -> Result<String, String> {
    let sum = || {
        let (mut file, mut hash, mut buffer) = (File::open(path)?, Sha256::new(), vec![0; READ_BYTES]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok::<_, io::Error>(hash.finalize()),
                length => hash.update(&buffer[..length]),
            }
        }
    };
    let sum = sum().map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok(sum.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_found_and_sums_of_links_are_copied() {
        let root = std::env::temp_dir().join(format!("fairlane-sums-{}", std::process::id()));
        let (one, two) = (root.join("one"), root.join("two"));
        for folder in [&one, &two] {
            fs::create_dir_all(folder.join("shard-0/tables")).expect("made");
        }
        let table = Path::new("shard-0/tables/1.table");
        fs::write(one.join(table), "abc").expect("written");
        fs::write(one.join("shards"), "2").expect("written");
        write(&one).expect("written");
        let text = fs::read_to_string(one.join(NAME)).expect("there");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(text.contains(&format!("{abc}  shard-0/tables/1.table\n")), "{text}");
        assert!(text.contains("  shards\n"));
        verify(&one).expect("nothing changed");
        for end in 0..text.len() - 1 {
            fs::write(one.join(NAME), &text[..end]).expect("written");
            assert!(verify(&one).is_err(), "the sums were cut at {end}");
        }
        fs::write(one.join(NAME), &text).expect("written");
        // A link gets the old sum without a read, so that the damage is found.
        fs::hard_link(one.join(table), two.join(table)).expect("linked");
        fs::write(one.join(table), "abd").expect("written");
        write(&two).expect("written");
        assert!(fs::read_to_string(two.join(NAME)).expect("there").starts_with(abc));
        assert!(verify(&two).expect_err("it decayed").contains("1.table is damaged"));
        fs::remove_file(one.join("shards")).expect("removed");
        assert!(verify(&one).is_err(), "a file is missing");
        fs::remove_dir_all(&root).expect("removed");
    }
}
