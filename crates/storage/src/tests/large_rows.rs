//! Rows that grow without end: their writes are refused, and reads and compactions stay bounded.

use super::*;

const TABLE: TableId = TableId(0);
const ROW_MAX: usize = 64 << 10;
const ELEMENT_BYTES: usize = 1 << 10;

fn sizes() -> StorageOptions {
    StorageOptions {
        memtable_bytes_max: 4 << 20,
        segment_bytes: 4 << 20,
        record_bytes_max: 1 << 20,
        row_bytes_max: ROW_MAX,
        ..options()
    }
}

fn place(number: u64) -> (i64, Bytes) {
    (number as i64, Bytes::from(number.to_be_bytes().to_vec()))
}

fn mutation(number: u64, change: Change) -> Mutation {
    let (token, key) = place(number);
    Mutation { table: TABLE, token, key, changes: vec![change] }
}

/// Builds an append to a collection.
fn append(clustering: &[u8], element: u32, timestamp: i64) -> Change {
    let mut row = RowBuilder::new(&[], clustering, timestamp);
    row.push(CellRef::live(1, timestamp, &[7; ELEMENT_BYTES]).at(&element.to_be_bytes()));
    Change::Row(row.finish())
}

fn delete_row(clustering: &[u8], timestamp: i64) -> Change {
    let mut row = RowBuilder::new(&[], clustering, timestamp);
    row.deletion(Some(Deletion { timestamp, deleted_at_s: 0 }));
    Change::Row(row.finish())
}

fn write(shard: &Rc<Shard>, number: u64, change: Change) -> Result<(), StorageError> {
    block_on(shard.apply(vec![mutation(number, change)])?)
}

/// Writes as a part of a logged batch, which has no limit.
fn write_part(shard: &Rc<Shard>, number: u64, change: Change) {
    let part = vec![mutation(number, change)];
    block_on(async { shard.apply_part(part).await?.await }).expect("written");
}

/// Appends until the row is refused. Returns the number of elements.
fn fill(shard: &Rc<Shard>, number: u64, clustering: &[u8], timestamp: i64) -> u32 {
    for element in 0..1000 {
        match write(shard, number, append(clustering, element, timestamp)) {
            Ok(()) => {}
            Err(StorageError::RowTooLarge { limit: ROW_MAX, .. }) => return element,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the row has no limit");
}

fn read(shard: &Rc<Shard>, number: u64, clustering: &[u8]) -> Result<Option<usize>, StorageError> {
    let (token, key) = place(number);
    let row = block_on(shard.read_row(TABLE, token, &key, clustering, Pick::ALL, 0).wait())?;
    Ok(row.map(|row| row.cells().count()))
}

#[test]
fn row_beyond_its_limit_is_only_deleted() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &sizes()).unwrap();
    for (number, clustering) in [(1, &b"c"[..]), (2, &b""[..])] {
        let elements = fill(&shard, number, clustering, 1);
        assert!((40..=64).contains(&elements), "{elements}");
        assert_eq!(read(&shard, number, clustering).unwrap(), Some(elements as usize));
        // Other rows of the partition, and deletions of elements, are accepted.
        write(&shard, number, append(b"other", 0, 1)).expect("another row");
        let mut row = RowBuilder::new(&[], clustering, 2);
        row.push(CellRef::dead(1, 2, 0).at(&0u32.to_be_bytes()));
        write(&shard, number, Change::Row(row.finish())).expect("a deletion of an element");
        // A part of a logged batch is accepted: its other parts may have been applied.
        write_part(&shard, number, append(clustering, 2000, 3));
        // Columns that are no collections do not count.
        let mut row = RowBuilder::new(&[], clustering, 3);
        row.push(CellRef::live(7, 3, b"scalar"));
        write(&shard, number, Change::Row(row.finish())).expect("no element");
        write(&shard, number, append(clustering, 2001, 3)).expect_err("too large");
        // A deletion that deletes nothing changes nothing.
        write(&shard, number, delete_row(clustering, 0)).expect("a deletion");
        write(&shard, number, append(clustering, 2001, 3)).expect_err("too large");
        write(&shard, number, delete_row(clustering, 5)).expect("a deletion");
        assert!(fill(&shard, number, clustering, 6) >= 40);
        let deletion = Deletion { timestamp: 7, deleted_at_s: 0 };
        write(&shard, number, Change::DeletePartition(deletion)).expect("a deletion");
        assert_eq!(read(&shard, number, clustering).unwrap(), None);
        write(&shard, number, append(clustering, 1, 8)).expect("the row is deleted");
    }
    let statics = |timestamp| {
        let mut row = RowBuilder::new(&[], &[], timestamp);
        row.push(CellRef::live(2, timestamp, &[7; 30 << 10]).at(&timestamp.to_be_bytes()));
        Change::Static(row.finish())
    };
    let refused = (0..10).find_map(|at| write(&shard, 3, statics(at)).err());
    assert!(matches!(refused, Some(StorageError::RowTooLarge { .. })), "{refused:?}");
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

/// No memtable has as much of the row as the limit allows.
#[test]
fn versions_in_files_count_until_they_are_deleted() {
    let sim = Arc::new(Sim::default());
    let options = sizes();
    let mut shard = open(&sim, &options).unwrap();
    let flush = |shard: &Rc<Shard>| block_on(shard.flush_all()).unwrap();
    for (number, clustering) in [(1, &b"c"[..]), (2, &b""[..])] {
        let mut elements = 0;
        'rounds: for round in 0..100 {
            for element in 0..20 {
                match write(&shard, number, append(clustering, round * 100 + element, 1)) {
                    Ok(()) => elements += 1,
                    Err(StorageError::RowTooLarge { .. }) => break 'rounds,
                    Err(error) => panic!("{error}"),
                }
            }
            flush(&shard);
        }
        assert!((40..=64).contains(&elements), "{elements}");
        write(&shard, number, append(b"other", 0, 1)).expect("another row");
        // Also after its flush, a deletion is known.
        for flushes in [false, true] {
            let timestamp = if flushes { 20 } else { 10 };
            write(&shard, number, delete_row(clustering, timestamp)).expect("a deletion");
            if flushes {
                flush(&shard);
            }
            assert!(fill(&shard, number, clustering, timestamp + 1) >= 40);
            flush(&shard);
            write(&shard, number, append(clustering, 0, timestamp + 1)).expect_err("too large");
        }
        // A batch over cores may delete it too.
        let deletion = Deletion { timestamp: 30, deleted_at_s: 0 };
        write_part(&shard, number, Change::DeletePartition(deletion));
        flush(&shard);
        assert!(fill(&shard, number, clustering, 31) >= 40);
        flush(&shard);
        // Compactions know it too.
        block_on(shard.compact_all(TABLE)).unwrap();
        write(&shard, number, append(clustering, 0, 31)).expect_err("too large");
    }
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
    // Files of an earlier start are not known.
    shard = open(&sim, &options).unwrap();
    write(&shard, 1, append(b"c", 0, 31)).expect("unknown");
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}

