//! What goes on behind reads and writes: flushing memtables, merging files, removing what is dead.
//!
//! Two tasks live on the fast lane, one for flushes and one for compactions. They only decide and wait; merging,
//! encoding and compressing run on the heavy lane over snapshots. A file becomes visible to readers and to the manifest in this
//! order: written, synced, named in the manifest, swapped in. Between the last two lies no wait, so that no reader ever sees
//! a memtable and its file both gone, and seeing both does no harm, because merging is idempotent.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use crate::choose;
use crate::error::StorageError;
use crate::memtable::{Memtable, ScanFrom};
use crate::merge::MergeStream;
use crate::model::TableId;
use crate::purge::Purge;
use crate::shard::{FROZEN_MAX, Frozen, Shard, Stats};
use crate::table::TableWriter;
use crate::table_file::TableFile;
use crate::world::{Mode, Work, World, run_heavy};

/// Bytes written to a table file at a time.
const CHUNK: usize = 1 << 20;

/// A heavy merge looks at the scheduler after this many partitions: at about 2 µs each, well within 1 ms.
const YIELD_EVERY: u32 = 128;

/// A merge to be run on the heavy lane.
struct Job {
    stream: MergeStream,
    file: u64,
    path: PathBuf,
    block_bytes: usize,
    purge: Purge,
    /// Memtables and files outside the merge that may hold what a tombstone shadows.
    others: (Vec<Memtable>, Vec<Arc<TableFile>>),
}

impl Job {
    /// Writes the merged table; `None` when nothing was left to write.
    async fn run(mut self, world: Arc<dyn World>) -> Result<Option<TableFile>, StorageError> {
        let io = |error| StorageError::io("write a table file", &self.path, error);
        let file = world.open(&self.path, Mode::Create).await.map_err(io)?;
        let mut writer = TableWriter::new(self.file, self.block_bytes);
        let mut count = 0;
        while let Some((token, key, partition)) = self.stream.next().await? {
            let elsewhere = self.others.0.iter().any(|memtable| memtable.get(token, &key).is_some())
                || self.others.1.iter().any(|file| file.may_contain(token));
            let purge = Purge {
                forget_before_s: if elsewhere { 0 } else { self.purge.forget_before_s },
                ..self.purge
            };
            if let Some(partition) = purge.partition(partition) {
                writer.push(token, &key, &partition);
            }
            if writer.pending() >= CHUNK {
                let (offset, bytes) = writer.take();
                file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
            }
            count += 1;
            if count % YIELD_EVERY == 0 {
                world.heavy_yield().await;
            }
        }
        if writer.partitions() == 0 {
            drop(file);
            world.remove(&self.path).await.map_err(io)?;
            return Ok(None);
        }
        writer.finish();
        let (offset, bytes) = writer.take();
        file.write(offset, Bytes::from(bytes)).await.map_err(io)?;
        file.sync().await.map_err(io)?;
        let dir = self.path.parent().expect("a table file is in a folder");
        world.sync_dir(dir).await.map_err(io)?;
        TableFile::open(&*world, self.path.clone(), self.file).await.map(Some)
    }
}

/// The name of a table file.
pub(crate) fn table_name(file: u64) -> String {
    format!("{file:016x}.table")
}

impl Shard {
    /// Starts the two tasks.
    pub(crate) fn start_upkeep(self: &Rc<Self>) {
        self.state.borrow_mut().busy += 2;
        let shard = self.clone();
        self.world.spawn(Work::Flush, Box::pin(async move { shard.flush_loop().await }));
        let shard = self.clone();
        self.world.spawn(Work::Compaction, Box::pin(async move { shard.compaction_loop().await }));
    }

    fn leave(&self) {
        self.state.borrow_mut().busy -= 1;
        self.progress.wake();
    }

    fn fail(&self, error: StorageError) {
        let error = Arc::new(error);
        if let Some(log) = &self.log {
            log.fail(error.clone());
        }
        self.state.borrow_mut().failed.get_or_insert(error);
    }

    async fn flush_loop(self: Rc<Self>) {
        loop {
            let next = self
                .work
                .wait(|| {
                    let state = self.state.borrow();
                    match state.frozen.front() {
                        _ if state.closed => Some(None),
                        Some(frozen) => Some(Some(frozen.clone())),
                        None => None,
                    }
                })
                .await;
            let Some(frozen) = next else { return self.leave() };
            if let Err(error) = self.flush(frozen).await {
                // Writes are refused from here on; reads, and what is in memory, stay.
                self.fail(error);
                return self.leave();
            }
            self.sweep().await;
            self.progress.wake();
            self.work.wake();
        }
    }

