//! What the allocator does with freed memory, and what the processor should fetch from memory early.
#![expect(unsafe_code, reason = "an option of a C library; an instruction of the processor")]

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};

/// `mi_option_purge_delay` of mimalloc 2, which its binding does not name: after so many milliseconds freed memory goes back to
/// the kernel; never, if negative.
const PURGE_DELAY: mi_option_t = 15;
/// What it is if nobody has said otherwise, as by `MIMALLOC_PURGE_DELAY` in the environment.
const PURGE_DELAY_DEFAULT_MS: std::ffi::c_long = 10;

/// Has mimalloc, if it is the program's allocator, keep what is freed for what is allocated next: to be called once, before other
/// threads are started. Memory that goes back to the kernel is cleared when it comes again, at the cost of page faults, in which
/// a heavy lane's thread is not preempted. Who has set the delay in the environment gets that. Whether memory is kept.
pub fn keep_freed_memory() -> bool {
    // SAFETY: reading and writing an option, by a number that this version of the library knows, while no other thread does.
    unsafe {
        if mi_option_get(PURGE_DELAY) == PURGE_DELAY_DEFAULT_MS {
            mi_option_set(PURGE_DELAY, -1);
        }
        mi_option_get(PURGE_DELAY) < 0
    }
}

/// Has the processor fetch the cache line where `place` begins, if it is far, while the program goes on: for what will be needed some
/// hundred instructions later. On processors of other makes than x86-64 it does nothing.
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
    #[test]
    fn the_option_has_this_number_in_the_library_that_is_linked() {
        assert!(super::keep_freed_memory());
    }
}
