//! `fairlane snapshot` and `fairlane restore`. A snapshot is a data folder of its own at `FOLDER/snapshots/NAME`; its table files are second
//! names of those in use, so that it takes little space until those are merged away.
//!
//! A folder that no server has open is read by the command itself. A running server is asked by a file, which only those may make
//! who may write to the folder:
//!
//! 1. The command makes `snapshots/NAME.wanted`, and looks every tenth of a second.
//! 2. The server sees it, makes the snapshot as `snapshots/NAME.making`, and renames it to `snapshots/NAME`; or writes the reason why not to
//!    `snapshots/NAME.failed`. Then it removes `NAME.wanted`.
//!
//! The restore of a table is asked for likewise: the command makes `snapshots/NAME.restore` with the table's name in it. The
//! server renames it to `NAME.restoring`, restores the table, writes `NAME.failed` if it cannot, and removes `NAME.restoring`.

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
use crate::{checksums, done, rooms};

const USAGE: &str = "\
fairlane snapshot FOLDER NAME
fairlane restore FOLDER NAME [TO]
fairlane restore FOLDER NAME --table KEYSPACE.TABLE

`snapshot` keeps what the data folder holds as FOLDER/snapshots/NAME, whether a server has it open or not. Table files are not
copied; all cores' data is as it was at one moment. SHA256SUMS lists every file: `sha256sum --check` verifies a copy anywhere.
Files that an earlier snapshot has are not read again. Removing the snapshot's folder gives its space back. Of a snapshot that the
server made by itself before a DROP or TRUNCATE, it writes SHA256SUMS.
`restore` verifies a snapshot and makes a data folder of it: TO, or FOLDER itself if it holds no data any more. It overwrites
nothing.
With --table the server that has the folder open takes that table from the snapshot: what the table has now is replaced, and a
table that is gone is defined as it was.
";

/// How often the command and the server look for each other's files.
const LOOK: Duration = Duration::from_millis(100);
/// A running server begins within this time, or there is none that knows how.
const BEGIN: Duration = Duration::from_secs(30);
/// And ends within this.
const END: Duration = Duration::from_secs(3600);
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Runs `snapshot`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    command(args, |folder, name, to| match to {
        None => take(folder, name).and_then(|path| {
            checksums::write(&path)?;
            Ok(format!("{}\n", path.display()))
        }),
        Some(_) => Err("a snapshot has its place in the folder".to_owned()),
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
        if is_of_tables(name) {
            return Err(format!(
                "{} has some tables only: restore them with --table KEYSPACE.TABLE",
                snapshot.display()
            ));
        }
        put_back(&snapshot, to)?;
        Ok(format!("{}\n", to.display()))
    })
}

fn command(
    args: &[String],
    run: impl FnOnce(&Path, &str, Option<&Path>) -> Result<String, String>,
) -> ExitCode {
    let (folder, name, to) = match args {
        [flag] if flag == "--help" || flag == "-h" => return done(USAGE),
        [folder, name] => (Path::new(folder), name, None),
        [folder, name, to] => (Path::new(folder), name, Some(Path::new(to))),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let result = if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(valid) {
        Err(format!("`{name}` is no name for a snapshot: letters, digits, - and _, {NAME_BYTES_MAX} at most"))
    } else {
        run(folder, name, to)
    };
    match result {
        Ok(text) => done(&text),
        Err(reason) => {
            eprintln!("fairlane: {reason}.");
            ExitCode::FAILURE
        }
    }
}

/// Files of one snapshot.
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
        let beside = |what: &str| all.join(format!("{name}.{what}"));
        Names {
            made: all.join(name),
            making: beside("making"),
            wanted: beside("wanted"),
            failed: beside("failed"),
            restore: beside("restore"),
            restoring: beside("restoring"),
        }
    }

    /// Has a snapshot made, and puts it in its place.
    fn make(&self, folder: &Path, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
        let refused =
            |path: &Path, error: io::Error| format!("{} cannot be written: {error}", path.display());
        match fs::remove_dir_all(&self.making) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(refused(&self.making, error)),
            _ => {}
        }
        let made = make(&self.making).and_then(|()| {
            let put = || {
                copy_if_there(&folder.join("host-id"), &self.making.join("host-id"))?;
                fs::rename(&self.making, &self.made)?;
                sync(self.made.parent().unwrap_or(folder))
            };
            put().map_err(|error| refused(&self.made, error))
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&self.making); // the reason is told already
        }
        made
    }
}

/// Returns true if the server made the snapshot by itself, of what a statement was to drop.
fn is_of_tables(name: &str) -> bool {
    name.starts_with("dropped-") || name.starts_with("truncated-")
}

