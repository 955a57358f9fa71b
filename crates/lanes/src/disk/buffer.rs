//! Memory for direct I/O: the kernel wants address, offset and length in whole blocks. A buffer's memory, once it is
//! dropped, is kept by its thread for the next: fresh memory would have to be mapped and zeroed by the kernel, which for
//! a commit log's batch of some tens of KiB cost as much as writing it.
#![expect(unsafe_code, reason = "an allocation aligned to blocks, which Vec cannot give")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytes::Bytes;

/// Alignment and unit of direct I/O, bytes: the largest logical block of the disks in use.
pub const BLOCK: usize = 4096;

/// Pieces of memory that a thread keeps: log batches of one core are written one at a time, but blocks of tables are read by
/// dozens.
const KEPT_MAX: usize = 32;
/// Larger ones are not kept, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// All that a thread keeps, bytes.
const KEPT_SUM_MAX: usize = 4 << 20;

thread_local! {
    static KEPT: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// Aligned memory, all of it initialised at all times.
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a Box<[u8]> does.
unsafe impl Send for Memory {}
// SAFETY: shared references give no access at all.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros; `bytes` is a positive number of blocks.
    fn zeroed(bytes: usize) -> Memory {
        let layout = layout(bytes);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, bytes }
    }

    /// A kept piece that is large enough, and no more than four times as large.
    fn kept(bytes: usize) -> Option<Memory> {
        let take = |kept: &RefCell<Vec<Memory>>| {
            let mut kept = kept.borrow_mut();
            let fits = |memory: &Memory| (bytes..=4 * bytes).contains(&memory.bytes);
            kept.iter().position(fits).map(|at| kept.swap_remove(at))
        };
        KEPT.try_with(take).ok().flatten()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) };
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, BLOCK).expect("a size below isize::MAX and a power of two")
}

/// Bytes aligned to [`BLOCK`], a whole number of blocks.
pub struct AlignedBuf {
    /// None while being dropped only.
    memory: Option<Memory>,
    len: usize,
}

impl AlignedBuf {
    /// At least `len` zero bytes, rounded up to blocks, and at least one block.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuf {
        let mut buffer = AlignedBuf::stale(len);
        buffer.fill(0);
        buffer
    }

    /// These bytes, and zeros up to the end of the last block.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buffer = AlignedBuf::stale(bytes.len());
        let (copy, rest) = buffer.split_at_mut(bytes.len());
        copy.copy_from_slice(bytes);
        rest.fill(0);
        buffer
    }

    /// As [`AlignedBuf::new`], holding whatever was in an earlier buffer: to be overwritten.
    pub(super) fn stale(len: usize) -> AlignedBuf {
        let len = len.max(1).next_multiple_of(BLOCK);
        let memory = Memory::kept(len).unwrap_or_else(|| Memory::zeroed(len));
        AlignedBuf { memory: Some(memory), len }
    }

    fn start(&self) -> *mut u8 {
        self.memory.as_ref().expect("there until it is dropped").start.as_ptr()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory holds at least `len` initialised bytes, as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

/// The same memory, shared: [`super::File::write_at`] writes it without a copy.
impl From<AlignedBuf> for Bytes {
    fn from(buffer: AlignedBuf) -> Bytes {
        Bytes::from_owner(buffer)
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if memory.bytes > KEPT_BYTES_MAX {
            return;
        }
        // A thread that is ending keeps nothing.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let sum: usize = kept.iter().map(|memory| memory.bytes).sum();
            if kept.len() < KEPT_MAX && sum + memory.bytes <= KEPT_SUM_MAX {
                kept.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_whole_and_zeroed() {
        for (asked, given) in [(0, BLOCK), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK)] {
            let mut buffer = AlignedBuf::new(asked);
            assert_eq!(buffer.len(), given);
            assert_eq!(buffer.as_ptr() as usize % BLOCK, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7); // the next one gets the same memory
        }
    }

    #[test]
    fn memory_is_used_again_and_nothing_old_shows() {
        let mut old = AlignedBuf::new(3 * BLOCK);
        old.fill(7);
        let at = old.as_ptr();
        drop(old);
        let copy = AlignedBuf::copy_of(&[1; BLOCK + 1]);
        assert_eq!((copy.as_ptr(), copy.len()), (at, 2 * BLOCK));
        assert_eq!((&copy[..=BLOCK], &copy[BLOCK + 1..]), (&[1; BLOCK + 1][..], &[0; BLOCK - 1][..]));
        let large: Vec<AlignedBuf> = (0..40).map(|_| AlignedBuf::new(2 * KEPT_BYTES_MAX)).collect();
        let many: Vec<AlignedBuf> = (0..40).map(|_| AlignedBuf::new(1)).collect();
        drop((large, many, copy));
        let kept = KEPT.with_borrow(|kept| kept.iter().map(|memory| memory.bytes).collect::<Vec<_>>());
        assert!(kept.len() == KEPT_MAX && kept.iter().all(|&bytes| bytes <= KEPT_BYTES_MAX), "{kept:?}");
        KEPT.take();
        drop((0..10).map(|_| AlignedBuf::new(KEPT_BYTES_MAX)).collect::<Vec<_>>());
        assert_eq!(KEPT.with_borrow(Vec::len), KEPT_SUM_MAX / KEPT_BYTES_MAX);
    }
}
