//! What can be made to go wrong, and the record of what happened.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The kinds of operations a fault can be about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reading from a file.
    Read,
    /// Writing to a file, allocating and truncating it.
    Write,
    /// Syncing a file or folder.
    Sync,
    /// Opening, making, renaming, removing and listing files and folders.
    Names,
}

/// What happens to an operation that a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It fails with EIO. What a failed write leaves behind is left to chance; what a failed sync was to make durable is
    /// lost at the next crash, or not, whatever later syncs say.
    Broken,
    /// As [`Effect::Broken`], with ENOSPC: file systems that never overwrite in place may need space for any write.
    Full,
    /// It takes this many turns more.
    Stalled(u64),
}

/// A rule by which operations go wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which kind of operation.
    pub kind: Kind,
    /// Only where the path contains this text.
    pub path: String,
    /// What happens.
    pub effect: Effect,
    /// One operation of so many is hit, chosen by the seed; 1 hits each.
    pub one_in: u64,
    /// So many are hit and no more.
    pub times: u64,
}

impl Fault {
    /// Hits every operation of a kind.
    #[must_use]
    pub fn every(kind: Kind, effect: Effect) -> Fault {
        Fault { kind, path: String::new(), effect, one_in: 1, times: u64::MAX }
    }

    pub(super) fn is_about(&self, kind: Kind, path: &Path) -> bool {
        self.times > 0
            && self.kind == kind
            && (self.path.is_empty() || path.to_string_lossy().contains(&self.path))
    }
}

impl Effect {
    /// The error of an operation that fails.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            Effect::Broken => Some(io::Error::from_raw_os_error(libc::EIO)),
            Effect::Full => Some(io::Error::from_raw_os_error(libc::ENOSPC)),
            Effect::Stalled(_) => None,
        }
    }
}

/// One line of the record of what the disk did.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) what: &'static str,
    pub(super) path: PathBuf,
    /// Offset and bytes, where it has them.
    pub(super) range: Option<(u64, u64)>,
    pub(super) error: Option<io::ErrorKind>,
}

impl fmt::Display for Step {
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
