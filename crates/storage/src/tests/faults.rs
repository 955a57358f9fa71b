//! Full, broken and slow disks: reads continue, writes get a clear error, and acknowledged writes
//! are kept.

use std::sync::Mutex;

use lanes::sim::{Effect, Fault, Kind};

use super::*;

/// A shard with its model.
struct Bench {
    sim: Arc<Sim>,
    shard: Rc<Shard>,
    model: Model,
    random: Random,
    /// Text of the reported events.
    said: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let sim = Arc::new(Sim::new(seed));
        let model = filled(&sim);
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = said.clone();
        let teller = Teller::new(move |event| heard.lock().unwrap().push(event.to_string()));
        let shard = open(&sim, &Options { teller, ..options() }).unwrap();
        Bench { sim, shard, model, random: Random::new(seed), said }
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
                Err(StorageError::Overloaded) => {}
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
                Err(StorageError::WritesRefused { .. } | StorageError::Overloaded) => {}
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
        let mut bench = Bench::new(seed);
        // Free space for a file, or for a part of the next one.
        bench.sim.disk.set_capacity(bench.sim.disk.used() + (seed << 10));
        let (commits, error) = bench.write_until_refused();
        is_refused_for_space(&error);
        bench.check("on a full disk");
        assert!(bench.shard.stats().writes_refused);
        (0..1000).for_each(|_| step());
        bench.check("after a while on a full disk");
        bench.sim.disk.set_capacity(u64::MAX);
        let healed = bench.write_at_last();
        commits.into_iter().chain([healed]).for_each(|commit| block_on(commit).unwrap());
        assert!(!bench.shard.stats().writes_refused);
        block_on(bench.shard.flush_all()).unwrap();
        bench.check("healed");
        bench.check_after_crash();
    }
}

/// Simulates a copy-on-write file system: it may have no space to overwrite a block of a segment
/// allocated long ago.
#[test]
fn writes_that_wait_for_log_space_become_durable() {
    for seed in 0..8 {
        let mut bench = Bench::new(seed);
        let path = "/log/".to_owned();
        bench.sim.disk.fault(Fault { path, ..Fault::every(Kind::Write, Effect::Full) });
        let (commits, error) = bench.write_until_refused();
        is_refused_for_space(&error);
        for commit in commits {
            let error = block_on(commit).expect_err("the disk is full");
            assert!(matches!(error, StorageError::LogFull { .. }), "{error}");
        }
        bench.check("while the log has no room");
        bench.sim.disk.heal();
        // The log keeps the order: if this write is durable, all earlier ones are.
        block_on(bench.write_at_last()).unwrap();
        bench.check_after_crash();
    }
}

#[test]
fn shutdown_on_a_full_disk_returns_an_error() {
    let mut bench = Bench::new(1);
    bench.sim.disk.fault(Fault::every(Kind::Write, Effect::Full));
    let (commits, _) = bench.write_until_refused();
    let error = block_on(bench.shard.shutdown()).unwrap_err();
    assert!(error.is_full(), "{error}");
    for commit in commits {
        assert!(block_on(commit).unwrap_err().is_full());
    }
}

/// Breaks writes, syncs and names of the log.
#[test]
fn broken_log_refuses_writes_until_a_restart() {
    let log = [("/log", Kind::Write), ("/log", Kind::Sync), ("/log", Kind::Names)];
    for (seed, (path, kind)) in (0..).zip(log.into_iter().cycle().take(9)) {
        let mut bench = Bench::new(seed);
        let before = bench.model.records.len();
        let broken = Fault::every(kind, Effect::Broken);
        bench.sim.disk.fault(Fault { path: path.into(), one_in: 1 + seed % 3, ..broken });
        let (commits, error) = bench.write_until_refused();
        assert!(matches!(&error, StorageError::WritesRefused { because } if !because.is_full()), "{error}");
        let acknowledged = commits.into_iter().map(block_on).take_while(Result::is_ok).count();
        bench.sim.disk.heal();
        bench.check(&format!("seed {seed}, after {path} broke"));
        (0..100).for_each(|_| step());
        bench.write().expect_err("it needs a restart");
        bench.sim.crash();
        bench.shard = open(&bench.sim, &options()).unwrap();
        let survived = bench.shard.stats().log_records as usize;
        assert!((before + acknowledged..=bench.model.records.len()).contains(&survived), "{survived}");
        bench.model.records.truncate(survived);
        bench.check(&format!("seed {seed}, after a restart"));
        let healed = bench.write_at_last();
        block_on(healed).unwrap();
        block_on(bench.shard.shutdown()).unwrap();
    }
}

