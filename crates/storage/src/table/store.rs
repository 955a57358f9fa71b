//! The files of a shard, of all tables: the manifest that names them, the caches of their blocks,
//! and the removal of files that are no longer live.
//!
//! Edits of the manifest are made one at a time, and are durable before anything relies on them. A
//! file that an edit removed stays on disk until its last reader is done.

use std::cell::{Cell, Ref, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::env::Env;
use crate::error::StorageError;
use crate::log::reserve::Reserve;
use crate::manifest::mark::Mark;
use crate::manifest::versions::Versions;
use crate::manifest::{Edit, Manifest, seal_of};
use crate::signal::Signal;
use crate::table::cache::Cache;
use crate::table::file::{TableFile, table_name};
use crate::table::scan_cache::ScanCache;

/// Pause between removals of a deleted file's chunks from the scan cache.
const SCAN_CACHE_REST: Duration = Duration::from_millis(1);

/// The files of a shard, see the module.
#[derive(Debug)]
pub(crate) struct FileStore {
    env: Arc<dyn Env>,
    /// The folder of the shard.
    pub(crate) dir: PathBuf,
    manifest: RefCell<Manifest>,
    /// An edit of the manifest is in flight, or a [`ManifestHold`] prevents one.
    is_busy: Cell<bool>,
    /// The file of the manifest. `None` during a write, and after a failed one.
    versions: RefCell<Option<Versions>>,
    /// The mark of the shard. `None`: the shard is in memory.
    pub(crate) mark: Option<Rc<Mark>>,
    /// The greatest number that an edit was written with, successful or not.
    last_edit: Cell<u64>,
    reserve: Rc<Reserve>,
    /// Woken after each edit.
    progress: Rc<Signal>,
    pub(crate) cache: RefCell<Cache>,
    /// Uses the part of `cache_bytes` that the block cache leaves free.
    pub(crate) scan_cache: Arc<ScanCache>,
    /// Files that are no longer live, kept until their last reader is done.
    obsolete: RefCell<Vec<Arc<TableFile>>>,
    /// Files of a failed edit of the manifest. The manifest on disk may name them until another
    /// edit succeeds.
    unconfirmed: RefCell<Vec<Arc<TableFile>>>,
    /// Truncations that are done in memory but not yet in the manifest.
    truncating: Cell<u32>,
}

/// The manifest of a shard, ready for edits. Empty for a shard in memory.
#[derive(Debug, Default)]
pub(crate) struct OpenManifest {
    pub(crate) manifest: Manifest,
    /// `None`: the next edit writes a new file.
    pub(crate) versions: Option<Versions>,
    pub(crate) mark: Option<Mark>,
    /// The greatest number that an edit was written with.
    pub(crate) last_edit: u64,
}

/// A table file to create.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) seal: u64,
}

/// Prevents edits of the manifest until it is dropped.
#[derive(Debug)]
pub(crate) struct ManifestHold(Rc<FileStore>);

impl Drop for ManifestHold {
    fn drop(&mut self) {
        self.0.is_busy.set(false);
        self.0.progress.wake();
    }
}

impl FileStore {
    pub(crate) fn new(
        env: Arc<dyn Env>,
        dir: PathBuf,
        open: OpenManifest,
        cache_bytes: usize,
        reserve: Rc<Reserve>,
        progress: Rc<Signal>,
    ) -> FileStore {
        let scan_cache = Arc::new(ScanCache::new(cache_bytes));
        FileStore {
            env,
            dir,
            manifest: RefCell::new(open.manifest),
            is_busy: Cell::new(false),
            versions: RefCell::new(open.versions),
            mark: open.mark.map(Rc::new),
            last_edit: Cell::new(open.last_edit),
            reserve,
            progress,
            cache: RefCell::new(Cache::new(cache_bytes, scan_cache.clone())),
            scan_cache,
            obsolete: RefCell::default(),
            unconfirmed: RefCell::default(),
            truncating: Cell::new(0),
        }
    }

