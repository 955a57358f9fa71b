//! Compaction: rewrites files of a table into fewer files without dead data.
//!
//! Several tasks pick the most needed compaction (`choice.rs`), so that small ones run beside a
//! large one. A requested compaction (`requested.rs`) has its own task, in the group of the
//! statement.

pub(crate) mod choice;
pub(crate) mod expiry;
mod failed;
pub(crate) mod requested;
mod salvage;
pub(crate) mod scrub;
pub(crate) mod strategy;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::compaction::choice::runs_of;
use crate::compaction::strategy::need::COMPACTIONS_MAX;
use crate::env::Work;
use crate::error::StorageError;
use crate::event::Event;
use crate::jobs::Jobs;
use crate::jobs::job::{Others, Paced};
use crate::jobs::lines::Lines;
use crate::jobs::tasks::{Compacted, Tally, TaskKind};
use crate::log::RETRY_FULL;
use crate::memtable::{Memtable, ScanFrom};
use crate::model::TableId;
use crate::options::Strategy;
use crate::read::merge::MergeStream;
use crate::state::needs::InFlight;
use crate::state::progress::WorkProgress;
use crate::state::retry::Failures;
use crate::table::file::TableFile;
use crate::table::runs::Files;

/// A compaction to run.
#[derive(Debug)]
pub(crate) struct CompactionTask {
    pub(crate) table: TableId,
    pub(crate) inputs: Vec<Arc<TableFile>>,
    pub(crate) work: Work,
    pub(crate) progress: WorkProgress,
}

/// Compacts the files of a shard's tables.
#[derive(Debug)]
pub(crate) struct Compactor {
    jobs: Rc<Jobs>,
    in_flight: RefCell<Vec<InFlight>>,
    /// The budget of log lines about compactions.
    lines: Lines,
}

impl Compactor {
    pub(crate) fn new(jobs: Rc<Jobs>) -> Compactor {
        Compactor { jobs, in_flight: RefCell::default(), lines: Lines::default() }
    }

    /// Starts the tasks that compact, one for each compaction that may run at once, and the expiry
    /// checks.
    pub(crate) fn start(self: &Rc<Self>) {
        for _ in 0..COMPACTIONS_MAX {
            if self.jobs.enter().is_ok() {
                let own = self.clone();
                self.jobs.env.spawn(Work::Compaction, Box::pin(async move { own.compaction_loop().await }));
            }
        }
        self.start_expiry_checks();
    }

    async fn compaction_loop(self: Rc<Self>) {
        loop {
            let next = self
                .jobs
                .work
                .wait(|| match self.jobs.state.borrow().closed {
                    true => Some(None),
                    false => self.choose_compaction().map(Some),
                })
                .await;
            let Some((id, inputs)) = next else { return self.jobs.leave() };
            let merge = CompactionTask {
                table: id,
                inputs,
                work: Work::Compaction,
                progress: WorkProgress::default(),
            };
            if self.run_compaction(merge, false).await.is_err_and(|error| error.is_full()) {
                self.jobs.env.sleep(RETRY_FULL).await;
            }
        }
    }

    /// Runs a compaction, and counts it as in flight meanwhile. Marks its runs as busy before the
    /// first await.
    pub(crate) async fn run_compaction(
        self: &Rc<Self>,
        merge: CompactionTask,
        requested: bool,
    ) -> Result<(), StorageError> {
        let id = merge.table;
        let runs = runs_of(&merge.inputs);
        let progress = merge.progress.clone();
        progress.add_total(merge.inputs.iter().map(|input| input.bytes).sum());
        let (kind, began_ns) = (kind_of(&merge.inputs), self.jobs.env.now_ns());
        let mut tally = Tally { runs: runs.len() as u64, ..Tally::default() };
        let task = self.jobs.tasks.begin(
            kind,
            Some(id),
            merge.inputs.len() as u64,
            self.jobs.env.now_s(),
            progress.clone(),
        );
        self.jobs.state.borrow_mut().tables.entry(id).or_default().needs.take(&runs);
        let number = task.number;
        self.in_flight.borrow_mut().push(InFlight { number, requested, progress });
        self.jobs.work.wake();
        let (made, result) = self.compact_files(merge, &mut tally).await;
        self.in_flight.borrow_mut().retain(|merge| merge.number != number);
        {
            let state = &mut *self.jobs.state.borrow_mut();
            state.counts.compactions += u64::from(result.is_ok());
            if let Some(table) = state.tables.get_mut(&id) {
                table.needs.give_back(&runs);
                table.needs.give_back(made.as_slice());
                match &result {
                    Ok(()) => {
                        table.failures = Failures::default();
                        table.needs.take_in(&runs);
                    }
                    // Other runs are still compacted.
                    Err(StorageError::RowTooLarge { .. }) => table.needs.leave_out(&runs),
                    Err(_) => {}
                }
            }
        }
        match &result {
            Ok(()) => {
                let duration_ms = self.jobs.env.now_ns().saturating_sub(began_ns) / 1_000_000;
                let ended_s = self.jobs.env.now_s();
                self.report_compaction(Compacted { number, kind, table: id, ended_s, duration_ms, tally });
            }
            Err(error) => self.compaction_failed(id, error),
        }
        drop(task);
        self.update_run_pressure();
        self.jobs.store.sweep().await;
        self.jobs.progress.wake();
        self.jobs.work.wake();
        self.jobs.free(usize::MAX).await;
        result
    }

