//! Compactions and flushes that someone asked for: background work in the group of whoever asked, with progress and cancel.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::background::progress::{CancelOnDrop, Progress};
use crate::compaction::Merge;
use crate::error::StorageError;
use crate::model::TableId;
use crate::shard::Shard;
use crate::table::file::TableFile;
use crate::world::Work;

/// Time between two checks for the end of other merges.
const CHECK_EVERY: Duration = Duration::from_millis(100);

impl Shard {
    /// Merges all runs of a table into one, after flushing it. Waits for what is being merged already, and for background work that is
    /// held back.
    ///
    /// # Errors
    /// Why the flush or the merge failed, or [`StorageError::Closed`].
    pub async fn compact_all(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        let group = self.options.groups.compaction;
        self.compact(table, i64::MIN..=i64::MAX, group, &Progress::default()).await
    }

    /// Merges everything that a table has of a range of tokens into one run, after flushing it: all files that have tokens of
    /// the range, whole. The merge runs in `group`, and pauses where background work is held back. It waits for merges of the table
    /// in flight, and no other begins before it has ended. A caller that goes away cancels it.
    ///
    /// # Errors
    /// Why the flush or the merge failed; [`StorageError::Cancelled`], where what was merged by then stays merged;
    /// [`StorageError::Closed`].
    pub async fn compact(
        self: &Rc<Self>,
        table: TableId,
        tokens: RangeInclusive<i64>,
        group: lanes::Group,
        progress: &Progress,
    ) -> Result<(), StorageError> {
        if self.log.is_none() {
            return Ok(());
        }
        self.flush_with(progress).await?;
        let answer = Rc::new(RefCell::new(None));
        {
            let state = &mut *self.state.borrow_mut();
            if state.closed {
                return Err(StorageError::Closed);
            }
            let Some(table) = state.tables.get(&table) else { return Ok(()) };
            table.needs.reserved.set(table.needs.reserved.get() + 1);
            state.busy += 1;
        }
        let cancel = CancelOnDrop::new(progress.clone());
        let (shard, told, watched) = (self.clone(), answer.clone(), progress.clone());
        let task = async move {
            let result = shard.compact_reserved(table, tokens, Work::Requested(group), watched).await;
            if let Some(table) = shard.state.borrow().tables.get(&table) {
                table.needs.reserved.set(table.needs.reserved.get().saturating_sub(1));
            }
            *told.borrow_mut() = Some(result);
            shard.work.wake();
            shard.leave();
        };
        self.world.spawn(Work::Requested(group), Box::pin(task));
        let result = self.progress.wait(|| answer.borrow_mut().take()).await;
        cancel.disarm();
        result
    }

    async fn compact_reserved(
        self: &Rc<Self>,
        id: TableId,
        tokens: RangeInclusive<i64>,
        work: Work,
        progress: Progress,
    ) -> Result<(), StorageError> {
        let ready = || {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Some(Ok(Vec::new())) };
            match () {
                () if state.closed => Some(Err(StorageError::Closed)),
                () if progress.is_cancelled() => Some(Err(StorageError::Cancelled)),
                () if table.needs.is_busy() => None,
                () => {
                    let runs = table.files.runs().iter();
                    let files = runs.flat_map(|run| run.between(*tokens.start(), *tokens.end()));
                    let sound = files.filter(|file| !file.is_set_aside());
                    Some(Ok(sound.cloned().collect::<Vec<Arc<TableFile>>>()))
                }
            }
        };
        let inputs = self.wait_asked(ready).await?;
        if inputs.is_empty() {
            return Ok(());
        }
        self.run_merge(Merge { table: id, inputs, work, progress }, true).await
    }

    /// Waits until `ready` answers, which it is asked whenever work of the shard ends, and ten times a second: a cancel may come
    /// from another core, which wakes no task here.
    pub(crate) async fn wait_asked<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut again = self.world.sleep(CHECK_EVERY);
        poll_fn(|cx| {
            if let Some(answer) = ready() {
                return Poll::Ready(answer);
            }
            while again.as_mut().poll(cx).is_ready() {
                again = self.world.sleep(CHECK_EVERY);
            }
            self.progress.register(cx);
            Poll::Pending
        })
        .await
    }

    /// Writes everything in memory to table files, those of all tables: they share the log. What is cancelled goes on being
    /// flushed, and is not waited for.
    ///
    /// # Errors
    /// As [`Shard::flush_all`], or [`StorageError::Cancelled`].
    pub async fn flush_with(self: &Rc<Self>, progress: &Progress) -> Result<(), StorageError> {
        if progress.is_cancelled() {
            return Err(StorageError::Cancelled);
        }
        let bytes = {
            let state = self.state.borrow();
            state.filled.max(state.bytes as u64) + state.left_bytes(&self.pacing.flush)
        };
        progress.add_total(bytes);
        self.flush_all().await?;
        progress.add_done(bytes);
        if progress.is_cancelled() { Err(StorageError::Cancelled) } else { Ok(()) }
    }
}
