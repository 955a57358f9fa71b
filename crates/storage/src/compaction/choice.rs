//! Chooses which compaction a table needs, and which table's starts next.

use std::rc::Rc;
use std::sync::Arc;

use crate::compaction::Compactor;
use crate::compaction::strategy::dead::{self, Dead};
use crate::compaction::strategy::need::{self, Candidate};
use crate::compaction::strategy::{self, RunSize};
use crate::jobs::pacing::CompactionLoad;
use crate::model::TableId;
use crate::options::TableOptions;
use crate::state::needs::Choice;
use crate::state::{ShardState, ShardTable};
use crate::table::file::TableFile;
use crate::table::runs::{FileRun, Files};

/// Partitions of a run that are looked up in other runs, to estimate the fraction with older data
/// elsewhere.
const SAMPLE: usize = 32;

impl Compactor {
    /// Returns the compaction that a table needs.
    pub(crate) fn choice(&self, state: &ShardState, id: TableId, table: &ShardTable) -> Choice {
        let env = &self.jobs.env;
        let choose = || {
            let (options, now_s) = (state.settings.options(id), env.now_s());
            choose(&options, state.settings.forget_before_s(&options, now_s), table, now_s)
        };
        table.needs.choice(table.files.version(), || env.now_ns(), choose)
    }

    /// Returns the table whose compaction should start now, and the runs to compact, beside
    /// compactions in flight.
    pub(super) fn most_needed(&self, state: &ShardState) -> Option<(TableId, Rc<[u64]>)> {
        let in_flight = self.in_flight.borrow();
        let left = in_flight.iter().filter(|merge| !merge.requested).map(|merge| merge.progress.left());
        let limit = need::size_limit(left)?;
        let now_ns = self.jobs.env.now_ns();
        let candidates = state.tables.iter().filter_map(|(id, table)| {
            let choice = self.choice(state, *id, table);
            if choice.runs.is_empty() || table.failures.waits || table.needs.reserved.get() > 0 {
                return None;
            }
            let since_ns = table.needs.since_ns().unwrap_or(now_ns);
            let waited_ms = now_ns.saturating_sub(since_ns) / 1_000_000;
            let candidate = Candidate { bytes: choice.bytes, waiting: choice.waiting, waited_ms };
            Some(((*id, choice.runs), candidate))
        });
        need::most_needed(candidates, limit)
    }

    /// Returns the compactions in flight and in need.
    pub(crate) fn load(&self, state: &ShardState) -> CompactionLoad {
        let waiting = state.tables.iter().map(|(id, table)| self.choice(state, *id, table).backlog);
        let in_flight = self.in_flight.borrow();
        let left = in_flight.iter().map(|compaction| compaction.progress.left());
        let backlog_bytes = waiting.chain(left).fold(0, u64::saturating_add);
        CompactionLoad { is_running: !in_flight.is_empty(), backlog_bytes }
    }

    /// Returns how much writers must be slowed because runs pile up, in millionths. Tables whose
    /// compactions fail do not count: slowing would not help them.
    pub(super) fn runs_pressure_ppm(&self, state: &ShardState) -> u32 {
        let tables = state.tables.iter().filter(|(_, table)| !table.failures.waits);
        let pressure = tables.map(|(id, table)| {
            let threshold = state.settings.options(*id).min_threshold;
            need::pressure_ppm(self.choice(state, *id, table).waiting, threshold)
        });
        pressure.max().unwrap_or(0)
    }
}

fn choose(options: &TableOptions, forget_before_s: u32, table: &ShardTable, now_s: u32) -> Choice {
    let idle: Vec<&Arc<FileRun>> =
        table.files.runs().iter().filter(|run| run.has_sound() && !table.needs.has(run.number)).collect();
    let runs: Vec<RunSize> =
        idle.iter().map(|run| RunSize { bytes: run.sound_bytes(), newest: run.known.newest }).collect();
    if let Some(chosen) = strategy::compaction(options, &runs, options.timestamp_at(now_s)) {
        let backlog = strategy::backlog_bytes(options, &runs, &chosen);
        let numbers: Vec<u64> = chosen.runs.iter().map(|at| idle[*at].number).collect();
        let bytes = chosen.runs.iter().map(|at| runs[*at].bytes).sum();
        return Choice { runs: numbers.into(), bytes, waiting: chosen.waiting, backlog };
    }
    let due = |run: &&&Arc<FileRun>| {
        let dead = dead_of(options, forget_before_s, &table.files, run, now_s);
        dead::is_due(options, &dead, now_s)
    };
    let alone = idle.iter().find(due).or_else(|| idle.iter().find(|run| run.known.is_shared));
    alone.map_or_else(Choice::default, |run| Choice {
        runs: [run.number].into(),
        bytes: run.sound_bytes(),
        waiting: 1,
        backlog: run.sound_bytes(),
    })
}

fn dead_of(options: &TableOptions, forget_before_s: u32, all: &Files, run: &FileRun, now_s: u32) -> Dead {
    let known = &run.known;
    let mut dead = Dead {
        all: known.cells.saturating_add(known.rows),
        dead: known.deaths.before(forget_before_s),
        written_s: known.written_s,
        elsewhere_ppm: 0,
    };
    // The sample is expensive, so it is taken only if it decides.
    if !options.unchecked_tombstones && dead::is_due(options, &dead, now_s) {
        dead.elsewhere_ppm = elsewhere_ppm(all, run);
    }
    dead
}

/// Estimates the fraction of a run's partitions of which another run may have older data, in
/// millionths.
fn elsewhere_ppm(all: &Files, run: &FileRun) -> u32 {
    let older = |other: &&Arc<FileRun>| {
        other.number != run.number && other.known.timestamps.0 <= run.known.timestamps.1
    };
    let older: Vec<&Arc<FileRun>> = all.runs().iter().filter(older).collect();
    if older.is_empty() {
        return 0;
    }
    let files = run.files();
    let (mut taken, mut elsewhere) = (0, 0);
    for file in files.iter().step_by(files.len().div_ceil(SAMPLE)) {
        let share = (SAMPLE / files.len().min(SAMPLE)).max(1);
        let blocks = file.index.iter().step_by(file.index.len().div_ceil(share).max(1));
        for token in blocks.map(|block| block.start.token).filter(|token| file.entry.owns(*token)) {
            taken += 1;
            let may_have = |other: &&Arc<FileRun>| other.at(token).is_some_and(|f| f.may_contain(token));
            elsewhere += u64::from(older.iter().any(may_have));
        }
    }
    // Without a sample, assume all of them.
    (elsewhere * 1_000_000_u64).checked_div(taken).unwrap_or(1_000_000) as u32
}

/// Returns the distinct numbers of the files' runs.
pub(crate) fn runs_of(files: &[Arc<TableFile>]) -> Vec<u64> {
    let mut runs: Vec<u64> = files.iter().map(|file| file.entry.run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}
