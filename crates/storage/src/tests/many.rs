//! Many files and compactions: the costs of reads and edits, concurrent compactions, and the
//! slow-down of writers.

use super::*;
use crate::env::{Env, Work};
use crate::table::runs::{Files, steps};

const LARGE: TableId = TableId(0);
const SMALL: TableId = TableId(1);

fn put(shard: &Rc<Shard>, table: TableId, number: u64) {
    let token = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    let key = Bytes::from(number.to_be_bytes().to_vec());
    let mut random = Random::new(number);
    let value: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
    let mut row = RowBuilder::new(&key, &[], 1);
    row.push(CellRef::live(1, 1, &value));
    block_on(shard.put(table, token, &key, &row.finish().draft()).unwrap()).unwrap();
}

fn spacious() -> StorageOptions {
    let table = TableOptions { fragment_bytes: 16 << 10, ..options().table };
    StorageOptions { table, memtable_bytes_max: 4 << 20, segment_bytes: 4 << 20, ..options() }
}

/// Returns the comparisons of a point read, a look-up of a file and a change among `count`
/// fragments of a run.
fn comparisons(count: i64) -> [u64; 3] {
    let sim = Arc::new(Sim::new(1));
    let shard = open(&sim, &spacious()).unwrap();
    put(&shard, LARGE, 1);
    block_on(shard.flush_all()).unwrap();
    let any = shard.state.borrow().tables[&LARGE].files.iter().next().expect("a file").clone();
    let width = i64::MAX / count * 2;
    let fragment = |at: i64| {
        let first = i64::MIN.wrapping_add(at.wrapping_mul(width));
        Arc::new(any.spanning(at as u64, 7, first, first + width - 1))
    };
    let mut files: Files = (0..count).map(fragment).collect();
    assert_eq!((files.runs().len(), files.len()), (1, count as usize));
    let counted = |work: &mut dyn FnMut()| {
        let before = steps();
        work();
        steps() - before
    };
    let read = counted(&mut || assert!(files.holding(1234).count() <= 1));
    let probe = fragment(count / 2);
    let found = counted(&mut || assert!(files.contains(&probe)));
    let changed = counted(&mut || {
        assert!(files.remove(&probe).is_some());
        files.push(probe.clone());
    });
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
    [read, found, changed]
}

/// A read once checked every fragment of a run.
#[test]
fn files_are_found_in_a_few_comparisons_among_thousands() {
    let (few, many) = (comparisons(10), comparisons(4096));
    // log₂ of 4096 is 12, and log₂ of 10 more than 3.
    for (few, many) in few.into_iter().zip(many) {
        assert!(many <= 26 && many <= 4 * few, "{few} with 10 files, {many} with 4096");
    }
}

#[test]
fn filters_and_indexes_shrink_the_cache() {
    let sim = Arc::new(Sim::new(2));
    let shard = open(&sim, &StorageOptions { cache_bytes: 64 << 10, ..spacious() }).unwrap();
    let room = || shard.store.cache.borrow().bytes_max() as u64;
    assert_eq!(room(), 64 << 10);
    (0..2000).for_each(|number| put(&shard, LARGE, number));
    block_on(shard.flush_all()).unwrap();
    let index_bytes = shard.stats().index_bytes;
    assert!(index_bytes > 4000, "{index_bytes}");
    assert_eq!(room(), (64_u64 << 10).saturating_sub(index_bytes).max(8 << 10));
    block_on(shard.truncate(LARGE)).unwrap();
    put(&shard, SMALL, 1);
    block_on(shard.flush_all()).unwrap();
    assert!(room() > 60 << 10, "the files are deleted");
    block_on(shard.shutdown()).unwrap();
}

/// Fills a table with runs of `rows` rows each.
fn fill(shard: &Rc<Shard>, table: TableId, runs: u64, rows: u64) {
    for run in 0..runs {
        (0..rows).for_each(|number| put(shard, table, number * runs + run));
        block_on(shard.flush_all()).unwrap();
    }
}

