//! Containment of damage to one file.
//!
//! 1. A file whose footer, filter or index cannot be read is opened as damaged: every read that may
//!    need it fails with an error that names it. The rest of the shard is served.
//! 2. A file in which a compaction found a damaged block is excluded from further compactions.
//!    Reads continue, and fail if they need that block.
//! 3. Both kinds stay in the manifest, and nothing that they may shadow is purged, until
//!    [`crate::Shard::scrub`] saves the readable part.

use std::io::ErrorKind;
use std::path::Path;

use crate::background::Background;
use crate::env::Env;
use crate::error::StorageError;
use crate::event::Event;
use crate::manifest::FileEntry;
use crate::model::TableId;
use crate::table::file::TableFile;

/// Successive failed reads of a file after which its disk is assumed to have a bad sector.
const READS_FAILED_MAX: u32 = 3;

/// Returns true if the error concerns one file, and others may be intact.
pub(crate) fn concerns_one_file(error: &StorageError) -> bool {
    /// Errno of Linux for an I/O error of a device.
    const EIO: i32 = 5;
    match error {
        StorageError::Corrupt { .. } => true,
        StorageError::Io { error, .. } => {
            error.raw_os_error() == Some(EIO)
                || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

/// Opens a table file of a folder (see `folder_key`). If the file itself causes an error, opens it
/// as damaged.
pub(crate) async fn open_or_contain(
    env: &dyn Env,
    path: &Path,
    entry: &FileEntry,
    folder: u64,
) -> Result<TableFile, StorageError> {
    match TableFile::open_shared(env, path.to_owned(), entry.clone(), folder).await {
        Err(error) if concerns_one_file(&error) => {
            Ok(TableFile::damaged(path.to_owned(), entry.clone(), error))
        }
        opened => opened,
    }
}

impl Background {
    /// Reports the files that were damaged when the shard was opened.
    pub(crate) fn report_damaged(&self) {
        let state = self.state.borrow();
        for (id, table) in &state.tables {
            for error in table.files.iter().filter_map(|file| file.damage()) {
                let (table, error) = (state.named(*id), error.clone());
                self.options.event_sink.send(&Event::FileDamaged { table, error });
            }
        }
    }

    /// Excludes from compactions the file that an error of a compaction names, if the file is
    /// damaged or reading it failed repeatedly. Returns true if it did, so that the compaction can
    /// be retried without the file.
    pub(crate) fn exclude_damaged(&self, table: TableId, error: &StorageError) -> bool {
        let is_read = |doing: &str| doing == "read the table file";
        let state = &mut *self.state.borrow_mut();
        let Some(files) = state.tables.get_mut(&table) else { return false };
        let path = match error {
            StorageError::Corrupt { path, .. } => path,
            StorageError::Io { doing, path, .. }
                if is_read(doing) && files.failures.in_a_row + 1 >= READS_FAILED_MAX =>
            {
                path
            }
            _ => return false,
        };
        let Some(file) = files.files.iter().find(|file| file.path == *path && !file.is_excluded()) else {
            return false;
        };
        let id = file.id;
        files.files.exclude(id);
        let table = state.named(table);
        self.options.event_sink.send(&Event::FileDamaged { table, error: error.clone() });
        true
    }
}
