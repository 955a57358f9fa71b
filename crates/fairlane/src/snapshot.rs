//! `fairlane snapshot` and `fairlane restore`. A snapshot is a complete data folder at
//! `FOLDER/snapshots/NAME`. Its table files are hard links to those of the data folder, so that it
//! takes little space until compactions remove those.
//!
//! If no server has the folder open, the command makes the snapshot itself. Otherwise it asks the
//! server (`requests`), as it does to restore one table.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lanes::Group;
use storage::{StorageError, StorageOptions};

use crate::check::lane;
use crate::checksums;
use crate::output::print;
use crate::requests::{self, Asked, SnapshotPaths, sync};

const USAGE: &str = "\
fairlane snapshot FOLDER NAME
fairlane restore FOLDER NAME [TO]
fairlane restore FOLDER NAME --table KEYSPACE.TABLE

`snapshot` makes the snapshot FOLDER/snapshots/NAME of a data folder, whether a server has it open or
not. It has the data of all cores at one moment. Table files are linked, not copied. SHA256SUMS lists
every file, so that `sha256sum --check` verifies a copy anywhere. Files of an earlier snapshot are not
read again. Remove the folder of a snapshot to free its space. For a snapshot that the server made
before a DROP or TRUNCATE, the command writes SHA256SUMS only.
`restore` verifies a snapshot and makes a data folder from it: TO, or FOLDER itself if it has no data
left. It overwrites nothing.
With --table the server that has the folder open restores one table from the snapshot. The rows of the
table are replaced. A dropped table is created as it was.
";

/// Length of a name, bytes. Linux allows 255 with the suffix of the files.
const NAME_BYTES_MAX: usize = 200;

/// Runs `snapshot`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    command(args, |folder, name, to| match to {
        None => take(folder, name).and_then(|path| {
            checksums::write(&path)?;
            Ok(format!("{}\n", path.display()))
        }),
        Some(to) => Err(format!("expected FOLDER NAME, got `{}` too", to.display())),
    })
}

/// Runs `restore`.
pub(crate) fn restore(args: &[String]) -> ExitCode {
    if let [folder, name, flag, table] = args
        && flag == "--table"
    {
        return command(&[folder.clone(), name.clone()], |folder, name, _| {
            checksums::verify(&folder.join("snapshots").join(name))?;
            requests::restore_table(folder, name, table)
        });
    }
    command(args, |folder, name, to| {
        let to = to.unwrap_or(folder);
        let snapshot = folder.join("snapshots").join(name);
        checksums::verify(&snapshot)?;
        if is_automatic(name) {
            return Err(format!(
                "{} has only some tables: restore them with --table KEYSPACE.TABLE",
                snapshot.display()
            ));
        }
        restore_folder(&snapshot, to)?;
        Ok(format!("{}\n", to.display()))
    })
}

/// Checks the arguments, runs a command and prints its result.
fn command(
    args: &[String],
    run: impl FnOnce(&Path, &str, Option<&Path>) -> Result<String, String>,
) -> ExitCode {
    let (folder, name, to) = match args {
        [flag] if flag == "--help" || flag == "-h" => return print(USAGE),
        [folder, name] => (Path::new(folder), name, None),
        [folder, name, to] => (Path::new(folder), name, Some(Path::new(to))),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let result = if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(valid) {
        Err(format!("expected a name of at most {NAME_BYTES_MAX} letters, digits, - and _, got `{name}`"))
    } else {
        run(folder, name, to)
    };
    match result {
        Ok(text) => print(&text),
        Err(reason) => {
            eprintln!("fairlane: {reason}.");
            ExitCode::FAILURE
        }
    }
}

/// Returns true for a snapshot that the server made before a DROP or TRUNCATE. It has only tables
/// of that statement, and no checksums until the command writes them.
fn is_automatic(name: &str) -> bool {
    name.starts_with("dropped-") || name.starts_with("truncated-")
}

/// Makes a snapshot, by the server if one has the folder open. Returns its folder.
fn take(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let names = SnapshotPaths::new(folder, name);
    if is_automatic(name) && names.made.exists() && !checksums::exist(&names.made) {
        return Ok(names.made);
    }
    if names.made.exists() {
        return Err(format!("{} exists already: choose another name", names.made.display()));
    }
    if !folder.join("shards").exists() {
        return Err(format!("{} is not a data folder: it has no file `shards`", folder.display()));
    }
    fs::create_dir_all(folder.join("snapshots"))
        .map_err(|error| format!("{} cannot be written: {error}", folder.display()))?;
    // A server that dies meanwhile lets go of the folder: the command then makes the snapshot.
    loop {
        match make_alone(folder, &names) {
            Err(None) => {}
            Err(Some(reason)) => return Err(reason),
            Ok(()) => break,
        }
        if let Asked::Done = requests::snapshot(folder, &names)? {
            break;
        }
    }
    Ok(names.made)
}

/// Makes a snapshot of a folder that no server has open. `None` as the reason: a server has it
/// open.
fn make_alone(folder: &Path, names: &SnapshotPaths) -> Result<(), Option<String>> {
    let lanes = lane()?;
    let (root, to) = (folder.to_owned(), names.making.clone());
    let mut is_open = false;
    let made = names.make(folder, |_| {
        let made = lanes.block_on(0, Group::CONTROL, move || async move {
            storage::snapshot(&root, &to, StorageOptions::in_memory().groups).await
        });
        is_open = matches!(made, Err(StorageError::Locked { .. }));
        made.map_err(|error| error.to_string())
    });
    lanes.shutdown();
    made.map_err(|reason| (!is_open).then_some(reason))
}

/// Makes a data folder from a snapshot.
fn restore_folder(from: &Path, to: &Path) -> Result<(), String> {
    if !from.join("shards").exists() {
        return Err(format!("{} is not a snapshot", from.display()));
    }
    let in_place = from.starts_with(to);
    let holds = match fs::read_dir(to) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(format!("{} cannot be read: {error}", to.display())),
        Ok(names) => names
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find(|name| !in_place || name.starts_with("shard")),
    };
    if let Some(name) = holds {
        return Err(format!(
            "{} is not empty, it has `{name}`. Nothing is overwritten: choose another folder, or move its files away",
            to.display()
        ));
    }
    copy_folder(from, to).map_err(|error| format!("{} cannot be written: {error}", to.display()))
}

/// Links table files, which never change, and copies all others. The file `shards` comes last, so
/// that an incomplete folder is not a data folder.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut entries: Vec<PathBuf> = fs::read_dir(from)?.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
    entries.sort_by_key(|path| (path.ends_with("shards"), path.clone()));
    for path in entries {
        let Some(name) = path.file_name() else { continue };
        let to = to.join(name);
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else if path.extension().is_none_or(|kind| kind != "table") || fs::hard_link(&path, &to).is_err() {
            fs::copy(&path, &to)?;
            fs::File::open(&to)?.sync_all()?;
        }
    }
    sync(to)
}
