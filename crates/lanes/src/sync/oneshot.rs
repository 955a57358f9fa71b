//! Channel for one value between tasks of the same fast lane.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Closed;

#[derive(Debug)]
struct OneshotState<T> {
    value: Option<T>,
    waker: Option<Waker>,
    receiver: bool,
    sender: bool,
}

/// Sending side.
#[derive(Debug)]
pub struct Sender<T>(Rc<RefCell<OneshotState<T>>>);

/// Receiving side.
#[derive(Debug)]
pub struct Receiver<T>(Rc<RefCell<OneshotState<T>>>);

/// Creates a channel for one value.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state =
        Rc::new(RefCell::new(OneshotState { value: None, waker: None, receiver: true, sender: true }));
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Sends the value.
    ///
    /// # Errors
    /// The receiver was dropped: returns the value.
    pub fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.borrow_mut();
        if !state.receiver {
            return Err(value);
        }
        state.value = Some(value);
        Ok(())
    }

    /// Returns true if the receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.0.borrow().receiver
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.sender = false;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.borrow_mut();
        match state.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            None if !state.sender => Poll::Ready(Err(Closed)),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.receiver = false;
        let gone = (state.value.take(), state.waker.take());
        drop(state);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_gets_the_value_or_the_end_of_the_sender() {
        let mut cx = Context::from_waker(Waker::noop());
        let (sender, mut receiver) = channel();
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Pending);
        assert_eq!(sender.send(7), Ok(()));
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Ready(Ok(7)));
        let (sender, mut receiver) = channel::<u8>();
        drop(sender);
        assert_eq!(Pin::new(&mut receiver).poll(&mut cx), Poll::Ready(Err(Closed)));
        let (sender, receiver) = channel();
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send(7), Err(7));
    }
}
