//! Flush: writes frozen memtables to table files, one after another, the oldest first.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::env::Work;
use crate::error::StorageError;
use crate::event::{Event, FlushReason};
use crate::jobs::job::{Job, Paced};
use crate::jobs::tasks::TaskKind;
use crate::log::Log;
use crate::log::bound::FREE_IDLE;
use crate::manifest::Edit;
use crate::memtable::{Memtable, ScanFrom};
use crate::model::TableId;
use crate::read::merge::MergeStream;
use crate::state::memory::{FROZEN_MAX, Frozen};
use crate::state::progress::WorkProgress;
use crate::table::file::TableFile;
use crate::table::runs::Files;

impl Background {
    pub(crate) async fn flush_loop(self: Rc<Self>) {
        loop {
            let next = self
                .jobs
                .work
                .wait(|| {
                    let state = self.jobs.state.borrow();
                    match state.memory.frozen.front() {
                        _ if state.closed => Some(None),
                        Some(frozen) => Some(Some(frozen.clone())),
                        None => None,
                    }
                })
                .await;
            let Some(frozen) = next else { return self.jobs.leave() };
            let last_record = frozen.last_record;
            if let Err(error) = self.flush(frozen).await {
                // Writes are refused from here on. Reads continue, and memtables stay.
                self.jobs.fail(error);
                return self.jobs.leave();
            }
            self.compactor.update_run_pressure();
            self.jobs.progress.wake();
            self.jobs.work.wake();
            self.reserve.make().await;
            if let Some(log) = &self.jobs.log {
                log.trim((log.last_record() == last_record).then_some(FREE_IDLE)).await;
            }
            self.jobs.store.sweep().await;
            // Before the next flush, so that memtables do not accumulate.
            self.jobs.free(usize::MAX).await;
        }
    }

    async fn flush(self: &Rc<Self>, frozen: Frozen) -> Result<(), StorageError> {
        let (generation, began_ns) = (frozen.generation, self.jobs.env.now_ns());
        self.jobs.pacing.begin_flush();
        let mut written = Vec::new();
        for id in &frozen.tables {
            let Some(memtable) = self.frozen_memtable(*id, generation) else { continue };
            let part =
                u128::from(frozen.bytes) * memtable.len() as u128 / u128::from(frozen.partitions.max(1));
            let progress = WorkProgress::default();
            progress.add_total(part as u64);
            let _task =
                self.jobs.tasks.begin(TaskKind::Flush, Some(*id), 0, self.jobs.env.now_s(), progress.clone());
            let write = async || {
                // A table that was truncated meanwhile is not written.
                if self.frozen_memtable(*id, generation).is_none() {
                    return Ok(Vec::new());
                }
                let paced = Paced::new(self.jobs.pacing.flush.clone(), part as u64);
                let paced = paced.of(i64::MIN, i64::MAX, progress.clone());
                let files = Files::default();
                let stream =
                    MergeStream::new([memtable.clone()], &files, ScanFrom::Token(i64::MIN), i64::MAX);
                let job = self.jobs.job(*id, stream, false, Default::default(), paced);
                self.write_run(job).await
            };
            let files = self.jobs.retry_flush(write).await?;
            written.extend(files.into_iter().map(|file| (*id, file)));
        }
        if let Some(log) = self.jobs.log.as_ref().filter(|_| frozen.partial) {
            // The rest of that record is only in the log. If a crash lost it, the file would have a
            // part of a record, which must be applied as a whole.
            log.sync().await?;
        }
        self.name_flushed(&frozen, &written).await?;
        self.report_flush(&frozen, &written, began_ns);
        {
            let state = &mut *self.jobs.state.borrow_mut();
            state.counts.flushed_bytes += written.iter().map(|(_, file)| file.bytes).sum::<u64>();
            for (id, file) in written {
                match state
                    .tables
                    .get_mut(&id)
                    .filter(|table| table.frozen.iter().any(|(g, _)| *g == generation))
                {
                    Some(table) => table.files.push_new(file),
                    None => self.jobs.store.retire([file]),
                }
            }
            for table in state.tables.values_mut() {
                let flushed = table.frozen.extract_if(.., |(own, _)| *own == generation);
                state.flushed.extend(flushed.map(|(_, memtable)| memtable));
            }
            state.memory.frozen.pop_front();
            // The next flush starts at zero.
            self.jobs.pacing.begin_flush();
            state.counts.flushes += 1;
            self.bound_log(state);
        }
        if let Some(log) = &self.jobs.log {
            log.release(&self.jobs.store.manifest().log);
        }
        Ok(())
    }

    fn report_flush(&self, frozen: &Frozen, written: &[(TableId, Arc<TableFile>)], began_ns: u64) {
        let now_ns = self.jobs.env.now_ns();
        let Some(left_out) = self.lines.take(now_ns) else { return };
        let largest = written.iter().max_by_key(|(_, file)| file.bytes);
        let event = Event::Flushed {
            tables: frozen.tables.len(),
            largest: largest.map(|(id, _)| self.jobs.state.borrow().settings.named(*id)),
            memory_bytes: frozen.bytes,
            file_bytes: written.iter().map(|(_, file)| file.bytes).sum(),
            duration: Duration::from_nanos(now_ns.saturating_sub(began_ns)),
            reason: frozen.reason,
            left_out,
        };
        self.jobs.options.event_sink.send(&event);
    }

    /// Writes all fragments of a flush.
    async fn write_run(&self, mut job: Job) -> Result<Vec<Arc<TableFile>>, StorageError> {
        let mut files = Vec::new();
        loop {
            let (rest, sealed) = self.jobs.next_fragment(Work::Flush, job).await;
            job = rest;
            match sealed {
                Ok(sealed) => {
                    files.extend(sealed.file.map(Arc::new));
                    if sealed.next.is_none() {
                        return Ok(files);
                    }
                }
                Err(error) => {
                    // The manifest does not name them.
                    self.jobs.store.retire(files);
                    self.jobs.store.sweep().await;
                    return Err(error);
                }
            }
        }
    }

