//! Engines without listeners, one for each core.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use embedded::{Embedded, WallClock};
use engine::{ColumnSpec, Engine, Error, ParsedTree, Request, ResultRows, StatementOutcome};
use lanes::{Group, Lanes};
use storage::StorageOptions;

/// Creates the keyspace that the statements of most tests use.
pub const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";

thread_local! {
    static ENGINE: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
}

/// Returns the engine of this core. Panics if none is open.
#[must_use]
pub fn engine() -> Rc<Embedded> {
    ENGINE.with_borrow(|engine| engine.clone().expect("the engine is open"))
}

/// Options of engines to open.
#[derive(Clone, Debug)]
pub struct Setup {
    cores: usize,
    options: StorageOptions,
    clock: WallClock,
}

impl Setup {
    /// Engines of `cores` cores in memory.
    #[must_use]
    pub fn new(cores: usize) -> Setup {
        Setup { cores, options: StorageOptions::in_memory(), clock: WallClock::default() }
    }

    /// Keeps data in `dir`, or in memory if it is `None`.
    #[must_use]
    pub fn dir(mut self, dir: Option<&Path>) -> Setup {
        self.options.dir = dir.map(Path::to_owned);
        self
    }

    /// Changes options of the storage of all cores.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut StorageOptions)) -> Setup {
        change(&mut self.options);
        self
    }

    /// Replaces the wall clock of all cores.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Setup {
        self.clock = clock;
        self
    }

    /// Starts lanes, and opens an engine on each core.
    #[must_use]
    pub fn start(self) -> Lanes {
        let lanes = crate::start_lanes(self.cores);
        self.open(&lanes);
        lanes
    }

    /// Opens an engine on each core of lanes that have none.
    pub fn open(self, lanes: &Lanes) {
        for core in 0..self.cores {
            let Setup { options, clock, .. } = self.clone();
            let options = StorageOptions { shard: core as u32, shards: self.cores as u32, ..options };
            lanes.block_on(core, Group::CONTROL, move || async move {
                ENGINE.set(Some(Embedded::open_at(options, clock).await.expect("the engine opens")));
            });
        }
    }
}

/// Closes the engines of all cores. Lanes that stop without it end as in a crash: nothing is
/// flushed.
pub fn close_engines(lanes: &Lanes) {
    for core in (0..lanes.cores()).rev() {
        lanes.block_on(core, Group::CONTROL, || async {
            let engine = ENGINE.take().expect("the engine is open");
            engine.shutdown().await.expect("the engine closes");
        });
    }
}

/// Runs a statement without values in keyspace `ks`.
///
/// # Errors
/// Returns the errors of parsing, planning and running it.
pub async fn run(engine: &Embedded, text: &str) -> Result<StatementOutcome, Error> {
    let statement = ParsedTree::parse(text).map_err(|error| Error::Invalid(error.to_string()))?;
    let plan = engine.prepare(Arc::new(statement), Some("ks"))?;
    engine.execute(&plan, &Request::EMPTY).outcome(engine).await
}

/// Returns the cells of rows as CQL text.
#[must_use]
pub fn texts(rows: &ResultRows) -> Vec<Vec<String>> {
    let text = |(cell, column): (&Option<&[u8]>, &ColumnSpec)| {
        cell.map_or_else(|| "null".to_owned(), |bytes| schema::value::to_text(&column.ty, bytes))
    };
    rows.decoded().iter().map(|row| row.iter().zip(rows.columns.iter()).map(text).collect()).collect()
}
