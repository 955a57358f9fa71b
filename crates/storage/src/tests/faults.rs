//! A disk that is full, broken or slow: reads go on, writes get a clear answer, and what was acknowledged stays.

use lanes::sim::{Effect, Fault, Kind};

use super::*;

/// A shard, the model of it, and writes that wait.
struct Bench {
    sim: Arc<Sim>,
    shard: Rc<Shard>,
    model: Model,
    random: Random,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let sim = Arc::new(Sim::new(seed));
        let model = filled(&sim);
        let shard = open(&sim, &options()).unwrap();
        Bench { sim, shard, model, random: Random::new(seed) }
    }

    fn write(&mut self) -> Result<Commit, StorageError> {
        let mutations = vec![mutation(&mut self.random, self.model.records.len() as i64, 1000)];
        let commit = self.shard.apply(mutations.clone())?;
        self.model.records.push(mutations);
        Ok(commit)
    }

    /// Writes until a write is refused; answers with those that wait, and why.
    fn write_until_refused(&mut self) -> (Vec<Commit>, StorageError) {
        let mut commits = Vec::new();
        for _ in 0..100_000 {
            match self.write() {
                Ok(commit) => commits.push(commit),
                Err(error) => return (commits, error),
            }
            step();
        }
        panic!("nothing was refused\n{}", self.sim.disk.record());
    }

    /// Waits until a write is taken again.
    fn write_at_last(&mut self) -> Commit {
        for _ in 0..10_000 {
            match self.write() {
                Ok(commit) => return commit,
                Err(error) => assert!(matches!(error, StorageError::WritesRefused { .. }), "{error}"),
            }
            step();
        }
        panic!("writes are refused for ever\n{}", self.sim.disk.record());
    }

    fn check(&self, what: &str) {
        check(&self.shard, &self.model, 1000, what);
    }

    /// Everything the model has is there after a crash.
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

/// A full disk used to mean a restart.
#[test]
fn a_full_disk_refuses_writes_and_keeps_reading_and_heals_by_itself() {
    for seed in 0..8 {
        let mut bench = Bench::new(seed);
        // Room for a file, or for some part of the very next.
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

/// File systems that never overwrite in place may have no room for a block of a segment that was allocated long ago.
#[test]
fn writes_that_the_log_had_no_room_for_become_durable_once_there_is() {
    for seed in 0..8 {
        let mut bench = Bench::new(seed);
        let path = "/log/".to_owned();
        bench.sim.disk.fault(Fault { path, ..Fault::every(Kind::Write, Effect::Full) });
        let (mut commits, error) = bench.write_until_refused();
        is_refused_for_space(&error);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            step();
            assert!(commits.iter_mut().all(|commit| Pin::new(commit).poll(&mut cx).is_pending()));
        }
        bench.check("while the log has no room");
        bench.sim.disk.heal();
        let healed = bench.write_at_last();
        commits.into_iter().chain([healed]).for_each(|commit| block_on(commit).unwrap());
        bench.check_after_crash();
    }
}

#[test]
fn a_shard_on_a_full_disk_shuts_down_and_says_so() {
    let mut bench = Bench::new(1);
    bench.sim.disk.fault(Fault::every(Kind::Write, Effect::Full));
    let (commits, _) = bench.write_until_refused();
    let error = block_on(bench.shard.shutdown()).unwrap_err();
    assert!(error.is_full(), "{error}");
    for commit in commits {
        assert!(block_on(commit).unwrap_err().is_full());
    }
}

#[test]
fn a_broken_log_refuses_writes_until_a_restart_and_loses_nothing_acknowledged() {
    for (seed, kind) in (0..8).zip([Kind::Write, Kind::Sync, Kind::Names].into_iter().cycle()) {
        let mut bench = Bench::new(seed);
        let before = bench.model.records.len();
        let path = "/log".to_owned();
        bench.sim.disk.fault(Fault { path, one_in: 2, ..Fault::every(kind, Effect::Broken) });
        let (commits, error) = bench.write_until_refused();
        assert!(matches!(&error, StorageError::WritesRefused { because } if !because.is_full()), "{error}");
        bench.check("with a broken log");
        let acknowledged = commits.into_iter().map(block_on).take_while(Result::is_ok).count();
        bench.sim.disk.heal();
        (0..100).for_each(|_| step());
        bench.write().expect_err("it needs a restart");
        bench.sim.crash();
        bench.shard = open(&bench.sim, &options()).unwrap();
        let survived = bench.shard.stats().log_records as usize;
        assert!((before + acknowledged..=bench.model.records.len()).contains(&survived), "{survived}");
        bench.model.records.truncate(survived);
        bench.check("after a restart");
        let healed = bench.write_at_last();
        block_on(healed).unwrap();
        block_on(bench.shard.shutdown()).unwrap();
    }
}

#[test]
fn a_stalled_disk_holds_a_bounded_number_of_writes() {
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
