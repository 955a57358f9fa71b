//! The queue between handles and the batcher's future.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Command, Error, Store};

/// A command that has its place in the order.
#[derive(Debug)]
pub(crate) struct QueueEntry<C, O, E> {
    pub(crate) command: C,
    pub(crate) reply: oneshot::Sender<Result<O, Error<E>>>,
    /// Number of commands before it.
    pub(crate) sequence: u64,
    /// Its part of the bound on held commands. Returned when the command ends.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Receiver of the answer to a command.
pub(crate) type Receiver<O, E> = oneshot::Receiver<Result<O, Error<E>>>;

#[derive(Debug)]
pub(crate) struct Queue<C, O, E> {
    state: Mutex<QueueState<C, O, E>>,
    /// Commands that may still be pushed. Closed when the batcher's future has ended.
    free: Arc<Semaphore>,
    /// Wakes the batcher's future.
    news: Notify,
    /// Number of acknowledged commands at the start of the order.
    acknowledged: AtomicU64,
}

#[derive(Debug)]
struct QueueState<C, O, E> {
    entries: VecDeque<QueueEntry<C, O, E>>,
    handles: usize,
    pushed: u64,
    /// True if no command is taken any more.
    is_closed: bool,
    /// Failure after which nothing is sent.
    failure: Option<Arc<E>>,
}

impl<C, O, E> Queue<C, O, E> {
    /// Creates the queue with one handle, for at most `held_max` commands that have not ended.
    pub(crate) fn new(held_max: usize) -> Queue<C, O, E> {
        Queue {
            state: Mutex::new(QueueState {
                entries: VecDeque::new(),
                handles: 1,
                pushed: 0,
                is_closed: false,
                failure: None,
            }),
            free: Arc::new(Semaphore::new(held_max.min(Semaphore::MAX_PERMITS))),
            news: Notify::new(),
            acknowledged: AtomicU64::new(0),
        }
    }

    /// Locks the state. No user code runs under the lock, so that it is consistent after a panic.
    fn lock(&self) -> MutexGuard<'_, QueueState<C, O, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for free capacity, and gives the command its place in the order. Returns the number of
    /// commands before it.
    ///
    /// # Errors
    /// The batcher has failed or ended.
    pub(crate) async fn push(&self, command: C) -> Result<(u64, Receiver<O, E>), Error<E>> {
        let permit = self.free.clone().acquire_owned().await;
        self.enqueue(command, permit.ok())
    }

    /// Adds a command, unless the queue was closed, perhaps after the permit was acquired.
    fn enqueue(
        &self,
        command: C,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<(u64, Receiver<O, E>), Error<E>> {
        let mut state = self.lock();
        let Some(permit) = permit.filter(|_| !state.is_closed) else {
            return Err(state.failure.clone().map_or(Error::Dropped, Error::NotRun));
        };
        let (reply, receiver) = oneshot::channel();
        let sequence = state.pushed;
        state.pushed += 1;
        state.entries.push_back(QueueEntry { command, reply, sequence, permit });
        drop(state);
        self.news.notify_one();
        Ok((sequence, receiver))
    }

    /// Waits for at least one command and moves at most `max` of them to `to`. Returns false if
    /// there are no more and no handle is left.
    pub(crate) async fn take(&self, max: usize, to: &mut VecDeque<QueueEntry<C, O, E>>) -> bool {
        loop {
            let news = self.news.notified();
            {
                let mut state = self.lock();
                let taken = state.entries.len().min(max);
                to.extend(state.entries.drain(..taken));
                if taken > 0 || state.handles == 0 {
                    return taken > 0;
                }
            }
            news.await;
        }
    }

    /// Moves at most `max` commands that wait now to `to`.
    pub(crate) fn take_now(&self, max: usize, to: &mut VecDeque<QueueEntry<C, O, E>>) {
        let mut state = self.lock();
        let taken = state.entries.len().min(max);
        to.extend(state.entries.drain(..taken));
    }

    pub(crate) fn add_handle(&self) {
        self.lock().handles += 1;
    }

    pub(crate) fn remove_handle(&self) {
        let mut state = self.lock();
        state.handles -= 1;
        if state.handles == 0 {
            self.news.notify_one();
        }
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Sets the number of acknowledged commands at the start of the order.
    pub(crate) fn acknowledge(&self, up_to: u64) {
        self.acknowledged.store(up_to, Ordering::Release);
    }

    /// Ends the queue after a failure: waiting commands and later ones are not run.
    pub(crate) fn fail(&self, reason: &Arc<E>) {
        self.lock().failure = Some(reason.clone());
        for entry in self.end() {
            // The caller may have given up.
            let _ = entry.reply.send(Err(Error::NotRun(reason.clone())));
        }
    }

    /// Ends the queue: waiting commands and later ones end with [`Error::Dropped`].
    pub(crate) fn close(&self) {
        drop(self.end());
    }

    /// Closes the queue and returns the waiting commands.
    fn end(&self) -> VecDeque<QueueEntry<C, O, E>> {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.entries);
        drop(state);
        self.free.close();
        waiting
    }
}

/// The queue of a batcher over store `S` for commands `C`.
pub(crate) type QueueOf<S, C> =
    Queue<C, <C as Command<<S as Store>::Slot, <S as Store>::Value>>::Out, <S as Store>::Error>;

/// A command in the queue of a batcher.
pub(crate) type EntryOf<S, C> =
    QueueEntry<C, <C as Command<<S as Store>::Slot, <S as Store>::Value>>::Out, <S as Store>::Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_whose_permit_is_older_than_the_end_is_refused() {
        let queue: Queue<(), (), &str> = Queue::new(2);
        let permit = || queue.free.clone().try_acquire_owned().ok();
        let permits = [permit(), permit()];
        queue.fail(&Arc::new("full disk"));
        for permit in permits {
            assert!(permit.is_some());
            let refused = queue.enqueue((), permit).expect_err("nothing would answer it");
            assert!(matches!(refused, Error::NotRun(reason) if *reason == "full disk"));
        }
    }
}
