//! Flushes without memory pressure: of idle tables, and when their memtables are freed.

use std::time::Duration;

use super::*;

const TABLE: TableId = TableId(0);
const MEMTABLE: usize = 16 << 10;

fn open_small() -> Rc<Shard> {
    open_with(StorageOptions { memtable_bytes_max: MEMTABLE, segment_bytes: 64 << 10, ..options() })
}

fn open_with(options: StorageOptions) -> Rc<Shard> {
    block_on(Shard::open_in(options, Arc::new(Sim::new(1)))).expect("opens")
}

/// Writes distinct rows until `memtables` more memtables are full.
fn write(shard: &Rc<Shard>, memtables: u64) {
    let memtables_now = |stats: Stats| stats.flushes + stats.memtables_frozen;
    let (before, mut number) = (memtables_now(shard.stats()), 0_u64);
    while memtables_now(shard.stats()) < before + memtables {
        number += 1;
        assert!(number < 1_000_000, "memtables are never full");
        let key = Bytes::from([before.to_be_bytes(), number.to_be_bytes()].concat());
        let mut row = RowBuilder::new(&key, &[], 1);
        row.push(CellRef {
            column: 1,
            path: None,
            timestamp: 1,
            value: CellValue::Live { value: &[7; 100], expiry: None },
        });
        block_on(shard.put(TABLE, number as i64, &key, &row.draft()).expect("accepted")).expect("durable");
    }
}

#[test]
fn flushed_memtable_is_freed_after_its_last_reader() {
    let shard = open_small();
    write(&shard, 1);
    let now_s = shard.env.now_s();
    let scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, now_s);
    block_on(shard.flush_all()).expect("flushes");
    block_on(shard.env.sleep(Duration::from_secs(1)));
    assert!(!shard.state.borrow().flushed.is_empty(), "it is read");
    drop(scan);
    block_on(shard.env.sleep(Duration::from_secs(1)));
    assert!(shard.state.borrow().flushed.is_empty());
    block_on(shard.shutdown()).expect("closes");
}

#[test]
fn idle_memtables_are_flushed() {
    let bytes_max = 1 << 20;
    let sizes = StorageOptions { memtable_bytes_max: bytes_max, segment_bytes: 1 << 20, ..options() };
    let shard = open_with(sizes);
    let put = |number: i64| {
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &[7; 16_000]));
        block_on(shard.put(TABLE, number, &number.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    };
    let flushes = || {
        shard.flush_if_idle();
        block_on(shard.jobs.progress.wait(|| (shard.stats().memtables_frozen == 0).then_some(())));
        shard.stats().flushes
    };
    put(0);
    assert_eq!((flushes(), flushes()), (0, 0), "it is too small for a file");
    let is_half_full = || shard.stats().memtable_bytes >= bytes_max as u64 / 2;
    (1..10_000).take_while(|_| !is_half_full()).for_each(put);
    assert_eq!((flushes(), flushes()), (0, 1), "it was written to, and then no more");
    assert_eq!((shard.stats().memtable_bytes, flushes()), (0, 1));
    block_on(shard.shutdown()).expect("closes");
}
