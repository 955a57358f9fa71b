//! The batcher: its handles, and the future that runs the commands.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::gate::Gate;
use crate::operations::Operations;
use crate::queue::{Queue, QueueOf, Receiver};
use crate::{BatcherClock, Command, Error, Limits, Store, Strategy, per_partition, phases, pipelined};

/// Result of a batcher's future: the failure of an operation after which it sent nothing more.
pub type Done<S> = Result<(), Arc<<S as Store>::Error>>;

/// Configuration of a batcher. [`Batcher::start`] returns its handle and its future.
pub struct Batcher<S: Store> {
    store: S,
    limits: Limits,
    strategy: Strategy<S::Slot>,
    clock: BatcherClock,
}

impl<S: Store> fmt::Debug for Batcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl<S: Store> Batcher<S> {
    /// Creates a batcher with [`Strategy::Pipelined`] and the system's clock.
    ///
    /// # Panics
    /// `limits` allows no command or no operation.
    pub fn new(store: S, limits: Limits) -> Batcher<S> {
        let is_enough = limits.commands_max > 0 && limits.iops_in_flight > 0;
        assert!(is_enough, "expected commands_max and iops_in_flight of at least 1, got {limits:?}");
        Batcher { store, limits, strategy: Strategy::Pipelined, clock: BatcherClock::SYSTEM }
    }

    /// Sets the strategy.
    #[must_use]
    pub fn with_strategy(mut self, strategy: Strategy<S::Slot>) -> Batcher<S> {
        self.strategy = strategy;
        self
    }

    /// Sets the clocks.
    #[must_use]
    pub fn with_clock(mut self, clock: BatcherClock) -> Batcher<S> {
        self.clock = clock;
        self
    }

    /// Returns a handle for commands, and the future that runs them. Spawn or poll the future on
    /// any runtime. It ends when all handles are dropped and all commands have ended.
    ///
    /// # Panics
    /// The future panics if a command panics or breaks the rules of [`crate::View`]. Commands that
    /// have not ended then end with [`Error::Dropped`].
    pub fn start<C>(self) -> (Handle<S, C>, impl Future<Output = Done<S>>)
    where
        C: Command<S::Slot, S::Value>,
    {
        let queue = Arc::new(Queue::new(self.limits.commands_max.saturating_mul(2)));
        let gate = Arc::new(Gate::new(self.limits, self.clock));
        let handle = Handle { queue: queue.clone(), gate: gate.clone() };
        (handle, self.drive(Ends(queue), gate))
    }

    async fn drive<C>(self, ends: Ends<S, C>, gate: Arc<Gate>) -> Done<S>
    where
        C: Command<S::Slot, S::Value>,
    {
        let queue = &*ends.0;
        let operations = Operations::new(self.store, self.limits, self.clock, gate);
        let done = match self.strategy {
            Strategy::Pipelined => pipelined::run(&operations, queue).await,
            Strategy::Phases => phases::run(&operations, queue).await,
            Strategy::PerPartition { threads, partition } => {
                per_partition::run(&operations, queue, threads.max(1), partition).await
            }
            Strategy::Sequential => per_partition::run(&operations, queue, 1, |_| 0).await,
        };
        if let Err(reason) = &done {
            queue.fail(reason);
        }
        done
    }
}

/// Closes the queue when the future ends or is dropped.
struct Ends<S: Store, C: Command<S::Slot, S::Value>>(Arc<QueueOf<S, C>>);

impl<S: Store, C: Command<S::Slot, S::Value>> Drop for Ends<S, C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Hands commands to a batcher. Clones share the order.
pub struct Handle<S: Store, C: Command<S::Slot, S::Value>> {
    queue: Arc<QueueOf<S, C>>,
    gate: Arc<Gate>,
}

impl<S: Store, C: Command<S::Slot, S::Value>> fmt::Debug for Handle<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("acknowledged_up_to", &self.acknowledged_up_to())
            .finish_non_exhaustive()
    }
}

impl<S: Store, C: Command<S::Slot, S::Value>> Clone for Handle<S, C> {
    fn clone(&self) -> Handle<S, C> {
        self.queue.add_handle();
        Handle { queue: self.queue.clone(), gate: self.gate.clone() }
    }
}

impl<S: Store, C: Command<S::Slot, S::Value>> Drop for Handle<S, C> {
    fn drop(&mut self) {
        self.queue.remove_handle();
    }
}

impl<S: Store, C: Command<S::Slot, S::Value>> Handle<S, C> {
    /// Gives the command its place in the order, and waits for its output. Waits while the batcher
    /// holds as many commands as it may.
    ///
    /// # Errors
    /// The command was not acknowledged.
    pub async fn submit(&self, command: C) -> Result<C::Out, Error<S::Error>> {
        self.push(command).await?.await
    }

    /// Gives the command its place in the order, and returns its pending output. A consumer that
    /// must keep an order awaits `push`, and the outputs later. Dropping the reply does not stop
    /// the command.
    ///
    /// # Errors
    /// The batcher has failed or ended.
    pub async fn push(&self, command: C) -> Result<Reply<C::Out, S::Error>, Error<S::Error>> {
        let (sequence, receiver) = self.queue.push(command).await?;
        Ok(Reply { sequence, receiver })
    }

    /// Returns the number of commands at the start of the order that are acknowledged.
    pub fn acknowledged_up_to(&self) -> u64 {
        self.queue.acknowledged()
    }

    /// Returns the number of reads and writes that may be in flight now: the value to observe with
    /// [`Limits::is_adaptive`].
    pub fn iops_in_flight(&self) -> usize {
        self.gate.limit()
    }
}

/// Pending output of a command.
#[derive(Debug)]
pub struct Reply<O, E> {
    sequence: u64,
    receiver: Receiver<O, E>,
}

impl<O, E> Reply<O, E> {
    /// Returns the number of commands before this one.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl<O, E> Future for Reply<O, E> {
    type Output = Result<O, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(cx).map(|received| received.unwrap_or(Err(Error::Dropped)))
    }
}
