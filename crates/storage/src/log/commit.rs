//! When a write counts: the promise of one, and how far many have come.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::error::StorageError;
use crate::shard::Shard;
use crate::world::LocalBoxFuture;

/// How far the writes of one writer have come: it asks for its oldest, and learns of all that are done by then. So a
/// writer with many in flight waits once for each write of the disk, not once for each of its own.
pub struct Acks {
    shard: Rc<Shard>,
    /// While memtables fill faster than they are flushed.
    hold: Option<LocalBoxFuture<()>>,
    /// Known to be durable, and told of once `hold` is over.
    upto: u64,
    /// It waits for space on a full disk.
    patient: bool,
}

impl std::fmt::Debug for Acks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acks").field("upto", &self.upto).finish_non_exhaustive()
    }
}

impl Acks {
    pub(crate) fn new(shard: Rc<Shard>) -> Acks {
        Acks { shard, hold: None, upto: 0, patient: false }
    }

    /// Whether the write with this number ([`Commit::number`]) counts as done; a comparison, where a later one is known to. Later
    /// than durable, when memtables fill faster than they are flushed.
    ///
    /// # Errors
    /// The log has failed before this write was durable, or the disk is full. Others may still succeed.
    pub fn poll_acked(&mut self, write: u64, cx: &Context<'_>) -> Poll<Result<(), StorageError>> {
        if self.shard.acks_held.get() {
            self.shard.acks_free.register(cx);
            return Poll::Pending;
        }
        if self.upto < write {
            self.upto = match &self.shard.log {
                Some(log) => ready!(log.poll_durable(write, self.patient, cx))?,
                None => u64::MAX,
            };
            self.hold = self.shard.hold();
        }
        if let Some(hold) = &mut self.hold {
            ready!(hold.as_mut().poll(&mut Context::from_waker(cx.waker())));
            self.hold = None;
        }
        Poll::Ready(Ok(()))
    }
}

/// Resolves when the write it stands for counts as done. Dropping it does not take the write back.
#[must_use = "a write is acknowledged when its commit resolves"]
#[derive(Debug)]
pub struct Commit {
    acks: Acks,
    number: u64,
}

impl Commit {
    pub(crate) fn new(shard: Rc<Shard>, number: u64) -> Commit {
        Commit { acks: Acks::new(shard), number }
    }

    /// The commit of a write that makes space: on a full disk it is waited for, as its author goes on from what it says.
    pub(crate) fn patient(mut self, patient: bool) -> Commit {
        self.acks.patient = patient;
        self
    }

    /// The write's number on its shard, to be asked for with [`Shard::acks`]; later writes have higher ones.
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
