//! What tables need of compaction, worked out once after each change of a table's runs, and the merges in flight.
//!
//! The choice for a table is kept with the state that it was made of: runs, runs in flight, options. So what is
//! asked every few milliseconds (is there work, how large is the backlog) costs a comparison for each table.
//! What changes with the clock is worked out anew by `Shard::tick`.

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

/// Partitions of a run that are looked for in other runs, to estimate how many have older data elsewhere.
const SAMPLE: usize = 32;

/// Of one table.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    kept: RefCell<Option<(Stamp, Choice)>>,
    /// Changes of what is below, of the options, and passes of the clock.
    version: Cell<u64>,
    /// Numbers of runs that a merge has, or makes.
    busy: RefCell<Vec<u64>>,
    /// Merges that were asked for and wait for those in flight: no other begins.
    pub(crate) reserved: Cell<u32>,
    /// When there first was something to merge since the last merge began.
    since_ns: Cell<Option<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    files: u64,
    version: u64,
}

/// The merge that a table needs next, and what is behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// Numbers of the runs to merge; none: nothing is to be done.
    pub(crate) runs: Rc<[u64]>,
    /// Bytes of those runs.
    pub(crate) bytes: u64,
    /// Runs that wait to become one.
    pub(crate) waiting: usize,
    pub(crate) backlog: u64,
}

/// A merge in flight.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) number: u64,
    /// It was asked for, and not chosen here.
    pub(crate) asked: bool,
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

    /// A merge has these runs from now on.
    pub(crate) fn take(&self, runs: &[u64]) {
        self.busy.borrow_mut().extend_from_slice(runs);
        self.since_ns.set(None);
        self.touch();
    }

    /// It has them no more.
    pub(crate) fn give_back(&self, runs: &[u64]) {
        self.busy.borrow_mut().retain(|run| !runs.contains(run));
        self.touch();
    }
}

impl Shard {
    pub(crate) fn options_in(&self, state: &State, id: TableId) -> TableOptions {
        state.configured.get(&id).copied().unwrap_or(self.options.table)
    }

    /// The clock as timestamps of a table have it.
    pub(crate) fn timestamp_now(&self, options: &TableOptions) -> i64 {
        let now = i128::from(self.world.now_s()) * i128::from(options.timestamps_per_s);
        i64::try_from(now).unwrap_or(i64::MAX)
    }

    /// Returns the time of writing that a file of the table records.
    pub(crate) fn write_time(&self, options: &TableOptions) -> WriteTime {
        WriteTime { now_s: self.world.now_s(), timestamp: self.timestamp_now(options) }
    }

    /// What a table needs.
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
            needs.since_ns.set(Some(self.world.now_ns()));
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
        let now_s = self.world.now_s();
        let due = |run: &&&Arc<runs::Run>| {
            dead::is_due(options, &dead_of(options, &table.files, run, now_s), now_s)
        };
        let alone = idle.iter().find(due).or_else(|| idle.iter().find(|run| run.known.is_shared));
        alone.map_or_else(Choice::default, |run| Choice {
            runs: [run.number].into(),
            bytes: run.sound_bytes(),
            waiting: 1,
            backlog: run.sound_bytes(),
        })
    }

    /// The table whose merge is to begin now, and its runs.
    pub(crate) fn most_needed(&self, state: &State) -> Option<(TableId, Rc<[u64]>)> {
        let left = state.merges.iter().filter(|merge| !merge.asked).map(|merge| merge.progress.left());
        let room = need::room(left)?;
        let now_ns = self.world.now_ns();
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
        need::most(candidates, room)
    }

    /// Bytes still to be merged, less what the merges in flight have done.
    pub(crate) fn backlog_bytes(&self, state: &State) -> u64 {
        let waiting = state.tables.iter().map(|(id, table)| self.choice(state, *id, table).backlog);
        let in_flight = state.merges.iter().map(|merge| merge.progress.left());
        waiting.chain(in_flight).fold(0, u64::saturating_add)
    }

    /// How far writers are to be slowed because runs pile up, in millionths. Tables that cannot be merged
    /// do not count: slowing helps none of them.
    pub(crate) fn runs_pressure_ppm(&self, state: &State) -> u32 {
        let tables = state.tables.iter().filter(|(_, table)| !table.failures.waits);
        let pressure = tables.map(|(id, table)| {
            let threshold = self.options_in(state, *id).min_threshold;
            need::pressure_ppm(self.choice(state, *id, table).waiting, threshold)
        });
        pressure.max().unwrap_or(0)
    }
}

fn dead_of(options: &TableOptions, all: &Files, run: &runs::Run, now_s: u32) -> Dead {
    let known = &run.known;
    let forget_before_s = now_s.saturating_sub(options.gc_grace_s);
    let mut dead = Dead {
        all: known.cells.saturating_add(known.rows),
        dead: known.deaths.before(forget_before_s),
        written_s: known.written_s,
        elsewhere_ppm: 0,
    };
    // The sample costs most: it is taken where the answer hangs on it.
    if !options.unchecked_tombstones && dead::is_due(options, &dead, now_s) {
        dead.elsewhere_ppm = elsewhere_ppm(all, run);
    }
    dead
}

/// Of a run's partitions, those that another run may have older data of, in millionths, by a sample.
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
    // What no block begins with is not known.
    (elsewhere * 1_000_000_u64).checked_div(taken).unwrap_or(1_000_000) as u32
}

/// The numbers of the runs of files, each once.
pub(crate) fn runs_of(files: &[Arc<TableFile>]) -> Vec<u64> {
    let mut runs: Vec<u64> = files.iter().map(|file| file.entry.run).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}
