//! Computes which compaction a table needs, once after each change of its runs, and tracks
//! compactions in flight.
//!
//! The choice for a table is cached with the state it depends on: runs, busy runs, options. The
//! frequent questions (is there work, how large is the backlog) then cost a comparison for each
//! table. `Shard::check_expiry` invalidates the cache, because the choice also depends on time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use crate::background::progress::Progress;
use crate::compaction::strategy::dead::{self, Dead};
use crate::compaction::strategy::need::{self, Candidate};
use crate::compaction::strategy::{self, Run};
use crate::model::TableId;
use crate::options::TableOptions;
use crate::shard::{Shard, State, Table};
use crate::table::file::TableFile;
use crate::table::runs::{self, Files};
use crate::table::statistics::WriteTime;

/// Partitions of a run that are looked up in other runs, to estimate the fraction with older data
/// elsewhere.
const SAMPLE: usize = 32;

/// The compaction state of one table.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    kept: RefCell<Option<(Stamp, Choice)>>,
    /// The number of changes of the fields below, of the options, and of expiry checks.
    version: Cell<u64>,
    /// The numbers of runs that a compaction reads or writes.
    busy: RefCell<Vec<u64>>,
    /// Requested compactions that wait for those in flight. No other compaction of the table may
    /// start.
    pub(crate) reserved: Cell<u32>,
    /// The time since when a compaction has been needed. Reset when one starts.
    since_ns: Cell<Option<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    files: u64,
    version: u64,
}

/// The next compaction that a table needs, and its backlog.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// The numbers of the runs to compact. Empty: no compaction is needed.
    pub(crate) runs: Rc<[u64]>,
    /// Bytes of those runs.
    pub(crate) bytes: u64,
    /// Runs that wait for a compaction.
    pub(crate) waiting: usize,
    pub(crate) backlog: u64,
}

/// A compaction in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    /// True if a statement requested it.
    pub(crate) requested: bool,
    pub(crate) progress: Progress,
}

impl Needs {
    pub(crate) fn touch(&self) {
        self.version.set(self.version.get() + 1);
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.busy.borrow().is_empty()
    }

    pub(crate) fn has(&self, run: u64) -> bool {
        self.busy.borrow().contains(&run)
    }

    /// Marks runs as busy: a compaction uses them from now on.
    pub(crate) fn take(&self, runs: &[u64]) {
        self.busy.borrow_mut().extend_from_slice(runs);
        self.since_ns.set(None);
        self.touch();
    }

    /// Unmarks runs after the compaction.
    pub(crate) fn give_back(&self, runs: &[u64]) {
        self.busy.borrow_mut().retain(|run| !runs.contains(run));
        self.touch();
    }
}

impl Shard {
    pub(crate) fn options_in(&self, state: &State, id: TableId) -> TableOptions {
        state.configured.get(&id).copied().unwrap_or(self.options.table)
    }

    /// Returns the time before which tombstones may be removed, Unix seconds: they are older than
    /// the grace period and than every batch in flight.
    pub(crate) fn forget_before_s(&self, options: &TableOptions, now_s: u32) -> u32 {
        now_s.saturating_sub(options.gc_grace_s).min(self.options.batches.kept_from_s())
    }

    /// Returns the current time in units of the table's timestamps.
    pub(crate) fn timestamp_now(&self, options: &TableOptions) -> i64 {
        let now = i128::from(self.env.now_s()) * i128::from(options.timestamps_per_s);
        i64::try_from(now).unwrap_or(i64::MAX)
    }

    /// Returns the time of writing that a file of the table records.
    pub(crate) fn write_time(&self, options: &TableOptions) -> WriteTime {
        WriteTime { now_s: self.env.now_s(), timestamp: self.timestamp_now(options) }
    }

