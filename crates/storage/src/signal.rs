//! Waking tasks of one fast lane: whoever waits is woken, and looks again for itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Tasks that wait for something to change. Bounded by the number of tasks.
#[derive(Debug, Default)]
pub(crate) struct Signal(RefCell<Vec<Waker>>);

impl Signal {
    /// Wakes everyone.
    pub(crate) fn wake(&self) {
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// To be woken next time.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
    }

    /// Waits until `done` answers.
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
