//! The promise of a write.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::choose::{self, Hold};
use crate::error::StorageError;
use crate::shard::{FROZEN_MAX, Shard};
use crate::world::LocalBoxFuture;

/// Resolves when the write it stands for counts as done; later, when memtables fill faster than they are flushed.
/// Dropping it does not take the write back.
#[must_use = "a write is acknowledged when its commit resolves"]
pub struct Commit {
    shard: Rc<Shard>,
    record: u64,
    durable: bool,
    hold: Option<LocalBoxFuture<()>>,
}

impl std::fmt::Debug for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Commit").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Commit {
    pub(crate) fn new(shard: Rc<Shard>, record: u64) -> Commit {
        Commit { shard, record, durable: false, hold: None }
    }

    fn hold(&self) -> Option<LocalBoxFuture<()>> {
        let shard = &self.shard;
        let (frozen, bytes) = shard.pressure();
        match choose::hold(frozen, FROZEN_MAX, bytes, shard.options.memtable_bytes_max) {
            Hold::Go => None,
            Hold::For(time) => Some(shard.world.sleep(time)),
            Hold::UntilFlushed => {
                let shard = shard.clone();
                let flushed = move || (shard.pressure().0 < FROZEN_MAX || shard.is_failed()).then_some(());
                let shard = self.shard.clone();
                Some(Box::pin(async move { shard.progress.wait(flushed).await }))
            }
        }
    }
}

impl Future for Commit {
    type Output = Result<(), StorageError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.durable {
            let Some(log) = &self.shard.log else { return Poll::Ready(Ok(())) };
            ready!(log.poll_durable(self.record, cx))?;
            self.durable = true;
            self.hold = self.hold();
        }
        if let Some(hold) = &mut self.hold {
            ready!(hold.as_mut().poll(cx));
            self.hold = None;
        }
        Poll::Ready(Ok(()))
    }
}
