//! Open descriptor, closed by a thread of the pool.

use std::fs;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use crate::disk::io::closer::Closer;

/// Open descriptor. [`Closer`] explains why the pool closes it.
#[derive(Debug)]
pub(crate) struct Handle {
    /// `None` only while it is being dropped.
    file: Option<fs::File>,
    /// Closes it; `None`: it is closed where it is dropped.
    closer: Option<Arc<Closer>>,
}

impl Handle {
    /// Creates a handle that the pool closes.
    pub(crate) fn new(file: fs::File, closer: Arc<Closer>) -> Handle {
        Handle { file: Some(file), closer: Some(closer) }
    }

    /// Creates a handle that is closed where it is dropped, and at once: a lock, which another
    /// process may want a moment later.
    pub(crate) fn closed_at_once(file: fs::File) -> Handle {
        Handle { file: Some(file), closer: None }
    }
}

impl Deref for Handle {
    type Target = fs::File;

    fn deref(&self) -> &fs::File {
        self.file.as_ref().expect("there until it is dropped")
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        (**self).as_raw_fd()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Some(file), Some(closer)) = (self.file.take(), &self.closer) {
            closer.close(file);
        }
    }
}
