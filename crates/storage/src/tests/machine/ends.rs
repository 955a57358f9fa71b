//! Stops and starts: orderly stops, kills, panics and crashes, also during a start.

use super::*;

impl Machine {
    /// Crashes the machine, and arms the next crash.
    fn restart(&mut self) {
        self.note(format!("  crash at step {} of the disk", self.sim.disk.steps()));
        self.sim.crash();
        self.counts.crashes += 1;
        self.arm();
    }

    /// In most cases, arms a crash of the machine after some steps.
    pub(super) fn arm(&mut self) {
        let at = match self.random.below(8) {
            0 => u64::MAX,
            1..=3 => self.sim.disk.steps() + 1 + self.random.below(60),
            _ => self.sim.disk.steps() + 1 + self.random.below(STEPS_MAX),
        };
        self.sim.disk.crash_at(at);
    }

    /// Restarts after a crash of the machine or of a background task.
    pub(super) fn recover(&mut self) {
        if self.sim.disk.is_down() {
            self.restart();
        } else {
            // The process ends, the machine stays up.
            self.counts.panics += u32::from(crate::sim::has_panicked());
            self.counts.kills += 1;
            drop_tasks();
            if self.random.one_in(3) {
                self.restart();
            }
        }
        let count = self.cores();
        self.start(count);
    }

    /// Returns the number of cores of the next start.
    fn cores(&mut self) -> u32 {
        match self.issued.len() as u32 {
            0 => 1 + self.random.below(SHARDS_MAX) as u32,
            // A damaged file gets another name in another folder, so that `repair` would not find
            // it.
            own if self.random.one_in(4) && self.flips.is_empty() => {
                let other = 1 + self.random.below(SHARDS_MAX) as u32;
                self.counts.splits += u32::from(other != own);
                other
            }
            own => own,
        }
    }

    /// An orderly stop and a start.
    pub(super) fn reopen(&mut self) {
        self.finish_batches();
        let shards = self.shards.clone();
        for (number, shard) in shards.iter().enumerate() {
            let stopped = run(&self.sim, shard.shutdown());
            if self.unless_tight(stopped).is_none() {
                // Crashed: unwritten records are not acknowledged.
                break;
            }
            let issued = self.issued[number];
            self.durable(number as u32, issued);
        }
        drop(shards);
        if self.is_up() {
            self.forget();
            let count = self.cores();
            self.start(count);
        }
    }

    /// Starts with `count` cores, through all crashes meanwhile.
    pub(super) fn start(&mut self, mut count: u32) {
        self.forget();
        self.was_damaged = !self.flips.is_empty();
        self.sim.disk.set_capacity(u64::MAX);
        let back = self.random.below(60) as u32;
        if self.random.one_in(3) {
            self.note(format!("  the clock is {back} s behind"));
            self.sim.now_s.store((self.now_s() - back.min(100)).max(500), Ordering::Relaxed);
        }
        let full = self.random.one_in(8) && self.epoch > 0;
        let few = self.random.one_in(10);
        for attempt in 0..200 {
            if full && attempt == 0 {
                self.note("  on a full disk".to_owned());
                self.counts.full += 1;
                self.sim.disk.set_capacity(self.sim.disk.used());
            }
            let left = if few && attempt == 0 { self.random.below(6) } else { u64::MAX };
            self.sim.table_opens_left.store(left, Ordering::Relaxed);
            self.tight = (full || few) && attempt == 0;
            match self.open(count) {
                None => {
                    self.forget();
                    self.restart();
                    if self.random.one_in(4) {
                        count = self.cores();
                    }
                }
                Some(Err(error)) => {
                    assert!(self.tight && is_tight(&error), "the shard does not open: {error}");
                    let same = count as usize == self.issued.len();
                    assert!(few || !full || !same, "the shard does not open on a full disk: {error}");
                    self.forget();
                    self.sim.disk.set_capacity(u64::MAX);
                    continue;
                }
                Some(Ok(())) => {
                    self.note(format!("  open with {count} cores"));
                    if self.settle(count) {
                        return;
                    }
                    let is_down = self.sim.disk.is_down();
                    self.forget();
                    if is_down {
                        self.restart();
                    }
                }
            }
            self.sim.disk.set_capacity(u64::MAX);
        }
        panic!("the shards never open");
    }

    /// Forgets the shards after the end of the process.
    fn forget(&mut self) {
        self.commits.clear();
        self.shards.clear();
        drop_tasks();
    }

    fn open(&mut self, count: u32) -> Option<Result<(), StorageError>> {
        self.shards.clear();
        self.starts += 1;
        self.options.batches = Arc::default();
        self.replaying = Some(self.options.batches.begin(0));
        for shard in 0..count {
            let options = StorageOptions { shard, shards: count, ..self.options.clone() };
            match run(&self.sim, Shard::open_in(options, self.sim.clone()))? {
                Ok(opened) => self.shards.push(opened),
                Err(error) => return Some(Err(error)),
            }
        }
        self.configure();
        Some(Ok(()))
    }

