//! Inbox: many producers on any thread, emptied whole by one consumer. A push is a compare-and-swap
//! in a loop, which the success of another producer can repeat. Emptying is one swap. No thread
//! ever waits for another. A consumer that had to (as with a linked queue whose producer was
//! preempted half-way) would stall its whole core.
//!
//! ```text
//!   head ──▶ newest ──▶ … ──▶ oldest        take: swap head away, reverse: oldest first
//! ```
#![expect(unsafe_code, reason = "a linked list of boxes behind an atomic pointer")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Node<T> {
    next: *mut Node<T>,
    value: T,
}

/// Inbox. The head of this file describes it.
pub(crate) struct Inbox<T> {
    head: AtomicPtr<Node<T>>,
}

// SAFETY: values move from producers to the consumer and are never shared.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above; the list is only touched through the atomic head.
unsafe impl<T: Send> Sync for Inbox<T> {}

/// Returns the head of a closed inbox: an address that no allocation has.
fn closed<T>() -> *mut Node<T> {
    ptr::dangling_mut()
}

impl<T> Inbox<T> {
    pub(crate) const fn new() -> Inbox<T> {
        Inbox { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a value. Returns it if the inbox is closed.
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        let mut head = self.head.load(Ordering::Relaxed);
        if head == closed() {
            return Err(value);
        }
        let node = Box::into_raw(Box::new(Node { next: head, value }));
        loop {
            if head == closed() {
                // SAFETY: the node was never published.
                return Err(unsafe { Box::from_raw(node) }.value);
            }
            // SAFETY: as above: only this thread has the node.
            unsafe { (*node).next = head };
            // Sequentially consistent, since the consumer announces its sleep and then checks the
            // head (see `CoreShared::send`).
            match self.head.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => head = now,
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.load(Ordering::SeqCst);
        head.is_null() || head == closed()
    }

    /// Takes everything, oldest first.
    pub(crate) fn take(&self) -> Taken<T> {
        let head = self.head.load(Ordering::Relaxed);
        if head.is_null() || head == closed() {
            return Taken { next: ptr::null_mut() };
        }
        // Only the consumer closes the inbox, so the head is a list here.
        Taken::reversed(self.head.swap(ptr::null_mut(), Ordering::AcqRel))
    }

    /// Takes everything and closes the inbox. Only the consumer may call it.
    pub(crate) fn close(&self) -> Taken<T> {
        let head = self.head.swap(closed(), Ordering::AcqRel);
        if head == closed() { Taken { next: ptr::null_mut() } } else { Taken::reversed(head) }
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// Values taken from an inbox.
pub(crate) struct Taken<T> {
    next: *mut Node<T>,
}

impl<T> Taken<T> {
    fn reversed(mut head: *mut Node<T>) -> Taken<T> {
        let mut next = ptr::null_mut();
        while !head.is_null() {
            // SAFETY: the list was swapped out of the head, so this thread owns every node of it.
            let node = unsafe { &mut *head };
            head = std::mem::replace(&mut node.next, next);
            next = node;
        }
        Taken { next }
    }
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next.is_null() {
            return None;
        }
        // SAFETY: owned, made by `Box::into_raw`, and taken off the list here.
        let node = unsafe { Box::from_raw(self.next) };
        self.next = node.next;
        Some(node.value)
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "producers on threads of their own")]
    fn inbox_keeps_every_value_and_the_order_of_each_producer() {
        const EACH: u64 = 20_000;
        let inbox = Arc::new(Inbox::new());
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let inbox = inbox.clone();
                std::thread::spawn(move || (0..EACH).for_each(|n| assert!(inbox.push((producer, n)).is_ok())))
            })
            .collect();
        let mut next = [0; 4];
        while next != [EACH; 4] {
            for (producer, n) in inbox.take() {
                assert_eq!(n, next[producer]);
                next[producer] += 1;
            }
        }
        producers.into_iter().for_each(|producer| producer.join().unwrap());
    }

    #[test]
    fn closed_inbox_returns_values_and_drop_frees_them() {
        let value = Arc::new(());
        let inbox = Inbox::new();
        assert!(inbox.push(value.clone()).is_ok() && inbox.push(value.clone()).is_ok());
        let mut taken = inbox.take();
        assert!(taken.next().is_some());
        drop(taken);
        assert!(inbox.push(value.clone()).is_ok());
        assert_eq!(inbox.close().count(), 1);
        assert!(inbox.push(value.clone()).is_err() && inbox.is_empty());
        assert_eq!((inbox.take().count(), inbox.close().count()), (0, 0));
        drop(inbox);
        let inbox = Inbox::new();
        assert!(inbox.push(value.clone()).is_ok());
        drop(inbox);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
