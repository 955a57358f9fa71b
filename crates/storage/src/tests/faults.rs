//! Full, broken and slow disks: reads continue, writes get a clear error, and acknowledged writes
//! are kept.

use std::sync::Mutex;

use testkit::sim::{Effect, Fault, FaultKind};

use super::*;

/// A shard with its model.
struct Setup {
    sim: Arc<Sim>,
    shard: Rc<Shard>,
    model: Model,
    random: Random,
    /// Text of the reported events.
    events: Arc<Mutex<Vec<String>>>,
}

impl Setup {
    fn new(seed: u64) -> Setup {
        let sim = Arc::new(Sim::new(seed));
        let model = filled(&sim);
        let events: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = events.clone();
        let event_sink = EventSink::new(move |event| sink.lock().unwrap().push(event.to_string()));
        let shard = open(&sim, &StorageOptions { event_sink, ..options() }).unwrap();
        Setup { sim, shard, model, random: Random::new(seed), events }
    }

    fn write(&mut self) -> Result<Commit, StorageError> {
        let mutations = vec![mutation(&mut self.random, self.model.records.len() as i64, 1000)];
        let commit = self.shard.apply(mutations.clone())?;
        self.model.records.push(mutations);
        Ok(commit)
    }

    /// Writes until a write is refused. Returns the commits that wait, and the error.
    fn write_until_refused(&mut self) -> (Vec<Commit>, StorageError) {
        let mut commits = Vec::new();
        for _ in 0..100_000 {
            match self.write() {
                Ok(commit) => commits.push(commit),
                // The log has reached its limit. Retry.
                Err(StorageError::Overloaded { .. }) => {}
                Err(error) => return (commits, error),
            }
            step();
        }
        panic!("nothing was refused\n{}", self.sim.disk.record());
    }

