//! The embedded engine: what CQL means over `storage`, on this machine alone.
//!
//! Every core has an [`Embedded`] with its own shard. A statement is prepared against an immutable schema; the core
//! that runs it asks the core that owns a partition by message, and itself directly. What it cannot do yet it
//! refuses with a clear error; it never answers approximately.

mod batch_log;
mod catalogue;
mod change;
mod choice;
mod clock;
mod conditions;
mod current;
mod definition;
mod elements;
mod execute;
mod filter;
mod heavily;
mod kept;
mod maintenance;
mod metrics;
mod modify;
mod names;
mod ordered;
mod paging;
mod plan;
mod point;
mod read;
mod reading;
mod restore;
mod restrict;
mod scan;
mod seen;
mod select;
mod show;
mod slice;
mod snapshot;
mod table_scan;
mod table_view;
mod term;
#[cfg(test)]
mod testing;
mod truncate;
mod turns;
mod virtual_select;
mod write;
mod writing;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use engine::{Error, Guardrails, Registry, SchemaListener};
use schema::Sharding;
use storage::{Shard, StorageError, TableId};

use batch_log::BatchLog;
use clock::{Clock, Floor};
use current::Current;
use turns::{Turn, Turns};

pub use clock::WallClock;
pub use snapshot::AutoSnapshot;

/// ScyllaDB's default: a shard's tokens are cut into 2^12 pieces, so that data spreads evenly.
pub const IGNORE_MSB: u32 = storage::IGNORE_MSB;

/// The embedded engine on one core.
pub struct Embedded {
    me: Weak<Embedded>,
    shard: Rc<Shard>,
    sharding: Sharding,
    current: Rc<Current>,
    /// The schema is kept as rows (core 0 only).
    has_rows: Cell<bool>,
    listeners: RefCell<Vec<SchemaListener>>,
    registry: Registry,
    /// Partitions, by token, of which something is read before it is changed.
    turns: Turns<i64>,
    /// Turns kept for statements of other cores, by number.
    held_turns: RefCell<HashMap<u64, Vec<Turn<i64>>>>,
    next_held: Cell<u64>,
    /// Groups that make many rows of a virtual table: one read at a time, as each holds all rows.
    virtual_turns: Turns<lanes::Group>,
    /// Write times, the same for all cores.
    clock: Arc<Clock>,
    floor: Floor,
    /// Definition statements run one after the other (core 0 only).
    definition_turns: Turns<()>,
    /// A change of the schema panicked between the log and the last core (core 0 only).
    half_changed: Cell<bool>,
    /// The data folder; `None` without one.
    dir: Option<PathBuf>,
    /// Snapshots that the server makes by itself (core 0 only).
    auto_snapshot: Cell<AutoSnapshot>,
    /// This core's part of a snapshot under way.
    cut: RefCell<Option<storage::Cut>>,
    /// Writes of this core that span cores.
    batch_log: BatchLog,
    /// Latencies of tables on this core.
    uses: table_view::Uses,
    /// Receives the panic of a schema change, and what became of batches after a crash.
    teller: storage::Teller,
}

thread_local! {
    /// This core's engine, for messages from other cores.
    static LOCAL: RefCell<Weak<Embedded>> = const { RefCell::new(Weak::new()) };
}

impl Embedded {
    /// Opens this core's shard and the schema. To be called on every core's fast lane in the order of
    /// the cores: the others take the schema from core 0, and the last one applies the writes over
    /// several cores that a crash interrupted.
    ///
    /// # Errors
    /// What [`Shard::open`] answers, or a damaged schema.
    pub async fn open(options: storage::Options) -> Result<Rc<Embedded>, Error> {
        Embedded::open_at(options, WallClock::default()).await
    }

