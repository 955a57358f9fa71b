//! Temporary folders.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Path of a test's folder, which is removed on drop. Two are never the same.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Chooses a path whose last part contains `name`. Nothing is there.
    #[must_use]
    pub fn new(name: &str) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("fairlane-{name}-{}-{number}", std::process::id()));
        // An earlier process of this number may have been killed.
        drop(std::fs::remove_dir_all(&path));
        Folder(path)
    }

    /// Creates an empty folder.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "tests prepare files outside of the lanes")]
    pub fn empty(name: &str) -> Folder {
        let folder = Folder::new(name);
        std::fs::create_dir(&folder.0).expect("a temporary folder");
        folder
    }

    /// Returns the path, where a reference does not coerce to it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
