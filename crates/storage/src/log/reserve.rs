//! Space on the disk that is kept for the time when it is full.
//!
//! A start needs a log segment and an edit of the manifest, and so does dropping or truncating a table, which is how space
//! comes about. A file of a few MiB stands for that space. It is removed when an edit or a segment does not fit, and made
//! again after a flush succeeded. Flushes and compactions do not get the space: they would use it up for good.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::world::{Mode, World};

/// See the module.
#[derive(Debug)]
pub(crate) struct Reserve {
    world: Arc<dyn World>,
    path: PathBuf,
    /// 0: no space is kept.
    bytes: u64,
    is_there: Cell<bool>,
}

impl Reserve {
    /// The reserve in a shard's folder, which may have one from an earlier life.
    pub(crate) fn new(world: Arc<dyn World>, dir: &Path, bytes: u64) -> Reserve {
        Reserve { world, path: dir.join("reserve"), bytes, is_there: Cell::new(false) }
    }

    /// Frees the space. Returns whether there was any.
    pub(crate) async fn give_up(&self) -> bool {
        self.is_there.set(false);
        self.world.remove(&self.path).await.is_ok()
    }

    /// Takes the space, if there is enough.
    pub(crate) async fn make(&self) {
        if self.bytes == 0 || self.is_there.get() {
            return;
        }
        let make = async {
            let file = self.world.open(&self.path, Mode::Create).await?;
            file.allocate(self.bytes).await?;
            file.sync().await
        };
        match make.await {
            Ok(()) => self.is_there.set(true),
            Err(_) => drop(self.world.remove(&self.path).await),
        }
    }
}
