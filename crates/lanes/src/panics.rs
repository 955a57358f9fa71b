//! Single way to catch a panic. The caller then returns an error or reports it, and uses nothing
//! more of the panicked work. The panic hook of the process logs the panic with its place.
#![expect(unsafe_code, reason = "a future is pinned within its adaptor, which saves a box for each")]

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Error of work that panicked and has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the work panicked: see the log for the place")
    }
}

impl std::error::Error for Panicked {}

/// Future whose panic is an error: see [`catch_panic`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are polled"]
pub struct CatchPanic<F>(F);

/// Returns the output of `future`, or [`Panicked`] if a poll of it panics. It is not polled again
/// then. Its destructors run when the adaptor is dropped. Allocates nothing.
pub fn catch_panic<F: Future>(future: F) -> CatchPanic<F> {
    CatchPanic(future)
}

/// Runs `work` and returns its result.
///
/// # Errors
/// [`Panicked`], if it panicked.
pub fn catch_panic_in<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is never moved out of the adaptor, which has no `Drop`, and is `Unpin`
        // only if the field is.
        let future = unsafe { self.map_unchecked_mut(|adaptor| &mut adaptor.0) };
        match catch_panic_in(|| future.poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn panic_of_a_later_poll_is_an_error() {
        let mut polls = 0;
        let work = std::future::poll_fn(|_| {
            polls += 1;
            match polls {
                1 => Poll::<u32>::Pending,
                _ => panic!("this panic is part of the test"),
            }
        });
        let mut caught = pin!(catch_panic(work));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(caught.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(caught.as_mut().poll(&mut cx), Poll::Ready(Err(Panicked)));
        assert_eq!(pin!(catch_panic(async { 7 })).poll(&mut cx), Poll::Ready(Ok(7)));
    }

    #[test]
    fn adaptor_takes_no_more_memory_than_its_future() {
        fn check<F: Future>(future: F) {
            let before = size_of_val(&future);
            assert_eq!(size_of_val(&catch_panic(future)), before);
        }
        check(async {
            let large = [0_u8; 1000];
            std::future::ready(()).await;
            std::hint::black_box(&large);
        });
    }

    #[test]
    fn panic_of_a_closure_is_an_error() {
        assert_eq!(catch_panic_in(|| 7), Ok(7));
        assert_eq!(catch_panic_in(|| -> u32 { panic!("this panic is part of the test") }), Err(Panicked));
    }
}
