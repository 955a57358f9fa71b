//! Reports of a shard about flushes, compactions and recovery.

use std::sync::Mutex;

use super::*;

const TABLE: TableId = TableId(1 << 64);

fn put(shard: &Rc<Shard>, number: i64) {
    let key = number.to_be_bytes();
    let mut row = RowBuilder::new(&key, &[], 1);
    row.push(CellRef::live(0, 1, &[number as u8; 100]));
    block_on(shard.put(TABLE, number, &key, &row.draft()).expect("taken")).expect("durable");
}

/// Opens a shard and collects its reports.
fn reporting(sim: &Arc<Sim>) -> (Rc<Shard>, Arc<Mutex<Vec<Event>>>) {
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let heard = events.clone();
    let event_sink = EventSink::new(move |event| heard.lock().unwrap().push(event.clone()));
    (open(sim, &StorageOptions { event_sink, ..options() }).expect("opens"), events)
}

fn close(shard: Rc<Shard>) {
    block_on(shard.shutdown()).expect("closed");
    drop(shard);
    drop_tasks();
}

#[test]
fn flushes_and_compactions_log_a_line_with_their_table() {
    let sim = Arc::new(Sim::new(1));
    let (shard, events) = reporting(&sim);
    shard.name(TABLE, "ks.t".into());
    for round in 0..2 {
        (0..20).for_each(|number| put(&shard, round * 10 + number));
        block_on(shard.flush_all()).expect("flushed");
    }
    block_on(shard.compact_all(TABLE)).expect("compacted");
    let lines: Vec<String> = events.lock().unwrap().iter().map(Event::to_string).collect();
    let flush = lines.iter().find(|line| line.starts_with("flush table=ks.t tables=1 ")).expect("a flush");
    assert!(flush.ends_with("reason=asked"), "{flush}");
    let merge =
        lines.iter().find(|line| line.starts_with("compaction table=ks.t runs=2 ")).expect("a compaction");
    assert!(merge.contains(" tombstones_dropped=0 "), "{merge}");
    let history = shard.compaction_history();
    let merge = history.last().expect("it is in the history");
    assert_eq!((merge.table, merge.kind, merge.tally.runs), (TABLE, TaskKind::Compaction, 2));
    assert_eq!((merge.tally.rows_in, merge.tally.rows_out), (40, 30));
    // Twenty partitions were in one run, ten in both.
    assert_eq!(merge.tally.partitions[..3], [20, 10, 0]);
    assert!(shard.running_tasks().is_empty());
    close(shard);
}

#[test]
fn table_stats_count_runs_and_the_runs_of_a_read() {
    let sim = Arc::new(Sim::new(4));
    let (shard, _) = reporting(&sim);
    for _ in 0..2 {
        (0..20).for_each(|number| put(&shard, number));
        block_on(shard.flush_all()).expect("flushed");
    }
    put(&shard, 100);
    let read = |number: i64| {
        let row = shard.read_row(TABLE, number, &number.to_be_bytes(), &[], Pick::ALL, 0);
        assert!(block_on(row.wait()).expect("read").is_some());
    };
    read(3);
    read(100);
    let stats = shard.table_stats(TABLE);
    assert_eq!((stats.runs, stats.rows, stats.memtable_rows), (2, 40, 1));
    assert_eq!(stats.searched[..4], [1, 0, 1, 0]);
    assert_eq!(shard.table_stats(TableId(9)), TableStats::default());
    close(shard);
}

