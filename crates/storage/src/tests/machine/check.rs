//! Compares the machine's contents with the model.

use std::fmt::Debug;

use super::super::compare;
use super::*;

/// Returns a row or partition without the cells of dropped columns.
fn left(mut seen: Seen, dropped: &BTreeSet<u32>) -> Seen {
    seen.statics.retain(|cell| !dropped.contains(&cell.0));
    for row in &mut seen.rows {
        row.2.retain(|cell| !dropped.contains(&cell.0));
    }
    seen.rows.retain(|row| row.1.is_some() || !row.2.is_empty());
    seen
}

impl Machine {
    /// Returns the first column of a partition's only row. Damage may hide it.
    pub(super) fn cell(&mut self, table: TableId, token: i64, key: &Bytes) -> Option<Option<Bytes>> {
        let own = self.shards[home(table, token, self.shards.len() as u32) as usize].clone();
        let read = run(&self.sim, own.read_row(table, token, key, &[], Pick::ALL, self.latest_s).wait())?;
        let row = read.unwrap_or_else(|error| panic!("{table:?} {key:?}: {error}"));
        let value = row.and_then(|row| row.cell(0).and_then(|cell| cell.value().map(Bytes::copy_from_slice)));
        Some(value)
    }

    /// Checks that all shards return the expected contents. Does nothing if the machine crashes
    /// meanwhile.
    pub(super) fn check(&mut self, what: &str) {
        let sim = self.sim.clone();
        let random = Random::new(self.random.next_u64());
        let result = run(&sim, self.differs(random));
        if let Some(Err(difference)) = result {
            panic!("{what}, at {} s: {difference}", self.latest_s);
        }
    }

    async fn differs(&self, mut random: Random) -> Result<(), String> {
        let now_s = self.latest_s;
        let none = BTreeSet::new();
        let tables = self.tables.iter().map(|(table, dropped)| (*table, dropped));
        for (table, dropped) in tables.chain([(SYSTEM, &none), (MARKS, &none)]) {
            for number in 0..compare::KEYS {
                let (token, key) = key(number);
                let token = spread(token);
                let shard = &self.shards[home(table, token, self.shards.len() as u32) as usize];
                let wanted = self.store.see(table, token, &key, now_s);
                if dropped.is_empty() && !self.was_damaged && !self.tight {
                    compare::partition(shard, table, token, &key, &wanted, &mut random, now_s).await?;
                    compare::rows(shard, table, token, &key, &wanted, &mut random, now_s).await?;
                } else {
                    self.roughly(shard, table, token, &key, &left(wanted, dropped), dropped).await?;
                }
            }
            self.scanned(table, dropped, now_s).await?;
        }
        Ok(())
    }

    /// Returns an answer, or `None` if damage or a lack of resources explains the error.
    fn excused<T>(&self, what: impl Debug, answer: Result<T, StorageError>) -> Result<Option<T>, String> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(StorageError::Corrupt { .. }) if self.was_damaged => Ok(None),
            Err(error) if self.tight && is_tight(&error) => Ok(None),
            Err(error) => Err(format!("{what:?}: {error}")),
        }
    }

    /// Compares a partition, or checks that damage explains its error.
    async fn roughly(
        &self,
        shard: &Rc<Shard>,
        table: TableId,
        token: i64,
        key: &Bytes,
        wanted: &Seen,
        dropped: &BTreeSet<u32>,
    ) -> Result<(), String> {
        let what = format!("{table:?} {key:?}");
        let view = shard.read_partition(table, token, key, self.latest_s).wait().await;
        if let Some(view) = self.excused(&what, view)? {
            let found = left(view.map(|view| seen(&view)).unwrap_or_default(), dropped);
            compare::differs(&what, &found, wanted)?;
        }
        for row in 0..20_u8 {
            let read = shard.read_row(table, token, key, &[row], Pick::ALL, self.latest_s).wait().await;
            let Some(row_found) = self.excused(&what, read)? else { continue };
            let wanted = wanted.rows.iter().find(|own| own.0[..] == [row]).map(|own| &own.2);
            let cells = row_found.map(|row| row.cells().map(seen_cell).collect::<Vec<_>>());
            let cells = cells.map(|mut cells| {
                cells.retain(|cell| !dropped.contains(&cell.0));
                cells
            });
            let what = format!("{what} row {row}");
            compare::differs(&what, cells.unwrap_or_default(), wanted.cloned().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Checks that each shard returns its own partitions only.
    async fn scanned(&self, table: TableId, dropped: &BTreeSet<u32>, now_s: u32) -> Result<(), String> {
        let mut wanted = self.store.scan(table, now_s);
        wanted.iter_mut().for_each(|one| one.2 = left(std::mem::take(&mut one.2), dropped));
        for (number, shard) in (0..).zip(&self.shards) {
            let what = format!("scan of {table:?} on shard {number}");
            let is_own = |token: i64| home(table, token, self.shards.len() as u32) == number;
            let own = wanted.iter().filter(|one| is_own(one.0) && one.2 != Seen::default()).cloned();
            let mut found = Vec::new();
            let mut scan = shard.scan(table, i64::MIN..=i64::MAX, None, now_s);
            let is_whole = loop {
                let Some(next) = self.excused(&what, scan.next().await)? else { break false };
                let Some((token, key, view)) = next else { break true };
                found.push((token, key.clone(), left(seen(&view), dropped)));
            };
            found.retain(|one| one.2 != Seen::default());
            if is_whole {
                compare::differs(&what, found, own.collect())?;
            }
        }
        Ok(())
    }
}
