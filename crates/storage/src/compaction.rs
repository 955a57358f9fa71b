//! Compaction: files of a table merged into fewer, of which less is dead.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::choose::{self, Run};
use crate::error::StorageError;
use crate::event::Event;
use crate::log::RETRY_FULL;
use crate::memtable::{Memtable, ScanFrom};
use crate::merge::MergeStream;
use crate::merge_job::Paced;
use crate::model::TableId;
use crate::options::{Strategy, TableOptions};
use crate::retry::{Failures, backoff};
use crate::shard::{Shard, State, Table};
use crate::table_file::TableFile;
use crate::world::Work;

impl Shard {
    pub(crate) async fn compaction_loop(self: Rc<Self>) {
        loop {
            let next = self
                .work
                .wait(|| match self.state.borrow().closed {
                    true => Some(None),
                    false => self.choose_compaction().map(Some),
                })
                .await;
            let Some((id, inputs)) = next else { return self.leave() };
            self.pacing.compacting.set(true);
            self.work.wake();
            let result = self.compact(id, inputs).await;
            self.pacing.compacting.set(false);
            if let Err(error) = &result
                && !matches!(error, StorageError::Closed)
            {
                self.state.borrow_mut().counts.compactions_failed += 1;
                match error.is_full() {
                    true => self.world.sleep(RETRY_FULL).await,
                    false if self.set_aside(id, error) => {}
                    false => self.postpone(id, error),
                }
            }
            if result.is_ok()
                && let Some(table) = self.state.borrow_mut().tables.get_mut(&id)
            {
                table.failures = Failures::default();
            }
            if let Some(major @ None) = self.state.borrow_mut().major.get_mut(&id) {
                *major = Some(result);
            }
            self.sweep().await;
            self.progress.wake();
            self.free(usize::MAX).await;
        }
    }

    /// Leaves a table alone for a while after a merge that failed.
    fn postpone(self: &Rc<Self>, id: TableId, error: &StorageError) {
        let again = {
            let state = &mut *self.state.borrow_mut();
            let failures = &mut state.tables.entry(id).or_default().failures;
            failures.in_a_row += 1;
            let again = error.may_pass().then(|| backoff(failures.in_a_row));
            failures.waits = true;
            again
        };
        self.options.teller.tell(&Event::CompactionFailed { table: id, error: error.clone(), again });
        if let Some(again) = again {
            let (shard, wait) = (Rc::downgrade(self), self.world.sleep(again));
            let wake = async move {
                wait.await;
                let Some(shard) = shard.upgrade() else { return };
                if let Some(table) = shard.state.borrow_mut().tables.get_mut(&id) {
                    table.failures.waits = false;
                }
                shard.work.wake();
            };
            self.world.spawn(Work::Control, Box::pin(wake));
        }
    }

    /// Merges all runs of a table into one, after flushing it. Waits for what is being merged already, and for background work that is
    /// held back.
    ///
    /// # Errors
    /// Why the flush or the merge failed, or [`StorageError::Closed`].
    pub async fn compact_all(self: &Rc<Self>, table: TableId) -> Result<(), StorageError> {
        if self.log.is_none() {
            return Ok(());
        }
        self.flush_all().await?;
        self.state.borrow_mut().major.insert(table, None);
        self.work.wake();
        let done = || {
            let state = &mut *self.state.borrow_mut();
            let empty = state
                .tables
                .get(&table)
                .is_none_or(|table| table.files.iter().all(|file| file.is_set_aside()));
            match state.major.get(&table) {
                Some(None) if state.closed => Some(Err(StorageError::Closed)),
                Some(None) if empty => {
                    state.major.remove(&table);
                    Some(Ok(()))
                }
                Some(None) => None,
                Some(Some(_)) => state.major.remove(&table).flatten(),
                // Somebody else waited for the same, and was told.
                None => Some(Ok(())),
            }
        };
        self.progress.wait(done).await
    }

    fn choose_compaction(&self) -> Option<(TableId, Vec<Arc<TableFile>>)> {
        let state = self.state.borrow();
        if state.failed.is_some() || self.pacing.is_held() {
            return None;
        }
        let major = state.major.iter().filter(|(_, done)| done.is_none()).find_map(|(id, _)| {
            let files = state.tables.get(id)?.files.iter().filter(|file| !file.is_set_aside());
            let files: Vec<_> = files.cloned().collect();
            (!files.is_empty()).then_some((*id, files))
        });
        if major.is_some() {
            return major;
        }
        state.tables.iter().filter(|(_, table)| !table.failures.waits).find_map(|(id, table)| {
            let (runs, numbers) = runs(table);
            let chosen = choose::compaction(&self.options_in(&state, *id), &runs)?;
            let chosen: Vec<u64> = chosen.into_iter().map(|at| numbers[at]).collect();
            let sound = table.files.iter().filter(|file| !file.is_set_aside());
            let inputs = sound.filter(|file| chosen.contains(&file.entry.run)).cloned();
            Some((*id, inputs.collect()))
        })
    }

    fn options_in(&self, state: &State, id: TableId) -> TableOptions {
        state.configured.get(&id).copied().unwrap_or(self.options.table)
    }

    /// Bytes still to be merged, less what the merge under way has done.
    pub(crate) fn backlog_bytes(&self, state: &State) -> u64 {
        let of = |(id, table): (&TableId, &Table)| {
            choose::backlog_bytes(&self.options_in(state, *id), &runs(table).0)
        };
        let all: u64 = state.tables.iter().map(of).sum();
        all.saturating_sub(self.pacing.compaction.done() - state.compaction_began)
    }

