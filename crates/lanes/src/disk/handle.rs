//! Open descriptor. A thread of the pool closes it: closing the last descriptor of a file without a
//! name frees all of its space before the call returns. For a large file that takes milliseconds,
//! in which a fast lane would stall.

use std::fs;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::pool::Pool;

/// Open descriptor. The head of this file explains why the pool closes it.
#[derive(Debug)]
pub(crate) struct Handle {
    /// `None` only while it is being dropped.
    file: Option<fs::File>,
    /// Pool that closes it; `None`: it is closed where it is dropped.
    pool: Option<Arc<Pool>>,
}

impl Handle {
    /// Creates a handle that the pool closes.
    pub(crate) fn new(file: fs::File, pool: Arc<Pool>) -> Handle {
        Handle { file: Some(file), pool: Some(pool) }
    }

    /// Creates a handle that is closed where it is dropped, and at once: a lock, which another
    /// process may want a moment later.
    pub(crate) fn closed_at_once(file: fs::File) -> Handle {
        Handle { file: Some(file), pool: None }
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
        if let (Some(file), Some(pool)) = (self.file.take(), &self.pool) {
            pool.close(file);
        }
    }
}
