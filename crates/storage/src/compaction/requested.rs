//! Requested compactions: background work in the group of the statement, with progress and cancel.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::compaction::CompactionTask;
use crate::compaction::Compactor;
use crate::env::Work;
use crate::error::StorageError;
use crate::model::TableId;
use crate::state::progress::{CancelOnDrop, WorkProgress};
use crate::table::file::TableFile;

/// Time between two checks for the end of other compactions.
const CHECK_EVERY: Duration = Duration::from_millis(100);

impl Compactor {
    /// See [`crate::Shard::compact`]. The caller has flushed.
    pub(crate) async fn compact(
        self: &Rc<Self>,
        table: TableId,
        tokens: RangeInclusive<i64>,
        group: lanes::Group,
        progress: &WorkProgress,
    ) -> Result<(), StorageError> {
        let answer = Rc::new(RefCell::new(None));
        self.jobs.enter()?;
        match self.jobs.state.borrow().tables.get(&table) {
            Some(table) => table.needs.reserved.set(table.needs.reserved.get() + 1),
            None => {
                self.jobs.leave();
                return Ok(());
            }
        }
        let cancel = CancelOnDrop::new(progress.clone());
        let own = self.clone();
        let reply = answer.clone();
        let watched = progress.clone();
        let task = async move {
            let result = own.compact_reserved(table, tokens, Work::Requested(group), watched).await;
            if let Some(table) = own.jobs.state.borrow().tables.get(&table) {
                table.needs.reserved.set(table.needs.reserved.get().saturating_sub(1));
            }
            *reply.borrow_mut() = Some(result);
            own.jobs.work.wake();
            own.jobs.leave();
        };
        self.jobs.env.spawn(Work::Requested(group), Box::pin(task));
        let result = self.jobs.progress.wait(|| answer.borrow_mut().take()).await;
        cancel.disarm();
        result
    }

    async fn compact_reserved(
        self: &Rc<Self>,
        id: TableId,
        tokens: RangeInclusive<i64>,
        work: Work,
        progress: WorkProgress,
    ) -> Result<(), StorageError> {
        let ready = || {
            let state = self.jobs.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Some(Ok(Vec::new())) };
            match () {
                () if state.closed => Some(Err(StorageError::Closed)),
                () if progress.is_cancelled() => Some(Err(StorageError::Cancelled)),
                () if table.needs.is_busy() => None,
                () => {
                    let runs = table.files.runs().iter();
                    let files = runs.flat_map(|run| run.between(*tokens.start(), *tokens.end()));
                    let sound = files.filter(|file| !file.is_excluded());
                    Some(Ok(sound.cloned().collect::<Vec<Arc<TableFile>>>()))
                }
            }
        };
        let inputs = self.wait_requested(ready).await?;
        if inputs.is_empty() {
            return Ok(());
        }
        self.run_compaction(CompactionTask { table: id, inputs, work, progress }, true).await
    }

    /// Waits until `ready` returns a value. Calls it whenever work of the shard ends, and ten times
    /// a second, because a cancel on another core wakes no task here.
    pub(crate) async fn wait_requested<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut again = self.jobs.env.sleep(CHECK_EVERY);
        poll_fn(|cx| {
            if let Some(answer) = ready() {
                return Poll::Ready(answer);
            }
            while again.as_mut().poll(cx).is_ready() {
                again = self.jobs.env.sleep(CHECK_EVERY);
            }
            self.jobs.progress.register(cx);
            Poll::Pending
        })
        .await
    }
}
