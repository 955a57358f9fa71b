//! Requests of `fairlane snapshot` and `fairlane restore --table` to the server that has the folder
//! open, by files. Only users who may write to the folder can send one.
//!
//! 1. The command creates `snapshots/NAME.wanted`, locks it as long as it waits, and checks for a
//!    result every [`CHECK_INTERVAL`].
//! 2. The server makes the snapshot as `snapshots/NAME.making` and renames it to `snapshots/NAME`.
//!    If that fails, it writes the reason to `snapshots/NAME.failed`. Then it removes
//!    `NAME.wanted`.
//!
//! A table is restored in the same way. The command creates `snapshots/NAME.restore` with the name
//! of the table. The server renames it to `NAME.restoring`, restores the table, writes
//! `NAME.failed` if that fails, and removes `NAME.restoring`.
//!
//! Each side notices that the other has died by its lock. A request without one is removed: the
//! next start of a server must not replace a table because of a command that was killed long ago.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lanes::Lanes;
use server::logging::{FieldValue, Level, Logger};

use crate::cores;

/// Interval at which the command and the server check for files of each other.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the command checks that the server lives. The check holds the lock of the
/// folder, shared, for microseconds: a server that starts just then would be refused.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Time for the server to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the server to finish.
const END_TIMEOUT: Duration = Duration::from_secs(3600);

/// Paths of one snapshot and of the files with its requests.
pub(crate) struct SnapshotPaths {
    pub(crate) made: PathBuf,
    pub(crate) making: PathBuf,
    wanted: PathBuf,
    failed: PathBuf,
    restore: PathBuf,
    restoring: PathBuf,
}

impl SnapshotPaths {
    pub(crate) fn new(folder: &Path, name: &str) -> SnapshotPaths {
        let all = folder.join("snapshots");
        let with_suffix = |suffix: &str| all.join(format!("{name}.{suffix}"));
        SnapshotPaths {
            made: all.join(name),
            making: with_suffix("making"),
            wanted: with_suffix("wanted"),
            failed: with_suffix("failed"),
            restore: with_suffix("restore"),
            restoring: with_suffix("restoring"),
        }
    }

    /// Makes a snapshot under its temporary name, and renames it.
    pub(crate) fn make(
        &self,
        folder: &Path,
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
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

/// Copies a file if it exists.
fn copy_if_exists(from: &Path, to: &Path) -> io::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.map(drop),
    }
}

/// Makes names in a folder durable.
pub(crate) fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Result of a request.
pub(crate) enum Asked {
    Done,
    /// The server has ended.
    ServerGone,
}

/// A request that waits for the server. Its lock says that the command lives.
struct Sent {
    path: PathBuf,
    _locked: File,
}

impl Sent {
    /// Creates a request. The file appears with its content and its lock.
    fn new(path: &Path, text: &str) -> io::Result<Sent> {
        let mut unsent = path.as_os_str().to_owned();
        unsent.push(format!(".{}", std::process::id()));
        let unsent = PathBuf::from(unsent);
        let file = File::create(&unsent)?;
        let link = || {
            (&file).write_all(text.as_bytes())?;
            file.lock()?;
            if is_abandoned(path) {
                fs::remove_file(path)?;
            }
            fs::hard_link(&unsent, path)
        };
        let linked = link();
        let _ = fs::remove_file(&unsent);
        linked.map(|()| Sent { path: path.to_owned(), _locked: file })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // The server may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns true if a file exists whose lock no process holds.
fn is_abandoned(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

/// Checks for the life of the server, at intervals.
struct Alive<'a> {
    folder: &'a Path,
    began: Instant,
    checked: Instant,
}

impl Alive<'_> {
    fn of(folder: &Path) -> Alive<'_> {
        Alive { folder, began: Instant::now(), checked: Instant::now() }
    }

    /// Returns true if the server has ended: no process holds the lock of the folder.
    fn is_gone(&mut self) -> bool {
        if self.checked.elapsed() < ALIVE_INTERVAL {
            return false;
        }
        self.checked = Instant::now();
        is_abandoned(&self.folder.join("LOCK"))
    }
}

