//! The shard on real lanes and a real folder. Writes of many tasks share disk writes, flushes and
//! compactions run beside them, and all acknowledged writes are present after reopening.

use std::rc::Rc;

use bytes::Bytes;
use lanes::Group;
use storage::{
    CellRef, Commit, Pick, RowBuilder, Shard, StorageError, StorageOptions, TableId, TableOptions,
};
use testkit::{Folder, Random};

const TABLE: TableId = TableId(7);

fn options(folder: &Folder) -> StorageOptions {
    let small = StorageOptions::in_dir(folder.path(), 0, 1);
    let table = TableOptions { block_bytes: 8 << 10, ..small.table };
    StorageOptions { memtable_bytes_max: 256 << 10, segment_bytes: 1 << 20, table, ..small }
}

fn on_a_lane<F, Fut>(run: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let lanes = testkit::start_lanes(1);
    lanes.block_on(0, Group::CONTROL, run);
    lanes.shutdown();
}

fn place(number: u64) -> (i64, Bytes) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64, Bytes::from(number.to_be_bytes().to_vec()))
}

fn write(shard: &Rc<Shard>, number: u64, value: u64) -> Result<Commit, StorageError> {
    let (token, key) = place(number);
    let mut row = RowBuilder::new(&key, &[], value as i64);
    (0..5).for_each(|column| row.push(CellRef::live(column, value as i64, &[value as u8; 34])));
    shard.put(TABLE, token, &key, &row.draft())
}

async fn check(shard: &Rc<Shard>, number: u64, value: u64) {
    let (token, key) = place(number);
    let row = shard.read_row(TABLE, token, &key, &[], Pick::columns(&[4]), 0).wait().await.expect("reads");
    let row = row.unwrap_or_else(|| panic!("row {number} is missing"));
    assert_eq!(row.cell(4).expect("a cell").value().expect("a value")[..], [value as u8; 34]);
}

#[test]
fn acknowledged_writes_are_present_after_reopening() {
    let folder = Folder::new("storage");
    let options = options(&folder);
    on_a_lane(move || async move {
        let shard = Shard::open(options.clone()).await.expect("opens");
        for round in 1..=3u64 {
            let writers: Vec<_> = (0..16u64)
                .map(|writer| {
                    let shard = shard.clone();
                    lanes::spawn(Group::DEFAULT, async move {
                        for number in (writer..2000).step_by(16) {
                            write(&shard, number, round).expect("applies").await.expect("is durable");
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.await;
            }
            let numbers: Vec<u64> = (0..2000).step_by(7).collect();
            for number in numbers {
                check(&shard, number, round).await;
            }
        }
        let stats = shard.stats();
        assert!(stats.flushes >= 3 && stats.log_records == 6000, "{stats:?}");
        assert!(stats.log_writes < stats.log_records, "writers shared no disk write: {stats:?}");
        let second = Shard::open(options.clone()).await.expect_err("the folder is in use");
        assert!(matches!(second, StorageError::Locked { .. }), "{second}");
        shard.shutdown().await.expect("shuts down");
        drop(shard);

        let shard = Shard::open(options).await.expect("opens again");
        let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, 0);
        let mut count = 0;
        while let Some((_, _, view)) = scan.next().await.expect("scans") {
            assert_eq!(view.rows().next().expect("a row").cells().count(), 5);
            count += 1;
        }
        assert_eq!(count, 2000);
        for number in 0..2000 {
            check(&shard, number, 3).await;
        }
        shard.shutdown().await.expect("shuts down");
    });
}

#[test]
fn file_written_around_the_page_cache_reads_back() {
    let folder = Folder::new("storage");
    let options = StorageOptions { memtable_bytes_max: 64 << 20, ..options(&folder) };
    let value = |number: u64| {
        let mut random = Random::new(number);
        (0..128).flat_map(|_| random.next_u64().to_be_bytes()).collect::<Vec<u8>>()
    };
    on_a_lane(move || async move {
        let shard = Shard::open(options).await.expect("opens");
        for round in 1..=2 {
            for number in 0..3000_u64 {
                let (token, key) = place(number);
                let mut row = RowBuilder::new(&key, &[], round);
                row.push(CellRef::live(0, round, &value(number)));
                let written = shard.put(TABLE, token, &key, &row.draft()).expect("applies");
                if number % 100 == 99 {
                    written.await.expect("is durable");
                }
            }
            shard.flush_all().await.expect("flushes");
        }
        shard.compact_all(TABLE).await.expect("compacts");
        assert!(shard.stats().file_bytes > 3 << 20, "{:?}", shard.stats());
        for number in 0..3000 {
            let (token, key) = place(number);
            let row =
                shard.read_row(TABLE, token, &key, &[], Pick::columns(&[0]), 0).wait().await.expect("reads");
            let row = row.unwrap_or_else(|| panic!("row {number} is missing"));
            assert_eq!(
                row.cell(0).expect("a cell").value().expect("a value")[..],
                value(number)[..],
                "row {number}"
            );
        }
        shard.shutdown().await.expect("shuts down");
    });
}
