//! Disk space reserved for a full disk.
//!
//! A start needs a log segment and an edit of the manifest. So does dropping or truncating a table,
//! which frees space. A file of a few MiB reserves that space. It is removed when an edit or a
//! segment does not fit, and created again after a successful flush. Flushes and compactions do not
//! get the space, because they would not give it back.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::env::{Env, Mode};

/// The reserve of a shard, see the module.
#[derive(Debug)]
pub(crate) struct Reserve {
    env: Arc<dyn Env>,
    path: PathBuf,
    /// Size; 0 disables the reserve.
    bytes: u64,
    is_there: Cell<bool>,
}

impl Reserve {
    /// Returns the reserve in the folder of a shard. Its file may exist from an earlier process.
    pub(crate) fn new(env: Arc<dyn Env>, dir: &Path, bytes: u64) -> Reserve {
        Reserve { env, path: dir.join("reserve"), bytes, is_there: Cell::new(false) }
    }

    /// Frees the space. Returns true if the file existed.
    pub(crate) async fn release_space(&self) -> bool {
        self.is_there.set(false);
        self.env.remove(&self.path).await.is_ok()
    }

    /// Allocates the space, if the disk has it.
    pub(crate) async fn make(&self) {
        if self.bytes == 0 || self.is_there.get() {
            return;
        }
        let make = async {
            let file = self.env.open(&self.path, Mode::Create).await?;
            file.allocate(self.bytes).await?;
            file.sync().await
        };
        match make.await {
            Ok(()) => self.is_there.set(true),
            Err(_) => drop(self.env.remove(&self.path).await),
        }
    }
}
