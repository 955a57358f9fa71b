//! Flushes held back on purpose: what waits meanwhile has memory of its own, bounded, and is written afterwards.

use std::time::Duration;

use super::*;

const TABLE: TableId = TableId(0);
const MEMTABLE: usize = 16 << 10;

fn open(memtables_held: u64) -> Rc<Shard> {
    let pace = PaceOptions { hold_bytes: memtables_held * MEMTABLE as u64, ..PaceOptions::default() };
    open_with(Options { memtable_bytes_max: MEMTABLE, segment_bytes: 64 << 10, pace, ..options() })
}

fn open_with(options: Options) -> Rc<Shard> {
    block_on(Shard::open_in(options, Arc::new(Sim::new(1)))).expect("opens")
}

/// Rows of which each has a value of its own, in so many memtables.
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
        block_on(shard.put(TABLE, number as i64, &key, &row.draft()).expect("taken")).expect("durable");
    }
}

#[test]
fn what_is_held_back_waits_in_memory_of_its_own_and_is_written_afterwards() {
    let shard = open(8);
    shard.hold_background(true);
    write(&shard, 7);
    let held = shard.stats();
    assert_eq!((held.flushes, held.throttle_delay_ns, held.memory_pressure_ppm), (0, 0, 0), "{held:?}");
    assert!(held.memtables_frozen >= 7 && held.background_held, "{held:?}");
    shard.hold_background(false);
    assert_eq!(shard.stats().memory_pressure_ppm, 0, "that it is let go is no reason to hurry");
    block_on(shard.flush_all()).expect("flushes");
    let after = shard.stats();
    assert!(after.flushes >= 7 && after.memtables_frozen == 0, "{after:?}");
    block_on(shard.shutdown()).expect("closes");
}

#[test]
fn when_memory_for_what_is_held_back_runs_out_it_is_flushed_all_the_same() {
    let shard = open(2);
    shard.hold_background(true);
    write(&shard, 20);
    let stats = shard.stats();
    // Three there may always be.
    assert!(stats.flushes >= 15 && stats.memtables_frozen <= 4 && stats.background_held, "{stats:?}");
    block_on(shard.shutdown()).expect("closes");
}

#[test]
fn a_flushed_memtable_is_freed_when_its_last_reader_is_gone() {
    let shard = open(8);
    write(&shard, 1);
    let now_s = shard.world.now_s();
    let scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, now_s);
    block_on(shard.flush_all()).expect("flushes");
    block_on(shard.world.sleep(Duration::from_secs(1)));
    assert!(!shard.state.borrow().flushed.is_empty(), "it is read");
    drop(scan);
    block_on(shard.world.sleep(Duration::from_secs(1)));
    assert!(shard.state.borrow().flushed.is_empty());
    block_on(shard.shutdown()).expect("closes");
}

#[test]
fn what_is_not_written_to_any_more_is_flushed() {
    let bytes_max = 1 << 20;
    let sizes = Options { memtable_bytes_max: bytes_max, segment_bytes: 1 << 20, ..options() };
    let shard = open_with(sizes);
    let put = |number: i64| {
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &[7; 16_000]));
        block_on(shard.put(TABLE, number, &number.to_be_bytes(), &row.draft()).unwrap()).unwrap();
    };
    let looked = || {
        shard.flush_if_idle();
        block_on(shard.progress.wait(|| (shard.stats().memtables_frozen == 0).then_some(())));
        shard.stats().flushes
    };
    put(0);
    assert_eq!((looked(), looked()), (0, 0), "it is too small for a file");
    let is_half_full = || shard.stats().memtable_bytes >= bytes_max as u64 / 2;
    (1..10_000).take_while(|_| !is_half_full()).for_each(put);
    assert_eq!((looked(), looked()), (0, 1), "it was written to, and then no more");
    assert_eq!((shard.stats().memtable_bytes, looked()), (0, 1));
    block_on(shard.shutdown()).expect("closes");
}
