//! Prefaulting of memory before the allocator takes it.
//!
//! The first write to memory from the kernel waits while the kernel finds and clears it. That takes
//! 0.1 ms for a huge page, and 5 to 10 ms if the host of a virtual machine has to find it first. A
//! fast lane with a growing memtable must not wait for that. So a thread of the idle class checks
//! how much mimalloc has taken, and keeps some more prefaulted:
//!
//! ```text
//!   an arena:   │ taken │ taken │ taken │ ready │ ready │       │       │       blocks of 32 MiB, lowest first
//! ```
//!
//! The thread leaves out the first page of each block. mimalloc writes to it when it takes the
//! block, and the kernel then reports the page as mapped. mimalloc itself does not report which
//! blocks it has taken, and its options for reserved memory map nothing. Freed blocks are kept and
//! stay mapped, so this is useful only after [`crate::keep_freed_memory`].
//!
//! Limits: the thread that needs an arena (1 GiB at first) reserves it, so its first block is not
//! prefaulted. While the kernel prepares a huge page, other threads that map memory wait.
#![expect(unsafe_code, reason = "memory that the allocator manages, and a call of the kernel about it")]

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use crate::sys;

/// Size of a block of an arena (a segment of mimalloc 2), bytes.
const BLOCK: usize = 32 << 20;
/// Memory prefaulted at a time, bytes: a huge page.
const STEP: usize = 2 << 20;
/// Interval between two checks. One block in that time is 640 MB a second, more than a core writes
/// to memory that it keeps.
const CHECK_EVERY: Duration = Duration::from_millis(50);

unsafe extern "C" {
    /// Returns the address of an arena of mimalloc 2, which its binding does not name, and stores
    /// its size in bytes. Null beyond the last one. Arenas are numbered from 1.
    fn mi_arena_area(id: c_int, size: *mut usize) -> *mut c_void;
}

/// Thread that keeps memory prefaulted until this is dropped. It does nothing if mimalloc is not
/// the program's allocator.
#[derive(Debug)]
pub struct MemoryAhead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryAhead {
    /// Keeps `ahead` bytes prefaulted beyond those in use, up to `limit` bytes in all. Both are
    /// rounded down to blocks of 32 MiB.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(ahead: u64, limit: u64) -> io::Result<MemoryAhead> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            // If the kernel refuses, the thread competes with other work. That is rare and short.
            let _ = sys::become_idle_class();
            let mut blocks = Blocks { found: Vec::new(), arenas: 0, mapped: 0 };
            while !stopped.load(Relaxed) {
                let kept = blocks.prefault(ahead as usize / BLOCK, limit as usize / BLOCK, &stopped);
                match kept.map_err(|error| error.raw_os_error()) {
                    // A kernel before 5.14, or memory that mimalloc was configured not to commit:
                    // the first use faults it in, as without this thread.
                    Err(Some(libc::EINVAL | libc::EFAULT)) => return,
                    // Memory may be available later.
                    Ok(_) | Err(_) => park_timeout(CHECK_EVERY),
                }
            }
        };
        #[expect(clippy::disallowed_methods, reason = "it waits in the kernel, where no lane may")]
        let thread = std::thread::Builder::new().name("memory".into()).spawn(work)?;
        Ok(MemoryAhead { stop, thread: Some(thread) })
    }
}

impl Drop for MemoryAhead {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Blocks of the allocator, in the order in which it takes them.
struct Blocks {
    found: Vec<NonNull<c_void>>,
    /// Number of arenas whose blocks are in `found`.
    arenas: c_int,
    /// Number of blocks that are taken or prefaulted.
    mapped: usize,
}

impl Blocks {
    fn find(&mut self) {
        loop {
            let mut size = 0;
            // SAFETY: `size` is valid for writes, and any number is permitted.
            let begin = NonNull::new(unsafe { mi_arena_area(self.arenas + 1, &raw mut size) });
            let Some(begin) = begin else { return };
            self.arenas += 1;
            // SAFETY: within the arena.
            self.found.extend((0..size / BLOCK).map(|index| unsafe { begin.byte_add(index * BLOCK) }));
        }
    }

