//! Clock and sleeping. Sleeps have a precision of a millisecond (tokio's timer wheel). The lanes
//! time shorter intervals internally. The fast lane of the core keeps the sleep of a heavy task.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, SystemTime};

pub use std::time::Instant;

/// Returns the monotonic time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "other crates read the clock through this function")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the microseconds since 1970 UTC, by the wall clock (it may step).
#[must_use]
#[expect(clippy::disallowed_methods, reason = "other crates read the clock through this function")]
pub fn unix_micros() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    }
}

/// Returns nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    crate::sys::monotonic_ns()
}

/// Returns nanoseconds of `CLOCK_BOOTTIME`: the monotonic time, with the time for which the machine
/// was suspended.
#[must_use]
pub fn boot_ns() -> u64 {
    crate::sys::boot_ns()
}

/// Error of [`timeout`]: the time limit was reached first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl std::fmt::Display for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the time limit was reached")
    }
}

impl std::error::Error for Elapsed {}

/// Waits for at least `duration`. On a lane only.
pub async fn sleep(duration: Duration) {
    if crate::on_heavy_lane() {
        crate::call(crate::current_core(), move || tokio::time::sleep(duration)).await;
    } else {
        tokio::time::sleep(duration).await;
    }
}

/// Runs `future` for at most `duration`. On a lane only.
///
/// Reads the clock before each poll of `future` but the first, so that a future that always wakes
/// itself at once still ends in time.
///
/// # Errors
/// The limit was reached. The future has been dropped.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let deadline_ns = monotonic_ns().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    let mut future = std::pin::pin!(future);
    let mut limit = std::pin::pin!(sleep(duration));
    let mut polled = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) && monotonic_ns() >= deadline_ns {
            return Poll::Ready(Err(Elapsed));
        }
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        limit.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
