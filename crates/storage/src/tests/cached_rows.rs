//! Rows that the cache keeps of what reads found in files.

use super::*;

const TABLE: TableId = TableId(1 << 64);
const KEY: [u8; 8] = 1i64.to_be_bytes();

struct Setup {
    shard: Rc<Shard>,
    hits: u64,
    searched: [u64; 4],
}

impl Setup {
    fn new(seed: u64) -> Setup {
        let shard = open(&Arc::new(Sim::new(seed)), &options()).expect("opens");
        Setup { shard, hits: 0, searched: [0; 4] }
    }

    fn write(&self, cells: &[CellRef<'_>]) {
        let timestamp = cells.first().map_or(1, |cell| cell.timestamp);
        let mut row = RowBuilder::new(&KEY, &[], timestamp);
        cells.iter().for_each(|cell| row.push(*cell));
        block_on(self.shard.put(TABLE, 1, &KEY, &row.draft()).expect("taken")).expect("durable");
    }

    fn flushed(&self, cells: &[CellRef<'_>]) {
        self.write(cells);
        block_on(self.shard.flush_all()).expect("flushed");
    }

    /// Reads a column. Returns its timestamp, whether the cache had the row, and the number of
    /// files that were asked.
    fn read(&mut self, column: u32, now_s: u32) -> (Option<i64>, bool, usize) {
        let columns = [column];
        let read = self.shard.read_row(TABLE, 1, &KEY, &[], Pick::columns(&columns), now_s);
        let row = block_on(read.wait()).expect("read");
        let hits = self.shard.stats().row_cache_hits;
        let is_hit = std::mem::replace(&mut self.hits, hits) < hits;
        let searched: [u64; 4] = std::array::from_fn(|runs| self.shard.table_stats(TABLE).searched[runs]);
        let before = std::mem::replace(&mut self.searched, searched);
        let runs = (0..4).find(|runs| searched[*runs] != before[*runs]).unwrap_or(0);
        (row.and_then(|row| row.cell(column).map(|cell| cell.timestamp)), is_hit, runs)
    }

    fn close(self) {
        block_on(self.shard.shutdown()).expect("closed");
        drop(self.shard);
        drop_tasks();
    }
}

#[test]
fn second_read_asks_no_file() {
    let mut setup = Setup::new(1);
    for timestamp in [10, 20] {
        setup.flushed(&[CellRef::live(0, timestamp, b"a")]);
    }
    assert_eq!(setup.read(0, 0), (Some(20), false, 1));
    assert_eq!(setup.read(0, 0), (Some(20), true, 0));
    // Memory is merged with it.
    setup.write(&[CellRef::live(0, 15, b"late")]);
    assert_eq!(setup.read(0, 0), (Some(20), true, 0));
    setup.write(&[CellRef::live(0, 30, b"new")]);
    assert_eq!(setup.read(0, 0), (Some(30), false, 0));
    // A file that a flush adds is asked once.
    block_on(setup.shard.flush_all()).expect("flushed");
    assert_eq!(setup.read(0, 0), (Some(30), true, 1));
    assert_eq!(setup.read(0, 0), (Some(30), true, 0));
    block_on(setup.shard.compact_all(TABLE)).expect("compacted");
    assert_eq!(setup.read(0, 0), (Some(30), true, 0));
    block_on(setup.shard.truncate(TABLE)).expect("truncated");
    // Its counts begin again, too.
    setup.searched = [0; 4];
    setup.flushed(&[CellRef::live(0, 5, b"again")]);
    assert_eq!(setup.read(0, 0), (Some(5), false, 1));
    setup.close();
}

/// A column that the first read left out, and files that it did not ask.
#[test]
fn other_columns_ask_the_files() {
    let mut setup = Setup::new(2);
    setup.flushed(&[CellRef::live(0, 10, b"a"), CellRef::live(1, 10, b"b")]);
    setup.flushed(&[CellRef::live(0, 20, b"a")]);
    assert_eq!(setup.read(0, 0), (Some(20), false, 1));
    let (timestamp, _, runs) = setup.read(1, 0);
    assert_eq!((timestamp, runs), (Some(10), 2));
    setup.close();
}

/// The live cell proves that the row exists. Once a newer file has its tombstone, only the file
/// that was not asked can tell.
#[test]
fn tombstone_in_a_newer_file_unsettles_a_cached_row() {
    let mut setup = Setup::new(3);
    setup.flushed(&[CellRef::live(1, 10, b"b")]);
    setup.flushed(&[CellRef::live(0, 20, b"a")]);
    assert_eq!(setup.read(0, 0), (Some(20), false, 1));
    assert_eq!(setup.read(0, 0), (Some(20), true, 0));
    setup.flushed(&[CellRef::dead(0, 30, 9)]);
    let read = setup.shard.read_row(TABLE, 1, &KEY, &[], Pick::columns(&[0]), 0);
    let row = block_on(read.wait()).expect("read");
    assert!(row.is_some_and(|row| row.cell(0).is_none()), "the row exists by its other column");
    setup.close();
}

#[test]
fn expired_rows_and_those_with_tombstones_are_not_cached() {
    let mut setup = Setup::new(4);
    setup.flushed(&[CellRef::expiring(0, 10, b"a", Expiry { ttl_s: 5, at_s: 1005 })]);
    assert_eq!(setup.read(0, 1000), (Some(10), false, 1));
    assert_eq!(setup.read(0, 1004), (Some(10), true, 0));
    let (timestamp, is_hit, _) = setup.read(0, 1005);
    assert_eq!((timestamp, is_hit), (None, false));
    setup.flushed(&[CellRef::live(0, 20, b"a"), CellRef::dead(1, 20, 9)]);
    for _ in 0..2 {
        let read = setup.shard.read_row(TABLE, 1, &KEY, &[], Pick::columns(&[0, 1]), 1005);
        assert!(block_on(read.wait()).expect("read").is_some());
    }
    assert_eq!(setup.shard.stats().row_cache_hits, setup.hits, "it has a tombstone");
    setup.close();
}

/// A file whose only timestamp is the lowest one counts as a file that was not asked.
#[test]
fn lowest_timestamp_is_not_forgotten() {
    let mut setup = Setup::new(5);
    setup.flushed(&[CellRef::live(1, i64::MIN, b"b")]);
    setup.flushed(&[CellRef::live(0, 20, b"a")]);
    assert_eq!(setup.read(0, 0), (Some(20), false, 1));
    assert_eq!(setup.read(1, 0).0, Some(i64::MIN));
    setup.close();
}

/// Versions of a row in two files that are large together are merged by its reader on the heavy
/// lane, and not by the cache.
#[test]
fn large_row_is_not_opened_to_be_cached() {
    use crate::model::partition::{Full, Partition, PartitionRows};
    use crate::model::reconcile::MERGED_CELLS;
    use crate::table::cached_row::{CachedRow, RowPlace};
    let part = |first: u32| {
        let mut row = RowBuilder::new(&[], &[], 1);
        (first..first + 3000)
            .for_each(|path| row.push(CellRef::live(0, 1, b"value").at(&path.to_be_bytes())));
        let mut rows = PartitionRows::default();
        rows.push(row.finish());
        Partition::Full(Arc::new(Full { rows, ..Full::default() }))
    };
    let both = part(0).merge(part(3000));
    let before = MERGED_CELLS.get();
    let place = RowPlace { table: TABLE, token: 1, key: &KEY, clustering: &[] };
    assert!(CachedRow::new(place, both, None, 0, 0, None, 0).is_none());
    assert_eq!(MERGED_CELLS.get(), before);
}

/// Opens a shard with 4,000 rows of 120 bytes in blocks of 4 KiB, and a cache of `cache_bytes`.
fn filled(cache_bytes: usize) -> Rc<Shard> {
    let table = TableOptions { block_bytes: 4 << 10, fragment_bytes: 1 << 20, ..TableOptions::default() };
    let options = StorageOptions { cache_bytes, table, memtable_bytes_max: 16 << 20, ..options() };
    let shard = open(&Arc::new(Sim::new(8)), &options).expect("opens");
    for number in 0..ROWS {
        let key = number.to_be_bytes();
        let mut row = RowBuilder::new(&key, &[], 1);
        let value = [number.to_be_bytes(), (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()];
        row.push(CellRef::live(0, 1, &value.as_flattened().repeat(8)));
        block_on(shard.put(TABLE, number as i64, &key, &row.draft()).expect("taken")).expect("durable");
    }
    block_on(shard.flush_all()).expect("flushed");
    shard
}

const ROWS: u64 = 4000;

/// Reads rows, and checks that the cache stays within its memory. Returns the part of reads that
/// the cache of rows answered, in percent.
fn read_rows(shard: &Rc<Shard>, count: u64, mut draw: impl FnMut() -> u64) -> u64 {
    let before = shard.stats().row_cache_hits;
    for _ in 0..count {
        let number = draw();
        let read = shard.read_row(TABLE, number as i64, &number.to_be_bytes(), &[], Pick::ALL, 0);
        assert!(block_on(read.wait()).expect("read").is_some(), "row {number}");
        let cache = shard.store.cache.borrow();
        assert!(cache.bytes() <= cache.bytes_max(), "{} of {} bytes", cache.bytes(), cache.bytes_max());
    }
    100 * (shard.stats().row_cache_hits - before) / count
}

/// A tenth of the rows answers two thirds of the reads, and a block has thirty rows.
#[test]
fn few_hot_rows_take_the_memory_of_blocks() {
    let shard = filled(160 << 10);
    let mut random = Random::new(3);
    let mut draw = || random.skewed(ROWS, 0.99).wrapping_mul(1013) % ROWS;
    read_rows(&shard, 30_000, &mut draw);
    let hits = read_rows(&shard, 10_000, draw);
    assert!(hits >= 50, "{hits} % of the rows were cached");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// Readers of slices use blocks only. They get the memory of rows that are not read any more.
#[test]
fn blocks_take_the_memory_of_rows() {
    let shard = filled(160 << 10);
    let mut random = Random::new(4);
    read_rows(&shard, 4000, || random.below(ROWS));
    let slice = || Slice { bypass_cache: false, ..Slice::all(1) };
    let mut read_blocks = |count: u64| {
        let before = shard.stats().cache_misses;
        for _ in 0..count {
            // Their blocks take more than half of the memory.
            let number = random.below(ROWS / 10);
            let read = shard.read_slice(TABLE, number as i64, &number.to_be_bytes(), &slice(), 0);
            assert_eq!(block_on(read.wait()).expect("read").expect("is there").view.rows().count(), 1);
        }
        100 * (shard.stats().cache_misses - before) / count
    };
    read_blocks(20_000);
    let misses = read_blocks(5000);
    assert!(misses <= 2, "{misses} % of the blocks were not cached");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}

/// A block grows as its columns are decompressed. One that outgrows the whole cache leaves it.
#[test]
fn block_that_outgrows_the_cache_is_not_kept() {
    let options = StorageOptions { cache_bytes: 16 << 10, memtable_bytes_max: 16 << 20, ..options() };
    let shard = open(&Arc::new(Sim::new(9)), &options).expect("opens");
    let mut row = RowBuilder::new(&KEY, &[], 1);
    (0..5).for_each(|column| row.push(CellRef::live(column, 1, &[0; 5000])));
    block_on(shard.put(TABLE, 1, &KEY, &row.draft()).expect("taken")).expect("durable");
    block_on(shard.flush_all()).expect("flushed");
    let misses = |pick: Pick<'_>| {
        let before = shard.stats().cache_misses;
        assert!(block_on(shard.read_row(TABLE, 1, &KEY, &[], pick, 0).wait()).expect("read").is_some());
        shard.stats().cache_misses - before
    };
    assert_eq!([misses(Pick::columns(&[0])), misses(Pick::columns(&[0]))], [1, 0], "a column fits");
    assert_eq!([misses(Pick::ALL), misses(Pick::ALL)], [0, 1], "all columns do not");
    block_on(shard.shutdown()).expect("closed");
    drop_tasks();
}
