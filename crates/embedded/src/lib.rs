//! The embedded engine: CQL semantics over `storage`, on one machine.
//!
//! Every core has an [`Embedded`] with its own shard. A statement is prepared against an immutable
//! schema. The core that runs it calls the core that owns the partition by message, or its own
//! shard directly. Unsupported statements are rejected with an error. The engine never returns
//! approximate results.

mod bind;
mod current;
mod ddl;
mod execute;
mod heavy_lane;
mod index;
mod locks;
mod owned;
mod plan;
mod read;
mod system;
mod table_scan;
#[cfg(test)]
mod testing;
mod write;

use std::rc::{Rc, Weak};
use std::sync::{Arc, LazyLock};

use engine::{Error, Guardrails, Registry};
use lanes::PerCore;
use schema::Sharding;
use storage::{Shard, StorageError, TableId};

use crate::ddl::state::{Builds, Definitions, Snapshots};
use crate::index::state::Indexes;
use crate::locks::Locks;
use crate::system::own_tables::OWN_TABLES;
use crate::write::batch_log::BatchLog;
use crate::write::clock::{Clock, Floor};
use crate::write::times::Timestamps;
use current::Current;

pub use crate::ddl::state::AutoSnapshot;
pub use crate::write::clock::WallClock;

/// Most significant bits of a token that sharding ignores (ScyllaDB's default, 12): a shard owns
/// 2^12 token ranges, so that data spreads evenly.
pub const IGNORE_MSB: u32 = storage::IGNORE_MSB;

/// The embedded engine on one core.
pub struct Embedded {
    me: Weak<Embedded>,
    shard: Rc<Shard>,
    sharding: Sharding,
    current: Rc<Current>,
    registry: Registry,
    locks: Locks,
    timestamps: Timestamps,
    definitions: Definitions,
    snapshots: Snapshots,
    batch_log: BatchLog,
    indexes: Indexes,
    builds: Builds,
    /// Latencies of the tables on this core.
    uses: system::table_uses::Uses,
    /// Event sink for panics of schema changes, and for the batches replayed after a crash.
    event_sink: storage::EventSink,
}

/// Engine of each core, used by messages from other cores.
static ENGINES: LazyLock<PerCore<Weak<Embedded>>> = LazyLock::new(PerCore::new);

