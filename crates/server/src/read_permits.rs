//! Permits of reads of several rows, on one core. Such a read holds rows from its first poll on, in
//! portions that no account counts. The permits bound the bytes of all of them. A read without a
//! permit waits before its first poll, and holds nothing but its state.
//!
//! Turn goes round the connections, so that one with thousands of reads delays another by one read
//! of each connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use rustc_hash::FxHashMap;

/// Permits of a core.
pub(crate) struct ReadPermits {
    bytes_max: usize,
    free_bytes: Cell<usize>,
    waiting: RefCell<Round>,
}

/// Reads that wait, by connection.
#[derive(Default)]
struct Round {
    /// Connections with waiting reads, in turn.
    turns: VecDeque<u64>,
    reads: FxHashMap<u64, VecDeque<Rc<WaitingRead>>>,
}

/// A read that waits for its permit.
pub(crate) struct WaitingRead {
    bytes: usize,
    has_permit: Cell<bool>,
    waker: RefCell<Waker>,
}

impl ReadPermits {
    /// Creates permits of `bytes_max` in total.
    pub(crate) fn new(bytes_max: usize) -> ReadPermits {
        ReadPermits { bytes_max, free_bytes: Cell::new(bytes_max), waiting: RefCell::default() }
    }

    /// Takes a permit of `bytes`, if no read waits for one. A read of more than all bytes takes
    /// them all.
    pub(crate) fn try_take(&self, bytes: usize) -> bool {
        let bytes = bytes.min(self.bytes_max);
        let fits = bytes <= self.free_bytes.get() && self.waiting.borrow().turns.is_empty();
        if fits {
            self.free_bytes.set(self.free_bytes.get() - bytes);
        }
        fits
    }

    /// Waits for a permit of `bytes`, as a read of this connection.
    pub(crate) fn wait(&self, connection: u64, bytes: usize, waker: &Waker) -> Rc<WaitingRead> {
        let bytes = bytes.min(self.bytes_max);
        let waker = RefCell::new(waker.clone());
        let read = Rc::new(WaitingRead { bytes, has_permit: Cell::new(false), waker });
        let mut waiting = self.waiting.borrow_mut();
        let reads = waiting.reads.entry(connection).or_default();
        reads.push_back(read.clone());
        if reads.len() == 1 {
            waiting.turns.push_back(connection);
        }
        read
    }

    /// Gives back a permit of `bytes`, and passes what is free to reads that wait.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.free_bytes.set(self.free_bytes.get() + bytes.min(self.bytes_max));
        self.pass_on();
    }

    /// Gives permits to the next reads that fit. Skips reads that were abandoned.
    fn pass_on(&self) {
        loop {
            let mut waiting = self.waiting.borrow_mut();
            let Some(&connection) = waiting.turns.front() else { return };
            let reads = waiting.reads.get_mut(&connection).expect("a connection in turn has reads");
            // The queue alone refers to an abandoned read.
            let next = reads.front().filter(|read| Rc::strong_count(read) > 1);
            let bytes = next.map_or(0, |read| read.bytes);
            if bytes > self.free_bytes.get() {
                return;
            }
            let is_next = next.is_some();
            let read = reads.pop_front().expect("a connection in turn has reads");
            if reads.is_empty() {
                waiting.turns.pop_front();
                waiting.reads.remove(&connection);
            } else if is_next {
                waiting.turns.rotate_left(1);
            }
            drop(waiting);
            if is_next {
                self.free_bytes.set(self.free_bytes.get() - bytes);
                read.has_permit.set(true);
                read.waker.borrow().wake_by_ref();
            }
        }
    }
}

impl WaitingRead {
    /// Returns true if it has its permit now. Otherwise its task is woken then.
    pub(crate) fn has_permit(&self, waker: &Waker) -> bool {
        if !self.has_permit.get() {
            self.waker.borrow_mut().clone_from(waker);
        }
        self.has_permit.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(read: &[Rc<WaitingRead>]) -> Vec<bool> {
        read.iter().map(|read| read.has_permit.get()).collect()
    }

    #[test]
    fn reads_beyond_the_bound_wait_in_turn() {
        let permits_of = ReadPermits::new(100);
        assert!(permits_of.try_take(60) && permits_of.try_take(40) && !permits_of.try_take(1));
        let wait = |connection, bytes| permits_of.wait(connection, bytes, Waker::noop());
        let mut reads: Vec<_> = (0..3).map(|_| wait(1, 40)).collect();
        reads.extend([wait(2, 40), wait(3, 500)]);
        permits_of.give_back(40);
        assert_eq!(permits(&reads), [true, false, false, false, false]);
        assert!(!permits_of.try_take(0), "others wait");
        permits_of.give_back(60);
        assert_eq!(permits(&reads), [true, false, false, true, false], "the third one needs all");
        permits_of.give_back(40);
        permits_of.give_back(40);
        assert_eq!(permits(&reads), [true, false, false, true, true]);
        permits_of.give_back(500);
        assert_eq!(permits(&reads), [true; 5]);
    }

    #[test]
    fn abandoned_reads_get_no_permit() {
        let permits_of = ReadPermits::new(100);
        assert!(permits_of.try_take(100));
        let abandoned = permits_of.wait(1, 100, Waker::noop());
        let next = permits_of.wait(1, 100, Waker::noop());
        drop(abandoned);
        permits_of.give_back(100);
        assert!(next.has_permit(Waker::noop()));
        drop(next);
        permits_of.give_back(100);
        assert!(permits_of.try_take(100));
    }
}