    /// Adds the files to the manifest. Waits while a TRUNCATE is in flight: its memtable will not
    /// be flushed, so that its log records must stay until the manifest records the truncation.
    async fn name_flushed(
        &self,
        frozen: &Frozen,
        written: &[(TableId, Arc<TableFile>)],
    ) -> Result<(), StorageError> {
        let settled = || match self.jobs.store.is_truncating() {
            false => Some(Ok(())),
            true => self.jobs.state.borrow().closed.then_some(Err(StorageError::Closed)),
        };
        let named = Cell::new(false);
        let name = |edit: &mut Edit| {
            if self.jobs.store.is_truncating() {
                return;
            }
            for (id, file) in written {
                if self.frozen_memtable(*id, frozen.generation).is_some() {
                    edit.add(*id, file.entry.clone());
                }
            }
            edit.flushed(frozen.last_record);
            if let Some(log) = &self.jobs.log {
                let flushed = self.jobs.store.manifest().flushed.max(frozen.last_record);
                let (segments, durable) = log.live(flushed);
                edit.log(segments, durable);
            }
            named.set(true);
        };
        while !named.get() {
            self.jobs.progress.wait(settled).await?;
            self.jobs.retry_flush(async || self.jobs.store.edit(name).await).await?;
        }
        Ok(())
    }

    fn frozen_memtable(&self, id: TableId, generation: u64) -> Option<Memtable> {
        let state = self.jobs.state.borrow();
        let frozen = state.tables.get(&id)?.frozen.iter().find(|(own, _)| *own == generation);
        frozen.map(|(_, memtable)| memtable.clone())
    }

    /// See [`crate::Shard::flush_all`].
    pub(crate) async fn flush_all(&self) -> Result<(), StorageError> {
        let Some(log) = &self.jobs.log else { return Ok(()) };
        let failed = || log.failure().map(|error| StorageError::clone(&error));
        let frozen = || self.jobs.state.borrow().memory.frozen.len();
        let room = || failed().map(Err).or_else(|| (frozen() < FROZEN_MAX).then_some(Ok(())));
        self.jobs.progress.wait(room).await?;
        {
            let state = &mut *self.jobs.state.borrow_mut();
            if state.closed {
                return Err(StorageError::Closed);
            }
            if state.tables.values().any(|table| table.active.len() > 0) {
                state.freeze(log.last_record(), log.length(), FlushReason::Asked);
                self.bound_log(state);
            }
        }
        let _waiting = self.jobs.pacing.wait_for_flush();
        self.decide();
        self.jobs.work.wake();
        let all = || failed().map(Err).or_else(|| (frozen() == 0).then_some(Ok(())));
        self.jobs.progress.wait(all).await
    }

    /// See [`crate::Shard::flush_with`].
    pub(crate) async fn flush_with(&self, progress: &WorkProgress) -> Result<(), StorageError> {
        if progress.is_cancelled() {
            return Err(StorageError::Cancelled);
        }
        let bytes = {
            let state = self.jobs.state.borrow();
            state.memory.filled.max(state.memory.bytes as u64) + self.jobs.pacing.left_bytes(&state)
        };
        progress.add_total(bytes);
        self.flush_all().await?;
        progress.add_done(bytes);
        if progress.is_cancelled() { Err(StorageError::Cancelled) } else { Ok(()) }
    }

    /// See [`crate::Shard::flush_if_idle`].
    pub(crate) fn flush_if_idle(&self) {
        let Some(log) = &self.jobs.log else { return };
        let last = log.last_record();
        {
            let state = &mut *self.jobs.state.borrow_mut();
            let is_idle = self.jobs.pacing.is_idle(state, last) && state.memory.frozen.is_empty();
            if !is_idle || state.closed || self.jobs.refuses_writes() {
                return;
            }
            state.freeze(last, log.length(), FlushReason::Idle);
            self.bound_log(state);
        }
        self.jobs.work.wake();
    }

    /// Flushes memtables after the last write, unless the disk fails.
    pub(crate) async fn flush_rest(&self, log: &Log) {
        {
            let state = &mut *self.jobs.state.borrow_mut();
            if state.tables.values().any(|table| table.active.len() > 0) {
                state.freeze(log.last_record(), log.length(), FlushReason::Shutdown);
            }
        }
        let _waiting = self.jobs.pacing.wait_for_flush();
        self.decide();
        self.jobs.work.wake();
        let ended = || {
            let is_flushed = self.jobs.state.borrow().memory.frozen.is_empty();
            (is_flushed || self.jobs.failed.borrow().is_some() || log.failure().is_some()).then_some(())
        };
        self.jobs.progress.wait(ended).await;
    }

    /// Marks the log as empty, if it is. If that fails, the next start only reads it in vain.
    pub(crate) async fn end_log(&self, log: &Log) {
        let last = log.last_record();
        let is_flushed = || {
            let state = self.jobs.state.borrow();
            let in_memory =
                state.tables.values().any(|table| table.active.len() > 0 || !table.frozen.is_empty());
            self.jobs.failed.borrow().is_none() && !in_memory && state.memory.applying.is_empty()
        };
        if !is_flushed() {
            return;
        }
        let name = |edit: &mut Edit| {
            edit.flushed(last);
            edit.log(Vec::new(), last);
        };
        if self.jobs.store.edit(name).await.is_ok() {
            log.release(&[]);
            log.trim(Some(FREE_IDLE)).await;
        }
    }
}
