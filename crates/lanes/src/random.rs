//! Random bytes from the kernel, and fast random numbers for purposes without secrecy.

use std::cell::Cell;

/// Fills `buffer` from the kernel's generator. Suitable for salts and passwords.
pub fn fill(buffer: &mut [u8]) {
    crate::sys::random(buffer);
}

/// Returns a fast random number (splitmix64, seeded from the kernel for each thread). Not for
/// secrets.
#[must_use]
pub fn u64() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new({
            let mut seed = [0; 8];
            fill(&mut seed);
            u64::from_ne_bytes(seed)
        });
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_differ_and_buffers_are_filled_whole() {
        let drawn: std::collections::HashSet<u64> = (0..1000).map(|_| super::u64()).collect();
        assert_eq!(drawn.len(), 1000);
        let mut buffer = [0; 1024];
        super::fill(&mut buffer);
        assert!(buffer.chunks(32).all(|chunk| chunk.iter().any(|&byte| byte != 0)));
    }
}
