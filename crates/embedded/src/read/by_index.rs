//! Reading rows that an index names. The rows come in the order of a scan, pass all filters of the
//! query, and continue from the same positions. So an index changes the cost of an answer only.

use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, ResultRows};
use schema::TableDef;
use storage::{Shard, TableId};

use crate::Embedded;
use crate::bind::expression::groups::OpenGroup;
use crate::bind::slice::is_in;
use crate::index::cursor::{Cursor, Filled, Probe};
use crate::index::entry::{Entry, Place};
use crate::index::stale::Reported;
use crate::read::chunk::{Chunk, Ends};
use crate::read::paging::Position;
use crate::read::partition::{PartitionKey, PartitionRead, Slice};
use crate::read::scan::{PARTITION_UNITS, PORTION_PARTITIONS_MAX, PartitionRows, Portion, Scan};

/// Entries that one portion of a scan looks at, at most. It ends then without rows.
const PORTION_ENTRIES_MAX: usize = 5000;

impl Embedded {
    /// Ends a read by an index, and has the reported entries checked.
    ///
    /// # Errors
    /// Returns [`Error::Stale`] if an index was dropped meanwhile: its entries may be missing.
    fn end_probe(
        self: &Rc<Self>,
        def: &Arc<TableDef>,
        probe: &Probe,
        reported: Reported,
    ) -> Result<(), Error> {
        let table = TableId(def.data_id().as_u128());
        if !probe.all_data().all(|data| self.indexes.maintains(table, data)) {
            return Err(Error::Stale);
        }
        self.check_entries(def, probe.data(), reported.take());
        Ok(())
    }
}

impl Slice {
    /// Reads the rows of one partition that the index names, after a row. Returns as
    /// [`Slice::one_on`] does.
    pub(super) async fn rows_by_index(
        &self,
        shard: &Rc<Shard>,
        probe: &Probe,
        partition: PartitionKey<'_>,
        after: Option<&Bytes>,
        chunk: &mut Chunk,
    ) -> Result<bool, Error> {
        let PartitionKey { token, key } = partition;
        let place = Place { token, key, row: after.map(|row| &row[..]) };
        let mut cursor = Cursor::of_rows(shard, probe, self.now_s, place);
        let (mut read, mut reported) = (PartitionRead::default(), Reported::default());
        let mut ended = None;
        while ended.is_none() && cursor.fill().await? == Filled::Entries {
            let entries = cursor.take();
            ended = self.rows_of_entries(shard, partition, &entries, &mut read, chunk, &mut reported).await?;
        }
        Embedded::local().end_probe(&self.def, probe, reported)?;
        Ok(ended.unwrap_or(true))
    }

    /// Reads the rows of entries of one partition. Returns `Some` if no more of the partition are
    /// wanted, as [`Slice::over`] does.
    async fn rows_of_entries(
        &self,
        shard: &Rc<Shard>,
        partition: PartitionKey<'_>,
        entries: &[Entry],
        read: &mut PartitionRead,
        chunk: &mut Chunk,
        reported: &mut Reported,
    ) -> Result<Option<bool>, Error> {
        let PartitionKey { token, key } = partition;
        for entry in entries {
            let Some(row) = entry.row.as_ref().filter(|row| is_in(&self.ranges, row)) else { continue };
            let is_grouped = self.projection.groups().is_some();
            let has_enough =
                chunk.of_partition >= self.per_partition || self.distinct && chunk.of_partition > 0;
            if has_enough && !is_grouped {
                return Ok(Some(true));
            }
            let before = chunk.passed;
            let range = [(Bound::Included(&row[..]), Bound::Included(&row[..]))];
            let ended = self.over(shard, token, key, &range, read, chunk).await?;
            if ended.is_some() {
                return Ok(ended);
            }
            if before == chunk.passed {
                reported.add(entry);
            }
        }
        Ok(None)
    }
}