/// One compaction at a time once blocked those of all other tables.
#[test]
fn small_compaction_ends_beside_a_large_one() {
    let sim = Arc::new(Sim::new(3));
    let shard = open(&sim, &spacious()).unwrap();
    fill(&shard, LARGE, 4, 2000);
    assert_eq!(shard.stats().compactions_running, 1);
    let large = || shard.state.borrow().tables[&LARGE].needs.is_busy();
    fill(&shard, SMALL, 4, 20);
    let runs = || shard.state.borrow().tables[&SMALL].files.runs().len();
    for _ in 0..2000 {
        if runs() == 1 {
            break;
        }
        step();
    }
    assert_eq!(runs(), 1, "the small table is compacted");
    assert!(large() && shard.stats().compactions == 1, "and the large one not yet: {:?}", shard.stats());
    block_on(shard.shutdown()).unwrap();
}

#[test]
fn writers_are_slowed_while_runs_pile_up() {
    let sim = Arc::new(Sim::new(4));
    let shard = open(&sim, &spacious()).unwrap();
    put(&shard, SMALL, 1);
    // No compaction starts, as if a requested one waited.
    shard.state.borrow().tables[&SMALL].needs.reserved.set(1);
    fill(&shard, SMALL, 120, 2);
    let stats = shard.stats();
    assert!(stats.runs_max >= 120 && stats.runs_pressure_ppm > 0, "{stats:?}");
    let delayed = || shard.stats().throttle_delay_ns;
    let before = delayed();
    (0..200).for_each(|number| put(&shard, SMALL, number));
    assert!(delayed() > before, "acknowledgements wait");
    // A group that writes little waits for itself only, not for one that writes much.
    let delay_of = |group| {
        *sim.writer.lock().unwrap() = group;
        let before = delayed();
        put(&shard, SMALL, 7);
        delayed() - before
    };
    let little = delay_of(lanes::Group::DRIVER);
    let much = delay_of(lanes::Group::DEFAULT);
    assert!(little < much / 10, "{little} and {much} ns");
    shard.state.borrow().tables[&SMALL].needs.reserved.set(0);
    shard.jobs.work.wake();
    (0..20_000).for_each(|_| step());
    let stats = shard.stats();
    assert_eq!(stats.runs_pressure_ppm, 0, "{stats:?}");
    block_on(shard.shutdown()).unwrap();
}

/// A compaction once held the memtables of its start until its end.
#[test]
fn long_compaction_releases_flushed_memtables() {
    let sim = Arc::new(Sim::new(5));
    let shard = open(&sim, &spacious()).unwrap();
    let table = TableOptions { min_threshold: 64, ..spacious().table };
    shard.configure(LARGE, table);
    fill(&shard, LARGE, 2, 3000);
    (0..500).for_each(|number| put(&shard, LARGE, 100_000 + number));
    let own = shard.clone();
    let inputs = shard.state.borrow().tables[&LARGE].files.iter().cloned().collect();
    let (progress, work) = (WorkProgress::default(), Work::Compaction);
    let merge = crate::compaction::CompactionTask { table: LARGE, inputs, work, progress: progress.clone() };
    sim.spawn(
        Work::Control,
        Box::pin(
            async move { own.background.compactor.run_compaction(merge, true).await.expect("compacted") },
        ),
    );
    (0..5).for_each(|_| step());
    assert!(progress.bytes_done() < progress.bytes_total());
    block_on(shard.flush_all()).unwrap();
    let is_free = || shard.state.borrow().flushed.is_empty();
    let mut freed_at = None;
    for _ in 0..100_000 {
        step();
        if shard.stats().compactions_running == 0 {
            break;
        }
        if freed_at.is_none() && is_free() {
            freed_at = Some(progress.bytes_done());
        }
    }
    let freed_at = freed_at.expect("freed before the compaction ended");
    assert!(freed_at < progress.bytes_total(), "{freed_at} of {}", progress.bytes_total());
    block_on(shard.shutdown()).unwrap();
}
