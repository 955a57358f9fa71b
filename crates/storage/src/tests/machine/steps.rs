//! The steps of a history.

use lanes::Group;

use super::*;
use crate::env::{Env, Work};

impl Machine {
    /// Runs one step, drawn from its own random numbers.
    pub(super) fn step(&mut self, number: u32) {
        self.random =
            Random::new(self.seed.wrapping_mul(0x1_0000_0001).wrapping_add(u64::from(number) << 20));
        self.note(format!("{number}: {}", self.sim.disk.steps()));
        match self.random.below(250) {
            0..=3 => self.clock(),
            4..=11 => self.flush(),
            12..=14 if !self.tight => self.reopen(),
            15..=18 if !self.tight && self.flips.is_empty() => self.truncate(),
            19..=20 if !self.tight && self.flips.is_empty() => self.drop_table(),
            21 => self.drop_column(),
            22..=23 => self.recover(),
            24..=29 => self.compact(),
            30..=31 if !self.was_damaged && !self.tight => self.scrub(),
            32..=33 => self.tighten(),
            34 if self.flips.is_empty() && Rc::strong_count(&self.scrubbing) == 1 => self.damage(),
            34..=35 if !self.flips.is_empty() => self.repair(),
            36..=37 => crate::sim::panic_after(1 + self.random.below(300)),
            38..=39 => self.overwrite(),
            40..=55 => self.begin_batch(),
            56..=85 if !self.batches.is_empty() => {
                let batch = self.random.below(self.batches.len() as u64) as usize;
                self.advance_batch(batch);
            }
            86..=93 => self.check("in between"),
            94..=140 => (0..self.random.below(8)).for_each(|_| step()),
            _ => self.apply(),
        }
        if self.is_up() {
            self.acknowledge();
            self.check_log();
        }
        while !self.is_up() {
            self.recover();
        }
    }

    fn clock(&mut self) {
        // Sometimes far enough that windows expire and runs are old enough to be compacted alone.
        let seconds = if self.random.one_in(6) { 100 } else { 5 };
        let now_s = self.now_s() + self.random.below(seconds) as u32;
        self.sim.now_s.store(now_s, Ordering::Relaxed);
        self.latest_s = self.latest_s.max(now_s);
        self.note(format!("  clock at {now_s}"));
    }

    fn any_shard(&mut self) -> (u32, Rc<Shard>) {
        let number = self.random.below(self.shards.len() as u64) as usize;
        (number as u32, self.shards[number].clone())
    }

    fn any_table(&mut self) -> TableId {
        match self.random.below(self.tables.len() as u64 + 1) as usize {
            0 => SYSTEM,
            number => self.tables[number - 1].0,
        }
    }

    fn apply(&mut self) {
        let timestamp = self.timestamp();
        let mut mutations = vec![self.mutation(timestamp)];
        let shard = self.home(mutations[0].table, mutations[0].token);
        for _ in 0..self.random.below(3) {
            let other = self.mutation(timestamp);
            if self.ties && self.home(other.table, other.token) == shard {
                mutations.push(other);
            }
        }
        let what = format!("  write to shard {shard}: {mutations:?}");
        let mark = self.record(shard, mutations);
        self.note(format!("{what}: {mark:?}"));
    }

    fn flush(&mut self) {
        let (number, shard) = self.any_shard();
        let issued = self.issued[number as usize];
        self.note(format!("  flush of shard {number}"));
        if self.random.one_in(2) {
            let flush = async move { drop(shard.flush_all().await) };
            self.sim.spawn(Work::Control, Box::pin(flush));
            return;
        }
        let flushed = run(&self.sim, shard.flush_all());
        if self.unless_tight(flushed).is_some() {
            self.durable(number, issued);
        }
    }

