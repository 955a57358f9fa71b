//! Control of freed memory in the allocator, and prefetching into the processor's cache.
#![expect(unsafe_code, reason = "an option of a C library; an instruction of the processor")]

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use libmimalloc_sys::{mi_collect, mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc 2, which its binding does not name: the time in ms after
/// which freed memory goes back to the kernel.
const PURGE_DELAY: mi_option_t = 15;
/// Delay that keeps freed memory: a day. Never (-1) is not an option: a segment that mimalloc makes
/// meanwhile never returns memory, not even after a change of the option.
const PURGE_DELAY_KEEP_MS: std::ffi::c_long = 24 * 3600 * 1000;
/// Default of that option, unless `MIMALLOC_PURGE_DELAY` is set in the environment.
const PURGE_DELAY_DEFAULT_MS: std::ffi::c_long = 10;

/// Configures mimalloc, if it is the program's allocator, to keep freed memory for later
/// allocations. Call it once, before other threads are started. Memory that goes back to the kernel
/// is cleared when it comes again, at the cost of page faults. During a page fault, a thread of a
/// heavy lane is not preempted. A delay set in the environment has priority. Returns true if memory
/// is kept.
pub fn keep_freed_memory() -> bool {
    // SAFETY: reading and writing an option, by a number that this version of the library knows,
    // while no other thread does.
    unsafe {
        if mi_option_get(PURGE_DELAY) == PURGE_DELAY_DEFAULT_MS {
            mi_option_set(PURGE_DELAY, PURGE_DELAY_KEEP_MS);
        }
        mi_option_get(PURGE_DELAY) == PURGE_DELAY_KEEP_MS
    }
}

/// Bound on the memory of the process after [`keep_freed_memory`]. Beyond a limit, freed memory
/// goes back to the kernel at once, and the page faults are paid.
#[derive(Debug)]
pub struct FreedMemory {
    /// `/proc/self/statm`.
    statm: File,
    page_bytes: u64,
    limit: u64,
    returns: Cell<bool>,
}

/// Interval at which to call [`FreedMemory::check`]. Large answers take up to 1 GB/s.
pub const FREED_MEMORY_CHECK_EVERY: Duration = Duration::from_millis(20);

impl FreedMemory {
    /// Creates a bound of `limit` bytes of resident memory.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel, which waits for no disk")]
    pub fn new(limit: u64) -> io::Result<FreedMemory> {
        let statm = File::open("/proc/self/statm")?;
        let page_bytes = crate::sys::page_bytes();
        Ok(FreedMemory { statm, page_bytes, limit, returns: Cell::new(false) })
    }

    /// Reads the resident memory, in a few microseconds, and decides where memory that is freed
    /// from now on goes.
    ///
    /// # Errors
    /// The file cannot be read: nothing changes.
    pub fn check(&self) -> io::Result<()> {
        let mut text = [0; 128];
        let length = self.statm.read_at(&mut text, 0)?;
        let resident = resident_pages(&text[..length]).map(|pages| pages * self.page_bytes);
        let resident = resident.ok_or(io::ErrorKind::InvalidData)?;
        // Between the two bounds nothing changes, so that the option is not switched at every call.
        let returns = match resident {
            _ if resident > self.limit => true,
            _ if resident < self.limit - self.limit / 16 => false,
            _ => return Ok(()),
        };
        if self.returns.replace(returns) != returns {
            // SAFETY: writing an option that other threads only read, a word that the processor
            // writes at once: they see one value or the other.
            unsafe { mi_option_set(PURGE_DELAY, if returns { 0 } else { PURGE_DELAY_KEEP_MS }) };
            if returns {
                ask_threads();
            }
        }
        Ok(())
    }

    /// Returns true if freed memory goes back at once.
    pub fn returns(&self) -> bool {
        self.returns.get()
    }
}

/// Times that the threads were asked to return memory.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Threads that return memory when asked. They may be parked.
static THREADS: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// Asks the threads with a [`KeptMemory`] to return memory that was freed before.
fn ask_threads() {
    ASKED.fetch_add(1, SeqCst);
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Thread::unpark);
}

/// Memory that the allocator keeps for a thread: what the thread freed since it was taken. No other
/// thread can return it.
pub(crate) struct KeptMemory {
    /// [`ASKED`] at the last return.
    asked: u32,
}