/// Has the server that has the folder open restore a table.
fn restore_table(folder: &Path, name: &str, table: &str) -> Result<String, String> {
    let names = Names::new(folder, name);
    if !names.made.join("shards").exists() {
        return Err(format!("{} is no snapshot", names.made.display()));
    }
    checksums::verify(&names.made)?;
    let _ = fs::remove_file(&names.failed);
    let asked = fs::File::create_new(&names.restore)
        .and_then(|mut file| std::io::Write::write_all(&mut file, table.as_bytes()));
    asked.map_err(|error| format!("{} cannot be written: {error}", names.restore.display()))?;
    let began = Instant::now();
    loop {
        // In this order: a file that was renamed is found under its second name, or its work is done.
        let (waits, runs) = (names.restore.exists(), names.restoring.exists());
        if !waits && !runs {
            return match fs::read_to_string(&names.failed) {
                Ok(reason) => {
                    let _ = fs::remove_file(&names.failed);
                    Err(format!("the server could not restore it: {}", reason.trim_end()))
                }
                Err(_) => Ok(format!("{table}\n")),
            };
        }
        if began.elapsed() > if waits { BEGIN } else { END } {
            let _ = fs::remove_file(&names.restore);
            return Err(format!(
                "no server that has {} open answers: a table is restored into a running server",
                folder.display()
            ));
        }
        std::thread::sleep(LOOK);
    }
}

fn take(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let names = Names::new(folder, name);
    if is_of_tables(name) && names.made.exists() && !checksums::are_there(&names.made) {
        return Ok(names.made);
    }
    if names.made.exists() {
        return Err(format!("{} is there already", names.made.display()));
    }
    if !folder.join("shards").exists() {
        return Err(format!("{} is no data folder: it has no file `shards`", folder.display()));
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
        Err(_) if running => ask(&names)?,
        made => made?,
    }
    Ok(names.made)
}

/// Asks the server that has the folder open.
fn ask(names: &Names) -> Result<(), String> {
    let began = Instant::now();
    let _ = fs::remove_file(&names.failed);
    match fs::File::create_new(&names.wanted) {
        // Somebody has asked for it before, and waits, or was cut short.
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
            return Err(format!("the server could not make it: {}", reason.trim_end()));
        }
        let limit = if names.making.exists() { END } else { BEGIN };
        if began.elapsed() > limit {
            let _ = fs::remove_file(&names.wanted);
            return Err("the server that has the folder open does not answer".to_owned());
        }
        std::thread::sleep(LOOK);
    }
}

/// A running server's eye on what is wanted: a thread beside the lanes.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start(folder: &Path, lanes: &Lanes, logger: &Logger) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopping, folder, lanes, logger) =
            (stop.clone(), folder.to_owned(), lanes.clone(), logger.clone());
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::Relaxed) {
                if let Some(name) = wanted(&folder, ".wanted") {
                    serve(&folder, &name, &lanes, &logger);
                }
                if let Some(name) = wanted(&folder, ".restore") {
                    serve_restore(&folder, &name, &lanes, &logger);
                }
                std::thread::sleep(LOOK);
            }
        });
        Watch { stop, thread }
    }

    /// Ends it; a snapshot being made is finished first.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// The name of a snapshot that somebody wants something of: the kind of file says what.
fn wanted(folder: &Path, kind: &str) -> Option<String> {
    let names = fs::read_dir(folder.join("snapshots")).ok()?;
    let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find_map(|name| Some(name.strip_suffix(kind)?.to_owned()))
}

fn serve(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = Names::new(folder, name);
    let made = if names.made.exists() { Ok(()) } else { names.make(folder, |to| rooms::snapshot(lanes, to)) };
    match made {
        Ok(()) => logger.log(Level::Info, "a snapshot was made", &[("name", &name)]),
        Err(reason) => {
            logger.log(Level::Error, &format!("a snapshot could not be made: {reason}"), &[("name", &name)]);
            let _ = fs::write(&names.failed, reason); // who asked sees that nothing comes
        }
    }
    let _ = fs::remove_file(&names.wanted);
}

fn serve_restore(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = Names::new(folder, name);
    let table =
        fs::rename(&names.restore, &names.restoring).and_then(|()| fs::read_to_string(&names.restoring));
    let restored = table
        .map_err(|error| format!("{} cannot be read: {error}", names.restoring.display()))
        .and_then(|table| rooms::restore_table(lanes, &names.made, &table).map(|()| table));
    match restored {
        Ok(table) => {
            logger.log(Level::Info, "a table was restored", &[("snapshot", &name), ("table", &table)])
        }
        Err(reason) => {
            let what = format!("a table could not be restored: {reason}");
            logger.log(Level::Error, &what, &[("snapshot", &name)]);
            let _ = fs::write(&names.failed, reason); // who asked sees that nothing comes
        }
    }
    let _ = fs::remove_file(&names.restoring);
}

fn put_back(from: &Path, to: &Path) -> Result<(), String> {
    if !from.join("shards").exists() {
        return Err(format!("{} is no snapshot", from.display()));
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
            "{} is not empty: it has `{name}`. Nothing is overwritten: name another folder, or move away what is there",
            to.display()
        ));
    }
    copy_folder(from, to).map_err(|error| format!("{} cannot be written: {error}", to.display()))
}

/// Links table files, which never change, and copies all others. What makes it a data folder comes last.
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

fn copy_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}
