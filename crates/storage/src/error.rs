//! Errors of the storage layer. Their texts are for the operator of the server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::TableId;

/// An operating error of the storage layer. Cheap to clone, because a failed write is reported to
/// every task that waits for it.
#[derive(Clone, Debug)]
pub enum StorageError {
    /// The operating system refused a file operation.
    Io {
        /// The operation that failed, for example `write the commit log`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        error: Arc<std::io::Error>,
    },
    /// The contents of a file are not what was written to it.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage and its position.
        what: String,
    },
    /// A file has a different format version from the one that this program reads.
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The version this program reads.
        known: u32,
    },
    /// Another server has locked the folder.
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was written with a different number of cores.
    ShardCount {
        /// The folder.
        path: PathBuf,
        /// Number of cores that the folder was written with.
        folder: u32,
        /// Number of cores that this server was started with.
        asked: u32,
    },
    /// The process may not open as many files as the shards need.
    TooManyFiles {
        /// The folder.
        path: PathBuf,
        /// Number of files needed, including a margin for clients.
        needed: u64,
        /// Number of files that the process may open.
        limit: u64,
        /// Number of cores that the folder was written with.
        folder: u32,
        /// Number of cores that this server was started with.
        asked: u32,
    },
    /// A mutation exceeds the largest log record.
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A row, or the static cells of a partition, are too large to be extended, read, compacted, or
    /// stored in a table file.
    RowTooLarge {
        /// The token of the partition.
        token: i64,
        /// The limit in bytes.
        limit: usize,
    },
    /// The log has no room for a record, or other writers of the same level wait for theirs. The
    /// caller may wait for its turn.
    Overloaded {
        /// Bytes that the record takes in the log.
        bytes: usize,
    },
    /// An earlier write failed, and new writes are refused. They are accepted again after a restart
    /// or, if the disk was full, once it has free space. Reads continue.
    WritesRefused {
        /// The earlier failure.
        because: Arc<StorageError>,
    },
    /// The disk is full, and an accepted write waits for free space. It may still become durable.
    LogFull {
        /// The error of the log.
        because: Arc<StorageError>,
    },
    /// The table was dropped before the write arrived.
    Dropped {
        /// The table.
        table: TableId,
    },
    /// The caller cancelled the work.
    Cancelled,
    /// The shard has been shut down.
    Closed,
}

impl StorageError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>, error: std::io::Error) -> StorageError {
        StorageError::Io { doing, path: path.into(), error: Arc::new(error) }
    }

    /// Returns true if the error ends once the disk has free space.
    pub(crate) fn is_full(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            StorageError::Io { error, .. } => matches!(error.kind(), StorageFull | QuotaExceeded),
            StorageError::LogFull { .. } => true,
            _ => false,
        }
    }

    /// Returns true if a retry may succeed.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, StorageError::Io { .. })
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> StorageError {
        StorageError::Corrupt { path: path.into(), what: what.into() }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::io::ErrorKind;
        match self {
            StorageError::Io { doing, path, error } => {
                write!(f, "cannot {doing} at {}: {error}", path.display())?;
                match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded => f.write_str(
                        "; free some space on this disk, and a running server continues by itself",
                    ),
                    ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                        f.write_str("; the data folder must be writable by the user the server runs as")
                    }
                    _ => Ok(()),
                }
            }
            StorageError::Corrupt { path, what } => {
                let remedy = match path.extension().is_some_and(|end| end == "table") {
                    true => "scrub its table, or restore a snapshot",
                    // An older copy of the file alone would not fit the others.
                    false => "restore a snapshot of the whole folder",
                };
                write!(f, "{} is damaged: {what}; {remedy}", path.display())
            }
            StorageError::UnknownFormat { path, found, known } => write!(
                f,
                "{} has format version {found}, expected {known}; start the version of the program that wrote it",
                path.display()
            ),
            StorageError::Locked { path } => write!(
                f,
                "the data folder {} is in use by another server; stop it, or choose another folder",
                path.display()
            ),
            StorageError::ShardCount { path, folder, asked } => write!(
                f,
                "the data folder {} was written with {folder} cores, but the server was started with {asked}; \
                 start it with --cores {folder}, or load the data into a new folder",
                path.display()
            ),
            StorageError::TooManyFiles { path, needed, limit, folder, asked } => write!(
                f,
                "the data folder {} cannot be split over {asked} cores: {needed} files would be open at once, and \
                 the limit is {limit}; raise it with `ulimit -n` or LimitNOFILE=, or start with --cores {folder}",
                path.display()
            ),
            StorageError::RowTooLarge { token, limit } => write!(
                f,
                "a row of the partition with token {token} has more than {limit} bytes, or a collection with \
                 more than 67108864 elements; delete the row, and split its data into several rows"
            ),
            StorageError::TooLarge { bytes, limit } => {
                write!(
                    f,
                    "a mutation of {bytes} bytes is larger than the limit of {limit} bytes; split it up"
                )
            }
            StorageError::Overloaded { .. } => {
                f.write_str("too many writes wait for the commit log; try again later")
            }
            StorageError::WritesRefused { because } => {
                write!(f, "writes are refused since an earlier one failed: {because}")
            }
            StorageError::LogFull { because } => {
                write!(f, "the write waits for space on a full disk, and may be applied later: {because}")
            }
            StorageError::Dropped { table } => write!(f, "table {:032x} has been dropped", table.0),
            StorageError::Cancelled => f.write_str("the work was cancelled; its finished part is kept"),
            StorageError::Closed => f.write_str("the storage has been shut down"),
        }
    }
}

impl std::error::Error for StorageError {}
