//! Faults that tests inject, and the record of steps.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Kind of operations that a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Reading from a file.
    Read,
    /// Writing to a file, allocating and truncating it.
    Write,
    /// Syncing a file or folder.
    Sync,
    /// Opening, making, renaming, removing and listing files and folders.
    Names,
}

/// Effect on an operation that a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It fails with EIO. A failed write leaves a random part behind. Changes of a failed sync may
    /// be lost at the next crash, even if later syncs succeed.
    Broken,
    /// It fails as with [`Effect::Broken`], but with ENOSPC: file systems that never overwrite in
    /// place may need space for any write.
    Full,
    /// It takes this many more polls.
    Stalled(u64),
}

/// Rule by which operations fail.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Kind of operation.
    pub kind: FaultKind,
    /// Text that the path must contain.
    pub path: String,
    /// Effect on the operation.
    pub effect: Effect,
    /// One operation in this many is hit, chosen by the seed; 1 hits each.
    pub one_in: u64,
    /// Number of operations that are still to be hit.
    pub times: u64,
}

impl Fault {
    /// Returns a fault that hits every operation of a kind.
    #[must_use]
    pub fn every(kind: FaultKind, effect: Effect) -> Fault {
        Fault { kind, path: String::new(), effect, one_in: 1, times: u64::MAX }
    }

    pub(super) fn is_about(&self, kind: FaultKind, path: &Path) -> bool {
        self.times > 0
            && self.kind == kind
            && (self.path.is_empty() || path.to_string_lossy().contains(&self.path))
    }
}

impl Effect {
    /// Returns the error of an operation that fails.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            Effect::Broken => Some(io::Error::from_raw_os_error(libc::EIO)),
            Effect::Full => Some(io::Error::from_raw_os_error(libc::ENOSPC)),
            Effect::Stalled(_) => None,
        }
    }
}

/// One line of the record of steps.
#[derive(Clone, Debug)]
pub(super) struct RecordedStep {
    pub(super) number: u64,
    pub(super) what: &'static str,
    pub(super) path: PathBuf,
    /// Offset and length in bytes, if the operation has them.
    pub(super) range: Option<(u64, u64)>,
    pub(super) error: Option<io::ErrorKind>,
}

impl fmt::Display for RecordedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {} {}", self.number, self.what, self.path.display())?;
        if let Some((offset, bytes)) = self.range {
            write!(f, " at {offset}, {bytes} bytes")?;
        }
        match self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}