/// Regression test: a failed flush required a restart, and so did a failed compaction of a table.
#[test]
fn failed_flushes_and_compactions_are_retried() {
    let tables = [Kind::Write, Kind::Sync, Kind::Names, Kind::Read].map(|kind| ("/tables", kind));
    let manifest = [Kind::Write, Kind::Sync].map(|kind| ("/manifest", kind));
    let tables_of = || (0..TABLES).map(|table| TableId(u128::from(table)));
    for (seed, (path, kind)) in (0..).zip(tables.into_iter().chain(manifest)) {
        let what = format!("seed {seed}, {path} {kind:?}");
        let mut bench = Bench::new(seed);
        let said = bench.said.clone();
        let [broken, broken_again] = [(); 2].map(|()| Fault::every(kind, Effect::Broken));
        bench.sim.disk.fault(Fault { path: path.into(), ..broken });
        let (mut commits, error) = bench.write_until_refused();
        assert!(matches!(&error, StorageError::WritesRefused { because } if !because.is_full()), "{error}");
        // If reads fail, existing files cannot be read either.
        if kind != Kind::Read {
            bench.check(&what);
        }
        bench.sim.disk.heal();
        commits.push(bench.write_at_last());
        commits.into_iter().for_each(|commit| block_on(commit).expect(&what));
        block_on(bench.shard.flush_all()).expect(&what);
        let failed = bench.shard.stats().flushes_failed;
        assert!(failed >= 3, "{what}: {failed} flushes failed");
        bench.sim.disk.fault(Fault { path: path.into(), ..broken_again });
        for table in tables_of() {
            block_on(bench.shard.compact_all(table)).expect_err(&what);
        }
        let count = |is: fn(&crate::shard::Table) -> bool| {
            bench.shard.state.borrow().tables.values().filter(|table| is(table)).count()
        };
        let (failed, waiting) = (|| count(|t| t.failures.in_a_row > 0), || count(|t| t.failures.waits));
        // After a failed sync the manifest itself is retried, so the compaction of a second table
        // may not get to the point of failing.
        let least = if (path, kind) == ("/manifest", Kind::Sync) { 1 } else { TABLES };
        assert!((least..=TABLES).contains(&(failed() as u64)), "{what}: {} failed", failed());
        bench.sim.disk.heal();
        (0..100).for_each(|_| step());
        assert_eq!(waiting(), 0, "{what}");
        tables_of().for_each(|table| block_on(bench.shard.compact_all(table)).expect(&what));
        let stats = bench.shard.stats();
        assert!(stats.compactions_failed >= TABLES, "{what}: {stats:?}");
        let said = said.lock().unwrap();
        assert!(said.iter().any(|line| line.contains("a flush failed and is retried in 1s")), "{said:?}");
        // A compaction that cannot read a file excludes it, reports that, and counts as failed.
        let reported = [" failed and is retried in ", " is damaged, and compactions leave it out"];
        let failures = said.iter().filter(|line| reported.iter().any(|report| line.contains(report)));
        assert_eq!(failures.count() as u64, stats.flushes_failed + stats.compactions_failed, "{said:?}");
        drop(said);
        bench.check(&what);
        bench.check_after_crash();
    }
}