    /// Configures what shards do not store themselves.
    pub(super) fn configure(&self) {
        for shard in &self.shards {
            for (table, dropped) in &self.tables {
                shard.forget_columns(*table, dropped.iter().copied().map(DroppedCells::all).collect());
            }
        }
    }

    /// Determines the surviving contents after a start, and compares. Returns false if the machine
    /// crashed meanwhile.
    fn settle(&mut self, count: u32) -> bool {
        if self.drop_unknown().is_none() {
            return false;
        }
        let Some(left) = self.survivors() else { return false };
        self.base = left;
        self.store = self.base.clone();
        self.events.clear();
        self.batches.clear();
        self.truncating = None;
        self.issued = vec![0; count as usize];
        self.acknowledged = self.issued.clone();
        self.epoch += 1;
        // Entries are applied after the marks were read. Their writes are complete from here on.
        if !self.replay_batches() {
            return false;
        }
        self.replaying = None;
        self.check("after a start");
        self.is_up()
    }

    /// Drops tables again whose drop a crash interrupted.
    fn drop_unknown(&mut self) -> Option<()> {
        let known: BTreeSet<TableId> = self.tables.iter().map(|own| own.0).collect();
        for shard in self.shards.clone() {
            let mut gone = shard.tables();
            gone.retain(|table| !known.contains(table) && ![SYSTEM, BATCHES, MARKS].contains(table));
            gone.sort_unstable();
            if !gone.is_empty() {
                let dropped = run(&self.sim, shard.drop_tables(&gone))?;
                if let Err(error) = dropped {
                    assert!(self.tight && is_tight(&error), "a table is not dropped: {error}");
                }
            }
        }
        Some(())
    }

    /// Returns the expected contents after a start: the records of each shard up to its mark, and
    /// each write over shards as a whole or not at all.
    fn survivors(&mut self) -> Option<Store> {
        let mut marks = Vec::new();
        for shard in 0..self.issued.len() as u32 {
            let mark = match self.cell(MARKS, self.token_of(shard), &self.mark_key(shard))? {
                Some(bytes) => u64::from_be_bytes(bytes[..].try_into().expect("eight bytes")),
                None => 0,
            };
            let acknowledged = self.acknowledged[shard as usize];
            let issued = self.issued[shard as usize];
            assert!(
                (acknowledged..=issued).contains(&mark),
                "shard {shard} has {mark} of {acknowledged} to {issued} records"
            );
            marks.push(mark);
        }
        let entries = self.entries()?;
        let (mut whole, mut lost) = (BTreeSet::new(), Vec::new());
        for batch in &self.batches {
            let found = batch
                .parts
                .iter()
                .filter(|part| part.mark.is_some_and(|mark| mark <= marks[part.shard as usize]));
            let found = found.count();
            let is_entry = entries.contains(&batch.key);
            let is_whole = is_entry || found == batch.parts.len();
            assert!(
                is_whole || found == 0,
                "{} of {} parts and no entry: {batch:?}",
                found,
                batch.parts.len()
            );
            assert!(is_whole || !batch.acknowledged, "an acknowledged write is lost: {batch:?}");
            if is_whole {
                whole.extend(batch.parts.iter().filter_map(|part| Some((part.shard, part.mark?))));
            }
            if is_entry {
                // Unwritten parts come last.
                lost.extend(
                    batch
                        .parts
                        .iter()
                        .filter(|part| part.mark.is_none())
                        .flat_map(|part| part.mutations.clone()),
                );
            }
        }
        let emptied = match self.truncating.clone() {
            None => Vec::new(),
            Some(truncating) => {
                let mut emptied = Vec::new();
                for (shard, mark) in truncating.marks.iter().enumerate() {
                    let was_there = *mark <= marks[shard];
                    let token = self.token_of(shard as u32);
                    let is_there = self.cell(truncating.table, token, &truncating.key)?.is_some();
                    assert!(was_there || !is_there, "a record came back");
                    if was_there && !is_there {
                        emptied.push(shard as u32);
                    }
                }
                emptied
            }
        };
        let mut store = self.base.clone();
        for event in &self.events {
            match event {
                Event::Record { shard, mark, mutations } => {
                    if *mark <= marks[*shard as usize] {
                        store.apply(mutations);
                    } else if whole.contains(&(*shard, *mark)) {
                        // The entry has everything but the mark.
                        store.apply(&mutations[..mutations.len() - 1]);
                    }
                }
                Event::Truncated { table } => store.truncate(*table),
            }
        }
        if let Some(truncating) = &self.truncating {
            store.truncate_where(truncating.table, |token| {
                emptied.contains(&self.home(truncating.table, token))
            });
        }
        store.apply(&lost);
        Some(store)
    }
}