    /// Returns the compaction that a table needs.
    pub(crate) fn choice(&self, state: &State, id: TableId, table: &Table) -> Choice {
        let needs = &table.needs;
        let stamp = Stamp { files: table.files.version(), version: needs.version.get() };
        if let Some((kept, choice)) = &*needs.kept.borrow()
            && *kept == stamp
        {
            return choice.clone();
        }
        let choice = self.choose(&self.options_in(state, id), table);
        if choice.runs.is_empty() {
            needs.since_ns.set(None);
        } else if needs.since_ns.get().is_none() {
            needs.since_ns.set(Some(self.env.now_ns()));
        }
        *needs.kept.borrow_mut() = Some((stamp, choice.clone()));
        choice
    }

    fn choose(&self, options: &TableOptions, table: &Table) -> Choice {
        let idle: Vec<&Arc<runs::Run>> =
            table.files.runs().iter().filter(|run| run.has_sound() && !table.needs.has(run.number)).collect();
        let runs: Vec<Run> =
            idle.iter().map(|run| Run { bytes: run.sound_bytes(), newest: run.known.newest }).collect();
        if let Some(chosen) = strategy::compaction(options, &runs, self.timestamp_now(options)) {
            let backlog = strategy::backlog_bytes(options, &runs, &chosen);
            let numbers: Vec<u64> = chosen.runs.iter().map(|at| idle[*at].number).collect();
            let bytes = chosen.runs.iter().map(|at| runs[*at].bytes).sum();
            return Choice { runs: numbers.into(), bytes, waiting: chosen.waiting, backlog };
        }
        let now_s = self.env.now_s();
        let forget_before_s = self.forget_before_s(options, now_s);
        let due = |run: &&&Arc<runs::Run>| {
            let dead = dead_of((options, forget_before_s), &table.files, run, now_s);
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

    /// Returns the table whose compaction should start now, and the runs to compact.
    pub(crate) fn most_needed(&self, state: &State) -> Option<(TableId, Rc<[u64]>)> {
        let left = state.merges.iter().filter(|merge| !merge.requested).map(|merge| merge.progress.left());
        let limit = need::size_limit(left)?;
        let now_ns = self.env.now_ns();
        let candidates = state.tables.iter().filter_map(|(id, table)| {
            let choice = self.choice(state, *id, table);
            if choice.runs.is_empty() || table.failures.waits || table.needs.reserved.get() > 0 {
                return None;
            }
            let since_ns = table.needs.since_ns.get().unwrap_or(now_ns);
            let waited_ms = now_ns.saturating_sub(since_ns) / 1_000_000;
            let candidate = Candidate { bytes: choice.bytes, waiting: choice.waiting, waited_ms };
            Some(((*id, choice.runs), candidate))
        });
        need::most_needed(candidates, limit)
    }

    /// Returns the bytes still to compact, including the rest of compactions in flight.
    pub(crate) fn backlog_bytes(&self, state: &State) -> u64 {
        let waiting = state.tables.iter().map(|(id, table)| self.choice(state, *id, table).backlog);
        let in_flight = state.merges.iter().map(|merge| merge.progress.left());
        waiting.chain(in_flight).fold(0, u64::saturating_add)
    }

    /// Returns how much writers must be slowed because runs pile up, in millionths. Tables whose
    /// compactions fail do not count: slowing would not help them.
    pub(crate) fn runs_pressure_ppm(&self, state: &State) -> u32 {
        let tables = state.tables.iter().filter(|(_, table)| !table.failures.waits);
        let pressure = tables.map(|(id, table)| {
            let threshold = self.options_in(state, *id).min_threshold;
            need::pressure_ppm(self.choice(state, *id, table).waiting, threshold)
        });
        pressure.max().unwrap_or(0)
    }
}

fn dead_of(
    (options, forget_before_s): (&TableOptions, u32),
    all: &Files,
    run: &runs::Run,
    now_s: u32,
) -> Dead {
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
fn elsewhere_ppm(all: &Files, run: &runs::Run) -> u32 {
    let older = |other: &&Arc<runs::Run>| {
        other.number != run.number && other.known.timestamps.0 <= run.known.timestamps.1
    };
    let older: Vec<&Arc<runs::Run>> = all.runs().iter().filter(older).collect();
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
            let may_have = |other: &&Arc<runs::Run>| other.at(token).is_some_and(|f| f.may_contain(token));
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