    /// Merges files into a new run. Whenever a fragment of it is sealed, it takes the place of what it holds: inputs that were read
    /// to their end are gone, those in the middle are cut, all in one edit. So whatever happens, every token is in exactly one place, and a
    /// tombstone that the merge has forgotten is not missed by what it shadowed.
    async fn compact(self: &Rc<Self>, id: TableId, inputs: Vec<Arc<TableFile>>) -> Result<(), StorageError> {
        self.state.borrow_mut().compaction_began = self.pacing.compaction.done();
        let is_input = |file: &TableFile| inputs.iter().any(|input| input.id == file.id);
        let others = {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Ok(()) };
            let files = table.files.iter().filter(|file| !is_input(file)).cloned().collect();
            (table.snapshot(), files)
        };
        let stream = MergeStream::new([], &inputs, ScanFrom::Token(i64::MIN), i64::MAX);
        let bytes = inputs.iter().map(|input| input.bytes).sum::<u64>();
        let paced = Paced::new(self.pacing.compaction.clone(), bytes);
        let mut job = self.job(id, stream, true, others, paced);
        let at_the_end = self.table_options(id).strategy == Strategy::SizeTiered;
        let (mut left, mut outputs) = (inputs, Vec::new());
        let done = loop {
            let (rest, sealed) = self.next_fragment(Work::Compaction, job).await;
            job = rest;
            let sealed = match sealed {
                Ok(sealed) => sealed,
                Err(error) => {
                    // No manifest names them.
                    self.state.borrow_mut().obsolete.append(&mut outputs);
                    break Err(error);
                }
            };
            outputs.extend(sealed.file.map(Arc::new));
            if at_the_end && sealed.next.is_some() {
                continue;
            }
            match self.replace(id, left, std::mem::take(&mut outputs), sealed.next).await {
                Ok(Some(rest)) if sealed.next.is_some() => left = rest,
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
            self.sweep().await;
        };
        let state = &mut *self.state.borrow_mut();
        state.flushed.extend(job.into_memory().into_iter().filter(Memtable::is_unused));
        done?;
        state.compaction_began = self.pacing.compaction.done();
        state.counts.compactions += 1;
        Ok(())
    }

    /// Puts `outputs` in the place of what `inputs` hold below the token `next`, or altogether: what is left of the inputs. `None` if the
    /// table was truncated meanwhile, and there is nothing to replace.
    async fn replace(
        &self,
        id: TableId,
        inputs: Vec<Arc<TableFile>>,
        outputs: Vec<Arc<TableFile>>,
        next: Option<i64>,
    ) -> Result<Option<Vec<Arc<TableFile>>>, StorageError> {
        let is_input = |file: u64| inputs.iter().any(|input| input.id == file);
        let left: Vec<_> = inputs.iter().filter_map(|input| rest_of(input, next)).collect();
        let alive = |shard: &Shard| {
            let state = shard.state.borrow();
            let table = state.tables.get(&id);
            table.is_some_and(|t| inputs.iter().all(|input| t.files.iter().any(|file| file.id == input.id)))
        };
        let edited = self
            .edit(|shard, manifest| {
                if alive(shard) {
                    let table = manifest.tables.entry(id).or_default();
                    table.files.retain(|file| !is_input(file.id));
                    table.files.extend(left.iter().chain(&outputs).map(|file| file.entry.clone()));
                }
            })
            .await;
        if let Err(error) = edited {
            // It may have been written all the same; see `State::doubtful`.
            self.state.borrow_mut().doubtful.extend(outputs);
            return Err(error);
        }
        let alive = alive(self);
        let state = &mut *self.state.borrow_mut();
        state.counts.compacted_bytes += outputs.iter().map(|file| file.bytes).sum::<u64>();
        match state.tables.get_mut(&id) {
            Some(table) if alive => {
                let gone = |file: &Arc<TableFile>| !left.iter().any(|rest| rest.id == file.id);
                let replaced = table.files.extract_if(.., |file| is_input(file.id));
                state.obsolete.extend(replaced.filter(gone));
                table.files.extend(left.iter().cloned().chain(outputs));
                Ok(Some(left))
            }
            _ => {
                state.obsolete.extend(outputs);
                Ok(None)
            }
        }
    }
}

/// What of a file is not below the token `next`.
fn rest_of(file: &Arc<TableFile>, next: Option<i64>) -> Option<Arc<TableFile>> {
    let (first, last) = file.tokens();
    match next {
        Some(next) if first >= next => Some(file.clone()),
        Some(next) if last >= next => Some(Arc::new(file.cut(next))),
        _ => None,
    }
}

/// The runs of a table, and their numbers.
fn runs(table: &Table) -> (Vec<Run>, Vec<u64>) {
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    for file in table.files.iter().filter(|file| !file.is_set_aside()) {
        let run = runs.entry(file.entry.run).or_insert(Run { bytes: 0, newest_us: i64::MIN });
        run.bytes += file.bytes;
        let newest_us = file.statistics.map_or(i64::MIN, |statistics| statistics.timestamps.1);
        run.newest_us = run.newest_us.max(newest_us);
    }
    let numbers = runs.keys().copied().collect();
    (runs.into_values().collect(), numbers)
}