/// Rows that were overwritten in one run after the other.
#[test]
fn reads_stop_at_the_newest_run_that_settles_the_row() {
    let sim = Arc::new(Sim::new(5));
    let (shard, _) = reporting(&sim);
    let write = |timestamp: i64, columns: &[u32]| {
        let mut row = RowBuilder::new(&1i64.to_be_bytes(), &[], timestamp);
        columns
            .iter()
            .for_each(|column| row.push(CellRef::live(*column, timestamp, &timestamp.to_be_bytes())));
        block_on(shard.put(TABLE, 1, &1i64.to_be_bytes(), &row.draft()).expect("taken")).expect("durable");
    };
    let read = |columns: &[u32]| -> Vec<i64> {
        let pick = Pick { columns: Some(columns), bypass_cache: true };
        let row = shard.read_row(TABLE, 1, &1i64.to_be_bytes(), &[], pick, 0);
        let row = block_on(row.wait()).expect("read").expect("it exists");
        columns.iter().map(|column| row.cell(*column).expect("a value").timestamp).collect()
    };
    let searched = || shard.table_stats(TABLE).searched[..4].to_vec();
    for timestamp in [10, 30, 20] {
        write(timestamp, &[0, 1]);
        block_on(shard.flush_all()).expect("flushed");
    }
    assert_eq!(read(&[0, 1]), [30, 30]);
    assert_eq!(searched(), [0, 1, 0, 0], "one run has all");
    write(25, &[0]);
    assert_eq!(read(&[0]), [30]);
    assert_eq!(searched(), [0, 2, 0, 0], "the run is newer than memory, and the other two are not");
    write(40, &[0]);
    assert_eq!(read(&[0]), [40]);
    assert_eq!(searched(), [1, 2, 0, 0], "memory has what is wanted");
    assert_eq!(read(&[0, 1]), [40, 30]);
    assert_eq!(searched(), [1, 3, 0, 0], "it lacks a column");
    let deletion = Change::DeletePartition(Deletion { timestamp: 25, deleted_at_s: 0 });
    let changes = vec![deletion];
    let mutation =
        Mutation { table: TABLE, token: 1, key: Bytes::copy_from_slice(&1i64.to_be_bytes()), changes };
    block_on(shard.apply(vec![mutation]).expect("taken")).expect("durable");
    let read = shard.read_partition(TABLE, 1, &1i64.to_be_bytes(), 0).wait();
    let seen = block_on(read).expect("read").expect("it was written");
    assert_eq!(seen.rows().next().and_then(|row| row.cell(1).map(|cell| cell.timestamp)), Some(30));
    assert_eq!(searched(), [1, 4, 0, 0], "the deletion covers two of three runs");
    close(shard);
}

#[test]
fn recovery_is_reported_with_its_records_and_bytes() {
    let sim = Arc::new(Sim::new(2));
    let (shard, _) = reporting(&sim);
    (0..5).for_each(|number| put(&shard, number));
    drop(shard);
    drop_tasks();
    let (shard, events) = reporting(&sim);
    let recovery = shard.recovery();
    assert_eq!((recovery.records, recovery.segments), (5, 1));
    let line = format!("core recovered core=0 files=0 segments=1 records=5 bytes={}", recovery.bytes);
    assert!(events.lock().unwrap().iter().any(|event| event.to_string().starts_with(&line)), "{events:?}");
    close(shard);
}

#[test]
fn torn_tail_is_reported_with_its_place() {
    let sim = Arc::new(Sim::new(3));
    let (shard, _) = reporting(&sim);
    (0..3).for_each(|number| put(&shard, number));
    drop(shard);
    drop_tasks();
    let log = sim.disk.files().into_iter().find(|path| path.extension().is_some_and(|name| name == "log"));
    let log = log.expect("a segment");
    // Damages a byte of the last record's payload, which follows the header and a block for each
    // record.
    sim.disk.flip(&log, 3 * 4096 + 60, 3);
    let (shard, events) = reporting(&sim);
    assert_eq!(shard.recovery().records, 2);
    let events = events.lock().unwrap();
    let torn = events.iter().find_map(|event| match event {
        Event::TornTail { segment, offset, bytes } => Some((segment.clone(), *offset, *bytes)),
        _ => None,
    });
    let (segment, offset, bytes) = torn.expect("it is reported");
    assert_eq!((segment, offset), (log, 3 * 4096));
    assert!((40..4096).contains(&bytes), "{bytes}");
    drop(events);
    close(shard);
}