impl Embedded {
    /// Opens this core's shard and the schema. Call it on every core's fast lane, in the order of
    /// the cores: the other cores take the schema from core 0, and the last one replays writes over
    /// several cores that a crash interrupted.
    ///
    /// # Errors
    /// Returns the errors of [`Shard::open`], or an error if the schema is damaged.
    pub fn open(
        options: storage::StorageOptions,
    ) -> lanes::LocalBoxFuture<'static, Result<Rc<Embedded>, Error>> {
        Embedded::open_at(options, WallClock::default())
    }

    /// Opens the engine as [`Embedded::open`] does, with another wall clock. All cores use the
    /// clock of core 0.
    ///
    /// # Errors
    /// Returns the errors of [`Embedded::open`].
    pub fn open_at(
        options: storage::StorageOptions,
        wall: WallClock,
    ) -> lanes::LocalBoxFuture<'static, Result<Rc<Embedded>, Error>> {
        Box::pin(async move {
            let is_durable = options.dir.is_some();
            let core = options.shard;
            let graph_bytes_max = options.cache_bytes;
            let (shards, event_sink, dir) = (options.shards, options.event_sink.clone(), options.dir.clone());
            let (clock, batches) = match lanes::current_core() {
                0 => (Arc::new(Clock::new(wall)), Arc::default()),
                _ => {
                    let shared = || async {
                        {
                            let engine = Embedded::local();
                            (engine.timestamps.clock(), engine.batch_log.in_flight.clone())
                        }
                    };
                    lanes::call(0, shared).await
                }
            };
            // Keeps all tombstones until the batches that a crash interrupted are replayed.
            let replaying = (lanes::current_core() == 0).then(|| batches.begin(0));
            let options = storage::StorageOptions { batches: batches.clone(), ..options };
            let shard = Shard::open(options).await.map_err(storage_error)?;
            for (table, name) in OWN_TABLES {
                shard.name(table, format!("system.{name}").into());
            }
            let sharding = Sharding { shards, ignore_msb: IGNORE_MSB };
            let embedded = Rc::new_cyclic(|me: &Weak<Embedded>| Embedded {
                me: me.clone(),
                shard,
                sharding,
                current: Rc::default(),
                registry: Registry::default(),
                locks: Locks::default(),
                timestamps: Timestamps::new(
                    clock,
                    Floor::new(is_durable, |token| sharding.shard_of(token) == core),
                ),
                definitions: Definitions::default(),
                snapshots: Snapshots::of(dir),
                batch_log: BatchLog::new(batches, replaying),
                indexes: Indexes::default(),
                builds: Builds::default(),
                uses: system::table_uses::Uses::default(),
                event_sink,
            });
            let schema = match lanes::current_core() {
                0 => embedded.renew_indexes(embedded.load_schema().await?).await?,
                _ => lanes::call(0, || async { Embedded::local().current.schema() }).await,
            };
            embedded
                .timestamps
                .read_floors(&embedded.shard, &schema, &embedded.event_sink)
                .await
                .map_err(storage_error)?;
            embedded.current.replace(schema.clone());
            embedded
                .configure_tables(schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()));
            let indexed = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
            let indexed: Vec<_> = indexed.filter(|def| def.has_entries()).cloned().collect();
            embedded.indexes.graph_bytes_max.set(graph_bytes_max);
            embedded.indexes.adopt(&schema, &indexed);
            embedded.resume_sweeps();
            embedded.add_schema_tables();
            system::task_tables::register(&embedded);
            embedded.drop_leftovers(&schema);
            ENGINES.set(Rc::new(Rc::downgrade(&embedded)));
            embedded.clear_saved_graphs().await;
            embedded.start_graphs();
            if lanes::current_core() + 1 == shards as usize {
                for core in 0..shards as usize {
                    lanes::call(core, || async { Embedded::local().replay_batches().await }).await?;
                }
                lanes::call(0, async || {
                    let engine = Embedded::local();
                    drop(engine.batch_log.replaying.take());
                    engine.start_builds();
                })
                .await;
                embedded.report_recovery(shards).await;
            }
            Ok(embedded)
        })
    }

    /// Reports the sum of what all cores recovered at start.
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
        self.event_sink.send(&storage::Event::RecoveredAll { shards, recovery: all });
    }

    /// Saves this core's graphs of vectors, flushes its memtables and closes its files. Afterwards
    /// the engine returns errors.
    ///
    /// # Errors
    /// Returns an error if the last writes fail.
    pub fn shutdown(&self) -> lanes::LocalBoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.save_graphs().await;
            self.shard.shutdown().await.map_err(storage_error)
        })
    }

    /// Flushes this core's memtables to table files.
    ///
    /// # Errors
    /// Returns an error if a write fails. A full disk is not an error: the flush waits for free
    /// space.
    pub fn flush(&self) -> lanes::LocalBoxFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.shard.flush_all().await.map_err(storage_error) })
    }

    /// Runs a major compaction: merges all runs of a table on this core into one.
    ///
    /// # Errors
    /// Returns an error if the table does not exist, or if the compaction fails.
    pub fn compact<'a>(
        &'a self,
        keyspace: &'a str,
        table: &'a str,
    ) -> lanes::LocalBoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let id = self.current.schema().table(keyspace, table).map(|def| TableId(def.data_id().as_u128()));
            let Some(id) = id else {
                return Err(Error::Invalid(format!("there is no table {keyspace}.{table}")));
            };
            self.shard.compact_all(id).await.map_err(storage_error)
        })
    }

    /// Returns the counters of this core's shard.
    pub fn storage_stats(&self) -> storage::Stats {
        self.shard.stats()
    }

    /// Starts to flush this core's memtables if almost nothing was written since the last call.
    /// Call it every few seconds.
    pub fn flush_if_idle(&self) {
        self.shard.flush_if_idle();
    }

    /// Returns the mapping of tokens to cores.
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// Returns this core's engine. `None`: it is closed, because the server stops.
    fn try_local() -> Option<Rc<Embedded>> {
        ENGINES.with(Weak::upgrade).flatten()
    }

    /// Returns this core's engine.
    fn local() -> Rc<Embedded> {
        Embedded::try_local().expect("the engine is open on every core while statements run")
    }

    fn rc(&self) -> Rc<Embedded> {
        self.me.upgrade().expect("the engine lives while its methods run")
    }

    /// Returns the limits that statements must keep.
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
        let progress = || -> system::view_tables::Progress {
            // Core 0 builds.
            Box::pin(lanes::call(0, async || {
                Embedded::try_local().map_or_else(Default::default, |engine| engine.builds.progress())
            }))
        };
        for table in system::view_tables::tables(schema.clone(), progress) {
            self.registry.add(table);
        }
        for table in system::system_schema::tables(schema, tables) {
            self.registry.add(table);
        }
    }
}

/// Converts a storage error into the error that clients get.
fn storage_error(error: StorageError) -> Error {
    match error {
        StorageError::Overloaded { .. } => Error::Overloaded(error.to_string()),
        // The statement is bound again, and then does not find its table.
        StorageError::Dropped { .. } => Error::Stale,
        StorageError::TooLarge { .. } | StorageError::RowTooLarge { .. } => Error::Invalid(error.to_string()),
        _ => Error::Server(error.to_string()),
    }
}