    fn new_file(&self) -> (u64, PathBuf) {
        let mut manifest = self.manifest.borrow_mut();
        let file = manifest.next_file;
        manifest.next_file += 1;
        (file, self.dir.join("tables").join(table_name(file)))
    }

    fn job(&self, stream: MergeStream, forget: bool, others: (Vec<Memtable>, Vec<Arc<TableFile>>)) -> Job {
        let (file, path) = self.new_file();
        let now_s = self.world.now_s();
        let forget_before_s = if forget { now_s.saturating_sub(self.options.gc_grace_s) } else { 0 };
        let purge = Purge { now_s, forget_before_s };
        Job { stream, file, path, block_bytes: self.options.block_bytes, purge, others }
    }

    async fn flush(self: &Rc<Self>, frozen: Frozen) -> Result<(), StorageError> {
        let generation = frozen.generation;
        let mut written = Vec::new();
        for id in &frozen.tables {
            let Some(memtable) = self.frozen_memtable(*id, generation) else { continue };
            let stream = MergeStream::new([memtable], &[], ScanFrom::Token(i64::MIN), i64::MAX);
            let job = self.job(stream, false, Default::default());
            let file = run_heavy(&*self.world, Work::Flush, job.run(self.world.clone())).await?;
            written.extend(file.map(|file| (*id, Arc::new(file))));
        }
        self.edit(|shard, manifest| {
            for (id, file) in &written {
                if shard.frozen_memtable(*id, generation).is_some() {
                    manifest.tables.entry(*id).or_default().files.push(file.id);
                }
            }
            manifest.flushed = manifest.flushed.max(frozen.last_record);
        })
        .await?;
        let mut garbage = Vec::new();
        {
            let state = &mut *self.state.borrow_mut();
            for (id, file) in written {
                match state
                    .tables
                    .get_mut(&id)
                    .filter(|table| table.frozen.iter().any(|(g, _)| *g == generation))
                {
                    Some(table) => table.files.push(file),
                    None => state.obsolete.push(file),
                }
            }
            for table in state.tables.values_mut() {
                garbage.extend(table.frozen.extract_if(.., |(own, _)| *own == generation));
            }
            state.frozen.pop_front();
            state.counts.flushes += 1;
        }
        if let Some(log) = &self.log {
            log.release(frozen.last_record);
        }
        // Freeing a memtable takes long: not here.
        run_heavy(&*self.world, Work::Flush, async move { drop(garbage) }).await;
        Ok(())
    }

    fn frozen_memtable(&self, id: TableId, generation: u64) -> Option<Memtable> {
        let state = self.state.borrow();
        let frozen = state.tables.get(&id)?.frozen.iter().find(|(own, _)| *own == generation);
        frozen.map(|(_, memtable)| memtable.clone())
    }

    async fn compaction_loop(self: Rc<Self>) {
        loop {
            let next = self
                .work
                .wait(|| match self.state.borrow().closed {
                    true => Some(None),
                    false => self.choose_compaction().map(Some),
                })
                .await;
            let Some((id, inputs)) = next else { return self.leave() };
            if self.compact(id, inputs).await.is_err() {
                let state = &mut *self.state.borrow_mut();
                state.counts.compactions_failed += 1;
                state.tables.entry(id).or_default().compaction_failed = true;
            }
            self.sweep().await;
            self.progress.wake();
        }
    }

    fn choose_compaction(&self) -> Option<(TableId, Vec<Arc<TableFile>>)> {
        let state = self.state.borrow();
        if state.failed.is_some() {
            return None;
        }
        state.tables.iter().filter(|(_, table)| !table.compaction_failed).find_map(|(id, table)| {
            let bytes: Vec<u64> = table.files.iter().map(|file| file.bytes).collect();
            let chosen = choose::compaction(&bytes)?;
            Some((*id, chosen.into_iter().map(|at| table.files[at].clone()).collect()))
        })
    }

