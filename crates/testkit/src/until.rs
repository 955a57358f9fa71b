//! Waiting for a condition.

use std::time::{Duration, Instant};

/// Longest wait of [`until`]. A test that takes longer has failed.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `holds` returns true, on a thread outside of the lanes. Panics with `what` after
/// [`TIMEOUT`].
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the caller is outside of the lanes")]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "{what}: not after {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
