//! Memory made ready before the allocator takes it.
//!
//! Whoever first writes to memory the kernel gave waits while it is found and cleared: of a huge page 0.1 ms, and 5 to 10 where the
//! host of a virtual machine has to find it first. A fast lane whose memtable grows must not meet that. So a thread of the idle class
//! looks what mimalloc has taken, and keeps some more ready:
//!
//! ```text
//!   an arena:   │ taken │ taken │ taken │ ready │ ready │       │       │       blocks of 32 MiB, lowest first
//! ```
//!
//! mimalloc begins each block that it takes with a header; before, a block is zero. Freed blocks are kept, and are ready as they are: so this is of
//! use only where [`crate::keep_freed_memory`] has its way. What it cannot do: an arena (of 1 GiB at first) is reserved by who needs it, so the
//! first of its blocks comes as it is; and while the kernel makes a huge page ready, others that map memory wait for that.
#![expect(unsafe_code, reason = "memory that the allocator manages, and a call of the kernel about it")]

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use crate::sys;

/// Of mimalloc 2: a segment, which is a block of an arena, bytes.
const BLOCK: usize = 32 << 20;
/// What is made ready at a time, bytes: a huge page.
const STEP: usize = 2 << 20;
/// Of a block that is taken, some of these first words are not zero: where it lies, and in which arena, which are numbered from 1.
const HEADER_WORDS: usize = 8;
/// Bytes whose state the kernel tells at a time.
const PAGE: usize = 4096;
/// How often it is looked what was taken. A block in that time is 640 MB a second, more than a core writes to memory that it keeps.
const LOOK_EVERY: Duration = Duration::from_millis(50);

unsafe extern "C" {
    /// Of mimalloc 2, which its binding does not name: where an arena is, and its size in bytes. Null beyond the last one; they are
    /// numbered from 1.
    fn mi_arena_area(id: c_int, size: *mut usize) -> *mut c_void;
}

