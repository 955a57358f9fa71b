//! Disk service: files, read and written by position, and the few operations on folders that a
//! database needs. Every request has the group of its task, waits its turn in the fair queue of its
//! core, and is counted. The fast lane of a core sends the requests of its heavy tasks: a heavy
//! lane never enters the file system itself.
//!
//! ```text
//!   task ──▶ fair queue of the core ──▶ io_uring of the core ─────▶ completion wakes the task
//!                (sched::IoQueue)   └─▶ thread pool of the server ──▶ (folders; everything where there is no io_uring)
//!                       │
//!           token bucket of the disk, shared by all cores
//! ```
//!
//! `io` is below the executor, which polls it, and `fs` above it.

mod fs;
pub(crate) mod io;

pub use fs::file::{File, OpenOptions, lock_file, open};
pub use fs::process::ProcessUse;
pub use fs::remove::{STEP_BYTES as REMOVE_STEP_BYTES, remove_paced};
pub use fs::{
    count_lookup, create_dir_all, exists, hard_link, kernel_use, list_dir, open_files_max, process_use,
    remove_dir, remove_file, rename, space, sync_dir,
};
pub use io::buffer::{AlignedBuf, BLOCK};
pub use io::kernel::KernelUse;

pub use crate::counters::Cached;
