//! `SHA256SUMS` of a snapshot, as `sha256sum --check` reads it: a copy of the snapshot can be verified anywhere with ordinary
//! tools. A table file never changes and its name is never used again, so its sum is taken over from an earlier snapshot that
//! has the same file: a snapshot reads what is new since the last one.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The file of the sums.
const NAME: &str = "SHA256SUMS";

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// The sums of a folder, by path below it.
type Sums = HashMap<PathBuf, String>;

/// Returns true if a snapshot has sums.
pub(crate) fn are_there(snapshot: &Path) -> bool {
    snapshot.join(NAME).exists()
}

/// Writes the sums of a snapshot.
///
/// # Errors
/// One sentence: a file cannot be read, or the sums not written.
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

/// Verifies a snapshot, if it has sums.
///
/// # Errors
/// One sentence: a file is missing, other than it was, or cannot be read.
pub(crate) fn verify(snapshot: &Path) -> Result<(), String> {
    let Some(sums) = read(snapshot) else { return Ok(()) };
    for (path, sum) in &sums {
        let file = snapshot.join(path);
        if sum_of(&file)? != *sum {
            return Err(format!("{} is damaged: it is not what {NAME} says", file.display()));
        }
    }
    Ok(())
}

/// The sums of the snapshots beside this one.
fn earlier(snapshot: &Path) -> Vec<(PathBuf, Sums)> {
    let entries = snapshot.parent().and_then(|all| fs::read_dir(all).ok());
    let folders = entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    folders
        .filter(|folder| folder != snapshot)
        .filter_map(|folder| Some((folder.clone(), read(&folder)?)))
        .collect()
}

/// Returns true if a table file of one folder is that of another.
fn same(one: &Path, other: &Path, path: &Path) -> bool {
    let is_table = path.extension().is_some_and(|kind| kind == "table");
    let file = |folder: &Path| fs::metadata(folder.join(path)).map(|found| (found.dev(), found.ino())).ok();
    is_table && file(one).is_some_and(|found| file(other) == Some(found))
}

/// The files below a folder but for the sums, as paths below it, in the order of their names.
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

fn read(folder: &Path) -> Option<Sums> {
    let text = fs::read_to_string(folder.join(NAME)).ok()?;
    let line = |line: &str| line.split_once("  ").map(|(sum, path)| (PathBuf::from(path), sum.to_owned()));
    Some(text.lines().filter_map(line).collect())
}

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
    fn sums_find_what_changed_and_take_over_what_did_not() {
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
        // The same file by another name is not read again: what has become of it since shows.
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