    /// Compacts a part of a table, and may cancel that.
    fn compact(&mut self) {
        let ((number, shard), table, progress) =
            (self.any_shard(), self.any_table(), WorkProgress::default());
        let first = if self.random.one_in(2) { i64::MIN } else { self.random.next_u64() as i64 };
        let last = if self.random.one_in(2) { i64::MAX } else { first.saturating_add(i64::MAX / 4) };
        self.note(format!("  compact {table:?} on shard {number} from {first} to {last}"));
        if self.random.one_in(3) {
            let (own, watched) = (shard.clone(), progress.clone());
            let turns = self.random.below(200) as u32;
            let cancel = async move {
                for _ in 0..turns {
                    own.env.heavy_yield().await;
                }
                watched.cancel();
            };
            self.sim.spawn(Work::Control, Box::pin(cancel));
        }
        if self.random.one_in(2) {
            let compact =
                async move { drop(shard.compact(table, first..=last, Group::CONTROL, &progress).await) };
            self.sim.spawn(Work::Requested(Group::CONTROL), Box::pin(compact));
            return;
        }
        let issued = self.issued[number as usize];
        match run(&self.sim, shard.compact(table, first..=last, Group::CONTROL, &progress)) {
            Some(Err(StorageError::Cancelled)) => {}
            compacted => {
                if self.unless_tight(compacted).is_some() {
                    self.durable(number, issued);
                }
            }
        }
    }

    fn scrub(&mut self) {
        let ((number, shard), table) = (self.any_shard(), self.any_table());
        self.note(format!("  scrub {table:?} on shard {number}"));
        if self.random.one_in(2) {
            // Bits must not flip meanwhile, because a scrub drops damaged blocks.
            let scrubbing = self.scrubbing.clone();
            let scrub = async move {
                drop(shard.scrub(table, Group::CONTROL, &WorkProgress::default()).await);
                drop(scrubbing);
            };
            self.sim.spawn(Work::Control, Box::pin(scrub));
            return;
        }
        let progress = WorkProgress::default();
        let scrubbed = run(&self.sim, shard.scrub(table, Group::CONTROL, &progress));
        if let Some(scrubbed) = self.unless_tight(scrubbed) {
            assert!(scrubbed.damaged.is_empty(), "nothing is damaged: {scrubbed:?}");
        }
    }

    /// Takes away space or descriptors, or restores them.
    fn tighten(&mut self) {
        if self.tight {
            self.sim.disk.set_capacity(u64::MAX);
            self.sim.table_opens_left.store(u64::MAX, Ordering::Relaxed);
            self.note("  space again".to_owned());
            let refuses = |shard: &Rc<Shard>| shard.stats().writes_refused;
            // An operation that failed before may be noticed only now.
            let mut left = 100;
            while self.is_up() && (left > 0 || self.shards.iter().any(refuses) || !self.commits.is_empty()) {
                step();
                self.acknowledge();
                left = u32::saturating_sub(left, 1);
            }
            self.tight = false;
            return;
        }
        self.finish_batches();
        if !self.is_up() {
            return;
        }
        self.tight = true;
        self.counts.full += 1;
        if self.random.one_in(3) {
            self.sim.table_opens_left.store(self.random.below(4), Ordering::Relaxed);
            self.note("  few descriptors".to_owned());
        } else {
            self.sim.disk.set_capacity(self.sim.disk.used() + self.random.below(8 << 10));
            self.note("  full disk".to_owned());
        }
    }

    /// Writes one row repeatedly.
    fn overwrite(&mut self) {
        let (table, (token, key)) = (self.any_table(), key(self.random.below(10)));
        let token = spread(token);
        let shard = self.home(table, token);
        self.note(format!("  overwrite {key:?} of {table:?} on shard {shard}"));
        let (count, steps) = (20 + self.random.below(60), self.random.below(4));
        for _ in 0..count {
            let timestamp = self.timestamp();
            let mut row = RowBuilder::new(&[], &[], timestamp);
            row.marker(Some(Liveness { timestamp, expiry: None }));
            let change = Change::Row(row.finish());
            let mutation = Mutation { table, token, key: key.clone(), changes: vec![change] };
            self.record(shard, vec![mutation]);
            (0..steps).for_each(|_| step());
            if !self.is_up() {
                return;
            }
            self.acknowledge();
            self.check_log();
        }
    }

    /// Checks that the log stays bounded, whatever is written.
    fn check_log(&mut self) {
        let stats: Vec<Stats> = self.shards.iter().map(|shard| shard.stats()).collect();
        if stats.iter().all(|stats| stats.flushes > 0 && stats.memtables_frozen == 0) {
            self.starts = 1;
        }
        let segment = self.options.segment_bytes;
        let unit = (self.options.memtable_bytes_max as u64).max(segment);
        // The header and the last note of a segment take a block each, which no batch can use.
        let usable = segment - 2 * crate::env::BLOCK as u64;
        let most = ((unit * 13 / 4).div_ceil(usable) + 3 + self.starts) * segment;
        for shard in &self.shards {
            let dir = shard.store.dir.join("log");
            let files = self.sim.disk.files().into_iter().filter(|path| path.parent() == Some(&dir));
            let bytes: u64 = files.map(|path| self.sim.disk.size(&path)).sum();
            let segments = shard.log.as_ref().expect("on disk").segments();
            assert!(
                bytes <= most,
                "{bytes} bytes of log in {dir:?}, at most {most}; {segments:?} in use and free"
            );
        }
    }

