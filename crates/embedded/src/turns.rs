//! Turns of tasks of one core: one at a time for each key, in the order in which they came. The end of a turn wakes the
//! next task only, so that many that wait for one key cost no more than as many for different keys.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::rc::Rc;

use lanes::sync::oneshot;

/// Keys whose turn is taken, with those who wait for it. There are no more entries than tasks under way.
#[derive(Debug)]
pub(crate) struct Turns<K: Eq + Hash + Copy>(Rc<RefCell<HashMap<K, Queue<K>>>>);

type Queue<K> = VecDeque<oneshot::Sender<Turn<K>>>;

/// A key's turn; it ends with this value.
#[derive(Debug)]
pub(crate) struct Turn<K: Eq + Hash + Copy> {
    /// `None`: it was handed on.
    turns: Option<Turns<K>>,
    key: K,
}

impl<K: Eq + Hash + Copy> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns(Rc::default())
    }
}

impl<K: Eq + Hash + Copy> Turns<K> {
    /// Waits for the key's turn. Whoever gives up waiting is passed over.
    pub(crate) async fn take(&self, key: K) -> Turn<K> {
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
            None => Turn { turns: Some(Turns(self.0.clone())), key },
            Some(receiver) => receiver.await.expect("a turn that ends is handed on"),
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Turn<K> {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        let mut next = Turn { turns: Some(turns), key: self.key };
        loop {
            let Some(turns) = &next.turns else { return };
            let waiting = turns.0.borrow_mut().get_mut(&next.key).and_then(VecDeque::pop_front);
            let Some(sender) = waiting else {
                turns.0.borrow_mut().remove(&next.key);
                next.turns = None;
                return;
            };
            match sender.send(next) {
                Ok(()) => return,
                // That task is gone.
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
    fn turns_of_a_key_come_one_at_a_time_in_order() {
        let turns: Turns<u8> = Turns::default();
        let mut tasks: Vec<_> = (0..4).map(|_| Box::pin(turns.take(1))).collect();
        let Poll::Ready(first) = poll(&mut tasks[0]) else { panic!("nobody is before it") };
        assert!(tasks[1..].iter_mut().all(|task| poll(task).is_pending()));
        assert!(poll(&mut Box::pin(turns.take(2))).is_ready(), "another key");
        // The second gives up.
        drop(tasks.remove(1));
        drop(first);
        let Poll::Ready(third) = poll(&mut tasks[1]) else { panic!("it is its turn") };
        assert!(poll(&mut tasks[2]).is_pending());
        drop(third);
        assert!(poll(&mut tasks[2]).is_ready());
        assert!(turns.0.borrow().is_empty());
    }

    #[test]
    fn turn_of_a_task_that_ended_before_it_began_is_handed_on() {
        let turns: Turns<u8> = Turns::default();
        let mut tasks: Vec<_> = (0..100_002).map(|_| Box::pin(turns.take(1))).collect();
        let Poll::Ready(first) = poll(&mut tasks[0]) else { panic!("nobody is before it") };
        assert!(tasks[1..].iter_mut().all(|task| poll(task).is_pending()));
        drop(first);
        // The second has it without knowing.
        let mut last = tasks.pop().expect("the last");
        drop(tasks);
        assert!(poll(&mut last).is_ready());
        assert!(turns.0.borrow().is_empty());
    }
}
