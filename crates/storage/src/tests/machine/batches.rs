//! Writes over several shards, with the steps of the batch log of `embedded`.

use super::*;

/// The part of a write on one shard.
#[derive(Clone, Debug)]
pub(super) struct BatchPart {
    pub(super) shard: u32,
    pub(super) mutations: Vec<Mutation>,
    /// Its mark once it was written.
    pub(super) mark: Option<u64>,
}

/// A write over several shards.
#[derive(Clone, Debug)]
pub(super) struct MachineBatch {
    pub(super) key: Bytes,
    coordinator: u32,
    entry: u64,
    pub(super) parts: Vec<BatchPart>,
    /// All parts are durable: the client has the answer.
    pub(super) acknowledged: bool,
    is_over: bool,
    /// The mark of the record that deletes the entry.
    deleted: Option<u64>,
    /// Until the deletion is durable: before that, a start may apply the entry again.
    in_flight: Option<Rc<BatchInFlight>>,
}

fn entry_row(key: &Bytes, token: i64, change: Change) -> Mutation {
    Mutation { table: BATCHES, token, key: key.clone(), changes: vec![change] }
}

impl Machine {
    /// Starts a write over shards: writes its entry without waiting for it.
    pub(super) fn begin_batch(&mut self) {
        // The other mode may lose acknowledged entries, without which a write may be partial.
        if self.options.commit != CommitMode::Batch || self.tight {
            return;
        }
        let timestamp = self.timestamp();
        let count = 2 + self.random.below(3);
        let all: Vec<Mutation> = (0..count).map(|_| self.mutation(timestamp)).collect();
        let mut parts: Vec<BatchPart> = Vec::new();
        for mutation in all.clone() {
            let shard = self.home(mutation.table, mutation.token);
            match parts.iter_mut().find(|part| part.shard == shard) {
                Some(part) => part.mutations.push(mutation),
                None => parts.push(BatchPart { shard, mutations: vec![mutation], mark: None }),
            }
        }
        if parts.len() < 2 {
            return;
        }
        let coordinator = self.random.below(self.shards.len() as u64) as u32;
        self.batches_made += 1;
        let key = Bytes::from(format!("batch-{}", self.batches_made));
        let mut row = RowBuilder::new(&[], &[], 1);
        row.push(CellRef::live(0, 1, &encode_mutations(all.iter())));
        let entry = entry_row(&key, self.token_of(coordinator), Change::Row(row.finish()));
        let in_flight = Some(Rc::new(self.options.batches.begin(self.now_s())));
        if let Some(entry) = self.record(coordinator, vec![entry]) {
            self.note(format!("  batch {} begins at {coordinator}, of {parts:?}", self.batches_made));
            self.counts.batches += 1;
            let acknowledged = false;
            let is_over = false;
            let deleted = None;
            let batch =
                MachineBatch { key, coordinator, entry, parts, acknowledged, is_over, deleted, in_flight };
            self.batches.push(batch);
        }
    }

    /// Advances a write over shards by one step.
    pub(super) fn advance_batch(&mut self, number: usize) {
        let Some(batch) = self.batches.get(number).filter(|batch| !batch.is_over).cloned() else { return };
        if self.acknowledged[batch.coordinator as usize] < batch.entry {
            return;
        }
        if let Some(at) = batch.parts.iter().position(|part| part.mark.is_none()) {
            let part = &batch.parts[at];
            let mark = self.record(part.shard, part.mutations.clone());
            self.batches[number].parts[at].mark = mark;
            return;
        }
        let is_durable =
            |part: &BatchPart| part.mark.is_some_and(|mark| mark <= self.acknowledged[part.shard as usize]);
        if !batch.parts.iter().all(is_durable) {
            return;
        }
        self.batches[number].acknowledged = true;
        let deletion = Change::DeletePartition(Deletion { timestamp: 2, deleted_at_s: self.now_s() });
        let deletion = entry_row(&batch.key, self.token_of(batch.coordinator), deletion);
        self.batches[number].deleted = self.record(batch.coordinator, vec![deletion]);
        self.batches[number].is_over = self.batches[number].deleted.is_some();
    }