impl Slice {
    /// Reads the rows of a partition's entries, or all of its rows without any. Returns as
    /// [`Slice::one_on`] does.
    async fn partition_by_index(
        &self,
        shard: &Rc<Shard>,
        partition: PartitionKey<'_>,
        entries: Option<&[Entry]>,
        chunk: &mut Chunk,
        reported: &mut Reported,
    ) -> Result<bool, Error> {
        let PartitionKey { token, key } = partition;
        let whole = match entries {
            Some(entries) => {
                let mut read = PartitionRead::default();
                self.rows_of_entries(shard, partition, entries, &mut read, chunk, reported).await?
            }
            None => Some(self.one(shard, token, key, None, chunk).await?),
        };
        self.close_group(chunk)?;
        Ok(whole.unwrap_or(true))
    }
}

impl Scan {
    /// Reads partitions of one core that the index names, after `start`. `group` has the rows
    /// before.
    pub(super) async fn portion_by_index(
        &self,
        shard: &Rc<Shard>,
        probe: &Probe,
        start: Position,
        rows_max: u32,
        bytes_max: usize,
        group: Option<OpenGroup>,
    ) -> Result<Portion, Error> {
        let rows = ResultRows::new(Arc::from([]));
        let mut chunk = Chunk { group, ..Chunk::new(rows, rows_max, bytes_max, Ends::Portion) };
        let mut partitions = VecDeque::new();
        let slice = Slice { reads: Arc::default(), ..self.slice.clone() };
        let after = start.key.as_ref().map(|key| Place { token: start.token, key, row: None });
        let mut cursor = Cursor::of_tokens(shard, probe, slice.now_s, &self.tokens, after);
        let mut reported = Reported::default();
        let (mut next, mut looked) = (start.clone(), 0);
        let (mut filled, mut read_partitions) = (cursor.fill().await?, 0);
        while filled == Filled::Entries {
            if looked >= PORTION_ENTRIES_MAX || read_partitions >= PORTION_PARTITIONS_MAX {
                break;
            }
            read_partitions += 1;
            let first = cursor.front().expect("the cursor was filled");
            let (token, key) = (first.token, first.key.clone());
            if lanes::spend(PARTITION_UNITS) {
                lanes::yield_now().await;
            }
            (chunk.of_partition, chunk.last) = (0, None);
            let before = (chunk.rows.count, chunk.rows.cells.len());
            let passed = chunk.passed;
            let entries = cursor.take_partition(token, &key);
            looked += entries.as_ref().map_or(PORTION_ENTRIES_MAX, Vec::len);
            let of = PartitionKey { token, key: &key };
            let own = entries.as_deref().filter(|_| probe.names_rows);
            let whole = slice.partition_by_index(shard, of, own, &mut chunk, &mut reported).await?;
            if !whole {
                chunk.rows.cells.truncate(before.1);
            }
            let (rows, end) = (chunk.rows.count - before.0, chunk.rows.cells.len());
            let looked_at = slice.reads.take();
            if rows == 0 && whole {
                self.slice.reads.add(looked_at.0, looked_at.1);
                if !probe.names_rows && passed == chunk.passed {
                    entries.iter().flatten().for_each(|entry| reported.add(entry));
                }
            }
            if rows > 0 || !whole && partitions.is_empty() {
                partitions.push_back(PartitionRows { token, key: key.clone(), rows, end, whole, looked_at });
            }
            if !whole {
                Embedded::local().end_probe(&slice.def, probe, reported)?;
                return Ok(Portion::of(chunk, partitions, Some(next)));
            }
            next = Position::after(token, key);
            filled = cursor.fill().await?;
        }
        Embedded::local().end_probe(&slice.def, probe, reported)?;
        match filled {
            Filled::Entries => {}
            Filled::Paused(token) => next = Position::after(token, Bytes::new()),
            Filled::Many(tokens) if read_partitions == 0 => {
                return self.portion_of(shard, tokens, next, rows_max, bytes_max, chunk.group).await;
            }
            // The next portion finds it first.
            Filled::Many(_) => {}
            Filled::End => return Ok(Portion::of(chunk, partitions, None)),
        }
        Ok(Portion::of(chunk, partitions, Some(next)))
    }
}
