//! Keyed locks for the tasks of one core, granted in the order of arrival. Releasing a lock wakes
//! only the next waiter, so that many waiters of one key cost no more than waiters of different
//! keys.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use lanes::sync::oneshot;

/// Locked keys with their wait queues. There are at most as many entries as tasks in flight.
#[derive(Debug)]
pub(crate) struct KeyedLock<K: Eq + Hash + Copy>(Rc<RefCell<HashMap<K, Queue<K>>>>);

type Queue<K> = VecDeque<oneshot::Sender<KeyGuard<K>>>;

/// Guard of a locked key. Dropping it passes the lock to the next waiter.
#[derive(Debug)]
pub(crate) struct KeyGuard<K: Eq + Hash + Copy> {
    /// `None` once the lock was passed on.
    locks: Option<KeyedLock<K>>,
    key: K,
}

impl<K: Eq + Hash + Copy> Default for KeyedLock<K> {
    fn default() -> KeyedLock<K> {
        KeyedLock(Rc::default())
    }
}

impl<K: Eq + Hash + Copy> KeyedLock<K> {
    /// Locks a key. Skips waiters that were cancelled.
    pub(crate) async fn lock(&self, key: K) -> KeyGuard<K> {
        let waiting = match self.0.borrow_mut().entry(key) {
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                None
            }
            Entry::Occupied(mut taken) => {
                let (sender, receiver) = oneshot::channel();
                taken.get_mut().push_back(sender);
                Some(receiver)
            }
        };
        match waiting {
            None => KeyGuard { locks: Some(KeyedLock(self.0.clone())), key },
            Some(receiver) => receiver.await.expect("a dropped guard passes the lock on"),
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for KeyGuard<K> {
    fn drop(&mut self) {
        let Some(locks) = self.locks.take() else { return };
        let mut next = KeyGuard { locks: Some(locks), key: self.key };
        loop {
            let Some(locks) = &next.locks else { return };
            let waiting = locks.0.borrow_mut().get_mut(&next.key).and_then(VecDeque::pop_front);
            let Some(sender) = waiting else {
                locks.0.borrow_mut().remove(&next.key);
                next.locks = None;
                return;
            };
            match sender.send(next) {
                Ok(()) => return,
                // The waiter was cancelled.
                Err(back) => next = back,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn lock_is_granted_in_the_order_of_arrival() {
        let locks: KeyedLock<u8> = KeyedLock::default();
        let mut tasks: Vec<_> = (0..4).map(|_| Box::pin(locks.lock(1))).collect();
        let Poll::Ready(first) = poll(&mut tasks[0]) else { panic!("the key is free") };
        assert!(tasks[1..].iter_mut().all(|task| poll(task).is_pending()));
        assert!(poll(&mut Box::pin(locks.lock(2))).is_ready(), "another key");
        // The second waiter is cancelled.
        drop(tasks.remove(1));
        drop(first);
        let Poll::Ready(third) = poll(&mut tasks[1]) else { panic!("it is the next waiter") };
        assert!(poll(&mut tasks[2]).is_pending());
        drop(third);
        assert!(poll(&mut tasks[2]).is_ready());
        assert!(locks.0.borrow().is_empty());
    }

    #[test]
    fn cancelled_waiters_pass_the_lock_on() {
        let locks: KeyedLock<u8> = KeyedLock::default();
        let mut tasks: Vec<_> = (0..100_002).map(|_| Box::pin(locks.lock(1))).collect();
        let Poll::Ready(first) = poll(&mut tasks[0]) else { panic!("the key is free") };
        assert!(tasks[1..].iter_mut().all(|task| poll(task).is_pending()));
        drop(first);
        // The second task got the lock, but was never polled again.
        let mut last = tasks.pop().expect("the last");
        drop(tasks);
        assert!(poll(&mut last).is_ready());
        assert!(locks.0.borrow().is_empty());
    }
}
