//! File of the audit log, written by a thread outside of the lanes and readable by its owner only.
//! A full file is renamed to `FILE.1`, the one before it to `FILE.2`, up to [`FILES_KEPT`]. The
//! oldest one is overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use access::{AuditLog, audit_log};
use server::logging::{FieldValue, Level, Logger};

use crate::settings::Settings;

/// Size of a full file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Number of full files kept. With the current file they have 576 MiB.
const FILES_KEPT: u32 = 8;
/// Interval between two reports of a disk that fails.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The audit log and the thread that writes it.
pub(crate) struct Audit {
    pub(crate) log: Arc<AuditLog>,
    writer: JoinHandle<()>,
}

impl Audit {
    /// Opens the file of the settings. `None`: the audit log is off.
    ///
    /// # Errors
    /// One sentence: the file cannot be opened.
    pub(crate) fn start(settings: &Settings, logger: &Logger) -> Result<Option<Audit>, String> {
        let Some(path) = &settings.audit_log else { return Ok(None) };
        let keyspaces = settings.audit_keyspaces.split(',').map(str::trim).filter(|name| !name.is_empty());
        let (log, lines) = audit_log(keyspaces.map(str::to_owned).collect(), settings.audit_literals);
        let file = Rotated::open(path, FILE_BYTES_MAX, logger.clone())
            .map_err(|error| format!("the audit log {} cannot be opened: {error}.", path.display()))?;
        let writer = std::thread::spawn(move || {
            // `Rotated` logs its failures.
            let _ = lines.write_to(file);
        });
        Ok(Some(Audit { log, writer }))
    }

    /// Waits until the queued lines are written, for a second at most. The server has to be
    /// stopped.
    pub(crate) fn end(self) {
        drop(self.log);
        for _ in 0..100 {
            if self.writer.is_finished() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A file that is replaced by a new one when it is full. A failed write loses its lines and is
/// logged. It is not an error for the caller, whose thread goes on with the next lines.
struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
    logger: Logger,
    reported: Option<Instant>,
}

impl Rotated {
    fn open(path: &Path, bytes_max: u64, logger: Logger) -> io::Result<Rotated> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Rotated { path: path.to_owned(), file, bytes, bytes_max, logger, reported: None })
    }

    /// Renames the files and opens a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let name = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..FILES_KEPT).rev() {
            if name(number).exists() {
                std::fs::rename(name(number), name(number + 1))?;
            }
        }
        std::fs::rename(&self.path, name(1))?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        Ok(())
    }

    /// Appends bytes, to a new file if they do not fit into this one.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + bytes.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

impl Write for Rotated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.put(bytes)
            && self.reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL)
        {
            self.reported = Some(Instant::now());
            let path = self.path.display();
            self.logger.log(
                Level::Error,
                "audit log cannot be written",
                &[("file", FieldValue::text(&path)), ("error", FieldValue::text(&error))],
            );
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file for appending. Creates it for its owner only.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn full_file_is_numbered_and_the_oldest_is_removed() {
        let folder = std::env::temp_dir().join(format!("fairlane-audit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let path = folder.join("audit.log");
        let mut file = Rotated::open(&path, 10, Logger::silent()).expect("opens");
        for number in 0..12 {
            file.write_all(format!("line {number:03}\n").as_bytes()).expect("never fails");
        }
        drop(file);
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
        assert_eq!((read("audit.log"), read("audit.log.1")), ("line 011\n".into(), "line 010\n".into()));
        assert_eq!(read("audit.log.8"), "line 003\n");
        assert!(!folder.join("audit.log.9").exists());
        let mode = std::fs::metadata(&path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // An existing file is continued.
        let mut file = Rotated::open(&path, 100, Logger::silent()).expect("opens");
        file.write_all(b"more\n").expect("never fails");
        assert_eq!(read("audit.log"), "line 011\nmore\n");
        std::fs::remove_dir_all(&folder).expect("the folder is removed");
    }
}
