//! Edits of the manifest: one at a time, durable before anyone relies on it.

use std::path::Path;

use crate::error::StorageError;
use crate::manifest::Manifest;
use crate::shard::Shard;
use crate::world::{Mode, World};

impl Shard {
    /// Edits the manifest: one edit at a time, durable when this returns.
    pub(crate) async fn edit(&self, change: impl FnOnce(&Shard, &mut Manifest)) -> Result<(), StorageError> {
        self.progress.wait(|| (!self.manifest_busy.replace(true)).then_some(())).await;
        let mut new = self.manifest.borrow().clone();
        change(self, &mut new);
        new.tidy();
        let result = write_manifest(&*self.world, &self.dir, &new).await;
        if result.is_ok() {
            // File numbers may have been given out meanwhile.
            let mut manifest = self.manifest.borrow_mut();
            new.next_file = manifest.next_file;
            *manifest = new;
        }
        self.manifest_busy.set(false);
        self.progress.wake();
        result
    }
}

/// Replaces the manifest on disk.
pub(crate) async fn write_manifest(
    world: &dyn World,
    dir: &Path,
    manifest: &Manifest,
) -> Result<(), StorageError> {
    replace_file(world, dir, "manifest", manifest.encode()).await
}

/// Writes a file beside the old one, syncs it and puts it in place.
pub(crate) async fn replace_file(
    world: &dyn World,
    dir: &Path,
    name: &str,
    bytes: Vec<u8>,
) -> Result<(), StorageError> {
    let (path, new) = (dir.join(name), dir.join(format!("{name}.new")));
    let write = async {
        let file = world.open(&new, Mode::Create).await?;
        file.write(0, bytes.into()).await?;
        file.sync().await?;
        world.rename(&new, &path).await?;
        world.sync_dir(dir).await
    };
    write.await.map_err(|error| StorageError::io("write", &path, error))
}
