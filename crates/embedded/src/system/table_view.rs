//! Statistics of tables: `system.table_stats`, `system.largest_partitions` and the metrics of
//! tables. They are sums over all cores, gathered by core 0.
//!
//! Reads and writes are CQL statements about one table. They are counted on the core of their
//! connection. Their latency lasts from the start of their work to their result. Batches over
//! several tables and SQL queries are not counted.
//!
//! Sizes of tables are shown as tools of Cassandra read them, from footers of files and samples of
//! memtables: `system.size_estimates` and `system.table_estimates`, by which clients that read
//! whole tables divide their work, and `system_views.disk_usage`.

use std::rc::Weak;
use std::sync::Arc;

use engine::{
    LatencySummary, LaterMeasures, LaterRows, Measure, Metric, Subject, TableMeasures, Viewer, VirtualRow,
    VirtualTable,
};
use schema::{CqlType, TableDef};
use storage::{TableId, TableSize, TableStats};
use uuid::Uuid;

use crate::Embedded;
use crate::system::task_tables::{VisibleTables, bigint, double, int, text};

/// Number of tables whose metrics are exported, the first ones by keyspace and name. The virtual
/// table shows all tables.
const EXPORTED_MAX: usize = 256;

/// Partitions shown per table and core.
const LARGEST_MAX: usize = 10;

/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 256;

/// Work units of gathering one core's statistics of a table.
const TABLE_UNITS: u32 = 20;

/// Statistics of a table.
#[derive(Clone, Default)]
struct TableTotals {
    stats: TableStats,
    reads: LatencySummary,
    writes: LatencySummary,
    dead: u64,
    dead_max: u64,
}

impl TableTotals {
    fn add(&mut self, other: &TableTotals) {
        let (sum, more) = (&mut self.stats, &other.stats);
        for (sum, more) in [
            (&mut sum.files, more.files),
            (&mut sum.files_damaged, more.files_damaged),
            (&mut sum.runs, more.runs),
            (&mut sum.file_bytes, more.file_bytes),
            (&mut sum.dead_bytes, more.dead_bytes),
            (&mut sum.index_bytes, more.index_bytes),
            (&mut sum.rows, more.rows),
            (&mut sum.cells, more.cells),
            (&mut sum.tombstones, more.tombstones),
            (&mut sum.memtable_bytes, more.memtable_bytes),
            (&mut sum.memtable_rows, more.memtable_rows),
            (&mut sum.backlog_runs, more.backlog_runs),
            (&mut sum.backlog_bytes, more.backlog_bytes),
        ] {
            *sum += more;
        }
        sum.searched.iter_mut().zip(more.searched).for_each(|(sum, more)| *sum += more);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.dead += other.dead;
        self.dead_max = self.dead_max.max(other.dead_max);
    }

    /// Returns the number of runs that `per_mille` of 1000 reads did not exceed.
    fn runs_per_read(&self, per_mille: u64) -> Option<u64> {
        let all: u64 = self.stats.searched.iter().sum();
        let wanted = (u128::from(all) * u128::from(per_mille)).div_ceil(1000).max(1) as u64;
        let mut below = 0;
        let found = self.stats.searched.iter().position(|count| {
            below += count;
            below >= wanted
        });
        found.map(|runs| runs as u64)
    }
}

/// Gathers this core's statistics of tables.
async fn gather_local(tables: Vec<(Uuid, Uuid)>) -> Vec<TableTotals> {
    let engine = Embedded::local();
    let mut all = Vec::with_capacity(tables.len());
    for (id, data) in tables {
        let stats = engine.shard.table_stats(TableId(data.as_u128()));
        let mut totals = TableTotals { stats, ..TableTotals::default() };
        let of_table = engine.uses.get(id);
        if let Some(of_table) = of_table {
            totals.reads = LatencySummary::of(&of_table.reads);
            totals.writes = LatencySummary::of(&of_table.writes);
            (totals.dead, totals.dead_max) = of_table.dead();
        }
        all.push(totals);
        if lanes::spend(TABLE_UNITS) {
            lanes::yield_now().await;
        }
    }
    all
}

/// Gathers the statistics of tables from all cores.
async fn gather_all(defs: &[Arc<TableDef>]) -> Vec<TableTotals> {
    let tables: Vec<(Uuid, Uuid)> = defs.iter().map(|def| (def.id, def.data_id())).collect();
    let mut sums = vec![TableTotals::default(); tables.len()];
    for core in 0..lanes::cores() {
        let tables = tables.clone();
        let of_core = lanes::call(core, move || gather_local(tables)).await;
        sums.iter_mut().zip(&of_core).for_each(|(sum, one)| sum.add(one));
    }
    sums
}