    fn truncate(&mut self) {
        self.finish_batches();
        let table = self.any_table();
        let key = Bytes::from(format!("sentinel-{}", self.newest));
        self.newest += 1;
        let mut marks = Vec::new();
        // The system tables are on the first shard, whatever their tokens are. A sentinel on
        // another shard would be a row that no server writes.
        let homes = if table == SYSTEM { 1 } else { self.shards.len() as u32 };
        for shard in 0..homes {
            let token = self.token_of(shard);
            let mut row = RowBuilder::new(&[], &[], self.newest);
            row.push(CellRef::live(0, self.newest, b"sentinel"));
            let changes = vec![Change::Row(row.finish())];
            let sentinel = Mutation { table, token, key: key.clone(), changes };
            if !self.is_up() {
                return;
            }
            let Some(mark) = self.record(shard, vec![sentinel]) else { return };
            marks.push(mark);
        }
        self.note(format!("  empty {table:?}, sentinels {marks:?}"));
        self.truncating = Some(Truncating { table, key, marks });
        for shard in self.shards.clone() {
            let emptied = run(&self.sim, shard.truncate(table));
            if self.unless_tight(emptied).is_none() {
                return;
            }
        }
        self.truncating = None;
        self.events.push(Event::Truncated { table });
        self.store.truncate(table);
    }

    /// Drops a table, and creates another.
    fn drop_table(&mut self) {
        self.finish_batches();
        if !self.is_up() {
            return;
        }
        let number = self.random.below(self.tables.len() as u64) as usize;
        self.tables_made += 1;
        let new = (TableId(u128::from(self.tables_made) << 64), BTreeSet::new());
        let (old, _) = std::mem::replace(&mut self.tables[number], new);
        self.note(format!("  drop {old:?}"));
        for shard in self.shards.clone() {
            let dropped = run(&self.sim, shard.drop_tables(&[old]));
            if self.unless_tight(dropped).is_none() {
                return;
            }
        }
    }

    fn drop_column(&mut self) {
        let number = self.random.below(self.tables.len() as u64) as usize;
        let column = self.random.below(4) as u32;
        if self.tables[number].1.len() < 2 {
            self.note(format!("  drop column {column} of {:?}", self.tables[number].0));
            self.tables[number].1.insert(column);
            self.configure();
        }
    }

    /// Ends a history in order.
    pub(super) fn end(&mut self) {
        self.sim.disk.crash_at(u64::MAX);
        if crate::sim::has_panicked() {
            self.recover();
            self.sim.disk.crash_at(u64::MAX);
        }
        crate::sim::panic_after(u64::MAX - 1);
        if self.tight {
            self.tighten();
        }
        self.finish_batches();
        self.check("at the end");
        self.repair();
        for shard in self.shards.clone() {
            run(&self.sim, shard.shutdown()).expect("up").expect("shuts down");
            let stats = shard.stats();
            self.counts.flushes += stats.flushes;
            self.counts.compactions += stats.compactions;
        }
        drop_tasks();
        self.options.cache_bytes = 24 << 10;
        self.issued.iter().copied().enumerate().for_each(|(shard, issued)| self.acknowledged[shard] = issued);
        let count = self.shards.len() as u32;
        self.start(count);
        self.sim.disk.crash_at(u64::MAX);
        while !self.is_up() {
            self.recover();
            self.sim.disk.crash_at(u64::MAX);
        }
        self.check("reopened at the end");
        for (table, dropped) in &self.tables {
            if dropped.is_empty() {
                for shard in &self.shards {
                    let tokens = i64::MIN..=i64::MAX;
                    crate::scan::batch_tests::check_batches(
                        shard,
                        *table,
                        tokens,
                        self.latest_s,
                        "at the end",
                    );
                }
            }
        }
        drop_tasks();
    }
}
