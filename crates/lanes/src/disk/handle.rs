//! An open descriptor. A thread of the pool closes it: closing the last one of a file whose name is gone gives all of its space
//! back before the call returns, milliseconds for a large one, in which a fast lane would stand still.

use std::fs;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::pool::Pool;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Handle {
    /// None while it is being dropped only.
    file: Option<fs::File>,
    /// Who closes it; none is whoever drops it.
    pool: Option<Arc<Pool>>,
}

impl Handle {
    /// Closed by the pool.
    pub(crate) fn new(file: fs::File, pool: Arc<Pool>) -> Handle {
        Handle { file: Some(file), pool: Some(pool) }
    }

    /// Closed where it is dropped, and at once: a lock, which somebody else may want the moment after.
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
