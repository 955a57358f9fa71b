//! Memory for direct I/O: the kernel wants address, offset and length in whole blocks. A buffer's memory, once it is
//! dropped, is kept by its thread for the next: fresh memory would have to be mapped and zeroed by the kernel, which for
//! a commit log's batch of some tens of KiB cost as much as writing it.
#![expect(unsafe_code, reason = "an allocation aligned to blocks, which Vec cannot give")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

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
    static KEPT: RefCell<Vec<Arc<Memory>>> = const { RefCell::new(Vec::new()) };
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
}

/// A kept piece that is large enough, and no more than four times as large.
fn kept(bytes: usize) -> Option<Arc<Memory>> {
    let take = |kept: &RefCell<Vec<Arc<Memory>>>| {
        let mut kept = kept.borrow_mut();
        let fits = |memory: &Arc<Memory>| (bytes..=4 * bytes).contains(&memory.bytes);
        kept.iter().position(fits).map(|at| kept.swap_remove(at))
    };
    KEPT.try_with(take).ok().flatten()
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
    /// Shared by parts that one buffer was cut into. None while being dropped only.
    memory: Option<Arc<Memory>>,
    /// Where in the memory it begins. No two buffers have bytes in common.
    from: usize,
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
        let memory = kept(len).unwrap_or_else(|| Arc::new(Memory::zeroed(len)));
        AlignedBuf { memory: Some(memory), from: 0, len }
    }

    /// Parts of `bytes` (whole blocks) each, in order; the last may be shorter.
    pub(super) fn cut(self, bytes: usize) -> Vec<AlignedBuf> {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK), "parts are whole blocks");
        let part = |at: usize| {
            let len = bytes.min(self.len - at);
            AlignedBuf { memory: self.memory.clone(), from: self.from + at, len }
        };
        // The whole has no bytes any more once it is dropped, at the end of this: nobody else uses it meanwhile.
        (0..self.len).step_by(bytes).map(part).collect()
    }

    /// The whole again. Panics if the parts are not all of one buffer, in their order.
    pub(super) fn join(parts: Vec<AlignedBuf>) -> AlignedBuf {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().expect("a buffer has at least one part");
        for part in parts {
            let same =
                whole.memory.as_ref().zip(part.memory.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
            assert!(same && part.from == whole.from + whole.len, "a part comes behind the one before");
            whole.len += part.len;
        }
        whole
    }

    fn start(&self) -> *mut u8 {
        let memory = self.memory.as_ref().expect("there until it is dropped");
        // SAFETY: a buffer lies within its memory.
        unsafe { memory.start.as_ptr().add(self.from) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory holds `len` initialised bytes from there on, as long as `self`, which nobody else has.
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
        // The last part of a buffer keeps it, unless two are dropped at once: then nobody does.
        if memory.bytes > KEPT_BYTES_MAX || Arc::strong_count(&memory) > 1 {
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
    fn a_buffer_is_cut_and_whole_again() {
        let mut whole = AlignedBuf::new(5 * BLOCK);
        let at = whole.as_ptr();
        whole.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / BLOCK) as u8);
        let mut parts = whole.cut(2 * BLOCK);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2 * BLOCK, 2 * BLOCK, BLOCK]);
        assert_eq!([parts[0][0], parts[1][0], parts[2][0]], [0, 2, 4]);
        parts[1].fill(9);
        let whole = AlignedBuf::join(parts);
        assert_eq!((whole.as_ptr(), whole.len()), (at, 5 * BLOCK));
        assert_eq!([0, 1, 2, 3, 4].map(|block| whole[block * BLOCK]), [0, 1, 9, 9, 4]);
        let mut parts = whole.cut(BLOCK);
        drop(parts.remove(0));
        let other = AlignedBuf::new(5 * BLOCK);
        assert!(other.as_ptr() != at, "parts of it are in use");
        drop(parts);
        assert_eq!(AlignedBuf::new(5 * BLOCK).as_ptr(), at, "and it is used again");
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
