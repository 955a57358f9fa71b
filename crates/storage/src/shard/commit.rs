//! Acknowledgement of writes: futures that resolve when a write is durable.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::background::Background;
use crate::env::LocalBoxFuture;
use crate::error::StorageError;

/// Acknowledgements of one writer. It polls for its oldest write and gets the state of all. So a
/// writer with many writes in flight waits once for each disk write, not once for each of its own.
pub struct Acks {
    background: Rc<Background>,
    /// Delay of the acknowledgement while memtables fill faster than they are flushed.
    hold: Option<LocalBoxFuture<()>>,
    /// The last write known to be durable. It is acknowledged once `hold` is over.
    upto: u64,
    /// Waits for free space on a full disk, instead of failing.
    waits_while_full: bool,
}

impl std::fmt::Debug for Acks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acks").field("upto", &self.upto).finish_non_exhaustive()
    }
}

impl Acks {
    pub(crate) fn new(background: Rc<Background>) -> Acks {
        Acks { background, hold: None, upto: 0, waits_while_full: false }
    }

    /// Polls for the write with this number ([`Commit::number`]). If a later one is known to be
    /// durable, this is one comparison. The acknowledgement may come later than durability, while
    /// memtables fill faster than they are flushed.
    ///
    /// # Errors
    /// The log failed before this write was durable, or the disk is full. Other writes may still
    /// succeed.
    pub fn poll_acked(&mut self, write: u64, cx: &Context<'_>) -> Poll<Result<(), StorageError>> {
        ready!(self.background.acks.poll_open(cx));
        if self.upto < write {
            self.upto = match &self.background.jobs.log {
                Some(log) => ready!(log.poll_durable(write, self.waits_while_full, cx))?,
                None => u64::MAX,
            };
            self.hold = self.background.write_delay();
        }
        if let Some(hold) = &mut self.hold {
            ready!(hold.as_mut().poll(&mut Context::from_waker(cx.waker())));
            self.hold = None;
        }
        Poll::Ready(Ok(()))
    }
}

/// Resolves when its write is acknowledged. Dropping it does not revert the write.
#[must_use = "a write is acknowledged when its commit resolves"]
#[derive(Debug)]
pub struct Commit {
    acks: Acks,
    number: u64,
}

impl Commit {
    pub(crate) fn new(background: Rc<Background>, number: u64) -> Commit {
        Commit { acks: Acks::new(background), number }
    }

    /// Marks a write that makes free space: on a full disk the commit waits instead of failing,
    /// because the caller continues from the result.
    pub(crate) fn wait_while_full(mut self, waits_while_full: bool) -> Commit {
        self.acks.waits_while_full = waits_while_full;
        self
    }

    /// Returns the number of the write on its shard, for `Shard::acks`. Later writes have higher
    /// numbers.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Future for Commit {
    type Output = Result<(), StorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        self.acks.poll_acked(number, cx)
    }
}
