//! Estimated sizes of tables, for the plans of SQL: `system.size_estimates` of the nodes.
//!
//! Cassandra writes a row for each table and each primary range of the node, every five minutes. It
//! counts files only, and a partition in several files several times. Each token is in a primary
//! range of one node, whatever the replication, so that the sum over all nodes is the table.
//!
//! 1. Up to [`NODES_ASKED_MAX`] nodes are read, one after the other.
//! 2. The rows of a table are summed: partitions, bytes, and the width of their ranges.
//! 3. The sums are scaled from that width to the whole ring. So nodes that are away, refuse or were
//!    not asked cost precision only.
//! 4. CQL rows are not counted. A table without clustering columns has one for each partition.
//!    Others have at least one, and their bytes divided by the width of the columns' types.
//!
//! A table is unknown if too little of the ring is covered, if all of its data is in memtables, or
//! if a number is absurd. Nodes may refuse the table to the front's own role, or not have it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use engine::scan::TableStatistics;
use rustc_hash::FxHashMap;
use schema::{ColumnKind, CqlType, TableDef, Token};
use uuid::Uuid;

use crate::catalog::{Catalog, TableSizes};
use crate::fleet::CurrentSession;
use crate::schema_tables::TableReader;

/// Interval of the reads: nodes write as often.
const READ_EVERY: Duration = Duration::from_secs(300);

/// Nodes that are read, at most: a 32nd of the ring is sample enough for estimates.
const NODES_ASKED_MAX: usize = 32;

/// Rows of all nodes, at most: 1,000 tables in 16 ranges of 32 nodes. Ranges beyond are not
/// covered.
const ROWS_MAX: usize = 1 << 19;

/// Part of the ring that must be covered: 2^58 tokens of 2^64.
const COVERED_MIN: u128 = 1 << 58;

/// Partitions in a range, and bytes of one, above which an estimate is absurd.
const COUNT_MAX: i64 = 1 << 50;

/// Bytes of a row in a file beside its cells, about: flags, sizes and a time.
const ROW_BYTES: u64 = 8;

const ESTIMATES: &str = "SELECT keyspace_name, table_name, range_start, range_end, mean_partition_size, \
                         partitions_count FROM system.size_estimates";

/// Reader of the sizes, on the control thread.
pub(crate) struct SizeReader {
    session: CurrentSession,
    catalog: RefCell<Arc<Catalog>>,
    sizes: RefCell<Arc<TableSizes>>,
}

impl SizeReader {
    pub(crate) fn new(session: CurrentSession) -> SizeReader {
        SizeReader { session, catalog: RefCell::default(), sizes: RefCell::default() }
    }

    /// Sets the tables whose sizes are read from now on.
    pub(crate) fn set_catalog(&self, catalog: Catalog) {
        *self.catalog.borrow_mut() = Arc::new(catalog);
    }