    /// Retries until a write is accepted.
    fn write_at_last(&mut self) -> Commit {
        for _ in 0..10_000 {
            match self.write() {
                Ok(commit) => return commit,
                Err(StorageError::WritesRefused { .. } | StorageError::Overloaded { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            step();
        }
        panic!("writes are refused for ever\n{}", self.sim.disk.record());
    }

    fn check(&self, what: &str) {
        check(&self.shard, &self.model, 1000, what);
    }

    /// Checks that a crash loses nothing of the model.
    fn check_after_crash(mut self) {
        self.sim.crash();
        self.shard = open(&self.sim, &options()).unwrap();
        assert_eq!(self.shard.stats().log_records as usize, self.model.records.len());
        self.check("after a crash");
        block_on(self.shard.shutdown()).unwrap();
    }
}

fn is_refused_for_space(error: &StorageError) {
    let because = matches!(error, StorageError::WritesRefused { because } if because.is_full());
    assert!(because && error.to_string().contains("free some space"), "{error}");
}

/// Regression test: a full disk required a restart.
#[test]
fn full_disk_refuses_writes_until_it_has_space() {
    for seed in 0..8 {
        let mut setup = Setup::new(seed);
        // Free space for a file, or for a part of the next one.
        setup.sim.disk.set_capacity(setup.sim.disk.used() + (seed << 10));
        let (commits, error) = setup.write_until_refused();
        is_refused_for_space(&error);
        setup.check("on a full disk");
        assert!(setup.shard.stats().writes_refused);
        (0..1000).for_each(|_| step());
        setup.check("after a while on a full disk");
        setup.sim.disk.set_capacity(u64::MAX);
        let healed = setup.write_at_last();
        commits.into_iter().chain([healed]).for_each(|commit| block_on(commit).unwrap());
        assert!(!setup.shard.stats().writes_refused);
        block_on(setup.shard.flush_all()).unwrap();
        setup.check("healed");
        setup.check_after_crash();
    }
}

/// Simulates a copy-on-write file system: it may have no space to overwrite a block of a segment
/// allocated long ago.
#[test]
fn writes_that_wait_for_log_space_become_durable() {
    for seed in 0..8 {
        let mut setup = Setup::new(seed);
        let path = "/log/".to_owned();
        setup.sim.disk.fault(Fault { path, ..Fault::every(FaultKind::Write, Effect::Full) });
        let (commits, error) = setup.write_until_refused();
        is_refused_for_space(&error);
        for commit in commits {
            let error = block_on(commit).expect_err("the disk is full");
            assert!(matches!(error, StorageError::LogFull { .. }), "{error}");
        }
        setup.check("while the log has no space");
        setup.sim.disk.heal();
        // The log keeps the order: if this write is durable, all earlier ones are.
        block_on(setup.write_at_last()).unwrap();
        setup.check_after_crash();
    }
}

#[test]
fn shutdown_on_a_full_disk_returns_an_error() {
    let mut setup = Setup::new(1);
    setup.sim.disk.fault(Fault::every(FaultKind::Write, Effect::Full));
    let (commits, _) = setup.write_until_refused();
    let error = block_on(setup.shard.shutdown()).unwrap_err();
    assert!(error.is_full(), "{error}");
    for commit in commits {
        assert!(block_on(commit).unwrap_err().is_full());
    }
}

/// Breaks writes, syncs and names of the log.
#[test]
fn broken_log_refuses_writes_until_a_restart() {
    let log = [("/log", FaultKind::Write), ("/log", FaultKind::Sync), ("/log", FaultKind::Names)];
    for (seed, (path, kind)) in (0..).zip(log.into_iter().cycle().take(9)) {
        let mut setup = Setup::new(seed);
        let before = setup.model.records.len();
        let broken = Fault::every(kind, Effect::Broken);
        setup.sim.disk.fault(Fault { path: path.into(), one_in: 1 + seed % 3, ..broken });
        let (commits, error) = setup.write_until_refused();
        assert!(matches!(&error, StorageError::WritesRefused { because } if !because.is_full()), "{error}");
        let acknowledged = commits.into_iter().map(block_on).take_while(Result::is_ok).count();
        setup.sim.disk.heal();
        setup.check(&format!("seed {seed}, after {path} broke"));
        (0..100).for_each(|_| step());
        setup.write().expect_err("it needs a restart");
        setup.sim.crash();
        setup.shard = open(&setup.sim, &options()).unwrap();
        let survived = setup.shard.stats().log_records as usize;
        assert!((before + acknowledged..=setup.model.records.len()).contains(&survived), "{survived}");
        setup.model.records.truncate(survived);
        setup.check(&format!("seed {seed}, after a restart"));
        let healed = setup.write_at_last();
        block_on(healed).unwrap();
        block_on(setup.shard.shutdown()).unwrap();
    }
}

/// Regression test: a failed flush required a restart, and so did a failed compaction of a table.
#[test]
fn failed_flushes_and_compactions_are_retried() {
    let tables =
        [FaultKind::Write, FaultKind::Sync, FaultKind::Names, FaultKind::Read].map(|kind| ("/tables", kind));
    let manifest = [FaultKind::Write, FaultKind::Sync].map(|kind| ("/manifest", kind));
    let tables_of = || (0..TABLES).map(|table| TableId(u128::from(table)));
    for (seed, (path, kind)) in (0..).zip(tables.into_iter().chain(manifest)) {
        let what = format!("seed {seed}, {path} {kind:?}");
        let mut setup = Setup::new(seed);
        let events = setup.events.clone();
        let [broken, broken_again] = [(); 2].map(|()| Fault::every(kind, Effect::Broken));
        setup.sim.disk.fault(Fault { path: path.into(), ..broken });
        let (mut commits, error) = setup.write_until_refused();
        assert!(matches!(&error, StorageError::WritesRefused { because } if !because.is_full()), "{error}");
        // If reads fail, existing files cannot be read either.
        if kind != FaultKind::Read {
            setup.check(&what);
        }
        setup.sim.disk.heal();
        commits.push(setup.write_at_last());
        commits.into_iter().for_each(|commit| block_on(commit).expect(&what));
        block_on(setup.shard.flush_all()).expect(&what);
        let failed = setup.shard.stats().flushes_failed;
        assert!(failed >= 3, "{what}: {failed} flushes failed");
        setup.sim.disk.fault(Fault { path: path.into(), ..broken_again });
        for table in tables_of() {
            block_on(setup.shard.compact_all(table)).expect_err(&what);
        }
        let count = |is: fn(&crate::state::ShardTable) -> bool| {
            setup.shard.state.borrow().tables.values().filter(|table| is(table)).count()
        };
        let failed = || count(|t| t.failures.in_a_row > 0);
        let waiting = || count(|t| t.failures.waits);
        // After a failed sync the manifest itself is retried, so the compaction of a second table
        // may not get to the point of failing.
        let least = if (path, kind) == ("/manifest", FaultKind::Sync) { 1 } else { TABLES };
        assert!((least..=TABLES).contains(&(failed() as u64)), "{what}: {} failed", failed());
        setup.sim.disk.heal();
        (0..100).for_each(|_| step());
        assert_eq!(waiting(), 0, "{what}");
        tables_of().for_each(|table| block_on(setup.shard.compact_all(table)).expect(&what));
        let stats = setup.shard.stats();
        assert!(stats.compactions_failed >= TABLES, "{what}: {stats:?}");
        let events = events.lock().unwrap();
        assert!(events.iter().any(|line| line.contains("a flush failed and is retried in 1s")), "{events:?}");
        // A compaction that cannot read a file excludes it, reports that, and counts as failed.
        let reported = [" failed and is retried in ", " is damaged, and compactions leave it out"];
        let failures = events.iter().filter(|line| reported.iter().any(|report| line.contains(report)));
        assert_eq!(failures.count() as u64, stats.flushes_failed + stats.compactions_failed, "{events:?}");
        drop(events);
        setup.check(&what);
        setup.check_after_crash();
    }
}

/// Reads all data. Returns the errors.
fn read_all(setup: &Setup) -> Vec<StorageError> {
    let mut errors = Vec::new();
    for number in 0..12 * TABLES {
        let ((token, key), table) = (key(number / TABLES), TableId(u128::from(number % TABLES)));
        match block_on(setup.shard.read_partition(table, token, &key, 1000).wait()) {
            Ok(view) => {
                let found = view.map(|view| seen(&view)).unwrap_or_default();
                assert_eq!(found, setup.model.see(table, &key, 1000), "{table:?} {key:?}");
            }
            Err(error) => errors.push(error),
        }
        let mut scan = setup.shard.scan(table, token..=token, None, 1000);
        loop {
            match block_on(scan.next()) {
                Ok(Some((_, key, view))) => assert_eq!(seen(&view), setup.model.see(table, &key, 1000)),
                Ok(None) => break,
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
    }
    errors
}

#[test]
fn broken_disk_fails_reads_and_never_changes_them() {
    for seed in 0..6 {
        let setup = Setup::new(seed);
        block_on(setup.shard.flush_all()).unwrap();
        setup.sim.disk.fault(Fault { one_in: 1 + seed, ..Fault::every(FaultKind::Read, Effect::Broken) });
        let errors = read_all(&setup);
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.to_string().contains(".table"), "{error}");
        }
        setup.sim.disk.heal();
        assert!(read_all(&setup).is_empty());
        setup.check("healed");
        setup.check_after_crash();
    }
}

#[test]
fn flipped_bit_is_reported_with_its_position() {
    let mut setup = Setup::new(1);
    block_on(setup.shard.flush_all()).unwrap();
    // Let compactions finish, so that none reads the damage or replaces the damaged file.
    (0..1000).for_each(|_| step());
    let mut reported = 0;
    for _ in 0..300 {
        let mut files = setup.sim.disk.files();
        files.retain(|path| path.to_string_lossy().contains("/tables/"));
        let path = files[setup.random.below(files.len() as u64) as usize].clone();
        let at = setup.random.below(setup.sim.disk.size(&path));
        let bit = setup.random.below(8) as u32;
        setup.sim.disk.flip(&path, at, bit);
        for error in read_all(&setup) {
            let StorageError::Corrupt { path: named, what } = &error else { panic!("{error}") };
            assert!(*named == path && what.contains("at byte"), "{error}");
            reported += 1;
        }
        setup.sim.disk.flip(&path, at, bit);
    }
    assert!(reported > 100, "only {reported} reads met damage");
    setup.check("whole again");
}

#[test]
fn stalled_disk_bounds_the_waiting_writes() {
    for (seed, path) in ["/log/", "/tables/", "/"].into_iter().enumerate() {
        let mut setup = Setup::new(seed as u64);
        for kind in [FaultKind::Write, FaultKind::Sync] {
            let stalled = Fault::every(kind, Effect::Stalled(u64::MAX));
            setup.sim.disk.fault(Fault { path: path.into(), ..stalled });
        }
        let mut commits = Vec::new();
        for _ in 0..2000 {
            match setup.write() {
                Ok(commit) => commits.push(commit),
                Err(StorageError::Overloaded { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            step();
        }
        let bytes = setup.shard.stats().memtable_bytes;
        assert!(bytes < 4 << 20, "{path}: {bytes} bytes in memory");
        setup.check("on a stalled disk");
        setup.sim.disk.heal();
        commits.into_iter().for_each(|commit| block_on(commit).unwrap());
        block_on(setup.shard.flush_all()).unwrap();
        setup.check_after_crash();
    }
}

/// Regression test: writes waited at each new segment for a sync of the log's folder. A file system
/// syncs that together with all other pending writes.
#[test]
fn next_segment_needs_no_wait_for_names_or_syncs() {
    let mut setup = Setup::new(5);
    (0..1000).for_each(|_| step()); // for the next segment to be prepared
    for kind in [FaultKind::Names, FaultKind::Sync] {
        let path = "/log".to_owned();
        setup.sim.disk.fault(Fault { path, ..Fault::every(kind, Effect::Stalled(u64::MAX)) });
    }
    // Each record occupies a block; a segment has 15.
    for _ in 0..16 {
        let commit = setup.write().expect("accepted");
        block_on(commit).expect("durable");
    }
    setup.sim.disk.heal();
    setup.check_after_crash();
}