    /// Ends writes over shards whose entries are durably deleted.
    pub(super) fn end_batches(&mut self) {
        for batch in &mut self.batches {
            let acknowledged = self.acknowledged[batch.coordinator as usize];
            if batch.deleted.is_some_and(|deleted| deleted <= acknowledged) {
                batch.in_flight = None;
            }
        }
    }

    /// Ends all writes over shards, unless the machine crashes. Their entries are then deleted
    /// durably: a start that applied one again after a truncation would undo that. (TRUNCATE of a
    /// server gives the table another identity, so that such an entry is left out.)
    pub(super) fn finish_batches(&mut self) {
        for _ in 0..20_000 {
            if !self.is_up() || self.batches.iter().all(|batch| batch.in_flight.is_none()) {
                return;
            }
            (0..self.batches.len()).for_each(|number| self.advance_batch(number));
            step();
            self.acknowledge();
        }
        panic!("a write over shards does not end");
    }

    /// Returns the keys of live entries.
    pub(super) fn entries(&mut self) -> Option<BTreeSet<Bytes>> {
        Some(self.found_entries()?.into_iter().map(|(_, _, key, _)| key).collect())
    }

    fn found_entries(&mut self) -> Option<Vec<(u32, i64, Bytes, Bytes)>> {
        let (shards, latest_s) = (self.shards.clone(), self.latest_s);
        let scan = async move {
            let mut found = Vec::new();
            for (shard, own) in (0..).zip(&shards) {
                let mut scan = own.scan(BATCHES, i64::MIN..=i64::MAX, None, latest_s);
                while let Some((token, key, view)) = scan.next().await? {
                    for row in view.rows() {
                        let value = row.cell(0).and_then(|cell| cell.value().map(Bytes::copy_from_slice));
                        found.push((shard, token, key.clone(), value.expect("an entry has a value")));
                    }
                }
            }
            Ok(found)
        };
        let found = run(&self.sim, scan);
        match found? {
            Ok(found) => Some(found),
            Err(error) => {
                let error: StorageError = error;
                assert!(self.tight || self.was_damaged, "entries cannot be read: {error}");
                None
            }
        }
    }

    /// Applies the entries that a start finds, and deletes them. Returns false if the machine
    /// crashed.
    pub(super) fn replay_batches(&mut self) -> bool {
        let Some(entries) = self.found_entries() else { return false };
        for (shard, token, key, entry) in entries {
            self.note(format!("  replay of {key:?}"));
            let mut all = decode_mutations(entry).expect("an entry is whole");
            all.retain(|m| m.table == SYSTEM || self.tables.iter().any(|own| own.0 == m.table));
            let mut parts: Vec<(u32, Vec<Mutation>)> = Vec::new();
            for mutation in all {
                let home = self.home(mutation.table, mutation.token);
                match parts.iter_mut().find(|part| part.0 == home) {
                    Some(part) => part.1.push(mutation),
                    None => parts.push((home, vec![mutation])),
                }
            }
            let deletion = Change::DeletePartition(Deletion { timestamp: 2, deleted_at_s: self.now_s() });
            parts.push((shard, vec![entry_row(&key, token, deletion)]));
            for (shard, mutations) in parts {
                let own = self.shards[shard as usize].clone();
                let applied = run(&self.sim, async move { own.apply_yielding(mutations).await?.await });
                match applied {
                    None => return false,
                    Some(Ok(())) => {}
                    // Refused for lack of space: the entry stays for the next start.
                    Some(Err(error)) => {
                        assert!(self.tight && is_tight(&error), "an entry cannot be applied: {error}");
                        return false;
                    }
                }
            }
            self.counts.replayed += 1;
        }
        true
    }
}
