//! Files that several shards have open: after a change of the number of cores one file belongs to several of them, each with a
//! name of its own. It is opened once in the process; descriptor, filter and index are shared.
//!
//! Fast lanes meet here while shards are opened, and later never: the lock guards a look-up, and no lane
//! has it across an await. Two shards that open the same file at the same moment may both read it; the second
//! then lets go of what it read. What is found must have the footer of the file at hand, so that a folder
//! that was copied or made anew is never taken for another.

use std::hash::BuildHasher;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::manifest::Origin;
use crate::table::{Footer, IndexEntry};
use crate::world::File;

/// What is open of a file.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) file: Arc<dyn File>,
    pub(crate) bytes: u64,
    pub(crate) filter: Bytes,
    pub(crate) index: Arc<[IndexEntry]>,
    pub(crate) footer: Footer,
    /// Memory that the filter and the index take, bytes.
    pub(crate) resident_bytes: usize,
}

/// A hash of the folder's name, and the file.
type Key = (u64, Origin);

/// The folder's part of a key.
pub(crate) fn folder_key(root: &Path) -> u64 {
    FxBuildHasher.hash_one(root)
}

/// Files that are open, by where they were written.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles(Mutex<FxHashMap<Key, Weak<Opened>>>);

impl SharedFiles {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Key, Weak<Opened>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is open of a file with this footer, if anything is.
    pub(crate) fn find(&self, folder: u64, origin: Origin, footer: &Footer) -> Option<Arc<Opened>> {
        let opened = self.lock().get(&(folder, origin))?.upgrade()?;
        (opened.footer == *footer).then_some(opened)
    }

    /// Notes what was opened; returns what another shard has opened meanwhile, if it has.
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

    /// Files that are open.
    #[cfg(test)]
    pub(crate) fn open(&self) -> usize {
        self.lock().values().filter(|opened| opened.strong_count() > 0).count()
    }

    /// Forgets everything: after a crash of a simulated machine.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}