/// Keeps memory ready until it is dropped. Where mimalloc is not the program's allocator it does nothing.
#[derive(Debug)]
pub struct MemoryAhead {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryAhead {
    /// Keeps `ahead` bytes ready beyond what is in use, of `limit` in all; both are rounded down to blocks of 32 MiB. Errors: no thread.
    pub fn start(ahead: u64, limit: u64) -> io::Result<MemoryAhead> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            // Refused, it competes with what the machine runs beside us; that is rare and short.
            let _ = sys::become_idle_class();
            let mut blocks = Blocks { found: Vec::new(), arenas: 0, ready: 0 };
            while !stopped.load(Relaxed) {
                let kept = blocks.keep_ready(ahead as usize / BLOCK, limit as usize / BLOCK, &stopped);
                match kept.map_err(|error| error.raw_os_error()) {
                    // A kernel before 5.14, or memory that mimalloc was told not to commit: as ever, who uses it makes it ready.
                    Err(Some(libc::EINVAL | libc::EFAULT)) => return,
                    // There may be memory again.
                    Ok(_) | Err(_) => park_timeout(LOOK_EVERY),
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

/// The allocator's blocks, in the order in which it takes them.
struct Blocks {
    found: Vec<NonNull<c_void>>,
    /// Those of so many arenas are found.
    arenas: c_int,
    /// So many are taken or made ready.
    ready: usize,
}

impl Blocks {
    fn find(&mut self) {
        loop {
            let mut size = 0;
            // SAFETY: `size` is valid for writes; any number may be asked for.
            let begin = NonNull::new(unsafe { mi_arena_area(self.arenas + 1, &raw mut size) });
            let Some(begin) = begin else { return };
            self.arenas += 1;
            // SAFETY: within the arena.
            self.found.extend((0..size / BLOCK).map(|index| unsafe { begin.byte_add(index * BLOCK) }));
        }
    }

    /// Whether the allocator has taken a block.
    fn is_taken(&self, index: usize) -> bool {
        // Reading what nobody has written to would map a page of zeros there, or fail where nothing is committed yet.
        if !is_mapped(self.found[index]) {
            return false;
        }
        // SAFETY: arenas stay mapped as long as the program runs, and are aligned to blocks; this page has been written to or made
        // ready. The allocator may write a header just now: then some words are read before and some after that, and the block is
        // seen to be taken now or the next time.
        let word = |at| unsafe { self.found[index].cast::<AtomicU64>().add(at).as_ref() };
        (0..HEADER_WORDS).any(|at| word(at).load(Relaxed) != 0)
    }

    /// Makes blocks ready until there are so many beyond the last one taken, or so many in all. How many it made ready.
    fn keep_ready(&mut self, ahead: usize, limit: usize, stopped: &AtomicBool) -> io::Result<usize> {
        self.find();
        let taken = (0..self.found.len()).rfind(|&index| self.is_taken(index)).map_or(0, |last| last + 1);
        // Who takes more at once than was ready makes it so.
        self.ready = self.ready.max(taken);
        let made_from = self.ready;
        let wanted = (taken + ahead).min(limit).min(self.found.len());
        while self.ready < wanted && !stopped.load(Relaxed) {
            populate(self.found[self.ready], stopped)?;
            self.ready += 1;
        }
        Ok(self.ready - made_from)
    }
}

/// Whether a page is there already.
fn is_mapped(page: NonNull<c_void>) -> bool {
    let mut told = 0_u8;
    // SAFETY: it is told of one page, in one byte, which is there; an address that is none is an error.
    let known = unsafe { libc::mincore(page.as_ptr(), PAGE, &raw mut told) };
    known == 0 && told & 1 == 1
}

/// Has the kernel map a block for writing. What is in it stays as it is.
fn populate(block: NonNull<c_void>, stopped: &AtomicBool) -> io::Result<()> {
    for offset in (0..BLOCK).step_by(STEP) {
        if stopped.load(Relaxed) {
            break;
        }
        // SAFETY: the range is within an arena, which stays mapped; mapping its pages changes nothing that is in them.
        if unsafe { libc::madvise(block.byte_add(offset).as_ptr(), STEP, libc::MADV_POPULATE_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last page of a block is mapped.
    fn is_ready(block: NonNull<c_void>) -> bool {
        // SAFETY: within the block.
        is_mapped(unsafe { block.byte_add(BLOCK - PAGE) })
    }

    #[test]
    fn blocks_are_made_ready_before_they_are_taken() {
        let never = AtomicBool::new(false);
        // Enough for blocks to be taken, and as a program does that allocates: never whole pages of it are touched.
        let take = || {
            // SAFETY: memory is asked for, and left alone.
            (0..40).for_each(|_| assert!(!unsafe { libmimalloc_sys::mi_malloc(1 << 20) }.is_null()));
        };
        take();
        let mut blocks = Blocks { found: Vec::new(), arenas: 0, ready: 0 };
        if blocks
            .keep_ready(2, usize::MAX, &never)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL))
        {
            return; // the kernel cannot
        }
        // What is known of mimalloc: the size of blocks and where they lie.
        assert!(!blocks.found.is_empty() && blocks.found.iter().all(|block| block.addr().get() % BLOCK == 0));
        let taken = |blocks: &Blocks| (0..blocks.found.len()).filter(|&index| blocks.is_taken(index)).count();
        let before = taken(&blocks);
        assert!(before > 0 && blocks.ready >= before + 2);
        assert!(is_ready(blocks.found[before]) && is_ready(blocks.found[before + 1]));
        assert!(!is_ready(blocks.found[blocks.ready]));
        assert_eq!(blocks.keep_ready(2, usize::MAX, &never).expect("populated"), 0);
        take();
        let more = taken(&blocks) - before;
        assert!(more > 0);
        assert_eq!(blocks.keep_ready(2, usize::MAX, &never).expect("populated"), more);
        take();
        assert_eq!(
            blocks.keep_ready(2, blocks.ready, &never).expect("populated"),
            0,
            "no more than the limit"
        );
    }
}
