//! Files that a thread of the pool closes. Closing the last descriptor of a file without a name
//! frees all of its space before the call returns. For a large file that takes milliseconds, in
//! which a fast lane would stall.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};

use crate::queue::Inbox;
use crate::sys;

/// Files to close, and the counter in the kernel that wakes one thread of the pool for each job.
pub(crate) struct Closer {
    files: Inbox<File>,
    counter: File,
    stop: AtomicBool,
}

impl std::fmt::Debug for Closer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closer")
    }
}

impl Closer {
    pub(crate) fn new() -> io::Result<Closer> {
        Ok(Closer { files: Inbox::new(), counter: sys::job_counter()?, stop: AtomicBool::new(false) })
    }

    /// Closes a file soon.
    pub(crate) fn close(&self, file: File) {
        if self.is_stopped() {
            return; // no thread is left to close it, and no lane to stall
        }
        drop(self.files.push(file));
        self.count_jobs(1);
    }

    /// Takes the files to close. Only one thread at a time may call it.
    pub(crate) fn take(&self) -> impl Iterator<Item = File> + use<> {
        self.files.take()
    }

    /// Wakes a thread of the pool for each new job.
    pub(crate) fn count_jobs(&self, jobs: u64) {
        // Fails only if 2^64 jobs are waiting.
        drop((&self.counter).write_all(&jobs.to_ne_bytes()));
    }

    /// Waits for a job.
    ///
    /// # Errors
    /// The call was interrupted.
    pub(crate) fn wait_for_job(&self) -> io::Result<()> {
        (&self.counter).read_exact(&mut [0; 8])
    }

    /// Ends the pool of `threads` threads.
    pub(crate) fn stop(&self, threads: usize) {
        self.stop.store(true, SeqCst);
        self.count_jobs(threads as u64);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }
}