/// Reads all data. Returns the errors.
fn read_all(bench: &Bench) -> Vec<StorageError> {
    let mut errors = Vec::new();
    for number in 0..12 * TABLES {
        let ((token, key), table) = (key(number / TABLES), TableId(u128::from(number % TABLES)));
        match block_on(bench.shard.read_partition(table, token, &key, 1000).wait()) {
            Ok(view) => {
                let found = view.map(|view| seen(&view)).unwrap_or_default();
                assert_eq!(found, bench.model.see(table, &key, 1000), "{table:?} {key:?}");
            }
            Err(error) => errors.push(error),
        }
        let mut scan = bench.shard.scan(table, token..=token, None, 1000);
        loop {
            match block_on(scan.next()) {
                Ok(Some((_, key, view))) => assert_eq!(seen(&view), bench.model.see(table, &key, 1000)),
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
        let bench = Bench::new(seed);
        block_on(bench.shard.flush_all()).unwrap();
        bench.sim.disk.fault(Fault { one_in: 1 + seed, ..Fault::every(Kind::Read, Effect::Broken) });
        let errors = read_all(&bench);
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.to_string().contains(".table"), "{error}");
        }
        bench.sim.disk.heal();
        assert!(read_all(&bench).is_empty());
        bench.check("healed");
        bench.check_after_crash();
    }
}

#[test]
fn flipped_bit_is_reported_with_its_position() {
    let mut bench = Bench::new(1);
    block_on(bench.shard.flush_all()).unwrap();
    // Let compactions finish, so that none reads the damage or replaces the damaged file.
    (0..1000).for_each(|_| step());
    let mut reported = 0;
    for _ in 0..300 {
        let mut files = bench.sim.disk.files();
        files.retain(|path| path.to_string_lossy().contains("/tables/"));
        let path = files[bench.random.below(files.len() as u64) as usize].clone();
        let (at, bit) = (bench.random.below(bench.sim.disk.size(&path)), bench.random.below(8) as u32);
        bench.sim.disk.flip(&path, at, bit);
        for error in read_all(&bench) {
            let StorageError::Corrupt { path: named, what } = &error else { panic!("{error}") };
            assert!(*named == path && what.contains("at byte"), "{error}");
            reported += 1;
        }
        bench.sim.disk.flip(&path, at, bit);
    }
    assert!(reported > 100, "only {reported} reads met damage");
    bench.check("whole again");
}

#[test]
fn stalled_disk_bounds_the_waiting_writes() {
    for (seed, path) in ["/log/", "/tables/", "/"].into_iter().enumerate() {
        let mut bench = Bench::new(seed as u64);
        for kind in [Kind::Write, Kind::Sync] {
            let stalled = Fault::every(kind, Effect::Stalled(u64::MAX));
            bench.sim.disk.fault(Fault { path: path.into(), ..stalled });
        }
        let mut commits = Vec::new();
        for _ in 0..2000 {
            match bench.write() {
                Ok(commit) => commits.push(commit),
                Err(StorageError::Overloaded) => {}
                Err(error) => panic!("{error}"),
            }
            step();
        }
        let bytes = bench.shard.stats().memtable_bytes;
        assert!(bytes < 4 << 20, "{path}: {bytes} bytes in memory");
        bench.check("on a stalled disk");
        bench.sim.disk.heal();
        commits.into_iter().for_each(|commit| block_on(commit).unwrap());
        block_on(bench.shard.flush_all()).unwrap();
        bench.check_after_crash();
    }
}

/// Regression test: writes waited at each new segment for a sync of the log's folder. A file system
/// syncs that together with all other pending writes.
#[test]
fn next_segment_needs_no_wait_for_names_or_syncs() {
    let mut bench = Bench::new(5);
    (0..1000).for_each(|_| step()); // for the next segment to be made ready
    for kind in [Kind::Names, Kind::Sync] {
        let path = "/log".to_owned();
        bench.sim.disk.fault(Fault { path, ..Fault::every(kind, Effect::Stalled(u64::MAX)) });
    }
    // Each record occupies a block; a segment has 15.
    for _ in 0..16 {
        let commit = bench.write().expect("taken");
        block_on(commit).expect("durable");
    }
    bench.sim.disk.heal();
    bench.check_after_crash();
}