    /// As [`Embedded::open`], with another clock. Core 0's counts for all cores.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub async fn open_at(options: storage::Options, wall: WallClock) -> Result<Rc<Embedded>, Error> {
        let is_durable = options.dir.is_some();
        let core = options.shard;
        let (shards, teller, dir) = (options.shards, options.teller.clone(), options.dir.clone());
        let shard = Shard::open(options).await.map_err(storage_error)?;
        let clock = match lanes::current_core() {
            0 => Arc::new(Clock::new(wall)),
            _ => lanes::call(0, || async { Embedded::local().clock.clone() }).await,
        };
        let sharding = Sharding { shards, ignore_msb: IGNORE_MSB };
        let embedded = Rc::new_cyclic(|me: &Weak<Embedded>| Embedded {
            me: me.clone(),
            shard,
            sharding,
            current: Rc::default(),
            has_rows: Cell::new(false),
            listeners: RefCell::default(),
            registry: Registry::default(),
            turns: Turns::default(),
            held_turns: RefCell::default(),
            next_held: Cell::new(0),
            virtual_turns: Turns::default(),
            clock,
            floor: Floor::new(is_durable, |token| sharding.shard_of(token) == core),
            definition_turns: Turns::default(),
            half_changed: Cell::new(false),
            dir,
            auto_snapshot: Cell::default(),
            cut: RefCell::default(),
            batch_log: BatchLog::default(),
            uses: table_view::Uses::default(),
            teller,
        });
        let schema = match lanes::current_core() {
            0 => embedded.load_schema().await?,
            _ => lanes::call(0, || async { Embedded::local().current.schema() }).await,
        };
        embedded.read_floors(&schema).await?;
        embedded.current.replace(schema.clone());
        embedded.configure_tables(schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()));
        embedded.add_schema_tables();
        seen::register(&embedded);
        embedded.drop_leftovers(&schema);
        LOCAL.with(|local| *local.borrow_mut() = Rc::downgrade(&embedded));
        if lanes::current_core() + 1 == shards as usize {
            for core in 0..shards as usize {
                lanes::call(core, || async { Embedded::local().replay_batches().await }).await?;
            }
            embedded.report_recovery(shards).await;
        }
        Ok(embedded)
    }

    /// Reports what the starts of all cores read.
    async fn report_recovery(&self, shards: u32) {
        let mut all = storage::Recovery::default();
        for core in 0..shards as usize {
            let one = lanes::call(core, || async { Embedded::local().shard.recovery() }).await;
            all.files += one.files;
            all.segments += one.segments;
            all.records += one.records;
            all.bytes += one.bytes;
            all.duration = all.duration.max(one.duration);
        }
        self.teller.tell(&storage::Event::RecoveredAll { shards, recovery: all });
    }

    /// Writes what is in memory, and closes this core's files. The engine answers errors from then on.
    ///
    /// # Errors
    /// When the last writes fail.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.shard.shutdown().await.map_err(storage_error)
    }

    /// Writes what this core has in memory to table files.
    ///
    /// # Errors
    /// When it cannot be written; on a full disk it waits for space.
    pub async fn flush(&self) -> Result<(), Error> {
        self.shard.flush_all().await.map_err(storage_error)
    }

    /// Merges everything this core has of a table into one run: a major compaction.
    ///
    /// # Errors
    /// There is no such table, or the merge failed.
    pub async fn compact(&self, keyspace: &str, table: &str) -> Result<(), Error> {
        let id = self.current.schema().table(keyspace, table).map(|def| TableId(def.data_id().as_u128()));
        let Some(id) = id else {
            return Err(Error::Invalid(format!("there is no table {keyspace}.{table}")));
        };
        self.shard.compact_all(id).await.map_err(storage_error)
    }

    /// Counts of this core's shard.
    pub fn storage_stats(&self) -> storage::Stats {
        self.shard.stats()
    }

    /// Holds this core's flushes and compactions back, or lets them go on: for measuring what they cost. They stand still until
    /// memory for memtables runs out.
    pub fn hold_background(&self, hold: bool) {
        self.shard.hold_background(hold);
    }

    /// Begins to flush what this core has in memory, if it is not written to any more. To be called every few seconds.
    pub fn flush_if_idle(&self) {
        self.shard.flush_if_idle();
    }

    /// How tokens go to cores.
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// This core's engine.
    fn local() -> Rc<Embedded> {
        LOCAL
            .with(|local| local.borrow().upgrade())
            .expect("the engine is open on every core while statements run")
    }

    fn rc(&self) -> Rc<Embedded> {
        self.me.upgrade().expect("it is being used")
    }

    /// The limits that statements are held to.
    pub(crate) fn guardrails(&self) -> &Arc<Guardrails> {
        self.registry.guardrails()
    }

    fn owner(&self, token: i64) -> usize {
        self.sharding.shard_of(token) as usize
    }

    fn add_schema_tables(&self) {
        let (schema, tables) = (self.me.clone(), self.me.clone());
        let schema = move || schema.upgrade().map_or_else(Arc::default, |e| e.current.schema());
        let tables = move || {
            let all = tables.upgrade().map(|e| e.registry.all()).unwrap_or_default();
            all.into_iter().map(|table| table.def).collect()
        };
        for table in engine::system_schema::tables(schema, tables) {
            self.registry.add(table);
        }
    }
}

/// A storage error as clients see it.
fn storage_error(error: StorageError) -> Error {
    match error {
        StorageError::Overloaded => Error::Overloaded(error.to_string()),
        // Bound anew, the statement does not find its table.
        StorageError::Dropped { .. } => Error::Stale,
        StorageError::TooLarge { .. } => Error::Invalid(error.to_string()),
        _ => Error::Server(error.to_string()),
    }
}