    pub(crate) fn manifest(&self) -> Ref<'_, Manifest> {
        self.manifest.borrow()
    }

    /// Edits the manifest, one edit at a time, and returns when the edit is durable. The cost
    /// depends on the change, unless the file is rewritten.
    pub(crate) async fn edit(&self, change: impl FnOnce(&mut Edit)) -> Result<(), StorageError> {
        self.take_turn().await;
        let mut edit = Edit::default();
        change(&mut edit);
        let versions = self.versions.borrow_mut().take();
        let mut written = match versions.filter(|versions| !versions.is_long()) {
            Some(versions) => self.append(versions, &edit).await,
            None => self.begin_with(&edit).await,
        };
        if written.as_ref().is_err_and(StorageError::is_full) && self.reserve.release_space().await {
            written = self.begin_with(&edit).await;
        }
        let result = written.map(|versions| {
            *self.versions.borrow_mut() = Some(versions);
            edit.apply(&mut self.manifest.borrow_mut());
            // The files of the last failed edit are not live: this manifest does not name them.
            self.obsolete.borrow_mut().append(&mut self.unconfirmed.borrow_mut());
        });
        self.is_busy.set(false);
        self.progress.wake();
        result
    }

    async fn take_turn(&self) {
        self.progress.wait(|| (!self.is_busy.replace(true)).then_some(())).await;
    }

    /// Waits for the edit in flight, and prevents others until the result is dropped.
    pub(crate) async fn hold(self: &Rc<Self>) -> ManifestHold {
        self.take_turn().await;
        ManifestHold(self.clone())
    }

    /// Appends the edit to the file of the manifest.
    async fn append(&self, versions: Versions, edit: &Edit) -> Result<Versions, StorageError> {
        let bytes = edit.encode(&self.manifest.borrow());
        self.last_edit.set(versions.last + 1);
        let versions = versions.append(&self.dir, &bytes).await?;
        self.state(versions).await
    }

    /// Rewrites the file of the manifest with the edit applied.
    async fn begin_with(&self, edit: &Edit) -> Result<Versions, StorageError> {
        let mut new = self.manifest.borrow().clone();
        edit.clone().apply(&mut new);
        let removed: Vec<(u64, u64)> = {
            let obsolete = self.obsolete.borrow();
            let unconfirmed = self.unconfirmed.borrow();
            obsolete.iter().chain(&*unconfirmed).map(|file| (file.id, file.entry.seal)).collect()
        };
        // An earlier attempt may have reached the disk, so its number is not used again.
        let number = self.last_edit.get() + 1;
        self.last_edit.set(number);
        let versions = Versions::begin(&*self.env, &self.dir, &new, number, &removed).await?;
        self.state(versions).await
    }

    /// States in the mark that the last edit is durable.
    async fn state(&self, versions: Versions) -> Result<Versions, StorageError> {
        let stamp = self.manifest.borrow().stamp;
        if let Some(mark) = &self.mark {
            mark.state_edit(stamp, versions.last, versions.chain).await?;
        }
        Ok(versions)
    }

    /// Returns a new file.
    pub(crate) fn next_file(&self) -> NewFile {
        let mut manifest = self.manifest.borrow_mut();
        manifest.next_file += 1;
        let id = manifest.next_file - 1;
        NewFile { id, path: self.path_of(id), seal: seal_of(manifest.stamp, id) }
    }

    pub(crate) fn path_of(&self, file: u64) -> PathBuf {
        self.dir.join("tables").join(table_name(file))
    }

    /// Removes files that the manifest does not name, as soon as they have no readers.
    pub(crate) fn retire(&self, files: impl IntoIterator<Item = Arc<TableFile>>) {
        self.obsolete.borrow_mut().extend(files);
    }

    /// As [`FileStore::retire`], for files of a failed edit. It may have been written all the same,
    /// so that they stay until another edit succeeds.
    pub(crate) fn retire_unconfirmed(&self, files: impl IntoIterator<Item = Arc<TableFile>>) {
        self.unconfirmed.borrow_mut().extend(files);
    }

    /// Returns the bytes of files that wait for their removal.
    pub(crate) fn obsolete_bytes(&self) -> u64 {
        self.obsolete.borrow().iter().map(|file| file.bytes).sum()
    }

    /// Counts a truncation that is done in memory. The manifest may name its files until
    /// [`FileStore::end_truncation`].
    pub(crate) fn begin_truncation(&self) {
        self.truncating.set(self.truncating.get() + 1);
    }

    pub(crate) fn end_truncation(&self) {
        self.truncating.set(self.truncating.get() - 1);
    }

    pub(crate) fn is_truncating(&self) -> bool {
        self.truncating.get() > 0
    }

    /// Removes obsolete files without readers. Does nothing while a TRUNCATE is in flight, because
    /// the manifest may still name its files.
    pub(crate) async fn sweep(&self) {
        let settled = !self.is_truncating();
        let is_dead = |file: &mut Arc<TableFile>| settled && TableFile::is_unused(file);
        let dead: Vec<_> = self.obsolete.borrow_mut().extract_if(.., is_dead).collect();
        for file in dead {
            self.cache.borrow_mut().forget(file.id, file.index.len());
            while !self.scan_cache.forget_some(file.id) {
                self.env.sleep(SCAN_CACHE_REST).await;
            }
            // If the removal fails, the next start tries again.
            let _ = self.env.remove(&file.path).await;
        }
    }
}
