//! `fairlane snapshot` and `fairlane restore`. A snapshot is a complete data folder at
//! `FOLDER/snapshots/NAME`. Its table files are hard links to those of the data folder, so that it
//! takes little space until compactions remove those.
//!
//! If no server has the folder open, the command makes the snapshot itself. Otherwise the command
//! and the server exchange files. Only users who may write to the folder can send such a request.
//!
//! 1. The command creates `snapshots/NAME.wanted`, and checks for a result every
//!    [`CHECK_INTERVAL`].
//! 2. The server makes the snapshot as `snapshots/NAME.making` and renames it to `snapshots/NAME`.
//!    If that fails, it writes the reason to `snapshots/NAME.failed`. Then it removes
//!    `NAME.wanted`.
//!
//! A table is restored in the same way. The command creates `snapshots/NAME.restore` with the name
//! of the table. The server renames it to `NAME.restoring`, restores the table, writes
//! `NAME.failed` if that fails, and removes `NAME.restoring`.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lanes::{Group, Lanes};
use server::logging::{Level, Logger};
use storage::{Options, StorageError};

use crate::check::lane;
use crate::output::print;
use crate::{checksums, cores};

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

/// Interval at which the command and the server check for files of each other.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time for the server to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the server to finish.
const END_TIMEOUT: Duration = Duration::from_secs(3600);
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
            restore_table(folder, name, table)
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

/// Paths of one snapshot and of the files with its requests.
struct Names {
    made: PathBuf,
    making: PathBuf,
    wanted: PathBuf,
    failed: PathBuf,
    restore: PathBuf,
    restoring: PathBuf,
}

impl Names {
    fn new(folder: &Path, name: &str) -> Names {
        let all = folder.join("snapshots");
        let with_suffix = |suffix: &str| all.join(format!("{name}.{suffix}"));
        Names {
            made: all.join(name),
            making: with_suffix("making"),
            wanted: with_suffix("wanted"),
            failed: with_suffix("failed"),
            restore: with_suffix("restore"),
            restoring: with_suffix("restoring"),
        }
    }

    /// Makes a snapshot under its temporary name, and renames it.
    fn make(&self, folder: &Path, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
        let refused =
            |path: &Path, error: io::Error| format!("{} cannot be written: {error}", path.display());
        match fs::remove_dir_all(&self.making) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(&self.making, error)),
            _ => {}
        }
        let made = make(&self.making).and_then(|()| {
            let put = || {
                copy_if_exists(&folder.join("host-id"), &self.making.join("host-id"))?;
                fs::rename(&self.making, &self.made)?;
                sync(self.made.parent().unwrap_or(folder))
            };
            put().map_err(|error| refused(&self.made, error))
        });
        if made.is_err() {
            // The first error is the cause.
            let _ = fs::remove_dir_all(&self.making);
        }
        made
    }
}

/// Returns true for a snapshot that the server made before a DROP or TRUNCATE. It has only tables
/// of that statement, and no checksums until the command writes them.
fn is_automatic(name: &str) -> bool {
    name.starts_with("dropped-") || name.starts_with("truncated-")
}

