//! Tables go together, and nothing is written to them again.

use super::*;

fn writes(tables: u32) -> Vec<Mutation> {
    let mutation = |table: u32| {
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &[7; 10]));
        let (token, key, changes) = (5, Bytes::from_static(b"key"), vec![Change::Row(row.finish())]);
        Mutation { table: TableId(table.into()), token, key, changes }
    };
    (0..tables).map(mutation).collect()
}

#[test]
fn many_tables_are_dropped_by_one_edit() {
    let steps_of = |tables: u32| {
        let sim = Arc::new(Sim::default());
        let options = Options { memtable_bytes_max: 1 << 20, ..options() };
        let shard = open(&sim, &options).unwrap();
        let commit = block_on(shard.apply_in_turns(writes(100))).unwrap();
        block_on(commit).unwrap();
        let before = sim.disk.steps();
        let dropped: Vec<TableId> = (0..tables).map(|table| TableId(table.into())).collect();
        block_on(shard.drop_tables(&dropped)).unwrap();
        let steps = sim.disk.steps() - before;
        assert_eq!(shard.tables().len(), 100 - tables as usize);
        drop(shard);
        sim.crash();
        let shard = open(&sim, &options).unwrap();
        assert_eq!(shard.tables().len(), 100 - tables as usize);
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
        steps
    };
    assert_eq!(steps_of(100), steps_of(1));
}

#[test]
fn crash_leaves_all_dropped_tables_or_none() {
    let (mut none, mut all) = (0, 0);
    for step in 1..30 {
        let sim = Arc::new(Sim::new(step));
        let shard = open(&sim, &options()).unwrap();
        let commit = block_on(shard.apply_in_turns(writes(20))).unwrap();
        block_on(commit).unwrap();
        block_on(shard.flush_all()).unwrap();
        sim.disk.crash_at(sim.disk.steps() + step);
        let dropped: Vec<TableId> = (0..20).map(TableId).collect();
        let done = crate::sim::run(&sim, shard.drop_tables(&dropped));
        drop(shard);
        sim.disk.crash_at(u64::MAX);
        sim.crash();
        let shard = open(&sim, &options()).unwrap();
        match shard.tables().len() {
            20 if done.is_none() => none += 1,
            0 => all += 1,
            some => panic!("{some} of 20 tables are left after {step} steps, answered: {}", done.is_some()),
        }
        block_on(shard.shutdown()).unwrap();
        drop_tasks();
    }
    assert!(none > 0 && all > 0, "{none} {all}");
}

#[test]
fn writes_to_dropped_tables_are_refused() {
    let sim = Arc::new(Sim::default());
    let shard = open(&sim, &options()).unwrap();
    let mut late = std::pin::pin!(shard.apply_in_turns(writes(100)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(late.as_mut().poll(&mut cx).is_pending(), "it writes its record");
    block_on(shard.drop_tables(&[TableId(50)])).unwrap();
    assert!(matches!(block_on(late), Err(StorageError::Dropped { table: TableId(50) })));
    assert!(matches!(shard.apply(writes(100)), Err(StorageError::Dropped { .. })));
    drop(shard.apply(writes(50)).expect("others are written"));
    assert_eq!(shard.tables().len(), 50);
    block_on(shard.shutdown()).unwrap();
    drop_tasks();
}
