//! Writes that wait for the disk: one queue a session, polled by its connection's task. A write
//! needs no task and no timer of its own. A connection is woken once for each write to the disk.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{Acks, Error, Outcome, Warnings};

use crate::reply;
use crate::request::PendingAnswer;
use crate::session::Session;

/// Maximum number of answers before the connection polls other events: a few microseconds of work.
const ANSWERS_MAX: usize = 128;

/// A session's writes that wait for the disk.
#[derive(Default)]
pub(crate) struct Unacked {
    /// Writes in the order of their numbers.
    waiting: VecDeque<Waiting>,
    acks: Option<Box<dyn Acks>>,
    timer: Option<Timer>,
}

struct Waiting {
    write: u64,
    /// Deadline of the answer, ns of the monotonic clock.
    deadline_ns: u64,
    pending: PendingAnswer,
}

/// A timer that ends at or before the first `deadline_ns` of all waiting writes.
struct Timer {
    at_ns: u64,
    sleep: Pin<Box<dyn Future<Output = ()>>>,
}

impl Session {
    /// Answers a write when the engine acknowledges it or when its deadline has passed. The
    /// session's connection polls for both.
    pub(crate) fn answer_when_acked(self: &Rc<Self>, pending: PendingAnswer, write: u64) {
        self.begin();
        let deadline_ns = pending.times.began_ns.saturating_add(nanoseconds(pending.limit));
        let unacked = &mut *self.unacked.borrow_mut();
        unacked.waiting.push_back(Waiting { write, deadline_ns, pending });
        if unacked.timer.as_ref().is_some_and(|timer| deadline_ns < timer.at_ns) {
            unacked.timer = None;
        }
    }

    /// Answers the writes that are acknowledged or late, and registers the connection's waker for
    /// the next.
    pub(crate) fn answer_acked(self: &Rc<Self>, cx: &mut Context<'_>) {
        if self.unacked.borrow().waiting.is_empty() {
            return;
        }
        let mut now_ns = None;
        for _ in 0..ANSWERS_MAX {
            let Some(result) = self.poll_oldest(cx) else { return self.answer_expired(cx) };
            let now_ns = *now_ns.get_or_insert_with(lanes::time::monotonic_ns);
            let oldest = self.unacked.borrow_mut().waiting.pop_front();
            self.deliver_acked(oldest.expect("polled above").pending, result.map(|()| Outcome::Void), now_ns);
        }
        cx.waker().wake_by_ref();
    }

    /// Returns the engine's result for the oldest write, or `None` if the write is still pending.
    fn poll_oldest(&self, cx: &mut Context<'_>) -> Option<Result<(), Error>> {
        let unacked = &mut *self.unacked.borrow_mut();
        let write = unacked.waiting.front()?.write;
        let acks = unacked.acks.get_or_insert_with(|| self.core.engine.acks());
        match acks.poll_acked(write, cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    /// Answers the writes whose deadline has passed, and sets the timer for the next deadline.
    fn answer_expired(self: &Rc<Self>, cx: &mut Context<'_>) {
        loop {
            if !self.unacked.borrow_mut().poll_timer(cx) {
                return;
            }
            let now_ns = lanes::time::monotonic_ns();
            let expired = self.unacked.borrow_mut().take_expired(now_ns);
            for Waiting { pending, .. } in expired {
                let error = reply::timed_out(pending.kind, pending.limit);
                self.deliver_acked(pending, Err(error), now_ns);
            }
        }
    }

    fn deliver_acked(self: &Rc<Self>, pending: PendingAnswer, result: Result<Outcome, Error>, now_ns: u64) {
        Warnings::begin();
        pending.warnings.give();
        self.deliver(pending, result, now_ns);
        self.in_flight.set(self.in_flight.get() - 1);
    }
}

impl Unacked {
    /// Removes the writes whose deadline has passed, in one pass.
    fn take_expired(&mut self, now_ns: u64) -> Vec<Waiting> {
        let (expired, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|w| w.deadline_ns <= now_ns);
        self.waiting = waiting;
        Vec::from(expired)
    }

    /// Returns true if the timer has ended. Without a timer, sets one if a write is waiting.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
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

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
