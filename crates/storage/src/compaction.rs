//! Compaction: files of a table merged into fewer, of which less is dead.

use std::rc::Rc;
use std::sync::Arc;

use crate::choose;
use crate::error::StorageError;
use crate::log::RETRY_FULL;
use crate::memtable::ScanFrom;
use crate::merge::MergeStream;
use crate::merge_job::Paced;
use crate::model::TableId;
use crate::shard::{Shard, State, Table};
use crate::table_file::TableFile;
use crate::world::{Work, run_heavy};

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
            if let Err(error) = result {
                self.state.borrow_mut().counts.compactions_failed += 1;
                if error.is_full() {
                    self.world.sleep(RETRY_FULL).await;
                } else {
                    self.state.borrow_mut().tables.entry(id).or_default().compaction_failed = true;
                }
            }
            self.sweep().await;
            self.progress.wake();
        }
    }

    fn choose_compaction(&self) -> Option<(TableId, Vec<Arc<TableFile>>)> {
        let state = self.state.borrow();
        if state.failed.is_some() || self.pacing.held.get() {
            return None;
        }
        state.tables.iter().filter(|(_, table)| !table.compaction_failed).find_map(|(id, table)| {
            let bytes: Vec<u64> = table.files.iter().map(|file| file.bytes).collect();
            let chosen = choose::compaction(&bytes, self.table_options(*id).min_threshold as usize)?;
            Some((*id, chosen.into_iter().map(|at| table.files[at].clone()).collect()))
        })
    }

    /// Bytes still to be merged, less what the merge under way has done.
    pub(crate) fn backlog_bytes(&self, state: &State) -> u64 {
        let of = |(id, table): (&TableId, &Table)| {
            let bytes: Vec<u64> = table.files.iter().map(|file| file.bytes).collect();
            let options = state.configured.get(id).unwrap_or(&self.options.table);
            choose::backlog_bytes(&bytes, options.min_threshold as usize)
        };
        let all: u64 = state.tables.iter().map(of).sum();
        all.saturating_sub(self.pacing.compaction.done() - state.compaction_began)
    }

    async fn compact(self: &Rc<Self>, id: TableId, inputs: Vec<Arc<TableFile>>) -> Result<(), StorageError> {
        self.state.borrow_mut().compaction_began = self.pacing.compaction.done();
        let is_input = |file: u64| inputs.iter().any(|input| input.id == file);
        let others = {
            let state = self.state.borrow();
            let Some(table) = state.tables.get(&id) else { return Ok(()) };
            let files = table.files.iter().filter(|file| !is_input(file.id)).cloned().collect();
            (table.snapshot(), files)
        };
        let stream = MergeStream::new([], &inputs, ScanFrom::Token(i64::MIN), i64::MAX);
        let bytes = inputs.iter().map(|input| input.bytes).sum::<u64>();
        let paced = Paced::new(self.pacing.compaction.clone(), bytes);
        let job = self.job(id, stream, true, others, paced);
        let output = run_heavy(&*self.world, Work::Compaction, job.run(self.world.clone())).await;
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
                table.files.retain(|file| !is_input(file.id));
                table.files.extend(output.iter().map(|file| file.entry.clone()));
            }
        })
        .await?;
        let alive = alive(self);
        let state = &mut *self.state.borrow_mut();
        state.compaction_began = self.pacing.compaction.done();
        state.counts.compactions += 1;
        state.counts.compacted_bytes += output.iter().map(|file| file.bytes).sum::<u64>();
        match state.tables.get_mut(&id) {
            Some(table) if alive => {
                state.obsolete.extend(table.files.extract_if(.., |file| is_input(file.id)));
                table.files.extend(output);
            }
            _ => state.obsolete.extend(output),
        }
        Ok(())
    }
}