    /// Adds a compaction to the history, and to the log.
    pub(crate) fn report_compaction(&self, compacted: Compacted) {
        self.jobs.tasks.ended(compacted);
        if let Some(left_out) = self.lines.take(self.jobs.env.now_ns()) {
            let table = self.jobs.state.borrow().settings.named(compacted.table);
            let Compacted { kind, tally, duration_ms, .. } = compacted;
            let duration = Duration::from_millis(duration_ms);
            self.jobs.options.event_sink.send(&Event::Compacted { table, kind, tally, duration, left_out });
        }
    }

    /// Returns the number of compactions in flight.
    pub(crate) fn running(&self) -> usize {
        self.in_flight.borrow().len()
    }

    /// Updates the pressure of waiting runs, and the memory that open files take from the caches.
    pub(crate) fn update_run_pressure(&self) {
        let state = self.jobs.state.borrow();
        self.jobs.pacing.runs_pressure_ppm.set(self.runs_pressure_ppm(&state));
        self.jobs.store.cache.borrow_mut().reserve(state.index_bytes());
    }

    fn choose_compaction(&self) -> Option<(TableId, Vec<Arc<TableFile>>)> {
        let state = self.jobs.state.borrow();
        if self.jobs.failed.borrow().is_some() || self.jobs.pacing.is_paused() {
            return None;
        }
        let (id, runs) = self.most_needed(&state)?;
        let chosen = state.tables[&id].files.runs().iter().filter(|run| runs.contains(&run.number));
        Some((id, chosen.flat_map(|run| run.sound()).cloned().collect()))
    }

    /// Returns the table's memtables and files outside the compaction, which it must consult before
    /// it forgets a tombstone.
    fn others_of(&self, id: TableId, runs: &[u64], own: &FxHashSet<u64>) -> Option<Others> {
        let state = self.jobs.state.borrow();
        let table = state.tables.get(&id)?;
        Some(Others { memory: table.snapshot(), files: table.files.without(runs, own) })
    }

