//! The commit log in periodic mode, its waiting tasks, and its memory.

use std::sync::atomic::AtomicBool;
use std::task::Wake;
use std::time::Duration;

use super::*;

const TABLE: TableId = TableId(0);

/// Rounds over all tasks, fewer than the shortest sleep of the log takes.
const A_WHILE: u32 = 10;

fn put(shard: &Rc<Shard>, number: u64, bytes: usize) {
    let key = Bytes::from(number.to_be_bytes().to_vec());
    let mut row = RowBuilder::new(&key, &[], 1);
    let value = CellValue::Live { value: &vec![7; bytes], expiry: None };
    row.push(CellRef { column: 1, path: None, timestamp: 1, value });
    block_on(shard.put(TABLE, number as i64, &key, &row.draft()).expect("accepted")).expect("acknowledged");
}

fn batches_after_a_while(shard: &Rc<Shard>) -> u64 {
    (0..A_WHILE).for_each(|_| step());
    shard.stats().log_writes
}

#[test]
fn many_pending_bytes_are_written_before_the_interval() {
    let commit = CommitMode::Periodic { every: Duration::from_secs(3600) };
    let options =
        StorageOptions { commit, segment_bytes: 64 << 10, memtable_bytes_max: 1 << 20, ..options() };
    let shard = open(&Arc::new(Sim::new(1)), &options).expect("opens");
    let before = batches_after_a_while(&shard);
    put(&shard, 0, 1000);
    assert_eq!(batches_after_a_while(&shard), before, "a little waits");
    (1..20).for_each(|number| put(&shard, number, 1000));
    assert_eq!(batches_after_a_while(&shard), before + 1, "a quarter of a segment does not");
    put(&shard, 20, 1000);
    assert_eq!(batches_after_a_while(&shard), before + 1);
    block_on(shard.shutdown()).expect("closes");
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn durable_record_wakes_all_waiting_tasks() {
    let shard = open(&Arc::new(Sim::new(1)), &options()).expect("opens");
    let row = RowBuilder::new(b"key", &[], 1).draft();
    let written = shard.put(TABLE, 1, b"key", &row).expect("accepted");
    let mut waiting: Vec<Pin<Box<dyn Future<Output = _>>>> = vec![Box::pin(written)];
    waiting.extend((0..20).map(|_| Box::pin(shard.settled()) as Pin<Box<dyn Future<Output = _>>>));
    let woken: Vec<Arc<Woken>> = waiting.iter().map(|_| Arc::default()).collect();
    for _ in 0..2 {
        for (future, woken) in waiting.iter_mut().zip(&woken) {
            let waker = Waker::from(woken.clone());
            assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    batches_after_a_while(&shard);
    assert!(woken.iter().all(|woken| woken.0.load(Ordering::Relaxed)));
    block_on(async {
        for future in waiting {
            future.await.expect("durable");
        }
    });
    block_on(shard.shutdown()).expect("closes");
}

/// Regression test: slices of a record kept the whole segment that it was read from in memory.
#[test]
fn replayed_range_deletion_releases_its_segment() {
    let bound = |at: u8| Bound::Included(Bytes::from(vec![at; 20]));
    let deletion = Deletion { timestamp: 1, deleted_at_s: 1 };
    let changes = vec![Change::DeleteRange { start: bound(1), end: bound(2), deletion }];
    let mutation = Mutation { table: TABLE, token: 1, key: Bytes::from_static(b"key"), changes };
    let mut record = Vec::new();
    crate::model::encoded::put_mutations(&mut record, std::slice::from_ref(&mutation));
    let record = Bytes::from(record);
    let read = crate::model::codec::Reader::new(record.clone()).mutations().expect("decodes");
    let changes: Vec<Change> = read.into_iter().flat_map(|mutation| mutation.changes).collect();
    assert!(record.is_unique(), "something of it is kept");
    assert_eq!(changes, mutation.changes);
}