/// Adds the tables to a core's registry. Their rows are the same on all cores, so core 0 builds
/// them.
pub(crate) fn register(engine: &Embedded) {
    register_sizes(engine);
    engine.registry.add(stats(engine.me.clone()));
    engine.registry.add(largest(engine.me.clone()));
    let me = engine.me.clone();
    engine.registry.set_table_measures(move || -> LaterMeasures {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let mut defs = VisibleTables::of(&engine.current.schema(), None).await.visible();
            defs.truncate(EXPORTED_MAX);
            let totals = gather_all(&defs).await;
            let of_table = |(def, totals): (&Arc<TableDef>, &TableTotals)| TableMeasures {
                keyspace: def.keyspace.clone(),
                table: def.name.clone(),
                measures: METRICS
                    .iter()
                    .map(|(metric, value)| Measure { metric, value: value(totals) })
                    .collect(),
            };
            defs.iter().zip(&totals).map(of_table).collect()
        })
    });
}

/// Metric with a function that returns its value.
type TableMetric = (Metric, fn(&TableTotals) -> f64);

const SECOND_NS: f64 = 1e9;

const METRICS: &[TableMetric] = &[
    (Metric::counter("fairlane_table_reads_total", "CQL reads of the table."), |f| f.reads.count as f64),
    (Metric::counter("fairlane_table_read_seconds_total", "Time of CQL reads of the table."), |f| {
        f.reads.sum_ns as f64 / SECOND_NS
    }),
    (Metric::counter("fairlane_table_writes_total", "CQL writes to the table."), |f| f.writes.count as f64),
    (Metric::counter("fairlane_table_write_seconds_total", "Time of CQL writes to the table."), |f| {
        f.writes.sum_ns as f64 / SECOND_NS
    }),
    (
        Metric::counter(
            "fairlane_table_dead_rows_read_total",
            "Dead rows and partitions that reads of the table skipped.",
        ),
        |f| f.dead as f64,
    ),
    (Metric::gauge("fairlane_table_live_files", "Table files of the table."), |f| f.stats.files as f64),
    (Metric::gauge("fairlane_table_live_runs", "Runs of the table, over all cores."), |f| {
        f.stats.runs as f64
    }),
    (Metric::gauge("fairlane_table_live_bytes", "Bytes of table files of the table."), |f| {
        f.stats.file_bytes as f64
    }),
    (
        Metric::gauge("fairlane_table_dead_bytes", "Bytes of expired cells and tombstones in table files."),
        |f| f.stats.dead_bytes as f64,
    ),
    (Metric::gauge("fairlane_table_memtable_bytes", "Bytes of memtables of the table, estimated."), |f| {
        f.stats.memtable_bytes as f64
    }),
    (Metric::gauge("fairlane_table_backlog_bytes", "Bytes of the table that wait for compaction."), |f| {
        f.stats.backlog_bytes as f64
    }),
];

