//! Writes of a session that wait for the disk, in one queue. A write needs no task and no timer of
//! its own.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{Acks, Engine, Error, Warnings};

use crate::request::CqlRequest;

/// The queue.
#[derive(Default)]
pub(crate) struct Unacked {
    /// Writes in the order of their numbers.
    waiting: VecDeque<WaitingAnswer>,
    acks: Option<Box<dyn Acks>>,
    timer: Option<Timer>,
}

struct WaitingAnswer {
    write: u64,
    /// Deadline of the answer, ns of the monotonic clock.
    deadline_ns: u64,
    request: CqlRequest,
    /// Guardrail warnings so far.
    warnings: Warnings,
}

// Each write that waits for the disk holds one.
const _: () = assert!(size_of::<WaitingAnswer>() <= 232, "more bytes for each write in flight");

/// A timer that ends at or before the first `deadline_ns` of all waiting writes.
struct Timer {
    at_ns: u64,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
}

impl Unacked {
    /// Returns true if no write waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the write with the number `write`.
    pub(crate) fn push(&mut self, request: CqlRequest, warnings: Warnings, write: u64) {
        let deadline_ns = request.times.began_ns.saturating_add(nanoseconds(request.limit));
        self.waiting.push_back(WaitingAnswer { write, deadline_ns, request, warnings });
        if self.timer.as_ref().is_some_and(|timer| deadline_ns < timer.at_ns) {
            self.timer = None;
        }
    }

    /// Returns the engine's result for the oldest write, or `None` if the write is still pending.
    pub(crate) fn poll_oldest(
        &mut self,
        engine: &dyn Engine,
        cx: &mut Context<'_>,
    ) -> Option<Result<(), Error>> {
        let write = self.waiting.front()?.write;
        match self.acks.get_or_insert_with(|| engine.acks()).poll_acked(write, cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Removes the oldest write.
    pub(crate) fn take_oldest(&mut self) -> Option<(CqlRequest, Warnings)> {
        self.waiting.pop_front().map(|waiting| (waiting.request, waiting.warnings))
    }

    /// Removes the writes whose deadline has passed, in one pass.
    pub(crate) fn take_expired(
        &mut self,
        now_ns: u64,
    ) -> impl Iterator<Item = (CqlRequest, Warnings)> + use<> {
        let (expired, waiting): (VecDeque<_>, _) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w| w.deadline_ns <= now_ns);
        self.waiting = waiting;
        expired.into_iter().map(|waiting| (waiting.request, waiting.warnings))
    }

    /// Returns true if the timer has ended. Without a timer, sets one if a write is waiting.
    pub(crate) fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        if self.timer.is_none() {
            let Some(at_ns) = self.waiting.iter().map(|waiting| waiting.deadline_ns).min() else {
                return false;
            };
            let left = Duration::from_nanos(at_ns.saturating_sub(lanes::time::monotonic_ns()));
            self.timer = Some(Timer { at_ns, sleep: Box::pin(lanes::time::sleep(left)) });
        }
        let has_ended = self.timer.as_mut().is_some_and(|timer| timer.sleep.as_mut().poll(cx).is_ready());
        if has_ended {
            self.timer = None;
        }
        has_ended
    }
}

/// Returns a duration in ns.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