/// Sends the server that has the folder open a request to restore a table, and waits for it.
///
/// # Errors
/// The reason in words: the server refused it, has ended, or does not answer.
pub(crate) fn restore_table(folder: &Path, name: &str, table: &str) -> Result<String, String> {
    let names = SnapshotPaths::new(folder, name);
    if !names.made.join("shards").exists() {
        return Err(format!("{} is not a snapshot", names.made.display()));
    }
    let _ = fs::remove_file(&names.failed);
    let sent = Sent::new(&names.restore, table)
        .map_err(|error| format!("{} cannot be written: {error}", names.restore.display()))?;
    let no_server = || {
        format!(
            "no server with {} open answers: start one, because a running server restores a table",
            folder.display()
        )
    };
    let mut alive = Alive::of(folder);
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
        if alive.is_gone() {
            drop(sent);
            return Err(match fs::remove_file(&names.restoring) {
                Ok(()) => {
                    "the server has ended while it restored the table: start it and restore again".into()
                }
                Err(_) => no_server(),
            });
        }
        if alive.began.elapsed() > if waits { BEGIN_TIMEOUT } else { END_TIMEOUT } {
            return Err(no_server());
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Sends the server that has the folder open a request for a snapshot, and waits for it.
///
/// # Errors
/// The reason in words: the server could not make it, or does not answer.
pub(crate) fn snapshot(folder: &Path, names: &SnapshotPaths) -> Result<Asked, String> {
    let _ = fs::remove_file(&names.failed);
    let _sent = match Sent::new(&names.wanted, "") {
        // Another command waits for the same snapshot.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
        Err(error) => return Err(format!("{} cannot be written: {error}", names.wanted.display())),
        Ok(sent) => Some(sent),
    };
    let mut alive = Alive::of(folder);
    loop {
        if names.made.exists() {
            return Ok(Asked::Done);
        }
        if let Ok(reason) = fs::read_to_string(&names.failed) {
            let _ = fs::remove_file(&names.failed);
            return Err(format!("the server could not make the snapshot: {}", reason.trim_end()));
        }
        if alive.is_gone() {
            return Ok(Asked::ServerGone);
        }
        let limit = if names.making.exists() { END_TIMEOUT } else { BEGIN_TIMEOUT };
        if alive.began.elapsed() > limit {
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
            fail_interrupted(&folder);
            while !stopping.load(Ordering::Relaxed) {
                if let Some(name) = find_request(&folder, ".wanted", &logger) {
                    serve_snapshot(&folder, &name, &lanes, &logger);
                }
                if let Some(name) = find_request(&folder, ".restore", &logger) {
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

/// Returns the names of the files with a suffix.
fn named(folder: &Path, suffix: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder.join("snapshots")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(suffix)?.to_owned())).collect()
}

/// Answers requests that an earlier server had begun to restore.
fn fail_interrupted(folder: &Path) {
    for name in named(folder, ".restoring") {
        let names = SnapshotPaths::new(folder, &name);
        let _ = fs::write(&names.failed, "the server ended meanwhile: restore again");
        let _ = fs::remove_file(&names.restoring);
    }
}

/// Returns the name of a snapshot with a request file that ends in `suffix`. Removes requests whose
/// commands have ended.
fn find_request(folder: &Path, suffix: &str, logger: &Logger) -> Option<String> {
    named(folder, suffix).into_iter().find(|name| {
        let path = folder.join("snapshots").join(format!("{name}{suffix}"));
        let held = File::open(&path).map(|file| file.try_lock_shared());
        if let Ok(Ok(())) = held {
            logger.log(
                Level::Warn,
                "request without a command removed",
                &[("file", FieldValue::text(path.display()))],
            );
            let _ = fs::remove_file(&path);
        }
        matches!(held, Ok(Err(TryLockError::WouldBlock)))
    })
}

/// Makes a requested snapshot.
fn serve_snapshot(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = SnapshotPaths::new(folder, name);
    let made = if names.made.exists() { Ok(()) } else { names.make(folder, |to| cores::snapshot(lanes, to)) };
    match made {
        Ok(()) => logger.log(Level::Info, "snapshot made", &[("name", FieldValue::text(name))]),
        Err(reason) => {
            logger.log(
                Level::Error,
                "snapshot failed",
                &[("name", FieldValue::text(name)), ("error", FieldValue::text(&reason))],
            );
            // If this fails too, the command ends with its timeout.
            let _ = fs::write(&names.failed, reason);
        }
    }
    let _ = fs::remove_file(&names.wanted);
}

/// Restores a requested table.
fn serve_restore(folder: &Path, name: &str, lanes: &Lanes, logger: &Logger) {
    let names = SnapshotPaths::new(folder, name);
    let table =
        fs::rename(&names.restore, &names.restoring).and_then(|()| fs::read_to_string(&names.restoring));
    let restored = table
        .map_err(|error| format!("{} cannot be read: {error}", names.restoring.display()))
        .and_then(|table| cores::restore_table(lanes, &names.made, &table).map(|()| table));
    match restored {
        Ok(table) => logger.log(
            Level::Info,
            "table restored",
            &[("snapshot", FieldValue::text(name)), ("table", FieldValue::text(&table))],
        ),
        Err(reason) => {
            logger.log(
                Level::Error,
                "restore failed",
                &[("snapshot", FieldValue::text(name)), ("error", FieldValue::text(&reason))],
            );
            // If this fails too, the command ends with its timeout.
            let _ = fs::write(&names.failed, reason);
        }
    }
    let _ = fs::remove_file(&names.restoring);
}
