//! Wake-ups between tasks of one fast lane. A woken task checks its condition again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Tasks that wait for a change. Bounded by the number of tasks.
#[derive(Debug, Default)]
pub(crate) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Wakes all waiting tasks.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Registers the task for the next wake-up.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
    }

    /// Waits until `done` returns `Some`.
    pub(crate) async fn wait<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match done() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.register(cx);
                Poll::Pending
            }
        })
        .await
    }
}
