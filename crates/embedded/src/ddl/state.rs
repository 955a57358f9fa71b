//! State of definition statements and snapshots, parts of [`crate::Embedded`].

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use crate::locks::keyed::{KeyGuard, KeyedLock};
use crate::system::view_tables::BuildProgress;

/// Most bytes of all definitions, unless the caller sets them.
const SCHEMA_BYTES_MAX: u64 = 64 << 20;

/// State of definition statements (core 0 only).
pub(crate) struct Definitions {
    /// Serializes them.
    lock: KeyedLock<()>,
    /// Most bytes of all definitions.
    pub(super) bytes_max: Cell<u64>,
    /// Bytes of the current ones, if they are known.
    pub(super) bytes: Cell<Option<u64>>,
    /// True after a panic between the log record of a change and the last core that adopts it.
    pub(super) half_changed: Cell<bool>,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions {
            lock: KeyedLock::default(),
            bytes_max: Cell::new(SCHEMA_BYTES_MAX),
            bytes: Cell::default(),
            half_changed: Cell::default(),
        }
    }
}

impl Definitions {
    /// Waits until no other definition statement runs.
    pub(crate) async fn lock(&self) -> KeyGuard<()> {
        self.lock.lock(()).await
    }

    /// Notes that the bytes of the current definitions are not known.
    pub(crate) fn forget_bytes(&self) {
        self.bytes.set(None);
    }
}

/// Builds in flight (core 0 only).
#[derive(Default)]
pub(crate) struct Builds {
    pub(super) is_running: Cell<bool>,
    /// Statements that wait for an index, by its data.
    pub(super) waiting: RefCell<Vec<(Uuid, lanes::sync::oneshot::Sender<()>)>>,
    /// Progress of the builds that have begun, by the data of the index or view.
    pub(super) progress: RefCell<HashMap<Uuid, BuildProgress>>,
}

impl Builds {
    /// Returns the progress of all builds in flight.
    pub(crate) fn progress(&self) -> HashMap<Uuid, BuildProgress> {
        self.progress.borrow().clone()
    }
}

/// Configuration of automatic snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AutoSnapshot {
    /// Makes one before DROP TABLE and DROP KEYSPACE.
    pub before_drop: bool,
    /// Makes one before TRUNCATE, and before a restore replaces the data of a table.
    pub before_truncate: bool,
    /// Age at which they are removed. `None`: never.
    pub keep: Option<Duration>,
}

/// State of snapshots.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Data folder. `None`: all data is in memory.
    pub(crate) dir: Option<PathBuf>,
    /// Configuration of automatic snapshots (core 0 only).
    pub(super) auto: Cell<AutoSnapshot>,
    /// Serializes snapshots, from the cut to the last file (core 0 only). Lock definitions first.
    pub(super) lock: KeyedLock<()>,
    /// This core's part of a snapshot in flight.
    pub(super) cut: RefCell<Option<storage::Cut>>,
}

impl Snapshots {
    /// Creates the state for a data folder.
    pub(crate) fn of(dir: Option<PathBuf>) -> Snapshots {
        Snapshots { dir, ..Snapshots::default() }
    }
}