/// Column of `system.table_stats` after its key.
type Column = (&'static str, CqlType, fn(&TableTotals) -> Option<bytes::Bytes>);

fn micros(ns: Option<u64>) -> Option<bytes::Bytes> {
    ns.and_then(|ns| bigint(ns.div_ceil(1000)))
}

fn max_of(latencies: &LatencySummary) -> Option<bytes::Bytes> {
    micros((latencies.count > 0).then_some(latencies.max_ns))
}

fn columns() -> [Column; 27] {
    use CqlType::{BigInt, Double, Int};
    [
        ("reads", BigInt, |f| bigint(f.reads.count)),
        ("read_p50_us", BigInt, |f| micros(f.reads.quantile_ns(500))),
        ("read_p99_us", BigInt, |f| micros(f.reads.quantile_ns(990))),
        ("read_max_us", BigInt, |f| max_of(&f.reads)),
        ("writes", BigInt, |f| bigint(f.writes.count)),
        ("write_p50_us", BigInt, |f| micros(f.writes.quantile_ns(500))),
        ("write_p99_us", BigInt, |f| micros(f.writes.quantile_ns(990))),
        ("write_max_us", BigInt, |f| max_of(&f.writes)),
        ("runs_per_read_p50", Int, |f| f.runs_per_read(500).and_then(int)),
        ("runs_per_read_p99", Int, |f| f.runs_per_read(990).and_then(int)),
        ("runs_per_read_max", Int, |f| f.runs_per_read(1000).and_then(int)),
        ("tombstones_per_read_avg", Double, |f| {
            (f.reads.count > 0).then(|| double(f.dead as f64 / f.reads.count as f64)).flatten()
        }),
        ("tombstones_per_read_max", BigInt, |f| bigint(f.dead_max)),
        ("files", BigInt, |f| bigint(f.stats.files)),
        ("files_damaged", BigInt, |f| bigint(f.stats.files_damaged)),
        ("runs", BigInt, |f| bigint(f.stats.runs)),
        ("file_bytes", BigInt, |f| bigint(f.stats.file_bytes)),
        ("dead_bytes", BigInt, |f| bigint(f.stats.dead_bytes)),
        ("droppable_ratio", Double, |f| double(f.stats.dead_bytes as f64 / f.stats.file_bytes.max(1) as f64)),
        ("rows", BigInt, |f| bigint(f.stats.rows)),
        ("cells", BigInt, |f| bigint(f.stats.cells)),
        ("tombstones", BigInt, |f| bigint(f.stats.tombstones)),
        ("memtable_bytes", BigInt, |f| bigint(f.stats.memtable_bytes)),
        ("memtable_rows", BigInt, |f| bigint(f.stats.memtable_rows)),
        ("index_bytes", BigInt, |f| bigint(f.stats.index_bytes)),
        ("backlog_runs", BigInt, |f| bigint(f.stats.backlog_runs)),
        ("backlog_bytes", BigInt, |f| bigint(f.stats.backlog_bytes)),
    ]
}

fn stats(me: Weak<Embedded>) -> VirtualTable {
    let named = [("keyspace_name", CqlType::Text), ("table_name", CqlType::Text)];
    let all: Vec<(&str, CqlType)> =
        named.into_iter().chain(columns().into_iter().map(|(name, ty, _)| (name, ty))).collect();
    let rows = move |viewer: Option<Arc<dyn Viewer>>| -> LaterRows {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let defs = VisibleTables::of(&engine.current.schema(), viewer).await.visible();
            let totals = gather_all(&defs).await;
            let columns = columns();
            let row = |(def, totals): (&Arc<TableDef>, &TableTotals)| -> VirtualRow {
                let named = [text(&def.keyspace), text(&def.name)];
                named.into_iter().chain(columns.iter().map(|(.., value)| value(totals))).collect()
            };
            defs.iter().zip(&totals).map(row).collect()
        })
    };
    VirtualTable::new("system", "table_stats", 1, 1, &all, Vec::new)
        .in_chunks(rows)
        .about(Subject::Keyspace(0))
}

fn largest(me: Weak<Embedded>) -> VirtualTable {
    use CqlType::{BigInt, Int, Text};
    let columns = [
        ("keyspace_name", Text),
        ("table_name", Text),
        ("core", Int),
        ("rank", Int),
        ("partition", Text),
        ("bytes", BigInt),
        ("rows", BigInt),
        ("files", BigInt),
    ];
    let rows = move |viewer: Option<Arc<dyn Viewer>>| -> LaterRows {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let names = VisibleTables::of(&engine.current.schema(), viewer).await;
            let mut rows = Vec::new();
            for def in names.visible().iter().filter(|def| names.shows_data(def)) {
                rows.extend(largest_of(&engine, def).await);
            }
            rows
        })
    };
    VirtualTable::new("system", "largest_partitions", 1, 3, &columns, Vec::new)
        .in_chunks(rows)
        .of_every_core()
        .about(Subject::Data(0))
}

/// Returns the largest partitions of a table on this core.
async fn largest_of(engine: &Embedded, def: &TableDef) -> Vec<VirtualRow> {
    let table = TableId(def.data_id().as_u128());
    let largest = engine.shard.largest_partitions(table, LARGEST_MAX).await;
    let row = |(rank, partition): (u64, &storage::LargePartition)| {
        vec![
            text(&def.keyspace),
            text(&def.name),
            int(lanes::current_core() as u64),
            int(rank),
            text(&key_text(def, &partition.key)),
            bigint(partition.bytes),
            bigint(partition.rows),
            bigint(partition.files),
        ]
    };
    (1..).zip(&largest).map(row).collect()
}