/// Sends the server that has the folder open a request to restore a table, and waits for it.
fn restore_table(folder: &Path, name: &str, table: &str) -> Result<String, String> {
    let names = Names::new(folder, name);
    if !names.made.join("shards").exists() {
        return Err(format!("{} is not a snapshot", names.made.display()));
    }
    checksums::verify(&names.made)?;
    let _ = fs::remove_file(&names.failed);
    let written = fs::File::create_new(&names.restore)
        .and_then(|mut file| std::io::Write::write_all(&mut file, table.as_bytes()));
    written.map_err(|error| format!("{} cannot be written: {error}", names.restore.display()))?;
    let began = Instant::now();
    loop {
        // The order matters: a file that is renamed in between is found under its second name.
        let (waits, runs) = (names.restore.exists(), names.restoring.exists());
        if !waits && !runs {
            return match fs::read_to_string(&names.failed) {
                Ok(reason) => {
                    let _ = fs::remove_file(&names.failed);
                    Err(format!("the server could not restore the table: {}", reason.trim_end()))
                }
                Err(_) => Ok(format!("{table}\n")),
            };
        }
        if began.elapsed() > if waits { BEGIN_TIMEOUT } else { END_TIMEOUT } {
            let _ = fs::remove_file(&names.restore);
            return Err(format!(
                "no server with {} open answers: start one, because a running server restores a table",
                folder.display()
            ));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Makes a snapshot, by the server if one has the folder open. Returns its folder.
fn take(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let names = Names::new(folder, name);
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
    let lanes = lane()?;
    let (root, to) = (folder.to_owned(), names.making.clone());
    let mut running = false;
    let made = names.make(folder, |_| {
        let made = lanes.block_on(0, Group::CONTROL, move || async move {
            storage::snapshot(&root, &to, Options::in_memory().groups).await
        });
        running = matches!(made, Err(StorageError::Locked { .. }));
        made.map_err(|error| error.to_string())
    });
    lanes.shutdown();
    match made {
        Err(_) if running => request(&names)?,
        made => made?,
    }
    Ok(names.made)
}

/// Sends the server that has the folder open a request for a snapshot, and waits for it.
fn request(names: &Names) -> Result<(), String> {
    let began = Instant::now();
    let _ = fs::remove_file(&names.failed);
    match fs::File::create_new(&names.wanted) {
        // Another command may have created it, and waits or was interrupted.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(format!("{} cannot be written: {error}", names.wanted.display()));
        }
        _ => {}
    }
    loop {
        if names.made.exists() {
            return Ok(());
        }
        if let Ok(reason) = fs::read_to_string(&names.failed) {
            let _ = fs::remove_file(&names.failed);
            return Err(format!("the server could not make the snapshot: {}", reason.trim_end()));
        }
        let limit = if names.making.exists() { END_TIMEOUT } else { BEGIN_TIMEOUT };
        if began.elapsed() > limit {
            let _ = fs::remove_file(&names.wanted);
            return Err("the server that has the folder open does not answer".to_owned());
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Thread of a running server that checks for requests. It is outside the lanes, because it waits
/// for the disk.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    /// Starts the thread.
    pub(crate) fn start(folder: &Path, lanes: &Lanes, logger: &Logger) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, folder, lanes, logger) =
            (stop.clone(), folder.to_owned(), lanes.clone(), logger.clone());
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                if let Some(name) = find_request(&folder, ".wanted") {
                    serve_snapshot(&folder, &name, &lanes, &logger);
                }
                if let Some(name) = find_request(&folder, ".restore") {
                    serve_restore(&folder, &name, &lanes, &logger);
                }
                std::thread::sleep(CHECK_INTERVAL);
            }
        });
        Watch { stop, thread }
    }

    /// Ends the thread. A snapshot in progress is finished first.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// Returns the name of a snapshot with a request file that ends in `suffix`.
fn find_request(folder: &Path, suffix: &str) -> Option<String> {
    let names = fs::read_dir(folder.join("snapshots")).ok()?;
    let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find_map(|name| Some(name.strip_suffix(suffix)?.to_owned()))
}

/// Makes a requested snapshot.
fn serve_snapshot(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = Names::new(folder, name);
    let made = if names.made.exists() { Ok(()) } else { names.make(folder, |to| cores::snapshot(lanes, to)) };
    match made {
        Ok(()) => logger.log(Level::Info, "snapshot made", &[("name", &name)]),
        Err(reason) => {
            logger.log(Level::Error, "snapshot failed", &[("name", &name), ("error", &reason)]);
            // If this fails too, the command ends with its timeout.
            let _ = fs::write(&names.failed, reason);
        }
    }
    let _ = fs::remove_file(&names.wanted);
}

/// Restores a requested table.
fn serve_restore(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = Names::new(folder, name);
    let table =
        fs::rename(&names.restore, &names.restoring).and_then(|()| fs::read_to_string(&names.restoring));
    let restored = table
        .map_err(|error| format!("{} cannot be read: {error}", names.restoring.display()))
        .and_then(|table| cores::restore_table(lanes, &names.made, &table).map(|()| table));
    match restored {
        Ok(table) => logger.log(Level::Info, "table restored", &[("snapshot", &name), ("table", &table)]),
        Err(reason) => {
            logger.log(Level::Error, "restore failed", &[("snapshot", &name), ("error", &reason)]);
            // If this fails too, the command ends with its timeout.
            let _ = fs::write(&names.failed, reason);
        }
    }
    let _ = fs::remove_file(&names.restoring);
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

/// Copies a file if it exists.
fn copy_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop),
    }
}

/// Makes names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}
