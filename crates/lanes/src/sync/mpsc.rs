//! Bounded queue from many tasks to one, all of the same fast lane. When it is full, `send` waits
//! and `try_send` fails.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Closed;

#[derive(Debug)]
struct ChannelState<T> {
    queue: VecDeque<T>,
    depth_max: usize,
    receiver: Option<Waker>,
    /// Tasks that wait for free space. The number of senders bounds it.
    senders_waiting: VecDeque<Waker>,
    senders: usize,
    open: bool,
}

/// Sending side. Clones share the queue.
#[derive(Debug)]
pub struct Sender<T>(Rc<RefCell<ChannelState<T>>>);

/// Receiving side, first in, first out.
#[derive(Debug)]
pub struct Receiver<T>(Rc<RefCell<ChannelState<T>>>);

/// Reason why a value was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrySendError<T> {
    /// The queue is full.
    Full(T),
    /// The receiver was dropped.
    Closed(T),
}

/// Creates a queue of at most `depth_max` values (at least one).
#[must_use]
pub fn channel<T>(depth_max: usize) -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(RefCell::new(ChannelState {
        queue: VecDeque::new(),
        depth_max: depth_max.max(1),
        receiver: None,
        senders_waiting: VecDeque::new(),
        senders: 1,
        open: true,
    }));
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Queues a value if the queue is not full.
    ///
    /// # Errors
    /// Full or closed: returns the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let mut state = self.0.borrow_mut();
        if !state.open {
            return Err(TrySendError::Closed(value));
        }
        if state.queue.len() >= state.depth_max {
            return Err(TrySendError::Full(value));
        }
        state.queue.push_back(value);
        let waker = state.receiver.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Queues a value, waiting for free space.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub async fn send(&self, value: T) -> Result<(), Closed> {
        let mut value = Some(value);
        std::future::poll_fn(|cx: &mut Context<'_>| {
            let Some(unsent) = value.take() else { return Poll::Ready(Ok(())) };
            match self.try_send(unsent) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(TrySendError::Closed(_)) => Poll::Ready(Err(Closed)),
                Err(TrySendError::Full(back)) => {
                    value = Some(back);
                    self.0.borrow_mut().senders_waiting.push_back(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns true if the receiver was dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.0.borrow().open
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.borrow_mut().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.senders -= 1;
        let waker = if state.senders == 0 { state.receiver.take() } else { None };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Receiver<T> {
    /// Returns the next value; `None` once all senders are dropped and the queue is empty.
    pub async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Returns the next value if there is one now.
    pub fn try_recv(&mut self) -> Option<T> {
        let mut state = self.0.borrow_mut();
        let value = state.queue.pop_front()?;
        // Wake all waiters, not one: a waiter may have been dropped since, and its turn must not be
        // lost.
        let waiting = std::mem::take(&mut state.senders_waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        Some(value)
    }

    /// Does the same as [`Receiver::recv`], for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.try_recv() {
            return Poll::Ready(Some(value));
        }
        let mut state = self.0.borrow_mut();
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        state.receiver = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.open = false;
        let gone = (std::mem::take(&mut state.queue), std::mem::take(&mut state.senders_waiting));
        drop(state);
        drop(gone.0);
        gone.1.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;

    #[test]
    fn queue_is_bounded_ordered_and_ends() {
        let mut cx = Context::from_waker(Waker::noop());
        let (sender, mut receiver) = channel(2);
        assert_eq!((sender.try_send(1), sender.try_send(2)), (Ok(()), Ok(())));
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        let mut waits = Box::pin(sender.send(3));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert_eq!(receiver.try_recv(), Some(1));
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
        drop(waits);
        drop(sender);
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(Some(2)));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(Some(3)));
        assert_eq!(receiver.poll_recv(&mut cx), Poll::Ready(None));
        let (sender, receiver) = channel(1);
        drop(receiver);
        assert_eq!(sender.try_send(1), Err(TrySendError::Closed(1)));
    }
}