#[test]
fn rows_too_large_to_merge_do_not_stop_compaction() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &sizes()).unwrap();
    let flush = || {
        block_on(shard.flush_all()).unwrap();
        (0..3000).for_each(|_| step());
    };
    for round in 0..8 {
        for element in 0..300 {
            write_part(&shard, 1, append(b"", round * 1000 + element, 1));
        }
        write(&shard, 2, append(b"", round, 1)).unwrap();
        flush();
    }
    let refused = read(&shard, 1, b"");
    assert!(matches!(refused, Err(StorageError::RowTooLarge { limit, .. }) if limit == 4 * ROW_MAX));
    assert_eq!(read(&shard, 2, b"").unwrap(), Some(8));
    let mut scan = shard.scan(TABLE, i64::MIN..=i64::MAX, None, 0);
    assert!(matches!(block_on(scan.next()), Err(StorageError::RowTooLarge { .. })));
    // The runs with the row stay, others are compacted.
    let compactions = shard.stats().compactions;
    for round in 0..16 {
        write(&shard, 3 + u64::from(round), append(b"", round, 1)).unwrap();
        flush();
    }
    assert!(shard.stats().compactions > compactions);
    let compact = || {
        let progress = WorkProgress::default();
        let all = i64::MIN..=i64::MAX;
        let (own, group) = (shard.clone(), lanes::Group::CONTROL);
        block_on(async move { own.compact(TABLE, all, group, &progress).await })
    };
    assert!(matches!(compact(), Err(StorageError::RowTooLarge { .. })));
    write(&shard, 1, delete_row(b"", 2)).expect("a deletion");
    assert_eq!(read(&shard, 1, b"").unwrap(), None);
    compact().expect("the row is gone");
    let runs = shard.state.borrow().tables[&TABLE].files.runs().len();
    assert_eq!(runs, 1);
    assert_eq!(read(&shard, 2, b"").unwrap(), Some(8));
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}
