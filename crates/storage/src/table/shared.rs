//! Files that several shards have open. After a change of the number of cores, one file may belong
//! to several shards, each with its own hard link. The process opens it once: shards share its
//! descriptor, filter and index.
//!
//! Fast lanes take the lock only while they open shards, for one look-up, and never hold it over an
//! await. Two shards that open the same file at the same moment may both read it; the second then
//! drops its copy. A match must have the footer of the file at hand, so that a copied or recreated
//! folder is never confused with another.

use std::hash::BuildHasher;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::env::File;
use crate::manifest::Origin;
use crate::table::{Footer, IndexEntry};

/// The open parts of a file.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) file: Arc<dyn File>,
    pub(crate) bytes: u64,
    pub(crate) filter: Bytes,
    pub(crate) index: Arc<[IndexEntry]>,
    pub(crate) footer: Footer,
    /// Memory of the filter and the index, bytes.
    pub(crate) resident_bytes: usize,
}

/// A hash of the folder's path, and the file's origin.
type Key = (u64, Origin);

/// Returns the folder's part of a key.
pub(crate) fn folder_key(root: &Path) -> u64 {
    FxBuildHasher.hash_one(root)
}

/// Open files by the place where they were written.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles(Mutex<FxHashMap<Key, Weak<Opened>>>);

impl SharedFiles {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, Weak<Opened>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the open parts of a file with this footer, if another shard has it open.
    pub(crate) fn find(&self, folder: u64, origin: Origin, footer: &Footer) -> Option<Arc<Opened>> {
        let opened = self.lock().get(&(folder, origin))?.upgrade()?;
        (opened.footer == *footer).then_some(opened)
    }

    /// Registers an opened file. Returns another shard's copy if one was registered meanwhile.
    pub(crate) fn keep(&self, folder: u64, origin: Origin, opened: Opened) -> Arc<Opened> {
        let files = &mut *self.lock();
        let there = files.get(&(folder, origin)).and_then(Weak::upgrade);
        if let Some(there) = there.filter(|there| there.footer == opened.footer) {
            return there;
        }
        files.retain(|_, opened| opened.strong_count() > 0);
        let opened = Arc::new(opened);
        files.insert((folder, origin), Arc::downgrade(&opened));
        opened
    }

    /// Returns the number of open files.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.lock().values().filter(|opened| opened.strong_count() > 0).count()
    }

    /// Forgets everything, after a crash of a simulated machine.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}
