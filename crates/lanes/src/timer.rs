//! Timer of a lane, a `timerfd` in the poller. Slices are tenths of milliseconds, which tokio's
//! timers cannot distinguish.
#![expect(unsafe_code, reason = "registers a descriptor with the poller")]

use std::fs::File;
use std::io;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Timer that wakes the loop at a set time.
pub(crate) struct Timer {
    file: AsyncFd<File>,
    /// Time it is set to, ns; 0 if it is not set, or has expired.
    armed_ns: u64,
}

impl Timer {
    /// Creates a timer. Needs a tokio runtime.
    pub(crate) fn new() -> io::Result<Timer> {
        // SAFETY: a File owns its descriptor and always names the same one.
        let file = unsafe { AsyncFd::register_with_interest(crate::sys::timer()?, Interest::READABLE) };
        Ok(Timer { file: file.map_err(|failed| failed.into_parts().1)?, armed_ns: 0 })
    }

    /// Has this task woken when the timer expires. Every poll calls it.
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        // The event is edge-triggered, and the timer is set anew each time, so it need not be read.
        while let Poll::Ready(Ok(mut guard)) = self.file.poll_read_ready(cx) {
            guard.clear_ready();
            self.armed_ns = 0;
        }
    }

    /// Waits until this time of the monotonic clock, ns.
    pub(crate) async fn wait_until(&mut self, at_ns: u64) {
        self.arm(Some(at_ns));
        std::future::poll_fn(|cx| {
            self.rest(cx);
            if self.armed_ns == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Sets the timer, by the monotonic clock. `None` leaves it as it is: a superfluous expiry is
    /// harmless.
    pub(crate) fn arm(&mut self, until_ns: Option<u64>) {
        let Some(until_ns) = until_ns else { return };
        if until_ns != self.armed_ns {
            crate::sys::set_timer(self.file.get_ref(), until_ns);
            self.armed_ns = until_ns;
        }
    }
}