/// Formats a partition key as CQL literals, truncated if it is long.
fn key_text(def: &TableDef, key: &[u8]) -> String {
    let columns: Vec<_> = def.partition_key().collect();
    let Ok(parts) = schema::token::split_partition_key(columns.len(), key) else { return String::new() };
    let parts = columns.iter().zip(parts).map(|(column, part)| schema::value::to_text(&column.ty, part));
    let mut out = parts.collect::<Vec<String>>().join(", ");
    if let Some((at, _)) = out.char_indices().nth(KEY_CHARS_MAX) {
        out.truncate(at);
        out.push('…');
    }
    out
}

/// Work units of gathering one core's size of a table.
const SIZE_UNITS: u32 = 5;

const MIB: u64 = 1 << 20;

/// Adds the tables of sizes to a core's registry. Their rows are the same on all cores.
fn register_sizes(engine: &Embedded) {
    use CqlType::{BigInt, Text};
    let (keyspace, table) = (("keyspace_name", Text), ("table_name", Text));
    let range = [("range_start", Text), ("range_end", Text)];
    let sizes = [("mean_partition_size", BigInt), ("partitions_count", BigInt)];
    let columns = [&[keyspace.clone(), table.clone()][..], &range, &sizes].concat();
    engine.registry.add(sized(
        engine.me.clone(),
        "system",
        "size_estimates",
        [1, 3],
        &columns,
        |named, size| vec![[named, ring(), estimates(size)].concat()],
    ));
    let kind = [("range_type", Text)];
    let columns = [&[keyspace.clone(), table.clone()][..], &kind, &range, &sizes].concat();
    engine.registry.add(sized(
        engine.me.clone(),
        "system",
        "table_estimates",
        [1, 4],
        &columns,
        |named, size| {
            let row = |kind: &str| [named.clone(), vec![text(kind)], ring(), estimates(size)].concat();
            ["local_primary", "primary"].map(row).into()
        },
    ));
    let columns = [keyspace, table, ("mebibytes", BigInt)];
    engine.registry.add(sized(
        engine.me.clone(),
        "system_views",
        "disk_usage",
        [2, 0],
        &columns,
        |named, size| vec![[named, vec![bigint(size.bytes.div_ceil(MIB))]].concat()],
    ));
}

/// Returns both ends of the only range: this server has the whole ring.
fn ring() -> VirtualRow {
    let token = i64::MIN.to_string();
    vec![text(&token), text(&token)]
}

fn estimates(size: TableSize) -> VirtualRow {
    vec![bigint(size.bytes / size.partitions.max(1)), bigint(size.partitions)]
}

/// Returns a table with the rows that `rows` makes of the names and the size of each table. `keys`
/// are the numbers of columns of the partition key and of the clustering key.
fn sized(
    me: Weak<Embedded>,
    keyspace: &str,
    name: &str,
    [partition, clustering]: [usize; 2],
    columns: &[(&str, CqlType)],
    rows: fn(VirtualRow, TableSize) -> Vec<VirtualRow>,
) -> VirtualTable {
    let make = move |viewer: Option<Arc<dyn Viewer>>| -> LaterRows {
        let me = me.clone();
        Box::pin(async move {
            let Some(engine) = me.upgrade() else { return Vec::new() };
            let defs = VisibleTables::of(&engine.current.schema(), viewer).await.visible();
            let sizes = gather(&defs).await;
            let named = |def: &TableDef| vec![text(&def.keyspace), text(&def.name)];
            defs.iter().zip(sizes).flat_map(|(def, size)| rows(named(def), size)).collect()
        })
    };
    VirtualTable::new(keyspace, name, partition, clustering, columns, Vec::new)
        .in_chunks(make)
        .about(Subject::Keyspace(0))
}

/// Returns the sizes of tables over all cores.
async fn gather(defs: &[Arc<TableDef>]) -> Vec<TableSize> {
    let tables: Vec<TableId> = defs.iter().map(|def| TableId(def.data_id().as_u128())).collect();
    let mut sums = vec![TableSize::default(); tables.len()];
    for core in 0..lanes::cores() {
        let tables = tables.clone();
        let of_core = move || async move {
            let engine = Embedded::local();
            let mut sizes = Vec::with_capacity(tables.len());
            for table in tables {
                sizes.push(engine.shard.table_size(table));
                if lanes::spend(SIZE_UNITS) {
                    lanes::yield_now().await;
                }
            }
            sizes
        };
        let of_core = lanes::call(core, of_core).await;
        sums.iter_mut().zip(of_core).for_each(|(sum, one)| *sum = sum.plus(one));
    }
    sums
}
