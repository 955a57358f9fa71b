//! Containment of damage to one file.
//!
//! 1. A file whose footer, filter or index cannot be read is opened as damaged: every read that may
//!    need it fails with an error that names it. The rest of the shard is served.
//! 2. A file in which a compaction found a damaged block is excluded from further compactions
//!    (`compaction/failed.rs`). Reads continue, and fail if they need that block.
//! 3. Both kinds stay in the manifest, and nothing that they may shadow is purged, until
//!    [`crate::Shard::scrub`] saves the readable part.

use std::io::ErrorKind;
use std::path::Path;

use crate::env::Env;
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::Jobs;
use crate::manifest::FileEntry;
use crate::table::file::TableFile;

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

impl Jobs {
    /// Reports the files that were damaged when the shard was opened.
    pub(crate) fn report_damaged(&self) {
        let state = self.state.borrow();
        for (id, table) in &state.tables {
            for error in table.files.iter().filter_map(|file| file.damage()) {
                let (table, error) = (state.settings.named(*id), error.clone());
                self.options.event_sink.send(&Event::FileDamaged { table, error });
            }
        }
    }
}
