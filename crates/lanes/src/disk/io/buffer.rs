//! Memory for direct I/O, for which the kernel requires address, offset and length in whole blocks.
//! The thread that drops a buffer keeps its memory for the next buffer. Otherwise the kernel would
//! have to map and zero fresh memory. For a batch of the commit log (some tens of KiB) that cost as
//! much as writing it.
#![expect(unsafe_code, reason = "an allocation aligned to blocks, which Vec cannot give")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

/// Alignment and unit of direct I/O, bytes: the largest logical block of the disks in use.
pub const BLOCK: usize = 4096;

/// Most allocations that a thread keeps. Log batches of one core are written one at a time, but
/// blocks of tables are read by dozens.
const KEPT_COUNT_MAX: usize = 32;
/// Largest allocation that is kept, bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Most memory that a thread keeps, bytes.
const KEPT_SUM_MAX: usize = 4 << 20;

thread_local! {
    static KEPT: RefCell<Vec<Arc<Memory>>> = const { RefCell::new(Vec::new()) };
}

/// Aligned memory, always fully initialised.
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a Box<[u8]> does.
unsafe impl Send for Memory {}
// SAFETY: shared references give no access at all.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates zeros; `bytes` is a positive number of blocks.
    fn zeroed(bytes: usize) -> Memory {
        let layout = layout(bytes);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, bytes }
    }
}

/// Takes a kept allocation that is large enough, and at most four times as large.
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
    /// Shared by the chunks of one buffer. `None` only while it is being dropped.
    memory: Option<Arc<Memory>>,
    /// Offset in the memory. Buffers never overlap.
    from: usize,
    len: usize,
}

impl AlignedBuf {
    /// Returns at least `len` zero bytes, rounded up to blocks, and at least one block.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuf {
        let mut buffer = AlignedBuf::stale(len);
        buffer.fill(0);
        buffer
    }

    /// Returns a copy of these bytes, with zeros up to the end of the last block.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buffer = AlignedBuf::stale(bytes.len());
        let (copy, rest) = buffer.split_at_mut(bytes.len());
        copy.copy_from_slice(bytes);
        rest.fill(0);
        buffer
    }

    /// Does the same as [`AlignedBuf::new`], with the contents of an earlier buffer, which must be
    /// overwritten.
    pub(crate) fn stale(len: usize) -> AlignedBuf {
        let len = len.max(1).next_multiple_of(BLOCK);
        let memory = kept(len).unwrap_or_else(|| Arc::new(Memory::zeroed(len)));
        AlignedBuf { memory: Some(memory), from: 0, len }
    }

    /// Cuts the buffer into chunks of `bytes` (whole blocks), in order. The last may be shorter.
    pub(crate) fn cut(self, bytes: usize) -> Vec<AlignedBuf> {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK), "chunks are whole blocks");
        let chunk = |at: usize| {
            let len = bytes.min(self.len - at);
            AlignedBuf { memory: self.memory.clone(), from: self.from + at, len }
        };
        // The whole buffer is dropped at the end of this function. Until then nothing else uses its
        // bytes.
        (0..self.len).step_by(bytes).map(chunk).collect()
    }

    /// Joins the chunks again. Panics if they are not all of one buffer, in their order.
    pub(crate) fn join(chunks: Vec<AlignedBuf>) -> AlignedBuf {
        let mut chunks = chunks.into_iter();
        let mut whole = chunks.next().expect("a buffer has at least one chunk");
        for chunk in chunks {
            let same =
                whole.memory.as_ref().zip(chunk.memory.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
            assert!(same && chunk.from == whole.from + whole.len, "a chunk follows the one before");
            whole.len += chunk.len;
        }
        whole
    }

    fn start(&self) -> *mut u8 {
        let memory = self.memory.as_ref().expect("there until it is dropped");
        // SAFETY: a buffer is within its memory.
        unsafe { memory.start.as_ptr().add(self.from) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory holds `len` initialised bytes from there on as long as `self` lives,
        // and no other buffer has them.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

/// Shares the memory without a copy, for [`crate::disk::File::write_at`].
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
        // The last chunk of a buffer keeps the memory, unless two are dropped at once: then it is
        // freed.
        if memory.bytes > KEPT_BYTES_MAX || Arc::strong_count(&memory) > 1 {
            return;
        }
        // A thread that is ending keeps nothing.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let sum: usize = kept.iter().map(|memory| memory.bytes).sum();
            if kept.len() < KEPT_COUNT_MAX && sum + memory.bytes <= KEPT_SUM_MAX {
                kept.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_buffer_is_aligned_rounded_and_zeroed() {
        for (asked, given) in [(0, BLOCK), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK)] {
            let mut buffer = AlignedBuf::new(asked);
            assert_eq!(buffer.len(), given);
            assert_eq!(buffer.as_ptr() as usize % BLOCK, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
            buffer.fill(7); // the next buffer gets the same memory
        }
    }

    #[test]
    fn buffer_is_cut_and_joined_in_place() {
        let mut whole = AlignedBuf::new(5 * BLOCK);
        let at = whole.as_ptr();
        whole.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / BLOCK) as u8);
        let mut chunks = whole.cut(2 * BLOCK);
        assert_eq!(chunks.iter().map(|chunk| chunk.len()).collect::<Vec<_>>(), [2 * BLOCK, 2 * BLOCK, BLOCK]);
        assert_eq!([chunks[0][0], chunks[1][0], chunks[2][0]], [0, 2, 4]);
        chunks[1].fill(9);
        let whole = AlignedBuf::join(chunks);
        assert_eq!((whole.as_ptr(), whole.len()), (at, 5 * BLOCK));
        assert_eq!([0, 1, 2, 3, 4].map(|block| whole[block * BLOCK]), [0, 1, 9, 9, 4]);
        let mut chunks = whole.cut(BLOCK);
        drop(chunks.remove(0));
        let other = AlignedBuf::new(5 * BLOCK);
        assert!(other.as_ptr() != at, "chunks of it are in use");
        drop(chunks);
        assert_eq!(AlignedBuf::new(5 * BLOCK).as_ptr(), at, "the memory is reused");
    }

    #[test]
    fn memory_is_reused_without_old_contents() {
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
        assert!(
            kept.len() == KEPT_COUNT_MAX && kept.iter().all(|&bytes| bytes <= KEPT_BYTES_MAX),
            "{kept:?}"
        );
        KEPT.take();
        drop((0..10).map(|_| AlignedBuf::new(KEPT_BYTES_MAX)).collect::<Vec<_>>());
        assert_eq!(KEPT.with_borrow(Vec::len), KEPT_SUM_MAX / KEPT_BYTES_MAX);
    }
}
