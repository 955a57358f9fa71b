//! `COMPACT t` and `FLUSH t`: work on the files of every core, in the group of whoever asks, and ended with the statement.
//!
//! All cores work at a time. A statement that is cancelled, or whose time is over, cancels the work; what was merged by then stays
//! merged. The first error is the answer, and ends the others.

use engine::{Error, Outcome};
use storage::{Progress, StorageError, TableId};

use crate::{Embedded, storage_error};

/// The work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// Merges all runs of a table.
    Compact(TableId),
    /// Writes what memory holds to table files: tables share the log, so it is that of all.
    Flush,
}

/// Cancels the work on all cores when the statement ends.
struct CancelOnDrop(Progress);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Does the work on every core.
pub(crate) async fn run(asked: Asked) -> Result<Outcome, Error> {
    let progress = CancelOnDrop(Progress::default());
    let group = lanes::current_group();
    let cores: Vec<_> = (0..lanes::cores())
        .map(|core| {
            let progress = progress.0.clone();
            let work = move || async move { here(asked, group, progress).await };
            lanes::spawn(group, lanes::call(core, work))
        })
        .collect();
    let mut result = Ok(Outcome::Void);
    for core in cores {
        match core.await {
            Ok(()) => {}
            // The others were cancelled because of the first one.
            Err(error) if result.is_ok() => {
                progress.0.cancel();
                result = Err(storage_error(error));
            }
            Err(_) => {}
        }
    }
    result
}

async fn here(asked: Asked, group: lanes::Group, progress: Progress) -> Result<(), StorageError> {
    let shard = Embedded::local().shard.clone();
    match asked {
        Asked::Compact(table) => shard.compact(table, i64::MIN..=i64::MAX, group, &progress).await,
        Asked::Flush => shard.flush_with(&progress).await,
    }
}