    async fn compact(self: &Rc<Self>, id: TableId, inputs: Vec<Arc<TableFile>>) -> Result<(), StorageError> {
        let is_input = |file: u64| inputs.iter().any(|input| input.id == file);
        let others = {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Ok(()) };
            let files = table.files.iter().filter(|file| !is_input(file.id)).cloned().collect();
            (table.snapshot(), files)
        };
        let stream = MergeStream::new([], &inputs, ScanFrom::Token(i64::MIN), i64::MAX);
        let job = self.job(stream, true, others);
        let path = job.path.clone();
        let output = run_heavy(&*self.world, Work::Compaction, job.run(self.world.clone())).await;
        if output.is_err() {
            // What was begun is in no one's way, and is removed at the next start if not now.
            let _ = self.world.remove(&path).await;
        }
        let output = output?.map(Arc::new);
        // The table may have been truncated meanwhile: then there is nothing to replace.
        let alive = |shard: &Shard| {
            let state = shard.state.borrow();
            let table = state.tables.get(&id);
            table.is_some_and(|t| inputs.iter().all(|input| t.files.iter().any(|file| file.id == input.id)))
        };
        self.edit(|shard, manifest| {
            if alive(shard) {
                let table = manifest.tables.entry(id).or_default();
                table.files.retain(|file| !is_input(*file));
                table.files.extend(output.iter().map(|file| file.id));
            }
        })
        .await?;
        let alive = alive(self);
        let state = &mut *self.state.borrow_mut();
        state.counts.compactions += 1;
        match state.tables.get_mut(&id) {
            Some(table) if alive => {
                state.obsolete.extend(table.files.extract_if(.., |file| is_input(file.id)));
                table.files.extend(output);
            }
            _ => state.obsolete.extend(output),
        }
        Ok(())
    }

    /// Removes dead files that no reader uses any more.
    async fn sweep(&self) {
        let dead: Vec<_> =
            self.state.borrow_mut().obsolete.extract_if(.., |file| Arc::strong_count(file) == 1).collect();
        for file in dead {
            self.cache.borrow_mut().forget(file.id);
            // A file that cannot be removed is in no one's way: the next start tries again.
            let _ = self.world.remove(&file.path).await;
        }
    }

    /// Removes everything a table holds, durably.
    ///
    /// # Errors
    /// The log or the manifest could not be written.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        let Some(log) = &self.log else {
            self.state.borrow_mut().tables.remove(&table);
            return Ok(());
        };
        let last = log.last_record();
        let gone = {
            let state = &mut *self.state.borrow_mut();
            let Some(mut gone) = state.tables.remove(&table) else { return Ok(()) };
            state.obsolete.append(&mut gone.files);
            gone
        };
        // What the truncation covers must be in the log before it is named, or numbers would be given out twice.
        log.sync().await?;
        self.edit(|_, manifest| {
            let version = manifest.tables.entry(table).or_default();
            version.truncated = last;
            version.files.clear();
        })
        .await?;
        self.sweep().await;
        run_heavy(&*self.world, Work::Flush, async move { drop(gone) }).await;
        Ok(())
    }

    /// Forgets a table and everything it holds, durably.
    ///
    /// # Errors
    /// As [`Shard::truncate`].
    pub async fn drop_table(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        self.truncate(table).await
    }

    /// Writes everything in memory to table files.
    ///
    /// # Errors
    /// Why the flush failed; writes are refused from then on.
    pub async fn flush_all(self: &Rc<Self>) -> Result<(), StorageError> {
        let Some(log) = &self.log else { return Ok(()) };
        let failed = || self.state.borrow().failed.as_ref().map(|error| StorageError::clone(error));
        let room = || failed().map(Err).or_else(|| (self.pressure().0 < FROZEN_MAX).then_some(Ok(())));
        self.progress.wait(room).await?;
        {
            let state = &mut *self.state.borrow_mut();
            if state.closed {
                return Err(StorageError::Closed);
            }
            if state.tables.values().any(|table| table.active.len() > 0) {
                state.freeze(log.last_record());
            }
        }
        self.work.wake();
        let all = || failed().map(Err).or_else(|| (self.pressure().0 == 0).then_some(Ok(())));
        self.progress.wait(all).await
    }

    /// Makes everything durable, refuses further writes and ends the background work. Reads go on.
    ///
    /// # Errors
    /// The log could not be written.
    pub async fn shutdown(self: &Rc<Self>) -> Result<(), StorageError> {
        self.state.borrow_mut().closed = true;
        self.work.wake();
        let Some(log) = &self.log else { return Ok(()) };
        let result = log.close().await;
        self.progress.wait(|| (self.state.borrow().busy == 0).then_some(())).await;
        self.sweep().await;
        self.lock.borrow_mut().take();
        result
    }
}

/// The counts a shard starts with.
pub(crate) fn counts(replayed: u64) -> Stats {
    Stats { replayed, ..Stats::default() }
}