    /// Returns these tables.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().clone()
    }

    /// Returns the sizes as they were last read.
    pub(crate) fn sizes(&self) -> Arc<TableSizes> {
        self.sizes.borrow().clone()
    }

    /// Reads the sizes again and again.
    pub(crate) async fn run(&self) {
        loop {
            let sizes = self.read().await;
            // Without an answer, the last ones stay.
            if !sizes.0.is_empty() && sizes != *self.sizes() {
                *self.sizes.borrow_mut() = Arc::new(sizes);
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    async fn read(&self) -> TableSizes {
        let (session, catalog) = (self.session.borrow().clone(), self.catalog());
        let state = session.get_cluster_state();
        let mut sums = Sums::new(&catalog);
        let mut left = ROWS_MAX;
        let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
        for node in nodes.take(NODES_ASKED_MAX) {
            if left == 0 {
                break;
            }
            let mut reader = TableReader::new(&session, node, left, usize::MAX);
            type Row = (String, String, String, String, Option<i64>, Option<i64>);
            let read = reader.rows(ESTIMATES, |(keyspace, table, start, end, mean, count): Row| {
                let range = (start.parse().ok(), end.parse().ok());
                sums.add(&keyspace, &table, range, mean.zip(count));
                0
            });
            // A node that does not answer covers nothing.
            let _ = read.await;
            left = reader.left();
        }
        sums.sizes()
    }
}

/// Sum of the rows of a table.
#[derive(Default)]
struct Sum {
    partitions: u64,
    bytes: u64,
    /// Tokens in the ranges.
    covered: u128,
    is_absurd: bool,
}

/// Sums of all tables of a catalog.
struct Sums<'c> {
    catalog: &'c Catalog,
    of: FxHashMap<Uuid, (&'c TableDef, Sum)>,
}

impl<'c> Sums<'c> {
    fn new(catalog: &'c Catalog) -> Sums<'c> {
        Sums { catalog, of: FxHashMap::default() }
    }

    /// Adds a row: the range above its first token, up to the second, with the mean size and the
    /// number of partitions.
    fn add(
        &mut self,
        keyspace: &str,
        table: &str,
        range: (Option<Token>, Option<Token>),
        estimate: Option<(i64, i64)>,
    ) {
        let Some(def) = self.catalog.schema().table(keyspace, table) else { return };
        let (_, sum) = self.of.entry(def.id).or_insert_with(|| (def, Sum::default()));
        let ((Some(start), Some(end)), Some((mean, count))) = (range, estimate) else {
            sum.is_absurd = true;
            return;
        };
        sum.is_absurd |= !(0..=COUNT_MAX).contains(&mean) || !(0..=COUNT_MAX).contains(&count);
        sum.is_absurd |= mean == 0 && count > 0;
        let (mean, count) = (mean.unsigned_abs(), count.unsigned_abs());
        sum.partitions = sum.partitions.saturating_add(count);
        sum.bytes = sum.bytes.saturating_add(count.saturating_mul(mean));
        // A range may wrap around. One that ends where it begins is the whole ring.
        let width = u128::from(end.wrapping_sub(start).cast_unsigned());
        sum.covered += if width == 0 { 1 << 64 } else { width };
    }

    fn sizes(self) -> TableSizes {
        let sizes = |(def, sum): (&TableDef, Sum)| {
            let is_known = !sum.is_absurd && sum.partitions > 0 && sum.covered >= COVERED_MIN;
            is_known.then(|| {
                let scaled =
                    |count: u64| u64::try_from((u128::from(count) << 64) / sum.covered).unwrap_or(u64::MAX);
                let (partitions, bytes) = (scaled(sum.partitions), scaled(sum.bytes));
                TableStatistics { rows: rows(def, partitions, bytes), bytes }
            })
        };
        let known = self.of.into_iter().filter_map(|(id, of)| Some((id, sizes(of)?)));
        TableSizes(known.collect())
    }
}

/// Returns the estimated rows of a table.
fn rows(def: &TableDef, partitions: u64, bytes: u64) -> u64 {
    if def.clustering().next().is_none() {
        return partitions;
    }
    let in_rows = |kind| matches!(kind, ColumnKind::Clustering(..) | ColumnKind::Regular);
    let columns = def.columns.iter().filter(|column| in_rows(column.kind));
    let width = columns.fold(ROW_BYTES, |sum, column| sum + cell_bytes(&column.ty));
    partitions.max(bytes / width)
}

/// Returns the bytes of a value in a file, about. Values of texts and collections count as 24 B.
fn cell_bytes(ty: &CqlType) -> u64 {
    1 + match ty.thawed() {
        CqlType::Boolean | CqlType::TinyInt => 1,
        CqlType::SmallInt => 2,
        CqlType::Int | CqlType::Float | CqlType::Date => 4,
        CqlType::BigInt | CqlType::Counter | CqlType::Double | CqlType::Time | CqlType::Timestamp => 8,
        CqlType::Uuid | CqlType::TimeUuid | CqlType::Inet => 16,
        _ => 24,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use engine::{Keyspace, Schema};
    use schema::{ClusteringOrder, ColumnDef, KeyspaceDef, TableOptions};

    use super::*;

    const HALVES: [(Option<Token>, Option<Token>); 2] =
        [(Some(Token::MIN), Some(0)), (Some(0), Some(Token::MIN))];

    /// Returns the catalog of `ks.flat`, with a key only, and `ks.wide`, whose rows have 18 B.
    fn catalog() -> Catalog {
        let column = |name: &str, kind| ColumnDef { id: 0, name: name.into(), ty: CqlType::Int, kind };
        let key = column("k", ColumnKind::PartitionKey(0));
        let wide = [
            key.clone(),
            column("c", ColumnKind::Clustering(0, ClusteringOrder::Asc)),
            column("s", ColumnKind::Static),
            ColumnDef { ty: CqlType::SmallInt, ..column("v", ColumnKind::Regular) },
            ColumnDef { ty: CqlType::TinyInt, ..column("w", ColumnKind::Regular) },
        ];
        let table = |id, name: &str, columns: Vec<ColumnDef>| TableDef {
            id: Uuid::from_u128(id),
            keyspace: "ks".into(),
            name: name.into(),
            next_column_id: 0,
            columns,
            dropped: BTreeMap::new(),
            masks: BTreeMap::new(),
            indexes: Vec::new(),
            views: Vec::new(),
            options: TableOptions::default(),
            data: None,
        };
        let tables = [table(1, "flat", vec![key]), table(2, "wide", wide.to_vec())];
        let tables = tables.into_iter().map(|def| (def.name.clone(), Arc::new(def))).collect();
        let def = KeyspaceDef { name: "ks".into(), replication: BTreeMap::new(), durable_writes: true };
        let keyspace = Keyspace { def, tables, types: BTreeMap::new() };
        Catalog::new(Schema {
            version: Uuid::nil(),
            keyspaces: [("ks".to_owned(), Arc::new(keyspace))].into(),
        })
    }

    /// Tokens of a range, and its mean bytes and number of partitions.
    type Estimated = ((Option<Token>, Option<Token>), Option<(i64, i64)>);

    /// Returns rows and bytes of `ks.flat` with the estimates of these ranges.
    fn flat(ranges: &[Estimated]) -> Option<(u64, u64)> {
        let catalog = catalog();
        let mut sums = Sums::new(&catalog);
        ranges.iter().for_each(|(range, estimate)| sums.add("ks", "flat", *range, *estimate));
        sums.sizes().of(Uuid::from_u128(1)).map(|of| (of.rows, of.bytes))
    }

    #[test]
    fn primary_ranges_of_all_nodes_are_the_table() {
        let [low, high] = HALVES;
        assert_eq!(flat(&[(low, Some((100, 30))), (high, Some((10, 70)))]), Some((100, 3_700)));
        // One range that wraps around, and one of a single token.
        let wraps = (Some(0), Some(0));
        assert_eq!(flat(&[(wraps, Some((100, 7)))]), Some((7, 700)));
    }

    #[test]
    fn missing_ranges_are_extrapolated() {
        let [low, _] = HALVES;
        assert_eq!(flat(&[(low, Some((100, 30)))]), Some((60, 6_000)));
        let narrow = (Some(0), Some(1 << 50));
        assert_eq!(flat(&[(narrow, Some((100, 30)))]), None, "too little is covered");
    }

    #[test]
    fn absurd_and_empty_estimates_are_unknown() {
        let [low, high] = HALVES;
        let one = (high, Some((100, 30)));
        for absurd in [(-1, 30), (30, -1), (0, 30), (i64::MAX, 1), (1, i64::MAX)] {
            assert_eq!(flat(&[(low, Some(absurd)), one]), None, "{absurd:?}");
        }
        assert_eq!(flat(&[(low, None), one]), None);
        assert_eq!(flat(&[((None, Some(0)), Some((1, 1))), one]), None, "another partitioner");
        assert_eq!(flat(&[(low, Some((0, 0))), (high, Some((0, 0)))]), None, "memtables are not counted");
        assert_eq!(flat(&[]), None);
    }

    #[test]
    fn rows_of_clustered_tables_are_guessed_from_types() {
        let catalog = catalog();
        let mut sums = Sums::new(&catalog);
        sums.add("ks", "wide", (Some(0), Some(0)), Some((2_000, 10)));
        sums.add("ks", "dropped", (Some(0), Some(0)), Some((2_000, 10)));
        let sizes = sums.sizes();
        let expected = TableStatistics { rows: 1_111, bytes: 20_000 };
        assert_eq!(sizes.of(Uuid::from_u128(2)), Some(expected), "18 B a row");
        assert_eq!(sizes.0.len(), 1);
    }
}