impl KeptMemory {
    /// Creates the memory of the current thread. It is unparked when it is asked to return memory.
    pub(crate) fn of_this_thread() -> KeptMemory {
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(std::thread::current());
        KeptMemory { asked: ASKED.load(SeqCst) }
    }

    /// Returns it to the kernel, if that was asked for since the last call. Takes milliseconds.
    #[inline]
    pub(crate) fn return_if_asked(&mut self) {
        let asked = ASKED.load(SeqCst);
        if asked != self.asked {
            self.asked = asked;
            // SAFETY: a function of the library that any thread may call.
            unsafe { mi_collect(true) };
        }
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        let own = std::thread::current().id();
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).retain(|thread| thread.id() != own);
    }
}

/// Returns the second number of `statm`.
pub(crate) fn resident_pages(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Has the processor fetch the cache line where `place` begins while the program goes on: for data
/// needed some hundred instructions later. Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing as far as the program can see, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>((&raw const *place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test for all that follows, as the allocator belongs to the process.
    #[test]
    fn freed_memory_goes_back_only_beyond_the_limit() {
        crate::memory_ahead::tests::blocks_are_prefaulted_before_they_are_taken();
        assert!(keep_freed_memory(), "the option has this number in the library that is linked");
        let mut freed = FreedMemory::new(u64::MAX).expect("procfs");
        for (limit, returns) in [(u64::MAX, false), (1 << 20, true), (u64::MAX, false)] {
            freed.limit = limit;
            freed.check().expect("procfs");
            assert_eq!((freed.returns(), keep_freed_memory()), (returns, !returns));
        }
        memory_taken_while_it_is_kept_goes_back();
    }

    fn memory_taken_while_it_is_kept_goes_back() {
        const BLOCK: usize = 1 << 20;
        const BLOCKS: usize = 256;
        let mut freed = FreedMemory::new(u64::MAX).expect("procfs");
        let resident = |freed: &FreedMemory| {
            let mut text = [0; 128];
            let length = freed.statm.read_at(&mut text, 0).expect("procfs");
            resident_pages(&text[..length]).expect("two numbers") * freed.page_bytes
        };
        freed.check().expect("procfs");
        let take = || {
            // SAFETY: the allocator's own functions. Each block is written within its bounds.
            let block = unsafe { libmimalloc_sys::mi_malloc(BLOCK) }.cast::<u8>();
            // SAFETY: as above.
            unsafe { block.write_bytes(1, BLOCK) };
            block
        };
        let blocks: Vec<*mut u8> = (0..BLOCKS).map(|_| take()).collect();
        // A block of each eight stays, so that no segment gets empty.
        let (some, rest): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(n, _)| n % 8 == 0);
        let only = |blocks: Vec<(usize, *mut u8)>| blocks.into_iter().map(|(_, block)| block).collect();
        let (some, rest): (Vec<*mut u8>, Vec<*mut u8>) = (only(some), only(rest));
        let (kept, returned) = rest.split_at(rest.len() / 2);
        let free = |blocks: &[*mut u8]| {
            // SAFETY: each block comes from `mi_malloc`, and is freed once.
            blocks.iter().for_each(|block| unsafe { libmimalloc_sys::mi_free(block.cast()) });
        };
        let mut memory = KeptMemory::of_this_thread();
        let taken = resident(&freed);
        free(kept);
        memory.return_if_asked();
        let after_kept = resident(&freed);
        freed.limit = 1 << 20;
        freed.check().expect("procfs");
        free(returned);
        let after_returned = resident(&freed);
        memory.return_if_asked();
        let after_collection = resident(&freed);
        free(&some);
        freed.limit = u64::MAX;
        freed.check().expect("procfs");
        // Other tests of this process take and free memory meanwhile.
        let slack = (BLOCK * BLOCKS / 8) as u64;
        assert!(after_kept + slack > taken, "{taken} bytes before, {after_kept} after");
        let expected = (BLOCK * BLOCKS / 4) as u64;
        assert!(after_returned + expected < after_kept, "{after_kept} bytes before, {after_returned} after");
        let left = "bytes freed before were returned";
        assert!(after_collection + expected < after_returned, "{after_returned}, {after_collection}: {left}");
    }

    #[test]
    fn resident_pages_are_the_second_number() {
        assert_eq!(resident_pages(b"100 20 3 4\n"), Some(20));
        assert_eq!(resident_pages(b""), None);
    }
}