    /// Prefaults blocks until `ahead` of them follow the last one taken, or `limit` in all are
    /// mapped. Returns the number of blocks prefaulted.
    fn prefault(&mut self, ahead: usize, limit: usize, stopped: &AtomicBool) -> io::Result<usize> {
        self.find();
        let taken =
            (0..self.found.len()).rfind(|&index| is_mapped(self.found[index])).map_or(0, |last| last + 1);
        // If more blocks were taken at once than were prefaulted, their first use faults them in.
        self.mapped = self.mapped.max(taken);
        let before = self.mapped;
        let wanted = (taken + ahead).min(limit).min(self.found.len());
        while self.mapped < wanted && !stopped.load(Relaxed) {
            populate(self.found[self.mapped], stopped)?;
            self.mapped += 1;
        }
        Ok(self.mapped - before)
    }
}

/// Returns true if a page is mapped.
fn is_mapped(page: NonNull<c_void>) -> bool {
    let mut state = 0_u8;
    // SAFETY: the state of one page is one byte. For an address that is not mapped at all the call
    // fails.
    let known = unsafe { libc::mincore(page.as_ptr(), 1, &raw mut state) };
    known == 0 && state & 1 == 1
}

/// Has the kernel map a block for writing, without its first page. Its contents stay.
fn populate(block: NonNull<c_void>, stopped: &AtomicBool) -> io::Result<()> {
    let page_bytes = sys::page_bytes() as usize;
    // A huge page would contain the first page. A kernel without huge pages refuses the advice.
    let _ = advise(block, 0..STEP, libc::MADV_NOHUGEPAGE);
    for offset in (0..BLOCK).step_by(STEP) {
        if stopped.load(Relaxed) {
            break;
        }
        advise(block, offset.max(page_bytes)..offset + STEP, libc::MADV_POPULATE_WRITE)?;
    }
    Ok(())
}

fn advise(block: NonNull<c_void>, bytes: Range<usize>, advice: c_int) -> io::Result<()> {
    // SAFETY: the range is within an arena, which stays mapped, and neither advice of this file
    // changes contents.
    match unsafe { libc::madvise(block.byte_add(bytes.start).as_ptr(), bytes.len(), advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns true if the last page of a block is mapped.
    fn is_prefaulted(block: NonNull<c_void>) -> bool {
        // SAFETY: within the block.
        is_mapped(unsafe { block.byte_add(BLOCK - sys::page_bytes() as usize) })
    }

    /// Called by the test of freed memory, before it takes blocks of the same allocator.
    pub(crate) fn blocks_are_prefaulted_before_they_are_taken() {
        let never = AtomicBool::new(false);
        // Allocates enough for blocks to be taken. As in a real program, whole pages of them are
        // never touched.
        let take = || {
            // SAFETY: the memory is allocated and never used.
            (0..40).for_each(|_| assert!(!unsafe { libmimalloc_sys::mi_malloc(1 << 20) }.is_null()));
        };
        take();
        let mut blocks = Blocks { found: Vec::new(), arenas: 0, mapped: 0 };
        if blocks
            .prefault(2, usize::MAX, &never)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
        {
            return; // the kernel does not support it
        }
        // Assumptions about mimalloc: the size and the alignment of blocks.
        assert!(!blocks.found.is_empty() && blocks.found.iter().all(|block| block.addr().get() % BLOCK == 0));
        let taken =
            |blocks: &Blocks| (0..blocks.found.len()).filter(|&index| is_mapped(blocks.found[index])).count();
        let before = taken(&blocks);
        assert!(before > 0 && blocks.mapped >= before + 2);
        assert!(is_prefaulted(blocks.found[before]) && is_prefaulted(blocks.found[before + 1]));
        assert!(!is_prefaulted(blocks.found[blocks.mapped]));
        assert_eq!(blocks.prefault(2, usize::MAX, &never).expect("populated"), 0);
        take();
        let more = taken(&blocks) - before;
        assert!(more > 0);
        assert_eq!(blocks.prefault(2, usize::MAX, &never).expect("populated"), more);
        take();
        assert_eq!(
            blocks.prefault(2, blocks.mapped, &never).expect("populated"),
            0,
            "no more than the limit"
        );
    }
}
