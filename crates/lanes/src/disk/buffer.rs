//! Memory for direct I/O: the kernel wants address, offset and length in whole blocks.
#![expect(unsafe_code, reason = "an allocation aligned to blocks, which Vec cannot give")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment and unit of direct I/O, bytes: the largest logical block of the disks in use.
pub const BLOCK: usize = 4096;

/// Bytes aligned to [`BLOCK`], a whole number of blocks, zeroed at first.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory, as a Box<[u8]> does.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references give shared access only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// At least `len` zero bytes, rounded up to blocks, and at least one block.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuf {
        let len = len.max(1).next_multiple_of(BLOCK);
        let layout = layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuf { start, len }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, BLOCK).expect("a size below isize::MAX and a power of two")
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` initialised bytes as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
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
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.start.as_ptr(), layout(self.len)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_whole_and_zeroed() {
        for (asked, given) in [(0, BLOCK), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK)] {
            let buffer = AlignedBuf::new(asked);
            assert_eq!(buffer.len(), given);
            assert_eq!(buffer.as_ptr() as usize % BLOCK, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }
}
