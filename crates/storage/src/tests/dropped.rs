//! Drops of tables: all or none are dropped, and later writes to them are refused.

use super::*;

fn writes(tables: u32) -> Vec<Mutation> {
    let mutation = |table: u32| {
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &[7; 10]));
        let token = 5;
        let key = Bytes::from_static(b"key");
        let changes = vec![Change::Row(row.finish())];
        Mutation { table: TableId(table.into()), token, key, changes }
    };
    (0..tables).map(mutation).collect()
}

#[test]
fn many_tables_are_dropped_by_one_edit() {
    let steps_of = |tables: u32| {
        let sim = Arc::new(Sim::default());
        let options = StorageOptions { memtable_bytes_max: 1 << 20, ..options() };
        let shard = open(&sim, &options).unwrap();
        let commit = block_on(shard.apply_yielding(writes(100))).unwrap();
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
    // A crash keeps or loses what was not synced, as the seed decides.
    for (seed, step) in (0..).zip((1..30).chain([1; 10])) {
        let sim = Arc::new(Sim::new(seed));
        let shard = open(&sim, &options()).unwrap();
        let commit = block_on(shard.apply_yielding(writes(20))).unwrap();
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
    let mut late = std::pin::pin!(shard.apply_yielding(writes(100)));
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

/// Truncates on two shards like the engine: one record of shard 0 names the new data, then both
/// shards drop the old data. A start drops data without a name.
#[test]
fn crash_during_truncation_leaves_all_or_nothing() {
    const NAMES: TableId = TableId(1);
    let (old, new) = (TableId(1 << 64), TableId(2 << 64));
    let name = |data: TableId, timestamp: i64| {
        let mut row = RowBuilder::new(&[], &[], timestamp);
        row.push(CellRef::live(0, timestamp, &data.0.to_be_bytes()));
        let changes = vec![Change::Row(row.finish())];
        vec![Mutation { table: NAMES, token: 0, key: Bytes::from_static(b"name"), changes }]
    };
    let rows = |at: u32| -> Vec<Mutation> {
        let all = writes(1).into_iter().cycle().take(10).enumerate();
        let own = |(n, row): (usize, Mutation)| {
            let key = Bytes::copy_from_slice(&[at as u8, n as u8]);
            Mutation { table: old, token: n as i64, key, ..row }
        };
        all.map(own).collect()
    };
    let open_both = |sim: &Arc<Sim>| -> Vec<Rc<Shard>> {
        let options = |shard| StorageOptions { shard, shards: 2, ..options() };
        (0..2).map(|shard| open(sim, &options(shard)).expect("it opens")).collect()
    };
    let has = |shard: &Rc<Shard>, table: TableId, now: u32| {
        let mut scan = shard.scan(table, i64::MIN..=i64::MAX, None, now);
        let mut found = 0;
        while block_on(scan.next()).expect("it reads").is_some() {
            found += 1;
        }
        found
    };
    let (mut none, mut all) = (0, 0);
    for step in 1..60 {
        drop_tasks();
        let sim = Arc::new(Sim::new(step));
        let shards = open_both(&sim);
        for (at, shard) in (0..).zip(&shards) {
            block_on(shard.apply(rows(at)).expect("applied")).expect("durable");
            if step % 2 == 0 {
                block_on(shard.flush_all()).expect("flushed");
            }
        }
        block_on(shards[0].apply(name(old, 1)).expect("applied")).expect("durable");
        sim.disk.crash_at(sim.disk.steps() + step);
        let truncated = crate::sim::run(&sim, async {
            shards[0].apply(name(new, 2))?.await?;
            for shard in &shards {
                shard.drop_tables(&[old]).await?;
            }
            Ok::<_, StorageError>(())
        });
        drop(shards);
        sim.disk.crash_at(u64::MAX);
        sim.crash();
        let shards = open_both(&sim);
        let view = block_on(shards[0].read_partition(NAMES, 0, b"name", 0).wait()).expect("it reads");
        let view = view.expect("it is there");
        let named = view.rows().next().and_then(|row| row.cell(0)?.value().map(<[u8]>::to_vec));
        let named = TableId(u128::from_be_bytes(named.expect("a name").try_into().expect("16 bytes")));
        let counted = [has(&shards[0], named, 0), has(&shards[1], named, 0)];
        match (named == new, truncated.is_some()) {
            (false, false) => {
                assert_eq!(counted, [10, 10], "step {step}: nothing has happened");
                none += 1;
            }
            (true, _) => {
                assert_eq!(counted, [0, 0], "step {step}: it is empty");
                for shard in &shards {
                    block_on(shard.drop_tables(&[old])).expect("leftovers go");
                }
                assert_eq!([has(&shards[0], old, 0), has(&shards[1], old, 0)], [0, 0]);
                all += 1;
            }
            (false, true) => panic!("step {step}: it was acknowledged"),
        }
        shards.iter().for_each(|shard| block_on(shard.shutdown()).expect("it closes"));
    }
    drop_tasks();
    assert!(none > 0 && all > 0, "{none} {all}");
}