    /// Compacts files into a new run. Returns the run's number.
    ///
    /// When a fragment is sealed, one edit of the manifest adds it, removes the inputs that were
    /// read to their end, and cuts the others. Every token is therefore in exactly one place, also
    /// after a crash. A forgotten tombstone is then not missed by the data it shadowed.
    async fn compact_files(
        self: &Rc<Self>,
        merge: CompactionTask,
        tally: &mut Tally,
    ) -> (Option<u64>, Result<(), StorageError>) {
        let CompactionTask { table: id, inputs, work, progress } = merge;
        inputs.iter().for_each(|input| tally.read(input));
        let mut runs = runs_of(&inputs);
        let mut own: FxHashSet<u64> = inputs.iter().map(|input| input.id).collect();
        let files: Files = inputs.iter().cloned().collect();
        let stream = MergeStream::new([], &files, ScanFrom::Token(i64::MIN), i64::MAX)
            .with_row_max(self.jobs.options.compacted_row_bytes_max());
        // Inputs are freed as soon as they are read to their end.
        drop(files);
        let bytes = inputs.iter().map(|input| input.bytes).sum::<u64>();
        let first = inputs.iter().map(|input| input.tokens().0).min().unwrap_or(i64::MIN);
        let last = inputs.iter().map(|input| input.tokens().1).max().unwrap_or(i64::MAX);
        let paced = Paced::new(self.jobs.pacing.compaction.clone(), bytes).of(first, last, progress.clone());
        let mut job = self.jobs.job(id, stream, true, Default::default(), paced);
        let at_the_end = self.jobs.state.borrow().settings.options(id).strategy == Strategy::SizeTiered;
        let mut left = inputs;
        let mut outputs = Vec::new();
        let mut made = None;
        let done = loop {
            // Refreshed for each fragment: data flushed meanwhile is looked up in its file, so that
            // its memtable can be freed.
            let Some(others) = self.others_of(id, &runs, &own) else { break Ok(()) };
            if progress.is_cancelled() {
                break Err(StorageError::Cancelled);
            }
            self.release_memtables(job.replace_others(others));
            let (rest, sealed) = self.jobs.next_fragment(work, job).await;
            job = rest;
            let sealed = match sealed {
                Ok(sealed) => sealed,
                Err(error) => break Err(error),
            };
            if let Some(file) = sealed.file {
                tally.wrote(&file);
                own.insert(file.id);
                if made.replace(file.entry.run).is_none() {
                    runs.push(file.entry.run);
                    let state = self.jobs.state.borrow();
                    state.tables.get(&id).into_iter().for_each(|table| table.needs.take(&[file.entry.run]));
                }
                outputs.push(Arc::new(file));
            }
            if at_the_end && sealed.next.is_some() {
                continue;
            }
            match self.replace(id, left, std::mem::take(&mut outputs), sealed.next).await {
                Ok(Some(rest)) if sealed.next.is_some() => left = rest,
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
            self.jobs.store.sweep().await;
        };
        // The manifest does not name them.
        self.jobs.store.retire(outputs);
        tally.partitions = job.partitions();
        self.release_memtables(job.into_memory());
        (made, done)
    }

    /// Queues memtables for freeing to which this compaction had the last reference.
    fn release_memtables(&self, memory: Vec<Memtable>) {
        self.jobs.state.borrow_mut().flushed.extend(memory.into_iter().filter(Memtable::is_unused));
    }

    /// Replaces the data of `inputs` below the token `next`, or all of it, by `outputs`. Returns
    /// the rest of the inputs. `None` if the table was truncated meanwhile.
    async fn replace(
        &self,
        id: TableId,
        inputs: Vec<Arc<TableFile>>,
        outputs: Vec<Arc<TableFile>>,
        next: Option<i64>,
    ) -> Result<Option<Vec<Arc<TableFile>>>, StorageError> {
        let noted = inputs.iter().map(|input| &input.large_rows);
        outputs.iter().for_each(|output| output.large_rows.inherit(noted.clone()));
        let sequence = inputs.iter().map(|input| input.sequence()).max().unwrap_or_default();
        outputs.iter().for_each(|output| output.set_sequence(sequence));
        let mut gone = Vec::new();
        let mut cut = Vec::new();
        let mut left = Vec::new();
        for input in inputs {
            match rest_of(&input, next) {
                Some(rest) if Arc::ptr_eq(&rest, &input) => left.push(rest),
                Some(rest) => cut.push((input, rest)),
                None => gone.push(input),
            }
        }
        let alive = || {
            let state = self.jobs.state.borrow();
            let table = state.tables.get(&id);
            let mut changed = gone.iter().chain(cut.iter().map(|(input, _)| input));
            table.is_some_and(|t| changed.all(|input| t.files.contains(input)))
        };
        let edited = self.jobs.store.edit(|edit| {
            if alive() {
                gone.iter().for_each(|file| edit.remove(id, file.id));
                cut.iter().for_each(|(_, rest)| edit.cut(id, rest.id, rest.entry.from));
                outputs.iter().for_each(|file| edit.add(id, file.entry.clone()));
            }
        });
        if let Err(error) = edited.await {
            self.jobs.store.retire_unconfirmed(outputs);
            return Err(error);
        }
        let alive = alive();
        let state = &mut *self.jobs.state.borrow_mut();
        state.counts.compacted_bytes += outputs.iter().map(|file| file.bytes).sum::<u64>();
        match state.tables.get_mut(&id) {
            Some(table) if alive => {
                self.jobs.store.retire(gone.iter().filter_map(|file| table.files.remove(file)));
                for (input, rest) in cut {
                    table.files.remove(&input);
                    table.files.push(rest.clone());
                    left.push(rest);
                }
                outputs.into_iter().for_each(|file| table.files.push(file));
                Ok(Some(left))
            }
            _ => {
                self.jobs.store.retire(outputs);
                Ok(None)
            }
        }
    }
}

impl Tally {
    fn read(&mut self, file: &TableFile) {
        self.files_in += 1;
        self.bytes_in += file.bytes;
        self.rows_in += file.statistics.map_or(0, |statistics| statistics.rows);
        self.tombstones_in += file.statistics.map_or(0, |statistics| statistics.tombstones);
    }

    fn wrote(&mut self, file: &TableFile) {
        self.files_out += 1;
        self.bytes_out += file.bytes;
        self.rows_out += file.statistics.map_or(0, |statistics| statistics.rows);
        self.tombstones_out += file.statistics.map_or(0, |statistics| statistics.tombstones);
    }
}

/// Returns the kind of a compaction of these files.
fn kind_of(inputs: &[Arc<TableFile>]) -> TaskKind {
    match () {
        () if inputs.iter().any(|file| !file.entry.owners.is_empty()) => TaskKind::Cleanup,
        () if runs_of(inputs).len() == 1 => TaskKind::TombstoneCompaction,
        () => TaskKind::Compaction,
    }
}

/// Returns the part of a file from the token `next` on, if there is one.
fn rest_of(file: &Arc<TableFile>, next: Option<i64>) -> Option<Arc<TableFile>> {
    let (first, last) = file.tokens();
    match next {
        Some(next) if first >= next => Some(file.clone()),
        Some(next) if last >= next => Some(Arc::new(file.cut(next))),
        _ => None,
    }
}
